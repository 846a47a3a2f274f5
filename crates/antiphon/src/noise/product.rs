//! The kernel of the dense stream: sums of rows of Z with given weights, in an order that nothing changes.
//!
//! Every output is a chain of fused multiply-adds over s = 0, 1, 2, …, one each. How the work is cut into panels, tiles and
//! vectors decides only when a chain goes on, so it does not change a bit.

use super::source::TILE;
use pulp::{Simd, WithSimd};

/// Rows of Z that are drawn together. With a tile of columns they stay in the second cache.
pub const PANEL: usize = 128;

/// Rows and vectors of the outputs that stay in registers.
const ROWS: usize = 6;
const VECTORS: usize = 2;
/// Columns of the widest strip: two vectors of sixteen.
const WIDEST: usize = 32;

/// As many rows as can be made together at full speed, at most so many.
pub fn whole_rows(rows: usize) -> usize {
    if rows < ROWS { rows } else { rows / ROWS * ROWS }
}

/// Adds to row i of `sums` what Σ_s weights(i)[s]·z[s] gives, for all rows at once.
pub struct Product<'a, W> {
    /// The weights of output row i for the rows of the panel, from its first on: as many as that row needs, at most all, and
    /// no fewer than the row before it has.
    pub weights: W,
    /// How many output rows.
    pub rows: usize,
    /// The panel: rows of [`TILE`] normals.
    pub z: &'a [f32],
    /// The output: rows of [`TILE`] sums.
    pub sums: &'a mut [f32],
}

impl<'w, W: Fn(usize) -> &'w [f32]> WithSimd for Product<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = VECTORS * S::F32_LANES;
        let depth = (0..self.rows).map(|i| (self.weights)(i).len()).max().unwrap_or(0);
        let mut strip = [0.0; PANEL * WIDEST];
        for column in (0..TILE).step_by(width) {
            // A strip of columns, close together: rows of a whole tile would compete for the same places in the first cache.
            for (strip, z) in strip.chunks_exact_mut(width).zip(self.z.chunks_exact(TILE)).take(depth) {
                strip.copy_from_slice(&z[column..column + width]);
            }
            let mut first = 0;
            while first < self.rows {
                let together = if first + ROWS <= self.rows { ROWS } else { 1 };
                let sums = &mut self.sums[first * TILE + column..];
                // Along the diagonal each row is one deeper than the one before: what they share, then the rest of each.
                let shared = (self.weights)(first).len();
                if together == ROWS {
                    let weights = std::array::from_fn(|i| &(self.weights)(first + i)[..shared]);
                    add::<S, ROWS>(simd, weights, &strip, sums);
                } else {
                    add::<S, 1>(simd, [(self.weights)(first)], &strip, sums);
                }
                for i in 1..together {
                    let rest = &(self.weights)(first + i)[shared..];
                    if !rest.is_empty() {
                        add::<S, 1>(simd, [rest], &strip[shared * width..], &mut sums[i * TILE..]);
                    }
                }
                first += together;
            }
        }
    }
}

/// `R` rows of sums, one strip of columns.
#[inline(always)]
fn add<S: Simd, const R: usize>(simd: S, weights: [&[f32]; R], strip: &[f32], sums: &mut [f32]) {
    let depth = weights[0].len();
    let weights = weights.map(|row| &row[..depth]);
    let width = VECTORS * S::F32_LANES;
    let mut held = [[simd.splat_f32s(0.0); VECTORS]; R];
    for (i, held) in held.iter_mut().enumerate() {
        held.copy_from_slice(S::as_simd_f32s(&sums[i * TILE..][..width]).0);
    }
    for (s, z) in S::as_simd_f32s(&strip[..depth * width]).0.as_chunks::<VECTORS>().0.iter().enumerate() {
        for (held, weights) in held.iter_mut().zip(weights) {
            let weight = simd.splat_f32s(weights[s]);
            for v in 0..VECTORS {
                held[v] = simd.mul_add_f32s(weight, z[v], held[v]);
            }
        }
    }
    for (i, held) in held.iter().enumerate() {
        S::as_mut_simd_f32s(&mut sums[i * TILE..][..width]).0.copy_from_slice(held);
    }
}
