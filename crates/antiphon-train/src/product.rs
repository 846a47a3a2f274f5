//! The one kernel that does the arithmetic: sums of products along regular walks through two arrays.
//!
//! ```text
//! c[row, column] = start[column] + Σ_term a[row, term]·b[term, column]
//! ```
//!
//! Columns are neighbours in memory. Rows and terms are each a walk of two levels, such as the rows of an image and the
//! pixels within them, so that a convolution is one call and nothing is unrolled into a matrix first: the entries of `a`
//! may be the same memory for many rows and terms.
//!
//! Every sum is one chain of fused multiply-adds in the order of its terms. Tiles, vectors and tails decide only which sums
//! are made together. So they change no bit, and neither does the machine.

use crate::real::Real;
use pulp::{Arch, Simd, WithSimd};

/// One level of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// How many stops it has.
    pub count: usize,
    /// How far apart they are in `a`.
    pub a: usize,
    /// How far apart they are in the other array: `c` for rows, `b` for terms.
    pub other: usize,
}

impl Level {
    /// A level that does nothing.
    pub const ONE: Level = Level { count: 1, a: 0, other: 0 };
}

/// What is to be computed. All walks begin at the beginning of their arrays.
pub struct Product<'a, T> {
    /// Outer and inner level of the rows.
    pub rows: [Level; 2],
    /// Outer and inner level of the terms.
    pub terms: [Level; 2],
    /// How many columns.
    pub columns: usize,
    /// What the sums start from, by column; zero if there is nothing.
    pub start: Option<&'a [T]>,
    /// The left factor.
    pub a: &'a [T],
    /// The right factor.
    pub b: &'a [T],
    /// Where the sums go.
    pub c: &'a mut [T],
}

impl<T: Real> Product<'_, T> {
    /// Computes it.
    pub fn run(self) {
        Arch::new().dispatch(self);
    }
}

impl<T: Real> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let lanes = T::lanes::<S>();
        let mut column = 0;
        while column < self.columns {
            // Two vectors and as many rows as registers allow: the loads then keep up with the multiply-adds.
            let left = self.columns - column;
            if left >= 2 * lanes {
                self.panel::<S, 2, false>(simd, column, 2 * lanes);
                column += 2 * lanes;
            } else if left >= lanes {
                self.panel::<S, 1, false>(simd, column, lanes);
                column += lanes;
            } else {
                self.panel::<S, 1, true>(simd, column, left);
                column += left;
            }
        }
    }
}

impl<T: Real> Product<'_, T> {
    /// All rows of `width` columns, which are `V` vectors, or a part of one. The panel of `b` stays in the cache.
    #[inline(always)]
    fn panel<S: Simd, const V: usize, const PART: bool>(&mut self, simd: S, column: usize, width: usize) {
        let [outer, inner] = self.rows;
        for i in 0..outer.count {
            let mut j = 0;
            while j < inner.count {
                let at = (i * outer.a + j * inner.a, i * outer.other + j * inner.other + column);
                let left = inner.count - j;
                j += if left >= 8 && S::REGISTER_COUNT >= 32 {
                    self.tile::<S, 8, V, PART>(simd, at, column, width)
                } else if left >= 4 {
                    self.tile::<S, 4, V, PART>(simd, at, column, width)
                } else if left >= 2 {
                    self.tile::<S, 2, V, PART>(simd, at, column, width)
                } else {
                    self.tile::<S, 1, V, PART>(simd, at, column, width)
                };
            }
        }
    }

    /// `R` rows that begin at these places of `a` and `c`; says how many they were.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize, const PART: bool>(
        &mut self,
        simd: S,
        (a_at, c_at): (usize, usize),
        column: usize,
        width: usize,
    ) -> usize {
        let [outer, inner] = self.terms;
        let (step, row) = (inner.a, self.rows[1].a);
        let width = if PART { width } else { V * T::lanes::<S>() };
        let mut sums = [[T::splat(simd, T::default()); V]; R];
        if let Some(start) = self.start {
            sums = [load::<S, T, V, PART>(simd, &start[column..column + width]); R];
        }
        for o in 0..outer.count {
            let a = &self.a[a_at + o * outer.a..];
            let b = &self.b[o * outer.other + column..];
            // The slices end with the last term, so the checks below compare with what is in a register.
            let a: [&[T]; R] = std::array::from_fn(|r| &a[r * row..][..(inner.count - 1) * step + 1]);
            for t in 0..inner.count {
                let b = load::<S, T, V, PART>(simd, &b[t * inner.other..][..width]);
                for (sums, a) in sums.iter_mut().zip(a) {
                    let a = T::splat(simd, a[t * step]);
                    for v in 0..V {
                        sums[v] = T::mul_add(simd, a, b[v], sums[v]);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let c = &mut self.c[c_at + r * self.rows[1].other..][..width];
            if PART {
                T::store_part(simd, c, sums[0]);
            } else {
                T::vectors_mut::<S>(c).copy_from_slice(sums);
            }
        }
        R
    }
}

/// `V` vectors, or a part of one.
#[inline(always)]
fn load<S: Simd, T: Real, const V: usize, const PART: bool>(simd: S, x: &[T]) -> [T::Lanes<S>; V] {
    if PART {
        [T::load_part(simd, x); V]
    } else {
        let x = &T::vectors::<S>(x)[..V];
        std::array::from_fn(|v| x[v])
    }
}
