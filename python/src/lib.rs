//! The extension module of the Python package `antiphon`: the library's rooms as Python classes and functions.
//!
//! What is written here is for Python; what is decided is decided in the library. Everything long runs with the interpreter released.
//! Signatures for people and type checkers are in `antiphon/_antiphon.pyi`.
//!
//! | file | room |
//! |---|---|
//! | `schema` | who may take part when |
//! | `design` | optimize, make, compare and plan; `watch` shows their progress and listens to Ctrl-C |
//! | `mechanism` | mechanisms, and what verifying them finds |
//! | `sensitivity` | of any matrix |
//! | `accounting` | events, ε, δ and noise multipliers |
//! | `key` | keys |
//! | `field` | what is needed to draw the same normals on a device |
//! | `run` | one private run; `clip` sums what it adds noise to; `audit` reads its log |
//! | `arrays` | NumPy arrays and PyTorch tensors, in and out |
//! | `errors` | which exception an error is |

#![forbid(unsafe_code)]

use pyo3::prelude::*;

mod accounting;
mod arrays;
mod audit;
mod clip;
mod design;
mod errors;
mod field;
mod key;
mod mechanism;
mod run;
mod schema;
mod sensitivity;
mod watch;

#[pymodule]
mod _antiphon {
    #[pymodule_export]
    use crate::accounting::{Event, delta, epsilon, noise_multiplier};
    #[pymodule_export]
    use crate::audit::{Audit, audit};
    #[pymodule_export]
    use crate::clip::Clip;
    #[pymodule_export]
    use crate::design::{Workload, compare, from_encoder, make, names, optimize};
    #[pymodule_export]
    use crate::errors::{PrivacyError, VerificationError};
    #[pymodule_export]
    use crate::field::_polynomials;
    #[pymodule_export]
    use crate::key::Key;
    #[pymodule_export]
    use crate::mechanism::{Mechanism, Verified, verify_mechanism};
    #[pymodule_export]
    use crate::run::PrivateRun;
    #[pymodule_export]
    use crate::schema::Schema;
    #[pymodule_export]
    use crate::sensitivity::{Sensitivity, sensitivity};

    /// The largest number of steps of a mechanism that is a dense matrix, as the optimum is.
    #[pymodule_export]
    const MAX_DENSE_STEPS: usize = antiphon::optimize::MAX_DENSE_STEPS;

    /// The version of the package.
    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
