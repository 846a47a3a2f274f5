//! Events, ε, δ and noise multipliers.

use crate::errors::{Result, argument, whole};
use antiphon::accounting::calibrate::{self, Run};
use antiphon::accounting::event::{self, Repeated};
use antiphon::accounting::{self as library, Adjacency, Bracket, NoiseMultiplier, Params};
use antiphon::run::Unit;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// What happens to private data, for accounting: a Gaussian mechanism (all of a matrix mechanism is one), a Gaussian
/// mechanism on a Poisson sample, or several events one after another.
///
/// >>> event = antiphon.Event.dp_sgd(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
/// >>> round(antiphon.epsilon(event, delta=1e-5), 2)
/// 1.83
#[pyclass(frozen, eq, module = "antiphon", from_py_object)]
#[derive(Clone, PartialEq)]
pub struct Event(pub event::Event);

#[pymethods]
impl Event {
    /// One Gaussian mechanism: a whole run with correlated noise.
    #[staticmethod]
    fn gaussian(noise_multiplier: f64) -> Result<Event> {
        Event::checked(event::Event::gaussian(noise_multiplier))
    }

    /// A Gaussian mechanism on a sample in which each example is with probability `sampling_rate`, independently.
    #[staticmethod]
    fn poisson_sampled(sampling_rate: f64, noise_multiplier: f64) -> Result<Event> {
        Event::checked(event::Event::PoissonSampled { sampling_rate, noise_multiplier })
    }

    /// DP-SGD: so many steps on Poisson samples. Shuffled batches and batches of a fixed size are NOT Poisson samples.
    #[staticmethod]
    fn dp_sgd(sampling_rate: f64, noise_multiplier: f64, steps: i128) -> Result<Event> {
        let steps = whole("steps", steps)? as u64;
        Event::checked(event::Event::dp_sgd(sampling_rate, noise_multiplier, steps))
    }

    /// Events one after another, each with how often it happens.
    ///
    /// >>> one = antiphon.Event.gaussian(2.0)
    /// >>> antiphon.Event.composed([(one, 4)]) == antiphon.Event.composed([(one, 4)])
    /// True
    #[staticmethod]
    fn composed(events: Vec<(Event, i128)>) -> Result<Event> {
        let repeated = |(event, count): (Event, i128)| -> Result<Repeated> {
            Ok(Repeated { event: event.0, count: whole("the count of an event", count)? as u64 })
        };
        let events = events.into_iter().map(repeated).collect::<Result<_>>()?;
        Event::checked(event::Event::Composed { events })
    }

    /// An event from JSON, as the command line takes it with --event.
    #[staticmethod]
    fn from_json(text: &str) -> Result<Event> {
        let event = serde_json::from_str(text).map_err(|error| {
            argument("text", r#"an event such as {"kind":"gaussian","noise_multiplier":0.6}"#, error)
        })?;
        Event::checked(event)
    }

    /// The event as JSON.
    fn to_json(&self) -> String {
        serde_json::to_string(&self.0).expect("plain fields")
    }

    /// Lower and upper end of ε at δ. The upper end is the guarantee.
    #[pyo3(signature = (delta, *, adjacency="zero-out"))]
    fn epsilon_bracket(&self, py: Python<'_>, delta: f64, adjacency: &str) -> Result<(f64, f64)> {
        let event = relation(adjacency)?.apply(&self.0)?;
        let Bracket { lower, upper } = py.detach(|| library::epsilon(&event, delta, &Params::default()))?;
        Ok((lower, upper))
    }

    /// The same event for the package dp-accounting, where that is installed.
    fn to_dp_accounting<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let package = py.import("dp_accounting").map_err(|error| {
            let raised = PyImportError::new_err(
                "to_dp_accounting() needs the package dp-accounting: pip install dp-accounting",
            );
            raised.set_cause(py, Some(error));
            raised
        })?;
        Ok(converted(&self.0, package.as_any())?)
    }

    fn __repr__(&self) -> String {
        format!("Event({})", self.0.describe())
    }
}

impl Event {
    fn checked(event: event::Event) -> Result<Event> {
        Adjacency::ZeroOut.apply(&event)?;
        Ok(Event(event))
    }
}

fn converted<'py>(event: &event::Event, package: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match event {
        event::Event::Gaussian { noise_multiplier } => {
            package.call_method1("GaussianDpEvent", (*noise_multiplier,))
        }
        event::Event::PoissonSampled { sampling_rate, noise_multiplier } => {
            let gaussian = package.call_method1("GaussianDpEvent", (*noise_multiplier,))?;
            package.call_method1("PoissonSampledDpEvent", (*sampling_rate, gaussian))
        }
        event::Event::Composed { events } => {
            let parts = events.iter().map(|repeated| {
                let once = converted(&repeated.event, package)?;
                match repeated.count {
                    1 => Ok(once),
                    count => package.call_method1("SelfComposedDpEvent", (once, count)),
                }
            });
            let mut parts = parts.collect::<PyResult<Vec<_>>>()?;
            match parts.len() {
                1 => Ok(parts.remove(0)),
                _ => package.call_method1("ComposedDpEvent", (parts,)),
            }
        }
    }
}

/// The neighbouring relation of a name.
pub fn relation(name: &str) -> Result<Adjacency> {
    match name {
        "zero-out" => Ok(Adjacency::ZeroOut),
        "replace-one" => Ok(Adjacency::ReplaceOne),
        other => Err(argument("adjacency", r#""zero-out" or "replace-one""#, format!("{other:?}"))),
    }
}

/// The unit of privacy of a name.
pub fn unit_of(name: &str) -> Result<Unit> {
    match name {
        "example" => Ok(Unit::Example),
        "user" => Ok(Unit::User),
        other => Err(argument("unit", r#""example" or "user""#, format!("{other:?}"))),
    }
}

fn run_of(sampling_rate: Option<f64>, steps: Option<i128>) -> Result<Run> {
    let steps = steps.map(|steps| whole("steps", steps)).transpose()?.map(|steps| steps as u64);
    Ok(match (sampling_rate, steps) {
        (None, None) => Run::Matrix,
        (None, Some(steps)) => Run::FullBatch { steps },
        (Some(sampling_rate), Some(steps)) => Run::Sampled { sampling_rate, steps },
        (Some(_), None) => return Err(argument("steps", "given with sampling_rate", "nothing")),
    })
}

/// The event of a noise multiplier or an event, under a relation.
fn event_of(
    noise: &Bound<'_, PyAny>,
    sampling_rate: Option<f64>,
    steps: Option<i128>,
    adjacency: &str,
) -> Result<event::Event> {
    let event = match noise.extract::<Event>() {
        Ok(event) if sampling_rate.is_none() && steps.is_none() => event.0,
        Ok(_) => {
            let allowed = "given with a noise multiplier only: an event says it itself";
            return Err(argument("sampling_rate and steps", allowed, "both"));
        }
        Err(_) => {
            let z: f64 = noise.extract().map_err(|_| {
                argument("noise", "a noise multiplier or an antiphon.Event", crate::arrays::described(noise))
            })?;
            run_of(sampling_rate, steps)?.event(NoiseMultiplier::new(z)?.value())
        }
    };
    Ok(relation(adjacency)?.apply(&event)?)
}

/// ε at δ, an upper bound: of a run with correlated noise (a noise multiplier alone), of full-batch steps (`steps`), of
/// DP-SGD on Poisson samples (`sampling_rate` and `steps`), or of any Event.
///
/// >>> antiphon.epsilon(1.0, delta=1e-6) <= 4.89
/// True
#[pyfunction]
#[pyo3(signature = (noise, delta, *, sampling_rate=None, steps=None, adjacency="zero-out"))]
pub fn epsilon(
    py: Python<'_>,
    noise: &Bound<'_, PyAny>,
    delta: f64,
    sampling_rate: Option<f64>,
    steps: Option<i128>,
    adjacency: &str,
) -> Result<f64> {
    let event = event_of(noise, sampling_rate, steps, adjacency)?;
    Ok(py.detach(|| library::epsilon(&event, delta, &Params::default()))?.upper)
}

/// δ at ε, an upper bound, of what `epsilon` takes.
#[pyfunction]
#[pyo3(signature = (noise, epsilon, *, sampling_rate=None, steps=None, adjacency="zero-out"))]
pub fn delta(
    py: Python<'_>,
    noise: &Bound<'_, PyAny>,
    epsilon: f64,
    sampling_rate: Option<f64>,
    steps: Option<i128>,
    adjacency: &str,
) -> Result<f64> {
    let event = event_of(noise, sampling_rate, steps, adjacency)?;
    Ok(py.detach(|| library::delta(&event, epsilon, &Params::default()))?.upper)
}

/// The smallest noise multiplier for (ε, δ), rounded up: of a run with correlated noise, of `steps` full-batch steps, or
/// of DP-SGD on Poisson samples (`sampling_rate` and `steps`).
///
/// >>> z = antiphon.noise_multiplier(epsilon=8.0, delta=1e-6)
/// >>> antiphon.epsilon(z, delta=1e-6) <= 8.0
/// True
#[pyfunction]
#[pyo3(signature = (epsilon, delta, *, sampling_rate=None, steps=None, adjacency="zero-out"))]
pub fn noise_multiplier(
    py: Python<'_>,
    epsilon: f64,
    delta: f64,
    sampling_rate: Option<f64>,
    steps: Option<i128>,
    adjacency: &str,
) -> Result<f64> {
    let (run, adjacency) = (run_of(sampling_rate, steps)?, relation(adjacency)?);
    let found =
        py.detach(|| calibrate::noise_multiplier(run, epsilon, delta, adjacency, &Params::default()))?;
    Ok(found.noise_multiplier.value())
}
