//! The sensitivity of any matrix.

use crate::arrays::to_matrix;
use crate::errors::Result;
use crate::mechanism::{Mechanism, Verified};
use crate::schema::Schema;
use antiphon::sensitivity::{self as library, Kind, WorstCase};
use pyo3::prelude::*;

/// A sensitivity: the largest change of C·G when the contributions of one example, vectors of norm at most one, are
/// set to zero. `float()` of it is the upper end.
#[pyclass(frozen, module = "antiphon")]
pub struct Sensitivity {
    /// Never below the truth: scale noise with it.
    #[pyo3(get)]
    upper: f64,
    /// Never above the truth: some example reaches it.
    #[pyo3(get)]
    lower: f64,
    /// Whether both ends agree, to 1e-8.
    #[pyo3(get)]
    exact: bool,
    /// Steps of an example that reaches the lower end.
    #[pyo3(get)]
    worst_pattern: Option<Vec<usize>>,
    /// How the upper end was found.
    #[pyo3(get)]
    method: &'static str,
}

impl From<WorstCase> for Sensitivity {
    fn from(found: WorstCase) -> Sensitivity {
        let library::Sensitivity { upper, lower, method } = found.sensitivity;
        let exact = found.sensitivity.kind() == Kind::Exact;
        Sensitivity { upper, lower, exact, worst_pattern: found.pattern, method: method.describe() }
    }
}

#[pymethods]
impl Sensitivity {
    fn __float__(&self) -> f64 {
        self.upper
    }

    fn __repr__(&self) -> String {
        match self.exact {
            true => format!("Sensitivity({}, exact)", self.upper),
            false => format!("Sensitivity(between {} and {}; use the upper end)", self.lower, self.upper),
        }
    }
}

/// The sensitivity of an encoder matrix C (or, with gram=True, of X = CᵀC) or of a mechanism under a participation
/// schema, for contributions of norm at most one.
///
/// >>> import numpy as np
/// >>> antiphon.sensitivity(np.eye(6), antiphon.Schema.epochs(3, 2)).upper   # √3: three participations
/// 1.732050807568...
#[pyfunction]
#[pyo3(signature = (matrix, schema=None, *, gram=false))]
pub fn sensitivity(
    py: Python<'_>,
    matrix: &Bound<'_, PyAny>,
    schema: Option<Schema>,
    gram: bool,
) -> Result<Sensitivity> {
    let mechanism = match matrix.cast::<Mechanism>() {
        Ok(mechanism) => Some(mechanism.get().shared()),
        Err(_) => matrix.cast::<Verified>().ok().map(|verified| verified.get().mechanism().shared()),
    };
    if let Some(mechanism) = mechanism {
        let schema = schema.map_or_else(|| mechanism.schema().clone(), |schema| schema.0);
        return Ok(py.detach(|| mechanism.worst_case(&schema))?.into());
    }
    let schema = schema.ok_or_else(|| {
        crate::errors::argument("schema", "given for a matrix, such as Schema.epochs(20, 100)", "nothing")
    })?;
    let m = to_matrix(matrix, "matrix")?;
    let found = py.detach(|| match gram {
        true => library::worst_case_of_gram(&m, &schema.0),
        false => library::worst_case_of_encoder(&m, &schema.0),
    })?;
    Ok(found.into())
}
