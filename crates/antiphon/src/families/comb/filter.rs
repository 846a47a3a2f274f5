//! The filter T: the inverse of a BLT (buffered linear Toeplitz matrix), a rational function of the delay x.
//!
//! ```text
//! T⁻¹ = Π(1 − ẑ_i x) / Π(1 − p_i x),     1 > p_1 > ẑ_1 > p_2 > ẑ_2 > … ≥ 0        (p poles, ẑ zeros)
//! T⁻¹ = 1 + Σ ω_i x/(1 − p_i x),         ω_i > 0
//! T   = 1 − Σ ω̂_i x/(1 − ẑ_i x),         ω̂_i > 0
//! ```
//!
//! Interlacing makes all weights positive, so that no sum of them cancels, and the coefficients of T⁻¹ fall.

use crate::error::{Error, Result};

pub use crate::mechanism::family::MAX_BUFFERS;

/// Poles and zeros of T⁻¹, interlaced.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    poles: Vec<f64>,
    zeros: Vec<f64>,
}

impl Filter {
    /// Refuses what is not interlaced, from the largest pole down.
    pub fn new(poles: &[f64], zeros: &[f64]) -> Result<Filter> {
        if !(1..=MAX_BUFFERS).contains(&poles.len()) {
            return Err(Error::argument(
                "the number of buffers",
                format!("in 1..={MAX_BUFFERS}"),
                poles.len(),
            ));
        }
        if zeros.len() != poles.len() {
            let allowed = format!("as many as there are poles, {}", poles.len());
            return Err(Error::argument("the number of zeros", allowed, zeros.len()));
        }
        let mut above = 1.0;
        for (i, (pole, zero)) in poles.iter().zip(zeros).enumerate() {
            if !(*pole < above && *pole > 0.0) {
                let allowed = format!("in (0, {above}), below the zero before it");
                return Err(Error::argument(format!("poles[{i}]"), allowed, pole));
            }
            if !(*zero < *pole && *zero >= 0.0) {
                let allowed = format!("in [0, {pole}), below the pole before it");
                return Err(Error::argument(format!("zeros[{i}]"), allowed, zero));
            }
            above = *zero;
        }
        Ok(Filter { poles: poles.to_vec(), zeros: zeros.to_vec() })
    }

    /// d.
    pub fn buffers(&self) -> usize {
        self.poles.len()
    }

    /// p, from the largest down.
    pub fn poles(&self) -> &[f64] {
        &self.poles
    }

    /// ẑ, from the largest down.
    pub fn zeros(&self) -> &[f64] {
        &self.zeros
    }

    /// ω: coefficient m ≥ 1 of T⁻¹ is Σ ω_i p_i^(m−1). Products and quotients of differences of given numbers: accurate to (4d + 1)·ε,
    /// relatively.
    pub fn weights(&self) -> Vec<f64> {
        residues(&self.poles, &self.zeros)
    }

    /// ω̂: coefficient m ≥ 1 of T is −Σ ω̂_i ẑ_i^(m−1); as accurate.
    pub fn inverse_weights(&self) -> Vec<f64> {
        residues(&self.zeros, &self.poles).iter().map(|x| -x).collect()
    }
}

/// Π_j (at_i − other_j) / Π_{j≠i} (at_i − at_j) for every i.
fn residues(at: &[f64], other: &[f64]) -> Vec<f64> {
    let residue = |i: usize| {
        let ratio = |j: usize| match j == i {
            true => at[i] - other[j],
            false => (at[i] - other[j]) / (at[i] - at[j]),
        };
        (0..at.len()).map(ratio).product()
    };
    (0..at.len()).map(residue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_fractions_are_those_of_the_product() {
        let filter = Filter::new(&[0.999, 0.9, 0.4], &[0.98, 0.6, 0.1]).unwrap();
        let n = 50;
        // Series of the product, factor by factor: y_m = x_m − ẑ x_(m−1) + p y_(m−1).
        let mut series = vec![0.0; n];
        series[0] = 1.0;
        for (p, z) in filter.poles().iter().zip(filter.zeros()) {
            let (mut last_in, mut last_out) = (0.0, 0.0);
            for x in &mut series {
                let out = *x - z * last_in + p * last_out;
                (last_in, last_out) = (*x, out);
                *x = out;
            }
        }
        let weights = filter.weights();
        assert!(weights.iter().chain(&filter.inverse_weights()).all(|x| *x > 0.0));
        for (m, x) in series.iter().enumerate().skip(1) {
            let sum: f64 = weights.iter().zip(filter.poles()).map(|(w, p)| w * p.powi(m as i32 - 1)).sum();
            assert!((sum - x).abs() < 1e-14, "{m} {sum} {x}");
        }
    }

    #[test]
    fn what_is_not_interlaced_is_refused() {
        let refused = |poles: &[f64], zeros: &[f64], name: &str| {
            let message = Filter::new(poles, zeros).unwrap_err().to_string();
            assert!(message.starts_with(name), "{message}");
        };
        refused(&[], &[], "the number of buffers must be in 1..=16, got 0");
        refused(&[0.9], &[], "the number of zeros");
        refused(&[1.0], &[0.5], "poles[0]");
        refused(&[f64::NAN], &[0.5], "poles[0]");
        refused(&[0.9, 0.95], &[0.5, 0.4], "poles[1]");
        refused(&[0.9], &[0.9], "zeros[0]");
        refused(&[0.9], &[-0.1], "zeros[0]");
    }
}
