//! Stamps whose noising matrix is stored: what families of matrices share.
//!
//! Stamps of one length have the same matrix, so a file keeps at most two: W of the longer stamps and W of the shorter ones, both
//! packed. W is authoritative; the encoder of a stamp is its exact inverse.

use crate::error::Result;
use crate::linalg::dense;
use crate::mechanism::family::{Designed, Explicit, Family, Parameters, Run, Stamp};
use crate::mechanism::stamp::{self, Shared};
use crate::mechanism::stream::{Access, Draw, Kernel};
use crate::mechanism::{DenseFactorization, Noise, NoisingMatrix, Structured};
use crate::noise::dense::Dense;
use sha2::Sha256;
use std::ops::Range;
use std::sync::Arc;

const LONGER: &str = "noising_matrix";
const SHORTER: &str = "noising_matrix_shorter";

/// The matrices of so many steps in so many stamps: names and numbers of entries.
pub fn parameters(steps: usize, stamps: usize) -> Option<Vec<(&'static str, u128)>> {
    let (longer, shorter) = (steps.div_ceil(stamps), steps / stamps);
    let mut all = vec![(LONGER, NoisingMatrix::packed_len(longer))];
    all.extend((shorter < longer).then(|| (SHORTER, NoisingMatrix::packed_len(shorter))));
    Some(all)
}

/// A mechanism with the matrix that `make` gives for a length, in every stamp.
pub fn design(
    family: Family,
    run: &Run<'_>,
    mut make: impl FnMut(usize) -> Result<NoisingMatrix>,
) -> Result<Designed> {
    let mut lengths = stamp::lengths(run.schema.steps(), run.stamps)?;
    lengths.dedup();
    let matrices = [LONGER, SHORTER].into_iter().zip(lengths);
    let packed = |(name, length)| make(length).map(|noising| (name, noising.packed()));
    let parameters = matrices.map(packed).collect::<Result<Parameters>>()?;
    Ok(Designed::Noise(Noise::Structured(Structured::new(family, run.stamps, parameters))))
}

fn noising(stamp: &Stamp<'_>) -> Result<NoisingMatrix> {
    let name = if stamp.steps == stamp.lengths[0] { LONGER } else { SHORTER };
    NoisingMatrix::from_packed(stamp.steps, stamp.parameters.get(name))
}

/// W and its computed inverse.
pub fn factorization(stamp: &Stamp<'_>) -> Result<Shared> {
    factorization_of(noising(stamp)?)
}

pub fn factorization_of(noising: NoisingMatrix) -> Result<Shared> {
    Ok(Arc::new(DenseFactorization::new(noising)?))
}

/// W as stored and C = W⁻¹. With C̃W = I + E for the computed C̃, C̃ = (I + E)·C, so a column of C̃ differs from that of C by at most
/// ‖E‖·‖c‖ ≤ ‖E‖/(1 − ‖E‖)·‖c̃‖.
pub fn definition(stamp: &Stamp<'_>) -> Result<Explicit> {
    definition_of(&noising(stamp)?)
}

pub fn definition_of(noising: &NoisingMatrix) -> Result<Explicit> {
    let encoder = noising.encoder()?;
    let residual = dense::inverse_residual(&encoder, noising.matrix())?;
    let largest = (0..encoder.ncols()).map(|j| encoder.col(j).norm_l2()).fold(0.0, f64::max);
    let column_error = residual / (1.0 - residual) * largest * (1.0 + 1e-9); // up
    Ok(Explicit { encoder, noising: noising.matrix().clone(), column_error })
}

/// Rows of σ·W·Z, as those of a mechanism that is one matrix.
pub fn kernel(stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
    kernel_of(&noising(stamp)?, stddev)
}

pub fn kernel_of(noising: &NoisingMatrix, stddev: f64) -> Result<Arc<dyn Kernel>> {
    let row_sum = crate::noise::dense::row_sum(noising);
    Ok(Arc::new(Rows { dense: Dense::new(noising, stddev)?, row_sum }))
}

struct Rows {
    dense: Dense,
    row_sum: f64,
}

impl Kernel for Rows {
    fn inputs(&self) -> usize {
        self.dense.rows()
    }

    fn row_sum(&self) -> f64 {
        self.row_sum
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        self.dense.sums(wanted, draw, out);
    }

    fn access(&self) -> Access<'_> {
        Access::Together
    }

    fn describe(&self, hash: &mut Sha256) {
        self.dense.describe_to(hash);
    }
}
