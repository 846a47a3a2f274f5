//! Audits: what privacy a run really had, from the log of who took part when.
//!
//! A mechanism's sensitivity holds for its participation schema. If an example came back too early, the stated ε does not
//! hold. Here the sensitivity is computed again for the participations as they happened, and every participation that the schema
//! does not allow is named.
//!
//! | file | room |
//! |---|---|
//! | `participations` | the log in memory, sorted by unit |
//! | `violations` | which participations a schema does not allow |
//! | `realised` | the sensitivity of the patterns that happened |
//! | `sampled` | logs of Poisson-sampled runs, which no ε can be read from |

mod participations;
mod realised;
mod sampled;
#[cfg(test)]
mod tests;
mod violations;

pub use participations::Counts;
pub use sampled::{ALPHA, Check, SampledAudit, Sampling, audit_sampled};
pub use violations::Violations;

use super::log::Line;
use crate::accounting::event::{MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER};
use crate::accounting::{self, Adjacency, Event, NoiseMultiplier, Params};
use crate::error::{Error, Result};
use crate::sensitivity::Sensitivity;
use crate::verify::Verified;
use participations::Participations;
use serde::Serialize;

/// What is wrong in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Counted from 0; `None` where it is about the whole log.
    pub step: Option<usize>,
    /// Who; `None` where it is about the whole log.
    pub unit: Option<u64>,
    /// What was expected, in words.
    pub reason: String,
}

/// The unit with the largest sensitivity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Worst {
    /// Who; the smallest number of those with the same steps.
    pub unit: u64,
    /// The steps in which it took part.
    pub steps: Vec<usize>,
}

/// What was found in the log of a run with a matrix mechanism.
#[derive(Debug)]
pub struct Audit {
    /// Participations that the schema does not allow, by step and unit.
    pub violations: Violations,
    /// What the log contains.
    pub counts: Counts,
    /// How many units have steps that no earlier unit has.
    pub patterns: usize,
    /// For the participations in the log. Zero where nobody took part.
    pub sensitivity: Sensitivity,
    /// Who has it.
    pub worst: Option<Worst>,
    /// The standard deviation of the noise divided by the realised sensitivity, rounded down; `None` where nobody took part.
    pub noise_multiplier: Option<f64>,
    /// ε as it was stated before the run: for every run that follows the schema. An upper bound.
    pub epsilon_stated: f64,
    /// ε for the participations in the log, taken as fixed, if the log is true and complete. An upper bound.
    pub epsilon_realised: f64,
}

impl Audit {
    /// Whether every participation is one that the schema allows.
    pub fn ok(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Audits a run with a matrix mechanism, whose noise had standard deviation `noise_multiplier` times the clip norm times the
/// sensitivity that was verified.
pub fn audit(
    verified: &Verified,
    lines: impl Iterator<Item = Result<Line>>,
    noise_multiplier: NoiseMultiplier,
    delta: f64,
    adjacency: Adjacency,
) -> Result<Audit> {
    let (mechanism, noise_multiplier) = (verified.mechanism(), noise_multiplier.value());
    realised::check(mechanism)?;
    // Wrong figures are found out before the work, not after it.
    let epsilon_stated = epsilon(noise_multiplier, delta, adjacency)?;
    let all = Participations::collect(lines, verified.steps())?;
    let grouped = all.grouped();
    let keys = violations::keys(&mechanism.schema, &grouped);
    let (found, worst) = realised::sensitivity(mechanism, &grouped)?;
    let stated = verified.report().sensitivity;
    // Without violations the realised sensitivity is at most the stated one. Where the two brackets meet they may be equal, and
    // the stated figure is the cautious one.
    let sensitivity = match keys.is_empty() && found.upper >= stated.lower {
        true => stated,
        false => found,
    };
    let realised = realised_multiplier(noise_multiplier, stated.upper, sensitivity.upper);
    let epsilon_realised = match realised {
        Some(z) if z == noise_multiplier => epsilon_stated,
        Some(z) => epsilon(in_range(z, adjacency)?, delta, adjacency)?,
        None => 0.0, // nobody took part: nothing in the output depends on anybody
    };
    let (counts, patterns) = (all.counts(), grouped.patterns());
    Ok(Audit {
        violations: Violations::new(mechanism.schema.clone(), all, keys),
        counts,
        patterns,
        sensitivity,
        worst,
        noise_multiplier: realised,
        epsilon_stated,
        epsilon_realised,
    })
}

/// z·stated/realised, the noise multiplier relative to another sensitivity; `None` where that is zero.
fn realised_multiplier(z: f64, stated: f64, realised: f64) -> Option<f64> {
    if realised == 0.0 {
        return None;
    }
    // Down: two roundings of half a unit each, and ε must not be too small.
    let multiplier = z * (stated / realised) * (1.0 - 4.0 * f64::EPSILON);
    // A sensitivity that is no larger has no smaller multiplier, whatever the rounding.
    Some(if realised <= stated { multiplier.max(z) } else { multiplier })
}

/// Refuses a realised noise multiplier that the accountant does not cover.
fn in_range(z: f64, adjacency: Adjacency) -> Result<f64> {
    let lowest = MIN_NOISE_MULTIPLIER * adjacency.factor();
    if (lowest..=MAX_NOISE_MULTIPLIER).contains(&z) {
        return Ok(z);
    }
    let allowed = format!("in [{lowest:e}, {MAX_NOISE_MULTIPLIER:e}] for its ε to be computed");
    Err(Error::argument(
        "the realised noise multiplier (stated one · stated/realised sensitivity)",
        allowed,
        z,
    ))
}

fn epsilon(noise_multiplier: f64, delta: f64, adjacency: Adjacency) -> Result<f64> {
    let event = adjacency.apply(&Event::gaussian(noise_multiplier))?;
    Ok(accounting::epsilon(&event, delta, &Params::default())?.upper)
}
