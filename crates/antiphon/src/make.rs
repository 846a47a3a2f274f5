//! A mechanism of any family, for one training run.
//!
//! Each gets the figures that hold for it under the schema and the workload, and the certificate of the optimum where there is one: so
//! its file proves how far it is from the best.

use crate::error::{Error, Result};
use crate::linalg::dense::Matrix;
use crate::mechanism::family::{Designed, Run};
use crate::mechanism::{
    Certificate, Claims, Cost, Factorization, Family, Mechanism, Noise, NoisingMatrix, Structured,
    sensitivity_of,
};
use crate::optimize::{self, Observer};
use crate::schema::Schema;
use crate::sensitivity::{Kind, Sensitivity};
use crate::text::counted;
use crate::verify;
use crate::workload::Workload;

/// How much more sensitivity is claimed than is derived here, relatively. `verify` derives it in another way and must
/// find no more than the claim. Both upper ends lie within the width of their own bracket above the truth: 1e-9 where
/// an elliptope decides, rounding included less than 2e-9 over all that was tried (tests/make.rs).
const ALLOWANCE: f64 = 1e-8;
/// The same where the upper end is a bound whose search may end elsewhere on another machine. It costs accuracy of a claim and no noise: noise
/// is scaled with what `verify` derives.
const ALLOWANCE_OF_BOUNDS: f64 = 1e-4;
/// How much more loss is claimed, relatively, for rounding errors of the fast forms.
const LOSS_ROUNDING: f64 = 1e-8;

/// A mechanism of a family for a run, with its figures and, where there is one, the proof of how far from the optimum it is.
pub fn make(family: Family, run: &Run<'_>) -> Result<Mechanism> {
    Ok(finish(checked_design(family, run)?, run)?.mechanism)
}

/// What a family designs for a run, after a look at what the run asks for.
pub fn checked_design(family: Family, run: &Run<'_>) -> Result<Designed> {
    check(run)?;
    family.check(run)?;
    family.design(run)
}

/// A mechanism, and what is known of its sensitivity beside the claim.
#[derive(Debug, Clone)]
pub struct Made {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The bracket; `None` where the optimizer made the mechanism and its sensitivity.
    pub sensitivity: Option<Sensitivity>,
    /// What it takes to draw the noise; `None` where no noise can be drawn.
    pub cost: Option<Cost>,
}

/// What a family designed for a run, with figures and proof.
pub fn finish(designed: Designed, run: &Run<'_>) -> Result<Made> {
    match designed {
        Designed::Mechanism(mechanism) => {
            let dense = matches!(mechanism.noise, Noise::Dense(_));
            let cost = dense.then(|| Cost::dense(run.schema.steps()));
            Ok(Made { mechanism: *mechanism, sensitivity: None, cost })
        }
        Designed::Noise(noise) => with_figures(noise, certificate(run)?, run),
        Designed::Proven(noise, certificate, bound) => with_figures(noise, Some((certificate, bound)), run),
    }
}

fn check(run: &Run<'_>) -> Result<()> {
    let steps = run.schema.steps();
    if run.workload.steps() != steps {
        let allowed = format!("for {}, as the schema is", counted(steps, "step"));
        return Err(Error::argument("the workload", allowed, counted(run.workload.steps(), "step")));
    }
    // Two searches with different ranges; the narrower one is for all.
    if !(1e-6..=1.0).contains(&run.gap) {
        return Err(Error::argument("gap", "in [1e-6, 1]", run.gap));
    }
    Ok(())
}

/// A mechanism that is described already, with the figures that it has under a schema.
pub fn structured(
    structured: Structured,
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<Mechanism> {
    let run = Run { gap, ..Run::new(schema, workload, observer) };
    check(&run)?;
    structured.check(schema.steps())?;
    Ok(with_figures(Noise::Structured(structured), certificate(&run)?, &run)?.mechanism)
}

/// Any noising matrix as a mechanism, with the figures that it has under a schema.
pub fn dense(
    noising: NoisingMatrix,
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<Mechanism> {
    if noising.steps() != schema.steps() {
        let allowed = format!("of {} steps, as the schema has", schema.steps());
        return Err(Error::argument("the noising matrix", allowed, noising.steps()));
    }
    let run = Run { gap, ..Run::new(schema, workload, observer) };
    check(&run)?;
    Ok(with_figures(Noise::Dense(noising), certificate(&run)?, &run)?.mechanism)
}

/// An encoder that somebody has, for a run that it need not have been made for, with its optimal decoder. `stamps`: as many as the run
/// needs, if nothing is said.
pub fn from_encoder(encoder: &Matrix, stamps: Option<usize>, run: &Run<'_>) -> Result<Made> {
    let (steps, columns) = (run.schema.steps(), encoder.ncols());
    let stamps = match stamps {
        Some(stamps) => stamps,
        None if columns > 0 && steps.is_multiple_of(columns) => steps / columns,
        None => {
            let allowed = format!(
                "a matrix whose number of columns divides the {}, or stamps to be given",
                counted(steps, "step")
            );
            return Err(Error::argument("the encoder", allowed, format!("{}×{columns}", encoder.nrows())));
        }
    };
    let run = Run { stamps, encoder: Some(encoder), ..*run };
    finish(checked_design(crate::families::FROM, &run)?, &run)
}

fn with_figures(noise: Noise, proof: Option<(Certificate, f64)>, run: &Run<'_>) -> Result<Made> {
    let Run { schema, workload, .. } = *run;
    let (found, sensitivity, squared_error, cost) = match &noise {
        Noise::Dense(noising) => {
            let found = noising.sensitivity(schema)?;
            // Up: whoever inverts the stored matrix in another way gets another residual and must still find the claim true.
            let sensitivity = claimed(&found.sensitivity) * (1.0 + 4.0 * found.residual);
            (found.sensitivity, sensitivity, noising.squared_error(workload), Cost::dense(schema.steps()))
        }
        Noise::Structured(structured) => {
            let factorization = structured.factorization(schema.steps())?;
            let found = sensitivity_of(&factorization, schema)?;
            let mut sensitivity = claimed(&found);
            let mut squared_error: f64 = factorization.variances(workload).iter().sum();
            // Bounds of the same matrix by two ways may differ by more than rounding, and so may a fast rule and the matrices that parameters
            // stand for: whatever is larger is claimed. Of many steps `verify` writes no matrices out, and finds what was found here.
            let explicit = schema.steps() <= verify::structured::MAX_EXPLICIT_STEPS;
            if !schema.is_listed() || (explicit && !structured.parameters.is_empty()) {
                let derived = verify::structured::derive(structured, schema, workload)?;
                if !derived.check.passed {
                    return Err(Error::Numerical(format!(
                        "the mechanism for this run is too ill-conditioned to be verified ({}): are the learning rates many decades apart?",
                        derived.check.detail
                    )));
                }
                sensitivity = sensitivity.max(claimed(&derived.sensitivity));
                squared_error = squared_error.max(derived.squared_error);
            }
            (found, sensitivity, squared_error, factorization.cost())
        }
        Noise::Implicit { .. } => {
            return Err(Error::Unsupported(
                "an implicit mechanism has its figures from the optimizer alone".into(),
            ));
        }
    };
    let loss = sensitivity * sensitivity * squared_error * (1.0 + LOSS_ROUNDING); // up
    let (certificate, lower_bound) = proof.unzip();
    let claims = Claims { loss, lower_bound, sensitivity };
    let mechanism =
        Mechanism { schema: schema.clone(), workload: workload.clone(), noise, certificate, claims };
    Ok(Made { mechanism, sensitivity: Some(found), cost: Some(cost) })
}

fn claimed(found: &Sensitivity) -> f64 {
    let allowance = if found.kind() == Kind::Exact { ALLOWANCE } else { ALLOWANCE_OF_BOUNDS };
    found.upper * (1.0 + allowance) // up
}

/// The best certificate that is known, and what it proves. Where the patterns of a schema cannot be listed, there may be none.
fn certificate(run: &Run<'_>) -> Result<Option<(Certificate, f64)>> {
    if run.without_bound {
        return Ok(None);
    }
    match optimize::best_certificate(run.schema, run.workload, run.gap, run.observer) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.concerns_one() && !run.schema.is_listed() => Ok(None),
        Err(error) => Err(error),
    }
}
