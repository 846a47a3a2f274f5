//! stand-in until merged
use crate::error::{Error, Result};
use crate::linalg::dense;
use crate::mechanism::{Noise, NoisingMatrix};
use crate::optimize::{Observer, Params, optimize};
use crate::schema::Schema;
use crate::workload::Workload;

/// stand-in
pub fn single_epoch_stamp(
    length: usize,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<NoisingMatrix> {
    let part = match workload {
        Workload::Training(training) => Workload::Training(training.part(0, length)),
        Workload::Dense(a) => Workload::dense(dense::from_fn(length, length, |i, j| a[(i, j)]))?,
    };
    let params = Params { gap, ..Params::default() };
    match optimize(&Schema::single(length)?, &part, &params, observer)?.mechanism.noise {
        Noise::Dense(noising) => Ok(noising),
        _ => Err(Error::Numerical("not dense".into())),
    }
}
