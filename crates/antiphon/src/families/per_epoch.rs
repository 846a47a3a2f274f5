//! The best mechanism whose noise is independent between epochs: what reshuffled epochs can have without any bound on sensitivities
//! (`optimize::by_epoch`). Every epoch has a matrix of its own, since the noise of early epochs stays in the model for longer.

use super::stored;
use crate::error::{Error, Result};
use crate::mechanism::family::{Designed, Explicit, Family, Needs, Parameters, Row, Run, Stamp};
use crate::mechanism::stamp::{self, Shared};
use crate::mechanism::stream::Kernel;
use crate::mechanism::{Noise, NoisingMatrix, Structured};
use crate::optimize::{MAX_DENSE_STEPS, by_epoch};
use crate::schema::Schema;
use std::sync::Arc;

/// The best mechanism that starts afresh in every epoch.
pub const PER_EPOCH: Family = Family::of(&PerEpoch);

const MATRICES: &str = "noising_matrices";

struct PerEpoch;

/// The number of epochs, or of parts in which nobody takes part twice.
fn parts(schema: &Schema) -> Option<usize> {
    match schema {
        Schema::FixedOrder { steps, steps_per_epoch: b, .. }
        | Schema::MinSeparation { steps, min_separation: b, .. } => Some(steps.div_ceil(*b)),
        Schema::Reshuffled { epochs, .. } => Some(*epochs),
        Schema::Patterns { .. } => None,
    }
}

impl Row for PerEpoch {
    fn name(&self) -> &'static str {
        "per-epoch"
    }

    fn about(&self) -> &'static str {
        "The best mechanism whose noise is independent between epochs, for reshuffled epochs: a dense matrix for each"
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn repeats(&self) -> bool {
        false
    }

    fn suits(&self, schema: &Schema) -> bool {
        matches!(schema, Schema::Reshuffled { .. })
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        if run.stamps != 1 {
            return Err(Error::argument(
                "stamps",
                "left out for per-epoch, which has one for every epoch",
                run.stamps,
            ));
        }
        let stamps = parts(run.schema).ok_or_else(|| {
            Error::Unsupported("per-epoch needs epochs, and listed patterns have none".into())
        })?;
        let lengths = stamp::lengths(run.schema.steps(), stamps)?;
        if lengths[0] > MAX_DENSE_STEPS {
            return Err(Error::Unsupported(format!(
                "{} steps are too many for a matrix of one epoch (at most {MAX_DENSE_STEPS})",
                lengths[0]
            )));
        }
        let found = by_epoch(&lengths, run.workload, run.gap, run.observer)?;
        let packed = found.blocks.iter().flat_map(NoisingMatrix::packed).collect();
        let parameters = Parameters::from_iter([(MATRICES, packed)]);
        let noise = Noise::Structured(Structured::new(PER_EPOCH, stamps, parameters));
        Ok(match (run.schema, run.schema.is_listed()) {
            (Schema::Reshuffled { .. }, false) if crate::certificate::fits(run.schema) => {
                let bound = crate::certificate::lower_bound(run.schema, run.workload, &found.certificate)?;
                Designed::Proven(noise, found.certificate, bound.value)
            }
            _ => Designed::Noise(noise),
        })
    }

    fn parameters(
        &self,
        steps: usize,
        stamps: usize,
        _length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        let (shorter, longer) = (steps / stamps, steps % stamps);
        let triangle = NoisingMatrix::packed_len;
        let numbers = longer as u128 * triangle(shorter + 1) + (stamps - longer) as u128 * triangle(shorter);
        Some(vec![(MATRICES, numbers)])
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        stored::factorization_of(noising(stamp)?)
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        stored::definition_of(&noising(stamp)?)
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        stored::kernel_of(&noising(stamp)?, stddev)
    }
}

/// The matrix of this stamp, after those of the stamps before it.
fn noising(stamp: &Stamp<'_>) -> Result<NoisingMatrix> {
    let length = |steps: usize| NoisingMatrix::packed_len(steps) as usize;
    let before: usize = stamp.lengths[..stamp.number].iter().map(|steps| length(*steps)).sum();
    let all = stamp.parameters.get(MATRICES);
    NoisingMatrix::from_packed(stamp.steps, &all[before..before + length(stamp.steps)])
}
