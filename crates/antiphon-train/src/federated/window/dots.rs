//! Inner products of the rows of two matrices, along the long dimension.
//!
//! ```text
//! out[a, b] = Σ_v left[a, v]·right[b, v]
//! ```
//!
//! Every sum is made of [`PARTS`] partial sums, v mod 16, each one chain of fused multiply-adds; then the upper half of
//! them is added to the lower half until one is left. So the bits do not depend on the vector unit.

use crate::real::Real;
use pulp::{Arch, Simd, WithSimd};

/// Partial sums.
pub(super) const PARTS: usize = 16;

/// What is to be computed: rows of `columns` numbers, a multiple of [`PARTS`], one every `stride` numbers.
pub(super) struct Dots<'a, T> {
    pub left: &'a [T],
    pub right: &'a [T],
    pub stride: usize,
    pub columns: usize,
    pub out: &'a mut [T],
}

impl<T: Real> Dots<'_, T> {
    pub fn run(self) {
        Arch::new().dispatch(self);
    }
}

impl<T: Real> WithSimd for Dots<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let rows = self.left.len() / self.stride;
        let mut row = 0;
        // As many rows at a time as there are registers for the partial sums.
        while row < rows {
            row += match rows - row {
                3.. => self.rows::<S, 3>(simd, row),
                2 => self.rows::<S, 2>(simd, row),
                _ => self.rows::<S, 1>(simd, row),
            };
        }
    }
}

impl<T: Real> Dots<'_, T> {
    /// `A` rows of the left with all rows of the right; says how many they were.
    #[inline(always)]
    fn rows<S: Simd, const A: usize>(&mut self, simd: S, row: usize) -> usize {
        let rows = self.right.len() / self.stride;
        let mut other = 0;
        while other < rows {
            other += match rows - other {
                2.. => self.tile::<S, A, 2>(simd, row, other),
                _ => self.tile::<S, A, 1>(simd, row, other),
            };
        }
        A
    }

    /// `A` rows of the left with `B` rows of the right; says how many these were.
    #[inline(always)]
    fn tile<S: Simd, const A: usize, const B: usize>(&mut self, simd: S, row: usize, other: usize) -> usize {
        let (stride, columns) = (self.stride, self.columns);
        let left: [_; A] = std::array::from_fn(|a| &self.left[(row + a) * stride..][..columns]);
        let right: [_; B] = std::array::from_fn(|b| &self.right[(other + b) * stride..][..columns]);
        let mut parts = [[[T::default(); PARTS]; B]; A];
        let lanes = T::lanes::<S>();
        // Two vectors where they are half a cache line or less: both halves are then used at once.
        if lanes < PARTS {
            for at in (0..PARTS).step_by(2 * lanes) {
                some::<S, T, A, B, 2>(simd, left, right, at, &mut parts);
            }
        } else {
            some::<S, T, A, B, 1>(simd, left, right, 0, &mut parts);
        }
        let rights = self.right.len() / stride;
        for (a, parts) in parts.into_iter().enumerate() {
            for (b, parts) in parts.into_iter().enumerate() {
                self.out[(row + a) * rights + other + b] = total(parts);
            }
        }
        B
    }
}

/// The partial sums that begin with this one, `K` vectors of them for each pair of rows.
#[inline(always)]
fn some<S: Simd, T: Real, const A: usize, const B: usize, const K: usize>(
    simd: S,
    left: [&[T]; A],
    right: [&[T]; B],
    at: usize,
    parts: &mut [[[T; PARTS]; B]; A],
) {
    let lanes = T::lanes::<S>();
    let count = left[0].len() / lanes;
    let left: [_; A] = std::array::from_fn(|a| &T::vectors::<S>(left[a])[..count]);
    let right: [_; B] = std::array::from_fn(|b| &T::vectors::<S>(right[b])[..count]);
    let mut sums = [[[T::splat(simd, T::default()); K]; B]; A];
    let mut v = at / lanes;
    while v + K <= count {
        for k in 0..K {
            for a in 0..A {
                for b in 0..B {
                    sums[a][b][k] = T::mul_add(simd, left[a][v + k], right[b][v + k], sums[a][b][k]);
                }
            }
        }
        v += PARTS / lanes;
    }
    for a in 0..A {
        for b in 0..B {
            T::vectors_mut::<S>(&mut parts[a][b][at..])[..K].copy_from_slice(&sums[a][b]);
        }
    }
}

/// The sum of partial sums.
#[inline(always)]
pub(super) fn total<T: Real>(mut sums: [T; PARTS]) -> T {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    sums[0]
}
