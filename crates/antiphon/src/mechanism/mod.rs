//! Mechanisms: what the optimizer makes, a file stores and `verify` distrusts; and all others of the paper.
//!
//! | file | room |
//! |---|---|
//! | `factorization` | what every mechanism can do: encode, make noise, say its gram matrix and its variances |
//! | `identity` | independent noise |
//! | `tree` | binary trees, online and optimal decoder |
//! | `fft` | the FFT mechanism and its optimal decoder |
//! | `dense` | a noising matrix that is stored |
//! | `stamp` | any of them, repeated |
//! | `structured` | those that a name and a number describe |
//! | `matrices` | C, C⁻¹, B and X written out |
//! | `evaluate` | sensitivity, loss, variances and cost of any of them |

mod dense;
pub mod evaluate;
pub mod factorization;
pub mod fft;
pub mod identity;
pub mod matrices;
pub mod stamp;
pub mod structured;
pub mod tree;

pub use dense::{DenseFactorization, Inverse, NoisingMatrix, SensitivityOfInverse};
pub use evaluate::{Evaluation, evaluate, sensitivity_of, worst_case_of};
pub use factorization::{Cost, Factorization};
pub use matrices::Which;
pub use stamp::Stamped;
pub use structured::{Family, Structured};

use crate::error::{Error, Result};
use crate::linalg::quadrature::Quadrature;
use crate::schema::Schema;
use crate::workload::Workload;

/// A correlated-noise mechanism with its proof, as it was made or read. Nobody has checked it: noise and accounting take a
/// [`Verified`](crate::verify::Verified) one.
#[derive(Debug, Clone, PartialEq)]
pub struct Mechanism {
    pub(crate) schema: Schema,
    pub(crate) workload: Workload,
    pub(crate) noise: Noise,
    pub(crate) certificate: Certificate,
    pub(crate) claims: Claims,
}

/// What a mechanism consists of, for those who take one apart or put one together. Nothing follows from it before it is verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// Who may take part when.
    pub schema: Schema,
    /// A.
    pub workload: Workload,
    /// What is added to the gradients.
    pub noise: Noise,
    /// The proof that no mechanism is much better.
    pub certificate: Certificate,
    /// What is said about all this.
    pub claims: Claims,
}

impl Mechanism {
    /// Who may take part when.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// n.
    pub fn steps(&self) -> usize {
        self.schema.steps()
    }

    /// A.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// What is added to the gradients.
    pub fn noise(&self) -> &Noise {
        &self.noise
    }

    /// The proof that no mechanism is much better.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// What is said about the mechanism. Nothing takes claims: see [`verify`](mod@crate::verify).
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// All parts.
    pub fn into_parts(self) -> Parts {
        let Mechanism { schema, workload, noise, certificate, claims } = self;
        Parts { schema, workload, noise, certificate, claims }
    }
}

impl From<Parts> for Mechanism {
    fn from(parts: Parts) -> Mechanism {
        let Parts { schema, workload, noise, certificate, claims } = parts;
        Mechanism { schema, workload, noise, certificate, claims }
    }
}

/// The three ways in which a mechanism is given.
#[derive(Debug, Clone, PartialEq)]
pub enum Noise {
    /// Row t of C⁻¹Z is the noise of step t.
    Dense(NoisingMatrix),
    /// X = X_N(U)/s²: the sum of resolvents Σ w_j (V⁻¹ + τ_j U)⁻¹ with the U of the certificate, divided by its own
    /// squared sensitivity. Nothing of size n² is stored, and no noise can be drawn from it yet.
    Implicit {
        /// τ and w.
        rule: Quadrature,
        /// s², an upper bound on the squared sensitivity of the sum.
        squared_sensitivity: f64,
    },
    /// Row t of WZ is the noise of step t, with W from a formula (docs/FORMAT.md). Nothing is stored but its name.
    Structured(Structured),
}

impl Noise {
    /// The name of the way, as files and the command line have it.
    pub fn kind(&self) -> &'static str {
        match self {
            Noise::Dense(_) => "dense",
            Noise::Implicit { .. } => "implicit",
            Noise::Structured(_) => "structured",
        }
    }
}

/// A dual feasible U = Σ_π E_π L_π L_πᵀ E_πᵀ, given by one lower triangular factor per participation pattern, in the
/// order of [`Schema::listed`]. It proves that the loss of every mechanism is at least a²/c, with a = ‖A·L‖_* and
/// c = Σ_π max_i ‖row i of L_π‖².
#[derive(Debug, Clone, PartialEq)]
pub struct Certificate {
    /// L_π, row-major and square; zero above the diagonal.
    pub factors: Vec<Vec<f64>>,
}

impl Certificate {
    /// Checks shapes, finiteness and triangularity against a schema.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        let patterns = schema
            .listed()
            .ok_or_else(|| Error::Unsupported(format!("{} has no certificate", schema.name())))?;
        if patterns.len() != self.factors.len() {
            let allowed = format!("{} factors, one per pattern", patterns.len());
            return Err(Error::argument("the certificate", allowed, self.factors.len()));
        }
        for (r, (pattern, factor)) in patterns.iter().zip(&self.factors).enumerate() {
            let k = pattern.len();
            if factor.len() != k * k {
                let value = format!("{} entries", factor.len());
                return Err(Error::argument(format!("certificate factor {r}"), format!("{k}×{k}"), value));
            }
            for (e, x) in factor.iter().enumerate() {
                let name = || format!("entry ({}, {}) of certificate factor {r}", e / k, e % k);
                if !x.is_finite() {
                    return Err(Error::argument(name(), "finite", x));
                }
                if e % k > e / k && *x != 0.0 {
                    return Err(Error::argument(name(), "0 (lower triangular)", x));
                }
            }
        }
        Ok(())
    }
}

/// The figures that a mechanism comes with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claims {
    /// sens²·‖B‖²_F, rounded up.
    pub loss: f64,
    /// No mechanism has a smaller loss; rounded down.
    pub lower_bound: f64,
    /// An upper bound on the sensitivity.
    pub sensitivity: f64,
}

impl Claims {
    /// How far the loss can be above the optimum: loss / lower_bound − 1.
    pub fn gap(&self) -> f64 {
        self.loss / self.lower_bound - 1.0
    }

    /// √(loss / steps).
    pub fn rmse(&self, steps: usize) -> f64 {
        (self.loss / steps as f64).sqrt()
    }
}
