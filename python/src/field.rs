//! What a device needs to draw the same normals: the layout is in the documentation of `antiphon::noise`.

use antiphon::noise::polynomials::{COS_F32, LOG_F32, SIN_F32};
use pyo3::prelude::*;

/// The coefficients of the transform for float32, lowest first: of the logarithm, the sine and the cosine.
#[pyfunction]
pub fn _polynomials() -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    (LOG_F32.to_vec(), SIN_F32.to_vec(), COS_F32.to_vec())
}
