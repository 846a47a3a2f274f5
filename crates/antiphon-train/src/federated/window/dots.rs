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
    fn with_simd<S: Simd>(self, simd: S) {
        let rights = self.right.chunks_exact(self.stride);
        let lanes = T::lanes::<S>();
        for (left, out) in self.left.chunks_exact(self.stride).zip(self.out.chunks_exact_mut(rights.len())) {
            for (right, out) in rights.clone().zip(out) {
                let mut sums = [T::default(); PARTS];
                for (x, y) in left[..self.columns].chunks_exact(PARTS).zip(right.chunks_exact(PARTS)) {
                    for at in (0..PARTS).step_by(lanes) {
                        let (x, y) = (T::vectors::<S>(&x[at..])[0], T::vectors::<S>(&y[at..])[0]);
                        let sum = &mut T::vectors_mut::<S>(&mut sums[at..])[0];
                        *sum = T::mul_add(simd, x, y, *sum);
                    }
                }
                *out = total(sums);
            }
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
