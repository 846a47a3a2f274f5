//! Privacy loss distributions: ε and δ of many steps, as a bracket.
//!
//! | file | room |
//! |---|---|
//! | `step` | the loss of one step on a grid, by connecting the dots |
//! | `aim` | where the answer will be |
//! | `compose` | the sum of many losses, near the ε or δ that is asked for |
//! | `ends` | the two ends of the bracket, from that sum |

mod aim;
mod compose;
mod ends;
mod step;

use super::Bracket;
use super::event::Flat;
use crate::error::{Error, Result};
use aim::{Aim, Moments};
use compose::Sum;
use ends::Ends;
use step::{Parts, Side, Step};

/// How fine to be.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// The bracket of ε is to be at most this wide, relative to ε or absolutely, whichever is more.
    pub width: f64,
    /// The interval of the grid; chosen to reach the width where none is given.
    pub interval: Option<f64>,
}

impl Default for Params {
    fn default() -> Self {
        Params { width: 1e-3, interval: None }
    }
}

impl Params {
    /// Whether both are in range.
    pub fn check(&self) -> Result<()> {
        if !(1e-6..=1.0).contains(&self.width) {
            return Err(Error::argument("width", "in [1e-6, 1]", self.width));
        }
        match self.interval {
            Some(h) if !(1e-8..=10.0).contains(&h) => Err(Error::argument("interval", "in [1e-8, 10]", h)),
            _ => Ok(()),
        }
    }
}

/// Most rounds of a search.
const ROUNDS: usize = 6;

/// The smallest δ for which sampled events are accounted for.
pub const MIN_DELTA: f64 = 1e-250;

/// ε at δ, for events with sampling among them. `most` is known to be enough.
pub(super) fn epsilon(flat: &Flat, delta: f64, most: f64, params: &Params) -> Result<Bracket> {
    if !(MIN_DELTA..1.0).contains(&delta) {
        return Err(Error::argument("delta", format!("in [{MIN_DELTA:e}, 1) with sampling"), delta));
    }
    let [mut removing, mut adding] = sides(flat).map(|parts| Search::new(parts, delta, most, params));
    // Adding is hardly ever the worse one: a coarse grid says so.
    adding.h *= 4.0;
    loop {
        let (one, other) = rayon::join(|| removing.improve(), || adding.improve());
        one?;
        other?;
        let found = removing.found.worse(adding.found);
        let wanted = params.width * found.lower.max(1.0);
        // A side that is not the worse one needs no improvement.
        let again = |search: &mut Search| {
            search.active = search.found.upper > found.lower && search.prepare(wanted);
            search.active
        };
        if found.upper - found.lower <= wanted || !(again(&mut removing) | again(&mut adding)) {
            return Ok(found);
        }
    }
}

/// The search for a narrow bracket of one side: with better aims and smaller intervals.
struct Search {
    parts: Vec<(Step, u64)>,
    moments: Moments,
    count: f64,
    delta: f64,
    aim: Aim,
    h: f64,
    /// Where it was given.
    given: Option<f64>,
    /// How much of δ is left to rounding errors.
    blurred: f64,
    found: Bracket,
    rounds: usize,
    /// Whether another round is wanted.
    active: bool,
}

impl Search {
    fn new(parts: Vec<(Step, u64)>, delta: f64, most: f64, params: &Params) -> Self {
        let (moments, count) = (Moments::new(&parts), count(&parts));
        let h = interval(params, moments.at_delta(delta, 0.0), count);
        let aim = moments.at_delta(delta, count * h * h / 4.0);
        let (given, found) = (params.interval, Bracket { lower: 0.0, upper: most });
        Search { parts, moments, count, delta, aim, h, given, blurred: 0.0, found, rounds: 0, active: true }
    }

    /// One more sum of losses.
    fn improve(&mut self) -> Result<()> {
        if !self.active {
            return Ok(());
        }
        self.rounds += 1;
        let tail = (self.delta * 1e-7 / self.count).max(1e-300);
        let sum = loop {
            match Sum::new(&self.parts, &self.moments, tail, self.aim, self.h) {
                Ok(sum) => break sum,
                Err(error) if self.given.is_some() => return Err(error),
                // The finest that fits.
                Err(Error::Argument { .. }) if self.rounds == 1 && self.h < 1e3 => {
                    self.h *= 2.0;
                    self.aim = self.moments.at_delta(self.delta, self.variance());
                }
                // What is known is all that can be had.
                Err(_) => {
                    self.rounds = ROUNDS;
                    return Ok(());
                }
            }
        };
        let ends = Ends::new(&sum);
        if let Some(upper) = ends.epsilon_above(self.delta) {
            self.found.upper = self.found.upper.min(upper);
        }
        self.found.lower = self.found.lower.max(ends.epsilon_below(self.delta)).min(self.found.upper);
        self.blurred = sum.blur_of_delta(self.found.upper) / sum.scaled(self.delta);
        Ok(())
    }

    /// Gets ready for another round, if there is one that can be better.
    fn prepare(&mut self, wanted: f64) -> bool {
        if self.rounds >= ROUNDS {
            return false;
        }
        // Chernoff's bound may be far from the truth; from there, errors are less.
        let better = self.moments.at_epsilon(self.found.upper, self.variance());
        if self.blurred > 1e-4 && (better.tilt / self.aim.tilt - 1.0).abs() > 0.05 {
            self.aim = better;
            return true;
        }
        if let Some(h) = self.given {
            let coarse = self.h > h;
            self.h = h;
            return coarse;
        }
        // A finer grid does not help where errors decide.
        if self.blurred > 0.5 {
            return false;
        }
        // The width is of second order in h.
        let ratio = wanted / (self.found.upper - self.found.lower);
        self.h *= (0.8 * ratio.sqrt()).clamp(0.1, 0.7);
        true
    }

    /// What the grid adds to that of the sum.
    fn variance(&self) -> f64 {
        self.count * self.h * self.h / 4.0
    }
}

/// δ at ε, for events with sampling among them. `most` is known to be enough.
pub(super) fn delta(flat: &Flat, epsilon: f64, most: f64, params: &Params) -> Result<Bracket> {
    let one = |parts: &Parts| {
        let (moments, count) = (Moments::new(parts), count(parts));
        let tail = 1e-280 / count;
        let mut h = interval(params, moments.at_epsilon(epsilon, 0.0), count);
        loop {
            let aim = moments.at_epsilon(epsilon, count * h * h / 4.0);
            match Sum::new(parts, &moments, tail, aim, h) {
                Ok(sum) => {
                    let ends = Ends::new(&sum);
                    let upper = ends.delta_above(epsilon).min(most);
                    return Ok(Bracket { lower: ends.delta_below(epsilon).min(upper), upper });
                }
                Err(error) if params.interval.is_some() => return Err(error),
                Err(Error::Argument { .. }) if h < 1e3 => h *= 2.0,
                Err(_) => return Ok(Bracket { lower: 0.0, upper: most }),
            }
        }
    };
    let [removing, adding] = sides(flat);
    let (removing, adding) = rayon::join(|| one(&removing), || one(&adding));
    Ok(removing?.worse(adding?))
}

/// The steps as seen when an example is removed, and when it is added.
fn sides(flat: &Flat) -> [Vec<(Step, u64)>; 2] {
    [Side::Removing, Side::Adding].map(|side| {
        let step = |sampling_rate, noise_multiplier| Step { sampling_rate, noise_multiplier, side };
        let mut parts: Vec<(Step, u64)> =
            flat.sampled.iter().map(|&(rate, multiplier, count)| (step(rate, multiplier), count)).collect();
        if flat.squared_mu > 0.0 {
            parts.push((step(1.0, flat.gaussian_multiplier()), 1));
        }
        parts
    })
}

fn count(parts: &Parts) -> f64 {
    parts.iter().map(|(_, count)| *count as f64).sum()
}

/// The interval at which the bracket should be narrow enough: moving the losses of T steps to the grid costs some
/// 2·T·h²·(θ + 1) in ε.
fn interval(params: &Params, aim: Aim, count: f64) -> f64 {
    let width = params.width * aim.epsilon.max(1.0);
    params.interval.unwrap_or((width / (2.0 * count * (aim.tilt.min(1e4) + 1.0))).sqrt().min(1.0))
}
