//! How a model is trained, and what is usual for the data sets that are here.

use crate::data::Name;
use crate::kind::Kind;
use crate::network::Initial;
use crate::order::Order;
use antiphon::families;
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};
use antiphon::{Error, Result};
use serde::{Deserialize, Serialize};

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
    /// The fall of the learning rate.
    #[serde(with = "pair")]
    pub cooldown: Option<Cooldown>,
    /// Whether the mechanism is made for momentum and cooldown, or for plain sums.
    pub in_workload: bool,
    /// The order of the examples; of no effect on Poisson samples. Left out of files where it is fixed: ids of runs are hashes of this form,
    /// and older than the other orders.
    #[serde(rename = "sampling", default, skip_serializing_if = "Order::is_fixed")]
    pub order: Order,
    /// How the weights of a network begin; of no effect on other models. Left out of files where it is uniform, as the order.
    #[serde(default, skip_serializing_if = "Initial::is_uniform")]
    pub initial: Initial,
}

impl Settings {
    /// Steps per epoch for so many examples.
    pub fn steps_per_epoch(&self, examples: usize) -> usize {
        examples.div_ceil(self.batch_size)
    }

    /// n, for so many examples.
    pub fn steps(&self, examples: usize) -> usize {
        self.epochs * self.steps_per_epoch(examples)
    }

    /// The part of so many examples that is in a batch: q of Poisson samples.
    pub fn sampling_rate(&self, examples: usize) -> f64 {
        self.batch_size as f64 / examples as f64
    }

    /// Who may take part when, for so many examples.
    pub fn schema(&self, examples: usize) -> Result<Schema> {
        self.order.schema(self.epochs, self.steps_per_epoch(examples))
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
        if let Order::Rested { min_separation, max_participations } = self.order {
            self.check_rested(examples, min_separation, max_participations)?;
        }
        self.schema(examples).map(|_| ())
    }

    /// Refuses what leaves a round without users: all of them resting, or all turns used up.
    fn check_rested(&self, users: usize, min_separation: usize, max_participations: usize) -> Result<()> {
        let most = users / self.batch_size;
        if !(1..=most).contains(&min_separation) {
            let allowed = format!(
                "in 1..={most}: {users} users in rounds of {} cannot rest for more rounds",
                self.batch_size
            );
            return Err(Error::argument("min_separation", allowed, min_separation));
        }
        let least = (self.steps(users) * self.batch_size).div_ceil(users);
        if max_participations < least {
            let allowed = format!(
                "at least {least}: {} rounds of {} users are that many turns for each of {users}",
                self.steps(users),
                self.batch_size
            );
            return Err(Error::argument("max_participations", allowed, max_participations));
        }
        Ok(())
    }

    /// η, one per step.
    pub fn rates(&self, steps: usize) -> Result<Vec<f64>> {
        match self.cooldown {
            Some(cooldown) => cooldown.rates(steps),
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

    /// What is usual for a data set and a kind of noise (`None` for a mechanism from a file).
    pub fn usual(name: Name, kind: Option<Kind>) -> Settings {
        let (learning_rate, momentum) = usual_rates(name, kind);
        let (epochs, batch_size) = match name {
            Name::Digits => (20, 60),
            Name::FashionMnist => (10, 500),
            Name::Cifar10 => (20, 500),
        };
        Settings {
            epochs,
            batch_size,
            clip_norm: 1.0,
            learning_rate,
            momentum,
            cooldown: Some(Cooldown { fraction: 0.25, end: 0.05 }),
            in_workload: false,
            order: Order::Fixed,
            initial: Initial::Uniform,
        }
    }
}

/// Rounds of an epoch of federated training, where nothing is said: few enough for a quick run, and cohorts of 1/64 of the users.
const ROUNDS: usize = 64;

impl Settings {
    /// What is usual for federated training: the paper's six epochs, server momentum and cooldown, both in the workload (section 5.3). The server's
    /// rate is the best on validation users among powers of two (optimal and dp-sgd: `poetry`, ε = 8.8, repro/results; identity: `poets`, ε = 8).
    pub fn federated(users: usize, clip_norm: f64, kind: Option<Kind>) -> Settings {
        let learning_rate = match kind {
            Some(Kind::DpSgd | Kind::ShuffledDpSgd) => 0.125,
            Some(kind) if kind == Kind::Family(families::IDENTITY) => 0.0625,
            _ => 0.25,
        };
        Settings {
            epochs: 6,
            batch_size: users.div_ceil(ROUNDS).max(1),
            clip_norm,
            learning_rate,
            momentum: 0.95,
            cooldown: Some(Cooldown { fraction: 0.25, end: 0.05 }),
            in_workload: true,
            order: Order::Fixed,
            initial: Initial::Uniform,
        }
    }
}

/// ε and δ that are usual for a data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsualPrivacy {
    /// ε.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
}

impl UsualPrivacy {
    /// For a data set.
    pub fn of(name: Name) -> UsualPrivacy {
        let (epsilon, delta) = match name {
            Name::Digits => (1.0, 1e-4),
            Name::FashionMnist => (4.0, 1e-5),
            Name::Cifar10 => (8.0, 1e-5),
        };
        UsualPrivacy { epsilon, delta }
    }

    /// For so many users: δ is 1e-5, or the next power of ten below half of 1/users.
    pub fn federated(users: usize) -> UsualPrivacy {
        let mut delta = 1e-5;
        while 2.0 * delta * users as f64 > 1.0 {
            delta /= 10.0;
        }
        UsualPrivacy { epsilon: 8.0, delta }
    }
}

/// Learning rate and momentum for a data set and a kind of noise. For the digits they were the best of a grid on held-out
/// training examples at ε = 1 (288 of them, 20 seeds), for Fashion-MNIST at ε = 4 (repro/results). For CIFAR-10 they are the best that was
/// tried at ε = 10 (optimal, comb-blt, fft-optimal, dp-sgd; repro/results), for identity there a guess. Smaller ε want smaller rates.
fn usual_rates(name: Name, kind: Option<Kind>) -> (f64, f64) {
    let is = |family| kind == Some(Kind::Family(family));
    let sampled = matches!(kind, Some(Kind::DpSgd | Kind::ShuffledDpSgd));
    match name {
        Name::Digits if is(families::IDENTITY) => (0.1, 0.0),
        Name::Digits => (0.03, 0.9),
        Name::FashionMnist if is(families::IDENTITY) => (0.1, 0.9),
        Name::FashionMnist if is(families::OPTIMAL) || is(families::COMB_BLT) => (0.5, 0.9),
        Name::FashionMnist => (0.2, 0.9),
        Name::Cifar10 if is(families::IDENTITY) => (0.2, 0.0),
        Name::Cifar10 if sampled => (0.1, 0.9),
        Name::Cifar10 => (0.2, 0.9),
    }
}

/// A cooldown as a list of two numbers: ids of runs are hashes of this form.
mod pair {
    use super::Cooldown;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(cooldown: &Option<Cooldown>, to: S) -> Result<S::Ok, S::Error> {
        cooldown.map(|Cooldown { fraction, end }| (fraction, end)).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cooldown>, D::Error> {
        let pair: Option<(f64, f64)> = Option::deserialize(from)?;
        Ok(pair.map(|(fraction, end)| Cooldown { fraction, end }))
    }
}
