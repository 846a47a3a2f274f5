//! Who may take part when.

use crate::errors::Result;
use antiphon::schema as library;
use pyo3::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A participation schema: in which steps one example (or one user) may take part.
///
/// >>> import antiphon
/// >>> antiphon.Schema.epochs(20, 100)
/// Schema(20 epochs of 100 steps (2000 steps), same order in every epoch)
#[pyclass(frozen, eq, module = "antiphon", from_py_object)]
#[derive(Clone, PartialEq)]
pub struct Schema(pub library::Schema);

impl Hash for Schema {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.describe().hash(state);
    }
}

#[pymethods]
impl Schema {
    /// `epochs` passes over the data, each of `steps_per_epoch` steps, in the same order every time.
    ///
    /// >>> antiphon.Schema.epochs(4, 25).steps
    /// 100
    #[staticmethod]
    fn epochs(epochs: usize, steps_per_epoch: usize) -> Result<Schema> {
        Ok(Schema(library::Schema::epochs(epochs, steps_per_epoch)?))
    }

    /// `steps` steps in fixed epoch order; the last epoch may be incomplete. With `max_participations`, an example
    /// leaves after so many epochs.
    #[staticmethod]
    #[pyo3(signature = (steps, steps_per_epoch, max_participations=None))]
    fn fixed_order(
        steps: usize,
        steps_per_epoch: usize,
        max_participations: Option<usize>,
    ) -> Result<Schema> {
        Ok(Schema(match max_participations {
            None => library::Schema::fixed_order(steps, steps_per_epoch)?,
            Some(most) => library::Schema::fixed_order_at_most(steps, steps_per_epoch, most)?,
        }))
    }

    /// Every example takes part at most once.
    #[staticmethod]
    fn single(steps: usize) -> Result<Schema> {
        Ok(Schema(library::Schema::single(steps)?))
    }

    /// Every example takes part in every step: full-batch gradient descent.
    #[staticmethod]
    fn every_step(steps: usize) -> Result<Schema> {
        Ok(Schema(library::Schema::every_step(steps)?))
    }

    /// Two participations of one example are at least `min_separation` steps apart, and there are at most
    /// `max_participations` of them (default: as many as fit).
    #[staticmethod]
    #[pyo3(signature = (steps, min_separation, max_participations=None))]
    fn min_separation(
        steps: usize,
        min_separation: usize,
        max_participations: Option<usize>,
    ) -> Result<Schema> {
        let most = max_participations.unwrap_or_else(|| steps.div_ceil(min_separation.max(1)));
        Ok(Schema(library::Schema::min_separation(steps, min_separation, most)?))
    }

    /// An explicit list of patterns, each a strictly increasing list of steps, counted from 0.
    ///
    /// >>> antiphon.Schema.patterns(3, [[0, 2], [1]]).max_participations
    /// 2
    #[staticmethod]
    fn patterns(steps: usize, patterns: Vec<Vec<usize>>) -> Result<Schema> {
        Ok(Schema(library::Schema::patterns(steps, patterns)?))
    }

    /// The number of steps.
    #[getter]
    fn steps(&self) -> usize {
        self.0.steps()
    }

    /// The largest number of participations of one example.
    #[getter]
    fn max_participations(&self) -> usize {
        self.0.max_participations()
    }

    /// Steps per epoch where the order is fixed and every step of an epoch has its own examples, otherwise None.
    #[getter]
    fn steps_per_epoch(&self) -> Option<usize> {
        self.0.residues()
    }

    fn __str__(&self) -> String {
        self.0.describe()
    }

    fn __repr__(&self) -> String {
        format!("Schema({})", self.0.describe())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}
