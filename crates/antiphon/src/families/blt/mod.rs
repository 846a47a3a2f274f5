//! BLTs (buffered linear Toeplitz matrices) with a profile: noise from a few buffers, for single participation, fixed epoch order and
//! minimum separation.
//!
//! ```text
//! W = Diag(o) · T          C = T⁻¹ · Diag(1/o)
//! ```
//!
//! A comb with one epoch over all steps, so that nothing is mixed: files and streams are those of combs. Its sensitivity has a rule of its own.
//!
//! | file | room |
//! |---|---|
//! | `rational` | T and T⁻¹ as sums of powers, summed without cancellation |
//! | `sensitivity` | the Toeplitz rule, and entries of the gram matrix |
//! | `doubling` | many steps at once |
//! | `segments` | the error of a mechanism with a profile, for the design |
//! | `design` | the poles, zeros and profile with the least loss |
//! | `factorization` | what a BLT does to vectors, its sensitivity and its variances |

pub mod design;
mod doubling;
mod factorization;
mod rational;
mod segments;
mod sensitivity;

pub use design::Profile;

use super::comb;
use super::comb::factorization::Coefficients;
use super::comb::filter::MAX_BUFFERS;
use super::comb::{Comb, definition, parameters, stream};
use crate::error::{Error, Result};
use crate::mechanism::Family;
use crate::mechanism::family::{Designed, Explicit, Needs, Parameters, Row, Run, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::Kernel;
use crate::mechanism::{Noise, Structured};
use crate::schema::Schema;
use crate::workload::Workload;
use design::Problem;
use std::sync::Arc;

/// A BLT with a profile.
pub const BLT: Family = Family::of(&Blt);

struct Blt;

impl Row for Blt {
    fn name(&self) -> &'static str {
        "blt"
    }

    fn about(&self) -> &'static str {
        "A few buffers and nothing else, for any number of steps: buffered linear Toeplitz matrices with a factor for each step"
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn buffers(&self, parameters: &Parameters) -> Option<usize> {
        Some(parameters.get(comb::shape::name::POLES).len())
    }

    fn refuses(&self, schema: &Schema) -> Option<String> {
        (!self.suits(schema)).then(|| {
            format!(
                "blt is made for single participation, fixed epoch order and minimum separation, not for {}",
                schema.name()
            )
        })
    }

    fn suits(&self, schema: &Schema) -> bool {
        matches!(schema, Schema::FixedOrder { .. } | Schema::MinSeparation { .. })
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        let comb = design(run.schema, run.workload, run.buffers, Profile::Free)?;
        Ok(Designed::Noise(structured(&comb)))
    }

    fn parameters(
        &self,
        _steps: usize,
        _stamps: usize,
        length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        Some(parameters(length))
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        Ok(Arc::new(factorization::Toeplitz::new(read(stamp.steps, stamp.parameters)?)))
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        definition::explicit(&read(stamp.steps, stamp.parameters)?)
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        let coefficients = Coefficients::new(read(stamp.steps, stamp.parameters)?);
        Ok(Arc::new(stream::Noise::new(coefficients, stddev)?))
    }
}

/// The BLT with the least loss for a run that has so many buffers, or as many as are worthwhile.
///
/// With [`Profile::Equal`] C is a Toeplitz matrix. For workloads that are dense matrices it is made for prefix sums.
pub fn design(
    schema: &Schema,
    workload: &Workload,
    buffers: Option<usize>,
    profile: Profile,
) -> Result<Comb> {
    if let Some(buffers) = buffers
        && !(1..=MAX_BUFFERS).contains(&buffers)
    {
        return Err(Error::argument("buffers", format!("in 1..={MAX_BUFFERS}"), buffers));
    }
    let steps = schema.steps();
    let (separation, participations) = separation(schema);
    let training = workload.as_training();
    let problem = Problem {
        steps,
        separation,
        participations,
        momentum: training.map_or(0.0, |training| training.momentum()),
        rates: training.and_then(|training| training.rates()),
        profile,
    };
    let found = design::design(&problem, buffers);
    let comb = Comb {
        steps,
        period: steps,
        filter: found.filter,
        mix_knots: vec![0],
        mix: vec![1.0],
        input_gain: vec![1.0; found.knots.len()],
        output_gain: found.gains,
        gain_knots: found.knots,
        residue_gain: Vec::new(),
    };
    comb.check()?;
    Ok(comb)
}

/// The noise of a BLT.
pub fn structured(comb: &Comb) -> Noise {
    Noise::Structured(Structured::new(BLT, 1, comb.to_parameters()))
}

/// How many steps are between two participations, and how many of them there are, for a design: what is claimed does not depend on it.
fn separation(schema: &Schema) -> (usize, usize) {
    let least = match schema {
        Schema::FixedOrder { steps_per_epoch: b, .. } | Schema::MinSeparation { min_separation: b, .. } => *b,
        // On the average.
        Schema::Reshuffled { steps_per_epoch: b, .. } => *b,
        Schema::Patterns { steps, patterns } => {
            let apart = patterns.iter().flat_map(|pattern| pattern.windows(2).map(|pair| pair[1] - pair[0]));
            apart.min().unwrap_or(*steps)
        }
    };
    (least, schema.max_participations())
}

/// Refuses combs that are no BLT: those with several epochs, mixes or factors before the filter.
fn read(steps: usize, parameters: &Parameters) -> Result<Comb> {
    let comb = Comb::from_parameters(steps, parameters)?;
    if comb.period != steps {
        return Err(Error::argument("period", format!("{steps} for blt, the number of steps"), comb.period));
    }
    for (name, numbers) in [("mix", &comb.mix), ("input_gain", &comb.input_gain)] {
        if let Some(i) = numbers.iter().position(|x| *x != 1.0) {
            return Err(Error::argument(format!("{name}[{i}]"), "1 for blt", numbers[i]));
        }
    }
    Ok(comb)
}

#[cfg(test)]
mod tests;
