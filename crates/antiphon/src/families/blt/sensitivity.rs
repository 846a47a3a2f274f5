//! The Toeplitz rule: the worst pattern is {0, b, 2b, …}, and the norm of its sum in closed form (docs/theory.md).
//!
//! C = T⁻¹·Diag(D), with coefficients c of T⁻¹ that are non-negative and do not grow, and D that does not grow:
//!
//! ```text
//! sens² = ‖v‖²,    v = Σ_{j<m} D_{jb}·c(· − jb),    m = min(k, ⌈n/b⌉)
//! ```
//!
//! In step jb + τ of block j, v = Σ_i ω_i a_i p_i^(τ−1) for τ ≥ 1 with a_i = Σ_{q≤j} D_{qb} p_i^((j−q)b), and v = D_{jb} + Σ_i ω_i p_i^(b−1) a'_i for τ = 0
//! with the a'_i of the block before. Squares of such sums are geometric sums. All terms are positive.

use super::rational::{Ratio, Rational};
use crate::linalg::vectors::dot;

/// The pattern {0, b, 2b, …} and what its sum takes.
#[derive(Debug)]
pub struct Rule {
    /// m.
    participations: usize,
    /// p_i^b.
    decay: Vec<f64>,
    /// ω_i p_i^(b−1).
    entering: Vec<f64>,
    /// Σ over the steps τ ≥ 1 of a block of ω_a ω_c (p_a p_c)^(τ−1); of the last block, which may be incomplete;
    block: Vec<f64>,
    last: Vec<f64>,
    /// and of all steps behind the last block.
    tail: Vec<f64>,
}

impl Rule {
    /// For n steps, at least b between two participations, at most k of them.
    pub fn new(rational: &Rational, n: usize, b: usize, k: usize) -> Rule {
        let m = k.min(n.div_ceil(b));
        let entering: Vec<f64> =
            rational.poles.iter().zip(&rational.weights).map(|(p, w)| w * p.pow(b - 1)).collect();
        let end = n.min(m * b);
        Rule {
            participations: m,
            decay: rational.poles.iter().map(|p| p.pow(b)).collect(),
            block: squares(&rational.poles, &rational.weights, b - 1),
            last: squares(&rational.poles, &rational.weights, end - (m - 1) * b - 1),
            tail: squares(&rational.poles, &entering, n - end),
            entering,
        }
    }

    /// m.
    pub fn participations(&self) -> usize {
        self.participations
    }

    /// A bound on the relative error of [`Rule::squared`], where exp, expm1 and log1p are accurate to 2ε. Of positive terms: ω to (4d + 1)ε, twice, powers and geometric sums to a
    /// few ε, and p_i^b, of which a_i has up to m-th powers, to 2ε: 4m·ε in a square. The sum over m blocks has m·ε/2. D is for the
    /// caller, who has it by one division of a sum of two products: 3ε, twice.
    pub fn rounding(&self) -> f64 {
        (1024.0 + 8.0 * self.participations as f64) * f64::EPSILON
    }

    /// ‖v‖² for D at the j-th step of the pattern.
    pub fn squared(&self, d: impl Fn(usize) -> f64) -> f64 {
        let mut a = vec![0.0; self.decay.len()];
        let mut sum = 0.0;
        for j in 0..self.participations {
            let first = d(j) + dot(&self.entering, &a);
            self.advance(&mut a, d(j));
            sum += first * first + form(self.products(j), &a);
        }
        sum + form(&self.tail, &a)
    }

    /// The same, and its derivative by every D_{jb}.
    pub fn squared_with_gradient(&self, d: &[f64], gradient: &mut [f64]) -> f64 {
        let buffers = self.decay.len();
        let (mut states, mut firsts) = (vec![vec![0.0; buffers]], Vec::new());
        let mut sum = 0.0;
        for (j, d) in d.iter().enumerate() {
            let mut a = states[j].clone();
            firsts.push(d + dot(&self.entering, &a));
            self.advance(&mut a, *d);
            sum += firsts[j] * firsts[j] + form(self.products(j), &a);
            states.push(a);
        }
        sum += form(&self.tail, &states[d.len()]);
        // Backwards: what the later blocks make of a.
        let mut later = doubled(&self.tail, &states[d.len()]);
        for j in (0..d.len()).rev() {
            let own = doubled(self.products(j), &states[j + 1]);
            later.iter_mut().zip(own).for_each(|(x, y)| *x += y);
            gradient[j] = 2.0 * firsts[j] + later.iter().sum::<f64>();
            for (i, x) in later.iter_mut().enumerate() {
                *x = self.decay[i] * *x + 2.0 * firsts[j] * self.entering[i];
            }
        }
        sum
    }

    fn advance(&self, a: &mut [f64], d: f64) {
        a.iter_mut().zip(&self.decay).for_each(|(a, decay)| *a = decay * *a + d);
    }

    fn products(&self, block: usize) -> &[f64] {
        if block + 1 < self.participations { &self.block } else { &self.last }
    }
}

/// Σ_{s<n} c_s c_(s+lag): entry (i, j) of the gram matrix without D, for |i − j| = lag and n steps from the later of both on.
pub fn correlation(rational: &Rational, lag: usize, n: usize) -> f64 {
    let (poles, weights) = (&rational.poles, &rational.weights);
    let first = match lag {
        0 => 1.0,
        _ => poles.iter().zip(weights).map(|(p, w)| w * p.pow(lag - 1)).sum(),
    };
    let later: Vec<f64> = poles.iter().map(|p| p.pow(lag)).collect();
    let mut sum = first;
    for (a, p) in poles.iter().enumerate() {
        for (c, q) in poles.iter().enumerate().skip(a) {
            // Both orders of a pair of poles at once.
            let powers = if a == c { later[a] } else { later[a] + later[c] };
            sum += weights[a] * weights[c] * powers * p.times(*q).sum(n - 1);
        }
    }
    sum
}

/// A bound on the relative error of [`correlation`]: as of [`Rule::rounding`], without the blocks.
pub const CORRELATION_ROUNDING: f64 = 1024.0 * f64::EPSILON;

/// w_a w_c Σ_{τ<n} (p_a p_c)^τ for all pairs.
fn squares(poles: &[Ratio], weights: &[f64], n: usize) -> Vec<f64> {
    let pair = |(p, w): (&Ratio, &f64), (q, v): (&Ratio, &f64)| w * v * p.times(*q).sum(n);
    let all = || poles.iter().zip(weights);
    all().flat_map(|a| all().map(move |c| pair(a, c))).collect()
}

/// aᵀMa.
fn form(m: &[f64], a: &[f64]) -> f64 {
    m.chunks(a.len()).zip(a).map(|(row, x)| x * dot(row, a)).sum()
}

/// 2Ma.
fn doubled(m: &[f64], a: &[f64]) -> Vec<f64> {
    m.chunks(a.len()).map(|row| 2.0 * dot(row, a)).collect()
}
