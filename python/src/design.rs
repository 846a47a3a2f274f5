//! Mechanisms for a run: the optimum, any other, all of them side by side, and which one to take.

use crate::arrays::to_matrix;
use crate::errors::{Result, argument, whole};
use crate::mechanism::Mechanism;
use crate::schema::Schema;
use crate::watch::{Watch, optimizing};
use antiphon::make as library;
use antiphon::mechanism::Structured;
use antiphon::optimize::{Params, Progress};
use antiphon::plan::{Choice, CompareParams, Comparing, Comparison, Needs, recommend};
use antiphon::workload::{Cooldown, Workload};
use pyo3::prelude::*;

/// What training does with the gradients.
fn workload_of(
    steps: usize,
    momentum: f64,
    learning_rates: Option<Vec<f64>>,
    cooldown: Option<(f64, f64)>,
    workload: Option<&Bound<'_, PyAny>>,
) -> Result<Workload> {
    if let Some(matrix) = workload {
        if momentum != 0.0 || learning_rates.is_some() || cooldown.is_some() {
            let allowed = "given alone, without momentum, learning_rates and cooldown";
            return Err(argument("workload", allowed, "both"));
        }
        return Ok(Workload::dense(to_matrix(matrix, "workload")?)?);
    }
    let rates = match (learning_rates, cooldown) {
        (Some(_), Some(_)) => return Err(argument("cooldown", "given without learning_rates", "both")),
        (None, Some((fraction, end))) => Some(Cooldown { fraction, end }.rates(steps)?),
        (rates, None) => rates,
    };
    Ok(Workload::training(steps, momentum, rates)?)
}

/// The best mechanism for a training run, proven to be within `gap` of the least possible loss.
#[pyfunction]
#[pyo3(signature = (
    schema, *, momentum=0.0, learning_rates=None, cooldown=None, workload=None, gap=1e-3, max_iterations=1000, implicit=false,
    progress=None
))]
#[allow(clippy::too_many_arguments)]
pub fn optimize(
    py: Python<'_>,
    schema: Schema,
    momentum: f64,
    learning_rates: Option<Vec<f64>>,
    cooldown: Option<(f64, f64)>,
    workload: Option<&Bound<'_, PyAny>>,
    gap: f64,
    max_iterations: i64,
    implicit: bool,
    progress: Option<Py<PyAny>>,
) -> Result<Mechanism> {
    let workload = workload_of(schema.0.steps(), momentum, learning_rates, cooldown, workload)?;
    let params = Params { gap, max_iterations: whole("max_iterations", max_iterations)?, implicit };
    py.detach(move || {
        let watch = Watch::new(progress);
        let observer = |progress: &Progress| watch.go_on(|| optimizing(progress));
        let found = antiphon::optimize::optimize(&schema.0, &workload, &params, &observer);
        Ok(Mechanism::of(watch.finish(found)?.mechanism))
    })
}

/// A mechanism by its name, with a proof of how far from the optimum it is.
#[pyfunction]
#[pyo3(signature = (
    name, schema, *, stamps=1, momentum=0.0, learning_rates=None, cooldown=None, workload=None, gap=1e-3, progress=None
))]
#[allow(clippy::too_many_arguments)]
pub fn make(
    py: Python<'_>,
    name: &str,
    schema: Schema,
    stamps: i64,
    momentum: f64,
    learning_rates: Option<Vec<f64>>,
    cooldown: Option<(f64, f64)>,
    workload: Option<&Bound<'_, PyAny>>,
    gap: f64,
    progress: Option<Py<PyAny>>,
) -> Result<Mechanism> {
    let names = || Choice::all().into_iter().map(Choice::name).collect::<Vec<_>>().join(", ");
    let choice = Choice::named(name).map_err(|_| argument("name", format!("one of {}", names()), name))?;
    let stamps = whole("stamps", stamps)?;
    if choice == Choice::Optimal && stamps != 1 {
        return Err(argument("stamps", "1 for the optimum, which is not repeated", stamps));
    }
    let workload = workload_of(schema.0.steps(), momentum, learning_rates, cooldown, workload)?;
    py.detach(move || {
        let watch = Watch::new(progress);
        let observer = |progress: &Progress| watch.go_on(|| optimizing(progress));
        let (schema, workload) = (&schema.0, &workload);
        let made = match choice {
            Choice::Structured(family) => {
                library::structured(Structured { family, stamps }, schema, workload, gap, &observer)
            }
            Choice::SingleEpoch => library::single_epoch(stamps, schema, workload, gap, &observer),
            Choice::Optimal => {
                let params = Params { gap, ..Params::default() };
                antiphon::optimize::optimize(schema, workload, &params, &observer)
                    .map(|found| found.mechanism)
            }
        };
        Ok(Mechanism::of(watch.finish(made)?))
    })
}

/// All mechanisms side by side, as JSON.
#[pyfunction]
#[pyo3(signature = (
    schema, *, stamps=None, without=Vec::new(), momentum=0.0, learning_rates=None, cooldown=None, workload=None, gap=1e-3,
    progress=None
))]
#[allow(clippy::too_many_arguments)]
pub fn compare(
    py: Python<'_>,
    schema: Schema,
    stamps: Option<i64>,
    without: Vec<String>,
    momentum: f64,
    learning_rates: Option<Vec<f64>>,
    cooldown: Option<(f64, f64)>,
    workload: Option<&Bound<'_, PyAny>>,
    gap: f64,
    progress: Option<Py<PyAny>>,
) -> Result<String> {
    let workload = workload_of(schema.0.steps(), momentum, learning_rates, cooldown, workload)?;
    let comparison = compared(py, &schema, &workload, (stamps, without, gap), progress)?;
    Ok(as_json(&workload, &comparison).to_string())
}

/// All mechanisms side by side and the place of the one to take, as JSON.
#[pyfunction]
#[pyo3(signature = (
    schema, *, params, memory=None, stamps=None, without=Vec::new(), momentum=0.0, learning_rates=None, cooldown=None,
    workload=None, gap=1e-3, progress=None
))]
#[allow(clippy::too_many_arguments)]
pub fn plan(
    py: Python<'_>,
    schema: Schema,
    params: i64,
    memory: Option<i64>,
    stamps: Option<i64>,
    without: Vec<String>,
    momentum: f64,
    learning_rates: Option<Vec<f64>>,
    cooldown: Option<(f64, f64)>,
    workload: Option<&Bound<'_, PyAny>>,
    gap: f64,
    progress: Option<Py<PyAny>>,
) -> Result<String> {
    if params < 1 {
        return Err(argument("params", "at least 1", params));
    }
    let params = params as u64;
    let memory = memory.map(|memory| whole("memory", memory)).transpose()?.map(|memory| memory as u64);
    let workload = workload_of(schema.0.steps(), momentum, learning_rates, cooldown, workload)?;
    let comparison = compared(py, &schema, &workload, (stamps, without, gap), progress)?;
    let recommended = recommend(&comparison, &Needs { params, memory })?;
    let mut json = as_json(&workload, &comparison);
    json["chosen"] = recommended.chosen.into();
    json["stream_bytes"] = comparison.candidates[recommended.chosen].stream_bytes(params).into();
    Ok(json.to_string())
}

fn compared(
    py: Python<'_>,
    schema: &Schema,
    workload: &Workload,
    (stamps, without, gap): (Option<i64>, Vec<String>, f64),
    progress: Option<Py<PyAny>>,
) -> Result<Comparison> {
    let without = without.iter().map(|name| Choice::named(name)).collect::<antiphon::Result<_>>()?;
    let stamps = stamps.map(|stamps| whole("stamps", stamps)).transpose()?;
    let params = CompareParams { gap, stamps, without };
    py.detach(move || {
        let watch = Watch::new(progress);
        let words = |comparing: &Comparing<'_>| {
            let (done, all) = comparing.done;
            let detail =
                comparing.optimizing.map_or(String::new(), |progress| format!(": {}", optimizing(progress)));
            format!("{} ({} of {all}){detail}", comparing.choice.name(), done + 1)
        };
        let observer = |comparing: &Comparing<'_>| watch.go_on(|| words(comparing));
        let found = antiphon::plan::compare(&schema.0, workload, &params, &observer);
        watch.finish(found)
    })
}

fn as_json(workload: &Workload, comparison: &Comparison) -> serde_json::Value {
    let left_out: Vec<serde_json::Value> = comparison
        .left_out
        .iter()
        .map(|left| serde_json::json!({ "name": left.choice.name(), "reason": left.failure }))
        .collect();
    let variances: Vec<&[f64]> =
        comparison.candidates.iter().map(|found| found.variances.as_slice()).collect();
    serde_json::json!({
        "workload": workload.describe(),
        "lower_bound": comparison.lower_bound,
        "candidates": comparison.candidates,
        "variances": variances,
        "left_out": left_out,
    })
}
