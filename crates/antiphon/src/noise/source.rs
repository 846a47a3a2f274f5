//! What noise is made of: a source knows the rows of W·Z for any tile of columns, and a block holds many of them.
//!
//! Columns are cut into tiles at multiples of [`TILE`], whatever range is asked for: a number depends on its own tile at most,
//! so two ranges agree where they meet.

use super::Key;
use super::dense::Dense;
use super::stamps::{Stamp, Stamps};
use super::transform::LARGEST;
use crate::error::{Error, Hint, Result};
use crate::mechanism::Noise;
use crate::mechanism::stream::{Access, Recurrence};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;

pub use crate::mechanism::stream::TILE;

/// The rows of σ·W·Z.
pub trait Source: Send + Sync {
    /// n.
    fn steps(&self) -> usize;

    /// Writes some rows for the columns first, …, first + [`TILE`] − 1, one row after another. `first` is a multiple of
    /// [`TILE`].
    fn tile(&self, key: &Key, rows: Range<usize>, first: u64, out: &mut [f32]);

    /// How rows are made one after another.
    fn access(&self) -> Access<'_>;

    /// For sources whose rows are made one after another: the stamp of a step.
    fn stamp_of(&self, _step: usize) -> Option<&Stamp> {
        None
    }

    /// How a row is made, where that is a [`Recurrence`] with rows of the whole Z.
    fn recurrence(&self, _step: usize) -> Option<Recurrence> {
        None
    }

    /// All that fixes the numbers, beside the key.
    fn describe(&self, hash: &mut Sha256);
}

/// The source of a mechanism's noise, with σ = `stddev`.
pub fn of(noise: &Noise, steps: usize, stddev: f64) -> Result<Arc<dyn Source>> {
    if !(0.0..f64::INFINITY).contains(&stddev) {
        return Err(Error::argument("stddev", "in [0, ∞)", stddev));
    }
    Ok(match noise {
        Noise::Dense(noising) => Arc::new(Dense::new(noising, stddev)?),
        Noise::Structured(structured) => Arc::new(Stamps::new(structured, steps, stddev)?),
        Noise::Implicit { .. } => {
            return Err(Error::Unsupported("an implicit mechanism has no stream of noise yet".into())
                .with(Hint::NotImplicit));
        }
    })
}

/// Refuses a σ with which some number could overflow single precision. `row_sum` bounds Σ_s |W(t, s)| for every step t; that times
/// the largest normal bounds each row of W·Z, and every partial sum on the way to it.
pub fn check_overflow(stddev: f64, row_sum: f64) -> Result<()> {
    let largest = LARGEST * row_sum;
    // A bound that is no number bounds nothing, so it must not pass.
    if stddev * largest <= f64::from(f32::MAX) {
        return Ok(());
    }
    // Down by more than the two digits round up.
    let limit = 0.99 * f64::from(f32::MAX) / largest;
    let allowed = format!("at most {limit:.2e}, so that no number of this noise overflows single precision");
    Err(Error::argument("stddev", allowed, format!("{stddev:e}")))
}

/// The SHA-256 of all that fixes the numbers, beside the key, in hexadecimal.
pub fn id(source: &dyn Source) -> String {
    let mut hash = Sha256::new();
    hash.update(b"antiphon noise rows v1");
    hash.update((source.steps() as u64).to_le_bytes());
    source.describe(&mut hash);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Refuses a range that is empty or longer than memory can be.
pub fn check_columns(columns: &Range<u64>) -> Result<usize> {
    let length = columns.end.checked_sub(columns.start).filter(|length| *length > 0);
    length
        .and_then(|length| usize::try_from(length).ok().filter(|length| *length < usize::MAX / 8))
        .ok_or_else(|| {
            let got = format!("{}..{}", columns.start, columns.end);
            Error::argument("the range of coordinates", "not empty, and to fit memory", got)
        })
}

/// The tiles that a range of columns touches.
pub fn tiles(columns: &Range<u64>) -> Range<u64> {
    columns.start / TILE as u64..columns.end.div_ceil(TILE as u64)
}

/// Tiles that a thread copies at once.
const COPIED: usize = 256;

/// Some rows of some columns.
#[derive(Debug, Default)]
pub struct Block {
    rows: Range<usize>,
    columns: Range<u64>,
    /// Tile by tile, and in each of them row by row.
    numbers: Vec<f32>,
}

impl Block {
    /// Makes other rows and columns, on all threads.
    pub fn make(&mut self, source: &dyn Source, key: &Key, rows: Range<usize>, columns: Range<u64>) {
        self.hold(rows.clone(), columns).for_each(|(first, out)| source.tile(key, rows.clone(), first, out));
    }

    /// Turns to other rows and columns: the place of every tile, with its first column, is to be filled by the caller.
    pub fn hold(
        &mut self,
        rows: Range<usize>,
        columns: Range<u64>,
    ) -> impl IndexedParallelIterator<Item = (u64, &mut [f32])> {
        let tiles = tiles(&columns);
        let height = rows.len() * TILE;
        self.numbers.resize((tiles.end - tiles.start) as usize * height, 0.0);
        (self.rows, self.columns) = (rows, columns);
        let first = move |i: usize| (tiles.start + i as u64) * TILE as u64;
        self.numbers.par_chunks_mut(height).enumerate().map(move |(i, out)| (first(i), out))
    }

    /// Rows and columns whose numbers are known, as [`Block::numbers`] has them.
    pub fn of(rows: Range<usize>, columns: Range<u64>, numbers: Vec<f32>) -> Block {
        Block { rows, columns, numbers }
    }

    /// All of them: tile by tile, and in each of them row by row.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// The rows at hand.
    pub fn rows(&self) -> &Range<usize> {
        &self.rows
    }

    /// One of them, for all columns of the block; a long one on all threads.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        let skip = (self.columns.start % TILE as u64) as usize;
        let height = self.rows.len() * TILE;
        let of_tile = |tile: usize| &self.numbers[tile * height + (row - self.rows.start) * TILE..][..TILE];
        let (head, rest) = out.split_at_mut((TILE - skip).min(out.len()));
        head.copy_from_slice(&of_tile(0)[skip..][..head.len()]);
        let copy = |(part, out): (usize, &mut [f32])| {
            for (i, out) in out.chunks_mut(TILE).enumerate() {
                out.copy_from_slice(&of_tile(1 + part * COPIED + i)[..out.len()]);
            }
        };
        match rest.len() > 2 * COPIED * TILE {
            true => rest.par_chunks_mut(COPIED * TILE).enumerate().for_each(copy),
            false => rest.chunks_mut(COPIED * TILE).enumerate().for_each(copy),
        }
    }
}
