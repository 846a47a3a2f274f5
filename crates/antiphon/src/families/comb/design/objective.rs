//! What a design minimises: the logarithm of the loss of a comb whose residues all have sensitivity one, with its exact gradient.
//!
//! A comb is given up to the gain of each residue, which makes the sensitivity of that residue one. The sensitivity is bounded by
//! Σ|X_ij| over the block of the residue. Its off-diagonal entries are zero at the optimum, where |x| has a kink, so |x| is replaced by
//!
//! ```text
//! max { ρ·x − ½μ(ρ − R)² : |ρ| ≤ 1 }
//! ```
//!
//! with multipliers R that the design improves (the proximal method of multipliers): smooth, below |x|, and equal to it where R is ±1 of the
//! same sign. The certificate's U has the R of the optimum.

use crate::families::comb::blocks::Sums;
use crate::families::comb::factorization::Coefficients;
use crate::families::comb::loss::System;
use crate::families::comb::sensitivity::{gram, lower_inverse};
use crate::families::comb::shape::{Comb, packed_len, place};
use crate::linalg::vectors::{add, dot};
use crate::workload::Training;
use rayon::prelude::*;

/// The loss as a function of changes of a comb.
pub struct Objective<'a> {
    /// Where changes begin.
    pub base: Comb,
    /// A.
    pub training: &'a Training,
    /// R of every residue: b matrices k×k.
    pub multipliers: Vec<f64>,
    /// μ.
    pub softness: f64,
}

/// What a comb is worth.
pub struct Value {
    /// The loss at sensitivity one, by the sums of absolute values.
    pub loss: f64,
    /// The multipliers ρ that belong to it.
    pub multipliers: Vec<f64>,
    /// The comb, with the gains of its residues.
    pub comb: Comb,
}

/// The matrices of every residue, k×k each.
struct Matrices {
    /// J = Diag(e)·L.
    j: Vec<f64>,
    /// Its inverse; rows of steps beyond the run are zero.
    g: Vec<f64>,
    /// GᵀG.
    h: Vec<f64>,
    /// JJᵀ.
    covariance: Vec<f64>,
}

/// Blocks of the gram matrix.
struct Blocks {
    x: Vec<f64>,
    /// ρ: the derivatives of q by the entries of X.
    rho: Vec<f64>,
    /// The smoothed squared sensitivity of every residue, and the one from absolute values.
    smooth: Vec<f64>,
    absolute: Vec<f64>,
}

impl Objective<'_> {
    /// Changes of L at the knots, of ln e and of ln o.
    pub fn variables(&self) -> usize {
        self.base.mix.len() + self.base.input_gain.len() + self.base.output_gain.len()
    }

    /// The comb after a change: L·(lower triangle with exponentials on its diagonal), and gains times exponentials.
    pub fn changed(&self, y: &[f64]) -> Comb {
        let k = self.base.epochs();
        let (mix, gains) = y.split_at(self.base.mix.len());
        let (input, output) = gains.split_at(self.base.input_gain.len());
        let mut comb = Comb { residue_gain: Vec::new(), ..self.base.clone() };
        let size = packed_len(k);
        let knots = comb.mix.chunks_exact_mut(size).zip(self.base.mix.chunks_exact(size));
        for ((out, base), change) in knots.zip(mix.chunks_exact(size)) {
            out.fill(0.0);
            for i in 0..k {
                for l in 0..=i {
                    let weight = base[packed_len(i) + l];
                    let (row, change) = (&mut out[packed_len(i)..][..=l], &change[packed_len(l)..][..=l]);
                    row.iter_mut().zip(change).take(l).for_each(|(x, change)| *x += weight * change);
                    row[l] += weight * change[l].exp();
                }
            }
        }
        comb.input_gain.iter_mut().zip(input).for_each(|(x, change)| *x *= change.exp());
        comb.output_gain.iter_mut().zip(output).for_each(|(x, change)| *x *= change.exp());
        comb
    }

    fn matrices(c: &Coefficients) -> Matrices {
        let (k, b) = (c.comb.epochs(), c.comb.period);
        let zeros = || vec![0.0; b * k * k];
        let (mut j, mut g, mut h, mut covariance) = (zeros(), zeros(), zeros(), zeros());
        let all = j.par_chunks_mut(k * k).zip(g.par_chunks_mut(k * k));
        let all = all.zip(h.par_chunks_mut(k * k)).zip(covariance.par_chunks_mut(k * k)).enumerate();
        all.for_each(|(residue, (((j, g), h), covariance))| {
            let length = c.comb.epochs_of(residue);
            let mut row = Vec::with_capacity(k);
            for epoch in 0..length {
                c.comb.mix_row(residue, epoch, &mut row);
                let e = c.input[epoch * b + residue];
                j[epoch * k..].iter_mut().zip(&row).for_each(|(x, l)| *x = e * l);
            }
            lower_inverse(j, g, k, length);
            gram(g, h, k);
            for a in 0..length {
                for b in 0..length {
                    covariance[a * k + b] = dot(&j[a * k..][..=a.min(b)], &j[b * k..][..=a.min(b)]);
                }
            }
        });
        Matrices { j, g, h, covariance }
    }

    fn blocks(&self, c: &Coefficients, sums: &Sums<'_>, h: &[f64]) -> Blocks {
        let (k, b) = (c.comb.epochs(), c.comb.period);
        let mut x = sums.grams(h);
        let mut rho = vec![0.0; x.len()];
        let (mut smooth, mut absolute) = (vec![0.0; b], vec![0.0; b]);
        let all = x.par_chunks_mut(k * k).zip(rho.par_chunks_mut(k * k));
        let all = all.zip(self.multipliers.par_chunks(k * k)).zip(&mut smooth).zip(&mut absolute);
        all.enumerate().for_each(|(residue, ((((x, rho), multipliers), smooth), absolute))| {
            let length = c.comb.epochs_of(residue);
            for (i, j) in (0..k * k).map(|at| (at / k, at % k)) {
                let at = i * k + j;
                if i.max(j) >= length {
                    x[at] = 0.0;
                    continue;
                }
                x[at] /= c.output[i * b + residue] * c.output[j * b + residue];
                *absolute += x[at].abs();
                let multiplier = multipliers[at];
                rho[at] = if i == j { 1.0 } else { (multiplier + x[at] / self.softness).clamp(-1.0, 1.0) };
                let away = if i == j { 0.0 } else { rho[at] - multiplier };
                *smooth += rho[at] * x[at] - 0.5 * self.softness * away * away;
            }
        });
        Blocks { x, rho, smooth, absolute }
    }

    /// ln loss, and its gradient.
    pub fn evaluate(&self, y: &[f64], gradient: &mut [f64]) -> f64 {
        let c = Coefficients::new(self.changed(y));
        let (k, b) = (c.comb.epochs(), c.comb.period);
        let sums = Sums::new(k, b, &c.comb.filter);
        let m = Self::matrices(&c);
        let blocks = self.blocks(&c, &sums, &m.h);
        if !blocks.smooth.iter().all(|q| *q > 0.0 && q.is_finite()) {
            return f64::NAN;
        }
        let output: Vec<f64> =
            c.output.iter().enumerate().map(|(t, o)| o * blocks.smooth[t % b].sqrt()).collect();
        let found = System::new(b, &c.comb.filter, self.training, &output).gradient(&m.covariance);
        // By ln o of every step: through the loss, and through the blocks.
        let mut by_output: Vec<f64> =
            output.iter().zip(&found.output).map(|(o, by)| o * by / found.loss).collect();
        let mut by_block = blocks.rho;
        for (residue, by_block) in by_block.chunks_exact_mut(k * k).enumerate() {
            let steps: Vec<usize> = (0..c.comb.epochs_of(residue)).map(|j| j * b + residue).collect();
            let by_gain = 0.5 * steps.iter().map(|t| by_output[*t]).sum::<f64>() / blocks.smooth[residue];
            let x = &blocks.x[residue * k * k..][..k * k];
            by_block.iter_mut().for_each(|by| *by *= by_gain);
            for (i, t) in steps.iter().enumerate() {
                by_output[*t] -= 2.0 * dot(&by_block[i * k..][..k], &x[i * k..][..k]);
            }
            for (i, t) in steps.iter().enumerate() {
                for (j, s) in steps.iter().enumerate() {
                    by_block[i * k + j] /= c.output[*t] * c.output[*s];
                }
            }
        }
        let by_h = sums.transposed(&by_block);
        self.spread(&c, &m, &found.covariance, found.loss, &by_h, &by_output, y, gradient);
        found.loss.ln()
    }

    /// From derivatives by K and H of every residue and by ln o of every step to those by the variables.
    #[allow(clippy::too_many_arguments)] // It is the second half of one computation.
    fn spread(
        &self,
        c: &Coefficients,
        m: &Matrices,
        by_covariance: &[f64],
        loss: f64,
        by_h: &[f64],
        by_output: &[f64],
        y: &[f64],
        gradient: &mut [f64],
    ) {
        let (k, b, size) = (c.comb.epochs(), c.comb.period, packed_len(c.comb.epochs()));
        // By J: 2·(∂/∂K)·J − 2·H·(∂/∂H)·Gᵀ, on the lower triangle.
        let mut by_j = vec![0.0; b * k * k];
        by_j.par_chunks_mut(k * k).enumerate().for_each(|(residue, by_j)| {
            let part = |all: &'_ [f64]| -> Vec<f64> { all[residue * k * k..][..k * k].to_vec() };
            let (j, g, h) = (part(&m.j), part(&m.g), part(&m.h));
            let (by_k, by_h) = (part(by_covariance), part(by_h));
            let mut product = vec![0.0; k];
            for i in 0..k {
                product.fill(0.0);
                (0..k).for_each(|l| add(&mut product, h[i * k + l], &by_h[l * k..][..k]));
                for l in 0..k {
                    add(
                        &mut by_j[i * k..][..=l.min(i)],
                        2.0 * by_k[i * k + l] / loss,
                        &j[l * k..][..=l.min(i)],
                    );
                }
                (0..=i).for_each(|a| by_j[i * k + a] -= 2.0 * dot(&product[..=a], &g[a * k..][..=a]));
            }
        });
        gradient.fill(0.0);
        let (by_mix, by_gains) = gradient.split_at_mut(c.comb.mix.len());
        let (by_input, by_gain) = by_gains.split_at_mut(c.comb.input_gain.len());
        let mut by_knots = vec![0.0; c.comb.mix.len()];
        let gains = c.comb.gain_knots.len();
        for residue in 0..b {
            let (mix, gain) = (place(&c.comb.mix_knots, residue), place(&c.comb.gain_knots, residue));
            let by_j = &by_j[residue * k * k..][..k * k];
            let j = &m.j[residue * k * k..][..k * k];
            for epoch in 0..c.comb.epochs_of(residue) {
                let t = epoch * b + residue;
                let row = &by_j[epoch * k..][..=epoch];
                for (knot, part) in mix.parts() {
                    add(&mut by_knots[knot * size + packed_len(epoch)..][..=epoch], part * c.input[t], row);
                }
                let by_e = dot(row, &j[epoch * k..]) / c.input[t];
                let by_o = by_output[t] / c.output[t];
                for (knot, part) in gain.parts() {
                    let at = epoch * gains + knot;
                    by_input[at] += part * by_e * c.comb.input_gain[at];
                    by_gain[at] += part * by_o * c.comb.output_gain[at];
                }
            }
        }
        // L = base·E: by E, (base)ᵀ·(∂/∂L).
        let knots = by_mix.chunks_exact_mut(size).zip(self.base.mix.chunks_exact(size));
        for (((out, base), by), change) in knots.zip(by_knots.chunks_exact(size)).zip(y.chunks_exact(size)) {
            for i in 0..k {
                for l in 0..=i {
                    let by = &by[packed_len(i)..][..=l];
                    add(&mut out[packed_len(l)..][..=l], base[packed_len(i) + l], by);
                }
            }
            (0..k).for_each(|i| out[packed_len(i) + i] *= change[packed_len(i) + i].exp());
        }
    }

    /// What a change is worth.
    pub fn value(&self, y: &[f64]) -> Value {
        let mut c = Coefficients::new(self.changed(y));
        let (k, b) = (c.comb.epochs(), c.comb.period);
        let m = Self::matrices(&c);
        let blocks = self.blocks(&c, &Sums::new(k, b, &c.comb.filter), &m.h);
        c.comb.residue_gain = blocks.absolute.iter().map(|q| q.sqrt()).collect();
        let output: Vec<f64> =
            c.output.iter().enumerate().map(|(t, o)| o * c.comb.residue_gain[t % b]).collect();
        let system = System::new(b, &c.comb.filter, self.training, &output);
        let loss = system.variances(&m.covariance).iter().sum();
        Value { loss, multipliers: blocks.rho, comb: c.comb }
    }
}
