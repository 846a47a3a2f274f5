//! Losses of many steps: the sum of independent losses, near the one ε that matters.
//!
//! The masses are tilted by e^(θl), such that the part of the sum that decides on δ is in the middle and not in a tail
//! that rounding errors would swamp; the convolution is done on a circle just large enough, and tilted back. All that
//! this leaves out is bounded: what lies outside the circle (Chernoff), what lay outside the grid of one step, and rounding
//! errors, which tilting back multiplies.

use super::aim::{Aim, Moments};
use super::step::{Losses, Parts};
use crate::error::{Error, Result};
use crate::linalg::convolution::circular_power;
use libm::{exp, log};

/// Most grid points of a step or of the circle.
const MAX_POINTS: usize = 1 << 24;
/// Bound on the tilted probability outside the circle, on either side.
const OUTSIDE: f64 = 1e-14;
/// Masses that share one exponential: e^(λl) is a geometric sequence on the grid, and rounding errors of so few products
/// do not add up.
const RUN: usize = 64;
/// Exponents of weights are cut here on the way back; below such a loss the masses say nothing.
const FARTHEST: f64 = 600.0;
/// The largest tilt, times h: twice as much over a run does not overflow.
const STEEPEST: f64 = 4.0;

/// The sum of all losses near an ε. Probabilities are in units of e^`log_unit`.
#[derive(Debug)]
pub struct Sum {
    /// The interval of the grid.
    pub h: f64,
    /// The grid point of the first mass.
    pub first: i64,
    /// The masses, in units.
    pub masses: Vec<f64>,
    /// The largest sum of losses that are on their grids.
    pub top: f64,
    /// How many losses were added up.
    pub count: f64,
    /// What is added to δ for an upper bound: the probability, not in units, that some loss lay above its grid.
    pub infinite: f64,
    /// What is subtracted from δ for a lower one: the probability, not in units, that some loss lay outside its grid.
    pub outside: f64,
    /// What rounding can have moved up, in all: 1 − E e^D, see [`Losses::moved`].
    pub moved: f64,
    /// What masses, and sums of them, can be wrong by relatively.
    pub relative: f64,
    log_unit: f64,
    aim: Aim,
    /// What each tilted mass can be wrong by, absolutely.
    error: f64,
}

impl Sum {
    /// Adds up all losses on a grid of interval h.
    pub fn new(parts: &Parts, moments: &Moments, tail: f64, aim: Aim, h: f64) -> Result<Sum> {
        // Where losses are bounded (adding an example to a sample), the best tilt is without bound, but one that picks out
        // the last grid point is enough.
        let aim = Aim { tilt: aim.tilt.min(STEEPEST / h), ..aim };
        let (tilt, count) = (aim.tilt, parts.iter().map(|(_, count)| *count as f64).sum::<f64>());
        let ranges = parts.iter().map(|(step, _)| step.range(tail));
        fits(ranges.map(|range| (range.1 - range.0) / h).sum(), h)?;
        let losses: Vec<(Losses, u64)> =
            parts.iter().map(|(step, count)| (step.discretize(h, step.range(tail)), *count)).collect();
        let cumulant = |tilt: f64| -> f64 {
            losses.iter().map(|(losses, count)| *count as f64 * log_moment(losses, h, tilt)).sum()
        };
        let mut base = 0.0;
        let mut factors = Vec::with_capacity(losses.len());
        for (losses, count) in &losses {
            let own = log_moment(losses, h, tilt);
            base += *count as f64 * own;
            factors.push((losses.first, tilted(losses, h, tilt, own), *count));
        }
        if !base.is_finite() {
            return Err(Error::Numerical(format!(
                "the moments of the privacy loss overflow at order {tilt:.1e}"
            )));
        }
        // Chernoff: P(S > u) ≤ exp(K(θ + λ) − K(θ) − λu) under the tilt, and likewise below.
        let end = |sign: f64| {
            let rate = moments.rate(tilt, sign, -log(OUTSIDE), count * h * h / 4.0).min(STEEPEST / h);
            sign * (cumulant(tilt + sign * rate) - base - log(OUTSIDE)) / rate
        };
        let (low, high) = (end(-1.0) - 2.0 * h, end(1.0) + 2.0 * h);
        let (low, high) = (low.min(aim.epsilon - 4.0 * h), high.max(aim.epsilon + 4.0 * h));
        fits((high - low) / h + 3.0, h)?;
        if (low / h).abs() > 1e15 {
            return Err(Error::Numerical(format!(
                "the privacy loss, {low:e}, is too large for a grid of {h:e}"
            )));
        }
        let (first, size) = ((low / h).floor() as i64, good_size(((high - low) / h) as usize + 3));
        let factors: Vec<(i64, &[f64], u64)> =
            factors.iter().map(|(first, masses, count)| (*first, masses.as_slice(), *count)).collect();
        let mut circle = circular_power(size, &factors)?;
        if circle.entries.iter().any(|x| !x.is_finite()) {
            return Err(Error::Numerical("the composed privacy loss is not finite".into()));
        }
        // The place of `first` comes first.
        circle.entries.rotate_left(first.rem_euclid(size as i64) as usize);
        // Back: p = tilted·exp(K(θ) − θ·l), in units of exp(K(θ) − θ·ε).
        let (mut masses, shrink) = (circle.entries, exp(-tilt * h));
        for (block, masses) in masses.chunks_mut(RUN).enumerate() {
            let loss = (first + (block * RUN) as i64) as f64 * h;
            let mut weight = exp((tilt * (aim.epsilon - loss)).min(FARTHEST));
            for mass in masses {
                *mass = mass.max(0.0) * weight;
                weight *= shrink;
            }
        }
        let log_unit = base - tilt * aim.epsilon;
        let sum = |f: &dyn Fn(&Losses) -> f64| -> f64 {
            losses.iter().map(|(losses, count)| *count as f64 * f(losses)).sum::<f64>() * (1.0 + 1e-9)
        };
        // A mass of one step is good to 10⁻¹² with its tilt, whose exponent is rounded as well; all are multiplied. Sums of
        // masses lose a unit for each.
        let largest = losses.iter().map(|(losses, _)| losses.reach(h)).fold(0.0, f64::max);
        let relative = count * (1e-12 + 4.0 * f64::EPSILON * tilt * largest)
            + 4.0
                * f64::EPSILON
                * (size as f64 + base.abs() + tilt * (aim.epsilon + high.abs().max(low.abs())));
        let (infinite, outside) = (sum(&|losses| losses.infinite), sum(&|losses| losses.outside));
        let moved = losses.iter().map(|(losses, count)| *count as f64 * losses.moved).sum();
        let top = losses
            .iter()
            .map(|(losses, count)| *count as f64 * losses.last() as f64 * h)
            .sum::<f64>()
            .next_up();
        let error = circle.error;
        Ok(Sum { h, first, masses, top, count, infinite, outside, moved, relative, log_unit, aim, error })
    }

    /// A probability in the units of this sum.
    pub fn scaled(&self, probability: f64) -> f64 {
        exp(log(probability) - self.log_unit)
    }

    /// A probability that was in the units of this sum.
    pub fn unscaled(&self, scaled: f64) -> f64 {
        exp(log(scaled) + self.log_unit)
    }

    /// The loss of a mass.
    pub fn loss(&self, i: usize) -> f64 {
        (self.first + i as i64) as f64 * self.h
    }

    /// What rounding and the ends of the circle can have taken from the masses above a loss, or added to them, together.
    /// Tilting back multiplies the error of a mass at l by e^(θ(aim − l)): a geometric series.
    pub fn blur_of_mass(&self, loss: f64) -> f64 {
        let points = (1.0 + 1.0 / (self.aim.tilt * self.h)).min(self.masses.len() as f64);
        self.blur(loss, points)
    }

    /// The same for δ at ε, where a mass at l counts 1 − e^(ε−l) times: with x = l − ε, the sum of e^(−θx)·(1 − e^(−x)) over
    /// the grid is at most its integral over h and its maximum, 1/(θ(θ+1)h) + 1/(θ+1).
    pub fn blur_of_delta(&self, epsilon: f64) -> f64 {
        let tilt = self.aim.tilt;
        let points = ((1.0 + 1.0 / (tilt * self.h)) / (tilt + 1.0)).min(self.masses.len() as f64);
        self.blur(epsilon, points)
    }

    fn blur(&self, loss: f64, points: f64) -> f64 {
        let exponent = self.aim.tilt * (self.aim.epsilon - loss);
        if exponent > FARTHEST {
            return f64::INFINITY;
        }
        (self.error * points + 2.0 * OUTSIDE) * exp(exponent)
    }
}

/// Refuses what needs too much memory.
fn fits(points: f64, h: f64) -> Result<()> {
    match points <= MAX_POINTS as f64 {
        true => Ok(()),
        false => {
            let allowed = format!("at least {:.1e} for this event", h * points / MAX_POINTS as f64);
            Err(Error::argument("interval", allowed, h))
        }
    }
}

/// The next number of the form 2^a·3^b that is at least n: fast for transforms.
fn good_size(n: usize) -> usize {
    let powers = (0..5).map(|b| 3usize.pow(b)).map(|odd| odd * n.div_ceil(odd).next_power_of_two());
    powers.min().unwrap_or(n)
}

/// The blocks of [`RUN`] masses, each with its first loss.
fn blocks(losses: &Losses, h: f64) -> impl Iterator<Item = (f64, &[f64])> {
    let first = move |block: usize| (losses.first + (block * RUN) as i64) as f64 * h;
    losses.masses.chunks(RUN).enumerate().map(move |(block, masses)| (first(block), masses))
}

/// ln Σ p·e^(λl), without overflow.
fn log_moment(losses: &Losses, h: f64, tilt: f64) -> f64 {
    let ratio = exp(tilt * h);
    let sum = |masses: &[f64]| masses.iter().rev().fold(0.0, |sum, p| sum * ratio + p); // Horner
    let logs: Vec<f64> = blocks(losses, h)
        .map(|(loss, masses)| (loss, sum(masses)))
        .filter(|(_, sum)| *sum > 0.0)
        .map(|(loss, sum)| log(sum) + tilt * loss)
        .collect();
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !(largest.is_finite() && ratio.is_finite()) {
        return f64::INFINITY; // no tilt that is of use comes near
    }
    largest + log(logs.iter().map(|x| exp(x - largest)).sum::<f64>())
}

/// The masses times e^(λl − shift).
fn tilted(losses: &Losses, h: f64, tilt: f64, shift: f64) -> Vec<f64> {
    let ratio = exp(tilt * h);
    let mut out = Vec::with_capacity(losses.masses.len());
    for (loss, masses) in blocks(losses, h) {
        let mut weight = exp(tilt * loss - shift);
        for p in masses {
            out.push(if *p > 0.0 { p * weight } else { 0.0 }); // the weight may be infinite
            weight *= ratio;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::ends::Ends;
    use super::super::step::{Side, Step};
    use super::*;

    /// Whatever the aim, also one from which tilting back would overflow on the way to the answer.
    #[test]
    fn no_aim_makes_epsilon_too_small() {
        let parts = [(Step { sampling_rate: 0.01, noise_multiplier: 1.0, side: Side::Removing }, 1000)];
        let moments = Moments::new(&parts);
        let (delta, h) = (1e-6, 1e-3);
        let at = |aim: Aim| {
            let sum = Sum::new(&parts, &moments, 1e-17, aim, h).unwrap();
            let ends = Ends::new(&sum);
            (ends.epsilon_below(delta), ends.epsilon_above(delta).unwrap())
        };
        let (lower, upper) = at(moments.at_delta(delta, 0.0));
        assert!(upper - lower < 0.02, "{lower} {upper}");
        for tilt in [0.1, 3.0, 20.0] {
            for exponent in [0.0, 50.0, 590.0, 620.0, 650.0, 690.0, 705.0, 800.0] {
                let found = at(Aim { tilt, epsilon: upper + exponent / tilt });
                assert!(
                    found.1 >= lower && found.0 <= upper,
                    "{tilt} {exponent}: {found:?}, not {lower} to {upper}"
                );
            }
        }
    }
}
