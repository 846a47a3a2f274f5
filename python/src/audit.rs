//! What privacy a run really had, from its participation log.

use crate::accounting::relation;
use crate::errors::Result;
use crate::mechanism::verified;
use antiphon::accounting::{Adjacency, NoiseMultiplier};
use antiphon::run::audit as library;
use antiphon::run::log::{Limits, Reader};
use antiphon::verify::Verified;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// What was found in a participation log.
#[pyclass(frozen, module = "antiphon", get_all)]
pub struct Audit {
    /// Whether every participation is one that the schema allows.
    ok: bool,
    /// What the schema does not allow: step, unit and reason; step and unit are None where it is about the whole log.
    violations: Vec<(Option<usize>, Option<u64>, String)>,
    /// Steps that have a line.
    steps: usize,
    /// Distinct units.
    units: usize,
    /// Participations of all units.
    participations: usize,
    /// The sensitivity for the participations in the log, an upper bound.
    sensitivity: f64,
    /// The unit that has it, and its steps.
    worst: Option<(u64, Vec<usize>)>,
    /// ε as it was stated before the run.
    epsilon_stated: f64,
    /// ε for the participations in the log, taken as fixed, if the log is true and complete. An upper bound.
    epsilon_realised: f64,
}

#[pymethods]
impl Audit {
    fn __repr__(&self) -> String {
        let found = match self.ok {
            true => "no violations".into(),
            false => format!("{} violations", self.violations.len()),
        };
        format!("Audit({found}, ε stated {}, ε realised {})", self.epsilon_stated, self.epsilon_realised)
    }
}

/// Reads the participation log of a run with a mechanism (an object or a file) and computes the privacy that the run
/// really had.
#[pyfunction]
#[pyo3(signature = (log, mechanism, *, noise_multiplier, delta, adjacency="zero-out"))]
pub fn audit(
    py: Python<'_>,
    log: PathBuf,
    mechanism: &Bound<'_, PyAny>,
    noise_multiplier: f64,
    delta: f64,
    adjacency: &str,
) -> Result<Audit> {
    let (z, adjacency) = (NoiseMultiplier::new(noise_multiplier)?, relation(adjacency)?);
    let verified = verified(mechanism)?;
    py.detach(|| audited(&log, &verified, z, delta, adjacency))
}

/// The same for figures that are known to belong together.
pub fn audited(
    log: &Path,
    verified: &Verified,
    z: NoiseMultiplier,
    delta: f64,
    adjacency: Adjacency,
) -> Result<Audit> {
    let lines = Reader::open(log, Limits { steps: verified.steps(), units: None })?;
    let found = library::audit(verified, lines, z, delta, adjacency)?;
    let violation = |found: library::Violation| (found.step, found.unit, found.reason);
    Ok(Audit {
        ok: found.ok(),
        violations: found.violations.iter().map(violation).collect(),
        steps: found.counts.steps,
        units: found.counts.units,
        participations: found.counts.participations,
        sensitivity: found.sensitivity.upper,
        worst: found.worst.map(|worst| (worst.unit, worst.steps)),
        epsilon_stated: found.epsilon_stated,
        epsilon_realised: found.epsilon_realised,
    })
}
