//! The sensitivity of a comb in fixed order, over all residues, in linear time.

use super::blocks::{Matrices, Sums};
use super::factorization::Coefficients;
use crate::error::{Error, Result};

/// The gram matrix between steps of the same residue.
pub struct Blocks {
    /// X of every residue: b symmetric k×k matrices; zero where the run has no such step.
    pub matrices: Matrices,
    /// A bound on ‖L̃⁻¹L − I‖ for the inverses that were used.
    pub residual: f64,
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
pub fn blocks(c: &Coefficients) -> Result<Blocks> {
    let (k, b) = (c.comb.epochs(), c.comb.period);
    let mut h = vec![0.0; b * k * k];
    let mut g = vec![0.0; k * k];
    let mut residual = 0.0f64;
    for (residue, h) in h.chunks_exact_mut(k * k).enumerate() {
        let found = inverse_mix(c, residue, &mut g);
        if !(found < 0.5) {
            return Err(Error::Numerical(format!(
                "the mix of residue {residue} is too ill-conditioned to invert: the relative error may be {found:.1e}"
            )));
        }
        residual = residual.max(found);
        gram(&g, h, k);
    }
    let mut matrices = Sums { size: k, period: b, filter: &c.comb.filter }.grams(&h);
    for (residue, block) in matrices.chunks_exact_mut(k * k).enumerate() {
        let gain = |i: usize| match i * b + residue {
            t if t < c.comb.steps => 1.0 / c.output[t],
            _ => 0.0,
        };
        let gains: Vec<f64> = (0..k).map(gain).collect();
        for i in 0..k {
            (0..k).for_each(|j| block[i * k + j] *= gains[i] * gains[j]);
        }
    }
    Ok(Blocks { matrices, residual })
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
