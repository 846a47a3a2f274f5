//! The noise of a comb, row after row: a few buffers, and the normals of the same residue drawn again.

use super::factorization::Coefficients;
use crate::mechanism::stream::{Access, Draw, Kernel, Stream, TILE, scaled};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// σ·W·Z.
pub struct Noise {
    coefficients: Coefficients,
    stddev: f64,
}

impl Noise {
    /// Of a comb that was checked.
    pub fn new(coefficients: Coefficients, stddev: f64) -> Noise {
        Noise { coefficients, stddev }
    }
}

impl Kernel for Noise {
    fn inputs(&self) -> usize {
        self.coefficients.comb.steps
    }

    /// A row of T sums to at most 2 in absolute value: T(1) ≥ 0 and all coefficients but the first are negative.
    fn row_sum(&self) -> f64 {
        let c = &self.coefficients;
        let mut row = Vec::new();
        let mixed = |t: usize| {
            c.comb.mix_row(t % c.comb.period, t / c.comb.period, &mut row);
            c.input[t] * row.iter().map(|x| x.abs()).sum::<f64>()
        };
        let largest = (0..c.comb.steps).map(mixed).fold(0.0, f64::max);
        let output = c.output.iter().copied().fold(0.0, f64::max);
        2.0 * largest * output * (1.0 + 1e-6)
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        self.replay(wanted, draw, out);
    }

    fn access(&self) -> Access<'_> {
        Access::Stream(self)
    }

    fn describe(&self, hash: &mut Sha256) {
        for (name, numbers) in self.coefficients.comb.to_parameters().iter() {
            hash.update(name.as_bytes());
            numbers.iter().for_each(|x| hash.update(x.to_le_bytes()));
        }
    }
}

impl Stream for Noise {
    fn kept(&self) -> usize {
        self.coefficients.comb.filter.buffers()
    }

    fn next_row(&self, step: usize, memory: &mut [f64], draw: Draw<'_>, out: &mut [f32]) {
        let c = &self.coefficients;
        let (epoch, residue) = (step / c.comb.period, step % c.comb.period);
        let mut mix = Vec::new();
        c.comb.mix_row(residue, epoch, &mut mix);
        let (mut z, mut mixed) = ([0.0f32; TILE], [0.0f64; TILE]);
        for (i, l) in mix.iter().enumerate() {
            draw(i * c.comb.period + residue, &mut z);
            let l = l * c.input[step];
            mixed.iter_mut().zip(&z).for_each(|(sum, z)| *sum += l * f64::from(*z));
        }
        let mut row = mixed;
        let buffers = memory.chunks_exact_mut(TILE).zip(c.comb.filter.zeros()).zip(&c.inverse_weights);
        for ((buffer, zero), weight) in buffers {
            for ((s, row), own) in buffer.iter_mut().zip(&mut row).zip(&mixed) {
                *row -= weight * *s;
                *s = zero * *s + own;
            }
        }
        scaled(self.stddev * c.output[step], row.into_iter(), out);
    }
}
