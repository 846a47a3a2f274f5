//! Privacy loss distributions: ε and δ of many steps, as a bracket.
//!
//! | file | room |
//! |---|---|
//! | `step` | the loss of one step on a grid, by connecting the dots |
//! | `compose` | the sum of many, near the ε or δ that is asked for, from above and from below |

mod compose;
mod step;

use super::Bracket;
use super::event::Flat;
use crate::error::{Error, Result};
use compose::{Aim, Sum};
use step::{Side, Step};

/// How fine to be.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// The bracket of ε is to be at most this wide, relative to ε or absolutely, whichever is more.
    pub width: f64,
    /// The interval of the grid; chosen to reach the width where none is given.
    pub interval: Option<f64>,
}

impl Default for Params {
    fn default() -> Self {
        Params { width: 1e-3, interval: None }
    }
}

/// The smallest δ for which sampled events are accounted for.
pub const MIN_DELTA: f64 = 1e-250;

/// ε at δ, for events with sampling among them.
pub(super) fn epsilon(flat: &Flat, delta: f64, params: &Params) -> Result<Bracket> {
    check(params)?;
    if !(MIN_DELTA..1.0).contains(&delta) {
        return Err(Error::argument("delta", format!("in [{MIN_DELTA:e}, 1) with sampling"), delta));
    }
    both(flat, |parts, count| {
        let tail = (delta * 1e-9 / count).max(1e-300);
        let aim = Aim::at_delta(parts, tail, delta);
        refine(params, aim, count, |h| {
            let sum = Sum::new(parts, tail, aim, h)?;
            let upper = sum.epsilon_above(delta).ok_or_else(|| {
                Error::Numerical(format!(
                    "no finite epsilon was found at delta = {delta:e}: it is too small here"
                ))
            })?;
            Ok(Bracket { lower: sum.epsilon_below(delta).min(upper), upper })
        })
    })
}

/// δ at ε, for events with sampling among them.
pub(super) fn delta(flat: &Flat, epsilon: f64, params: &Params) -> Result<Bracket> {
    check(params)?;
    both(flat, |parts, count| {
        let tail = 1e-280 / count;
        let aim = Aim::at_epsilon(parts, tail, epsilon);
        let mut h = interval(params, aim, count);
        loop {
            match Sum::new(parts, tail, aim, h) {
                Ok(sum) => {
                    return Ok(Bracket { lower: sum.delta_below(epsilon), upper: sum.delta_above(epsilon) });
                }
                Err(Error::Argument { .. }) if params.interval.is_none() && h < 1e3 => h *= 2.0,
                Err(error) => return Err(error),
            }
        }
    })
}

fn check(params: &Params) -> Result<()> {
    if !(1e-6..=1.0).contains(&params.width) {
        return Err(Error::argument("width", "in [1e-6, 1]", params.width));
    }
    match params.interval {
        Some(h) if !(1e-8..=10.0).contains(&h) => Err(Error::argument("interval", "in [1e-8, 10]", h)),
        _ => Ok(()),
    }
}

/// The worse of removing and adding an example.
fn both(flat: &Flat, one: impl Fn(&compose::Parts, f64) -> Result<Bracket> + Sync) -> Result<Bracket> {
    let side = |side: Side| {
        let mut parts: Vec<(Step, u64)> = flat
            .sampled
            .iter()
            .map(|&(sampling_rate, noise_multiplier, count)| {
                (Step { sampling_rate, noise_multiplier, side }, count)
            })
            .collect();
        if flat.squared_mu > 0.0 {
            let noise_multiplier = flat.gaussian_multiplier();
            parts.push((Step { sampling_rate: 1.0, noise_multiplier, side }, 1));
        }
        let count = parts.iter().map(|(_, count)| *count as f64).sum();
        one(&parts, count)
    };
    let (removing, adding) = rayon::join(|| side(Side::Removing), || side(Side::Adding));
    let (removing, adding) = (removing?, adding?);
    Ok(Bracket { lower: removing.lower.max(adding.lower), upper: removing.upper.max(adding.upper) })
}

/// The interval at which the bracket should be narrow enough: moving the losses of T steps to the grid costs some
/// 8·T·h²·(θ + 1) in ε.
fn interval(params: &Params, aim: Aim, count: f64) -> f64 {
    let width = params.width * aim.epsilon.max(1.0);
    params.interval.unwrap_or((width / (16.0 * count * (aim.tilt.min(1e4) + 1.0))).sqrt().min(1.0))
}

/// Halves the interval until the bracket is narrow enough, as far as memory goes.
fn refine(params: &Params, aim: Aim, count: f64, at: impl Fn(f64) -> Result<Bracket>) -> Result<Bracket> {
    let mut h = interval(params, aim, count);
    if params.interval.is_some() {
        return at(h);
    }
    // Where the first one is too fine already, the finest that fits.
    let mut found = loop {
        match at(h) {
            Ok(found) => break found,
            Err(Error::Argument { .. }) if h < 1e3 => h *= 2.0,
            Err(error) => return Err(error),
        }
    };
    for _ in 0..4 {
        if found.upper - found.lower <= params.width * found.lower.max(1.0) {
            break;
        }
        h *= 0.5;
        match at(h) {
            Ok(finer) => {
                found = Bracket { lower: found.lower.max(finer.lower), upper: found.upper.min(finer.upper) };
            }
            Err(_) => break,
        }
    }
    Ok(found)
}
