//! Mechanisms other than the optimum, made for a training run.
//!
//! Each gets the figures that hold for it under the schema and the workload, and the certificate of the optimum: so
//! its file proves how far it is from the best.

use crate::error::{Error, Hint, Result};
use crate::linalg::dense::{Matrix, from_fn};
use crate::mechanism::stamp::{self, Shared};
use crate::mechanism::{
    Certificate, Claims, DenseFactorization, Factorization, Mechanism, Noise, NoisingMatrix, Stamped,
    Structured, sensitivity_of,
};
use crate::optimize::{self, MAX_DENSE_STEPS, Observer, Params};
use crate::schema::Schema;
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much more sensitivity is claimed than is derived here, relatively. `verify` derives it in another way and must
/// find no more than the claim. Both upper ends lie within the width of their own bracket above the truth: 1e-9 where
/// an elliptope decides, rounding included less than 2e-9 over all that was tried (tests/make.rs).
const ALLOWANCE: f64 = 1e-8;
/// How much more loss is claimed, relatively, for rounding errors of the fast forms.
const LOSS_ROUNDING: f64 = 1e-8;

/// A mechanism from a formula, for a schema and a workload that it need not have been invented for. `gap` says how
/// near to the optimum the certificate comes, and `observer` sees that work.
pub fn structured(
    structured: Structured,
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<Mechanism> {
    let factorization = structured.factorization(schema.steps())?;
    let (certificate, lower_bound) = certificate(schema, workload, gap, observer)?;
    let sensitivity = sensitivity_of(&factorization, schema)?.upper * (1.0 + ALLOWANCE); // up
    let squared_error: f64 = factorization.variances(workload).iter().sum();
    let loss = sensitivity * sensitivity * squared_error * (1.0 + LOSS_ROUNDING); // up
    Ok(Mechanism {
        schema: schema.clone(),
        workload: workload.clone(),
        noise: Noise::Structured(structured),
        certificate,
        claims: Claims { loss, lower_bound, sensitivity },
    })
}

/// The optimum for a single participation, used under another schema: [`single_epoch_factorization`].
pub fn single_epoch(
    stamps: usize,
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<Mechanism> {
    check_dense(schema.steps())?;
    stamp::check(schema.steps(), stamps)?;
    let proof = certificate(schema, workload, gap, observer)?;
    let (_, noising) = single_epoch_factorization(schema.steps(), stamps, workload, gap, observer)?;
    with_proof(noising, schema, workload, proof)
}

/// Any noising matrix as a mechanism, with the figures that it has under a schema and the certificate of the optimum.
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
    with_proof(noising, schema, workload, certificate(schema, workload, gap, observer)?)
}

fn with_proof(
    noising: NoisingMatrix,
    schema: &Schema,
    workload: &Workload,
    (certificate, lower_bound): (Certificate, f64),
) -> Result<Mechanism> {
    let found = noising.sensitivity(schema)?;
    // Up: whoever inverts the stored matrix in another way gets another residual and must still find the claim true.
    let sensitivity = found.sensitivity.upper * (1.0 + ALLOWANCE + 4.0 * found.residual);
    let loss = sensitivity * sensitivity * noising.squared_error(workload) * (1.0 + LOSS_ROUNDING); // up
    Ok(Mechanism {
        schema: schema.clone(),
        workload: workload.clone(),
        noise: Noise::Dense(noising),
        certificate,
        claims: Claims { loss, lower_bound, sensitivity },
    })
}

/// The optimum for a single participation in the steps of one stamp, repeated along the diagonal: as a factorization
/// and as one matrix. Every stamp is made for the first steps of the workload.
pub fn single_epoch_factorization(
    steps: usize,
    stamps: usize,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<(Stamped, NoisingMatrix)> {
    check_dense(steps)?;
    let mut made: BTreeMap<usize, NoisingMatrix> = BTreeMap::new(); // at most two lengths
    let stamped = Stamped::new(steps, stamps, |length| {
        let noising = single_epoch_stamp(length, workload, gap, observer)?;
        made.insert(length, noising.clone());
        Ok(Arc::new(DenseFactorization::new(noising)?) as Shared)
    })?;
    let mut w = Matrix::zeros(steps, steps);
    let mut first = 0;
    for length in stamped.parts().map(|part| part.steps()) {
        let block = made[&length].matrix();
        for j in 0..length {
            w.col_as_slice_mut(first + j)[first..first + length].copy_from_slice(block.col_as_slice(j));
        }
        first += length;
    }
    Ok((stamped, NoisingMatrix::new(w)?))
}

/// The optimum for a single participation and the first `length` steps of a workload.
pub fn single_epoch_stamp(
    length: usize,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<NoisingMatrix> {
    if !(1..=workload.steps()).contains(&length) {
        return Err(Error::argument("length", format!("in 1..={}", workload.steps()), length));
    }
    check_dense(length)?;
    let part = match workload {
        Workload::Training(training) => Workload::Training(training.part(0, length)),
        Workload::Dense(a) => Workload::dense(from_fn(length, length, |i, j| a[(i, j)]))?,
    };
    let params = Params { gap, ..Params::default() };
    match optimize::optimize(&Schema::single(length)?, &part, &params, observer)?.mechanism.noise {
        Noise::Dense(noising) => Ok(noising),
        _ => unreachable!("a dense mechanism was asked for"),
    }
}

fn check_dense(steps: usize) -> Result<()> {
    match steps <= MAX_DENSE_STEPS {
        true => Ok(()),
        false => Err(Error::Unsupported(format!(
            "{steps} steps are too many for a single-epoch mechanism, which is a dense matrix (at most {MAX_DENSE_STEPS}); \
             those made from a formula have no such limit"
        ))),
    }
}

/// The certificate of the optimum, by whichever route; its gap has one range for both.
fn certificate(
    schema: &Schema,
    workload: &Workload,
    gap: f64,
    observer: Observer<'_>,
) -> Result<(Certificate, f64)> {
    if !(1e-6..=1.0).contains(&gap) {
        return Err(Error::argument("gap", "in [1e-6, 1]", gap));
    }
    if !schema.is_listed() {
        return Err(Error::Unsupported(format!(
            "no mechanism file can be made for {}: it contains a certificate of the optimum, which exists \
             for fixed epoch order and for listed patterns only",
            schema.name()
        ))
        .with(Hint::Evaluate));
    }
    optimize::certificate(schema, workload, gap, observer)
}
