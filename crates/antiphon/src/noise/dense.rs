//! Noise of a dense mechanism, row by row: row t of W·Z, without Z in memory.
//!
//! Row t needs the rows 0, …, t of Z. Keeping those of a model takes n·d numbers; drawing them again for every step takes
//! n²/2·d. So the rows t, …, t + m − 1 are made together, from rows of Z that are drawn again once for all of them, in tiles of
//! columns that stay in the cache: m·d numbers of memory, n²/(2m)·d that are drawn, and n²/2·d multiply-adds, which take
//! most of the time.
//!
//! Each number is a chain of fused multiply-adds in single precision over s = 0, …, t (product.rs), with weights σ·W(t, s) that
//! are rounded once. So it does not depend on m, on the range of coordinates, or on the machine. The sensitivity that is proved
//! for W is that of the stored numbers, not of the rounded ones: SECURITY.md.

use super::Key;
use super::product::{PANEL, Product, ROWS, TILE};
use crate::error::{Error, Result};
use crate::mechanism::NoisingMatrix;
use pulp::Arch;
use rayon::prelude::*;
use std::ops::Range;

/// A stream of rows.
#[derive(Debug)]
pub struct DenseRows {
    /// The rows of σ·W one after another, each up to the diagonal.
    weights: Vec<f32>,
    steps: usize,
    id: String,
    key: Key,
    coordinates: Range<u64>,
    /// m.
    block_rows: usize,
    /// The rows from `block_first` on, `block_len` of them, tile by tile.
    block: Vec<f32>,
    block_first: usize,
    block_len: usize,
    next: usize,
}

impl DenseRows {
    /// A stream for a range of coordinates, that takes about `memory` bytes (and more where that is not enough for one row).
    ///
    /// `stddev` is σ, the standard deviation of the numbers in Z: noise multiplier times clip norm times sensitivity.
    pub fn new(
        noising: &NoisingMatrix,
        key: &Key,
        stddev: f64,
        coordinates: Range<u64>,
        memory: usize,
    ) -> Result<DenseRows> {
        if !(0.0..f64::INFINITY).contains(&stddev) {
            return Err(Error::argument("stddev", "in [0, ∞)", stddev));
        }
        let length = coordinates.end.checked_sub(coordinates.start).filter(|length| *length > 0);
        let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
            let got = format!("{}..{}", coordinates.start, coordinates.end);
            return Err(Error::argument("the range of coordinates", "not empty, and to fit memory", got));
        };
        let steps = noising.steps();
        let weights: Vec<f32> = noising.packed().iter().map(|w| (stddev * w) as f32).collect();
        if let Some(w) = weights.iter().find(|w| !w.is_finite()) {
            return Err(Error::argument("stddev", "small enough for weights in single precision", w));
        }
        let row = length.div_ceil(TILE) * TILE;
        let block_rows = match memory / (size_of::<f32>() * row) {
            rows if rows < ROWS => rows.max(1),
            rows => rows / ROWS * ROWS,
        };
        let block_rows = block_rows.min(steps);
        Ok(DenseRows {
            weights,
            steps,
            id: noising.id(),
            key: key.clone(),
            coordinates,
            block_rows,
            block: vec![0.0; block_rows * row],
            block_first: 0,
            block_len: 0,
            next: 0,
        })
    }

    /// The number of rows n.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The step that is next: all that must be kept, beside the key, to go on after a restart.
    pub fn position(&self) -> usize {
        self.next
    }

    /// The name of the mechanism whose noise this is; a position means nothing for another.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Goes on at a step. At n the stream has ended.
    pub fn seek(&mut self, step: usize) -> Result<()> {
        if step > self.steps {
            return Err(Error::argument("step", format!("in 0..={}", self.steps), step));
        }
        self.next = step;
        Ok(())
    }

    /// Writes the noise of the next step, for all coordinates of the range.
    pub fn next_into(&mut self, out: &mut [f32]) -> Result<()> {
        let length = (self.coordinates.end - self.coordinates.start) as usize;
        if out.len() != length {
            return Err(Error::argument("the row of noise", format!("{length} numbers long"), out.len()));
        }
        if self.next >= self.steps {
            return Err(Error::Unsupported(format!(
                "the noise has ended: the mechanism has {} steps",
                self.steps
            )));
        }
        if !(self.block_first..self.block_first + self.block_len).contains(&self.next) {
            self.make_block();
        }
        let row = self.next - self.block_first;
        let tiles = self.block.chunks(self.block_rows * TILE);
        for (tile, out) in tiles.zip(out.chunks_mut(TILE)) {
            out.copy_from_slice(&tile[row * TILE..][..out.len()]);
        }
        self.next += 1;
        Ok(())
    }

    /// The rows from the next one on, as many as there is memory for.
    fn make_block(&mut self) {
        self.block_first = self.next;
        self.block_len = self.block_rows.min(self.steps - self.next);
        let (weights, key, range) = (&self.weights, &self.key, &self.coordinates);
        let rows = self.block_first..self.block_first + self.block_len;
        self.block.par_chunks_mut(self.block_rows * TILE).enumerate().for_each(|(i, sums)| {
            let first = range.start + (i * TILE) as u64;
            let width = ((range.end - first) as usize).min(TILE);
            tile(weights, key, rows.clone(), first, width, sums);
        });
    }
}

/// All sums of some rows, for one tile of columns.
fn tile(weights: &[f32], key: &Key, rows: Range<usize>, first: u64, width: usize, sums: &mut [f32]) {
    let arch = Arch::new();
    let mut z = vec![0.0; PANEL * TILE];
    sums.fill(0.0);
    for panel in (0..rows.end).step_by(PANEL) {
        let end = (panel + PANEL).min(rows.end);
        for (s, z) in (panel..end).zip(z.chunks_mut(TILE)) {
            key.fill_f32(s as u64, first, &mut z[..width]);
        }
        // Rows before the panel have ended.
        let start = rows.start.max(panel);
        let of_row = |i: usize| {
            let row = start + i;
            &weights[row * (row + 1) / 2..][panel..end.min(row + 1)]
        };
        let sums = &mut sums[(start - rows.start) * TILE..];
        arch.dispatch(Product { weights: of_row, rows: rows.end - start, z: &z, sums });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Cipher;
    use pulp::WithSimd;

    fn noising(steps: usize) -> NoisingMatrix {
        let packed: Vec<f64> = (0..steps)
            .flat_map(|i| {
                (0..=i).map(move |j| if i == j { 1.0 } else { ((i * 31 + j * 17) % 23) as f64 * 0.01 - 0.1 })
            })
            .collect();
        NoisingMatrix::from_packed(steps, &packed).unwrap()
    }

    /// One number at a time.
    fn slow(noising: &NoisingMatrix, key: &Key, stddev: f64, step: usize, coordinate: u64) -> f32 {
        (0..=step).fold(0.0f32, |sum, s| {
            let mut z = [0.0f32];
            key.fill_f32(s as u64, coordinate, &mut z);
            ((stddev * noising.matrix()[(step, s)]) as f32).mul_add(z[0], sum)
        })
    }

    fn all(stream: &mut DenseRows) -> Vec<Vec<u32>> {
        let length = (stream.coordinates.end - stream.coordinates.start) as usize;
        (stream.position()..stream.steps())
            .map(|_| {
                let mut row = vec![0.0; length];
                stream.next_into(&mut row).unwrap();
                row.iter().map(|x| x.to_bits()).collect()
            })
            .collect()
    }

    #[test]
    fn rows_are_the_same_for_any_memory_range_thread_and_start() {
        let (steps, width) = (150, 300u64);
        let (w, key) = (noising(steps), Key::from_seed(5, Cipher::ChaCha20));
        let whole = all(&mut DenseRows::new(&w, &key, 0.7, 0..width, usize::MAX).unwrap());
        for (t, j) in [(0, 0), (1, 7), (5, 255), (6, 256), (127, 299), (128, 3), (149, 150)] {
            assert_eq!(whole[t][j as usize], slow(&w, &key, 0.7, t, j).to_bits(), "{t} {j}");
        }
        for memory in [0, 7 * 2048, 40 * 2048] {
            assert_eq!(all(&mut DenseRows::new(&w, &key, 0.7, 0..width, memory).unwrap()), whole, "{memory}");
        }
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let rows = pool.install(|| all(&mut DenseRows::new(&w, &key, 0.7, 0..width, 50_000).unwrap()));
            assert_eq!(rows, whole, "{threads} threads");
        }
        for range in [0..1, 13..200, 255..257, 299..300] {
            let rows = all(&mut DenseRows::new(&w, &key, 0.7, range.clone(), 10_000).unwrap());
            let part: Vec<Vec<u32>> =
                whole.iter().map(|row| row[range.start as usize..range.end as usize].to_vec()).collect();
            assert_eq!(rows, part, "{range:?}");
        }
        let mut stream = DenseRows::new(&w, &key, 0.7, 0..width, 20 * 2048).unwrap();
        for step in [149, 3, 60, 61, 0] {
            stream.seek(step).unwrap();
            assert_eq!(all(&mut stream), whole[step..]);
        }
    }

    #[test]
    fn vectors_change_nothing() {
        let z: Vec<f32> = (0..PANEL * TILE).map(|i| ((i * 7919) % 1000) as f32 * 1e-3 - 0.5).collect();
        let weights: Vec<f32> = (0..20 * PANEL).map(|i| ((i * 104_729) % 997) as f32 * 1e-3 - 0.5).collect();
        // Rows of different depth, as along the diagonal.
        let of_row = |i: usize| &weights[i * PANEL..][..PANEL.min(110 + i)];
        let mut fast = vec![0.25; 20 * TILE];
        let mut portable = fast.clone();
        Arch::new().dispatch(Product { weights: of_row, rows: 20, z: &z, sums: &mut fast });
        Product { weights: of_row, rows: 20, z: &z, sums: &mut portable }.with_simd(pulp::Scalar);
        assert_eq!(fast, portable);
        for (i, j) in [(0, 0), (5, 255), (12, 100), (13, 17), (19, 255)] {
            let truth =
                of_row(i).iter().enumerate().fold(0.25f32, |sum, (s, w)| w.mul_add(z[s * TILE + j], sum));
            assert_eq!(fast[i * TILE + j], truth);
        }
    }

    #[test]
    fn the_end_and_wrong_lengths_are_errors() {
        let (w, key) = (noising(3), Key::from_seed(5, Cipher::Aes256Ctr));
        let mut stream = DenseRows::new(&w, &key, 1.0, 4..8, 0).unwrap();
        assert!(stream.next_into(&mut [0.0; 3]).unwrap_err().to_string().contains("4 numbers long, got 3"));
        (0..3).for_each(|_| stream.next_into(&mut [0.0; 4]).unwrap());
        assert!(
            stream
                .next_into(&mut [0.0; 4])
                .unwrap_err()
                .to_string()
                .contains("has ended: the mechanism has 3 steps")
        );
        assert_eq!(stream.position(), 3);
        assert_eq!(stream.seek(4).unwrap_err().to_string(), "step must be in 0..=3, got 4");
        assert_eq!(stream.id(), w.id());
        assert!(DenseRows::new(&w, &key, f64::NAN, 0..1, 0).is_err());
        let empty = DenseRows::new(&w, &key, 1.0, 5..5, 0);
        assert!(empty.unwrap_err().to_string().contains("not empty"));
    }
}
