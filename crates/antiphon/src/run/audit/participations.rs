//! A log in memory: one pair of unit and step per participation, sorted, so that the steps of a unit are a slice.

use crate::error::{Error, Result};
use crate::run::log::Line;
use crate::schema::MAX_STEPS;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// Unit and step. Sixteen bytes; a schema has fewer than 2³² steps.
type Pair = (u64, u32);

/// What a log contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Steps that have a line.
    pub steps: usize,
    /// Steps before the last line that have none: as far as the log says, nobody took part in them.
    pub missing_steps: usize,
    /// The step of the last line.
    pub last_step: usize,
    /// Distinct units.
    pub units: usize,
    /// Participations of all units.
    pub participations: usize,
    /// The largest number of participations of one unit.
    pub max_participations: usize,
}

/// All participations of a log.
pub(super) struct Participations {
    pairs: Vec<Pair>,
    steps: usize,
    last_step: usize,
}

impl Participations {
    /// Reads a log to its end. One without lines is refused: it says nothing about a run.
    pub fn collect(lines: impl Iterator<Item = Result<Line>>, planned: usize) -> Result<Self> {
        let (mut pairs, mut steps, mut last_step) = (Vec::new(), 0, None);
        for line in lines {
            let Line { step, units } = line?;
            let first = last_step.map_or(0, |last: usize| last + 1);
            if !(first..planned.min(MAX_STEPS)).contains(&step) {
                let allowed = format!("in {first}..{planned}: steps are strictly increasing");
                return Err(Error::argument("a step of the log", allowed, step));
            }
            let short = step as u32;
            pairs.extend(units.iter().map(|unit| (*unit, short)));
            steps += 1;
            last_step = Some(step);
        }
        let Some(last_step) = last_step else {
            let reason = "the log has no lines: there is nothing to audit. A step in which nobody took part has a line \
                          with no units";
            return Err(Error::Unsupported(reason.into()));
        };
        pairs.par_sort_unstable();
        Ok(Participations { pairs, steps, last_step })
    }

    /// The participations of one unit after another.
    pub fn units(&self) -> impl Iterator<Item = &[Pair]> {
        self.pairs.chunk_by(|a, b| a.0 == b.0)
    }

    /// The steps of one unit, in order; none where it did not take part.
    pub fn steps_of(&self, unit: u64) -> Vec<usize> {
        let start = self.pairs.partition_point(|pair| pair.0 < unit);
        let of_unit = self.pairs[start..].iter().take_while(|pair| pair.0 == unit);
        of_unit.map(|pair| pair.1 as usize).collect()
    }

    /// What there is.
    pub fn counts(&self) -> Counts {
        Counts {
            steps: self.steps,
            missing_steps: self.last_step + 1 - self.steps,
            last_step: self.last_step,
            units: self.units().count(),
            participations: self.pairs.len(),
            max_participations: self.units().map(<[Pair]>::len).max().unwrap_or(0),
        }
    }

    /// The number of units in each step up to the last, each unit once.
    pub fn batch_sizes(&self) -> Vec<u64> {
        let mut sizes = vec![0; self.last_step + 1];
        for unit in self.units() {
            unit.chunk_by(|a, b| a == b).for_each(|same| sizes[same[0].1 as usize] += 1);
        }
        sizes
    }

    /// Units with the same steps together.
    pub fn grouped(&self) -> Grouped<'_> {
        let mut numbers: HashMap<Steps<'_>, u32> = HashMap::new();
        let (mut patterns, mut units) = (Vec::new(), Vec::new());
        for unit in self.units() {
            let number = *numbers.entry(Steps(unit)).or_insert_with(|| {
                patterns.push(unit);
                patterns.len() as u32 - 1
            });
            units.push((unit[0].0, number));
        }
        Grouped { patterns, units }
    }
}

/// The steps of a unit, whoever it is.
#[derive(Clone, Copy)]
struct Steps<'a>(&'a [Pair]);

impl PartialEq for Steps<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(|pair| pair.1).eq(other.0.iter().map(|pair| pair.1))
    }
}

impl Eq for Steps<'_> {}

impl Hash for Steps<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|pair| state.write_u32(pair.1));
    }
}

/// The distinct patterns of a log, and who has which.
pub(super) struct Grouped<'a> {
    /// As the first unit has them.
    patterns: Vec<&'a [Pair]>,
    /// Every unit, with the number of its pattern.
    units: Vec<(u64, u32)>,
}

impl Grouped<'_> {
    /// How many patterns there are.
    pub fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// The steps of a pattern, in order; a step is repeated where the unit was listed repeatedly.
    pub fn steps(&self, pattern: usize) -> Vec<usize> {
        self.patterns[pattern].iter().map(|pair| pair.1 as usize).collect()
    }

    /// The first unit that has a pattern.
    pub fn first_unit(&self, pattern: usize) -> u64 {
        self.patterns[pattern][0].0
    }

    /// The lengths of all patterns.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.patterns.iter().map(|pattern| pattern.len())
    }

    /// Every unit, with the number of its pattern.
    pub fn units(&self) -> &[(u64, u32)] {
        &self.units
    }
}
