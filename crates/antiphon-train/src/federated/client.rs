//! What a client does in a round, and what becomes of the update that it sends.

use antiphon::clip::{Clip, squared_norm};
use antiphon::{Error, Result};
use pulp::{Arch, Simd, WithSimd};
use serde::{Deserialize, Serialize};

/// How many times the clipping norm an entry of an update may be before the update counts as zero: the paper's choice (section 5.3).
pub const ZERO_THRESHOLD: f64 = 100.0;

/// Tokens in a local batch at most: every one takes a row as long as the vocabulary, on every thread.
pub const MOST_BATCH: usize = 4096;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Of its gradient descent.
    pub learning_rate: f64,
    /// Passes over the text that it uses in a round.
    pub epochs: usize,
    /// Local steps at most.
    pub steps: Option<usize>,
    /// Tokens in a local batch.
    pub batch_size: usize,
    /// Tokens that it uses in a round at most. Who has more uses other lines in another round.
    pub most_tokens: usize,
    /// Updates with an entry whose size is beyond this count as zero.
    pub zero_threshold: f64,
    /// The part of the users who do not answer when their turn comes. It is used up all the same.
    pub silent: f64,
}

impl Settings {
    /// Those of the paper, for text that is shorter.
    pub fn usual(clip_norm: f64) -> Settings {
        Settings {
            learning_rate: 1.0,
            epochs: 1,
            steps: None,
            batch_size: 32,
            most_tokens: 64,
            zero_threshold: ZERO_THRESHOLD * clip_norm,
            silent: 0.0,
        }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [("client_rate", self.learning_rate), ("zero_threshold", self.zero_threshold)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::argument(name, "positive and finite", value));
            }
        }
        for (name, value) in [
            ("client_epochs", self.epochs),
            ("client_steps", self.steps.unwrap_or(1)),
            ("client_batch_size", self.batch_size),
            ("client_tokens", self.most_tokens),
        ] {
            if value == 0 {
                return Err(Error::argument(name, "at least 1", value));
            }
        }
        if self.batch_size > MOST_BATCH {
            return Err(Error::argument(
                "client_batch_size",
                format!("in 1..={MOST_BATCH}"),
                self.batch_size,
            ));
        }
        match (0.0..1.0).contains(&self.silent) {
            true => Ok(()),
            false => Err(Error::argument("silent", "in [0, 1)", self.silent)),
        }
    }
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fate {
    /// What it was multiplied by: 1, less if it was clipped, 0 if it was zeroed.
    pub factor: f64,
    /// Its norm before.
    pub norm: f64,
    /// Whether it was zeroed: an entry beyond the threshold, or not finite.
    pub zeroed: bool,
}

/// Adds an update to a sum, clipped as a whole, or zero where an entry is beyond the threshold or not finite. Whatever a client sends, the
/// contribution is at most as long as the clipping norm (antiphon::clip): a factor of zero is one of the factors that the proof there
/// allows.
pub fn add(clip: Clip, zero_threshold: f64, update: &[f32], sum: &mut [f64]) -> Fate {
    Arch::new().dispatch(Add { clip, zero_threshold, update, sum })
}

/// Not a closure: those are not always inlined, and then run without vectors.
struct Add<'a> {
    clip: Clip,
    zero_threshold: f64,
    update: &'a [f32],
    sum: &'a mut [f64],
}

impl WithSimd for Add<'_> {
    type Output = Fate;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Fate {
        let squared_norm = squared_norm(self.update);
        // What is not a number is not below anything.
        let within = |x: &f32| f64::from(x.abs()) <= self.zero_threshold;
        let zeroed = !squared_norm.is_finite() || !self.update.iter().fold(true, |all, x| all & within(x));
        let factor = if zeroed { 0.0 } else { self.clip.factor(squared_norm) };
        if factor > 0.0 {
            self.clip.add(
                &[factor],
                #[inline(always)]
                |_| self.update,
                self.sum,
            );
        }
        Fate { factor, norm: squared_norm.sqrt(), zeroed }
    }
}
