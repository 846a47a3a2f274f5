//! Rounding: from a dual iterate to an orthogonal mechanism that is feasible by construction.
//!
//! At the optimum of disjoint patterns, X has zeros wherever one example can take part twice, and each pattern's
//! diagonal sums to one. Forcing both on X(U) gives sensitivity one exactly, if what is left is positive definite.

use super::Route;
use super::blocks::{BlockDual, product, size_of_block};
use super::climb::{Evaluation, Full};
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use crate::workload::Workload;
use rayon::prelude::*;

/// Rounds X in place. `position` maps a step to its row, since X comes in reversed order.
pub fn round(x: &mut Matrix, patterns: &[Vec<usize>], position: impl Fn(usize) -> usize) {
    let n = x.nrows();
    let mut scale = vec![0.0; n];
    for pattern in patterns {
        let rows: Vec<usize> = pattern.iter().map(|i| position(*i)).collect();
        let trace: f64 = rows.iter().map(|i| x[(*i, *i)]).sum();
        for i in &rows {
            scale[*i] = 1.0 / trace.sqrt();
            for j in &rows {
                if i != j {
                    x[(*i, *j)] = 0.0;
                }
            }
        }
    }
    dense::for_each_column(x, |j, column| {
        column.iter_mut().zip(&scale).for_each(|(x, s)| *x *= s * scale[j]);
    });
}

/// Decides when to build the n×n matrices: on the structured route that costs as much as many iterations.
pub struct Attempts {
    /// The cost of an attempt in iterations, from counting operations.
    cost: f64,
    /// No attempt before this iteration, unless the gap is certainly reached.
    earliest: usize,
}

impl Attempts {
    /// Counts operations.
    pub fn new(schema: &Schema, workload: &Workload, route: Route) -> Self {
        let cost = match (route, workload.inverse_bands()) {
            (Route::Structured, Some(bands)) => {
                let n = schema.steps() as f64;
                let block = (bands.bandwidth * schema.max_participations()) as f64;
                // Factor, invert and multiply triangles: n³ in all; an iteration with 24 nodes: 26·n·(pk)² each.
                n * n / (26.0 * 24.0 * block * block)
            }
            // A singular value decomposition costs more than an attempt.
            _ => 0.0,
        };
        Attempts { cost, earliest: 0 }
    }

    /// Whether to try now.
    pub fn due(
        &self,
        dual: &BlockDual,
        evaluation: &Evaluation,
        loss: f64,
        lower_bound: f64,
        target: f64,
        iteration: usize,
    ) -> bool {
        let crude = loss / lower_bound - 1.0;
        if crude <= target {
            return true;
        }
        // Where iterations cost next to nothing, it is cheaper to go on until success is certain.
        if iteration < self.earliest || self.cost > 100.0 {
            return false;
        }
        match &evaluation.full {
            Full::Matrix(_) => true,
            Full::Rule(rule, weighted) => {
                let loss = predicted_loss(dual, &evaluation.grams, weighted, rule.weights.iter().sum());
                loss / lower_bound - 1.0 <= 0.5 * target
            }
        }
    }

    /// Notes that an attempt at this iteration failed.
    pub fn failed(&mut self, iteration: usize) {
        self.earliest = iteration + 1 + (0.25 * self.cost) as usize;
    }
}

/// The loss after rounding, to second order in the off-diagonal parts D_r of the blocks X_r that rounding removes:
/// with Y = X − D, tr(VY⁻¹) = tr(UX) + tr(UD) + tr(DUD·X⁻¹) + …, and scaling block r by its trace d_r multiplies
/// its share by d_r to first order. An estimate that only decides when to try.
///
/// (V⁻¹ + τU)G = I gives V⁻¹G = I − τUG, so the block of X⁻¹ = Σ w_j·V⁻¹G_jU is (Σ w_j)U_r − U_r(Σ w_jτ_jG_j)_r U_r. The
/// difference cancels, but not all digits.
fn predicted_loss(dual: &BlockDual, grams: &[Vec<f64>], weighted: &[Vec<f64>], sum: f64) -> f64 {
    let shares: Vec<f64> = grams
        .par_iter()
        .zip(weighted)
        .enumerate()
        .map(|(r, (x, weighted))| {
            let k = size_of_block(x);
            let trace = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            let u = dual.block(r);
            let mut off = x.clone();
            off.iter_mut().step_by(k + 1).for_each(|x| *x = 0.0);
            let first = trace(&u, x) + trace(&u, &off);
            let dud = product(&product(&off, &u), &off);
            let second = sum * trace(&dud, &u) - trace(&product(&product(&u, &dud), &u), weighted);
            x.iter().step_by(k + 1).sum::<f64>() * (first + second)
        })
        .collect();
    shares.iter().sum()
}
