//! Losses of many steps: the sum of independent losses, near the one ε or δ that is asked for.
//!
//! The masses are tilted by e^(θl), such that the part of the sum that decides on δ is in the middle and not in a tail
//! that rounding errors would swamp; the convolution is done on a circle just large enough, and tilted back. All that
//! this leaves out is bounded and added to δ: what lies outside the circle (Chernoff), what lay outside the grid of
//! one step, rounding errors.

use super::step::{Losses, Step};
use crate::error::{Error, Result};
use crate::linalg::convolution::circular_power;
use libm::{exp, expm1, log};

/// Most grid points of a step or of the circle.
pub const MAX_POINTS: usize = 1 << 24;
/// Bound on the tilted probability outside the circle.
const OUTSIDE: f64 = 1e-18;

/// Steps with the same tail, each with its count.
pub type Parts = [(Step, u64)];

/// Where to look: the tilt, and the ε around which the answer will be.
#[derive(Debug, Clone, Copy)]
pub struct Aim {
    /// θ.
    pub tilt: f64,
    /// By Chernoff's bound.
    pub epsilon: f64,
}

/// Masses that share one exponential: e^(λl) is a geometric sequence on the grid, and rounding errors of so few products
/// do not add up.
const RUN: usize = 64;

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
            out.push(p * weight);
            weight *= ratio;
        }
    }
    out
}

impl Aim {
    /// For a given δ, from Chernoff's bound P(S > ε) ≤ e^(−λε)·E e^(λS) on coarse losses.
    pub fn at_delta(parts: &Parts, tail: f64, delta: f64) -> Aim {
        let coarse = coarse(parts, tail);
        let bound = |tilt: f64| (cumulant(&coarse, tilt) - log(delta)) / tilt;
        let tilt = exp(minimize(|log_tilt| bound(exp(log_tilt)), -20.0, 20.0));
        Aim { tilt, epsilon: bound(tilt).max(0.0) }
    }

    /// For a given ε.
    pub fn at_epsilon(parts: &Parts, tail: f64, epsilon: f64) -> Aim {
        let coarse = coarse(parts, tail);
        let bound = |tilt: f64| cumulant(&coarse, tilt) - tilt * epsilon;
        let tilt = exp(minimize(|log_tilt| bound(exp(log_tilt)), -20.0, 20.0));
        Aim { tilt, epsilon }
    }
}

/// Some grid points per step: enough that small losses of long runs are not drowned in the interval.
fn coarse(parts: &Parts, tail: f64) -> Vec<(Losses, f64, u64)> {
    let discretize = |(step, count): &(Step, u64)| {
        let range = step.range(tail);
        let h = (range.1 - range.0) / 32_768.0;
        (step.discretize(h, range), h, *count)
    };
    parts.iter().map(discretize).collect()
}

fn cumulant(losses: &[(Losses, f64, u64)], tilt: f64) -> f64 {
    losses.iter().map(|(losses, h, count)| *count as f64 * log_moment(losses, *h, tilt)).sum()
}

/// A minimum by golden sections.
fn minimize(f: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    let golden = 0.5 * (5f64.sqrt() - 1.0);
    let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
    let (mut fa, mut fb) = (f(a), f(b));
    for _ in 0..60 {
        // Far out to the right moments overflow.
        if fa < fb || !fb.is_finite() {
            (high, b, fb) = (b, a, fa);
            a = high - golden * (high - low);
            fa = f(a);
        } else {
            (low, a, fa) = (a, b, fb);
            b = low + golden * (high - low);
            fb = f(b);
        }
    }
    // One that was evaluated: the middle may lie where moments overflow.
    if fa < fb || !fb.is_finite() { a } else { b }
}

/// The sum of all losses near an ε. Probabilities are in units of e^`log_unit`.
#[derive(Debug)]
pub struct Sum {
    h: f64,
    /// The grid point of the first mass.
    first: i64,
    masses: Vec<f64>,
    log_unit: f64,
    aim: Aim,
    /// What is added to δ for an upper bound, and subtracted for a lower one.
    infinite: f64,
    outside: f64,
    /// What the tilted masses can be wrong by in all: see [`Sum::blur`].
    error: f64,
    /// What masses can be wrong by relatively, after all steps.
    relative: f64,
    /// How many losses were added up.
    count: f64,
}

impl Sum {
    /// Adds up all losses on a grid of interval h.
    pub fn new(parts: &Parts, tail: f64, aim: Aim, h: f64) -> Result<Sum> {
        // Any tilt is valid. Where losses are bounded (adding an example to a sample), the best one is without bound, but one
        // that picks out the last grid point is enough.
        let aim = Aim { tilt: aim.tilt.min(4.0 / h), ..aim };
        let losses: Vec<(Losses, u64)> = parts
            .iter()
            .map(|(step, count)| {
                let range = step.range(tail);
                let points = (range.1 - range.0) / h;
                if points > MAX_POINTS as f64 {
                    return Err(Error::argument(
                        "interval",
                        format!("at least {:.1e} for this event", h * points / MAX_POINTS as f64),
                        h,
                    ));
                }
                Ok((step.discretize(h, range), *count))
            })
            .collect::<Result<_>>()?;
        let cumulant = |tilt: f64| -> f64 {
            losses.iter().map(|(losses, count)| *count as f64 * log_moment(losses, h, tilt)).sum()
        };
        let base = cumulant(aim.tilt);
        if !base.is_finite() {
            return Err(Error::Numerical(format!(
                "the moments of the privacy loss overflow at order {:.1e}",
                aim.tilt
            )));
        }
        // Tilted masses, their mean and variance.
        let (mut mean, mut variance) = (0.0, 0.0);
        let mut factors = Vec::with_capacity(losses.len());
        for (losses, count) in &losses {
            let own = log_moment(losses, h, aim.tilt);
            let loss = |i: usize| (losses.first + i as i64) as f64 * h;
            let masses = tilted(losses, h, aim.tilt, own);
            let first: f64 = masses.iter().enumerate().map(|(i, p)| p * loss(i)).sum();
            let spread: f64 = masses.iter().enumerate().map(|(i, p)| p * (loss(i) - first).powi(2)).sum();
            mean += *count as f64 * first;
            variance += *count as f64 * spread;
            factors.push((losses.first, masses, *count));
        }
        // Chernoff: P(S > u) ≤ exp(K(θ + λ) − K(θ) − λu) under the tilt, and likewise below.
        let deviation = variance.sqrt().max(4.0 * h);
        let reach = |sign: f64| {
            let bound = |factor: f64| {
                let rate = factor / deviation;
                (cumulant(aim.tilt + sign * rate) - base - log(OUTSIDE)) / rate
            };
            let distances = [1.0, 2.0, 4.0, 6.0, 9.0].map(|factor| bound(factor) - sign * mean);
            distances.into_iter().filter(|d| d.is_finite()).fold(f64::INFINITY, f64::min).max(2.0 * h)
        };
        let (low, high) = (mean - reach(-1.0), mean + reach(1.0));
        let (low, high) = (low.min(aim.epsilon - 4.0 * h), high.max(aim.epsilon + 4.0 * h));
        let points = (high - low) / h + 3.0;
        if !(points <= MAX_POINTS as f64 && (low / h).abs() < 1e15) {
            let allowed = format!("at least {:.1e} for this event", h * points / MAX_POINTS as f64);
            return Err(Error::argument("interval", allowed, h));
        }
        let first = (low / h).floor() as i64;
        let size = good_size(points as usize);
        let factors: Vec<(i64, &[f64], u64)> =
            factors.iter().map(|(first, masses, count)| (*first, masses.as_slice(), *count)).collect();
        let circle = circular_power(size, &factors);
        if circle.iter().any(|x| !x.is_finite()) {
            return Err(Error::Numerical("the composed privacy loss is not finite".into()));
        }
        let count: f64 = parts.iter().map(|(_, count)| *count as f64).sum();
        // Back: p = tilted·exp(K(θ) − θ·l), in units of exp(K(θ) − θ·ε).
        let log_unit = base - aim.tilt * aim.epsilon;
        let shrink = exp(-aim.tilt * h);
        let mut masses = Vec::with_capacity(size);
        for block in (first..first + size as i64).step_by(RUN) {
            let mut weight = exp((aim.tilt * (aim.epsilon - block as f64 * h)).min(600.0));
            for k in block..(block + RUN as i64).min(first + size as i64) {
                masses.push(circle[k.rem_euclid(size as i64) as usize].max(0.0) * weight);
                weight *= shrink;
            }
        }
        let unit = exp(-log_unit);
        let sum = |f: &dyn Fn(&Losses) -> f64| -> f64 {
            losses.iter().map(|(losses, count)| *count as f64 * f(losses)).sum::<f64>() * unit
        };
        // Rounding of the powers and transforms, in the sum of all tilted masses: an estimate.
        let error = 16.0 * (size as f64).log2() * f64::EPSILON * (1.0 + count) + OUTSIDE;
        // A mass of one step is good to 1e-13 or so, and sums to less than 1e-9: estimates.
        let relative = 1e-9 + 1e-12 * count;
        let (infinite, outside) = (sum(&|losses| losses.infinite), sum(&|losses| losses.outside));
        Ok(Sum { h, first, masses, log_unit, aim, infinite, outside, error, relative, count })
    }

    /// What rounding and the end of the circle can have taken from, or added to, δ at an ε. Tilting back multiplies errors
    /// of masses above ε by e^(θ(aim − ε)) at most.
    fn blur(&self, epsilon: f64) -> f64 {
        self.error * exp((self.aim.tilt * (self.aim.epsilon - epsilon)).max(0.0))
    }

    /// A probability in the units of this sum.
    fn scaled(&self, probability: f64) -> f64 {
        exp(log(probability) - self.log_unit)
    }

    fn loss(&self, i: usize) -> f64 {
        (self.first + i as i64) as f64 * self.h
    }

    /// An ε for which δ is not above the given one, the smallest that follows; zero where that does. `None` where not even
    /// the largest ε of the grid is known to do.
    pub fn epsilon_above(&self, delta: f64) -> Option<f64> {
        let most = self.scaled(delta) * (1.0 - self.relative) - self.infinite; // down
        let mut above = Above::new(self);
        let mut found = None;
        for i in (0..self.masses.len()).rev() {
            let loss = self.loss(i);
            let goal = (most - self.blur(loss)) / (1.0 + self.relative); // down
            // What is not a number is not enough.
            let enough = above.delta() <= goal;
            if !enough {
                // Between this grid point and the one above, if that one is enough: δ is a − e^ε·b there.
                let between = loss + log((above.a - goal) / above.b);
                let inside = goal > 0.0 && between > loss && between <= loss + self.h;
                return found.map(|top: f64| if inside { between.max(0.0) } else { top });
            }
            if loss <= 0.0 {
                return Some(0.0);
            }
            found = Some(loss);
            above.take(self.masses[i]);
        }
        found // the circle ends above zero
    }

    /// δ at an ε, from above.
    pub fn delta_above(&self, epsilon: f64) -> f64 {
        let scaled = self.plain_delta(epsilon) * (1.0 + self.relative) + self.infinite + self.blur(epsilon);
        (scaled * exp(self.log_unit) * (1.0 + self.relative)).min(1.0)
    }

    /// δ at an ε, from below.
    pub fn delta_below(&self, epsilon: f64) -> f64 {
        let masses = Prefix::new(self);
        let delta = self.plain_delta(epsilon) * exp(self.log_unit);
        let plain = self.plain_delta(epsilon) * (1.0 - self.relative);
        let scaled = plain - self.outside - self.blur(epsilon) - masses.spread(epsilon, delta);
        (scaled * exp(self.log_unit) * (1.0 - self.relative)).max(0.0)
    }

    fn plain_delta(&self, epsilon: f64) -> f64 {
        let from = ((epsilon / self.h).floor() as i64 + 1 - self.first).max(0) as usize;
        let term = |i: usize| self.masses[i] * -expm1((epsilon - self.loss(i)).min(0.0));
        (from..self.masses.len()).rev().map(term).sum()
    }

    /// An ε for which δ is above the given one, the largest grid point that follows; zero where none does.
    pub fn epsilon_below(&self, delta: f64) -> f64 {
        let goal = self.scaled(delta) * (1.0 + self.relative);
        let masses = Prefix::new(self);
        let mut above = Above::new(self);
        for i in (0..self.masses.len()).rev() {
            let loss = self.loss(i);
            if loss <= 0.0 {
                return 0.0;
            }
            let plain = above.delta() * (1.0 - self.relative) - self.outside - self.blur(loss);
            if plain > goal && plain - masses.spread(loss, delta) > goal {
                return loss;
            }
            above.take(self.masses[i]);
        }
        0.0
    }
}

/// The losses above a grid point l that moves down: a = Σ p and b = Σ p·e^(l − loss). At ε = l, δ = a − b.
struct Above {
    a: f64,
    b: f64,
    shrink: f64,
}

impl Above {
    fn new(sum: &Sum) -> Self {
        Above { a: 0.0, b: 0.0, shrink: exp(-sum.h) }
    }

    fn delta(&self) -> f64 {
        self.a - self.b
    }

    /// Moves down by one grid point, past this mass.
    fn take(&mut self, mass: f64) {
        self.a += mass;
        self.b = (self.b + mass) * self.shrink;
    }
}

/// Running sums of masses, and the bound on what connecting the dots can have added to δ.
///
/// The losses on the grid are S̃ = S − D, where D adds up, for every step, how far its loss was moved. Given the true
/// losses the moves are independent, each takes two values that are h apart, and e^D has mean one. For c = e^(ε−S),
/// δ̃ − δ = E[(1 − c·e^D)₊ − (1 − c)₊] is what the convex function gains beyond its tangent, which is nothing unless the
/// kink lies between: |S − ε| ≤ |D|, and then at most e^|D| − 1. D is sub-Gaussian around a mean of at most T·h²/4 with
/// variance σ² = T·h²/4 (Hoeffding), whatever S is, so layers |D| ≤ T·h²/4 + iσ =: t_i give
///
/// ```text
/// δ̃ − δ ≤ Σ_i 2e^(−(i−1)²/2)·(e^(t_i) − 1)·P(|S − ε| ≤ t_i) + 2·2e^(−n²/2),
/// P(|S − ε| ≤ t) ≤ P(|S̃ − ε| ≤ t + t_2)/(1 − 2e^(−2)).
/// ```
struct Prefix<'a> {
    sum: &'a Sum,
    running: Vec<f64>,
}

impl<'a> Prefix<'a> {
    fn new(sum: &'a Sum) -> Self {
        // From the top, where masses are small.
        let mut running = vec![0.0; sum.masses.len() + 1];
        for i in (0..sum.masses.len()).rev() {
            running[i] = running[i + 1] + sum.masses[i];
        }
        Prefix { sum, running }
    }

    fn spread(&self, epsilon: f64, delta: f64) -> f64 {
        let variance = self.sum.count * self.sum.h * self.sum.h / 4.0;
        let sigma = variance.sqrt();
        let end = self.sum.masses.len();
        let near = |t: f64| {
            let place = |l: f64| (l / self.sum.h) - self.sum.first as f64;
            let from = place(epsilon - t).floor().clamp(0.0, end as f64) as usize;
            let to = (place(epsilon + t).ceil() + 1.0).clamp(0.0, end as f64) as usize;
            (self.running[from] - self.running[to]).max(0.0)
        };
        let layers = (2.0 * log(4e6 / delta)).max(1.0).sqrt().ceil().min(60.0) as usize;
        let reach = |i: usize| variance + i as f64 * sigma;
        let chance = |i: usize| (2.0 * exp(-0.5 * (i * i) as f64)).min(1.0);
        let layer =
            |i: usize| chance(i - 1) * expm1(reach(i)) * near(reach(i) + reach(2)) / (1.0 - chance(2));
        (1..=layers).map(layer).sum::<f64>() + self.sum.scaled(2.0 * chance(layers))
    }
}

/// The next number of the form 2^a·3^b that is at least n: fast for transforms.
fn good_size(n: usize) -> usize {
    let powers = (0..5).map(|b| 3usize.pow(b)).map(|odd| odd * n.div_ceil(odd).next_power_of_two());
    powers.min().unwrap_or(n)
}
