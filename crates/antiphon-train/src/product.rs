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
use std::ops::Range;

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

/// What sums start from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a, T> {
    /// Zero.
    Zero,
    /// One number per column.
    Columns(&'a [T]),
    /// What `c` holds.
    There,
}

impl<'a, T> From<Option<&'a [T]>> for Start<'a, T> {
    fn from(columns: Option<&'a [T]>) -> Self {
        columns.map_or(Start::Zero, Start::Columns)
    }
}

/// What is to be computed. All walks begin at the beginning of their arrays. The inner level of the terms or that of the rows has
/// neighbours in `a`, and no array may end before the walk does; the rows of `b` are there to their ends, even where
/// fewer columns are asked for.
pub struct Product<'a, T> {
    /// Outer and inner level of the rows.
    pub rows: [Level; 2],
    /// Outer and inner level of the terms.
    pub terms: [Level; 2],
    /// How many columns.
    pub columns: usize,
    /// What the sums start from.
    pub start: Start<'a, T>,
    /// The left factor.
    pub a: &'a [T],
    /// The right factor.
    pub b: &'a [T],
    /// Where the sums go.
    pub c: &'a mut [T],
}

impl<T: Real> Product<'_, T> {
    /// Computes it.
    ///
    /// # Panics
    ///
    /// If the levels are not as above.
    pub fn run(self) {
        Arch::new().dispatch(self);
    }
}

/// Terms that are added up before the next rows have their turn: what they read then stays in the first cache.
const TERMS: usize = 64;

impl<T: Real> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if self.terms[1].a == 1 {
            self.all::<S, true>(simd);
        } else {
            assert_eq!(self.rows[1].a, 1, "rows or terms are neighbours");
            self.all::<S, false>(simd);
        }
    }
}

impl<T: Real> Product<'_, T> {
    #[inline(always)]
    fn all<S: Simd, const ALONG: bool>(mut self, simd: S) {
        let lanes = T::lanes::<S>();
        let (all, block) = (self.terms[0].count, (TERMS / self.terms[1].count).max(1));
        for first in (0..all).step_by(block) {
            let outer = first..all.min(first + block);
            let mut column = 0;
            while column < self.columns {
                // Two vectors and as many rows as registers allow: the loads then keep up with the multiply-adds.
                let left = self.columns - column;
                if left >= 2 * lanes {
                    self.panel::<S, 2, false, ALONG>(simd, outer.clone(), column, 2 * lanes);
                    column += 2 * lanes;
                } else if left >= lanes {
                    self.panel::<S, 1, false, ALONG>(simd, outer.clone(), column, lanes);
                    column += lanes;
                } else {
                    self.panel::<S, 1, true, ALONG>(simd, outer.clone(), column, left);
                    column += left;
                }
            }
        }
    }

    /// All rows of `width` columns, which are `V` vectors, or a part of one; only some of the outer terms.
    #[inline(always)]
    fn panel<S: Simd, const V: usize, const PART: bool, const ALONG: bool>(
        &mut self,
        simd: S,
        terms: Range<usize>,
        column: usize,
        width: usize,
    ) {
        let [outer, inner] = self.rows;
        let many = S::REGISTER_COUNT >= 32;
        for i in 0..outer.count {
            let mut j = 0;
            while j < inner.count {
                let at = (i * outer.a + j * inner.a, i * outer.other + j * inner.other + column);
                let (terms, left) = (terms.clone(), inner.count - j);
                j += if many && !ALONG && left % 12 == 0 {
                    self.tile::<S, 12, V, PART, ALONG>(simd, at, terms, column, width)
                } else if many && left >= 8 {
                    self.tile::<S, 8, V, PART, ALONG>(simd, at, terms, column, width)
                } else if !many && left >= 6 && left != 8 && left != 9 {
                    self.tile::<S, 6, V, PART, ALONG>(simd, at, terms, column, width)
                } else if !many && (left == 9 || left == 5) {
                    self.tile::<S, 5, V, PART, ALONG>(simd, at, terms, column, width)
                } else if left >= 4 {
                    self.tile::<S, 4, V, PART, ALONG>(simd, at, terms, column, width)
                } else if left >= 2 {
                    self.tile::<S, 2, V, PART, ALONG>(simd, at, terms, column, width)
                } else {
                    self.tile::<S, 1, V, PART, ALONG>(simd, at, terms, column, width)
                };
            }
        }
    }

    /// `R` rows that begin at these places of `a` and `c`; says how many they were.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize, const PART: bool, const ALONG: bool>(
        &mut self,
        simd: S,
        (a_at, c_at): (usize, usize),
        terms: Range<usize>,
        column: usize,
        width: usize,
    ) -> usize {
        let [outer, inner] = self.terms;
        let (step, row, to) = (inner.a, self.rows[1].a, self.rows[1].other);
        let width = if PART { width } else { V * T::lanes::<S>() };
        let mut sums = [[T::splat(simd, T::default()); V]; R];
        if terms.start > 0 || matches!(self.start, Start::There) {
            sums = std::array::from_fn(|r| load::<S, T, V, PART>(simd, &self.c[c_at + r * to..][..width]));
        } else if let Start::Columns(start) = self.start {
            sums = [load::<S, T, V, PART>(simd, &start[column..column + width]); R];
        }
        // Both loops are such that the checks of places are few: in them, more would cost as much as the arithmetic.
        for o in terms {
            let a = &self.a[a_at + o * outer.a..];
            let b = self.b[o * outer.other..][..inner.count * inner.other].chunks_exact(inner.other);
            if ALONG {
                let a: [&[T]; R] = std::array::from_fn(|r| &a[r * row..][..inner.count]);
                for (t, b) in b.enumerate() {
                    let b = load::<S, T, V, PART>(simd, &b[column..column + width]);
                    for r in 0..R {
                        add(simd, a[r][t], b, &mut sums[r]);
                    }
                }
            } else {
                let mut rest = &a[..(inner.count - 1) * step + R];
                for b in b {
                    let Some(a) = rest.first_chunk::<R>() else { break };
                    let b = load::<S, T, V, PART>(simd, &b[column..column + width]);
                    for r in 0..R {
                        add(simd, a[r], b, &mut sums[r]);
                    }
                    rest = rest.get(step..).unwrap_or_default();
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let c = &mut self.c[c_at + r * to..][..width];
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

/// One more term of the sums of a row. (A function, because closures are not always inlined, and then run without vectors.)
#[inline(always)]
fn add<S: Simd, T: Real, const V: usize>(simd: S, a: T, b: [T::Lanes<S>; V], sums: &mut [T::Lanes<S>; V]) {
    let a = T::splat(simd, a);
    for v in 0..V {
        sums[v] = T::mul_add(simd, a, b[v], sums[v]);
    }
}
