//! Correlated-noise mechanisms for differentially private training: designed, proved, checked.
//!
//! Training adds noise to clipped gradients. If the noise of step t is row t of C⁻¹Z instead of fresh, the whole run is
//! one Gaussian mechanism, and the matrix C decides how much noise reaches the model. This library finds the best C for
//! a training run and proves that it is.
//!
//! ```
//! use antiphon::optimize::{Params, optimize};
//! use antiphon::schema::Schema;
//! use antiphon::verify;
//! use antiphon::workload::Workload;
//!
//! # fn main() -> antiphon::Result<()> {
//! // Who takes part when: 4 epochs of 25 steps, in the same order every time.
//! let schema = Schema::epochs(4, 25)?;
//! // What the model does with the gradients: SGD with momentum.
//! let workload = Workload::training(schema.steps(), 0.9, None)?;
//! // The optimum, and how far from it we can be at most.
//! let optimized = optimize(&schema, &workload, &Params::default(), &|_| true)?;
//! assert!(optimized.mechanism.claims().gap() <= 1e-3);
//! // Somebody else derives all of this again.
//! let verified = verify::verify(optimized.mechanism)?;
//! assert!(verified.sensitivity() <= 1.0 + 1e-6);
//! # Ok(())
//! # }
//! ```
//!
//! The rooms: [`schema`] and [`workload`] say what a run is; [`optimize`](mod@optimize) makes the best [`mechanism`],
//! [`make`] any other, and [`plan`] compares them; [`mod@file`] keeps one; [`mod@verify`] distrusts it; [`sensitivity`]
//! examines any matrix; [`accounting`] says what noise a privacy level needs, and [`noise`] draws it. [`run`] puts them together: a
//! [`PrivateRun`](run::PrivateRun) is what training works with, and a [`statement`] says what its ε means. The mathematics is in
//! `docs/theory.md` of the repository, the words and letters in `NOTATION.md`.

pub mod accounting;
pub mod atomic;
pub mod certificate;
pub mod clip;
pub mod error;
pub mod families;
pub mod file;
pub mod linalg;
pub mod make;
pub mod mechanism;
pub mod noise;
pub mod npy;
pub mod optimize;
pub mod plan;
pub mod run;
pub mod schema;
pub mod sensitivity;
pub mod statement;
pub mod tensors;
#[cfg(test)]
mod testing;
pub mod text;
pub mod verify;
pub mod workload;

pub use error::{Error, Result};
