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
use crate::mechanism::stream::{Access, Draw, Kernel, Recurrence, Stream, TILE};
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
    /// 1 + margin.
    larger: f64,
}

impl Noise {
    /// Of a comb that was checked.
    pub fn new(coefficients: Coefficients, stddev: f64) -> Result<Noise> {
        let larger = 1.0 + margin(&coefficients.comb)?;
        let weights = coefficients.inverse_weights;
        Ok(Noise { comb: coefficients.comb, weights, stddev: stddev * larger, larger })
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
        2.0 * largest * output * self.larger * (1.0 + 1e-6)
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        self.replay(wanted, draw, out);
    }

    fn access(&self) -> Access<'_> {
        Access::Stream(self)
    }

    fn recurrence(&self, step: usize) -> Option<Recurrence> {
        let mut mix = Vec::new();
        self.mix(step, &mut mix);
        let residue = step % self.comb.period;
        let input = |(i, weight)| ((i * self.comb.period + residue) as u64, weight);
        let buffers = self.weights.iter().copied().zip(self.comb.filter.zeros().iter().copied());
        Some(Recurrence {
            inputs: mix.into_iter().enumerate().map(input).collect(),
            buffers: buffers.collect(),
            scale: self.stddev * self.comb.output_gain(step),
            first: step == 0,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::comb::testing::random_comb;

    /// Row after row by the formulas above, one column, without vectors and tiles.
    fn slow(noise: &Noise, z: impl Fn(usize) -> f32) -> Vec<u32> {
        let comb = &noise.comb;
        let mut buffers = vec![0.0f64; noise.weights.len()];
        let mut mix = Vec::new();
        (0..comb.steps)
            .map(|step| {
                noise.mix(step, &mut mix);
                let replayed = mix
                    .iter()
                    .enumerate()
                    .map(|(i, l)| l * f64::from(z(i * comb.period + step % comb.period)));
                let mixed = replayed.fold(0.0, |sum, x| sum + x);
                let mut row = mixed;
                for ((s, weight), zero) in buffers.iter_mut().zip(&noise.weights).zip(comb.filter.zeros()) {
                    row -= weight * *s;
                    *s = zero * *s + mixed;
                }
                ((noise.stddev * comb.output_gain(step) * row) as f32).to_bits()
            })
            .collect()
    }

    #[test]
    fn every_number_is_the_recurrence_to_the_last_bit() {
        // Any function of place and column serves as normals.
        let z = |input: usize, column: usize| ((input * 7919 + column * 104_729) % 997) as f32 * 0.0061 - 3.0;
        let draw = |input: usize, row: &mut [f32]| {
            row.iter_mut().enumerate().for_each(|(column, x)| *x = z(input, column));
        };
        for number in 0..60 {
            let comb = random_comb(number, 60);
            let noise = Noise::new(Coefficients::new(comb.clone()), 0.7).unwrap();
            let mut fast = vec![0.0; comb.steps * TILE];
            noise.rows(0..comb.steps, &draw, &mut fast);
            for column in [0, 1, 31, 32, 100, 255] {
                let fast: Vec<u32> = fast.chunks(TILE).map(|row| row[column].to_bits()).collect();
                assert_eq!(fast, slow(&noise, |input| z(input, column)), "{number} {column}");
            }
        }
    }

    #[test]
    fn vectors_change_nothing() {
        let z: [f32; PANEL * TILE] = std::array::from_fn(|i| ((i * 7919) % 1000) as f32 * 1e-3 - 0.5);
        let start: [f64; TILE] = std::array::from_fn(|i| ((i * 31) % 17) as f64 * 0.1 - 0.7);
        let weights = [0.3, -0.7, 1.1];
        let mut both = [start; 2];
        let [fast, portable] = &mut both;
        Arch::new().dispatch(Mix { weights: &weights, z: &z, sums: fast });
        Mix { weights: &weights, z: &z, sums: portable }.with_simd(pulp::Scalar);
        assert_eq!(both[0], both[1]);
        let mut memory = [vec![0.3; 3 * TILE], vec![0.3; 3 * TILE]];
        let mut out = [[0.0; TILE]; 2];
        for (i, (memory, out)) in memory.iter_mut().zip(&mut out).enumerate() {
            let zeros = &[0.9, 0.31, 0.1];
            let filter = Filter { weights: &weights, zeros, scale: 0.7, mixed: &both[0], memory, out };
            if i == 0 { Arch::new().dispatch(filter) } else { filter.with_simd(pulp::Scalar) }
        }
        assert!(out[0] == out[1] && memory[0] == memory[1]);
    }
}
