//! T and its inverse as sums of powers, with what is needed to sum the powers without cancellation.

use crate::families::comb::filter::Filter;

/// A number ρ in [0, 1] with 1 − ρ and ln ρ, each accurate to a few ε relatively, even where ρ is next to one.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    value: f64,
    gap: f64,
    log: f64,
}

impl Ratio {
    /// One: what is summed is not damped.
    pub const ONE: Ratio = Ratio { value: 1.0, gap: 0.0, log: 0.0 };

    /// A number that is known exactly. 1 − ρ has no error from ½ on, and one of ε/2 below.
    pub fn of(value: f64) -> Ratio {
        let gap = 1.0 - value;
        Ratio { value, gap, log: if value < 0.5 { value.ln() } else { (-gap).ln_1p() } }
    }

    /// The number 1 − gap, where the gap is what is known.
    pub fn from_gap(gap: f64) -> Ratio {
        Ratio { value: 1.0 - gap, gap, log: (-gap).ln_1p() }
    }

    /// ρ.
    pub fn value(self) -> f64 {
        self.value
    }

    /// 1 − ρ.
    pub fn gap(self) -> f64 {
        self.gap
    }

    /// The product of two: 1 − ab = (1 − a) + a(1 − b) has positive terms only.
    pub fn times(self, other: Ratio) -> Ratio {
        Ratio {
            value: self.value * other.value,
            gap: self.gap + self.value * other.gap,
            log: self.log + other.log,
        }
    }

    /// ρ^n. The error is |n·ln ρ|·ε relatively, so at most about ε where one is the measure: x·exp(−x) < 1.
    pub fn pow(self, n: usize) -> f64 {
        if n == 0 { 1.0 } else { (n as f64 * self.log).exp() }
    }

    /// 1 + ρ + … + ρ^(n−1), to a few ε relatively: expm1 has what is left of the difference.
    pub fn sum(self, n: usize) -> f64 {
        match (n, self.gap == 0.0) {
            (0, _) => 0.0,
            (_, true) => n as f64,
            (_, false) => -(n as f64 * self.log).exp_m1() / self.gap,
        }
    }
}

/// Coefficients c of T⁻¹ and w of T: c_0 = w_0 = 1, and for m ≥ 1 c_m = Σ ω_i p_i^(m−1), w_m = −Σ ω̂_i ẑ_i^(m−1).
#[derive(Debug, Clone)]
pub struct Rational {
    /// p.
    pub poles: Vec<Ratio>,
    /// ω, all positive.
    pub weights: Vec<f64>,
    /// ẑ.
    pub zeros: Vec<Ratio>,
    /// ω̂, all positive.
    pub inverse_weights: Vec<f64>,
}

impl Rational {
    /// Of a filter.
    pub fn of(filter: &Filter) -> Rational {
        Rational {
            poles: filter.poles().iter().map(|p| Ratio::of(*p)).collect(),
            weights: filter.weights(),
            zeros: filter.zeros().iter().map(|z| Ratio::of(*z)).collect(),
            inverse_weights: filter.inverse_weights(),
        }
    }

    /// Of 1 − p and 1 − ẑ, interlaced, for a design: poles next to one can be told apart where 1 − p itself would be rounded.
    pub fn from_gaps(poles: &[f64], zeros: &[f64]) -> Rational {
        // Differences of gaps are differences of poles with the other sign.
        let residue = |at: &[f64], other: &[f64], i: usize| -> f64 {
            let ratio = |j: usize| match j == i {
                true => other[j] - at[i],
                false => (other[j] - at[i]) / (at[j] - at[i]),
            };
            (0..at.len()).map(ratio).product()
        };
        let all = |at: &[f64], other: &[f64]| (0..at.len()).map(|i| residue(at, other, i)).collect();
        let inverse: Vec<f64> = all(zeros, poles);
        Rational {
            poles: poles.iter().map(|gap| Ratio::from_gap(*gap)).collect(),
            weights: all(poles, zeros),
            zeros: zeros.iter().map(|gap| Ratio::from_gap(*gap)).collect(),
            inverse_weights: inverse.iter().map(|x| -x).collect(),
        }
    }

    /// d.
    pub fn buffers(&self) -> usize {
        self.poles.len()
    }

    /// g: the prefix sums of w are g_0 + Σ g_i ẑ_i^t, with g_0 = T(1) = Π(1 − p_i)/(1 − ẑ_i) and g_i = ω̂_i/(1 − ẑ_i), all positive.
    pub fn prefix_weights(&self) -> Vec<f64> {
        let limit = self.poles.iter().zip(&self.zeros).map(|(p, z)| p.gap() / z.gap()).product();
        let others = self.inverse_weights.iter().zip(&self.zeros).map(|(w, z)| w / z.gap());
        std::iter::once(limit).chain(others).collect()
    }
}
