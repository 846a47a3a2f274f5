//! How much privacy, or how much noise; and what the one costs in the other.

use crate::accounting::calibrate::{self, Run};
use crate::accounting::{self, Adjacency, NoiseMultiplier, Params};
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// How much privacy, or how much noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// The least noise for this (ε, δ).
    Target {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
    /// This noise, and ε at δ.
    Noise {
        /// z.
        noise_multiplier: NoiseMultiplier,
        /// δ.
        delta: f64,
    },
}

/// What is protected as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One record.
    Example,
    /// All records of one person.
    User,
    /// What one person wrote in one conversation. A person may have taken part in several: this is less than user-level privacy.
    ConversationSide,
}

impl Unit {
    /// In a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Example => "example",
            Unit::User => "user",
            Unit::ConversationSide => "conversation side",
        }
    }
}

/// What a run costs. Only [`Budget::account`] makes one.
///
/// ```compile_fail
/// use antiphon::run::Privacy;
/// let forged = Privacy { epsilon: 0.1, delta: 1e-9, noise_multiplier: todo!(), adjacency: todo!(), run: todo!() };
/// ```
///
/// Nor is one read from a file:
///
/// ```compile_fail
/// let forged: antiphon::run::Privacy = serde_json::from_str("{}").unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Privacy {
    epsilon: f64,
    delta: f64,
    noise_multiplier: NoiseMultiplier,
    adjacency: Adjacency,
    run: Run,
}

impl Budget {
    /// The noise for a budget, or the privacy of a noise, of a run that is this event under a neighbouring relation.
    pub fn account(self, run: Run, adjacency: Adjacency) -> Result<Privacy> {
        let params = Params::default();
        let (noise_multiplier, epsilon, delta) = match self {
            Budget::Target { epsilon, delta } => {
                let found = calibrate::noise_multiplier(run, epsilon, delta, adjacency, &params)?;
                (found.noise_multiplier, found.epsilon, delta)
            }
            Budget::Noise { noise_multiplier, delta } => {
                let event = adjacency.apply(&run.event(noise_multiplier.value()))?;
                (noise_multiplier, accounting::epsilon(&event, delta, &params)?, delta)
            }
        };
        Ok(Privacy { epsilon: epsilon.upper, delta, noise_multiplier, adjacency, run })
    }
}

impl Privacy {
    /// An upper bound on ε.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// δ.
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// Noise standard deviation over the sensitivity under zero-out.
    pub fn noise_multiplier(&self) -> NoiseMultiplier {
        self.noise_multiplier
    }

    /// Which data sets are neighbours.
    pub fn adjacency(&self) -> Adjacency {
        self.adjacency
    }

    /// The event that was accounted for.
    pub fn run(&self) -> Run {
        self.run
    }
}
