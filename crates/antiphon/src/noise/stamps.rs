//! Noise of the mechanisms that a name describes, stamp by stamp.
//!
//! A stamp with n steps has its own rows of Z: as many as its encoder has rows, after those of the stamps before it. What is
//! drawn is single precision, sums are in double precision but for those of stored matrices, and each number is rounded once, at the end.

use super::Key;
use super::source::{Source, TILE, check_overflow};
use super::transform::{Bytes, GROUP};
use crate::error::{Error, Result};
use crate::mechanism::Structured;
use crate::mechanism::stream::{Access, Kernel, Recurrence};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Stamps one after another.
pub struct Stamps {
    name: String,
    stddev: f64,
    stamps: Vec<Stamp>,
}

/// One of them.
pub struct Stamp {
    steps: Range<usize>,
    /// The first row of Z.
    input: u64,
    kernel: Arc<dyn Kernel>,
}

impl Stamps {
    /// The stamps of a mechanism over so many steps.
    pub fn new(structured: &Structured, steps: usize, stddev: f64) -> Result<Stamps> {
        // With room for the smallest rows in single precision: zeros are no noise.
        if stddev != 0.0 && stddev < 1e-35 {
            let allowed = "0, or at least 1e-35 for single precision";
            return Err(Error::argument("stddev", allowed, format!("{stddev:e}")));
        }
        let kernels = structured.for_each(steps, |stamp| {
            let kernel = structured.family.kernel(stamp, stddev)?;
            check_overflow(stddev, kernel.row_sum())?;
            Ok(kernel)
        })?;
        let (mut step, mut input) = (0, 0);
        let place = |(length, kernel): (usize, Arc<dyn Kernel>)| {
            let stamp = Stamp { steps: step..step + length, input, kernel };
            (step, input) = (step + length, input + stamp.kernel.inputs() as u64);
            stamp
        };
        let stamps = kernels.into_iter().map(place).collect();
        Ok(Stamps { name: structured.describe(), stddev, stamps })
    }
}

impl Stamp {
    /// What makes its rows.
    pub fn kernel(&self) -> &dyn Kernel {
        self.kernel.as_ref()
    }

    /// Its steps.
    pub fn steps(&self) -> &Range<usize> {
        &self.steps
    }

    /// Draws the rows of Z that belong to it, for a tile of columns.
    pub fn draw(&self, key: &Key, first: u64) -> impl Fn(usize, &mut [f32]) {
        let bytes = RefCell::new([[0; size_of::<Bytes>()]; TILE / GROUP]);
        move |input, row| key.fill_by(&mut *bytes.borrow_mut(), self.input + input as u64, first, row)
    }
}

impl Source for Stamps {
    fn steps(&self) -> usize {
        self.stamps.last().map_or(0, |last| last.steps.end)
    }

    fn tile(&self, key: &Key, rows: Range<usize>, first: u64, out: &mut [f32]) {
        for stamp in &self.stamps {
            let (start, end) = (stamp.steps.start.max(rows.start), stamp.steps.end.min(rows.end));
            if start >= end {
                continue;
            }
            let out = &mut out[(start - rows.start) * TILE..(end - rows.start) * TILE];
            let wanted = start - stamp.steps.start..end - stamp.steps.start;
            stamp.kernel.rows(wanted, &stamp.draw(key, first), out);
        }
    }

    fn access(&self) -> Access<'_> {
        self.stamps[0].kernel.access()
    }

    fn stamp_of(&self, step: usize) -> Option<&Stamp> {
        self.stamps.get(self.stamps.partition_point(|stamp| stamp.steps.end <= step))
    }

    fn recurrence(&self, step: usize) -> Option<Recurrence> {
        let stamp = self.stamp_of(step)?;
        let mut found = stamp.kernel.recurrence(step - stamp.steps.start)?;
        found.inputs.iter_mut().for_each(|(input, _)| *input += stamp.input);
        Some(found)
    }

    fn describe(&self, hash: &mut Sha256) {
        hash.update(self.name.as_bytes());
        hash.update(self.stddev.to_le_bytes());
        self.stamps.iter().for_each(|stamp| stamp.kernel.describe(hash));
    }
}
