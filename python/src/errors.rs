//! Which exception an error is.

use antiphon::Error;
use antiphon::error::Hint;
use pyo3::exceptions::{PyFileExistsError, PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    antiphon,
    PrivacyError,
    PyRuntimeError,
    "A run was asked for something that its privacy statement does not cover. Nothing was done."
);
pyo3::create_exception!(
    antiphon,
    VerificationError,
    PyValueError,
    "A mechanism does not have what it claims."
);

/// The result of what Python calls.
pub type Result<T> = std::result::Result<T, Failure>;

/// An error of the library, or an exception that was raised on the way.
pub enum Failure {
    Ours(Error),
    Raised(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Ours(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Raised(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Ours(error) => exception(&error),
            Failure::Raised(error) => error,
        }
    }
}

/// An argument that is not what it should be: the library's wording.
pub fn argument(argument: &str, allowed: impl Into<String>, value: impl std::fmt::Display) -> Failure {
    Failure::Ours(Error::argument(argument, allowed, value))
}

/// A count that Python may give with a sign, and of any size.
pub fn whole(name: &str, value: i128) -> Result<usize> {
    i64::try_from(value)
        .ok()
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| argument(name, format!("in 0..={}", i64::MAX), value))
}

fn exception(error: &Error) -> PyErr {
    let (plain, hint) = error.parts();
    let message = match (plain, hint) {
        // Its own message has the hint.
        (Error::NoConvergence { .. }, _) | (_, None) => plain.to_string(),
        (_, Some(hint)) => format!("{plain}; {}", in_python(hint)),
    };
    match plain {
        Error::Privacy(_) => PrivacyError::new_err(message),
        Error::Verification { .. } => VerificationError::new_err(message),
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::NoConvergence { .. } | Error::Numerical(_) => PyRuntimeError::new_err(message),
        _ if hint == Some(Hint::Replace) => PyFileExistsError::new_err(message),
        // The key of another run.
        Error::File { .. } if hint == Some(Hint::ReuseKey) => PrivacyError::new_err(message),
        Error::Io { path, source } => {
            let path = path.clone().into_os_string();
            match source.raw_os_error() {
                // Python makes a FileNotFoundError, FileExistsError, PermissionError … of it.
                Some(code) => {
                    let text = source.to_string();
                    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
                    PyOSError::new_err((code, text, path))
                }
                None => PyOSError::new_err(message),
            }
        }
        Error::Argument { .. } | Error::Unsupported(_) | Error::File { .. } | Error::Hinted { .. } => {
            PyValueError::new_err(message)
        }
    }
}

/// What may help, with the names that Python has for it.
fn in_python(hint: Hint) -> String {
    match hint {
        Hint::Replace => "pass replace=True to replace it".into(),
        Hint::NotImplicit => "optimize without implicit=True".into(),
        Hint::Implicit => "pass implicit=True for the certificate and a description of linear size".into(),
        Hint::MoreIterations => "pass a larger gap or max_iterations".into(),
        Hint::LargerGap => {
            "double precision does not allow to certify more for this workload, pass a larger gap".into()
        }
        Hint::ListedSchema => {
            "use Schema.epochs or Schema.fixed_order if the data keep their order, or Schema.patterns; antiphon.make makes other mechanisms under this \
             schema (\"per-epoch\" for Schema.reshuffled)"
                .into()
        }
        other => other.to_string(),
    }
}
