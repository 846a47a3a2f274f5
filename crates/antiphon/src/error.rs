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
        "the gap reached is {gap:.3e}, above the requested {target:.3e}, after {}; {hint}", counted(*iterations, "iteration")
    )]
    NoConvergence {
        /// The certified gap at the end.
        gap: f64,
        /// The gap that was asked for.
        target: f64,
        /// How many iterations ran.
        iterations: usize,
        /// What to try next.
        hint: Hint,
    },
    /// A computation lost the accuracy it needs, for example a matrix that is not positive definite.
    #[error("{0}")]
    Numerical(String),
    /// A mechanism does not have what it claims.
    #[error("the mechanism fails verification ({check}: {detail})")]
    Verification {
        /// The check that failed.
        check: &'static str,
        /// Its figures.
        detail: String,
    },
    /// A run was asked for something that its privacy statement does not cover. Nothing was done.
    #[error("{0}")]
    Privacy(String),
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
    /// An error, and what may help.
    #[error("{error}; {hint}")]
    Hinted {
        /// What went wrong.
        error: Box<Error>,
        /// What to try.
        hint: Hint,
    },
}

/// What may help against an error. The words here are for those who call the library; a program says it in its own, with the names of
/// its flags or arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The file may be replaced, if that is asked for.
    Replace,
    /// A new key may replace the one that is there; or it may be named, for more noise of the same run.
    ReplaceKey,
    /// The run may be resumed, or begun elsewhere.
    Resume,
    /// The key may be used again, if no other noise of it is used.
    ReuseKey,
    /// A dense mechanism has what an implicit one lacks.
    NotImplicit,
    /// An implicit mechanism has no such limit.
    Implicit,
    /// A larger gap, or more iterations.
    MoreIterations,
    /// A larger gap.
    LargerGap,
    /// Another schema: fixed epoch order, or a list of patterns.
    ListedSchema,
    /// A folder for data has to be named.
    DataFolder,
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Hint::Replace => "it is replaced only if that is asked for",
            Hint::ReplaceKey => "remove the file, or ask for a new key; for more noise of the same run, name this key file",
            Hint::Resume => "resume it, or use another folder for a new run",
            Hint::ReuseKey => {
                "use another key, or allow to use this one again if no other noise of it was or will be used in training"
            }
            Hint::NotImplicit => "make a dense mechanism instead",
            Hint::Implicit => "an implicit mechanism has the certificate and a description of linear size",
            Hint::MoreIterations => "try a larger gap or more iterations",
            Hint::LargerGap => {
                "double precision does not allow to certify more for this workload, try a larger gap"
            }
            Hint::ListedSchema => {
                "use fixed epoch order if the data keep their order, or an explicit list of patterns; other mechanisms can be made under this schema"
            }
            Hint::DataFolder => "name one, or set ANTIPHON_DATA",
        })
    }
}

/// The library's result type.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The same with what may help.
    pub fn with(self, hint: Hint) -> Error {
        Error::Hinted { error: Box::new(self), hint }
    }

    /// The error without the hint, and the hint.
    pub fn parts(&self) -> (&Error, Option<Hint>) {
        match self {
            Error::Hinted { error, hint } => (error, Some(*hint)),
            Error::NoConvergence { hint, .. } => (self, Some(*hint)),
            plain => (plain, None),
        }
    }

    /// Whether the error is about one mechanism or one bound only, so that others can still be made.
    pub fn concerns_one(&self) -> bool {
        matches!(self.parts().0, Error::Unsupported(_) | Error::NoConvergence { .. } | Error::Numerical(_))
    }

    /// An argument outside its range: `steps_per_epoch must be in 1..=2000, got 0`.
    pub fn argument(
        argument: impl Into<String>,
        allowed: impl Into<String>,
        value: impl std::fmt::Display,
    ) -> Self {
        Error::Argument { argument: argument.into(), allowed: allowed.into(), value: value.to_string() }
    }
}
