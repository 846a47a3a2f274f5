//! The noise multiplier for a target (ε, δ).

use super::event::{Event, MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER};
use super::gaussian;
use super::pld::Params;
use crate::error::{Error, Result};

/// Relative width at which the search for a noise multiplier of sampled events ends.
const WIDTH: f64 = 1e-6;

/// What noise is sought for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Run {
    /// A matrix mechanism: one Gaussian.
    Matrix,
    /// Full batches, so many steps.
    FullBatch {
        /// T.
        steps: u64,
    },
    /// Poisson samples, so many steps.
    Sampled {
        /// q.
        sampling_rate: f64,
        /// T.
        steps: u64,
    },
}

impl Run {
    /// The event with a noise multiplier.
    pub fn event(&self, noise_multiplier: f64) -> Event {
        match *self {
            Run::Matrix => Event::gaussian(noise_multiplier),
            Run::FullBatch { steps } => Event::dp_gd(noise_multiplier, steps),
            Run::Sampled { sampling_rate, steps } => Event::dp_sgd(sampling_rate, noise_multiplier, steps),
        }
    }
}

/// The smallest noise multiplier for which the run is (ε, δ)-private, rounded up: the upper end of the bracket of ε was
/// seen to be at most the target.
pub fn noise_multiplier(run: Run, epsilon: f64, delta: f64, params: &Params) -> Result<f64> {
    // One Gaussian is enough to know for those that are not sampled: T of them have √T times its noise.
    let single = gaussian::noise_multiplier(epsilon, delta)?;
    let (sampling_rate, steps) = match run {
        Run::Matrix => (1.0, 1),
        Run::FullBatch { steps } => (1.0, steps),
        Run::Sampled { sampling_rate, steps } => (sampling_rate, steps),
    };
    // All arguments are checked here, before the search.
    run.event(1.0).flat()?;
    params.check()?;
    let enough =
        |z: f64| -> Result<bool> { Ok(super::epsilon(&run.event(z), delta, params)?.upper <= epsilon) };
    let mut above = single * (steps as f64).sqrt() * (1.0 + 1e-9); // up
    if above > MAX_NOISE_MULTIPLIER {
        let allowed = format!("reachable with a noise multiplier of at most {MAX_NOISE_MULTIPLIER:e}");
        return Err(Error::argument("epsilon", allowed, epsilon));
    }
    // Less than the smallest noise multiplier is not accounted for.
    above = above.max(MIN_NOISE_MULTIPLIER);
    if sampling_rate == 1.0 {
        return match enough(above)? {
            true => Ok(above),
            false => Err(Error::Numerical(format!(
                "the noise multiplier {above} is not enough, which is impossible"
            ))),
        };
    }
    // Sampling needs no more than full batches do. Downwards until it is not enough.
    let mut below = above;
    loop {
        below = (0.5 * below).max(MIN_NOISE_MULTIPLIER);
        if !enough(below)? {
            break;
        }
        above = below;
        if below == MIN_NOISE_MULTIPLIER {
            return Ok(above);
        }
    }
    while above - below > WIDTH * above {
        let middle = 0.5 * (above + below);
        if enough(middle)? { above = middle } else { below = middle }
    }
    match enough(above)? {
        true => Ok(above),
        false => {
            Err(Error::argument("epsilon", "reachable with this sampling rate and number of steps", epsilon))
        }
    }
}
