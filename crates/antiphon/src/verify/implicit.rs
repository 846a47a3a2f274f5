//! The figures of an implicit mechanism: what follows from U and a quadrature rule alone.

use crate::certificate::{Determinants, LowerBound, Stacked, from_determinants};
use crate::error::{Error, Result};
use crate::linalg::dense;
use crate::linalg::quadrature::Quadrature;
use crate::mechanism::Certificate;
use crate::schema::Schema;
use crate::sensitivity::{self, Sensitivity};
use crate::workload::Workload;

/// Relative rounding error allowed for a sum of resolvents in square-root form (an estimate).
const ROUNDING: f64 = 1e-9;
/// Beyond this θ (docs/theory.md, section 8) that estimate is not believed. Of genuine mechanisms with 100,000 steps,
/// prefix sums have 5e-7, momentum 0.95 with a cooldown 1.6e-5.
const WORST_CONDITIONING: f64 = 1e-2;

/// The derived figures.
pub struct Implicit {
    /// Of X_N(U).
    pub sensitivity: Sensitivity,
    /// tr(V·X_N⁻¹), rounded up.
    pub squared_error: f64,
    /// From U.
    pub lower_bound: LowerBound,
}

/// Derives the figures of X_N(U) = Σ w_j (V⁻¹ + τ_j U)⁻¹.
pub fn derive(
    schema: &Schema,
    workload: &Workload,
    certificate: &Certificate,
    rule: &Quadrature,
) -> Result<Implicit> {
    rule.check()?;
    let stacked = Stacked::new(schema, workload, certificate).ok_or_else(|| {
        Error::Unsupported("an implicit mechanism needs a prefix-sum, momentum or learning-rate workload under fixed epoch order, with \
             momentum one whose rates rise at most a thousandfold: anything else cannot be verified"
                .into())
    })?;
    let determinants = Determinants::new(&stacked);
    let mut conditioning = rule.nodes.iter().map(|node| determinants.conditioning(*node));
    // A NaN is refused too.
    if let Some(worst) = conditioning.find(|theta| !(0.0..=WORST_CONDITIONING).contains(theta)) {
        return Err(Error::Numerical(format!(
            "the certificate is too badly conditioned for the sensitivity of an implicit mechanism: rounding errors could be {worst:.1e} of the \
             result, at most {WORST_CONDITIONING:e} is accepted"
        )));
    }
    let blocks = stacked.blocks(rule)?;
    let (a, absolute) = stacked.trace(&blocks);
    // tr(V·X_N⁻¹) = Σ σ/h ≤ a/bottom and a ≤ a_N/bottom, if h ≥ bottom on the spectrum.
    let (low, high) = stacked.spectrum();
    let bottom = rule.infimum(low, high, 1e-9);
    // Up: every entry of X, and so every term of a, may be off by the allowance.
    let squared_error =
        if bottom > 0.0 { (a + ROUNDING * absolute) / (bottom * bottom) } else { f64::INFINITY };
    let mut found = Sensitivity { upper: 0.0, lower: 0.0, method: sensitivity::Method::NonNegative };
    for block in &blocks {
        let mut block = block.clone();
        dense::symmetrize(&mut block);
        let bounds = sensitivity::pattern_squared(&block, 1e-9)?;
        if bounds.upper.sqrt() > found.upper {
            found.upper = bounds.upper.sqrt();
            found.method = bounds.method;
        }
        found.lower = found.lower.max(bounds.lower.sqrt());
    }
    found.upper *= 1.0 + ROUNDING; // up
    found.lower *= 1.0 - ROUNDING; // down
    Ok(Implicit { sensitivity: found, squared_error, lower_bound: from_determinants(&stacked, certificate)? })
}
