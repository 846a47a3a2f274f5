//! Logarithms for the inverse square root: μ^{-1/2} ≈ Σ_j v_j ln(1 + τ_j/μ) with v_j > 0.
//!
//! A lower bound on a = Σ μ_i^{-1/2} then needs determinants only, since Σ_i ln(1 + τ/μ_i) = ln det(V⁻¹ + τU) + ln det V, and
//! those are far less sensitive to rounding than resolvents. As ln(1 + τ/μ) = ∫₀^τ dt/(μ + t), this is a sum of resolvents with a positive measure of
//! nodes t, and what is proved about one such sum from its numbers alone holds for this one too (docs/theory.md, section 8).

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::linalg::quadrature;

/// The distance of two nodes, in ln τ. The error falls like exp(−2π²/distance).
const DISTANCE: f64 = 1.2;
/// How far the nodes reach beyond either end of the interval, in ln τ. Below it weights are large, and with them the share of rounding errors.
const BEYOND: (f64, f64) = (3.0, 5.0);
/// Points of the fit in one unit of ln μ.
const DENSITY: f64 = 4.0;
/// No rule reaches further, in ln μ. A spectrum beyond it makes a bound weaker, never false.
const LONGEST: f64 = 80.0;

/// Nodes τ and positive weights v.
#[derive(Debug, Clone)]
pub struct Logarithms {
    /// τ_j, increasing.
    pub nodes: Vec<f64>,
    /// v_j.
    pub weights: Vec<f64>,
}

impl Logarithms {
    /// The rule for [low, high]: a least squares fit of Σ v_j ln(1 + τ_j/μ)√μ to one, with evenly spaced ln τ_j. Of the nodes at the ends,
    /// which are more than the fit needs, those with negative weights are left out one after another.
    pub fn new(low: f64, high: f64) -> Result<Self> {
        if !((1e-140..=1e140).contains(&low) && high > low) {
            return Err(Error::Numerical(format!("no logarithms on [{low:e}, {high:e}]")));
        }
        let (start, length) = (low.ln(), (high / low).ln().clamp(1.0, LONGEST));
        let whole = BEYOND.0 + length + BEYOND.1;
        let count = (whole / DISTANCE).ceil();
        let node = |j: usize| start - BEYOND.0 + whole * j as f64 / count;
        let mut logs: Vec<f64> = (0..=count as usize).map(node).collect();
        let points = (DENSITY * length).ceil() as usize + 20;
        loop {
            let point = |i: usize| start + length * i as f64 / (points - 1) as f64;
            // Columns are divided by √τ_j, so that all weights are of one size.
            let fit = dense::from_fn(points, logs.len() + 1, |i, j| match logs.get(j) {
                Some(log) => term(log - point(i))[0],
                None => 1.0,
            });
            let weights = least_squares(&fit);
            let least = (0..logs.len()).min_by(|a, b| weights[*a].total_cmp(&weights[*b])).unwrap_or(0);
            if weights[least] > 0.0 {
                let weights =
                    weights.iter().zip(&logs).map(|(weight, log)| weight * (-0.5 * log).exp()).collect();
                return Ok(Logarithms { nodes: logs.iter().map(|log| log.exp()).collect(), weights });
            }
            logs.remove(least);
            if logs.is_empty() {
                return Err(Error::Numerical(format!("no positive logarithms on [{low:e}, {high:e}]")));
            }
        }
    }

    /// An upper bound on sup Σ v_j ln(1 + τ_j/μ)√μ over all μ > 0, tight to `tolerance`.
    pub fn supremum(&self, tolerance: f64) -> f64 {
        // A term rises with μ up to τ/4 at least, and falls from τ on at the latest.
        let (low, high) = (self.nodes[0].ln() - 4f64.ln(), self.nodes[self.nodes.len() - 1].ln());
        let scaled = self.scaled();
        quadrature::supremum(low, high, tolerance, |s| h(&scaled, s))
    }

    /// ln τ_j and v_j√τ_j.
    fn scaled(&self) -> Vec<(f64, f64)> {
        self.nodes.iter().zip(&self.weights).map(|(node, weight)| (node.ln(), weight * node.sqrt())).collect()
    }
}

/// h(s) = Σ v_j ln(1 + τ_j/μ)√μ at μ = eˢ, and its first two derivatives in s.
fn h(scaled: &[(f64, f64)], s: f64) -> [f64; 3] {
    let mut h = [0.0; 3];
    for (log, scale) in scaled {
        h.iter_mut().zip(term(log - s)).for_each(|(h, term)| *h += scale * term);
    }
    h
}

/// ln(1 + y)/√y at y = τ/μ = eˣ, and its first two derivatives in ln μ = ln τ − x.
fn term(x: f64) -> [f64; 3] {
    let (y, root) = (x.exp(), (0.5 * x).exp());
    let value = y.ln_1p() / root;
    let rest = root / (1.0 + y);
    let slope = 0.5 * value - rest;
    [value, slope, 0.5 * slope + rest * (0.5 - y / (1.0 + y))]
}

/// The least squares solution of [B | b]: v with Bv ≈ b.
fn least_squares(system: &Matrix) -> Vec<f64> {
    let r = dense::small_qr(system);
    let n = system.ncols() - 1;
    let mut v = vec![0.0; n];
    for i in (0..n).rev() {
        let rest: f64 = (i + 1..n).map(|j| r[(i, j)] * v[j]).sum();
        v[i] = (r[(i, n)] - rest) / r[(i, i)];
    }
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_accurate_on_their_interval_and_never_above_their_supremum() {
        for condition in [1.0 + 1e-9, 3.0, 1e2, 1e6, 1e12, 1e20, 1e34] {
            for low in [1e-90, 0.3, 1e60] {
                let rule = Logarithms::new(low, low * condition).unwrap();
                assert!(rule.weights.iter().all(|weight| *weight > 0.0));
                let (top, scaled) = (rule.supremum(1e-9), rule.scaled());
                assert!((top - 1.0).abs() < 4e-7, "{condition:e}: {top}");
                let (start, end) = (low.ln(), (low * condition).ln());
                for i in 0..=5000 {
                    let s = start - 20.0 + (end - start + 40.0) * i as f64 / 5000.0;
                    let [value, slope, second] = h(&scaled, s);
                    assert!(value <= top, "{condition:e}, s = {s}: {value} > {top}");
                    assert!(
                        !(start..=end).contains(&s) || value > 1.0 - 4e-7,
                        "{condition:e}, s = {s}: {value}"
                    );
                    let (above, below) = (h(&scaled, s + 1e-5), h(&scaled, s - 1e-5));
                    for (derivative, i) in [(slope, 0), (second, 1)] {
                        let difference = (above[i] - below[i]) / 2e-5;
                        assert!((derivative - difference).abs() < 1e-5, "{derivative} {difference}");
                    }
                }
            }
        }
        for (low, high) in [(0.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (1.0, f64::NAN), (1e-200, 1.0)] {
            assert!(Logarithms::new(low, high).is_err());
        }
    }
}
