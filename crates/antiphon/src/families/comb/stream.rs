//! The noise of a comb, row after row: a few buffers, and the normals of the same residue drawn again.
//!
//! ```text
//! z̃_t = Σ_{i≤j} e_t·L_r[j, i]·z_{ib+r}      ξ_t = z̃_t − Σ_q ω̂_q·s_q      s_q ← ẑ_q·s_q + z̃_t      row t = σ·o_t·ξ_t
//! ```
//!
//! Sums are in double precision, in this order, by products and additions that are rounded one by one: the same bits on every machine,
//! whatever its vectors. The row is rounded to single precision once, at the end. σ has a margin for rounded coefficients (margin.rs).

use super::factorization::Coefficients;
use super::margin::margin;
use super::shape::Comb;
use crate::error::Result;
use crate::mechanism::stream::{Access, Draw, Kernel, Stream, TILE};
use pulp::{Arch, Simd, WithSimd};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Rows of Z that are drawn before they are added up: with the sums they stay in the first cache.
const PANEL: usize = 4;
/// Columns whose sums stay in registers.
const STRIP: usize = 32;

/// σ·W·Z.
pub struct Noise {
    comb: Comb,
    /// ω̂.
    weights: Vec<f64>,
    /// σ, with the margin for rounded coefficients.
    stddev: f64,
}

impl Noise {
    /// Of a comb that was checked.
    pub fn new(coefficients: Coefficients, stddev: f64) -> Result<Noise> {
        let stddev = stddev * (1.0 + margin(&coefficients.comb)?);
        Ok(Noise { comb: coefficients.comb, weights: coefficients.inverse_weights, stddev })
    }

    /// Row t of Diag(e)·⊕L_r.
    fn mix(&self, step: usize, out: &mut Vec<f64>) {
        let (epoch, residue) = (step / self.comb.period, step % self.comb.period);
        self.comb.mix_row(residue, epoch, out);
        let gain = self.comb.input_gain(step);
        out.iter_mut().for_each(|x| *x *= gain);
    }
}

impl Kernel for Noise {
    fn inputs(&self) -> usize {
        self.comb.steps
    }

    /// A row of T sums to at most 2 in absolute value: T(1) ≥ 0 and all coefficients but the first are negative.
    fn row_sum(&self) -> f64 {
        let mut row = Vec::new();
        let mixed = |step: usize| {
            self.mix(step, &mut row);
            row.iter().map(|x| x.abs()).sum::<f64>()
        };
        let largest = (0..self.comb.steps).map(mixed).fold(0.0, f64::max);
        let output = (0..self.comb.steps).map(|step| self.comb.output_gain(step)).fold(0.0, f64::max);
        2.0 * largest * output * (1.0 + 1e-6)
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        self.replay(wanted, draw, out);
    }

    fn access(&self) -> Access<'_> {
        Access::Stream(self)
    }

    fn describe(&self, hash: &mut Sha256) {
        for (name, numbers) in self.comb.to_parameters().iter() {
            hash.update(name.as_bytes());
            numbers.iter().for_each(|x| hash.update(x.to_le_bytes()));
        }
        hash.update(self.stddev.to_le_bytes());
    }
}

impl Stream for Noise {
    fn kept(&self) -> usize {
        self.weights.len()
    }

    /// The weights of the normals, then σ·o_t.
    fn coefficients(&self, step: usize, out: &mut Vec<f64>) {
        self.mix(step, out);
        out.push(self.stddev * self.comb.output_gain(step));
    }

    fn next_row(
        &self,
        step: usize,
        coefficients: &[f64],
        memory: &mut [f64],
        draw: Draw<'_>,
        out: &mut [f32],
    ) {
        let residue = step % self.comb.period;
        let (scale, mix) = coefficients.split_last().expect("σ·o is the last coefficient");
        let (mut z, mut mixed) = ([0.0; PANEL * TILE], [0.0; TILE]);
        let arch = Arch::new();
        for (panel, weights) in mix.chunks(PANEL).enumerate() {
            for (i, z) in z.chunks_exact_mut(TILE).take(weights.len()).enumerate() {
                draw((panel * PANEL + i) * self.comb.period + residue, z);
            }
            arch.dispatch(Mix { weights, z: &z, sums: &mut mixed });
        }
        let zeros = self.comb.filter.zeros();
        arch.dispatch(Filter { weights: &self.weights, zeros, scale: *scale, mixed: &mixed, memory, out });
    }
}

/// Adds weighted rows of Z to sums, each sum in the order of the rows.
struct Mix<'a> {
    weights: &'a [f64],
    z: &'a [f32; PANEL * TILE],
    sums: &'a mut [f64; TILE],
}

impl WithSimd for Mix<'_> {
    type Output = ();
    /// Compiled once for every kind of vector unit; none of them is named here.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (strip, sums) in self.sums.as_chunks_mut::<STRIP>().0.iter_mut().enumerate() {
            let mut held = *sums;
            for (weight, z) in self.weights.iter().zip(self.z.chunks_exact(TILE)) {
                let z = &z.as_chunks::<STRIP>().0[strip];
                for j in 0..STRIP {
                    held[j] += weight * f64::from(z[j]);
                }
            }
            *sums = held;
        }
    }
}

/// One step of T, and the scaled row.
struct Filter<'a> {
    weights: &'a [f64],
    zeros: &'a [f64],
    scale: f64,
    mixed: &'a [f64; TILE],
    memory: &'a mut [f64],
    out: &'a mut [f32],
}

impl WithSimd for Filter<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let mut row = *self.mixed;
        let buffers = self.memory.as_chunks_mut::<TILE>().0.iter_mut();
        for (buffer, (weight, zero)) in buffers.zip(self.weights.iter().zip(self.zeros)) {
            for j in 0..TILE {
                row[j] -= weight * buffer[j];
                buffer[j] = zero * buffer[j] + self.mixed[j];
            }
        }
        for (out, x) in self.out.iter_mut().zip(&row) {
            *out = (self.scale * x) as f32;
        }
    }
}
