//! Accounting: from noise to privacy, and back.
//!
//! A run with correlated noise is one Gaussian mechanism, whatever the number of its steps: the sensitivity of the
//! whole stream is in the noise multiplier. So its privacy is a closed formula ([`gaussian`]), and no composition is
//! needed. DP-SGD on Poisson samples needs one ([`pld`]), and its answers are brackets.
//!
//! Every figure is rounded toward caution: the upper end of a bracket is the privacy guarantee.
//!
//! | file | room |
//! |---|---|
//! | `event` | what happens, as plain data |
//! | `multiplier` | the noise multiplier as a type |
//! | `gaussian` | ε, δ and noise multiplier of one Gaussian mechanism |
//! | `zcdp` | zero-concentrated privacy, Rényi divergences, and what they imply |
//! | `pld` | sampled events and compositions |
//! | `calibrate` | the noise for a target |

pub mod calibrate;
pub mod event;
pub mod gaussian;
mod multiplier;
pub mod pld;
pub mod zcdp;

pub use event::Event;
pub use multiplier::NoiseMultiplier;
pub use pld::Params;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Two ends between which a figure lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bracket {
    /// Not above the truth.
    pub lower: f64,
    /// Not below the truth: the privacy guarantee.
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
    /// By how much the relation multiplies the sensitivity under zero-out.
    pub fn factor(self) -> f64 {
        match self {
            Adjacency::ZeroOut => 1.0,
            Adjacency::ReplaceOne => 2.0,
        }
    }

    /// The event as it is under this relation: half the noise multiplier where the sensitivity doubles. Poisson sampling
    /// is accounted for under adding and removing only.
    pub fn apply(self, event: &Event) -> Result<Event> {
        event.flat()?;
        if self == Adjacency::ZeroOut {
            return Ok(event.clone());
        }
        match event {
            Event::Gaussian { noise_multiplier } => Ok(Event::gaussian(noise_multiplier / self.factor())), // exact
            Event::PoissonSampled { .. } => Err(Error::Unsupported(
                "replace-one is not accounted for with Poisson sampling: the analysis of sampled Gaussians is for adding \
                 or removing one unit (zero-out)"
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
        return gaussian_epsilon(&flat, delta);
    }
    gaussian::probability("delta", delta)?;
    if delta >= flat.ever_sampled() {
        return Ok(Bracket { lower: 0.0, upper: 0.0 });
    }
    let most = gaussian::epsilon(flat.unsampled_multiplier(), delta).unwrap_or(f64::INFINITY);
    let found = pld::epsilon(&flat, delta, most, params)?;
    match found.upper < f64::INFINITY {
        true => Ok(found),
        false => Err(Error::Numerical(format!("no finite epsilon was found at delta = {delta:e}"))),
    }
}

/// δ of an event at ε.
pub fn delta(event: &Event, epsilon: f64, params: &Params) -> Result<Bracket> {
    params.check()?;
    let flat = event.flat()?;
    gaussian::positive("epsilon", epsilon)?;
    if flat.sampled.is_empty() {
        return gaussian_delta(&flat, epsilon);
    }
    let most = gaussian::delta(flat.unsampled_multiplier(), epsilon).unwrap_or(1.0);
    pld::delta(&flat, epsilon, most, params)
}

/// ε of the one Gaussian that unsampled events are. Its noise multiplier is rounded down for the upper end and up for the
/// lower one, and so is everything after that.
fn gaussian_epsilon(flat: &event::Flat, delta: f64) -> Result<Bracket> {
    let upper = gaussian::epsilon(flat.gaussian_multiplier(), delta)?;
    let lower = gaussian::epsilon_lower(flat.gaussian_multiplier_above(), delta)?;
    Ok(Bracket { lower, upper })
}

/// δ of one Gaussian, likewise.
fn gaussian_delta(flat: &event::Flat, epsilon: f64) -> Result<Bracket> {
    let upper = gaussian::delta(flat.gaussian_multiplier(), epsilon)?;
    let lower = gaussian::delta_lower(flat.gaussian_multiplier_above(), epsilon)?;
    Ok(Bracket { lower, upper })
}

#[cfg(test)]
mod tests;
