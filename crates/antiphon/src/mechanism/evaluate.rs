//! What a mechanism is worth for one training run.

use super::factorization::{Cost, Factorization};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::sensitivity::{self, Entries, Sensitivity, WorstCase};
use crate::workload::Workload;

/// A factorization under a schema and a workload. The schema need not be the one that it was made for.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The sensitivity of C.
    pub sensitivity: Sensitivity,
    /// The paper's bound on it from eigenvalues; `None` where the patterns cannot be listed, and where the sensitivity is from a rule of the
    /// family's own.
    pub spectral_bound: Option<f64>,
    /// The variance of the noise in every iterate at noise multiplier 1 and clip norm 1: sens²·(diagonal of BBᵀ).
    pub variances: Vec<f64>,
    /// What it takes to draw the noise.
    pub cost: Cost,
}

impl Evaluation {
    /// sens²·‖B‖²_F: the sum of all variances.
    pub fn loss(&self) -> f64 {
        self.variances.iter().sum()
    }

    /// √(loss / n).
    pub fn rmse(&self) -> f64 {
        (self.loss() / self.variances.len() as f64).sqrt()
    }

    /// The largest variance of an iterate.
    pub fn max_variance(&self) -> f64 {
        self.variances.iter().copied().fold(0.0, f64::max)
    }

    /// The loss at the paper's spectral bound in place of the exact sensitivity.
    pub fn spectral_loss(&self) -> Option<f64> {
        self.spectral_bound.map(|bound| self.loss() * (bound / self.sensitivity.upper).powi(2))
    }
}

/// Evaluates a factorization under any schema and workload of as many steps.
pub fn evaluate(
    factorization: &dyn Factorization,
    schema: &Schema,
    workload: &Workload,
) -> Result<Evaluation> {
    check_steps(factorization, "the schema", schema.steps())?;
    check_steps(factorization, "the workload", workload.steps())?;
    // A rule of its own stands for a gram matrix that is not looked at.
    let (sensitivity, spectral_bound) = match factorization.own_sensitivity(schema) {
        Some(found) => (found?.sensitivity, None),
        None => with_entries(factorization, |entries| {
            let found = sensitivity::sensitivity_of_entries(entries, schema)?;
            Ok((found, sensitivity::spectral_bound_of_entries(entries, schema)?))
        })?,
    };
    let scale = sensitivity.upper * sensitivity.upper;
    let variances = factorization.variances(workload).iter().map(|v| v * scale).collect();
    Ok(Evaluation { sensitivity, spectral_bound, variances, cost: factorization.cost() })
}

/// The sensitivity of C alone, under any schema of as many steps.
pub fn sensitivity_of(factorization: &dyn Factorization, schema: &Schema) -> Result<Sensitivity> {
    worst_case_of(factorization, schema).map(|found| found.sensitivity)
}

/// As [`sensitivity_of`], with a pattern that reaches the lower end.
pub fn worst_case_of(factorization: &dyn Factorization, schema: &Schema) -> Result<WorstCase> {
    check_steps(factorization, "the schema", schema.steps())?;
    if let Some(found) = factorization.own_sensitivity(schema) {
        return found;
    }
    with_entries(factorization, |entries| sensitivity::worst_case_of_entries(entries, schema))
}

/// What follows from the gram matrix, entry by entry.
fn with_entries<T>(factorization: &dyn Factorization, f: impl FnOnce(Entries<'_>) -> Result<T>) -> Result<T> {
    let entry = |i: usize, j: usize| factorization.gram(i, j);
    let block = |step: usize| factorization.block_start(step);
    f(Entries { entry: &entry, error: factorization.gram_error(), blocks: Some(&block) })
}

fn check_steps(factorization: &dyn Factorization, name: &str, steps: usize) -> Result<()> {
    let n = factorization.steps();
    if steps == n {
        return Ok(());
    }
    Err(Error::argument(name, format!("for {n} steps, as the factorization is"), format!("{steps} steps")))
}
