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
use crate::design::{Design, Privacy};
use crate::guard::Guard;
use crate::kind;
use crate::secrets::Secrets;
use crate::task::{Score, Task};
use antiphon::accounting::calibrate::Run;
use antiphon::noise::Rows;
use antiphon::workload::{Cooldown, Workload};
use antiphon::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// k.
    pub epochs: usize,
    /// Examples in a batch, on average for Poisson samples; what sums are divided by.
    pub batch_size: usize,
    /// ζ.
    pub clip_norm: f64,
    /// Before the cooldown.
    pub learning_rate: f64,
    /// β.
    pub momentum: f64,
    /// The fall of the learning rate: its part of the run, and what it ends at.
    pub cooldown: Option<(f64, f64)>,
    /// Whether the mechanism is made for momentum and cooldown, or for plain sums.
    pub in_workload: bool,
}

impl Settings {
    /// Steps per epoch for so many examples.
    pub fn steps_per_epoch(&self, examples: usize) -> usize {
        examples.div_ceil(self.batch_size)
    }

    /// Refuses what makes no sense for so many examples.
    pub fn check(&self, examples: usize) -> Result<()> {
        if self.epochs == 0 {
            return Err(Error::argument("epochs", "at least 1", self.epochs));
        }
        if !(1..=examples).contains(&self.batch_size) {
            return Err(Error::argument("batch_size", format!("in 1..={examples}"), self.batch_size));
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return Err(Error::argument("learning_rate", "positive and finite", self.learning_rate));
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(Error::argument("momentum", "in [0, 1)", self.momentum));
        }
        if !(1e-30..=1e30).contains(&self.clip_norm) {
            return Err(Error::argument("clip_norm", "in [1e-30, 1e30]", self.clip_norm));
        }
        Ok(())
    }

    /// η, one per step.
    pub fn rates(&self, steps: usize) -> Result<Vec<f64>> {
        match self.cooldown {
            Some((fraction, end)) => Cooldown { fraction, end }.rates(steps),
            None => Ok(vec![1.0; steps]),
        }
    }

    /// What a mechanism for this run is made for.
    pub fn workload(&self, steps: usize) -> Result<Workload> {
        if !self.in_workload {
            return Ok(Workload::prefix_sum(steps));
        }
        let rates = self.cooldown.map(|_| self.rates(steps)).transpose()?;
        Workload::training(steps, self.momentum, rates)
    }
}

/// All that a run is, but for its keys: two runs with the same description and the same secrets are the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The version of the loop.
    pub antiphon_run: u32,
    /// The data set, and the SHA-256 of what is in it.
    pub dataset: (String, String),
    /// The network.
    pub model: String,
    /// How it is trained.
    pub settings: Settings,
    /// The mechanism: its name, and the id of its file if it has one.
    pub mechanism: (String, Option<String>),
    /// What it costs.
    pub privacy: Figures,
    /// σ.
    pub stddev: f64,
}

/// The figures of a [`Privacy`] as they are written down. They are read to be shown or compared; a run is not made from them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// An upper bound on ε.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
    /// Noise standard deviation over sensitivity.
    pub noise_multiplier: f64,
    /// Whether ε holds for what the run does.
    pub valid: bool,
}

impl From<&Privacy> for Figures {
    fn from(privacy: &Privacy) -> Figures {
        Figures {
            epsilon: privacy.epsilon(),
            delta: privacy.delta(),
            noise_multiplier: privacy.noise_multiplier(),
            valid: privacy.valid(),
        }
    }
}

impl Description {
    /// The version of the loop.
    pub const VERSION: u32 = 1;

    /// Of a run.
    pub fn new(task: &Task, design: &Design, settings: &Settings, privacy: &Privacy) -> Description {
        Description {
            antiphon_run: Description::VERSION,
            dataset: task.identity(),
            model: task.model.name().into(),
            settings: *settings,
            mechanism: (design.name().into(), design.mechanism().map(antiphon::file::id)),
            privacy: privacy.into(),
            stddev: design.stddev(privacy, settings.clip_norm),
        }
    }

    /// The SHA-256 of all of it, in hexadecimal, with the former name of the mechanism.
    pub fn id(&self) -> String {
        let named = self.named(kind::former_name);
        let text = serde_json::to_string(&named).expect("plain fields");
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The same with another name for the mechanism.
    pub(crate) fn named(&self, name: impl Fn(&str) -> String) -> Description {
        let (mechanism, id) = &self.mechanism;
        Description { mechanism: (name(mechanism), id.clone()), ..self.clone() }
    }
}

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
    /// The part of the gradients that were clipped.
    pub clipped: f64,
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
    /// Of the epoch that is not: examples, the sum of their losses, clipped gradients.
    pub running: (usize, f64, usize),
}

/// A run.
pub struct Trainer<'a> {
    task: &'a Task,
    settings: Settings,
    steps_per_epoch: usize,
    rates: Vec<f64>,
    batches: Batches,
    /// None for Poisson samples, which promise nothing about who takes part when.
    guard: Option<Guard>,
    rows: Rows,
    state: State,
    sum: Vec<f64>,
    row: Vec<f32>,
}

impl<'a> Trainer<'a> {
    /// A run from its first step, with about so many bytes for noise.
    pub fn new(
        task: &'a Task,
        design: &Design,
        settings: &Settings,
        privacy: &Privacy,
        secrets: &Secrets,
        memory: usize,
    ) -> Result<Trainer<'a>> {
        let examples = task.train.len();
        settings.check(examples)?;
        let steps_per_epoch = settings.steps_per_epoch(examples);
        let steps = settings.epochs * steps_per_epoch;
        if design.steps() != steps {
            let epochs = counted(settings.epochs, "epoch");
            let allowed = format!("made for {} ({epochs} of {steps_per_epoch})", counted(steps, "step"));
            return Err(Error::argument("mechanism", allowed, counted(design.steps(), "step")));
        }
        if !design.covers(privacy) {
            let allowed =
                format!("accounted for {:?}, as the mechanism {} needs it", design.run(), design.name());
            return Err(Error::argument("privacy", allowed, format!("{privacy:?}")));
        }
        let batches = if design.poisson() {
            let rate = settings.batch_size as f64 / examples as f64;
            match design.run() {
                Run::Sampled { sampling_rate, .. } if rate <= sampling_rate => {}
                run => {
                    let allowed = format!("accounted for with a sampling rate of at least {rate}");
                    return Err(Error::argument("mechanism", allowed, format!("{run:?}")));
                }
            }
            Batches::poisson(examples, rate, &secrets.sampling)
        } else {
            Batches::fixed_order(examples, settings.batch_size, &secrets.order)
        };
        let guard = match design.mechanism() {
            Some(mechanism) => {
                let guard = Guard::new(&mechanism.schema, examples)?;
                // A mechanism for another participation is found out now, not after an epoch.
                let mut trial = guard.clone();
                (0..steps).try_for_each(|step| trial.admit(step, &batches.step(step)))?;
                Some(guard)
            }
            None => None,
        };
        let parameters = task.network().initial(&secrets.start);
        let d = parameters.len();
        let stddev = design.stddev(privacy, settings.clip_norm);
        let rows = Rows::new(&design.noise(), steps, &secrets.noise, stddev, 0..d as u64, memory)?;
        let state =
            State { step: 0, parameters, velocity: vec![0.0; d], epochs: Vec::new(), running: (0, 0.0, 0) };
        Ok(Trainer {
            task,
            settings: *settings,
            steps_per_epoch,
            rates: settings.rates(steps)?,
            batches,
            guard,
            rows,
            state,
            sum: vec![0.0; d],
            row: vec![0.0; d],
        })
    }

    /// Goes on from a state of this very run.
    pub fn resume(&mut self, state: State) -> Result<()> {
        let d = self.state.parameters.len();
        if state.parameters.len() != d || state.velocity.len() != d || state.step > self.steps() {
            let allowed = format!("of {d} parameters and at most {} steps", self.steps());
            let value = format!("{} parameters, step {}", state.parameters.len(), state.step);
            return Err(Error::argument("the checkpoint", allowed, value));
        }
        // Who has taken part so far.
        if let Some(guard) = &mut self.guard {
            (0..state.step).try_for_each(|step| guard.admit(step, &self.batches.step(step)))?;
        }
        self.rows.seek(state.step)?;
        self.state = state;
        Ok(())
    }

    /// n.
    pub fn steps(&self) -> usize {
        self.rates.len()
    }

    /// Where it is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The id of the noise: mechanism and standard deviation, as they are used.
    pub fn noise_id(&self) -> &str {
        self.rows.id()
    }

    /// Whether all steps are done.
    pub fn finished(&self) -> bool {
        self.state.step == self.steps()
    }

    /// One step. Tells of the epoch if it was the last of one.
    pub fn step(&mut self) -> Result<Option<Epoch>> {
        let step = self.state.step;
        let examples = self.batches.step(step);
        if let Some(guard) = &mut self.guard {
            guard.admit(step, &examples)?;
        }
        let State { parameters, velocity, running, .. } = &mut self.state;
        let clip = self.settings.clip_norm;
        let totals = self.task.clipped_sum(parameters, &examples, clip, &mut self.sum)?;
        self.rows.next_into(&mut self.row)?;
        let rate = self.settings.learning_rate * *self.rates.get(step).unwrap_or(&0.0);
        let (beta, size) = (self.settings.momentum, self.settings.batch_size as f64);
        let noisy = self.sum.iter().zip(&self.row).map(|(sum, noise)| (sum + f64::from(*noise)) / size);
        for ((theta, v), gradient) in parameters.iter_mut().zip(velocity).zip(noisy) {
            *v = (beta * f64::from(*v) + gradient) as f32;
            *theta = (f64::from(*theta) - rate * f64::from(*v)) as f32;
        }
        if !parameters.iter().all(|x| x.is_finite()) {
            return Err(Error::Numerical(format!(
                "the training diverged: parameters are not finite after step {} of {}; use a learning rate below {}",
                step + 1,
                self.rates.len(),
                self.settings.learning_rate
            )));
        }
        running.0 += totals.examples;
        running.1 += totals.loss;
        running.2 += totals.clipped;
        self.state.step += 1;
        if !self.state.step.is_multiple_of(self.steps_per_epoch) {
            return Ok(None);
        }
        let (examples, loss, clipped) = std::mem::take(&mut self.state.running);
        let per_example = |x: f64| if examples == 0 { 0.0 } else { x / examples as f64 };
        let epoch = Epoch {
            epoch: self.state.step / self.steps_per_epoch,
            step: self.state.step,
            train_loss: per_example(loss),
            clipped: per_example(clipped as f64),
            test: self.task.score(&self.state.parameters)?,
        };
        self.state.epochs.push(epoch);
        Ok(Some(epoch))
    }
}

/// `1 step`, `2 steps`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
