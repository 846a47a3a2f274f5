//! The matrices of a mechanism, written out, and its sensitivity under any schema.

use super::factorization::{encoder_matrix, gram_matrix, noising_matrix};
use super::{Mechanism, Noise, Structured, worst_case_of};
use crate::error::{Error, Hint, Result};
use crate::linalg::dense::{self, Matrix};
use crate::optimize::MAX_DENSE_STEPS;
use crate::schema::Schema;
use crate::sensitivity::WorstCase;

/// Which matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The encoder. Trees and FFT have one with more rows than columns, one for each row of Z.
    C,
    /// The decoder A·C⁻¹, or A·W.
    B,
    /// CᵀC.
    X,
    /// The noising matrix: C⁻¹, or the W with W·C = I where C is not square.
    Cinv,
}

impl Mechanism {
    /// A matrix of the mechanism, where it has one.
    pub fn matrix(&self, which: Which) -> Result<Matrix> {
        match &self.noise {
            Noise::Dense(noising) => Ok(match which {
                Which::C => noising.encoder()?,
                Which::B => self.workload.apply(noising.matrix()),
                Which::X => dense::gram(&noising.encoder()?),
                Which::Cinv => noising.matrix().clone(),
            }),
            Noise::Structured(structured) => self.written_out(structured, which),
            Noise::Implicit { .. } => {
                Err(Error::Unsupported("an implicit mechanism has no matrix".into()).with(Hint::NotImplicit))
            }
        }
    }

    fn written_out(&self, structured: &Structured, which: Which) -> Result<Matrix> {
        let steps = self.steps();
        if steps > MAX_DENSE_STEPS {
            return Err(Error::Unsupported(format!(
                "{steps} steps are too many for a matrix that is written out (at most {MAX_DENSE_STEPS})"
            )));
        }
        let factorization = structured.factorization(steps)?;
        Ok(match which {
            Which::C => encoder_matrix(&factorization),
            Which::B => self.workload.apply(&noising_matrix(&factorization)),
            Which::X => gram_matrix(&factorization),
            Which::Cinv => noising_matrix(&factorization),
        })
    }

    /// The sensitivity under any schema of as many steps, and a pattern that reaches its lower end.
    pub fn worst_case(&self, schema: &Schema) -> Result<WorstCase> {
        match &self.noise {
            Noise::Dense(noising) => {
                let whole = noising.sensitivity(schema)?;
                Ok(WorstCase { sensitivity: whole.sensitivity, pattern: whole.worst_pattern })
            }
            Noise::Structured(structured) => worst_case_of(&structured.factorization(self.steps())?, schema),
            Noise::Implicit { .. } => Err(Error::Unsupported(
                "an implicit mechanism has no matrix; verifying it derives its sensitivity".into(),
            )),
        }
    }
}
