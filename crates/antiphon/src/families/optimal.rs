//! The optimum for the run. It is one matrix for all steps, or implicit; what it is stands in `mechanism::dense` and `verify`.

use crate::error::{Error, Result};
use crate::mechanism::family::{Designed, Explicit, Family, Needs, Row, Run, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::Kernel;
use crate::optimize::{MAX_DENSE_STEPS, Params, optimize};
use std::sync::Arc;

/// The best mechanism for the run.
pub const OPTIMAL: Family = Family::of(&Optimal);

struct Optimal;

impl Row for Optimal {
    fn name(&self) -> &'static str {
        "optimal"
    }

    fn about(&self) -> &'static str {
        "The best mechanism for the run: a dense matrix"
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        if run.stamps != 1 {
            return Err(Error::argument("stamps", "1 for optimal, which is not repeated", run.stamps));
        }
        let implicit = run.may_be_implicit && run.schema.steps() > MAX_DENSE_STEPS;
        let params = Params { gap: run.gap, implicit, ..Params::default() };
        let found = optimize(run.schema, run.workload, &params, run.observer)?;
        Ok(Designed::Mechanism(Box::new(found.mechanism)))
    }

    fn parameters(
        &self,
        _steps: usize,
        _stamps: usize,
        _length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        None
    }

    fn factorization(&self, _stamp: &Stamp<'_>) -> Result<Shared> {
        Err(no_stamps())
    }

    fn definition(&self, _stamp: &Stamp<'_>) -> Result<Explicit> {
        Err(no_stamps())
    }

    fn kernel(&self, _stamp: &Stamp<'_>, _stddev: f64) -> Result<Arc<dyn Kernel>> {
        Err(no_stamps())
    }
}

fn no_stamps() -> Error {
    Error::Unsupported("the optimum is one matrix, and is not described by its name".into())
}
