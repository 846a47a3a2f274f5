//! Mechanisms, and what verifying them finds.

use crate::arrays::to_numpy;
use crate::errors::{Failure, Result, VerificationError, argument};
use crate::schema::Schema;
use antiphon::file;
use antiphon::mechanism::{self as library, Which};
use antiphon::verify::{self, Examined};
use numpy::PyArray2;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A correlated-noise mechanism with its proof: what `optimize` and `make` give, and a file keeps.
///
/// The noise of step t is row t of Cinv·Z, times the standard deviation that a PrivateRun computes. The figures here are
/// claims; `verify` and PrivateRun derive them again.
#[pyclass(frozen, module = "antiphon")]
pub struct Mechanism {
    inner: Arc<library::Mechanism>,
    /// Verified once per object.
    verified: OnceLock<verify::Verified>,
}

impl Mechanism {
    pub fn of(mechanism: library::Mechanism) -> Mechanism {
        Mechanism { inner: Arc::new(mechanism), verified: OnceLock::new() }
    }

    pub fn shared(&self) -> Arc<library::Mechanism> {
        self.inner.clone()
    }

    fn verified(&self, py: Python<'_>) -> Result<verify::Verified> {
        if let Some(verified) = self.verified.get() {
            return Ok(verified.clone());
        }
        let mechanism = library::Mechanism::clone(&self.inner);
        let examined = py.detach(|| Examined::mechanism(mechanism))?;
        match examined.verified() {
            Ok(verified) => Ok(self.verified.get_or_init(|| verified).clone()),
            Err(error) => {
                let raised = VerificationError::new_err(error.to_string());
                raised.value(py).setattr("checks", checks(examined.report()))?;
                Err(Failure::Raised(raised))
            }
        }
    }

    fn matrix<'py>(&self, py: Python<'py>, which: Which) -> Result<Bound<'py, PyArray2<f64>>> {
        let matrix = py.detach(|| self.inner.matrix(which))?;
        Ok(to_numpy(py, &matrix))
    }
}

type Checks = Vec<(&'static str, bool, String)>;

fn checks(report: &verify::Report) -> Checks {
    report.checks.iter().map(|check| (check.name, check.passed, check.detail.clone())).collect()
}

/// The mechanism that is named: an object, or a file.
pub fn named<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, Mechanism>> {
    if let Ok(mechanism) = value.cast::<Mechanism>() {
        return Ok(mechanism.clone());
    }
    if let Ok(verified) = value.cast::<Verified>() {
        return Ok(verified.get().mechanism.bind(value.py()).clone());
    }
    match value.extract::<PathBuf>() {
        Ok(path) => {
            let read = value.py().detach(|| file::read(&path))?;
            Ok(Bound::new(value.py(), Mechanism::of(read))?)
        }
        Err(_) => {
            let allowed = "an antiphon.Mechanism or the path of a mechanism file";
            Err(argument("mechanism", allowed, crate::arrays::described(value)))
        }
    }
}

/// The same, verified.
pub fn verified(value: &Bound<'_, PyAny>) -> Result<verify::Verified> {
    named(value)?.get().verified(value.py())
}

#[pymethods]
impl Mechanism {
    /// Reads a mechanism file. Nothing in it is believed before it is verified.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> Result<Mechanism> {
        Ok(Mechanism::of(py.detach(|| file::read(&path))?))
    }

    /// Writes a mechanism file, whole or not at all.
    #[pyo3(signature = (path, *, replace=false))]
    fn save(&self, py: Python<'_>, path: PathBuf, replace: bool) -> Result<()> {
        Ok(py.detach(|| file::write(&path, &self.inner, replace))?)
    }

    /// The name of the mechanism: a hash of what it is.
    #[getter]
    fn id(&self) -> String {
        file::id(&self.inner)
    }

    /// "dense", "structured" or "implicit".
    #[getter]
    fn kind(&self) -> &'static str {
        self.inner.noise().kind()
    }

    /// Who may take part when.
    #[getter]
    fn schema(&self) -> Schema {
        Schema(self.inner.schema().clone())
    }

    /// The number of steps.
    #[getter]
    fn steps(&self) -> usize {
        self.inner.steps()
    }

    /// The workload in words.
    #[getter]
    fn workload(&self) -> String {
        self.inner.workload().describe()
    }

    /// The total squared error of all iterates, per coordinate, at noise multiplier 1 and clip norm 1.
    #[getter]
    fn loss(&self) -> f64 {
        self.inner.claims().loss
    }

    /// No mechanism has a smaller loss; None where no bound is known.
    #[getter]
    fn lower_bound(&self) -> Option<f64> {
        self.inner.claims().lower_bound
    }

    /// How far the loss can be above the best possible: loss / lower_bound − 1. None where no bound is known.
    #[getter]
    fn gap(&self) -> Option<f64> {
        self.lower_bound().map(|_| self.inner.claims().gap())
    }

    /// Rows of noise that are kept between steps, where the mechanism has buffers ("comb-blt", "blt"); otherwise None.
    #[getter]
    fn buffers(&self) -> Option<usize> {
        match self.inner.noise() {
            library::Noise::Structured(structured) => structured.buffers(),
            _ => None,
        }
    }

    /// √(loss / steps): the error of one iterate.
    #[getter]
    fn rmse(&self) -> f64 {
        self.inner.claims().rmse(self.inner.steps())
    }

    /// An upper bound on the sensitivity for contributions of norm one.
    #[getter]
    fn sensitivity(&self) -> f64 {
        self.inner.claims().sensitivity
    }

    /// The encoder. Trees and FFT have one with more rows than columns.
    #[getter(C)]
    fn encoder<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArray2<f64>>> {
        self.matrix(py, Which::C)
    }

    /// The noising matrix: the inverse of C, or the W with W·C = I where C is not square.
    #[getter(Cinv)]
    fn noising<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArray2<f64>>> {
        self.matrix(py, Which::Cinv)
    }

    /// The decoder A·Cinv.
    #[getter(B)]
    fn decoder<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArray2<f64>>> {
        self.matrix(py, Which::B)
    }

    /// The gram matrix CᵀC.
    #[getter(X)]
    fn gram<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArray2<f64>>> {
        self.matrix(py, Which::X)
    }

    fn __repr__(&self) -> String {
        let distance = match self.gap() {
            Some(gap) => {
                format!(", at most {:.3}% above the least possible loss", (100.0 * gap + 0.0005).max(0.001))
            }
            None => String::new(),
        };
        format!(
            "Mechanism({}, {}; {}; rmse {:.5}{distance})",
            self.kind(),
            self.inner.schema().describe(),
            self.workload(),
            self.rmse()
        )
    }
}

/// A mechanism that passed every check: its figures are derived, not claimed.
#[pyclass(frozen, module = "antiphon")]
pub struct Verified {
    mechanism: Py<Mechanism>,
    verified: verify::Verified,
}

impl Verified {
    pub fn mechanism(&self) -> &Mechanism {
        self.mechanism.get()
    }
}

#[pymethods]
impl Verified {
    /// The mechanism.
    #[getter(mechanism)]
    fn its_mechanism(&self, py: Python<'_>) -> Py<Mechanism> {
        self.mechanism.clone_ref(py)
    }

    /// The name of the mechanism.
    #[getter]
    fn id(&self) -> String {
        self.verified.id()
    }

    /// An upper bound on the sensitivity for contributions of norm one.
    #[getter]
    fn sensitivity(&self) -> f64 {
        self.verified.sensitivity()
    }

    /// The total squared error, rounded up.
    #[getter]
    fn loss(&self) -> f64 {
        self.verified.report().loss
    }

    /// No mechanism has a smaller loss; None where no bound could be derived.
    #[getter]
    fn lower_bound(&self) -> Option<f64> {
        self.verified.report().lower_bound
    }

    /// loss / lower_bound − 1.
    #[getter]
    fn over_optimum(&self) -> Option<f64> {
        self.verified.report().over_optimum()
    }

    /// All checks: name, whether it holds, and its figures.
    #[getter]
    fn checks(&self) -> Checks {
        checks(self.verified.report())
    }

    fn __repr__(&self) -> String {
        let checks = self.verified.report().checks.len();
        format!("Verified({checks} checks passed, sensitivity at most {})", self.verified.sensitivity())
    }
}

/// Derives again everything that a mechanism (an object or a file) claims. Raises VerificationError, with the list
/// `checks`, if something does not hold.
///
/// >>> mechanism = antiphon.make("tree-online", antiphon.Schema.epochs(2, 8))
/// >>> antiphon.verify(mechanism).sensitivity <= mechanism.sensitivity
/// True
#[pyfunction]
#[pyo3(name = "verify")]
pub fn verify_mechanism(mechanism: &Bound<'_, PyAny>) -> Result<Verified> {
    let mechanism = named(mechanism)?;
    let verified = mechanism.get().verified(mechanism.py())?;
    Ok(Verified { mechanism: mechanism.unbind(), verified })
}
