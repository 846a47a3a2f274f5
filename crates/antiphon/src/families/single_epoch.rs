//! The optimum for a single participation, used for several (the paper's MF with k = 1), repeated along the diagonal.

use super::stored;
use crate::error::{Error, Result};
use crate::linalg::dense::from_fn;
use crate::mechanism::family::{Designed, Explicit, Family, Row, Run, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::Kernel;
use crate::mechanism::{Noise, NoisingMatrix};
use crate::optimize::{self, MAX_DENSE_STEPS, Observer, Params};
use crate::schema::Schema;
use crate::workload::Workload;
use std::sync::Arc;

/// The optimum for one pass over the data, used for several.
pub const SINGLE_EPOCH: Family = Family::of(&SingleEpoch);

struct SingleEpoch;

impl Row for SingleEpoch {
    fn name(&self) -> &'static str {
        "single-epoch"
    }

    fn about(&self) -> &'static str {
        "The optimum for a single epoch, used for several: a dense matrix for each stamp"
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        stored::design(SINGLE_EPOCH, run, |length| optimum(length, run.workload, run.gap, run.observer))
    }

    fn parameters(
        &self,
        steps: usize,
        stamps: usize,
        _length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        stored::parameters(steps, stamps)
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        stored::factorization(stamp)
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        stored::definition(stamp)
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        stored::kernel(stamp, stddev)
    }
}

/// The optimum for a single participation and the first `length` steps of a workload.
pub fn optimum(
    length: usize,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<NoisingMatrix> {
    if !(1..=workload.steps()).contains(&length) {
        return Err(Error::argument("length", format!("in 1..={}", workload.steps()), length));
    }
    if length > MAX_DENSE_STEPS {
        return Err(Error::Unsupported(format!(
            "{length} steps are too many for a single-epoch mechanism, which is a dense matrix for each stamp (at most \
             {MAX_DENSE_STEPS}); those made from a formula have no such limit"
        )));
    }
    let part = match workload {
        Workload::Training(training) => Workload::Training(training.part(0, length)),
        Workload::Dense(a) => Workload::dense(from_fn(length, length, |i, j| a[(i, j)]))?,
    };
    let params = Params { gap, ..Params::default() };
    match optimize::optimize(&Schema::single(length)?, &part, &params, observer)?.mechanism.noise {
        Noise::Dense(noising) => Ok(noising),
        _ => unreachable!("a dense mechanism was asked for"),
    }
}
