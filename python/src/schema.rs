//! Who may take part when.

use crate::errors::{Result, whole};
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
    fn epochs(epochs: i128, steps_per_epoch: i128) -> Result<Schema> {
        let (epochs, per_epoch) = (whole("epochs", epochs)?, whole("steps_per_epoch", steps_per_epoch)?);
        Ok(Schema(library::Schema::epochs(epochs, per_epoch)?))
    }

    /// `epochs` passes over the data, each of `steps_per_epoch` steps, with a new order in every epoch: an example takes part
    /// at most once in each epoch, in any of its steps.
    ///
    /// >>> antiphon.Schema.reshuffled(20, 100)
    /// Schema(20 epochs of 100 steps (2000 steps), a new order in every epoch)
    #[staticmethod]
    fn reshuffled(epochs: i128, steps_per_epoch: i128) -> Result<Schema> {
        let (epochs, per_epoch) = (whole("epochs", epochs)?, whole("steps_per_epoch", steps_per_epoch)?);
        Ok(Schema(library::Schema::reshuffled(epochs, per_epoch)?))
    }

    /// `steps` steps in fixed epoch order; the last epoch may be incomplete. With `max_participations`, an example
    /// leaves after so many epochs.
    #[staticmethod]
    #[pyo3(signature = (steps, steps_per_epoch, max_participations=None))]
    fn fixed_order(steps: i128, steps_per_epoch: i128, max_participations: Option<i128>) -> Result<Schema> {
        let (steps, per_epoch) = (whole("steps", steps)?, whole("steps_per_epoch", steps_per_epoch)?);
        Ok(Schema(match max_participations {
            None => library::Schema::fixed_order(steps, per_epoch)?,
            Some(most) => {
                let most = whole("max_participations", most)?;
                library::Schema::fixed_order_at_most(steps, per_epoch, most)?
            }
        }))
    }

    /// Every example takes part at most once.
    #[staticmethod]
    fn single(steps: i128) -> Result<Schema> {
        Ok(Schema(library::Schema::single(whole("steps", steps)?)?))
    }

    /// Every example takes part in every step: full-batch gradient descent.
    #[staticmethod]
    fn every_step(steps: i128) -> Result<Schema> {
        Ok(Schema(library::Schema::every_step(whole("steps", steps)?)?))
    }

    /// Two participations of one example are at least `min_separation` steps apart, and there are at most
    /// `max_participations` of them (default: as many as fit).
    #[staticmethod]
    #[pyo3(signature = (steps, min_separation, max_participations=None))]
    fn min_separation(steps: i128, min_separation: i128, max_participations: Option<i128>) -> Result<Schema> {
        let (steps, apart) = (whole("steps", steps)?, whole("min_separation", min_separation)?);
        let most = match max_participations {
            Some(most) => whole("max_participations", most)?,
            None => steps.div_ceil(apart.max(1)),
        };
        Ok(Schema(library::Schema::min_separation(steps, apart, most)?))
    }

    /// An explicit list of patterns, each a strictly increasing list of steps, counted from 0.
    ///
    /// >>> antiphon.Schema.patterns(3, [[0, 2], [1]]).max_participations
    /// 2
    #[staticmethod]
    fn patterns(steps: i128, patterns: Vec<Vec<i128>>) -> Result<Schema> {
        let steps = whole("steps", steps)?;
        let step = |step: i128| whole("every step of a pattern", step);
        let pattern = |pattern: Vec<i128>| pattern.into_iter().map(step).collect::<Result<Vec<_>>>();
        let patterns = patterns.into_iter().map(pattern).collect::<Result<_>>()?;
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
