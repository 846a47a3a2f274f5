//! Rows that are made one after another, for all tiles of a range of columns: what is kept between rows, and a few rows that are ready.
//!
//! What a stream keeps is read from memory and written back once for a few rows, not for every row: with a million columns that takes
//! longer than the arithmetic.

use super::Key;
use super::source::{Block, Source, TILE, tiles};
use super::stamps::Stamp;
use crate::mechanism::stream::{Access, Stream};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are made together: so many, or as many as fit in so many bytes.
const TOGETHER: usize = 3;
const SMALL: usize = 1 << 20;
/// Rows that are passed over together: none of them is kept, so it costs nothing to pass over many.
const PASSED: usize = 64;

/// The streams of all tiles, at the same step.
pub struct Streams {
    columns: Range<u64>,
    /// The step that the streams make next, after those that are ready.
    step: usize,
    /// What they keep of the stamp of the row before that step, tile by tile.
    memory: Vec<f64>,
    ready: Block,
    together: usize,
    /// Of the rows that are being made.
    coefficients: Vec<Vec<f64>>,
}

impl Streams {
    /// Of streams that keep so many rows of numbers, in about so many bytes: for the row that is given out there is always room.
    pub fn new(columns: Range<u64>, kept: usize, memory: usize) -> Streams {
        let tiles = tiles(&columns);
        let row = (tiles.end - tiles.start) as usize * TILE * size_of::<f32>();
        let wanted = (SMALL / row).clamp(TOGETHER, PASSED);
        let together = wanted.min((memory / row).saturating_sub(2 * kept)).max(1);
        let (memory, coefficients) = (Vec::new(), Vec::new());
        Streams { columns, step: 0, memory, ready: Block::default(), together, coefficients }
    }

    /// Writes one row.
    pub fn row(&mut self, source: &dyn Source, key: &Key, step: usize, out: &mut [f32]) {
        if !self.ready.rows().contains(&step) {
            let (stamp, stream) = stream_of(source, step);
            self.step = self.start(stamp.steps(), step);
            if self.step == stamp.steps().start {
                self.begin(stream);
            }
            while self.step < step {
                self.make(stamp, stream, key, self.step..step.min(self.step + PASSED), false);
            }
            self.make(stamp, stream, key, step..stamp.steps().end.min(step + self.together), true);
        }
        self.ready.copy_row(step, out);
    }

    /// What [`Streams::go_on`] needs: the step that is made next and the rows that are ready, and the numbers of both.
    pub fn kept(&self) -> (usize, &[f64], &Block) {
        (self.step, &self.memory, &self.ready)
    }

    /// How many numbers that are, for streams at this step with so many rows ready. `None` where no streams can stand there.
    pub fn lengths(&self, source: &dyn Source, step: usize, ready: &Range<usize>) -> Option<[usize; 2]> {
        let tiles = tiles(&self.columns);
        let tiles = (tiles.end - tiles.start) as usize;
        let Some(last) = step.checked_sub(1) else {
            return ready.is_empty().then_some([0, 0]); // no row was made
        };
        let fits = step <= source.steps() && ready.start <= ready.end && ready.end <= step;
        let kept = fits.then(|| kept(stream_of(source, last).1))?;
        Some([tiles * kept, tiles.checked_mul(ready.len().checked_mul(TILE)?)?])
    }

    /// Goes on from what was kept of streams like these.
    pub fn go_on(&mut self, step: usize, memory: Vec<f64>, ready: Range<usize>, numbers: Vec<f32>) {
        (self.step, self.memory) = (step, memory);
        self.ready = Block::of(ready, self.columns.clone(), numbers);
    }

    /// The rows that have to be made, and are not given out, before the row of a step is.
    pub fn again(&self, source: &dyn Source, step: usize) -> usize {
        match self.ready.rows().contains(&step) {
            true => 0,
            false => step - self.start(stream_of(source, step).0.steps(), step),
        }
    }

    /// Where the streams have to go on to come to a step of a stamp: where they are, or at its beginning.
    fn start(&self, stamp: &Range<usize>, step: usize) -> usize {
        if (stamp.start + 1..=step).contains(&self.step) { self.step } else { stamp.start }
    }

    fn begin(&mut self, stream: &dyn Stream) {
        let tiles = tiles(&self.columns);
        self.memory.clear();
        self.memory.resize((tiles.end - tiles.start) as usize * kept(stream), 0.0);
        self.memory.par_chunks_mut(kept(stream)).for_each(|memory| stream.start(memory));
    }

    /// Makes the next rows, on all threads, to give them out or only to pass over them.
    fn make(&mut self, stamp: &Stamp, stream: &dyn Stream, key: &Key, rows: Range<usize>, given_out: bool) {
        let start = stamp.steps().start;
        let local = rows.start - start..rows.end - start;
        self.coefficients.resize_with(rows.len(), Vec::new);
        local.clone().zip(&mut self.coefficients).for_each(|(step, out)| stream.coefficients(step, out));
        let coefficients = &self.coefficients;
        // Where there is room for one row only, each is replaced by the next.
        let tile = |first: u64, memory: &mut [f64], out: &mut [f32]| {
            let draw = stamp.draw(key, first);
            for (i, (step, coefficients)) in local.clone().zip(coefficients).enumerate() {
                let place = i * TILE % out.len();
                let out = &mut out[place..][..TILE];
                stream.next_row(step, coefficients, memory, &draw, out);
            }
        };
        let memory = self.memory.par_chunks_mut(kept(stream));
        self.step = rows.end;
        match given_out {
            true => {
                let places = self.ready.hold(rows, self.columns.clone());
                places.zip(memory).for_each(|((first, out), memory)| tile(first, memory, out));
            }
            false => {
                let first = tiles(&self.columns).start;
                memory.enumerate().for_each(|(i, memory)| {
                    tile((first + i as u64) * TILE as u64, memory, &mut [0.0; TILE]);
                });
            }
        }
    }
}

/// Numbers that the stream of a tile keeps; one row at least, so that every tile has memory.
fn kept(stream: &dyn Stream) -> usize {
    stream.kept().max(1) * TILE
}

fn stream_of(source: &dyn Source, step: usize) -> (&Stamp, &dyn Stream) {
    let stamp = source.stamp_of(step).expect("a source with streams has stamps");
    match stamp.kernel().access() {
        Access::Stream(stream) => (stamp, stream),
        _ => unreachable!("all stamps of a source are made in the same way"),
    }
}
