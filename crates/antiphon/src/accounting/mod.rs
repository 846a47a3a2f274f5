//! Accounting: from noise to privacy, and back.
//!
//! A run with correlated noise is one Gaussian mechanism, whatever the number of its steps: the sensitivity of the
//! whole stream is in the noise multiplier. So its privacy is a closed formula ([`gaussian`]), and no composition is
//! needed. DP-SGD on Poisson samples needs one ([`pld`]), and its answers are brackets.
//!
//! Every figure is rounded toward caution: the upper end of a bracket is the one to be private with.
//!
//! | file | room |
//! |---|---|
//! | `event` | what happens, as plain data |
//! | `gaussian` | ε, δ and noise multiplier of one Gaussian mechanism |
//! | `zcdp` | zero-concentrated privacy, Rényi divergences, and what they imply |
//! | `pld` | sampled events and compositions |
//! | `calibrate` | the noise for a target |

pub mod calibrate;
pub mod event;
pub mod gaussian;
pub mod pld;
pub mod zcdp;

pub use event::Event;
pub use pld::Params;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Two ends between which a figure lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bracket {
    /// Not above the truth.
    pub lower: f64,
    /// Not below the truth: the one to be private with.
    pub upper: f64,
}

impl Bracket {
    /// Of the larger of two figures.
    fn worse(self, other: Bracket) -> Bracket {
        Bracket { lower: self.lower.max(other.lower), upper: self.upper.max(other.upper) }
    }
}

/// Which data sets are neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// All contributions of one unit are set to zero, or one unit is added or removed.
    ZeroOut,
    /// The contributions of one unit change arbitrarily within the clip norm, which doubles the sensitivity.
    ReplaceOne,
}

impl Adjacency {
    /// The event as it is under this relation: half the noise multiplier where the sensitivity doubles. Poisson sampling
    /// is accounted for under adding and removing only.
    pub fn apply(self, event: &Event) -> Result<Event> {
        if self == Adjacency::ZeroOut {
            return Ok(event.clone());
        }
        match event {
            Event::Gaussian { noise_multiplier } => Ok(Event::gaussian(0.5 * noise_multiplier)),
            Event::PoissonSampled { .. } => Err(Error::Unsupported(
                "replace-one is not accounted for with Poisson sampling: the analysis of sampled Gaussians is for adding \
                 or removing one unit (--adjacency zero-out)"
                    .into(),
            )),
            Event::Composed { events } => {
                let halved = |repeated: &event::Repeated| {
                    let event = self.apply(&repeated.event)?;
                    Ok(event::Repeated { event, count: repeated.count })
                };
                Ok(Event::Composed { events: events.iter().map(halved).collect::<Result<_>>()? })
            }
        }
    }
}

/// ε of an event at δ.
pub fn epsilon(event: &Event, delta: f64, params: &Params) -> Result<Bracket> {
    params.check()?;
    let flat = event.flat()?;
    if flat.sampled.is_empty() {
        let upper = gaussian::epsilon(flat.gaussian_multiplier(), delta)?;
        return Ok(Bracket { lower: upper * (1.0 - GAUSSIAN), upper });
    }
    gaussian::probability("delta", delta)?;
    pld::epsilon(&flat, delta, params)
}

/// δ of an event at ε.
pub fn delta(event: &Event, epsilon: f64, params: &Params) -> Result<Bracket> {
    params.check()?;
    let flat = event.flat()?;
    gaussian::positive("epsilon", epsilon)?;
    if flat.sampled.is_empty() {
        let upper = gaussian::delta(flat.gaussian_multiplier(), epsilon)?;
        return Ok(Bracket { lower: upper * (1.0 - GAUSSIAN), upper });
    }
    pld::delta(&flat, epsilon, params)
}

/// How much too large a figure of [`gaussian`] can be, relatively.
const GAUSSIAN: f64 = 2e-7;

#[cfg(test)]
mod tests;
