//! The optimizer: a schema and a workload in, the optimal mechanism with its certificate out.
//!
//! ```text
//! minimise tr(V X⁻¹) subject to sens(X) ≤ 1        V = AᵀA, X = CᵀC
//! maximise a²/c over U = ⊕ v_r R_r                 a = ‖A·L‖_*, U = LLᵀ, c = Σ v_r
//! ```
//!
//! The dual is climbed by a monotone fixed-point iteration ([`blocks`]), accelerated ([`anderson`]) and safeguarded
//! ([`climb`]). One step needs the diagonal blocks of X(U): in linear time where the workload has a banded inverse
//! and the patterns are residue classes ([`resolvent`]), from a singular value decomposition otherwise ([`dense`]).
//! Every iterate brings a lower bound and a feasible mechanism, so the gap is known all the time; [`rounding`] turns
//! an iterate into a much better mechanism, and [`finish`] computes the figures that are claimed.
//! docs/theory.md has the proofs.

pub mod anderson;
pub mod blocks;
mod by_epoch;
pub mod climb;
pub mod corners;
pub mod dense;
pub mod finish;
pub mod resolvent;
pub mod rounding;
pub mod variants;

pub use by_epoch::{ByEpoch, by_epoch};

use crate::error::{Error, Hint, Result};
use crate::mechanism::{Certificate, Claims, Mechanism};
use crate::schema::Schema;
use crate::workload::Workload;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Beyond this many steps a dense mechanism is refused: its matrices would need more than ten gigabytes.
pub const MAX_DENSE_STEPS: usize = 12_000;

/// What to optimize for.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// The certified gap, loss / lower_bound − 1, at which to stop.
    pub gap: f64,
    /// Give up after this many iterations.
    pub max_iterations: usize,
    /// Make the certificate and U only, no n×n matrix.
    pub implicit: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params { gap: 1e-3, max_iterations: 1000, implicit: false }
    }
}

/// How X(U) is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// In linear time, from resolvents.
    Structured,
    /// By singular value decompositions of n×n matrices.
    Dense,
}

/// Where the work stands; given to the observer.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Iterations so far.
    pub iteration: usize,
    /// The loss of the mechanism at hand.
    pub loss: f64,
    /// The best lower bound so far.
    pub lower_bound: f64,
}

impl Progress {
    /// loss / lower_bound − 1.
    pub fn gap(&self) -> f64 {
        self.loss / self.lower_bound - 1.0
    }
}

/// What the optimizer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Climbing the dual.
    Iterating,
    /// Building the n×n matrices of the mechanism.
    Forming,
    /// Computing the figures that will be claimed.
    Certifying,
    /// The bound is known; a mechanism near it is designed. Its loss is infinite as long as the work is on shorter runs.
    Designing,
}

/// Is told of progress; answers whether to go on.
pub type Observer<'a> = &'a dyn Fn(&Progress) -> bool;

/// The result of [`optimize`].
#[derive(Debug, Clone)]
pub struct Optimized {
    /// The mechanism, with certificate and claims.
    pub mechanism: Mechanism,
    /// How X(U) was computed.
    pub route: Route,
    /// Evaluations of X(U).
    pub iterations: usize,
    /// Wall time.
    pub elapsed: Duration,
}

/// The optimal mechanism for a workload under a schema.
///
/// Fails with [`Error::NoConvergence`] if the gap is not reached, with [`Error::Interrupted`] if the observer says
/// stop, and with [`Error::Unsupported`] for what cannot be optimized here.
pub fn optimize(
    schema: &Schema,
    workload: &Workload,
    params: &Params,
    observer: Observer<'_>,
) -> Result<Optimized> {
    let start = Instant::now();
    check(schema, workload, params)?;
    // The optimum does not depend on the scale of A, only its loss does, and that as the square. (An implicit mechanism's rule does; its rates are
    // within 1e±30, which is no trouble.)
    if let Some((normalized, scale)) = workload.normalized().filter(|_| !params.implicit) {
        let square = scale * scale;
        let rescaled = |progress: &Progress| {
            let (loss, lower_bound) = (progress.loss * square, progress.lower_bound * square);
            observer(&Progress { loss, lower_bound, ..*progress })
        };
        let mut found = optimize(schema, &normalized, params, &rescaled)?;
        let Claims { loss, lower_bound, .. } = &mut found.mechanism.claims;
        (*loss, *lower_bound) = (*loss * square, lower_bound.map(|bound| bound * square)); // exact
        if !(loss.is_finite() && lower_bound.is_some_and(|bound| bound >= f64::MIN_POSITIVE)) {
            let allowed = "such that the squared error of the model is a number of double precision";
            return Err(Error::argument("the workload", allowed, format!("entries of about {scale:e}")));
        }
        found.mechanism.workload = workload.clone();
        return Ok(Optimized { elapsed: start.elapsed(), ..found });
    }
    let climb = climb::Climb::new(schema, workload, params, observer)?;
    let route = climb.route();
    let (mechanism, iterations) = climb.run()?;
    Ok(Optimized { mechanism, route, iterations, elapsed: start.elapsed() })
}

/// The best certificate that is known for a schema, and the lower bound that it proves: that of the optimum where patterns can be listed, otherwise that of
/// the optimum for fewer patterns; for reshuffled epochs also that of the best mechanism that is independent between epochs.
pub fn best_certificate(
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<(Certificate, f64)> {
    if let (Schema::Reshuffled { epochs, steps_per_epoch }, false) = (schema, schema.is_listed())
        && crate::certificate::fits(schema)
    {
        let found = by_epoch(&vec![*steps_per_epoch; *epochs], workload, gap, observer)?;
        let bound = crate::certificate::lower_bound(schema, workload, &found.certificate)?;
        return Ok((found.certificate, bound.value));
    }
    let Some(patterns) = schema.listed_part() else {
        return Err(Error::Unsupported(format!("no lower bound is known for {}", schema.describe())));
    };
    let (found, bound) = certificate(&patterns, workload, gap, observer)?;
    let patterns = (!schema.is_listed()).then_some(patterns);
    Ok((Certificate { patterns, ..found }, bound))
}

/// A certificate for a schema and a workload, of whatever mechanism reaches the gap, and the lower bound that it
/// proves: in linear time where that is possible.
pub fn certificate(
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<(Certificate, f64)> {
    let Mechanism { certificate, claims, .. } = without_matrix(schema, workload, gap, observer)?;
    let proof = certificate.zip(claims.lower_bound);
    proof.ok_or_else(|| Error::Numerical("the optimizer gave no certificate".into()))
}

/// The optimum for its figures and its certificate: implicit where that is possible.
pub(crate) fn without_matrix(
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<Mechanism> {
    let n = schema.steps();
    let implicit = workload.steps() == n && resolvent::Resolvent::new(schema, workload).is_some();
    if n > MAX_DENSE_STEPS && !implicit && schema.is_listed() {
        return Err(Error::Unsupported(format!(
            "{n} steps are too many for a certificate of this kind (at most {MAX_DENSE_STEPS}): longer runs need fixed \
             epoch order and a prefix-sum, momentum or learning-rate workload"
        )));
    }
    let params = Params { gap, implicit, ..Params::default() };
    Ok(optimize(schema, workload, &params, observer)?.mechanism)
}

fn check(schema: &Schema, workload: &Workload, params: &Params) -> Result<()> {
    // Smaller gaps drown in the allowances for rounding.
    let (least, allowed) = if params.implicit {
        (1e-6, "in [1e-6, 1] where no dense mechanism is made")
    } else {
        (1e-8, "in [1e-8, 1]")
    };
    if !(params.gap >= least && params.gap <= 1.0) {
        return Err(Error::argument("gap", allowed, params.gap));
    }
    if params.max_iterations == 0 {
        return Err(Error::argument("max_iterations", "at least 1", 0));
    }
    let n = schema.steps();
    if workload.steps() != n {
        let allowed = format!("for {n} steps, as the schema is");
        return Err(Error::argument("the workload", allowed, format!("{} steps", workload.steps())));
    }
    if n > MAX_DENSE_STEPS && !params.implicit {
        return Err(Error::Unsupported(format!(
            "{n} steps are too many for a dense mechanism (at most {MAX_DENSE_STEPS})"
        ))
        .with(Hint::Implicit));
    }
    let Some(patterns) = schema.listed() else {
        return Err(Error::Unsupported(format!(
            "optimizing for {} is not possible: there are exponentially many participation patterns",
            schema.name()
        ))
        .with(Hint::ListedSchema));
    };
    let mut covered = vec![false; n];
    patterns.iter().flatten().for_each(|i| covered[*i] = true);
    if let Some(i) = covered.iter().position(|seen| !seen) {
        return Err(Error::Unsupported(format!(
            "step {i} is in no participation pattern: nothing private happens there, so no noise is needed and \
             no optimum exists; leave the step out or list it"
        )));
    }
    Ok(())
}
