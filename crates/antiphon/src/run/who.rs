//! Who takes part in a run, and what decides about it.

use super::guard::{Changes, Guard};
use super::sampling::Samples;
use super::{Privacy, Unit};
use crate::accounting::calibrate::Run;
use crate::error::{Error, Result};
use crate::noise::Stddev;
use crate::schema::MAX_STEPS;
use crate::text::counted;
use crate::verify::Verified;

/// Independent noise in every step, accounted for as if every unit were in it with some probability, by a coin of its own: DP-SGD.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// n.
    pub steps: usize,
    /// q.
    pub sampling_rate: f64,
    /// Whether the batches really are Poisson samples, drawn by the run from its key. Where they are not, as in much that is called
    /// DP-SGD, the figures are not a valid guarantee, and the statement says so.
    pub poisson: bool,
}

/// Who takes part, and what decides about it.
pub(super) enum Who {
    /// The schema of a mechanism.
    Schema(Box<(Verified, Guard)>),
    /// The key of the run.
    Samples(Sampled, Samples),
    /// Nothing: the figures hold for no run.
    Anybody(Sampled),
}

impl Who {
    /// The same before its first step.
    pub(super) fn again(&self, unit: Unit, units: Option<usize>) -> Who {
        match self {
            Who::Schema(both) => {
                let guard = Guard::new(both.0.schema(), unit, units);
                Who::Schema(Box::new((both.0.clone(), guard)))
            }
            Who::Samples(sampled, samples) => Who::Samples(*sampled, samples.share()),
            Who::Anybody(sampled) => Who::Anybody(*sampled),
        }
    }

    pub(super) fn remembers_the_same_as(&self, other: &Who) -> bool {
        match (self, other) {
            (Who::Schema(a), Who::Schema(b)) => a.1.remembers_the_same_as(&b.1),
            _ => true,
        }
    }

    pub(super) fn check(&mut self, step: usize, units: &[usize], unit: Unit) -> Result<Changes> {
        match self {
            Who::Schema(both) => both.1.check(step, units),
            Who::Anybody(_) => Ok(Changes::default()),
            Who::Samples(_, samples) => {
                let mut sorted = units.to_vec();
                sorted.sort_unstable();
                match sorted == samples.step(step) {
                    true => Ok(Changes::default()),
                    false => Err(Error::Privacy(format!(
                        "step {step} is refused: its {}s are not the Poisson sample that the run drew for it",
                        unit.name()
                    ))),
                }
            }
        }
    }

    pub(super) fn commit(&mut self, changes: Changes) {
        if let Who::Schema(both) = self {
            both.1.commit(changes);
        }
    }
}

impl Sampled {
    /// The event that it is accounted for.
    pub fn run(&self) -> Run {
        Run::Sampled { sampling_rate: self.sampling_rate, steps: self.steps as u64 }
    }

    /// The standard deviation of the noise in every step: a step has the clip norm as its sensitivity.
    pub fn stddev(&self, privacy: &Privacy, clip_norm: f64) -> Result<Stddev> {
        Stddev::of_sensitivity(1.0, privacy.noise_multiplier(), clip_norm)
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(1..=MAX_STEPS).contains(&self.steps) {
            return Err(Error::argument("steps", format!("in 1..={MAX_STEPS}"), self.steps));
        }
        match self.sampling_rate > 0.0 && self.sampling_rate <= 1.0 {
            true => Ok(()),
            false => Err(Error::argument("sampling_rate", "in (0, 1]", self.sampling_rate)),
        }
    }

    pub(super) fn describe(&self) -> String {
        let batches = if self.poisson { "Poisson samples" } else { "shuffled batches" };
        format!(
            "independent noise, {batches} of rate {:?}, {}",
            self.sampling_rate,
            counted(self.steps, "step")
        )
    }
}
