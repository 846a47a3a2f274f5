//! How much more noise makes up for the rounding of coefficients.
//!
//! The sensitivity is that of W = Diag(o)·T·M with M = Diag(e)·⊕L_r, by real numbers. The stream uses double precision: gains and mixes
//! between knots, their products and the weights ω̂ are rounded, so its matrix is W + Δ, and its encoder (W + Δ)⁻¹ = (I + CΔ)⁻¹C has at
//! most the sensitivity of C over 1 − ‖CΔ‖. With relative errors u_o of o, u_T of the weights, and |δM| ≤ u_M·M̂ (M̂ ≥ |M| below), to
//! first order
//!
//! ```text
//! |CΔ| ≤ |M⁻¹|·( u_o·|T⁻¹||T| + u_T·|T⁻¹|(|T| − I) )·|M| + |M⁻¹|·u_M·M̂.
//! ```
//!
//! T⁻¹ ≥ 0, and T is 1 on the diagonal and at most 0 below it, so |T⁻¹||T| = T⁻¹(2I − T) = 2T⁻¹ − I: its rows and columns sum to less than
//! 2c, c the sum of the coefficients of T⁻¹. With ‖·‖₂² ≤ ‖·‖₁·‖·‖_∞,
//!
//! ```text
//! ‖CΔ‖₂ ≤ ((u_o + u_T)·2c + u_M) · √(‖M⁻¹‖₁·‖M⁻¹‖_∞·‖M̂‖₁·‖M̂‖_∞) = κ.
//! ```
//!
//! The noise is made larger by the power of two above κ/(1 − κ), as for dense mechanisms. What this does not cover is the rounding of the
//! sums that the stream keeps, which is not that of any fixed matrix (SECURITY.md).

use super::shape::{Comb, Place, packed_len, place};
use crate::error::{Error, Result};
use rayon::prelude::*;

/// Twice what one operation rounds by, relatively.
const UNIT: f64 = f64::EPSILON;
/// The largest κ: with it, what first order leaves out and the rounding of the inverses here are below the factor of two that is
/// allowed for them. The inverse of L_r is within k·2⁻⁵³·|L⁻¹||L||L⁻¹| of what is computed, less than a tenth up to thousands of epochs.
const LARGEST: f64 = 1e-3;

/// How much larger the noise has to be, relatively: a power of two.
pub fn margin(comb: &Comb) -> Result<f64> {
    let kappa = perturbation(comb, UNIT);
    if kappa.is_nan() || kappa >= LARGEST {
        return Err(Error::Unsupported(format!(
            "the comb is too ill-conditioned for its noise: rounding its coefficients may change its sensitivity by {kappa:.1e}"
        )));
    }
    let mut margin = 2f64.powi(-60);
    while margin < kappa / (1.0 - kappa) {
        margin *= 2.0; // the next power of two, up
    }
    Ok(margin)
}

/// κ, where every operation rounds by at most `unit`, relatively.
fn perturbation(comb: &Comb, unit: f64) -> f64 {
    let filter = &comb.filter;
    let term = |(weight, pole): (&f64, &f64)| weight * (1.0 / (1.0 - pole)).min(comb.steps as f64);
    let c = 1.0 + filter.weights().iter().zip(filter.poles()).map(term).sum::<f64>();
    let Norms { mix, inverse, gain } =
        (0..comb.period).into_par_iter().map(|r| Norms::of(comb, r)).reduce(Norms::default, Norms::larger);
    let of_weights = (4 * filter.buffers() + 1) as f64 * unit;
    let of_output = (4.0 * gain + 4.0) * unit; // between knots; the residue's factor, σ, their products
    let of_mix = (4.0 * gain + 6.0) * unit; // the gain, the mix between knots, their product
    let condition = (mix[0] * mix[1] * inverse[0] * inverse[1]).sqrt();
    2.0 * ((of_output + of_weights) * 2.0 * c + of_mix) * condition // up: what LARGEST says
}

/// The largest row and column sums of M̂ and of |M⁻¹|, and how much worse than their values the gains between knots are rounded.
#[derive(Default)]
struct Norms {
    mix: [f64; 2],
    inverse: [f64; 2],
    gain: f64,
}

impl Norms {
    /// Of the steps of one residue.
    fn of(comb: &Comb, residue: usize) -> Norms {
        let (k, length) = (comb.epochs_of(residue), packed_len(comb.epochs()));
        let step = |epoch: usize| epoch * comb.period + residue;
        let at = place(&comb.mix_knots, residue);
        let size = |j: usize, i: usize| bound(at, |knot| comb.mix[knot * length + packed_len(j) + i]);
        let gains: Vec<f64> = (0..k).map(|j| comb.input_gain(step(j))).collect();
        let mut rows = vec![Vec::new(); k];
        rows.iter_mut().enumerate().for_each(|(j, row)| comb.mix_row(residue, j, row));
        let inverse = inverse(&rows);
        Norms {
            mix: sums(k, |j, i| gains[j] * size(j, i)),
            inverse: sums(k, |j, i| inverse[packed_len(j) + i].abs() / gains[i]),
            gain: worst_gain(comb, residue),
        }
    }

    fn larger(self, other: Norms) -> Norms {
        let both = |a: [f64; 2], b: [f64; 2]| [worse(a[0], b[0]), worse(a[1], b[1])];
        Norms {
            mix: both(self.mix, other.mix),
            inverse: both(self.inverse, other.inverse),
            gain: worse(self.gain, other.gain),
        }
    }
}

/// The larger one; what is no number is larger than all.
fn worse(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

/// Four times this, and the rounding of one operation, bound the error of [`Place::of`]: its part is rounded, which moves the number
/// along its way from knot to knot, and so are a difference, two products and a sum.
fn bound(place: Place, at_knots: impl Fn(usize) -> f64) -> f64 {
    let (part, before) = (place.part, at_knots(place.knot));
    match part == 0.0 {
        true => before.abs(),
        false => {
            let after = at_knots(place.knot + 1);
            (1.0 - part) * before.abs() + part * after.abs() + part * (after - before).abs()
        }
    }
}

/// The largest quotient of [`bound`] and the gain itself.
fn worst_gain(comb: &Comb, residue: usize) -> f64 {
    let (at, knots) = (place(&comb.gain_knots, residue), comb.gain_knots.len());
    let of = |gains: &[f64]| {
        let quotient = |gains: &[f64]| bound(at, |knot| gains[knot]) / at.of(|knot| gains[knot]);
        gains.chunks(knots).map(quotient).fold(0.0, worse)
    };
    worse(of(&comb.input_gain), of(&comb.output_gain))
}

/// The largest sum of a row and of a column of a lower triangle.
fn sums(k: usize, entry: impl Fn(usize, usize) -> f64) -> [f64; 2] {
    let mut columns = vec![0.0; k];
    let mut row = |j: usize| {
        let add = |i: usize| {
            columns[i] += entry(j, i);
            entry(j, i)
        };
        (0..=j).map(add).sum::<f64>()
    };
    let rows = (0..k).map(&mut row).fold(0.0, worse);
    [rows, columns.into_iter().fold(0.0, worse)]
}

/// The inverse of a lower triangle, packed row by row.
fn inverse(rows: &[Vec<f64>]) -> Vec<f64> {
    let mut inverse = Vec::with_capacity(packed_len(rows.len()));
    for (j, row) in rows.iter().enumerate() {
        let mut new = vec![0.0; j + 1];
        new[j] = 1.0;
        for (m, x) in row[..j].iter().enumerate() {
            let before = &inverse[packed_len(m)..][..=m];
            new.iter_mut().zip(before).for_each(|(new, before)| *new -= x * before);
        }
        inverse.extend(new.iter().map(|x| x / row[j]));
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::comb::testing::random_comb;
    use crate::families::comb::{definition, filter::Filter};
    use crate::linalg::dense::{self, Matrix};
    use crate::schema::Schema;
    use crate::sensitivity::sensitivity_of_encoder;
    use crate::testing::Seeded;

    /// W with coefficients that are off by as much as operations that round by `unit` can make them.
    fn rounded(comb: &Comb, unit: f64, seeded: &mut Seeded) -> Matrix {
        let n = comb.steps;
        let (sizes, weights) = (4.0 * unit, comb.filter.inverse_weights());
        let accuracy = (4 * weights.len() + 1) as f64 * unit;
        let mut off = |by: f64| if seeded.chance(0.5) { 1.0 + by } else { 1.0 - by };
        let weights: Vec<f64> = weights.iter().map(|w| w * off(accuracy)).collect();
        let zeros = comb.filter.zeros();
        let t = |i: usize, j: usize| match i.checked_sub(j) {
            None => 0.0,
            Some(0) => 1.0,
            Some(m) => -weights.iter().zip(zeros).map(|(w, z)| w * z.powi(m as i32 - 1)).sum::<f64>(),
        };
        let gains = |all: &[f64], step: usize| {
            let at = place(&comb.gain_knots, step % comb.period);
            let of_epoch = &all[step / comb.period * comb.gain_knots.len()..];
            (at.of(|knot| of_epoch[knot]), bound(at, |knot| of_epoch[knot]))
        };
        let output: Vec<f64> = (0..n)
            .map(|step| {
                let (value, size) = gains(&comb.output_gain, step);
                comb.output_gain(step) * off(sizes * size / value) * off(4.0 * unit)
            })
            .collect();
        let (mut mix, mut row) = (Matrix::zeros(n, n), Vec::new());
        for step in 0..n {
            let (epoch, residue) = (step / comb.period, step % comb.period);
            let (value, size) = gains(&comb.input_gain, step);
            let gain = comb.input_gain(step) * off(sizes * size / value);
            comb.mix_row(residue, epoch, &mut row);
            let at = place(&comb.mix_knots, residue);
            for (i, x) in row.iter().enumerate() {
                let length = packed_len(comb.epochs());
                let size = bound(at, |knot| comb.mix[knot * length + packed_len(epoch) + i]);
                let x = x + sizes * size * (off(1.0) - 1.0);
                mix[(step, i * comb.period + residue)] = gain * x * off(2.0 * unit);
            }
        }
        let filter = dense::from_fn(n, n, |i, j| output[i] * t(i, j));
        &filter * &mix
    }

    /// κ bounds what rounding does, and is no more than it has to be by factors that the norms explain; the margin makes up for it.
    #[test]
    fn rounded_coefficients_are_covered() {
        let seeded = &mut Seeded(3);
        let mut closest = 0.0f64;
        for number in 0..60 {
            let comb = random_comb(number, 40);
            let unit = 1e-9 * 0.5;
            let kappa = perturbation(&comb, 2.0 * unit);
            if kappa > 1e-3 {
                continue; // it would be refused
            }
            let truth = definition::explicit(&comb).unwrap();
            let used = rounded(&comb, unit, seeded);
            let change = &truth.encoder * &used - dense::identity(comb.steps);
            let norm = dense::squared_norm(&change).sqrt(); // at least ‖·‖₂
            assert!(norm <= kappa, "{number}: {norm:e} {kappa:e}");
            closest = closest.max(norm / kappa);
            // The encoder of what is used has no more sensitivity than is proved, once it is scaled.
            let schema = Schema::fixed_order(comb.steps, comb.period).unwrap();
            let of = |c: &Matrix| sensitivity_of_encoder(c, &schema).unwrap();
            let inverse = dense::lower_inverse(&used).unwrap();
            let (is, proved) = (of(&inverse).upper / (1.0 + kappa / (1.0 - kappa)), of(&truth.encoder).lower);
            assert!(is <= proved * (1.0 + 1e-8), "{number}: {is} {proved}");
        }
        assert!(closest > 1e-3, "the bound is far from what happens: {closest:e}");
    }

    #[test]
    fn margins_are_small_and_ill_conditioned_combs_are_refused() {
        let mut comb = random_comb(1, 40);
        let small = margin(&comb).unwrap();
        assert!((1e-16..1e-9).contains(&small), "{small:e}");
        comb.filter = Filter::new(&[0.9], &[0.5]).unwrap();
        comb.input_gain.iter_mut().enumerate().for_each(|(i, x)| *x = [1e-10, 1e10][i % 2]);
        let message = margin(&comb).unwrap_err().to_string();
        assert!(message.contains("too ill-conditioned"), "{message}");
    }
}
