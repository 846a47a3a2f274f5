//! The loop: clip, sum, add a row of noise, divide, step.
//!
//! ```text
//! ĝ_t = (Σ clipped gradients of step t + row t of the noise) / batch size        the same divisor for every batch
//! v_t = β·v_{t−1} + ĝ_t
//! θ_t = θ_{t−1} − (learning rate)·η_t·v_t                                       η_t from the cooldown
//! ```
//!
//! Momentum and cooldown work on what is private already. Whether the mechanism was made for them (its workload) or for plain sums
//! changes the noise, not the loop.

use crate::batches::Batches;
use crate::design::Design;
use crate::engine::Totals;
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::task::{Score, Task, Turn};
use antiphon::noise::Key;
use antiphon::run::log::Line;
use antiphon::run::{self, Budget, Privacy, PrivateRun};
use antiphon::{Error, Result};
use serde::{Deserialize, Serialize};

/// One epoch, when it is over. Training loss and clipped part are computed from the training data without noise: ε does not cover
/// them, so they must not be published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// From 1.
    pub epoch: usize,
    /// Steps that are done.
    pub step: usize,
    /// The mean loss of the training examples when their turn came.
    pub train_loss: f64,
    /// The part of the gradients, or of the updates of clients, that were clipped.
    pub clipped: f64,
    /// Updates of clients that were zeroed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zeroed: Option<usize>,
    /// On the test images.
    pub test: Score,
}

/// What changes from step to step, and all that a checkpoint keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Steps that are done.
    pub step: usize,
    /// θ.
    pub parameters: Vec<f32>,
    /// v.
    pub velocity: Vec<f32>,
    /// Epochs that are over.
    pub epochs: Vec<Epoch>,
    /// Of the epoch that is not.
    pub running: Running,
    /// Updates of clients that were zeroed, by step; empty where there are no clients.
    pub zeroed: Vec<usize>,
}

impl State {
    /// Before the first step.
    pub(crate) fn new(parameters: Vec<f32>) -> State {
        let velocity = vec![0.0; parameters.len()];
        let (epochs, zeroed) = (Vec::new(), Vec::new());
        State { step: 0, parameters, velocity, epochs, running: Running::default(), zeroed }
    }
}

/// What is counted in an epoch; in files a list of the three.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "(usize, f64, usize)", into = "(usize, f64, usize)")]
pub struct Running {
    /// Whose turn came.
    pub examples: usize,
    /// The sum of their losses.
    pub loss: f64,
    /// Gradients that were clipped.
    pub clipped: usize,
}

impl From<(usize, f64, usize)> for Running {
    fn from((examples, loss, clipped): (usize, f64, usize)) -> Running {
        Running { examples, loss, clipped }
    }
}

impl From<Running> for (usize, f64, usize) {
    fn from(Running { examples, loss, clipped }: Running) -> (usize, f64, usize) {
        (examples, loss, clipped)
    }
}

/// A state together with that of the private run: what a checkpoint keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// Of the model.
    pub model: State,
    /// Of the run.
    pub run: run::State,
    /// Whether a log says who took part up to there.
    pub logged: bool,
}

/// A run.
pub struct Trainer<'a> {
    task: &'a dyn Task,
    settings: Settings,
    rates: Vec<f64>,
    /// None for Poisson samples, which the run draws.
    batches: Option<Batches>,
    run: PrivateRun,
    /// Of what units do by chance.
    local: Key,
    state: State,
    sum: Vec<f64>,
}

impl<'a> Trainer<'a> {
    /// A run from its first step, with about so many bytes for noise. It takes its secrets.
    pub fn new(
        task: &'a dyn Task,
        design: &Design,
        settings: &Settings,
        privacy: &Privacy,
        secrets: Secrets,
        memory: usize,
    ) -> Result<Trainer<'a>> {
        let examples = task.units();
        settings.check(examples)?;
        design.check(settings, examples)?;
        let parameters = task.initial(settings.initial, &secrets.start);
        let d = parameters.len();
        // The budget was spent already.
        let budget = Budget::Noise { noise_multiplier: privacy.noise_multiplier(), delta: privacy.delta() };
        let of_run = run::Settings {
            memory,
            unit: task.unit(),
            ..run::Settings::new(budget, settings.clip_norm, examples, d as u64)
        };
        let batches = (!design.poisson()).then(|| Batches::new(settings, examples, secrets.order));
        let run = design.start(&of_run, *privacy, secrets.noise, secrets.sampling)?;
        if let Some(batches) = &batches {
            // Batches that the guard would refuse are found out now, not after an epoch.
            run.rehearse(|step| batches.step(step))?;
        }
        let local = Secrets::units(secrets.start);
        Ok(Trainer {
            task,
            settings: *settings,
            rates: settings.rates(settings.steps(examples))?,
            batches,
            run,
            local,
            state: State::new(parameters),
            sum: vec![0.0; d],
        })
    }

    /// Goes on from what was saved of this very run.
    pub fn resume(&mut self, saved: Saved) -> Result<()> {
        let (d, Saved { model, run, .. }) = (self.state.parameters.len(), saved);
        if model.parameters.len() != d || model.velocity.len() != d || model.step != run.step() {
            let allowed = format!("of {d} parameters, and at step {}", run.step());
            let value = format!("{} parameters, step {}", model.parameters.len(), model.step);
            return Err(Error::argument("the checkpoint", allowed, value));
        }
        self.run.restore(&run)?;
        self.state = model;
        Ok(())
    }

    /// What is to be kept for [`Trainer::resume`].
    pub fn saved(&self) -> Saved {
        Saved { model: self.state.clone(), run: self.run.state(), logged: self.run.is_logged() }
    }

    /// Whether a line of a log is one of this run.
    pub fn takes_part(&self, line: &Line) -> bool {
        let participants = match &self.batches {
            Some(batches) => batches.step(line.step),
            None => self.run.sample_of(line.step).unwrap_or_default(),
        };
        line.step < self.steps()
            && participants.iter().map(|unit| *unit as u64).eq(line.units.iter().copied())
    }

    /// What is learnt.
    pub fn task(&self) -> &dyn Task {
        self.task
    }

    /// The private run: its figures and its statement.
    pub fn run(&self) -> &PrivateRun {
        &self.run
    }

    /// The private run, to give it a log.
    pub fn run_mut(&mut self) -> &mut PrivateRun {
        &mut self.run
    }

    /// n.
    pub fn steps(&self) -> usize {
        self.rates.len()
    }

    /// Where it is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether all steps are done.
    pub fn finished(&self) -> bool {
        self.state.step == self.steps()
    }

    /// One step. Tells of the epoch if it was the last of one.
    pub fn step(&mut self) -> Result<Option<Epoch>> {
        let step = self.state.step;
        let examples = match &self.batches {
            Some(batches) => batches.step(step),
            None => self.run.sample().unwrap_or_default(),
        };
        self.run.admit(step, &examples)?;
        let (turn, clip) = (Turn { step, key: &self.local }, self.settings.clip_norm);
        let totals = self.task.clipped_sum(turn, &self.state.parameters, &examples, clip, &mut self.sum)?;
        self.run.privatize(&mut self.sum)?;
        self.state.advance(self.task, &self.settings, &self.rates, &self.sum, &totals)
    }
}

impl State {
    /// Takes the step that a sum leads to, counts what was seen on the way, and tests where an epoch ends.
    pub(crate) fn advance(
        &mut self,
        task: &dyn Task,
        settings: &Settings,
        rates: &[f64],
        sum: &[f64],
        totals: &Totals,
    ) -> Result<Option<Epoch>> {
        descend(settings, rates, self.step, sum, &mut self.parameters, &mut self.velocity)?;
        if task.client().is_some() {
            self.zeroed.push(totals.zeroed);
        }
        self.running.examples += totals.examples;
        self.running.loss += totals.loss;
        self.running.clipped += totals.clipped;
        self.step += 1;
        let steps_per_epoch = settings.steps_per_epoch(task.units());
        if !self.step.is_multiple_of(steps_per_epoch) {
            return Ok(None);
        }
        let test = task.score(&self.parameters)?;
        // No checkpoint could keep it.
        if !test.loss.is_finite() {
            return Err(diverged("the test loss is not finite", self.step - 1, rates.len(), settings));
        }
        let Running { examples, loss, clipped } = std::mem::take(&mut self.running);
        let per_example = |x: f64| if examples == 0 { 0.0 } else { x / examples as f64 };
        let epoch = Epoch {
            epoch: self.step / steps_per_epoch,
            step: self.step,
            train_loss: per_example(loss),
            clipped: per_example(clipped as f64),
            zeroed: task.client().map(|_| of_epoch(&self.zeroed, steps_per_epoch)),
            test,
        };
        self.epochs.push(epoch);
        Ok(Some(epoch))
    }
}

/// The sum over the last steps.
fn of_epoch(counts: &[usize], steps: usize) -> usize {
    counts[counts.len().saturating_sub(steps)..].iter().sum()
}

/// One step of the parameters from a sum that is private already: the same divisor for every batch, momentum, rate.
pub(crate) fn descend(
    settings: &Settings,
    rates: &[f64],
    step: usize,
    sum: &[f64],
    parameters: &mut [f32],
    velocity: &mut [f32],
) -> Result<()> {
    let rate = settings.learning_rate * *rates.get(step).unwrap_or(&0.0);
    let (beta, size) = (settings.momentum, settings.batch_size as f64);
    for ((theta, v), sum) in parameters.iter_mut().zip(velocity).zip(sum) {
        *v = (beta * f64::from(*v) + sum / size) as f32;
        *theta = (f64::from(*theta) - rate * f64::from(*v)) as f32;
    }
    match parameters.iter().all(|x| x.is_finite()) {
        true => Ok(()),
        false => Err(diverged("parameters are not finite", step, rates.len(), settings)),
    }
}

/// What is no model any more.
fn diverged(what: &str, step: usize, steps: usize, settings: &Settings) -> Error {
    let rate = settings.learning_rate;
    Error::Numerical(format!(
        "the training diverged: {what} after step {} of {steps}; use a learning rate below {rate}",
        step + 1
    ))
}
