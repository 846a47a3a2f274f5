//! Noise of many steps at once, written to a file: rows of `f32`, little-endian, one after another, nothing else.
//!
//! A table is made in pieces: some columns, all rows. That way every row of Z is drawn only once, whatever the mechanism.

use super::Key;
use super::source::{self, Block, Source, TILE, check_columns, tiles};
use crate::error::{Error, Result};
use crate::mechanism::Mechanism;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

/// Rows and columns of noise that belong together.
pub struct Table {
    source: Arc<dyn Source>,
    key: Key,
    rows: Range<usize>,
    columns: Range<u64>,
}

impl Table {
    /// The rows of some steps, for some coordinates. `stddev` as in [`Rows::new`](super::Rows::new).
    pub fn new(
        mechanism: &Mechanism,
        key: &Key,
        stddev: f64,
        rows: Range<usize>,
        columns: Range<u64>,
    ) -> Result<Table> {
        let steps = mechanism.schema.steps();
        Table::of(source::of(&mechanism.noise, steps, stddev)?, key, rows, columns)
    }

    pub(super) fn of(
        source: Arc<dyn Source>,
        key: &Key,
        rows: Range<usize>,
        columns: Range<u64>,
    ) -> Result<Table> {
        check_columns(&columns)?;
        if rows.is_empty() || rows.end > source.steps() {
            let allowed = format!("not empty, and within 0..{}", source.steps());
            return Err(Error::argument(
                "the range of rows",
                allowed,
                format!("{}..{}", rows.start, rows.end),
            ));
        }
        Ok(Table { source, key: key.clone(), rows, columns })
    }

    /// The same table under another key. Preparing a long mechanism takes a while; keys need not wait on disk for that.
    pub fn with_key(self, key: &Key) -> Table {
        Table { key: key.clone(), ..self }
    }

    /// What fixes the numbers beside the key: a hash of the mechanism's coefficients and of `stddev`.
    pub fn id(&self) -> String {
        source::id(self.source.as_ref())
    }

    /// Bytes of the finished table, if they can be counted.
    pub fn bytes(&self) -> Option<u64> {
        (self.columns.end - self.columns.start).checked_mul(4 * self.rows.len() as u64)
    }

    /// The columns from `first` on, in pieces for which so many bytes of memory suffice (or one tile does).
    pub fn pieces(&self, first: u64, memory: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let together = (memory / (size_of::<f32>() * self.rows.len() * TILE)).max(1);
        let columns = self.columns.clone();
        let starts = tiles(&(first..columns.end)).step_by(together);
        starts.map(move |tile| {
            let start = (tile * TILE as u64).max(first);
            start..((tile + together as u64).saturating_mul(TILE as u64)).min(columns.end)
        })
    }

    /// Makes some columns on all threads and writes them where they belong.
    pub fn write(&self, piece: Range<u64>, mut file: &File) -> io::Result<()> {
        let mut block = Block::default();
        block.make(self.source.as_ref(), &self.key, self.rows.clone(), piece.clone());
        let width = self.columns.end - self.columns.start;
        let mut row = vec![0.0f32; (piece.end - piece.start) as usize];
        let mut bytes = Vec::with_capacity(4 * row.len());
        for (i, step) in self.rows.clone().enumerate() {
            block.copy_row(step, &mut row);
            bytes.clear();
            bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
            file.seek(SeekFrom::Start(4 * (i as u64 * width + piece.start - self.columns.start)))?;
            file.write_all(&bytes)?;
        }
        Ok(())
    }
}
