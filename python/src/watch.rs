//! Progress of long work, and Ctrl-C.

use crate::errors::{Failure, Result};
use antiphon::Error;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The interpreter is asked about signals, and told of progress, so often.
const EVERY: Duration = Duration::from_millis(50);

/// Asks the interpreter now and then whether to go on.
pub struct Watch {
    tell: Option<Py<PyAny>>,
    last: Cell<Option<Instant>>,
    raised: RefCell<Option<PyErr>>,
}

impl Watch {
    /// `tell` is called with words.
    pub fn new(tell: Option<Py<PyAny>>) -> Watch {
        Watch { tell, last: Cell::new(None), raised: RefCell::new(None) }
    }

    /// Whether to go on.
    pub fn go_on(&self, words: impl FnOnce() -> String) -> bool {
        if self.last.get().is_some_and(|last| last.elapsed() < EVERY) {
            return true;
        }
        self.last.set(Some(Instant::now()));
        let asked = Python::attach(|py| -> PyResult<()> {
            py.check_signals()?;
            if let Some(tell) = &self.tell {
                tell.call1(py, (words(),))?;
            }
            Ok(())
        });
        match asked {
            Ok(()) => true,
            Err(error) => {
                self.raised.replace(Some(error));
                false
            }
        }
    }

    /// What came of the work: what was raised meanwhile goes before.
    pub fn finish<T>(self, result: antiphon::Result<T>) -> Result<T> {
        match (self.raised.into_inner(), result) {
            (Some(raised), Err(Error::Interrupted)) => Err(Failure::Raised(raised)),
            (_, result) => Ok(result?),
        }
    }
}

/// The optimizer's progress in words.
pub fn optimizing(progress: &antiphon::optimize::Progress) -> String {
    use antiphon::optimize::Phase;
    match progress.phase {
        Phase::Iterating => format!("iteration {}, gap {:.2e}", progress.iteration, progress.gap()),
        Phase::Forming => "forming matrices".into(),
        Phase::Certifying => "certifying".into(),
        Phase::Designing if progress.loss.is_finite() => {
            format!("designing, {:.2} % above the best possible", 100.0 * progress.gap())
        }
        Phase::Designing => "designing for shorter epochs first".into(),
    }
}
