//! An encoder that somebody has, whatever it was made for, repeated along the diagonal: the paper's "encoder for one k applied to
//! another", and the stamping of anything.

use super::stored;
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::NoisingMatrix;
use crate::mechanism::family::{Designed, Explicit, Family, Needs, Row, Run, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::Kernel;
use std::sync::Arc;

/// An encoder that is given.
pub const FROM: Family = Family::of(&Given);

struct Given;

impl Row for Given {
    fn name(&self) -> &'static str {
        "from"
    }

    fn about(&self) -> &'static str {
        "The encoder of a file (a mechanism, or C as .npy), used for this run"
    }

    fn needs(&self) -> Needs {
        Needs::Matrix
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        let encoder = run.encoder.ok_or_else(|| Error::argument("the encoder", "given", "nothing"))?;
        let longest = run.schema.steps().div_ceil(run.stamps.max(1));
        if encoder.ncols() != longest {
            let (steps, stamps) = (run.schema.steps(), run.stamps);
            let allowed = format!("a matrix of {longest} columns: {steps} steps in {stamps} stamps");
            let value = format!("{}×{}", encoder.nrows(), encoder.ncols());
            return Err(Error::argument("the encoder", allowed, value));
        }
        let noising = noising_of(encoder)?;
        stored::design(FROM, run, |length| leading(&noising, length))
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

/// The noising matrix with the optimal decoder of an encoder: C⁻¹ where C is lower triangular, otherwise the inverse of the lower triangular C'
/// with C'ᵀC' = CᵀC. Z and QZ have the same distribution for an orthogonal Q, so C' has the noise of C⁺ = C'⁻¹Qᵀ, row by row.
fn noising_of(encoder: &Matrix) -> Result<NoisingMatrix> {
    if !dense::is_finite(encoder) {
        return Err(Error::argument("the encoder", "finite", "NaN or infinite entries"));
    }
    let n = encoder.ncols();
    let triangular = encoder.nrows() == n && (0..n).all(|j| (0..j).all(|i| encoder[(i, j)] == 0.0));
    let factor = match triangular {
        true => encoder.clone(),
        false => dense::lower_factor(encoder)?.0,
    };
    dense::check_invertible_triangle(&factor, "the encoder")?;
    NoisingMatrix::new(dense::lower_inverse(&factor)?)
}

/// The first rows and columns: the inverse of a leading block of C is that of C⁻¹.
fn leading(noising: &NoisingMatrix, length: usize) -> Result<NoisingMatrix> {
    let w = noising.matrix();
    NoisingMatrix::new(dense::from_fn(length, length, |i, j| w[(i, j)]))
}
