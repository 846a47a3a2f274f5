//! Noise of many steps at once, written to a file: rows of `f32`, little-endian, one after another, nothing else.
//! (A header may come before them.)
//!
//! A table is made in pieces: some columns, all rows. That way every row of Z is drawn only once, or as often as a stream draws it. Where
//! rows are made one after another, the rows of a piece are written as they come, so a long table needs no more memory than a short one.

use super::source::{Block, Source, TILE, check_columns, tiles};
use super::streams::Streams;
use super::{Key, Prepared};
use crate::error::{Error, Result};
use crate::mechanism::stream::Access;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

/// Writes the row of a step.
type RowMaker<'a> = dyn FnMut(usize, &mut [f32]) + 'a;

/// Tiles of a piece whose rows are written as they come, at least: enough for many threads, and for writes that are not too short.
const STREAMED: usize = 64;

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

    /// The columns from `first` on, in pieces for which so many bytes of memory suffice (or the smallest one does).
    pub fn pieces(&self, first: u64, memory: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let (rows, least) = match self.prepared.source().access() {
            // Fewer rows than a stream holds take as much memory as the stream.
            Access::Stream(stream) => (self.part.rows.len().max(2 * stream.kept() + 5), STREAMED),
            _ => (self.part.rows.len(), 1),
        };
        let together = (memory / (size_of::<f32>() * rows * TILE)).max(least);
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
        let source = self.prepared.source();
        let mut row = vec![0.0f32; (piece.end - piece.start) as usize];
        let mut make = self.rows_of(source, piece.clone());
        let mut bytes = vec![0; 4 * row.len()];
        for (i, step) in rows.clone().enumerate() {
            make(step, &mut row);
            bytes.as_chunks_mut().0.iter_mut().zip(&row).for_each(|(bytes, x)| *bytes = x.to_le_bytes());
            let place = i as u64 * self.part.width() + piece.start - coordinates.start;
            file.seek(SeekFrom::Start(start + 4 * place))?;
            file.write_all(&bytes)?;
        }
        Ok(())
    }

    /// What makes the rows of some columns, from the first row of the table on.
    fn rows_of<'a>(&'a self, source: &'a dyn Source, piece: Range<u64>) -> Box<RowMaker<'a>> {
        match source.access() {
            Access::Stream(stream) => {
                let mut streams = Streams::new(piece, stream.kept(), usize::MAX);
                Box::new(move |step, row| streams.row(source, &self.key, step, row))
            }
            _ => {
                let mut block = Block::default();
                block.make(source, &self.key, self.part.rows.clone(), piece);
                Box::new(move |step, row| block.copy_row(step, row))
            }
        }
    }
}
