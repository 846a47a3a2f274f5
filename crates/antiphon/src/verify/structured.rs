//! What follows from the definition of a structured mechanism: sensitivity and error.

use super::{Check, definitions};
use crate::error::{Error, Result};
use crate::linalg::dense;
use crate::mechanism::{Factorization, Structured, sensitivity_of};
use crate::schema::Schema;
use crate::sensitivity::{self, Sensitivity};
use crate::workload::Workload;

/// Up to this many steps the matrices are written out.
pub(crate) const MAX_EXPLICIT_STEPS: usize = 2_000;
/// Most steps that are looked at: a tiny file can name any number.
const MAX_STEPS: usize = 1 << 24;
/// The largest ‖W·C − I‖ that passes for rounding.
const RESIDUAL: f64 = 1e-8;

/// Relative error allowed for rounding in ‖A·W‖²_F. An estimate: up to 2,000 steps the two ways here differ by 1e-12.
const ROUNDING: f64 = 1e-9;

/// The derived figures.
pub struct Derived {
    /// Of C.
    pub sensitivity: Sensitivity,
    /// ‖A·W‖²_F, rounded up.
    pub squared_error: f64,
    /// Whether W·C = I, and how all this was found.
    pub check: Check,
}

/// Derives the figures from the explicit matrices, or for long runs from the fast forms.
pub fn derive(structured: &Structured, schema: &Schema, workload: &Workload) -> Result<Derived> {
    if schema.steps() > MAX_STEPS {
        return Err(Error::Unsupported(format!(
            "{} steps are too many to be verified (at most {MAX_STEPS})",
            schema.steps()
        )));
    }
    let found = match schema.steps() <= MAX_EXPLICIT_STEPS {
        true => from_matrices(structured, schema, workload)?,
        false => from_formulas(structured, schema, workload)?,
    };
    Ok(Derived { squared_error: found.squared_error * (1.0 + ROUNDING), ..found }) // up
}

fn from_matrices(structured: &Structured, schema: &Schema, workload: &Workload) -> Result<Derived> {
    let n = schema.steps();
    let definitions::Explicit { encoder, noising, column_error } = definitions::explicit(structured, n)?;
    let mut sensitivity = sensitivity::sensitivity_of_encoder(&encoder, schema)?;
    // ‖CG‖ differs from that of the computed C by at most Σ‖δc_i‖ over the steps of one pattern.
    let error = schema.max_participations() as f64 * column_error;
    sensitivity.upper = (sensitivity.upper + error) * (1.0 + f64::EPSILON); // up
    sensitivity.lower = (sensitivity.lower - error).max(0.0); // down
    let norm = workload.product_norm(&noising);
    let residual = dense::squared_norm(&(&noising * &encoder - dense::identity(n))).sqrt();
    let detail = format!("‖W·C − I‖ = {residual:.1e}, from the explicit matrices");
    Ok(Derived { sensitivity, squared_error: norm * norm, check: check(structured, residual, &detail) })
}

fn from_formulas(structured: &Structured, schema: &Schema, workload: &Workload) -> Result<Derived> {
    let factorization = structured.factorization(schema.steps())?;
    // Four vectors without a pattern of their own.
    let x = dense::from_fn(schema.steps(), 4, |i, j| (i as f64 * i as f64 * 0.7 + j as f64).sin());
    let left = factorization.noise(&factorization.encode(&x)) - &x;
    let residual = (dense::squared_norm(&left) / dense::squared_norm(&x)).sqrt();
    let detail = format!("‖W·C·x − x‖ = {residual:.1e}·‖x‖ for four x, from the structured formulas");
    Ok(Derived {
        sensitivity: sensitivity_of(&factorization, schema)?,
        squared_error: factorization.variances(workload).iter().sum(),
        check: check(structured, residual, &detail),
    })
}

fn check(structured: &Structured, residual: f64, detail: &str) -> Check {
    let detail = format!("{}: {detail}", structured.describe());
    Check { name: "factorization", passed: residual <= RESIDUAL, detail }
}
