//! Where the answer will be: an ε and a tilt θ, from Chernoff's bound P(S > ε) ≤ e^(−θε)·E e^(θS).
//!
//! Nothing here decides whether an answer is right: any tilt is valid, a good one keeps rounding errors small.

use super::step::{Parts, Side, Step};
use libm::{exp, log};
use std::f64::consts::PI;

/// Where to look.
#[derive(Debug, Clone, Copy)]
pub struct Aim {
    /// θ.
    pub tilt: f64,
    /// Around which the answer will be.
    pub epsilon: f64,
}

/// Losses of each step at some places, with the logarithms of their probabilities, and how often it happens.
#[derive(Debug)]
pub struct Moments {
    parts: Vec<(Vec<(f64, f64)>, f64)>,
}

/// Places on either side of a mean, and how far from it the last is, in standard deviations.
const PLACES: i64 = 160;
const REACH: f64 = 40.0;

impl Moments {
    /// By the trapezoidal rule around each mean, which is as good as exact for normal densities.
    pub fn new(parts: &Parts) -> Self {
        let spacing = REACH / PLACES as f64;
        let around = |step: &Step, mean: f64, share: f64| {
            let (step, height) = (*step, log(share * spacing / (2.0 * PI).sqrt()));
            (-PLACES..=PLACES).map(move |i| {
                let u = i as f64 * spacing;
                (step.loss(mean + u * step.noise_multiplier), height - 0.5 * u * u)
            })
        };
        let of = |(step, count): &(Step, u64)| {
            let q = step.sampling_rate;
            let losses = match step.side {
                Side::Adding => around(step, 0.0, 1.0).collect(),
                Side::Removing if q == 1.0 => around(step, 1.0, 1.0).collect(),
                Side::Removing => around(step, 0.0, 1.0 - q).chain(around(step, 1.0, q)).collect(),
            };
            (losses, *count as f64)
        };
        Moments { parts: parts.iter().map(of).collect() }
    }

    /// Where to look for a given δ. The losses will be on a grid, which adds `variance` to their sum, here and below.
    pub fn at_delta(&self, delta: f64, variance: f64) -> Aim {
        let bound = |tilt: f64| (self.on_grid(tilt, variance) - log(delta)) / tilt;
        let tilt = minimize(bound);
        Aim { tilt, epsilon: bound(tilt).max(0.0) }
    }

    /// Where to look for a given ε.
    pub fn at_epsilon(&self, epsilon: f64, variance: f64) -> Aim {
        Aim { tilt: minimize(|tilt| self.on_grid(tilt, variance) - tilt * epsilon), epsilon }
    }

    /// The λ for which Chernoff's bound on the probability of a sum far above (`sign` = 1) or below (−1) is best under a
    /// tilt, down to e^(−`log_outside`).
    pub fn rate(&self, tilt: f64, sign: f64, log_outside: f64, variance: f64) -> f64 {
        let base = self.on_grid(tilt, variance);
        minimize(|rate| (self.on_grid(tilt + sign * rate, variance) - base + log_outside) / rate)
    }

    fn on_grid(&self, tilt: f64, variance: f64) -> f64 {
        self.cumulant(tilt) + 0.5 * tilt * tilt * variance
    }

    /// ln E e^(θS).
    fn cumulant(&self, tilt: f64) -> f64 {
        let one = |(losses, count): &(Vec<(f64, f64)>, f64)| {
            let exponents = || losses.iter().map(|(loss, log_p)| log_p + tilt * loss);
            let largest = exponents().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = exponents().map(|x| exp(x - largest)).sum();
            count * (largest + log(sum))
        };
        self.parts.iter().map(one).sum()
    }
}

/// Where a function with one minimum is least, to some percent, by golden sections of its logarithm.
fn minimize(f: impl Fn(f64) -> f64) -> f64 {
    let golden = 0.5 * (5f64.sqrt() - 1.0);
    let f = |log_tilt: f64| f(exp(log_tilt));
    let (mut low, mut high) = (-20.0, 20.0);
    let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
    let (mut fa, mut fb) = (f(a), f(b));
    while high - low > 0.02 {
        // What is not a number is far out to the right.
        if fa < fb || fb.is_nan() {
            (high, b, fb) = (b, a, fa);
            a = high - golden * (high - low);
            fa = f(a);
        } else {
            (low, a, fa) = (a, b, fb);
            b = low + golden * (high - low);
            fb = f(b);
        }
    }
    exp(0.5 * (low + high))
}
