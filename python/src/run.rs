//! One private run.

use crate::accounting::{Event, relation, unit_of};
use crate::arrays::{Writable, described, slice_mut, to_units};
use crate::audit::{Audit, audited};
use crate::clip::Clip;
use crate::errors::{Failure, Result, argument, whole};
use crate::{key, mechanism};
use antiphon::accounting::NoiseMultiplier;
use antiphon::accounting::calibrate::Run;
use antiphon::noise::Cipher;
use antiphon::run::{self as library, Budget, Settings, State};
use antiphon::statement::CONTINUED;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::Range;
use std::path::PathBuf;

/// [`antiphon::mechanism::stream::Recurrence`] as Python has it.
type Recurrence = (Vec<(u64, f64)>, Vec<(f64, f64)>, f64, bool);

fn listed(found: antiphon::mechanism::stream::Recurrence) -> Recurrence {
    (found.inputs, found.buffers, found.scale, found.first)
}

fn ranges_of(ranges: Vec<(i128, i128)>) -> Result<Vec<Range<u64>>> {
    let end = |x: i128| whole("an end of ranges", x).map(|x| x as u64);
    ranges.into_iter().map(|(first, last)| Ok(end(first)?..end(last)?)).collect()
}

/// One private run, from its first step to its last: it verifies the mechanism, computes the noise for a privacy level,
/// refuses who may not take part, and adds the noise of every step once.
///
/// >>> import numpy as np
/// >>> mechanism = antiphon.optimize(antiphon.Schema.epochs(2, 4))
/// >>> run = antiphon.PrivateRun(mechanism, epsilon=8.0, delta=1e-5, clip_norm=1.0, params=3,
/// ...                           key=antiphon.Key.from_seed(1))
/// >>> for step in range(run.steps):
/// ...     run.admit([step % 4])                # who takes part: the same order in both epochs
/// ...     clipped_sum = np.zeros(3)            # the sum of their clipped gradients
/// ...     run.privatize(clipped_sum)           # adds the noise of the step, in place
/// >>> run.admit([0])
/// Traceback (most recent call last):
/// ...
/// antiphon.PrivacyError: step 8 is refused: the run has 8 steps
#[pyclass(module = "antiphon")]
pub struct PrivateRun {
    run: library::PrivateRun,
    mechanism: Py<mechanism::Mechanism>,
    /// Coordinates of the whole model.
    params: usize,
    /// A log that is opened when the run begins or goes on.
    log: Option<PathBuf>,
}

#[pymethods]
impl PrivateRun {
    #[new]
    #[pyo3(signature = (
        mechanism, *, delta, clip_norm, params, key, epsilon=None, noise_multiplier=None, units=None, unit="example",
        adjacency="zero-out", ranges=None, layout="", memory=268_435_456, log=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        mechanism: &Bound<'_, PyAny>,
        delta: f64,
        clip_norm: f64,
        params: i128,
        key: &Bound<'_, PyAny>,
        epsilon: Option<f64>,
        noise_multiplier: Option<f64>,
        units: Option<i128>,
        unit: &str,
        adjacency: &str,
        ranges: Option<Vec<(i128, i128)>>,
        layout: &str,
        memory: i128,
        log: Option<PathBuf>,
    ) -> Result<PrivateRun> {
        let budget = match (epsilon, noise_multiplier) {
            (Some(epsilon), None) => Budget::Target { epsilon, delta },
            (None, Some(z)) => Budget::Noise { noise_multiplier: NoiseMultiplier::new(z)?, delta },
            (Some(_), Some(_)) => {
                return Err(argument("epsilon and noise_multiplier", "one of them", "both"));
            }
            (None, None) => return Err(argument("epsilon or noise_multiplier", "given", "neither")),
        };
        let settings = Settings {
            budget,
            adjacency: relation(adjacency)?,
            unit: unit_of(unit)?,
            clip_norm,
            units: units.map(|units| whole("units", units)).transpose()?,
            params: whole("params", params)? as u64,
            ranges: ranges.map(ranges_of).transpose()?,
            layout: layout.into(),
            memory: whole("memory", memory)?,
        };
        settings.validate()?;
        let privacy = py.detach(|| settings.budget.account(Run::Matrix, settings.adjacency))?;
        let mechanism = mechanism::named(mechanism)?;
        let verified = mechanism::verified(mechanism.as_any())?;
        // Late, so that a key is not lost to a wrong argument.
        let key = key::named(key)?;
        let run = py.detach(|| library::PrivateRun::accounted(verified, &settings, privacy, key))?;
        Ok(PrivateRun { run, mechanism: mechanism.unbind(), params: settings.params as usize, log })
    }

    /// Admits the units (examples or users, numbered from 0) that take part in the next step; or raises PrivacyError,
    /// and nothing has happened then.
    fn admit(&mut self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> Result<()> {
        let units = to_units(indices, "indices")?;
        py.detach(|| {
            self.open_log()?;
            self.run.admit(self.run.step(), &units)
        })?;
        Ok(())
    }

    /// Adds the noise of the step to the sum of the clipped contributions of those who were admitted, in place: a
    /// writable C-contiguous NumPy array, or a PyTorch tensor on the CPU, of float32 or float64. The step is done then.
    fn privatize(&mut self, py: Python<'_>, array: &Bound<'_, PyAny>) -> Result<()> {
        match Writable::of(array, "array")? {
            Writable::Single(mut array) => {
                let sum = slice_mut(&mut array);
                self.check_length("array", sum.len())?;
                py.detach(|| self.run.privatize(sum))?;
            }
            Writable::Double(mut array) => {
                let sum = slice_mut(&mut array);
                self.check_length("array", sum.len())?;
                py.detach(|| self.run.privatize(sum))?;
            }
        }
        Ok(())
    }

    /// The noise of the step, for those who add it themselves: float32, in a new array or in `out`. The step is done
    /// then.
    #[pyo3(signature = (out=None))]
    fn row<'py>(&mut self, py: Python<'py>, out: Option<Bound<'py, PyAny>>) -> Result<Bound<'py, PyAny>> {
        let out = match out {
            Some(out) => out,
            None => PyArray1::<f32>::zeros(py, self.run.coordinates(), false).into_any(),
        };
        let Writable::Single(mut array) = Writable::of(&out, "out")? else {
            return Err(argument("out", "an array of float32", described(&out)));
        };
        let row = slice_mut(&mut array);
        self.check_length("out", row.len())?;
        py.detach(|| self.run.row_into(row))?;
        drop(array);
        Ok(out)
    }

    /// Makes the noise of the next step ahead of time, so that `privatize` and `row` only have to add or copy it: for a thread beside the
    /// training. Nothing is given away, and no step is taken. Does nothing before the first step of this process, and after the last.
    fn prepare(&mut self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.run.prepare())?)
    }

    /// Takes the step, whose noise is made on a device: how it is made.
    fn _made_elsewhere(&mut self) -> Result<Recurrence> {
        Ok(listed(self.run.made_elsewhere()?))
    }

    /// How the noise of any step is made on a device: rows of Z with weights; for each buffer what is taken of it and what is kept; the scale;
    /// whether the buffers are zero before.
    fn _recurrence(&self, step: i128) -> Result<Recurrence> {
        Ok(listed(self.run.recurrence(whole("step", step)?)?))
    }

    /// The key of the noise as eight words of ChaCha20, for those who make it on a device. They are the secret.
    fn _field_key(&self) -> Result<Vec<u32>> {
        let key = self.run.noise_key();
        if key.cipher() != Cipher::ChaCha20 {
            let allowed =
                "one of chacha20 for noise on a device: make it by Key.fresh(path, cipher=\"chacha20\")";
            return Err(argument("key", allowed, format!("one of {}", key.cipher())));
        }
        Ok(key.secret().as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    /// Raises PrivacyError now for what would be refused later: `schedule(step)` gives who will take part in a step.
    fn rehearse(&self, schedule: &Bound<'_, PyAny>) -> Result<()> {
        let raised = std::cell::RefCell::new(None);
        let units = |step: usize| {
            let units =
                schedule.call1((step,)).map_err(Failure::from).and_then(|units| to_units(&units, "schedule"));
            units.unwrap_or_else(|failure| {
                raised.borrow_mut().get_or_insert(failure);
                Vec::new()
            })
        };
        let found = self.run.rehearse(units);
        match raised.into_inner() {
            Some(failure) => Err(failure),
            None => Ok(found?),
        }
    }

    /// What ε means, and what it does not cover.
    fn statement(&self) -> String {
        self.run.statement().to_string()
    }

    /// The same for a program that clips what it adds up, with the name that it has for the mechanism and what it did not
    /// check.
    fn _statement_of_training(&self, name: &str, unchecked: &str) -> String {
        let statement = self.run.statement_named(name).with(unchecked);
        match self.run.restored() {
            true => statement.with(CONTINUED).to_string(),
            false => statement.to_string(),
        }
    }

    /// All that another process needs to go on after the last step that is done, except the key. Raises PrivacyError if a later state was kept:
    /// another process goes on with the run then.
    fn state_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        self.run.check_latest()?;
        let text = serde_json::to_string(&self.run.state()).expect("plain fields");
        let object = py.import("json")?.call_method1("loads", (text,))?;
        Ok(object.cast_into().map_err(PyErr::from)?)
    }

    /// Goes on from a state of this very run: mechanism, noise, clip norm, layout and key are compared. Only a run that
    /// has not begun can do that, and only from the last state that was kept (`state_is_kept`).
    ///
    /// repeat_noise=True accepts an earlier one, for when the last one is lost. Steps that were made after it get the same
    /// noise again: nothing that followed from them may have been published.
    #[pyo3(signature = (state, *, repeat_noise=false))]
    fn load_state_dict(&mut self, state: &Bound<'_, PyAny>, repeat_noise: bool) -> Result<()> {
        let text: String = state.py().import("json")?.call_method1("dumps", (state,))?.extract()?;
        let state: State = serde_json::from_str(&text)
            .map_err(|error| argument("state", "what state_dict() of a PrivateRun gave", error))?;
        match repeat_noise {
            true => self.run.restore_repeating(&state)?,
            false => self.run.restore(&state)?,
        }
        self.open_log()?;
        Ok(())
    }

    /// Says that the state of this moment is safely on disk. From then on no earlier one is loaded: going back would use the
    /// noise of the steps between for something else. The key file remembers it; a key from a seed has none.
    fn state_is_kept(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.run.state_is_kept())?)
    }

    /// Reads the participation log of this run, or of a run with the same mechanism and noise, and computes the privacy
    /// that it really had.
    fn audit(&self, py: Python<'_>, log: PathBuf) -> Result<Audit> {
        let verified = self.run.mechanism().expect("a run with a mechanism");
        let privacy = self.run.privacy();
        py.detach(|| {
            audited(&log, verified, privacy.noise_multiplier(), privacy.delta(), privacy.adjacency())
        })
    }

    /// The rule that clips contributions for this run and adds them up exactly.
    fn clip(&self) -> Result<Clip> {
        Clip::of(self.run.clip_norm(), self.params)
    }

    /// The mechanism.
    #[getter]
    fn mechanism(&self, py: Python<'_>) -> Py<mechanism::Mechanism> {
        self.mechanism.clone_ref(py)
    }

    /// The number of steps.
    #[getter]
    fn steps(&self) -> usize {
        self.run.steps()
    }

    /// Steps that are done; also the step that is next.
    #[getter]
    fn step(&self) -> usize {
        self.run.step()
    }

    /// An upper bound on ε for the whole run.
    #[getter]
    fn epsilon(&self) -> f64 {
        self.run.privacy().epsilon()
    }

    /// δ.
    #[getter]
    fn delta(&self) -> f64 {
        self.run.privacy().delta()
    }

    /// Noise standard deviation divided by the sensitivity under zero-out.
    #[getter]
    fn noise_multiplier(&self) -> f64 {
        self.run.privacy().noise_multiplier().value()
    }

    /// What the whole run is for accounting: one Gaussian mechanism, as it is under the neighbouring relation of the run.
    #[getter]
    fn event(&self) -> Result<Event> {
        let privacy = self.run.privacy();
        Ok(Event(privacy.adjacency().apply(&Run::Matrix.event(privacy.noise_multiplier().value()))?))
    }

    /// The standard deviation of the numbers in Z.
    #[getter]
    fn stddev(&self) -> f64 {
        self.run.stddev()
    }

    /// To which every contribution is clipped as a whole.
    #[getter]
    fn clip_norm(&self) -> f64 {
        self.run.clip_norm()
    }

    /// How many numbers a sum has in this process: all coordinates of the model, or those in `ranges`.
    #[getter]
    fn coordinates(&self) -> usize {
        self.run.coordinates()
    }

    /// Which coordinates of the model these are, [(first, end), …] in the order of the sum; ranges that touch are one.
    #[getter]
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.run.ranges().into_iter().map(|range| (range.start, range.end)).collect()
    }

    /// The id of the noise: the coefficients of the mechanism and the standard deviation, as they are used.
    #[getter]
    fn noise_id(&self) -> &str {
        self.run.noise_id()
    }

    fn __repr__(&self) -> String {
        format!(
            "PrivateRun(step {} of {}, ε ≤ {} at δ = {:e}, noise multiplier {})",
            self.run.step(),
            self.run.steps(),
            self.run.privacy().epsilon(),
            self.run.privacy().delta(),
            self.run.privacy().noise_multiplier()
        )
    }
}

impl PrivateRun {
    /// The log that was asked for, before anybody takes part without it.
    fn open_log(&mut self) -> antiphon::Result<()> {
        if let Some(log) = &self.log {
            self.run.log_to(log)?;
            self.log = None;
        }
        Ok(())
    }

    fn check_length(&self, name: &str, length: usize) -> Result<()> {
        match length == self.run.coordinates() {
            true => Ok(()),
            false => Err(argument(name, format!("{} numbers long", self.run.coordinates()), length)),
        }
    }
}
