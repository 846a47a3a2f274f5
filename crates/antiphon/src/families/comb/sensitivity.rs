//! The sensitivity of a comb in fixed order, over all residues, in linear time.

use super::blocks::{Matrices, Sums};
use super::factorization::Coefficients;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::sensitivity::{Entries, WorstCase, worst_case_of_entries};

/// The gram matrix between steps of the same residue.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// X of every residue: b symmetric k×k matrices; zero where the run has no such step. C is the one with the inverses L̃⁻¹ that were used.
    pub matrices: Matrices,
    /// How far rounding can have moved an entry.
    pub error: f64,
    /// A bound on ‖L̃⁻¹L − I‖.
    pub residual: f64,
}

impl Blocks {
    /// X between two steps of the same residue.
    pub fn entry(&self, c: &Coefficients, i: usize, j: usize) -> f64 {
        let (k, b) = (c.comb.epochs(), c.comb.period);
        self.matrices[(i % b) * k * k + i / b * k + j / b]
    }
}

/// The sensitivity where every example keeps its place in the epoch.
pub fn worst_case(c: &Coefficients, schema: &Schema) -> Result<WorstCase> {
    let blocks = c.blocks().as_ref().map_err(|error| Error::Numerical(error.clone()))?;
    let entry = |i: usize, j: usize| blocks.entry(c, i, j);
    let entries = Entries { entry: &entry, error: blocks.error, blocks: None };
    let mut found = worst_case_of_entries(entries, schema)?;
    // C̃ = (I + E)·C with ‖E‖ ≤ δ, so ‖C̃u‖/(1 + δ) ≤ ‖Cu‖ ≤ ‖C̃u‖/(1 − δ).
    let sensitivity = &mut found.sensitivity;
    sensitivity.upper *= (1.0 + 2.0 * f64::EPSILON) / (1.0 - blocks.residual); // up
    sensitivity.lower *= (1.0 - 2.0 * f64::EPSILON) / (1.0 + blocks.residual); // down
    Ok(found)
}

/// G_r = L_r⁻¹·Diag(1/e), its lower triangle in a full matrix; rows of steps beyond the run are zero. With a bound on ‖L̃⁻¹L − I‖.
pub fn inverse_mix(c: &Coefficients, residue: usize, g: &mut [f64]) -> f64 {
    let k = c.comb.epochs();
    let length = c.comb.epochs_of(residue);
    let mut mix = vec![0.0; k * k];
    let mut row = Vec::new();
    for j in 0..length {
        c.comb.mix_row(residue, j, &mut row);
        mix[j * k..][..=j].copy_from_slice(&row);
    }
    g.fill(0.0);
    lower_inverse(&mix, g, k, length);
    let residual = inverse_residual(g, &mix, k, length);
    for j in 0..length {
        let e = c.input[j * c.comb.period + residue];
        (0..length).for_each(|i| g[i * k + j] /= e);
    }
    residual
}

/// The inverse of the leading part of a lower triangular matrix, row by row.
pub(super) fn lower_inverse(m: &[f64], inverse: &mut [f64], k: usize, length: usize) {
    for i in 0..length {
        let diagonal = m[i * k + i];
        for l in 0..i {
            let weight = m[i * k + l] / diagonal;
            let (done, rest) = inverse.split_at_mut(i * k);
            rest[..=l].iter_mut().zip(&done[l * k..][..=l]).for_each(|(x, y)| *x -= weight * y);
        }
        inverse[i * k + i] = 1.0 / diagonal;
    }
}

/// A bound on ‖inverse·m − I‖ in the Frobenius norm, with its rounding.
fn inverse_residual(inverse: &[f64], m: &[f64], k: usize, length: usize) -> f64 {
    let mut sum = 0.0;
    for i in 0..length {
        for j in 0..=i {
            let (mut product, mut absolute) = (0.0, 0.0);
            for l in j..=i {
                let term = inverse[i * k + l] * m[l * k + j];
                product += term;
                absolute += term.abs();
            }
            let error = (product - f64::from(i == j)).abs() + (k + 2) as f64 * f64::EPSILON * absolute;
            sum += error * error;
        }
    }
    sum.sqrt() * (1.0 + 1e-9)
}

/// All blocks of a comb.
///
/// Rounding: with |H| ≤ h·hᵀ, h = √diag(H), the sum of the absolute values of all terms of an entry of Z is at most the same sum for h·hᵀ, which
/// has no negative terms. A term goes through at most 2b + 4k + 4d² additions, and as many products; the weights of the filter, powers, gains and H
/// itself have relative errors of a few dozen ε. Twice that is allowed for.
///
/// Underflow: powers and products of poles below the smallest normal number have few digits, or are zero. Each is off by less than that number, and
/// is multiplied by an entry of H, by weights of the filter, which sum to less than one, and by D twice. At most b of them are added up for
/// every pair of epochs.
pub fn blocks(c: &Coefficients) -> Result<Blocks> {
    let (k, b, d) = (c.comb.epochs(), c.comb.period, c.comb.filter.buffers());
    let (mut h, mut bounds) = (vec![0.0; b * k * k], vec![0.0; b * k * k]);
    let mut g = vec![0.0; k * k];
    let mut residual = 0.0f64;
    for (residue, (h, bound)) in h.chunks_exact_mut(k * k).zip(bounds.chunks_exact_mut(k * k)).enumerate() {
        let found = inverse_mix(c, residue, &mut g);
        if found.is_nan() || found >= 0.5 {
            return Err(Error::Numerical(format!(
                "the mix of residue {residue} is too ill-conditioned to invert: the relative error may be {found:.1e}"
            )));
        }
        residual = residual.max(found);
        gram(&g, h, k);
        let roots: Vec<f64> = (0..k).map(|i| h[i * k + i].sqrt()).collect();
        (0..k * k).for_each(|at| bound[at] = roots[at / k] * roots[at % k]);
    }
    let sums = Sums::new(k, b, &c.comb.filter);
    let (mut matrices, mut bounds) = (sums.grams(&h), sums.grams(&bounds));
    let scale = |all: &mut [f64]| {
        for (residue, block) in all.chunks_exact_mut(k * k).enumerate() {
            let gain = |i: usize| match i * b + residue {
                t if t < c.comb.steps => 1.0 / c.output[t],
                _ => 0.0,
            };
            let gains: Vec<f64> = (0..k).map(gain).collect();
            (0..k * k).for_each(|at| block[at] *= gains[at / k] * gains[at % k]);
        }
    };
    scale(&mut matrices);
    scale(&mut bounds);
    let roundings = (2 * b + 6 * k + 6 * d * d + 64) as f64 * 2.0 * f64::EPSILON;
    let largest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let gain = c.output.iter().map(|o| 1.0 / o).fold(0.0, f64::max);
    let underflow = f64::MIN_POSITIVE * (b * k * k) as f64 * largest(&h) * gain * gain;
    let error = roundings * largest(&bounds) + underflow; // up
    if !(matrices.iter().all(|x| x.is_finite()) && error.is_finite()) {
        return Err(Error::Numerical("the gram matrix of the comb is not finite".into()));
    }
    Ok(Blocks { matrices, error, residual })
}

/// GᵀG of a lower triangular G.
pub(super) fn gram(g: &[f64], h: &mut [f64], k: usize) {
    h.fill(0.0);
    for row in g.chunks_exact(k) {
        for (i, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            h[i * k..][..k].iter_mut().zip(row).for_each(|(h, y)| *h += x * y);
        }
    }
}
