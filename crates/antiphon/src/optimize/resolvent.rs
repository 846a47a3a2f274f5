//! The structured route: the blocks of X(U) in O(n·k²) per quadrature node, with no n×n matrix.
//!
//! X(U) = (2/π)∫₀^∞ (V⁻¹ + t²U)⁻¹ dt ≈ Σ_j w_j (V⁻¹ + τ_j U)⁻¹ (docs/theory.md, section 6).

use super::blocks::{BlockDual, size_of_block};
use crate::error::Result;
use crate::linalg::block_cyclic::{BlockCyclic, GroupFactors, residue_groups};
use crate::linalg::dense::Matrix;
use crate::linalg::quadrature::{Quadrature, nodes_for};
use crate::schema::Schema;
use crate::workload::{InverseBands, Training, Workload};
use rayon::prelude::*;

/// Nodes come in multiples of this, so that two threads with four lanes each are never idle.
const NODE_MULTIPLE: usize = 8;

/// The largest ratio of a learning rate to an earlier one that the structured route takes together with momentum.
pub const MAX_RISE: f64 = 1001.0;

/// A workload with a banded inverse under fixed epoch order.
pub struct Resolvent {
    training: Training,
    bands: InverseBands,
    structure: BlockCyclic,
    /// Start vector of the power iteration, kept from one iteration to the next.
    forward: Vec<f64>,
}

impl Resolvent {
    /// `None` where the structure does not apply: other schemas, other workloads, fewer than three groups.
    pub fn new(schema: &Schema, workload: &Workload) -> Option<Self> {
        let b = schema.residues()?;
        let training = workload.as_training()?;
        let bands = workload.inverse_bands()?;
        // With momentum, rates that rise multiply the rounding errors of earlier steps. Errors up to 1e-3 were seen for
        // rises of 1e6 and more, none beyond the allowance up to 1e3; what lies between was not measured, so the limit
        // is where the evidence ends. The rest is left to the dense route.
        if training.momentum() > 0.0 && training.largest_rise() > MAX_RISE {
            return None;
        }
        let n = schema.steps();
        let structure = residue_groups(n, b, &bands)?;
        Some(Resolvent {
            training: training.clone(),
            bands,
            structure,
            forward: (0..n).map(|i| 1.0 + i as f64 / n as f64).collect(),
        })
    }

    /// A rule of relative error about `error` for the spectrum of the pencil (V⁻¹, U). Its lower end is estimated by
    /// power iteration and widened; a spectrum that is missed makes X(U) slightly wrong, never a bound.
    pub fn rule(&mut self, dual: &BlockDual, error: f64) -> Result<Quadrature> {
        let training = &self.training;
        // λ_max of (AL)ᵀ(AL) = 1/μ_min. Its eigenvector is smooth and its neighbours are far, so a few steps do.
        let largest = power_iteration(&mut self.forward, |x| {
            dual.apply_factor(x, false);
            training.apply(x);
            training.apply_transpose(x);
            dual.apply_factor(x, true);
        });
        rule_for(1.0 / (2.0 * largest), self.largest_eigenvalue(dual), error)
    }

    /// An upper bound on μ_max, at most 3√k times too large (5√k with momentum).
    ///
    /// M = (AL)⁻¹(AL)⁻ᵀ couples a residue only to the p before and after it, so the residues can be coloured with 2p + 1
    /// colours without couplings inside one, and λ_max(M) ≤ (2p + 1)·max_r λ_max(M_rr): write
    /// xᵀMx = ‖Σ_r y_r‖² and use that the y_r of one colour are orthogonal. The steps of one residue are not coupled by
    /// V⁻¹, hence M_rr = L_r⁻¹·diag(V⁻¹)·L_r⁻ᵀ, and its Frobenius norm bounds its eigenvalues.
    fn largest_eigenvalue(&self, dual: &BlockDual) -> f64 {
        let blocks: Vec<f64> = (0..dual.patterns.len())
            .into_par_iter()
            .map(|r| {
                let inverse = dual.inverse_factor(r);
                let k = size_of_block(&inverse);
                let diagonal: Vec<f64> = dual.patterns[r]
                    .iter()
                    .map(|i| self.bands.rows[*i].iter().map(|x| x * x).sum())
                    .collect();
                let mut squares = 0.0;
                for i in 0..k {
                    for j in 0..=i {
                        let entry: f64 =
                            (0..=j).map(|t| inverse[i * k + t] * diagonal[t] * inverse[j * k + t]).sum();
                        squares += if i == j { 1.0 } else { 2.0 } * entry * entry;
                    }
                }
                squares.sqrt()
            })
            .collect();
        let largest = blocks.into_iter().fold(0.0, f64::max);
        (2 * self.bands.bandwidth + 1) as f64 * largest
    }

    /// An interval that holds the spectrum of the pencil (V⁻¹, U), from norms:
    /// 1/μ_min = ‖AL‖₂² ≤ ‖A‖₁‖A‖_∞·max‖U_r‖ and μ_max ≤ ‖A⁻¹‖₁‖A⁻¹‖_∞·max‖U_r⁻¹‖.
    pub fn spectrum_bounds(&self, dual: &BlockDual) -> (f64, f64) {
        let n = self.forward.len();
        let largest = |x: &[f64]| x.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        // A has no negative entries, so its row and column sums are A·1 and Aᵀ·1.
        let (mut rows, mut columns) = (vec![1.0; n], vec![1.0; n]);
        self.training.apply(&mut rows);
        self.training.apply_transpose(&mut columns);
        let row_sum = |row: &[f64; 3]| row.iter().map(|x| x.abs()).sum::<f64>();
        let inverse_rows = self.bands.rows.iter().map(row_sum).fold(0.0, f64::max);
        let inverse_columns = (0..n)
            .map(|j| (j..n.min(j + 3)).map(|i| self.bands.get(i, j).abs()).sum::<f64>())
            .fold(0.0, f64::max);
        let (u, u_inverse) = dual.norm_bounds();
        // 1.001: far more than the rounding errors of these sums.
        let low = 1.0 / (1.001 * largest(&rows) * largest(&columns) * u);
        let high = 1.001 * inverse_rows * inverse_columns * u_inverse;
        (low, high)
    }

    /// The diagonal blocks of Σ w_jG_j = X(U) and of Σ w_jτ_jG_j, with G_j = (V⁻¹ + τ_jU)⁻¹, one per pattern.
    pub fn blocks(&self, dual: &BlockDual, rule: &Quadrature) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let groups = self.structure.diagonal_blocks(&self.group_factors(dual), rule);
        let (mut grams, mut weighted) = (Vec::new(), Vec::new());
        for (steps, [x, y]) in self.structure.groups().iter().zip(groups) {
            let size = steps.len();
            let mut start = 0;
            while start < size {
                // The patterns are numbered by residue, and groups hold whole residues in order.
                let k = dual.patterns[grams.len()].len();
                let cut = |m: &[f64]| -> Vec<f64> {
                    (0..k * k).map(|e| m[(start + e / k) * size + start + e % k]).collect()
                };
                weighted.push(cut(&y));
                grams.push(cut(&x));
                start += k;
            }
        }
        (grams, weighted)
    }

    /// The lower triangle of X(U) as a dense matrix with its steps in reversed order.
    pub fn lower_reversed(
        &self,
        dual: &BlockDual,
        rule: &Quadrature,
        progress: impl Fn(usize, usize),
    ) -> Matrix {
        self.structure.lower_reversed(&self.group_factors(dual), rule, progress)
    }

    fn group_factors(&self, dual: &BlockDual) -> GroupFactors {
        let mut pattern = 0;
        self.structure
            .groups()
            .iter()
            .map(|steps| {
                let size = steps.len();
                let mut factor = vec![0.0; size * size];
                let mut start = 0;
                while start < size {
                    let k = size_of_block(&dual.factors[pattern]);
                    for (e, x) in dual.scaled_factor(pattern).enumerate() {
                        factor[(start + e / k) * size + start + e % k] = x;
                    }
                    start += k;
                    pattern += 1;
                }
                factor
            })
            .collect()
    }
}

/// The rule for [low, high] with the number of nodes that `error` needs, rounded up to a multiple of 8.
pub fn rule_for(low: f64, high: f64, error: f64) -> Result<Quadrature> {
    let high = high.max(2.0 * low);
    let count = nodes_for(high / low, error).next_multiple_of(NODE_MULTIPLE);
    Quadrature::new(low, high, count)
}

/// The largest eigenvalue of a symmetric positive operator, from below and close enough for an interval.
fn power_iteration(x: &mut [f64], apply: impl Fn(&mut [f64])) -> f64 {
    let mut value = 0.0;
    for _ in 0..8 {
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        x.iter_mut().for_each(|x| *x /= norm);
        apply(x);
        value = x.iter().map(|x| x * x).sum::<f64>().sqrt();
    }
    value
}
