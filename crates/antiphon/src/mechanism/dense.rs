//! The noising matrix W = C⁻¹ of a dense mechanism, and what follows from it alone.

use super::factorization::{Cost, Factorization, add_squares};
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use crate::sensitivity::{self, Sensitivity, WorstCase};
use crate::workload::Workload;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};

/// A lower triangular, invertible W. Whatever is claimed of a dense mechanism is claimed of this matrix:
/// its encoder is C = W⁻¹, its decoder B = AW.
#[derive(Debug, Clone)]
pub struct NoisingMatrix {
    w: Matrix,
    /// What was found about the inverse, by whoever needed it first: inverting takes O(n³). It is computed here and nowhere else, so
    /// sharing it believes nobody. Clones have the same matrix, and share it too.
    inverse: Arc<OnceLock<Inverse>>,
}

/// What is needed of a computed inverse C̃ again and again: three numbers, so that C̃ itself need not be kept.
#[derive(Debug, Clone, Copy)]
pub struct Inverse {
    /// A bound on ‖C̃W − I‖₂, rounding errors included.
    pub residual: f64,
    /// √(‖|C̃||W|‖₁·‖|C̃||W|‖_∞): a bound on ‖|C̃||W|‖₂.
    pub absolute_product: f64,
    /// ‖C̃‖²_F.
    pub squared_norm: f64,
}

impl PartialEq for NoisingMatrix {
    fn eq(&self, other: &NoisingMatrix) -> bool {
        self.w == other.w
    }
}

/// The sensitivity of the exact inverse of a stored matrix, and how well the computed inverse fits.
#[derive(Debug, Clone)]
pub struct SensitivityOfInverse {
    /// Upper and lower bound.
    pub sensitivity: Sensitivity,
    /// A pattern that reaches the lower bound; `None` where that is zero.
    pub worst_pattern: Option<Vec<usize>>,
    /// A bound on ‖C̃W − I‖₂ for the computed inverse C̃, rounding errors included.
    pub residual: f64,
}

impl NoisingMatrix {
    /// Takes a matrix after checking that it is square, finite, lower triangular and invertible.
    pub fn new(w: Matrix) -> Result<Self> {
        dense::check_invertible_triangle(&w, "the noising matrix")?;
        Ok(NoisingMatrix { w, inverse: Arc::default() })
    }

    /// W = C⁻¹.
    pub fn matrix(&self) -> &Matrix {
        &self.w
    }

    /// C, up to rounding errors.
    pub fn encoder(&self) -> Result<Matrix> {
        dense::lower_inverse(&self.w)
    }

    /// The number of steps n.
    pub fn steps(&self) -> usize {
        self.w.nrows()
    }

    /// The rows of the lower triangle one after another: n(n+1)/2 numbers, the form in which W is stored and hashed.
    pub fn packed(&self) -> Vec<f64> {
        (0..self.steps()).flat_map(|i| (0..=i).map(move |j| self.w[(i, j)])).collect()
    }

    /// How many numbers [`NoisingMatrix::packed`] gives for so many steps. In 128 bits nothing overflows.
    pub fn packed_len(steps: usize) -> u128 {
        steps as u128 * (steps as u128 + 1) / 2
    }

    /// The inverse of [`NoisingMatrix::packed`].
    pub fn from_packed(steps: usize, packed: &[f64]) -> Result<Self> {
        if packed.len() as u128 != Self::packed_len(steps) {
            let allowed = format!("a triangle of {steps} rows");
            return Err(Error::argument("the noising matrix", allowed, format!("{} numbers", packed.len())));
        }
        let entry = |i: usize, j: usize| if j <= i { packed[i * (i + 1) / 2 + j] } else { 0.0 };
        Self::new(dense::from_fn(steps, steps, entry))
    }

    /// The SHA-256 of the packed triangle (little-endian `f64`), in hexadecimal: the name of the mechanism.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        for i in 0..self.steps() {
            for j in 0..=i {
                hash.update(self.w[(i, j)].to_le_bytes());
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// ‖AW‖²_F, rounded up.
    pub fn squared_error(&self, workload: &Workload) -> f64 {
        let norm = workload.product_norm(&self.w);
        norm * norm * (1.0 + 2.0 * f64::EPSILON) // up
    }

    /// The sensitivity of C = W⁻¹ under a schema.
    ///
    /// The computed inverse C̃ is not C. With E = C̃W − I and ‖E‖₂ ≤ ε < 1, C = (I + E)⁻¹C̃, hence
    /// sens(C̃)/(1 + ε) ≤ sens(C) ≤ sens(C̃)/(1 − ε) (docs/theory.md, section 7).
    pub fn sensitivity(&self, schema: &Schema) -> Result<SensitivityOfInverse> {
        let encoder = self.encoder()?;
        let Inverse { residual, .. } = self.note(&encoder)?;
        of_candidate(&encoder, residual, schema)
    }

    /// What is known of the inverse; it is formed if nobody has needed it yet.
    pub fn inverse(&self) -> Result<Inverse> {
        match self.inverse.get() {
            Some(known) => Ok(*known),
            None => self.note(&self.encoder()?),
        }
    }

    /// Remembers what there is to know of the inverse that [`NoisingMatrix::encoder`] computes.
    fn note(&self, encoder: &Matrix) -> Result<Inverse> {
        if let Some(known) = self.inverse.get() {
            return Ok(*known);
        }
        let found = Inverse {
            residual: dense::inverse_residual(encoder, &self.w)?,
            absolute_product: dense::abs_product_norm(encoder, &self.w),
            squared_norm: dense::squared_norm(encoder),
        };
        Ok(*self.inverse.get_or_init(|| found))
    }

    /// As [`NoisingMatrix::sensitivity`], with a candidate for C that is already at hand. Any candidate gives a true
    /// bound; a bad one gives a bad bound.
    pub fn sensitivity_with(&self, encoder: &Matrix, schema: &Schema) -> Result<SensitivityOfInverse> {
        of_candidate(encoder, dense::inverse_residual(encoder, &self.w)?, schema)
    }
}

fn of_candidate(encoder: &Matrix, residual: f64, schema: &Schema) -> Result<SensitivityOfInverse> {
    let WorstCase { mut sensitivity, pattern } = sensitivity::worst_case_of_encoder(encoder, schema)?;
    sensitivity.upper /= 1.0 - residual; // up: the exact inverse may be larger
    sensitivity.lower /= 1.0 + residual; // down: holds for every pattern, so the same one reaches it
    Ok(SensitivityOfInverse { sensitivity, worst_pattern: pattern, residual })
}

/// A noising matrix together with its inverse, as one [`Factorization`] among others.
#[derive(Debug, Clone)]
pub struct DenseFactorization {
    noising: NoisingMatrix,
    encoder: Matrix,
    gram_error: f64,
}

impl DenseFactorization {
    /// Inverts W.
    pub fn new(noising: NoisingMatrix) -> Result<Self> {
        let encoder = noising.encoder()?;
        let residual = dense::inverse_residual(&encoder, noising.matrix())?;
        let largest = (0..encoder.ncols()).map(|j| encoder.col(j).squared_norm_l2()).fold(0.0, f64::max);
        // Entries of X that underflow would count as zero.
        if !(1e-280..=1e280).contains(&largest) {
            let allowed = "in [1e-280, 1e280]: divide the noising matrix by a suitable number";
            return Err(Error::argument("the largest squared norm of a column of C", allowed, largest));
        }
        // X = C̃ᵀ(I + E)⁻ᵀ(I + E)⁻¹C̃ is entrywise within ((1 − ‖E‖)⁻² − 1)·‖c̃_i‖‖c̃_j‖ of C̃ᵀC̃, and a computed inner
        // product within n·ε of the same norms. Norms are rounded up.
        let rounding = encoder.nrows() as f64 * f64::EPSILON;
        let gram_error = ((1.0 - residual).powi(-2) - 1.0 + 2.0 * rounding) * largest * (1.0 + rounding);
        Ok(DenseFactorization { noising, encoder, gram_error })
    }

    /// W.
    pub fn noising(&self) -> &NoisingMatrix {
        &self.noising
    }
}

impl Factorization for DenseFactorization {
    fn steps(&self) -> usize {
        self.noising.steps()
    }

    fn inputs(&self) -> usize {
        self.noising.steps()
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        let from = i.max(j); // C is lower triangular
        let (a, b) = (self.encoder.col_as_slice(i), self.encoder.col_as_slice(j));
        a[from..].iter().zip(&b[from..]).map(|(a, b)| a * b).sum()
    }

    fn gram_error(&self) -> f64 {
        self.gram_error
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        &self.encoder * x
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        self.noising.matrix() * z
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        self.noising.matrix().transpose() * u
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        let mut sums = vec![0.0; self.steps()];
        add_squares(&mut sums, &workload.apply(self.noising.matrix()));
        sums
    }

    fn cost(&self) -> Cost {
        Cost::dense(self.steps())
    }
}
