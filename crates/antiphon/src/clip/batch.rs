//! The gradients of a batch, as machine-learning frameworks give them: one array per parameter, examples one after the other.

use super::{Clip, MOST_EXAMPLES, squared_norm};
use crate::error::{Error, Result};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Numbers of a sum that one thread works on at a time.
const PART: usize = 1 << 15;

impl Clip {
    /// Adds the contributions of a batch. A part has the gradients of all examples for some parameters, example after example; an
    /// example is clipped as a whole, over all parts. The sum has the parts one after the other, and is the same on any number of threads.
    ///
    /// At most [`MOST_EXAMPLES`] may be added to one sum, in all its batches.
    pub fn add_batch<T: Copy + Into<f64> + Send + Sync>(
        self,
        parts: &[&[T]],
        examples: usize,
        sum: &mut [f64],
    ) -> Result<()> {
        if !(1..=MOST_EXAMPLES).contains(&examples) {
            return Err(Error::argument("examples", format!("in 1..={MOST_EXAMPLES}"), examples));
        }
        if let Some((number, part)) =
            parts.iter().enumerate().find(|(_, part)| !part.len().is_multiple_of(examples))
        {
            let allowed = format!("{examples} times as many numbers as one has");
            return Err(Error::argument(format!("gradients of part {number}"), allowed, part.len()));
        }
        let sizes: Vec<usize> = parts.iter().map(|part| part.len() / examples).collect();
        let count: usize = sizes.iter().sum();
        if count != sum.len() {
            return Err(Error::argument("the sum", format!("{count} numbers long"), sum.len()));
        }
        if count > self.parameters {
            let allowed =
                format!("at most {} numbers long, as the clipping rule was made for", self.parameters);
            return Err(Error::argument("the sum", allowed, count));
        }
        let row = |part: usize, example: usize| &parts[part][example * sizes[part]..][..sizes[part]];
        // Every part alone, so that it can be done anywhere; added up in one order.
        let squares: Vec<f64> = (0..examples * parts.len())
            .into_par_iter()
            .map(|i| Arch::new().dispatch(SquaredNorm(row(i % parts.len(), i / parts.len()))))
            .collect();
        let factors: Vec<f64> =
            squares.chunks(parts.len()).map(|squares| self.factor(squares.iter().sum())).collect();
        let mut rest = sum;
        let mut pieces: Vec<(usize, usize, &mut [f64])> = Vec::new();
        for (part, size) in sizes.iter().enumerate() {
            let (sum, later) = rest.split_at_mut(*size);
            pieces.extend(sum.chunks_mut(PART).enumerate().map(|(i, sum)| (part, i * PART, sum)));
            rest = later;
        }
        pieces.into_par_iter().for_each(|(part, first, sum)| {
            let gradient = |example: usize| &row(part, example)[first..first + sum.len()];
            let gradients: Vec<&[T]> = (0..examples).map(gradient).collect();
            Arch::new().dispatch(Add { clip: self, factors: &factors, gradients: &gradients, sum });
        });
        Ok(())
    }
}

// As structs, not closures: a closure may not be inlined into the function that has the processor's vector instructions.

struct SquaredNorm<'a, T>(&'a [T]);

impl<T: Copy + Into<f64>> WithSimd for SquaredNorm<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        squared_norm(self.0)
    }
}

struct Add<'a, T> {
    clip: Clip,
    factors: &'a [f64],
    gradients: &'a [&'a [T]],
    sum: &'a mut [f64],
}

impl<T: Copy + Into<f64>> WithSimd for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Add { clip, factors, gradients, sum } = self;
        clip.add(factors, |example| gradients[example], sum);
    }
}
