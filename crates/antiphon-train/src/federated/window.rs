//! A small language model: the next token from a window of the tokens before it.
//!
//! With V tokens, D numbers per token and the J tokens c_1 … c_J before the target y,
//!
//! ```text
//! x = [E[c_1]; …; E[c_J]]        h = tanh(xᵀ·W + b)        logits = E·h + c        loss = −ln softmax(logits)[y]
//! ```
//!
//! The table E is used at both ends (tied). Token 0 begins a line, and fills the window before it.
//!
//! # Parameters
//!
//! One vector of d = V·D + J·D² + D + V numbers: Eᵀ (entry (i, v) at i·V + v, so that the tokens are neighbours in memory), W row by
//! row (its J·D rows have D numbers each), b, c.

mod batch;
mod dots;
mod local;
mod parameters;
mod softmax;
#[cfg(test)]
mod tests;
mod tokens;

pub use local::Local;

use antiphon::noise::Key;
use antiphon::{Error, Result};

/// Parameters at most: every thread has several copies of them.
const MOST_PARAMETERS: usize = 1 << 26;
/// Sizes at most: products of them, and tokens as `u32`, are then far from overflow.
const LARGEST: usize = 1 << 20;

/// The sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    vocabulary: usize,
    width: usize,
    context: usize,
}

impl Window {
    /// A model of `vocabulary` tokens (V), `width` numbers per token (D) and `context` tokens in the window (J).
    pub fn new(vocabulary: usize, width: usize, context: usize) -> Result<Window> {
        let sizes = [("vocabulary", 4, vocabulary), ("width", 1, width), ("context", 1, context)];
        for (name, least, value) in sizes {
            if !(least..=LARGEST).contains(&value) {
                return Err(Error::argument(name, format!("in {least}..={LARGEST}"), value));
            }
        }
        let window = Window { vocabulary, width, context };
        match window.parameters() {
            0..=MOST_PARAMETERS => Ok(window),
            parameters => {
                let allowed = format!(
                    "such that there are at most {MOST_PARAMETERS} parameters (V·D + J·D² + D + V for V = {vocabulary} tokens, D = width, \
                     J = {context} tokens of context; here {parameters})"
                );
                Err(Error::argument("width", allowed, width))
            }
        }
    }

    /// V, the number of tokens.
    pub fn vocabulary(self) -> usize {
        self.vocabulary
    }

    /// D, the numbers per token.
    pub fn width(self) -> usize {
        self.width
    }

    /// J, the tokens in the window.
    pub fn context(self) -> usize {
        self.context
    }

    /// J·D, the numbers in the window.
    fn inputs(self) -> usize {
        self.context * self.width
    }

    /// How many parameters it has.
    pub fn parameters(self) -> usize {
        let Window { vocabulary, width, context } = self;
        vocabulary * width + context * width * width + width + vocabulary
    }

    /// Parameters to start from: E normal with standard deviation 0.1, W normal with standard deviation 1/√(J·D), b and c
    /// zero. A function of the key alone: the normal of step 0 at a parameter's place.
    pub fn initial(self, key: &Key) -> Vec<f32> {
        let (table, weights) = (self.vocabulary * self.width, self.inputs() * self.width);
        let mut normals = vec![0f64; table + weights];
        key.fill_parallel(0, 0, &mut normals);
        normals[..table].iter_mut().for_each(|x| *x *= 0.1);
        let scale = 1.0 / (self.inputs() as f64).sqrt();
        normals[table..].iter_mut().for_each(|x| *x *= scale);
        normals.resize(self.parameters(), 0.0);
        normals.into_iter().map(|x| x as f32).collect()
    }
}

/// What a model learns from: targets, and the windows before them.
#[derive(Clone, Copy, Debug)]
pub struct Positions<'a> {
    /// The windows, J tokens for each label, the oldest first.
    pub contexts: &'a [u32],
    /// The targets.
    pub labels: &'a [u32],
}

impl<'a> Positions<'a> {
    /// The positions in batches of this many, the last one perhaps smaller.
    fn batches(self, context: usize, size: usize) -> impl Iterator<Item = Positions<'a>> + Clone {
        let contexts = self.contexts.chunks(size * context);
        contexts.zip(self.labels.chunks(size)).map(|(contexts, labels)| Positions { contexts, labels })
    }
}

/// How a client trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The learning rate.
    pub rate: f64,
    /// Positions per step, at least one; the last batch of an epoch may be smaller.
    pub batch: usize,
    /// Passes over the positions.
    pub epochs: usize,
    /// Steps at most, over all epochs.
    pub steps: Option<usize>,
}

/// What a client saw in its first pass, each batch with the parameters that it met.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Positions.
    pub positions: usize,
    /// Sum of their losses.
    pub loss: f64,
    /// Positions whose label had the largest logit; of equal ones the first counts.
    pub hits: usize,
}
