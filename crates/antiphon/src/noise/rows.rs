//! The noise of a mechanism, one row per step: what training adds to the sum of the clipped gradients.
//!
//! | mechanism | how | memory for d coordinates |
//! |---|---|---|
//! | dense | m rows at a time, from rows of Z that are drawn again | m·d, m from a limit |
//! | identity | row by row | d |
//! | tree, online decoder | row by row, from the finished subtrees | (2 log₂ n)·d, and up to 3·d |
//! | comb | row by row, from buffers in double precision and normals that are drawn again | 2·d for each buffer, and up to 3·d |
//! | FFT; tree with optimal decoder | every row depends on all of Z: all are made at the first, and kept in a nameless file | d, and n·d on disk |
//!
//! Whatever the way, key, mechanism, `stddev`, step and coordinate fix every number.

use super::buffers::{self, Numbers, Place};
use super::product;
use super::source::{Block, TILE, check_columns, tiles};
use super::streams::Streams;
use super::{Key, Part, Prepared, Stddev, Table};
use crate::error::{Error, Result};
use crate::mechanism::stream::Access;
use crate::verify::Verified;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// A stream of rows of noise in gradient space: row t of σ·W·Z.
///
/// This is the low end: it knows no schema and guards nothing. [`PrivateRun`](crate::run::PrivateRun) does. To go on after a restart, keep the key,
/// [`Rows::position`] and [`Rows::id`]; where rows are made from what is kept of earlier ones, [`Rows::save`] saves drawing those again.
///
/// ```
/// use antiphon::accounting::NoiseMultiplier;
/// use antiphon::noise::{Cipher, Key, Rows, Stddev};
/// use antiphon::optimize::{Params, optimize};
/// use antiphon::schema::Schema;
/// use antiphon::verify;
/// use antiphon::workload::Workload;
///
/// # fn main() -> antiphon::Result<()> {
/// let schema = Schema::epochs(2, 5)?;
/// let workload = Workload::prefix_sum(schema.steps());
/// let mechanism = optimize(&schema, &workload, &Params::default(), &|_| true)?.mechanism;
/// let mechanism = verify::verify(mechanism)?;
/// let stddev = Stddev::of(&mechanism, NoiseMultiplier::new(0.8)?, 1.0)?; // for a clip norm of one
///
/// let key = Key::from_os(Cipher::fastest())?; // a fresh one for every run
/// let mut rows = Rows::of(&mechanism, &key, stddev, 0..1000, 1 << 20)?;
/// let mut row = vec![0.0; 1000];
/// for _step in 0..schema.steps() {
///     rows.next_into(&mut row)?; // add it to the sum of the clipped gradients of this step
/// }
/// assert_eq!(rows.position(), 10);
///
/// // The key gives every row again.
/// rows.seek(9)?;
/// let mut again = vec![0.0; 1000];
/// rows.next_into(&mut again)?;
/// assert_eq!(again, row);
/// # Ok(())
/// # }
/// ```
///
/// A mechanism that nobody verified has no noise:
///
/// ```compile_fail
/// use antiphon::mechanism::Mechanism;
/// use antiphon::noise::{Key, Rows, Stddev};
///
/// fn noise(mechanism: &Mechanism, key: &Key, stddev: Stddev) -> antiphon::Result<Rows> {
///     Rows::of(mechanism, key, stddev, 0..1000, 1 << 20)
/// }
/// ```
pub struct Rows {
    prepared: Prepared,
    key: Key,
    columns: Range<u64>,
    memory: usize,
    next: usize,
    way: Way,
}

/// How a row is made.
enum Way {
    /// So many together.
    Blocks { block: Block, height: usize },
    /// From what is kept of earlier rows.
    Streams(Streams),
    /// All at once, at the first row that is asked for.
    Spilled(Option<File>),
}

impl Rows {
    /// The stream of a mechanism, for a range of coordinates.
    ///
    /// `memory` is about how many bytes may be used; one row always fits.
    pub fn of(
        mechanism: &Verified,
        key: &Key,
        stddev: Stddev,
        coordinates: Range<u64>,
        memory: usize,
    ) -> Result<Rows> {
        Prepared::of(mechanism, stddev)?.rows(key, coordinates, memory)
    }

    /// The stream of so many steps of noise, of whatever it is.
    #[cfg(test)]
    pub(super) fn new(
        noise: &crate::mechanism::Noise,
        steps: usize,
        key: &Key,
        stddev: f64,
        coordinates: Range<u64>,
        memory: usize,
    ) -> Result<Rows> {
        Prepared::new(noise, steps, stddev)?.rows(key, coordinates, memory)
    }

    pub(super) fn prepared(
        prepared: &Prepared,
        key: &Key,
        coordinates: Range<u64>,
        memory: usize,
    ) -> Result<Rows> {
        check_columns(&coordinates)?;
        let source = prepared.source();
        let way = match source.access() {
            Access::Together => {
                let tiles = tiles(&coordinates);
                let row = (tiles.end - tiles.start) as usize * TILE * size_of::<f32>();
                let height = product::whole_rows(memory / row).clamp(1, source.steps());
                Way::Blocks { block: Block::default(), height }
            }
            Access::Single => Way::Blocks { block: Block::default(), height: 1 },
            Access::Stream(stream) => Way::Streams(Streams::new(coordinates.clone(), stream.kept(), memory)),
            Access::Whole => Way::Spilled(None),
        };
        let (prepared, key) = (prepared.clone(), key.share());
        Ok(Rows { prepared, key, columns: coordinates, memory, next: 0, way })
    }

    /// The number of rows n.
    pub fn steps(&self) -> usize {
        self.prepared.steps()
    }

    /// The length of a row.
    pub fn coordinates(&self) -> usize {
        (self.columns.end - self.columns.start) as usize
    }

    /// Which coordinates these are.
    pub fn range(&self) -> Range<u64> {
        self.columns.clone()
    }

    /// The step that is next.
    pub fn position(&self) -> usize {
        self.next
    }

    /// A hash of all that fixes the numbers beside the key: the coefficients of the mechanism and `stddev`. A position means
    /// nothing for a stream with another.
    pub fn id(&self) -> &str {
        self.prepared.id()
    }

    /// Goes on at a step. At n the stream has ended.
    ///
    /// That costs nothing by itself, and nothing more for the next row where each is made alone or in blocks (identity, dense). Where rows
    /// are made from what is kept of those before (tree with online decoder, combs), the rows between here and there have to be made first,
    /// and all rows from the beginning of the stamp where the step lies behind: [`Rows::seek_cost`] says how many. [`Rows::save`] keeps
    /// what a new process needs to go on without them.
    pub fn seek(&mut self, step: usize) -> Result<()> {
        if step > self.steps() {
            return Err(Error::argument("step", format!("in 0..={}", self.steps()), step));
        }
        self.next = step;
        Ok(())
    }

    /// How many rows the next call of [`Rows::next_into`] after a seek to this step has to make before the one that it gives out.
    ///
    /// A row of a comb takes as many normals for each number as epochs have begun.
    pub fn seek_cost(&self, step: usize) -> usize {
        match &self.way {
            Way::Blocks { .. } | Way::Spilled(Some(_)) => 0,
            Way::Spilled(None) => self.steps(), // all are made at once
            Way::Streams(_) if step >= self.steps() => 0,
            Way::Streams(streams) => streams.again(self.prepared.source(), step),
        }
    }

    /// Writes to a file what is kept of earlier rows, and the position. A new process goes on from it with the same bits, and draws none of
    /// the rows before again. The file is replaced as a whole, and only its owner may read it.
    ///
    /// It is as secret as the key: it tells about noise of later steps. It is sealed, so that whoever does not have the key cannot change it.
    pub fn save(&self, path: &Path) -> Result<()> {
        buffers::write(path, std::slice::from_ref(self))
    }

    /// Goes on from such a file of a stream of the same noise, key and coordinates. Any other file is refused, and nothing has happened then.
    pub fn restore(&mut self, path: &Path) -> Result<()> {
        buffers::read(path, std::slice::from_mut(self))
    }

    /// Whether something is kept of earlier rows, so that [`Rows::save`] saves work.
    pub fn keeps_buffers(&self) -> bool {
        matches!(self.way, Way::Streams(_))
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn place(&self) -> Place {
        let (step, ready) = match &self.way {
            Way::Streams(streams) => (streams.kept().0, streams.kept().2.rows().clone()),
            _ => (0, 0..0),
        };
        Place { coordinates: self.columns.clone(), position: self.next, step, ready }
    }

    /// The numbers that belong to the place.
    pub(super) fn kept(&self) -> (&[f64], &[f32]) {
        match &self.way {
            Way::Streams(streams) => {
                let (_, memory, ready) = streams.kept();
                (memory, ready.numbers())
            }
            _ => (&[], &[]),
        }
    }

    /// How many there are for some place. `None` where this stream cannot stand.
    pub(super) fn lengths(&self, place: &Place) -> Option<[usize; 2]> {
        match &self.way {
            _ if place.position > self.steps() => None,
            Way::Streams(streams) => streams.lengths(self.prepared.source(), place.step, &place.ready),
            _ => Some([0, 0]),
        }
    }

    pub(super) fn go_on(&mut self, place: &Place, numbers: Numbers) {
        self.next = place.position;
        if let Way::Streams(streams) = &mut self.way {
            streams.go_on(place.step, numbers.memory, place.ready.clone(), numbers.ready);
        }
    }

    /// Writes the noise of the next step, for all coordinates of the range.
    pub fn next_into(&mut self, out: &mut [f32]) -> Result<()> {
        if out.len() != self.coordinates() {
            let allowed = format!("{} numbers long", self.coordinates());
            return Err(Error::argument("the row of noise", allowed, out.len()));
        }
        let (step, steps) = (self.next, self.steps());
        if step >= steps {
            return Err(Error::Unsupported(format!("the noise has ended: the mechanism has {steps} steps")));
        }
        match &mut self.way {
            Way::Blocks { block, height } => {
                if !block.rows().contains(&step) {
                    let rows = step..(step + *height).min(steps);
                    block.make(self.prepared.source(), &self.key, rows, self.columns.clone());
                }
                block.copy_row(step, out);
            }
            Way::Streams(streams) => streams.row(self.prepared.source(), &self.key, step, out),
            Way::Spilled(file) => {
                // The folder is all that a message can name: the file has no name.
                let io = |source| Error::Io { path: std::env::temp_dir(), source };
                let file = match file {
                    Some(file) => file,
                    None => {
                        let part = Part { rows: 0..steps, coordinates: self.columns.clone() };
                        let table = self.prepared.table(&self.key, part)?;
                        file.insert(spill(&table, self.columns.start, self.memory).map_err(io)?)
                    }
                };
                read_row(file, step, out).map_err(io)?;
            }
        }
        self.next += 1;
        Ok(())
    }
}

/// Writes a whole table to a file that disappears with the process, however that ends.
fn spill(table: &Table, first: u64, memory: usize) -> io::Result<File> {
    let file = tempfile::tempfile()?;
    table.pieces(first, memory).try_for_each(|piece| table.write(piece, &file, 0))?;
    Ok(file)
}

fn read_row(mut file: &File, row: usize, out: &mut [f32]) -> io::Result<()> {
    let mut bytes = vec![0; 4 * out.len()];
    file.seek(SeekFrom::Start((row * bytes.len()) as u64))?;
    file.read_exact(&mut bytes)?;
    out.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
    Ok(())
}
