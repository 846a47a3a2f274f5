//! Clipping: what one example may contribute to a sum, to the last bit.
//!
//! The privacy of a step rests on one number: how far a sum of gradients can move when one example comes or goes. On paper that is
//! the clipping norm. In floating-point arithmetic a scaled gradient can be longer than that by its roundings, and every
//! addition to a sum rounds too, by an amount that depends on all other examples. Here neither happens:
//!
//! **Contributions lie on a grid.** Every coordinate of a scaled gradient is rounded to a multiple of a power of two, the `unit`,
//! about 2⁻³² of the clipping norm. The sum is kept in `f64`, which holds such multiples exactly up to 2⁵³ units. So no
//! addition rounds, the sum is the exact sum of the contributions, it is the same in any order and on any number of threads,
//! and an example moves it by exactly its own contribution.
//!
//! **Contributions are no longer than the clipping norm.** Let d be the number of parameters, g an example's gradient (its
//! coordinates are `f32`, or exact products of two), n its norm as computed here and s = min(1, target/n) its factor.
//! Each coordinate of s·g is off by at most 2⁻⁵² of itself for one or two roundings and by unit/2 for the grid, so
//!
//! ```text
//! ‖contribution‖ ≤ s·‖g‖·(1 + 2⁻⁵²) + ½·√d·unit,     ‖g‖ ≤ n·(1 + (d + 8)·2⁻⁵³),
//! target = (clip − √d·unit)·(1 − (d + 16)·2⁻⁵³)      makes that at most clip.
//! ```
//!
//! The bound on n is the textbook one for a sum of d squares in `f64` (nothing under- or overflows: squares and products of squares of
//! `f32` are far inside the range) and a square root. It holds for `f64` coordinates too: a square that overflows makes the norm
//! infinite, and squares that underflow are less than d·2⁻¹⁰²² together, which is nothing beside (1e-30)²·2⁻⁵³.
//!
//! **A gradient with an entry that is not finite contributes zero**, whatever the rest of it is.

mod batch;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};

/// Examples in one sum at most: with the grid of [`Clip`], their sum stays exact.
pub const MOST_EXAMPLES: usize = 1 << 21;
/// Parameters at most: the argument above wants (d + 16)·2⁻⁵³ and √d·2⁻³² to be small.
pub const MOST_PARAMETERS: usize = 1 << 40;

/// The rule for one clipping norm and number of parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// Scaled gradients are at most this long before they are rounded to the grid.
    target: f64,
    /// The spacing of the grid.
    unit: f64,
    /// 1.5·2⁵² units: numbers near it count by units.
    round: f64,
    /// d.
    parameters: usize,
}

impl Clip {
    /// The rule for contributions of norm at most `clip`.
    pub fn new(clip: f64, parameters: usize) -> Result<Clip> {
        // Far from the ends of `f32`, so that nothing below can leave the range of `f64`.
        if !(1e-30..=1e30).contains(&clip) {
            return Err(Error::argument("clip_norm", "in [1e-30, 1e30]", clip));
        }
        if parameters > MOST_PARAMETERS {
            return Err(Error::argument("parameters", format!("at most {MOST_PARAMETERS}"), parameters));
        }
        // 2^e > clip, so coordinates are below 2³² units, and 2²¹ of them below 2⁵³.
        let power = f64::from_bits((clip.to_bits() >> 52 << 52) + (1 << 52));
        let unit = power / 2f64.powi(32);
        let d = parameters as f64;
        let target = (clip - d.sqrt() * unit) * (1.0 - (d + 16.0) * 2f64.powi(-53));
        Ok(Clip { target, unit, round: 1.5 * 2f64.powi(52) * unit, parameters })
    }

    /// The factor for a gradient whose squared norm is this: at most one, and zero if the norm is not finite.
    pub fn factor(self, squared_norm: f64) -> f64 {
        let norm = squared_norm.sqrt();
        if !norm.is_finite() {
            0.0
        } else if norm <= self.target {
            1.0
        } else {
            self.target / norm
        }
    }

    /// Gradients longer than this are scaled down to it, before they are rounded to the grid.
    pub fn target(self) -> f64 {
        self.target
    }

    /// The spacing of the grid: contributions and their sums are multiples of it.
    pub fn unit(self) -> f64 {
        self.unit
    }

    /// The nearest point of the grid, for numbers up to 2⁵¹ units.
    #[inline(always)]
    fn round(self, x: f64) -> f64 {
        (x + self.round) - self.round
    }

    /// Adds the contributions of gradients that are written down, each with its factor: `gradient(e)` of `factors[e]`.
    #[inline(always)]
    pub fn add<'a, T: Copy + Into<f64> + 'a>(
        self,
        factors: &[f64],
        gradient: impl Fn(usize) -> &'a [T],
        sum: &mut [f64],
    ) {
        for (block, sum) in sum.chunks_mut(BLOCK).enumerate() {
            for (e, factor) in factors.iter().enumerate().filter(|(_, factor)| **factor > 0.0) {
                let gradient = &gradient(e)[block * BLOCK..][..sum.len()];
                for (sum, g) in sum.iter_mut().zip(gradient) {
                    *sum += self.round(factor * (*g).into());
                }
            }
        }
    }

    /// Adds the contributions of outer products x·gᵀ, each with its factor, and of g itself behind them. `x` and `g` have
    /// examples one after the other.
    #[inline(always)]
    pub fn add_outer(self, factors: &[f64], x: &[f32], g: &[f32], sum: &mut [f64]) {
        let (inputs, outputs) = (x.len() / factors.len(), g.len() / factors.len());
        for (i, sum) in sum.chunks_exact_mut(outputs).enumerate() {
            let examples = factors.iter().zip(g.chunks_exact(outputs)).enumerate();
            for (e, (factor, g)) in examples.filter(|(_, (factor, _))| **factor > 0.0) {
                let factor = if i < inputs { factor * f64::from(x[e * inputs + i]) } else { *factor };
                for (sum, g) in sum.iter_mut().zip(g) {
                    *sum += self.round(factor * f64::from(*g));
                }
            }
        }
    }
}

/// Numbers of a sum that stay in the first cache while all examples of a chunk are added to them.
const BLOCK: usize = 1024;

/// The sum of squares, in `f64`. Sixteen partial sums, which no machine's vectors change.
#[inline(always)]
pub fn squared_norm<T: Copy + Into<f64>>(x: &[T]) -> f64 {
    let mut sums = [0f64; 16];
    let (blocks, rest) = x.as_chunks::<16>();
    for block in blocks {
        for (sum, x) in sums.iter_mut().zip(block) {
            let x: f64 = (*x).into();
            *sum = x.mul_add(x, *sum);
        }
    }
    let square = |x: f64| x * x;
    let rest: f64 = rest.iter().map(|x| square((*x).into())).sum();
    sums.iter().sum::<f64>() + rest
}
