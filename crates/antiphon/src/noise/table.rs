//! Noise of many steps at once, written to a file: rows of `f32`, little-endian, one after another, nothing else.
//! (A header may come before them.)
//!
//! A table is made in pieces: some columns, all rows. That way every row of Z is drawn only once, whatever the mechanism.

use super::source::{Block, TILE, check_columns, tiles};
use super::{Key, Prepared};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

/// Some steps and some coordinates of the noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The steps.
    pub rows: Range<usize>,
    /// The coordinates.
    pub coordinates: Range<u64>,
}

impl Part {
    /// The length of a row.
    pub fn width(&self) -> u64 {
        self.coordinates.end - self.coordinates.start
    }

    /// Bytes of its numbers, if they can be counted.
    pub fn bytes(&self) -> Option<u64> {
        self.width().checked_mul(4 * self.rows.len() as u64)
    }
}

/// A part of the noise under a key. [`Prepared::table`] makes one.
pub struct Table {
    prepared: Prepared,
    key: Key,
    part: Part,
}

impl Table {
    pub(super) fn new(prepared: &Prepared, key: &Key, part: Part) -> Result<Table> {
        check_columns(&part.coordinates)?;
        let (rows, steps) = (&part.rows, prepared.steps());
        if rows.is_empty() || rows.end > steps {
            let allowed = format!("not empty, and within 0..{steps}");
            return Err(Error::argument(
                "the range of rows",
                allowed,
                format!("{}..{}", rows.start, rows.end),
            ));
        }
        Ok(Table { prepared: prepared.clone(), key: key.share(), part })
    }

    /// The columns from `first` on, in pieces for which so many bytes of memory suffice (or one tile does).
    pub fn pieces(&self, first: u64, memory: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let together = (memory / (size_of::<f32>() * self.part.rows.len() * TILE)).max(1);
        let columns = self.part.coordinates.clone();
        let starts = tiles(&(first..columns.end)).step_by(together);
        starts.map(move |tile| {
            let start = (tile * TILE as u64).max(first);
            start..((tile + together as u64).saturating_mul(TILE as u64)).min(columns.end)
        })
    }

    /// Makes some columns on all threads and writes them where they belong in a file whose numbers begin at byte `start`.
    pub fn write(&self, piece: Range<u64>, mut file: &File, start: u64) -> io::Result<()> {
        let Part { rows, coordinates } = &self.part;
        let mut block = Block::default();
        block.make(self.prepared.source(), &self.key, rows.clone(), piece.clone());
        let mut row = vec![0.0f32; (piece.end - piece.start) as usize];
        let mut bytes = Vec::with_capacity(4 * row.len());
        for (i, step) in rows.clone().enumerate() {
            block.copy_row(step, &mut row);
            bytes.clear();
            bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
            let place = i as u64 * self.part.width() + piece.start - coordinates.start;
            file.seek(SeekFrom::Start(start + 4 * place))?;
            file.write_all(&bytes)?;
        }
        Ok(())
    }
}
