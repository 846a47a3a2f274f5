//! Mechanisms that a name and a number of stamps describe: no matrix has to be stored.

use super::fft::Fft;
use super::identity::Identity;
use super::stamp::{self, Shared, Stamped};
use super::tree::{OnlineTree, Tree};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The kinds of mechanism that are made from a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Independent noise: [`Identity`].
    Identity,
    /// Binary tree, Honaker's estimator from below: [`OnlineTree`].
    TreeOnline,
    /// Binary tree, optimal decoder: [`Tree`].
    TreeOptimal,
    /// The paper's Algorithm 1: [`Fft`].
    Fft,
    /// The same encoder with its optimal decoder: [`Fft::with_optimal_decoder`].
    FftOptimal,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 5] =
        [Family::Identity, Family::TreeOnline, Family::TreeOptimal, Family::Fft, Family::FftOptimal];

    /// The name, as files and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Identity => "identity",
            Family::TreeOnline => "tree-online",
            Family::TreeOptimal => "tree-optimal",
            Family::Fft => "fft",
            Family::FftOptimal => "fft-optimal",
        }
    }

    /// One stamp of so many steps.
    pub fn factorization(self, steps: usize) -> Result<Shared> {
        if steps == 0 {
            return Err(Error::argument("steps", "at least 1", steps));
        }
        Ok(match self {
            Family::Identity => Arc::new(Identity { steps }),
            Family::TreeOnline => Arc::new(OnlineTree::new(steps)),
            Family::TreeOptimal => Arc::new(Tree::new(steps)),
            Family::Fft => Arc::new(Fft::new(steps)),
            Family::FftOptimal => Arc::new(Fft::with_optimal_decoder(steps)?),
        })
    }

    /// Whether W is the pseudo-inverse of C: no other decoder has less noise.
    pub fn has_optimal_decoder(self) -> bool {
        !matches!(self, Family::TreeOnline | Family::Fft)
    }
}

/// A family and a number of stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Structured {
    /// What is repeated.
    pub family: Family,
    /// How often.
    pub stamps: usize,
}

impl Structured {
    /// In words, for people: `tree-online, 10 stamps`.
    pub fn describe(&self) -> String {
        match self.stamps {
            1 => self.family.name().into(),
            stamps => format!("{}, {stamps} stamps", self.family.name()),
        }
    }

    /// Refuses a number of stamps that so many steps cannot have.
    pub fn check(&self, steps: usize) -> Result<()> {
        stamp::check(steps, self.stamps)
    }

    /// The factorization over so many steps.
    pub fn factorization(&self, steps: usize) -> Result<Stamped> {
        Stamped::new(steps, self.stamps, |length| self.family.factorization(length))
    }
}
