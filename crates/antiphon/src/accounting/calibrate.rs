//! The noise multiplier for a target (ε, δ).

use super::event::{Event, MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER};
use super::gaussian;
use super::pld::Params;
use super::{Adjacency, Bracket, NoiseMultiplier};
use crate::error::{Error, Result};
use libm::{exp, log, log1p};

/// Relative width at which the search for a noise multiplier of sampled events ends.
const WIDTH: f64 = 1e-6;
/// Most rounds of that search.
const MAX_ROUNDS: usize = 40;

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

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated {
    /// The smallest that is enough, rounded up.
    pub noise_multiplier: NoiseMultiplier,
    /// With that, as it was seen: the upper end is at most the target.
    pub epsilon: Bracket,
}

/// The smallest noise multiplier for which the run is (ε, δ)-private under a neighbouring relation, rounded up. It is relative to the
/// sensitivity under zero-out: where the relation doubles the sensitivity, twice the noise is needed.
///
/// For an ε below one, the bracket is narrower than `params` say, by that factor.
///
/// ```
/// use antiphon::accounting::calibrate::{Run, noise_multiplier};
/// use antiphon::accounting::{Adjacency, Params, epsilon};
///
/// # fn main() -> antiphon::Result<()> {
/// // A matrix mechanism is one Gaussian, whatever the number of its steps.
/// let found = noise_multiplier(Run::Matrix, 8.0, 1e-6, Adjacency::ZeroOut, &Params::default())?;
/// let z = found.noise_multiplier.value();
/// assert!(found.epsilon.upper <= 8.0);
/// // Back again: ε of that noise.
/// let event = Run::Matrix.event(z);
/// assert!(epsilon(&event, 1e-6, &Params::default())?.upper <= 8.0);
/// // A hundredth less noise is not enough.
/// let less = Run::Matrix.event(0.99 * z);
/// assert!(epsilon(&less, 1e-6, &Params::default())?.lower > 8.0);
/// # Ok(())
/// # }
/// ```
pub fn noise_multiplier(
    run: Run,
    epsilon: f64,
    delta: f64,
    adjacency: Adjacency,
    params: &Params,
) -> Result<Calibrated> {
    adjacency.apply(&run.event(1.0))?; // a relation that the run cannot be accounted for under
    let (z, epsilon) = search(run, epsilon, delta, params)?;
    Ok(Calibrated { noise_multiplier: NoiseMultiplier::new(z * adjacency.factor())?, epsilon })
}

/// The same under zero-out: the multiplier, and ε as it was seen.
fn search(run: Run, epsilon: f64, delta: f64, params: &Params) -> Result<(f64, Bracket)> {
    // One Gaussian is enough to know for those that are not sampled: T of them have √T times its noise.
    let single = gaussian::noise_multiplier(epsilon, delta)?;
    let (sampling_rate, steps) = match run {
        Run::Matrix => (1.0, 1),
        Run::FullBatch { steps } => (1.0, steps),
        Run::Sampled { sampling_rate, steps } => (sampling_rate, steps),
    };
    // All arguments are checked here, before the search.
    let ever = run.event(1.0).flat()?.ever_sampled();
    params.check()?;
    if delta >= ever {
        let allowed =
            format!("below {ever:.6e}, the probability that an example is ever sampled (any noise would do)");
        return Err(Error::argument("delta", allowed, delta));
    }
    // Small targets need a bracket that is narrow for them.
    let params = Params { width: (params.width * epsilon.min(1.0)).max(1e-6), ..*params };
    let at = |z: f64| -> Result<(f64, Bracket)> { Ok((z, super::epsilon(&run.event(z), delta, &params)?)) };
    let excess = |found: &(f64, Bracket)| found.1.upper - epsilon;
    let full_batch = single * (steps as f64).sqrt() * (1.0 + 1e-9); // up
    if full_batch > MAX_NOISE_MULTIPLIER {
        let allowed = format!("reachable with a noise multiplier of at most {MAX_NOISE_MULTIPLIER:e}");
        return Err(Error::argument("epsilon", allowed, epsilon));
    }
    // Sampling needs no more than full batches do.
    let mut above = at(full_batch.max(MIN_NOISE_MULTIPLIER))?;
    if excess(&above) > 0.0 {
        let z = above.0;
        return Err(Error::Numerical(format!("the noise multiplier {z} is not enough, which is impossible")));
    }
    if sampling_rate == 1.0 {
        return Ok(above);
    }
    // Downwards until it is not enough.
    let mut below = above;
    while excess(&below) <= 0.0 {
        above = below;
        if above.0 == MIN_NOISE_MULTIPLIER {
            return Ok(above);
        }
        below = at((0.5 * above.0).max(MIN_NOISE_MULTIPLIER))?;
    }
    // Along the chord of ln ε over ln z, which is nearly straight; an end that stays counts half from then on (the Illinois
    // rule). Grids make small steps in ε, so every fourth time the middle is taken.
    let log_ratio = |found: &(f64, Bracket)| log1p((excess(found) / epsilon).max(-0.999_999));
    let (mut a, mut b) = (log_ratio(&above), log_ratio(&below));
    let mut last = None;
    for round in 0..MAX_ROUNDS {
        let (high, low) = (above.0, below.0);
        if high - low <= WIDTH * high || a >= b {
            break;
        }
        let chord = low * exp(log(high / low) * b / (b - a));
        let z = if round % 4 == 3 { 0.5 * (high + low) } else { chord };
        // A little within the ends.
        let margin = 0.4 * WIDTH * high;
        let found = at(z.clamp(low + margin, high - margin))?;
        let enough = excess(&found) <= 0.0;
        if enough {
            (above, a) = (found, log_ratio(&found));
            b = if last == Some(true) { 0.5 * b } else { b };
        } else {
            (below, b) = (found, log_ratio(&found));
            a = if last == Some(false) { 0.5 * a } else { a };
        }
        last = Some(enough);
    }
    Ok(above)
}
