//! The last step: from an iterate to a mechanism whose figures are claimed, rounded toward caution.

use super::blocks::BlockDual;
use super::climb::{Climb, Engine, Evaluation, Full};
use super::resolvent::rule_for;
use super::{Phase, Progress, rounding};
use crate::certificate;
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::{Certificate, Claims, Mechanism, Noise, NoisingMatrix};
use crate::sensitivity;
use crate::workload::Workload;
use rayon::prelude::*;

/// Relative error allowed for rounding in a sum of resolvents in square-root form. An estimate, not a theorem: the
/// largest difference from singular values over thousands of random problems is 5e-11, up to condition numbers of 1e30, for
/// rates that rise at most [`MAX_RISE`](super::resolvent::MAX_RISE)-fold.
const RESOLVENT_ROUNDING: f64 = 1e-10;

/// An upper bound on max_π sens²(X_π) over the given blocks.
pub fn squared_sensitivity(grams: &[Vec<f64>]) -> Result<f64> {
    let bounds: Vec<f64> = grams
        .par_iter()
        .map(|x| {
            let k = super::blocks::size_of_block(x);
            let x = dense::from_fn(k, k, |i, j| 0.5 * (x[i * k + j] + x[j * k + i]));
            Ok(sensitivity::pattern_squared(&x, 1e-9)?.upper)
        })
        .collect::<Result<_>>()?;
    Ok(bounds.into_iter().fold(0.0, f64::max))
}

/// The certificate of a dual, and c = Σ_π max_i ‖row i of L_π‖², rounded up.
fn certificate_of(dual: &BlockDual) -> (Certificate, f64) {
    let factors: Vec<Vec<f64>> = (0..dual.patterns.len()).map(|r| dual.scaled_factor(r).collect()).collect();
    let mut total = 0.0;
    for factor in &factors {
        let k = super::blocks::size_of_block(factor);
        let norms = factor.chunks(k).map(|row| row.iter().map(|x| x * x).sum::<f64>());
        // Up; squares that underflow lose less than k times the smallest normal number.
        total +=
            norms.fold(0.0, f64::max) * (1.0 + (k + 1) as f64 * f64::EPSILON) + k as f64 * f64::MIN_POSITIVE;
    }
    let total = total * (1.0 + factors.len() as f64 * f64::EPSILON); // up
    (Certificate::new(factors), total)
}

/// a²/c for a dual, rounded down; at most about 2·`error` below the truth.
fn lower_bound(
    engine: &mut Engine,
    workload: &Workload,
    dual: &BlockDual,
    total: f64,
    error: f64,
) -> Result<f64> {
    let a = match engine {
        Engine::Structured(resolvent) => {
            let rule = resolvent.rule(dual, error)?;
            let (grams, _) = resolvent.blocks(dual, &rule);
            // a_N ≤ a·sup r(μ)√μ, whatever the spectrum.
            dual.inner_product(&grams) / rule.supremum(1e-9) * (1.0 - RESOLVENT_ROUNDING)
        }
        Engine::Dense(matrix) => {
            let l = super::dense::wide_factor(dual);
            let n = l.nrows() as f64;
            let sum: f64 = dense::singular_values(&(&*matrix * &l))?.iter().sum();
            // The computed product and the computed singular values are those of a matrix that differs by a few
            // n·ε‖|A||L|‖_F, and nuclear norms differ by at most √n times that.
            sum - 8.0 * n.sqrt() * n * f64::EPSILON * workload.absolute_product_norm(&l)
        }
    };
    Ok(a * a / total * (1.0 - 4.0 * f64::EPSILON)) // down
}

/// A claim that the checker can derive too. Its bound for long runs is one for every certificate, and may be smaller than ours: its allowance
/// for rounding grows with the condition of the problem.
fn derivable(own: f64, climb: &Climb<'_>, certificate: &Certificate) -> Result<f64> {
    let derived = || certificate::lower_bound_in_linear_time(climb.schema, climb.workload, certificate);
    match climb.params.implicit || climb.schema.steps() > certificate::MAX_SINGULAR_STEPS {
        true => Ok(derived()?.map_or(own, |derived| own.min(derived.value))),
        false => Ok(own), // by singular values, the same way
    }
}

/// The dense mechanism of the current iterate: the rounded X or, where that fails or patterns overlap, X(U) itself
/// divided by its squared sensitivity. The certificate comes from the next iterate, whose bound is at least as good.
/// `None` if no positive definite X came out.
pub(super) fn dense(
    climb: &mut Climb<'_>,
    evaluation: Evaluation,
    next: &BlockDual,
    progress: Progress,
) -> Result<Option<Mechanism>> {
    let n = climb.schema.steps();
    climb.report(Progress { phase: Phase::Forming, ..progress })?;
    let observer = climb.observer;
    let full = || -> Matrix {
        match (&climb.engine, &evaluation.full) {
            (Engine::Structured(resolvent), Full::Rule(rule, _)) => {
                resolvent.lower_reversed(climb.dual(), rule, |_, _| {
                    observer(&Progress { phase: Phase::Forming, ..progress });
                })
            }
            (_, Full::Matrix(x)) => dense::from_fn(n, n, |i, j| x[(n - 1 - i, n - 1 - j)]),
            (Engine::Dense(_), Full::Rule(..)) => unreachable!("the dense engine has no rule"),
        }
    };
    let mut factor = None;
    if climb.is_partition() {
        let mut x = full();
        rounding::round(&mut x, &climb.dual().patterns, |i| n - 1 - i);
        factor = dense::cholesky_in_place(&mut x).is_ok().then_some(x);
    }
    let crude_will_do = progress.gap() <= climb.params.gap;
    if factor.is_none() && (crude_will_do || !climb.is_partition()) {
        let scale = 1.0 / squared_sensitivity(&evaluation.grams)?;
        let mut x = full();
        for j in 0..n {
            x.col_as_slice_mut(j).iter_mut().for_each(|x| *x *= scale);
        }
        factor = dense::cholesky_in_place(&mut x).is_ok().then_some(x);
    }
    let Some(factor) = factor else {
        return Ok(None);
    };
    climb.report(Progress { phase: Phase::Certifying, ..progress })?;
    // X is reversed, so JXJ = L̃L̃ᵀ gives C = JL̃ᵀJ lower triangular with CᵀC = X, and C⁻¹ = JL̃⁻ᵀJ.
    let mut inverse = dense::lower_inverse(&factor)?;
    dense::flip_transpose(&mut inverse);
    let noising = NoisingMatrix::new(inverse)?;
    let mut encoder = factor;
    dense::flip_transpose(&mut encoder);
    let found = noising.sensitivity_with(&encoder, climb.schema)?;
    // Up: whoever inverts the stored matrix in another way, `verify` for one, gets another residual and must still
    // find the claim true. Privacy is accounted with this figure, and the loss is the loss at this figure.
    let sensitivity = found.sensitivity.upper * (1.0 + 1e-12 + 4.0 * found.residual);
    let loss = sensitivity * sensitivity * noising.squared_error(climb.workload) * (1.0 + 4.0 * f64::EPSILON);
    let (certificate, total) = certificate_of(next);
    let lower_bound = lower_bound(
        &mut climb.engine,
        climb.workload,
        next,
        total,
        (0.001 * climb.params.gap).clamp(1e-10, 1e-6),
    )?;
    let lower_bound = derivable(lower_bound, climb, &certificate)?;
    Ok(Some(Mechanism {
        schema: climb.schema.clone(),
        workload: climb.workload.clone(),
        noise: Noise::Dense(noising),
        certificate: Some(certificate),
        claims: Claims { loss, lower_bound: Some(lower_bound), sensitivity },
    }))
}

/// The implicit mechanism X_N(U)/s² of the current iterate.
///
/// With h = r(μ)√μ between `bottom` and `top` on the spectrum: a_N = Σ hσ, the lower bound uses a ≥ a_N/top, and
/// tr(V X_N⁻¹) = Σ σ/h ≤ a/bottom ≤ a_N/bottom². The interval that holds the spectrum comes from norms, so nothing
/// is estimated but rounding errors.
pub(super) fn implicit(climb: &mut Climb<'_>, target: f64) -> Result<Mechanism> {
    let dual = climb.dual().clone();
    let Engine::Structured(resolvent) = &mut climb.engine else {
        return Err(Error::Unsupported("an implicit mechanism needs the linear-time route".into()));
    };
    let (low, high) = resolvent.spectrum_bounds(&dual);
    let rule = rule_for(low, high, (0.001 * target).clamp(1e-10, 1e-6))?;
    let (grams, _) = resolvent.blocks(&dual, &rule);
    let a = dual.inner_product(&grams);
    // Up, by more than the checker's own allowance: it must still find the sensitivity to be at most one.
    let squared = squared_sensitivity(&grams)? * (1.0 + 2e-8);
    let bottom = rule.infimum(low, high, 1e-9);
    let top = rule.supremum(1e-9);
    let (certificate, total) = certificate_of(&dual);
    let (below, above) = (a * (1.0 - RESOLVENT_ROUNDING), a * (1.0 + RESOLVENT_ROUNDING));
    let lower_bound = derivable((below / top).powi(2) / total, climb, &certificate)?; // down
    Ok(Mechanism {
        schema: climb.schema.clone(),
        workload: climb.workload.clone(),
        noise: Noise::Implicit { rule, squared_sensitivity: squared },
        certificate: Some(certificate),
        claims: Claims {
            loss: squared * above / (bottom * bottom), // up
            lower_bound: Some(lower_bound),
            sensitivity: 1.0,
        },
    })
}
