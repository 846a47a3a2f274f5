//! A client's own training: a few steps of gradient descent on a copy of the parameters, and how far they went.

use super::batch::Batch;
use super::parameters::Parameters;
use super::{Positions, Schedule, Totals, Window};
use crate::real::Real;

/// Positions that are evaluated together.
const EVALUATED: usize = 32;

/// The memory of one client's training, used again by the next one. Make one per thread.
pub struct Local<T: Real = f32> {
    pub(super) parameters: Parameters<T>,
    pub(super) batch: Batch<T>,
    update: Vec<T>,
}

impl<T: Real> Local<T> {
    /// Memory for clients of this model. That of a batch is made when the first one comes.
    pub fn new(window: &Window) -> Self {
        let update = vec![T::default(); window.parameters()];
        Local { parameters: Parameters::new(*window), batch: Batch::default(), update }
    }

    /// Gradient descent from `theta` over the positions, in their order: each step subtracts `rate` times the mean gradient of
    /// its batch. Then [`Local::update`] has what the client moved by.
    ///
    /// Parameters that are not finite, or grow so, give an update that is not finite.
    ///
    /// # Panics
    ///
    /// If `theta` or the contexts have the wrong length. Tokens must be below the vocabulary: others panic, or give
    /// numbers without meaning.
    pub fn train(&mut self, theta: &[T], positions: Positions<'_>, schedule: Schedule) -> Totals {
        self.begin(theta, positions);
        let batches = positions.batches(self.parameters.window.context, schedule.batch.max(1));
        let first = batches.clone().count();
        let all = (0..schedule.epochs).flat_map(|_| batches.clone());
        let mut totals = Totals::default();
        for (step, batch) in all.take(schedule.steps.unwrap_or(usize::MAX)).enumerate() {
            self.batch.forward(&self.parameters, batch);
            self.batch.softmax(&self.parameters, batch.labels, false, None);
            if step < first {
                self.count(batch.labels, &mut totals);
            }
            self.batch.step(&mut self.parameters, batch.labels, schedule.rate);
        }
        self.parameters.difference(theta, &mut self.update);
        totals
    }

    /// What the last client moved by: for every parameter `theta` − its value at the end, one subtraction in this type.
    /// Zero for a client without positions, if `theta` is finite.
    pub fn update(&self) -> &[T] {
        &self.update
    }

    /// Calls `each` with the place of every position, its loss and the token of the largest logit (of equal ones the first; `never`
    /// is passed over), with these parameters. [`Local::update`] stays what it is. Panics as [`Local::train`] does.
    pub fn evaluate(
        &mut self,
        theta: &[T],
        positions: Positions<'_>,
        never: Option<u32>,
        mut each: impl FnMut(usize, f64, u32),
    ) {
        self.begin(theta, positions);
        for (i, batch) in positions.batches(self.parameters.window.context, EVALUATED).enumerate() {
            self.batch.forward(&self.parameters, batch);
            self.batch.softmax(&self.parameters, batch.labels, true, never);
            for t in 0..batch.labels.len() {
                each(i * EVALUATED + t, self.batch.loss(t), self.batch.guesses[t]);
            }
        }
    }

    /// Checks lengths, and copies the parameters.
    fn begin(&mut self, theta: &[T], positions: Positions<'_>) {
        let Window { vocabulary, context, .. } = self.parameters.window;
        assert_eq!(positions.contexts.len(), context * positions.labels.len(), "length of contexts");
        let mut tokens = positions.contexts.iter().chain(positions.labels);
        debug_assert!(tokens.all(|token| (*token as usize) < vocabulary), "a token is not in the vocabulary");
        self.parameters.load(theta);
    }

    /// Adds what a batch gave to the totals.
    fn count(&self, labels: &[u32], totals: &mut Totals) {
        totals.positions += labels.len();
        for (t, label) in labels.iter().enumerate() {
            let loss = self.batch.loss(t);
            totals.loss += loss;
            totals.hits += usize::from(self.batch.guesses[t] == *label && loss.is_finite());
        }
    }
}
