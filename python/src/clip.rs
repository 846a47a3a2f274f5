//! Sums of clipped gradients.

use crate::arrays::{Readable, Writable, slice, slice_mut};
use crate::errors::{Result, argument, whole};
use antiphon::clip as library;
use pyo3::prelude::*;

/// Clips the gradient of every example as a whole and adds them up exactly: contributions are rounded to a grid on
/// which double precision adds without rounding, and none is longer than the clip norm, in exact arithmetic. A gradient
/// with an entry that is not finite contributes zero.
///
/// >>> import numpy as np
/// >>> clip = antiphon.Clip(1.0, params=3)
/// >>> total = np.zeros(3)
/// >>> clip.add([np.array([[3.0, 0.0], [0.0, 0.1]]), np.array([[4.0], [0.0]])], total)   # two examples
/// >>> total.round(6)
/// array([0.6, 0.1, 0.8])
#[pyclass(frozen, module = "antiphon")]
pub struct Clip(library::Clip);

impl Clip {
    pub fn of(clip_norm: f64, params: usize) -> Result<Clip> {
        Ok(Clip(library::Clip::new(clip_norm, params)?))
    }
}

#[pymethods]
impl Clip {
    #[new]
    #[pyo3(signature = (clip_norm, *, params))]
    fn new(clip_norm: f64, params: i128) -> Result<Clip> {
        Clip::of(clip_norm, whole("params", params)?)
    }

    /// Adds the contributions of a batch. `gradients` has one array per parameter of the model, whose first dimension
    /// are the examples, float32 or float64 for all of them; `total` is float64 and has the parameters one after the
    /// other, row-major.
    fn add(&self, py: Python<'_>, gradients: Vec<Bound<'_, PyAny>>, total: &Bound<'_, PyAny>) -> Result<()> {
        let parts: Vec<Readable<'_>> =
            gradients.iter().map(|array| Readable::of(array, "gradients")).collect::<Result<_>>()?;
        let examples = parts.first().map_or(0, Readable::rows);
        if let Some(part) = parts.iter().find(|part| part.rows() != examples) {
            let allowed = format!("arrays of {examples} examples, as the first one is");
            return Err(argument("gradients", allowed, part.rows()));
        }
        if parts.is_empty() {
            return Err(argument("gradients", "a list of at least one array", "[]"));
        }
        let Writable::Double(mut total) = Writable::of(total, "total")? else {
            return Err(argument("total", "an array of float64", "float32"));
        };
        if parts.iter().any(|part| part.overlaps(&total)) {
            return Err(argument("total", "in memory of its own", "memory that is also in gradients"));
        }
        let total = slice_mut(&mut total);
        let (mut single, mut double) = (Vec::new(), Vec::new());
        for part in &parts {
            match part {
                Readable::Single(array) => single.push(slice(array)),
                Readable::Double(array) => double.push(slice(array)),
            }
        }
        match (single.is_empty(), double.is_empty()) {
            (_, true) => py.detach(|| self.0.add_batch(&single, examples, total))?,
            (true, false) => py.detach(|| self.0.add_batch(&double, examples, total))?,
            _ => return Err(argument("gradients", "all of float32 or all of float64", "both")),
        }
        Ok(())
    }

    /// The largest number of examples in one sum.
    #[classattr]
    const MOST_EXAMPLES: usize = library::MOST_EXAMPLES;

    /// The spacing of the grid.
    #[getter]
    fn unit(&self) -> f64 {
        self.0.unit()
    }

    /// Gradients longer than this are scaled down to it, before they are rounded to the grid: a little below the clip
    /// norm.
    #[getter]
    fn target(&self) -> f64 {
        self.0.target()
    }
}
