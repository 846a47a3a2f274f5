//! Mechanisms: what the optimizer makes, a file stores and `verify` distrusts; and what all families of them have in common.
//!
//! | file | room |
//! |---|---|
//! | `family` | what a family has to say of itself: one row of the table in [`families`](crate::families) |
//! | `factorization` | what every mechanism can do: encode, make noise, say its gram matrix and its variances |
//! | `stream` | how noise is made, row after row |
//! | `structured` | mechanisms that a name and a few numbers describe |
//! | `dense` | a noising matrix that is stored |
//! | `stamp` | several of them along the diagonal |
//! | `certificate` | the proof that no mechanism is much better |
//! | `matrices` | C, C⁻¹, B and X written out |
//! | `evaluate` | sensitivity, loss, variances and cost of any of them |

mod certificate;
mod dense;
pub mod evaluate;
pub mod factorization;
pub mod family;
pub mod matrices;
pub mod stamp;
pub mod stream;
mod structured;

pub use certificate::{BoundClass, Certificate};
pub use dense::{DenseFactorization, Inverse, NoisingMatrix, SensitivityOfInverse};
pub use evaluate::{Evaluation, evaluate, sensitivity_of, worst_case_of};
pub use factorization::{Cost, Factorization};
pub use family::{Family, Parameters};
pub use matrices::Which;
pub use stamp::Stamped;
pub use structured::Structured;

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
    pub(crate) certificate: Option<Certificate>,
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
    /// The proof that no mechanism is much better, where there is one.
    pub certificate: Option<Certificate>,
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

    /// The proof that no mechanism is much better, where there is one.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Of which mechanisms the lower bound speaks.
    pub fn bound_class(&self) -> BoundClass {
        match self.certificate {
            Some(_) => BoundClass::All,
            None => BoundClass::None,
        }
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
    /// Row t of WZ is the noise of step t, with W from a formula (docs/FORMAT.md). Its name is stored, and what parameters it has.
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

/// The figures that a mechanism comes with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claims {
    /// sens²·‖B‖²_F, rounded up.
    pub loss: f64,
    /// No mechanism has a smaller loss; rounded down. `None` where nothing is claimed.
    pub lower_bound: Option<f64>,
    /// An upper bound on the sensitivity.
    pub sensitivity: f64,
}

impl Claims {
    /// How far the loss can be above the optimum: loss / lower_bound − 1. Infinite where there is no bound.
    pub fn gap(&self) -> f64 {
        self.lower_bound.map_or(f64::INFINITY, |bound| self.loss / bound - 1.0)
    }

    /// √(loss / steps).
    pub fn rmse(&self, steps: usize) -> f64 {
        (self.loss / steps as f64).sqrt()
    }
}
