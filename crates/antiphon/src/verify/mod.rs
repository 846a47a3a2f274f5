//! Verification: everything a mechanism claims, derived again from the matrix and the certificate alone.
//!
//! Nothing here calls the optimizer to check the optimizer: the lower bound comes from singular values or, for long
//! runs, from determinants by stacked QR decompositions ([`lower_bound`]); the sensitivity from the stored matrix and its residual, or
//! from the definition of a structured mechanism ([`definitions`]); the loss from the product with the workload. Sensitivity and loss are rounded up, the lower bound down. Where a rounding
//! error is estimated rather than bounded, the answer is "numerically certified", and says so.

pub mod definitions;
mod examined;
mod implicit;
pub(crate) mod structured;

pub use crate::certificate::{LowerBound, lower_bound};
pub use examined::{Examined, Verified};

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::{Certificate, Claims, Mechanism, Noise, NoisingMatrix};
use crate::optimize::{self, Observer};
use crate::schema::Schema;
use crate::sensitivity::{self, Kind, Sensitivity};
use crate::workload::Workload;
use serde::Serialize;

/// A claimed loss or bound may be better than what is derived here by this much, relatively: both are rounded toward
/// caution, by different amounts. Any larger difference is a false claim. A claimed sensitivity has no such slack:
/// privacy rests on it.
const AGREEMENT: f64 = 1e-6;

/// One thing that was checked.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// A short name.
    pub name: &'static str,
    /// Whether it holds.
    pub passed: bool,
    /// The figures.
    pub detail: String,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Report {
    /// All checks, in order.
    pub checks: Vec<Check>,
    /// The bracket of the sensitivity.
    pub sensitivity: Sensitivity,
    /// sens²·‖B‖²_F, rounded up.
    pub loss: f64,
    /// No mechanism has a smaller loss. `None` where no bound could be derived.
    pub lower_bound: Option<f64>,
}

impl Report {
    /// Whether every check passed.
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }

    /// loss / lower_bound − 1.
    pub fn over_optimum(&self) -> Option<f64> {
        self.lower_bound.map(|bound| self.loss / bound - 1.0)
    }
}

/// Verifies a mechanism. One that fails is an [`Error::Verification`]; [`mechanism`] says all that was found.
pub fn verify(mechanism: Mechanism) -> Result<Verified> {
    Examined::mechanism(mechanism)?.verified()
}

/// Checks a mechanism's claims against what follows from its numbers.
pub fn mechanism(mechanism: &Mechanism) -> Result<Report> {
    let Mechanism { schema, workload, noise, certificate, claims } = mechanism;
    schema.clone().validate()?;
    if let Some(certificate) = certificate {
        certificate.check(schema)?;
    }
    if workload.steps() != schema.steps() {
        let allowed = format!("for {} steps, as the schema is", schema.steps());
        return Err(Error::argument("the workload", allowed, workload.steps()));
    }
    let mut checks = Vec::new();
    let bound_of = |certificate: &Certificate| lower_bound(schema, workload, certificate);
    let (sensitivity, loss, bound);
    match noise {
        Noise::Dense(noising) => {
            if noising.steps() != schema.steps() {
                let allowed = format!("{0}×{0}", schema.steps());
                return Err(Error::argument("the noising matrix", allowed, noising.steps()));
            }
            let found = noising.sensitivity(schema)?;
            sensitivity = found.sensitivity;
            loss = loss_of(used(claims, &sensitivity), noising.squared_error(workload));
            bound = certificate.as_ref().map(bound_of).transpose()?;
            checks.push(Check {
                name: "invertible",
                passed: true,
                detail: format!("lower triangular, finite; ‖C·C⁻¹ − I‖ ≤ {:.1e}", found.residual),
            });
        }
        Noise::Implicit { rule, squared_sensitivity } => {
            let u = certificate.as_ref().filter(|certificate| certificate.patterns.is_none());
            let u = u.ok_or_else(|| {
                let allowed = "there, for the patterns of the schema: an implicit mechanism is made of it";
                Error::argument("the certificate", allowed, "nothing")
            })?;
            let found = implicit::derive(schema, workload, u, rule)?;
            // X_N/s² has the squared sensitivity of X_N divided by the stored s².
            let scale = squared_sensitivity.sqrt();
            sensitivity = Sensitivity {
                upper: found.sensitivity.upper / scale,
                lower: found.sensitivity.lower / scale,
                ..found.sensitivity
            };
            loss = loss_of(used(claims, &sensitivity) * scale, found.squared_error);
            bound = Some(found.lower_bound);
        }
        Noise::Structured(structured) => {
            let found = structured::derive(structured, schema, workload)?;
            sensitivity = found.sensitivity;
            loss = loss_of(used(claims, &sensitivity), found.squared_error);
            bound = certificate.as_ref().map(bound_of).transpose()?;
            checks.push(found.check);
        }
    }
    checks.extend(compare(claims, &sensitivity, loss));
    checks.extend(compare_bound(claims, certificate.as_ref(), loss, bound.as_ref()));
    Ok(Report { checks, sensitivity, loss, lower_bound: bound.map(|bound| bound.value) })
}

/// The sensitivity that noise is scaled with: the claimed one, so a claim that is too large costs accuracy.
fn used(claims: &Claims, derived: &Sensitivity) -> f64 {
    claims.sensitivity.max(derived.upper)
}

/// sens²·‖B‖²_F, rounded up; infinite where it is too large or too small for its roundings to be small.
fn loss_of(sensitivity: f64, squared_error: f64) -> f64 {
    let root = sensitivity * squared_error.sqrt();
    match (1e-140..1e150).contains(&root) && (1e-290..1e290).contains(&squared_error) {
        true => root * root * (1.0 + 8.0 * f64::EPSILON), // up
        false => f64::INFINITY,
    }
}

fn compare(claims: &Claims, sensitivity: &Sensitivity, loss: f64) -> [Check; 2] {
    let slack = 1.0 + AGREEMENT;
    [
        Check {
            name: "sensitivity",
            passed: sensitivity.upper <= claims.sensitivity,
            detail: format!(
                "claimed {:?}, derived between {:?} and {:?}",
                claims.sensitivity, sensitivity.lower, sensitivity.upper
            ),
        },
        Check {
            name: "loss",
            passed: loss.is_finite() && claims.loss.is_finite() && loss <= claims.loss * slack,
            detail: format!(
                "claimed {:.9e}, derived {:.9e} (must agree to {AGREEMENT:e})",
                claims.loss, loss
            ),
        },
    ]
}

/// A bound that is claimed must be derived. Where none is claimed and none can be derived there is nothing to check.
fn compare_bound(
    claims: &Claims,
    certificate: Option<&Certificate>,
    loss: f64,
    bound: Option<&LowerBound>,
) -> Vec<Check> {
    let slack = 1.0 + AGREEMENT;
    let Some(bound) = bound else {
        let unproven = |claimed: f64| Check {
            name: "lower_bound",
            passed: false,
            detail: format!("claimed {claimed:.9e}, and there is no certificate"),
        };
        return claims.lower_bound.map(unproven).into_iter().collect();
    };
    let fewer = certificate.and_then(|certificate| certificate.patterns.as_ref());
    let of = fewer.map_or(String::new(), |patterns| {
        format!(", from patterns that the schema has: {}", patterns.describe())
    });
    let claimed = claims.lower_bound.map_or("nothing".into(), |claimed| format!("{claimed:.9e}"));
    vec![
        Check {
            name: "lower_bound",
            passed: claims.lower_bound.is_none_or(|claimed| bound.value >= claimed / slack),
            detail: format!(
                "claimed {claimed}, derived {:.9e} by {}; numerically certified{of}",
                bound.value, bound.method
            ),
        },
        Check {
            name: "consistency",
            passed: loss.is_finite() && bound.value <= loss * slack,
            detail: format!("lower bound {:.9e} ≤ loss {:.9e}", bound.value, loss),
        },
    ]
}

/// Verifies somebody else's encoder C (m×n) under a schema and a workload. The optimum it is compared with is proved
/// by a certificate that is made here (to `gap`) and then checked like any other; `observer` sees that work.
pub fn encoder(
    c: &Matrix,
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<Report> {
    let n = schema.steps();
    if c.ncols() != n || c.nrows() == 0 {
        let value = format!("{}×{}", c.nrows(), c.ncols());
        return Err(Error::argument("the matrix", format!("of {n} columns, one per step"), value));
    }
    let mut checks = Vec::new();
    let finite = dense::is_finite(c);
    checks.push(check("finite", finite, "every entry is finite", "there are NaN or infinite entries"));
    if !finite {
        let lost =
            Sensitivity { upper: f64::INFINITY, lower: 0.0, method: sensitivity::Method::AbsoluteSums };
        return Ok(Report { checks, sensitivity: lost, loss: f64::INFINITY, lower_bound: None });
    }
    let square = c.nrows() == n;
    let lower = square && (0..n).all(|j| (0..j).all(|i| c[(i, j)] == 0.0));
    checks.push(check(
        "lower triangular",
        lower,
        "row t of C⁻¹Z can be drawn at step t",
        "not square and lower triangular: the noise cannot be streamed with this matrix as it is",
    ));
    let invertible = lower && (0..n).all(|i| c[(i, i)] != 0.0);
    let sensitivity = sensitivity::sensitivity_of_encoder(c, schema)?;
    checks.push(Check {
        name: "sensitivity",
        passed: true,
        detail: format!(
            "between {:?} and {:?} ({})",
            sensitivity.lower,
            sensitivity.upper,
            if sensitivity.kind() == Kind::Exact { "exact" } else { "upper bound" }
        ),
    });
    // Any C with the same CᵀC is the same mechanism, so a matrix that is not triangular is given the triangular factor.
    let squared_error = if invertible {
        decoder_squared_error(c, workload, 0.0)
    } else {
        dense::lower_factor(c).and_then(|(factor, error)| decoder_squared_error(&factor, workload, error))
    };
    checks.push(Check {
        name: "invertible",
        passed: squared_error.is_ok(),
        detail: match &squared_error {
            Ok(_) => "CᵀC is invertible: every step gets noise".into(),
            Err(error) => error.to_string(),
        },
    });
    let loss = squared_error.map_or(f64::INFINITY, |error| loss_of(sensitivity.upper, error));
    let bound = optimum(schema, workload, gap, observer)?;
    Ok(Report { checks, sensitivity, loss, lower_bound: Some(bound.value) })
}

fn check(name: &'static str, passed: bool, yes: &str, no: &str) -> Check {
    Check { name, passed, detail: if passed { yes } else { no }.into() }
}

/// ‖A·C⁻¹‖²_F, rounded up. With CW̃ = I + E, C⁻¹ = W̃(I + E)⁻¹, so ‖AC⁻¹‖_F ≤ ‖AW̃‖_F/(1 − ‖E‖). Where C stands for another
/// matrix from which it differs by `error` in the Frobenius norm, the same argument adds `error`·‖C⁻¹‖.
fn decoder_squared_error(c: &Matrix, workload: &Workload, error: f64) -> Result<f64> {
    let noising = NoisingMatrix::new(dense::lower_inverse(c)?)?;
    let residual = dense::inverse_residual(c, noising.matrix())?;
    let distance = residual + 2.0 * error * dense::squared_norm(noising.matrix()).sqrt();
    if distance < 0.5 {
        Ok(noising.squared_error(workload) / (1.0 - distance).powi(2))
    } else {
        Err(Error::Numerical(format!(
            "CᵀC is too close to singular: the relative error may be {distance:.1e}"
        )))
    }
}

/// A proved lower bound on the loss of every mechanism for this workload and schema.
///
/// Minimum separation allows all patterns of fixed order with the same separation, so the bound for fixed order is one for it too; reshuffled
/// epochs have one of their own (`certificate::product`).
pub fn optimum(schema: &Schema, workload: &Workload, gap: f64, observer: Observer<'_>) -> Result<LowerBound> {
    let (certificate, _) = optimize::best_certificate(schema, workload, gap, observer)?;
    lower_bound(schema, workload, &certificate)
}
