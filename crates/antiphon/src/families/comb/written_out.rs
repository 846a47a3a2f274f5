//! The sensitivity of a comb under a schema that it was not made for: no rule is known, so C is written out.

use super::definition;
use super::shape::Comb;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::sensitivity::{self, WorstCase};
use crate::text::counted;

/// Most steps for which C and W are written out: 128 MiB each.
const LARGEST: usize = 4096;

/// From the definition, with its rounding errors. Refused where the matrices would be too large.
pub fn worst_case(comb: &Comb, schema: &Schema) -> Result<WorstCase> {
    if comb.steps > LARGEST {
        return Err(Error::Unsupported(format!(
            "this mechanism is made for a fixed order with {} per epoch; its sensitivity for another schema ({}) needs n×n matrices, \
             which are too large for {} steps (at most {LARGEST})",
            counted(comb.period, "step"),
            schema.name(),
            comb.steps
        )));
    }
    let explicit = definition::explicit(comb)?;
    let mut found = sensitivity::worst_case_of_encoder(&explicit.encoder, schema)?;
    // ‖CG‖ differs from that of the computed C by at most Σ‖δc_i‖ over the steps of one pattern.
    let error = schema.max_participations() as f64 * explicit.column_error;
    let bracket = &mut found.sensitivity;
    bracket.upper = (bracket.upper + error) * (1.0 + f64::EPSILON); // up
    bracket.lower = (bracket.lower - error).max(0.0); // down
    Ok(found)
}
