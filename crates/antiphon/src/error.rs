//! The one error type of the library.
//!
//! A message about an argument names the argument, its allowed range and the
//! value it had. A message about a failure carries the evidence.

use crate::text::counted;
use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is outside its range.
    #[error("{argument} must be {allowed}, got {value}")]
    Argument {
        /// The argument as the user knows it, for example `steps_per_epoch`.
        argument: String,
        /// The allowed range in words or as an interval.
        allowed: String,
        /// The value that was given.
        value: String,
    },
    /// The request is well formed, but has no answer here; the text says why and what to do instead.
    #[error("{0}")]
    Unsupported(String),
    /// The optimizer stopped before the requested gap.
    #[error(
        "the gap reached is {gap:.3e}, above the requested {target:.3e}, after {}{hint}", counted(*iterations, "iteration")
    )]
    NoConvergence {
        /// The certified gap at the end.
        gap: f64,
        /// The gap that was asked for.
        target: f64,
        /// How many iterations ran.
        iterations: usize,
        /// What to try next, or nothing.
        hint: String,
    },
    /// A computation lost the accuracy it needs, for example a matrix that is not positive definite.
    #[error("{0}")]
    Numerical(String),
    /// The user stopped the work.
    #[error("interrupted")]
    Interrupted,
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file was read, but is not what it should be.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The library's result type.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An argument outside its range: `steps_per_epoch must be in 1..=2000, got 0`.
    pub fn argument(
        argument: impl Into<String>,
        allowed: impl Into<String>,
        value: impl std::fmt::Display,
    ) -> Self {
        Error::Argument { argument: argument.into(), allowed: allowed.into(), value: value.to_string() }
    }
}
