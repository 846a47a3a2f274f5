//! A client's copy of the parameters, in memory as the products like it.

use super::Window;
use super::dots::PARTS;
use crate::aligned::Aligned;
use crate::real::Real;
use pulp::Arch;

/// The parameters.
pub(super) struct Parameters<T> {
    pub window: Window,
    /// Numbers from one row of the table to the next.
    pub stride: usize,
    /// Numbers of a row that are used: the vocabulary and, up to a multiple of [`PARTS`], tokens of probability zero.
    pub columns: usize,
    /// Eᵀ and, as one more row, c.
    pub table: Aligned<T>,
    /// W and, as one more row, b.
    pub weights: Aligned<T>,
}

impl<T: Real> Parameters<T> {
    pub fn new(window: Window) -> Self {
        let columns = window.vocabulary.next_multiple_of(PARTS);
        // An odd number of cache lines: with a power of two, a column of the table would meet itself in the cache.
        let stride = ((columns / PARTS) | 1) * PARTS;
        Parameters {
            window,
            stride,
            columns,
            table: Aligned::new((window.width + 1) * stride),
            weights: Aligned::new((window.inputs() + 1) * window.width),
        }
    }

    /// Eᵀ and c.
    pub fn table(&self) -> (&[T], &[T]) {
        self.table.split_at(self.window.width * self.stride)
    }

    /// W and b.
    pub fn weights(&self) -> (&[T], &[T]) {
        self.weights.split_at(self.window.inputs() * self.window.width)
    }

    /// Copies parameters. What is behind the vocabulary is written anew too: a client that has overflowed leaves numbers
    /// there that are not finite, and the next one must not see them.
    pub fn load(&mut self, theta: &[T]) {
        let Window { vocabulary, width, .. } = self.window;
        assert_eq!(theta.len(), self.window.parameters(), "length of theta");
        let (table, rest) = theta.split_at(width * vocabulary);
        let (weights, biases) = rest.split_at(self.weights.len());
        // exp of it is zero.
        let least = T::from_f64(f64::NEG_INFINITY);
        let rows = table.chunks_exact(vocabulary).map(|row| (row, T::default())).chain([(biases, least)]);
        for (to, (from, behind)) in self.table.chunks_exact_mut(self.stride).zip(rows) {
            to[..vocabulary].copy_from_slice(from);
            to[vocabulary..].fill(behind);
        }
        self.weights.copy_from_slice(weights);
    }

    /// `theta` minus the parameters.
    pub fn difference(&self, theta: &[T], update: &mut [T]) {
        let Window { vocabulary, width, .. } = self.window;
        let rows = self.table.chunks_exact(self.stride).map(|row| &row[..vocabulary]);
        let mut at = 0;
        for part in rows.clone().take(width).chain([&self.weights[..]]).chain(rows.skip(width)) {
            let range = at..at + part.len();
            let triples = update[range.clone()].iter_mut().zip(&theta[range]).zip(part);
            Arch::new().dispatch(|| triples.for_each(|((update, before), after)| *update = *before - *after));
            at += part.len();
        }
    }
}
