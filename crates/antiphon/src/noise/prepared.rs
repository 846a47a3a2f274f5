//! Noise that is ready to be drawn: all of it but the key.
//!
//! Preparing a long mechanism takes a while (the margin for rounded weights, the coefficients of transforms), and it may fail. No key
//! is needed for it, so none is made or touched before it has succeeded.

use super::source::{self, Source, TILE};
use super::{Key, Part, Rows, Stddev, Table};
use crate::error::{Error, Result};
use crate::mechanism::Noise;
use crate::mechanism::stream::Recurrence;
use crate::verify::Verified;
use std::ops::Range;
use std::sync::Arc;

/// The rows of σ·W·Z, but for the key that fixes Z.
#[derive(Clone)]
pub struct Prepared {
    source: Arc<dyn Source>,
    id: String,
}

impl Prepared {
    /// The noise of a mechanism.
    pub fn of(mechanism: &Verified, stddev: Stddev) -> Result<Prepared> {
        Prepared::new(&mechanism.mechanism().noise, mechanism.steps(), stddev.value())
    }

    /// So many steps of noise, of whatever it is.
    pub(crate) fn new(noise: &Noise, steps: usize, stddev: f64) -> Result<Prepared> {
        let source = source::of(noise, steps, stddev)?;
        Ok(Prepared { id: source::id(source.as_ref()), source })
    }

    /// The number of steps n.
    pub fn steps(&self) -> usize {
        self.source.steps()
    }

    /// What fixes the numbers beside the key: a hash of the mechanism's coefficients and of `stddev`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A stream of rows, as [`Rows::of`] has it.
    pub fn rows(&self, key: &Key, coordinates: Range<u64>, memory: usize) -> Result<Rows> {
        Rows::prepared(self, key, coordinates, memory)
    }

    /// A table of some steps and coordinates.
    pub fn table(&self, key: &Key, part: Part) -> Result<Table> {
        Table::new(self, key, part)
    }

    /// One number of the noise by itself: the one that streams and tables have at this step and coordinate.
    pub fn number(&self, key: &Key, step: usize, coordinate: u64) -> Result<f32> {
        if step >= self.steps() {
            return Err(Error::argument("step", format!("in 0..{}", self.steps()), step));
        }
        let mut row = [0.0; TILE];
        let within = coordinate % TILE as u64;
        self.source.tile(key, step..step + 1, coordinate - within, &mut row);
        Ok(row[within as usize])
    }

    /// How the row of a step is made, where a device can make it from rows of Z and a few buffers: identity, blt, comb-blt.
    pub fn recurrence(&self, step: usize) -> Option<Recurrence> {
        self.source.recurrence(step)
    }

    pub(super) fn source(&self) -> &dyn Source {
        self.source.as_ref()
    }
}
