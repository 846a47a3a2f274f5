//! Mechanisms for a run: the optimum, any other, all of them side by side, and which one to take.
//!
//! Signatures that people see are in `antiphon/_design.py`, with progress bars.

use crate::arrays::to_matrix;
use crate::errors::{Result, argument, whole};
use crate::mechanism::Mechanism;
use crate::schema::Schema;
use crate::watch::{Watch, optimizing};
use antiphon::families;
use antiphon::make as library;
use antiphon::mechanism::Which;
use antiphon::mechanism::family::{Needs, OVER_OPTIMUM, Run};
use antiphon::optimize::{Params, Progress};
use antiphon::plan::{self, CompareParams, Comparing, Comparison, recommend};
use antiphon::workload::{self, Cooldown};
use pyo3::prelude::*;

/// What training does with the gradients.
#[pyclass(frozen, module = "antiphon", from_py_object)]
#[derive(Clone)]
pub struct Workload(workload::Workload);

#[pymethods]
impl Workload {
    /// SGD with momentum and learning rates, or any lower triangular matrix.
    #[new]
    fn new(
        steps: usize,
        momentum: f64,
        learning_rates: Option<Vec<f64>>,
        cooldown: Option<(f64, f64)>,
        matrix: Option<&Bound<'_, PyAny>>,
    ) -> Result<Workload> {
        if let Some(matrix) = matrix {
            if momentum != 0.0 || learning_rates.is_some() || cooldown.is_some() {
                let allowed = "given alone, without momentum, learning_rates and cooldown";
                return Err(argument("workload", allowed, "both"));
            }
            return Ok(Workload(workload::Workload::dense(to_matrix(matrix, "workload")?)?));
        }
        let rates = match (learning_rates, cooldown) {
            (Some(_), Some(_)) => return Err(argument("cooldown", "given without learning_rates", "both")),
            (None, Some((fraction, end))) => Some(Cooldown { fraction, end }.rates(steps)?),
            (rates, None) => rates,
        };
        Ok(Workload(workload::Workload::training(steps, momentum, rates)?))
    }
}

/// What `make` can make.
#[pyfunction]
pub fn names() -> Vec<&'static str> {
    families::candidates().map(|family| family.name()).collect()
}

/// The best mechanism for a training run, proven to be within `gap` of the least possible loss.
#[pyfunction]
pub fn optimize(
    py: Python<'_>,
    schema: Schema,
    workload: Workload,
    gap: f64,
    max_iterations: i128,
    implicit: bool,
    progress: Option<Py<PyAny>>,
) -> Result<Mechanism> {
    let params = Params { gap, max_iterations: whole("max_iterations", max_iterations)?, implicit };
    py.detach(move || {
        let watch = Watch::new(progress);
        let observer = |progress: &Progress| watch.go_on(|| optimizing(progress));
        let found = antiphon::optimize::optimize(&schema.0, &workload.0, &params, &observer);
        Ok(Mechanism::of(watch.finish(found)?.mechanism))
    })
}

/// A mechanism by its name, with a proof of how far from the optimum it is.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn make(
    py: Python<'_>,
    name: &str,
    schema: Schema,
    workload: Workload,
    stamps: i128,
    buffers: Option<i128>,
    over_optimum: Option<f64>,
    gap: f64,
    progress: Option<Py<PyAny>>,
) -> Result<Mechanism> {
    let allowed = || format!("one of {}", names().join(", "));
    let unknown = |_| argument("name", allowed(), name);
    let family = families::named(name).map_err(unknown)?;
    if family.needs() == Needs::Matrix {
        return Err(argument("name", allowed(), name));
    }
    let stamps = whole("stamps", stamps)?;
    let buffers = buffers.map(|buffers| whole("buffers", buffers)).transpose()?;
    if let Some(over) = over_optimum.filter(|_| !family.has_buffers()) {
        return Err(argument(
            "over_optimum",
            format!("left out for {family}, which has no buffers to choose"),
            over,
        ));
    }
    let over_optimum = over_optimum.unwrap_or(OVER_OPTIMUM);
    py.detach(move || {
        let watch = Watch::new(progress);
        let observer = |progress: &Progress| watch.go_on(|| optimizing(progress));
        let run = Run { stamps, buffers, over_optimum, gap, ..Run::new(&schema.0, &workload.0, &observer) };
        let made = library::make(family, &run);
        Ok(Mechanism::of(watch.finish(made)?))
    })
}

/// An encoder that somebody has, evaluated for a run and repeated as often as it fits, or as often as is said.
#[pyfunction]
pub fn from_encoder(
    py: Python<'_>,
    encoder: &Bound<'_, PyAny>,
    schema: Schema,
    workload: Workload,
    stamps: Option<i128>,
    gap: f64,
    progress: Option<Py<PyAny>>,
) -> Result<Mechanism> {
    let matrix = match encoder.cast::<Mechanism>() {
        Ok(mechanism) => mechanism.get().shared().matrix(Which::C)?,
        Err(_) => to_matrix(encoder, "encoder")?,
    };
    let stamps = stamps.map(|stamps| whole("stamps", stamps)).transpose()?;
    py.detach(move || {
        let watch = Watch::new(progress);
        let observer = |progress: &Progress| watch.go_on(|| optimizing(progress));
        let run = Run { gap, ..Run::new(&schema.0, &workload.0, &observer) };
        let made = library::from_encoder(&matrix, stamps, &run);
        Ok(Mechanism::of(watch.finish(made)?.mechanism))
    })
}

/// All mechanisms side by side, as JSON; for a model of so many parameters also the place of the one to take.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn compare(
    py: Python<'_>,
    schema: Schema,
    workload: Workload,
    stamps: Option<i128>,
    without: Vec<String>,
    gap: f64,
    params: Option<i128>,
    memory: Option<i128>,
    progress: Option<Py<PyAny>>,
) -> Result<String> {
    let params = params.map(|params| whole("params", params)).transpose()?.map(|params| params as u64);
    if params == Some(0) {
        return Err(argument("params", "at least 1", 0));
    }
    let memory = memory.map(|memory| whole("memory", memory)).transpose()?.map(|memory| memory as u64);
    let stamps = stamps.map(|stamps| whole("stamps", stamps)).transpose()?;
    let without = without.iter().map(|name| families::named(name)).collect::<antiphon::Result<_>>()?;
    let wanted = CompareParams { gap, stamps, without };
    let comparison = py.detach(|| {
        let watch = Watch::new(progress);
        let observer = |comparing: &Comparing<'_>| watch.go_on(|| in_words(comparing));
        let found = antiphon::plan::compare(&schema.0, &workload.0, &wanted, &observer);
        watch.finish(found)
    })?;
    let mut json = as_json(&workload, &comparison);
    if let Some(params) = params {
        let chosen = recommend(&comparison, &plan::Needs { params, memory })?.chosen;
        json["chosen"] = chosen.into();
        json["stream_bytes"] = comparison.candidates[chosen].stream_bytes(params).into();
    }
    Ok(json.to_string())
}

fn in_words(comparing: &Comparing<'_>) -> String {
    let (done, all) = comparing.done;
    let detail = comparing.optimizing.map_or(String::new(), |progress| format!(": {}", optimizing(progress)));
    format!("{} ({} of {all}){detail}", comparing.family.name(), done + 1)
}

fn as_json(workload: &Workload, comparison: &Comparison) -> serde_json::Value {
    let left_out: Vec<serde_json::Value> = comparison
        .left_out
        .iter()
        .map(|left| serde_json::json!({ "name": left.family.name(), "reason": left.failure }))
        .collect();
    let variances: Vec<&[f64]> =
        comparison.candidates.iter().map(|found| found.variances.as_slice()).collect();
    serde_json::json!({
        "workload": workload.0.describe(),
        "lower_bound": comparison.lower_bound,
        "fixed_order_loss": comparison.fixed_order_loss,
        "candidates": comparison.candidates,
        "variances": variances,
        "left_out": left_out,
    })
}
