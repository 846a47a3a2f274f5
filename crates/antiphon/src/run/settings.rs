//! What a run is, beside its mechanism and its key.

use super::{Budget, Privacy, Unit};
use crate::accounting::Adjacency;
use crate::accounting::calibrate::Run;
use crate::error::{Error, Result};
use crate::noise::stddev::check_clip_norm;
use std::ops::Range;

/// What a run is, beside its mechanism and its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How much privacy, or how much noise.
    pub budget: Budget,
    /// Which data sets are neighbours.
    pub adjacency: Adjacency,
    /// What is protected as a whole.
    pub unit: Unit,
    /// ζ, to which the contribution of every unit to a step is clipped.
    pub clip_norm: f64,
    /// How many units there are: they are numbered from 0. Where nobody knows, they are counted as they come; DP-SGD needs to know.
    pub units: Option<usize>,
    /// Coordinates of the whole model.
    pub params: u64,
    /// The coordinates that this process adds noise to, in the order in which they are in its sums; all of them where nothing is said.
    /// Any process with the same key gets the same noise for the same coordinate.
    pub ranges: Option<Vec<Range<u64>>>,
    /// A name for how the model's parameters are numbered, such as a hash of names and shapes. A state with another is not restored.
    pub layout: String,
    /// About how many bytes may be used for noise; one row always fits.
    pub memory: usize,
}

impl Settings {
    /// The usual ones: examples, zero-out, all coordinates.
    pub fn new(budget: Budget, clip_norm: f64, units: usize, params: u64) -> Settings {
        Settings {
            budget,
            adjacency: Adjacency::ZeroOut,
            unit: Unit::Example,
            clip_norm,
            units: Some(units),
            params,
            ranges: None,
            layout: String::new(),
            memory: 256 << 20,
        }
    }

    /// Refuses what no run can have: a run does that too, but takes its key first.
    pub fn validate(&self) -> Result<()> {
        check_clip_norm(self.clip_norm)?;
        if self.units == Some(0) {
            return Err(Error::argument("units", "at least 1", 0));
        }
        self.coordinates().map(|_| ())
    }

    /// Refuses a privacy that was accounted for another event or another relation.
    pub(super) fn check(&self, privacy: &Privacy, run: Run) -> Result<()> {
        if (privacy.run(), privacy.adjacency()) == (run, self.adjacency) {
            return Ok(());
        }
        let allowed = format!("accounted for {run:?} under {:?}, as this run needs it", self.adjacency);
        Err(Error::argument(
            "privacy",
            allowed,
            format!("{:?} under {:?}", privacy.run(), privacy.adjacency()),
        ))
    }

    /// The ranges of coordinates, those that touch made one. No coordinate may be there twice: its noise would cancel in the difference.
    pub(super) fn coordinates(&self) -> Result<Vec<Range<u64>>> {
        if self.params == 0 {
            return Err(Error::argument("params", "at least 1", 0));
        }
        let mut sorted = self.ranges.clone().unwrap_or_default();
        sorted.retain(|range| range.start < range.end);
        sorted.sort_unstable_by_key(|range| range.start);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[1].start < pair[0].end) {
            let value = format!("{:?} and {:?}", pair[0], pair[1]);
            return Err(Error::argument("ranges of coordinates", "without overlap", value));
        }
        let whole = 0..self.params;
        let given = self.ranges.as_deref().unwrap_or(std::slice::from_ref(&whole));
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in given.iter().filter(|range| range.start != range.end) {
            if range.start > range.end || range.end > self.params {
                let allowed = format!("within 0..{}", self.params);
                return Err(Error::argument("a range of coordinates", allowed, format!("{range:?}")));
            }
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range.clone()),
            }
        }
        Ok(joined)
    }
}
