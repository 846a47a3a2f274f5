//! The sensitivity of a mechanism for the patterns that happened, derived as [`verify`](crate::verify) derives that of a schema.

use super::Worst;
use super::participations::Grouped;
use crate::error::{Error, Result};
use crate::mechanism::{Factorization, Mechanism, Noise, NoisingMatrix, Structured};
use crate::sensitivity::{
    Entries, Largest, Listed, Method, Sensitivity, largest_of_encoder, largest_of_entries,
};
use crate::verify::definitions::{self, Explicit};
use crate::verify::structured::MAX_EXPLICIT_STEPS;

/// Refuses mechanisms that no run can have used.
pub(super) fn check(mechanism: &Mechanism) -> Result<()> {
    match mechanism.noise {
        Noise::Implicit { .. } => Err(Error::Unsupported(
            "the mechanism is implicit: no noise can be drawn from it, so no run can have used it".into(),
        )),
        _ => Ok(()),
    }
}

/// The largest sensitivity of all patterns in the log, and who has it.
pub(super) fn sensitivity(
    mechanism: &Mechanism,
    grouped: &Grouped<'_>,
) -> Result<(Sensitivity, Option<Worst>)> {
    check(mechanism)?;
    if grouped.patterns() == 0 {
        return Ok((Sensitivity { upper: 0.0, lower: 0.0, method: Method::NonNegative }, None));
    }
    let get = |number: usize| grouped.steps(number);
    let patterns = Listed { count: grouped.patterns(), steps: grouped.lengths().sum(), get: &get };
    let longest = grouped.lengths().max().unwrap_or(0);
    let found = match &mechanism.noise {
        Noise::Dense(noising) => of_inverse(noising, patterns)?,
        Noise::Structured(structured) => {
            of_structured(structured, mechanism.schema.steps(), patterns, longest)?
        }
        Noise::Implicit { .. } => unreachable!("refused by `check`"),
    };
    let worst = Worst { unit: grouped.first_unit(found.pattern), steps: grouped.steps(found.pattern) };
    Ok((found.sensitivity, Some(worst)))
}

/// Of C = W⁻¹, which the computed inverse only approximates: as in [`NoisingMatrix::sensitivity_with`].
fn of_inverse(noising: &NoisingMatrix, patterns: Listed<'_>) -> Result<Largest> {
    let encoder = noising.encoder()?;
    let residual = noising.inverse()?.residual;
    let mut found = largest_of_encoder(&encoder, patterns)?;
    found.sensitivity.upper /= 1.0 - residual; // up: the exact inverse may be larger
    found.sensitivity.lower /= 1.0 + residual; // down
    Ok(found)
}

/// Of a mechanism from a formula: from the explicit matrix, or for long runs from the fast form.
fn of_structured(
    structured: &Structured,
    steps: usize,
    patterns: Listed<'_>,
    longest: usize,
) -> Result<Largest> {
    if steps > MAX_EXPLICIT_STEPS {
        let factorization = structured.factorization(steps)?;
        let entry = |i: usize, j: usize| factorization.gram(i, j);
        let entries = Entries { entry: &entry, error: factorization.gram_error(), blocks: None };
        return largest_of_entries(entries, steps, patterns);
    }
    let Explicit { encoder, column_error, .. } = definitions::explicit(structured, steps)?;
    let mut found = largest_of_encoder(&encoder, patterns)?;
    // ‖CG‖ differs from that of the computed C by at most Σ‖δc_i‖ over the steps of one pattern.
    let error = longest as f64 * column_error;
    let sensitivity = &mut found.sensitivity;
    sensitivity.upper = (sensitivity.upper + error) * (1.0 + f64::EPSILON); // up
    sensitivity.lower = (sensitivity.lower - error).max(0.0); // down
    Ok(found)
}
