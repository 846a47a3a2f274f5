//! The privacy loss of one step, on a grid: never less than the truth.
//!
//! Two distributions P and Q of what is released, with and without one example; the privacy loss is L = ln(dP/dQ) under
//! P. For a Gaussian with noise multiplier z on a Poisson sample of rate q,
//!
//! ```text
//! removing:  P = (1 − q)·N(0, z²) + q·N(1, z²),   Q = N(0, z²),   L = ln(1 − q + q·exp((2x − 1)/2z²))
//! adding:    P and Q the other way round,                         L with the other sign.
//! ```
//!
//! **Connect the dots** (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022). The mass m of P between two grid points l and
//! l + h is split between them, such that the mass w of Q is kept as well: b = (m − e^l·w)/(1 − e^(−h)) goes up, m − b
//! down. The curve δ(e^ε) of the result joins the true values at grid points by straight lines; the true curve is convex,
//! so it lies below. The error is of second order in h. Mass above the grid becomes an infinite loss; mass below it is
//! raised to the first point.
//!
//! The difference m − e^l·w loses digits where h is small. What it can have lost goes up as well, so rounding moves losses
//! up, by some 10⁻¹³ a step on average.

use libm::{erfc, exp, expm1, log, log1p};
use puruspe::erfcx;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Steps, each with its count.
pub type Parts = [(Step, u64)];

/// A Gaussian mechanism on a Poisson sample, seen from one side.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// q, where one is a Gaussian without sampling.
    pub sampling_rate: f64,
    /// z.
    pub noise_multiplier: f64,
    /// Whether the example is removed or added.
    pub side: Side,
}

/// Which data set has one example more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// P has it.
    Removing,
    /// Q has it.
    Adding,
}

/// A privacy loss on the grid i·h.
#[derive(Debug, Clone)]
pub struct Losses {
    /// i of the first mass.
    pub first: i64,
    /// The probability of every grid point.
    pub masses: Vec<f64>,
    /// The probability of an infinite loss.
    pub infinite: f64,
    /// How much of the true probability lay outside the grid.
    pub outside: f64,
    /// How much of any mass rounding can have moved up, times 1 − e^(−h).
    pub moved: f64,
}

impl Losses {
    /// i of the last mass.
    pub fn last(&self) -> i64 {
        self.first + self.masses.len() as i64 - 1
    }

    /// The largest loss in modulus, on a grid of interval h.
    pub fn reach(&self, h: f64) -> f64 {
        self.first.abs().max(self.last().abs()) as f64 * h
    }
}

impl Step {
    /// The losses between which all but `tail` of P lies, on either side.
    pub fn range(&self, tail: f64) -> (f64, f64) {
        // Φ(−u) ≤ exp(−u²/2)/2.
        let u = (-2.0 * log(2.0 * tail).min(-1e-3)).sqrt();
        let (low, high) = (-u * self.noise_multiplier, u * self.noise_multiplier);
        match self.side {
            Side::Removing => (self.loss(low), self.loss(high + 1.0)),
            Side::Adding => (self.loss(high), self.loss(low)),
        }
    }

    /// L at x.
    pub fn loss(&self, x: f64) -> f64 {
        let (q, z) = (self.sampling_rate, self.noise_multiplier);
        let exponent = (x - 0.5) / z / z;
        // ln(1 − q + q·e^s), without overflow for large s, and without cancellation where it is far below zero.
        let loss = match exponent {
            s if q == 1.0 => s,
            s if s > 30.0 => s + log(q + (1.0 - q) * exp(-s)),
            s if s < -1.0 && q > 0.5 => log((1.0 - q) + q * exp(s)),
            s => log1p(q * expm1(s)),
        };
        if self.side == Side::Removing { loss } else { -loss }
    }

    /// x/z for the x at which the loss is l; infinite beyond what losses reach.
    fn place(&self, l: f64) -> f64 {
        let (q, z) = (self.sampling_rate, self.noise_multiplier);
        let l = if self.side == Side::Removing { l } else { -l };
        // e^l = 1 − q + q·e^s, solved for s.
        let exponent = match l {
            l if q == 1.0 => l,
            l if l > 30.0 => l + log((1.0 - (1.0 - q) * exp(-l)) / q),
            l if l < -0.5 && q > 0.5 => log(((exp(l) - (1.0 - q)) / q).max(0.0)),
            l => log(((expm1(l) + q) / q).max(0.0)),
        };
        exponent * z + 0.5 / z
    }

    /// The losses on the grid of interval h, from the point below `range.0` to the one above `range.1`.
    pub fn discretize(&self, h: f64, range: (f64, f64)) -> Losses {
        let first = (range.0 / h).floor() as i64;
        let last = ((range.1 / h).ceil() as i64).max(first + 1);
        let (q, shift) = (self.sampling_rate, 1.0 / self.noise_multiplier);
        let mut masses = vec![0.0; (last - first + 1) as usize];
        // The masses of P and, times e^l, of Q between two places.
        let masses_between = |from: f64, to: f64, l: f64, grown: f64| {
            let plain = normal_between(from, to, 0.0);
            let other = normal_between(from - shift, to - shift, 0.0);
            let mixed = (1.0 - q) * plain + q * other;
            match self.side {
                Side::Removing if plain > 1e-290 => (mixed, plain * grown),
                Side::Removing => (mixed, normal_between(from, to, l)),
                Side::Adding if mixed > 1e-290 => (plain, mixed * grown),
                Side::Adding => {
                    let other = normal_between(from - shift, to - shift, l);
                    (plain, (1.0 - q) * normal_between(from, to, l) + q * other)
                }
            }
        };
        let ordered = |a: f64, b: f64| if a < b { (a, b) } else { (b, a) };
        let mut left = self.place(first as f64 * h);
        let (scale, growth, mut moved) = (-expm1(-h), exp(h), 0.0f64);
        let mut grown = 1.0; // e^l, from the one before
        for i in 0..masses.len() - 1 {
            let l = (first + i as i64) as f64 * h;
            let right = self.place(l + h);
            let (from, to) = ordered(left, right);
            grown = if i % 16 == 0 { exp(l) } else { grown * growth };
            let (m, w) = masses_between(from, to, l, grown);
            // m − e^l·w, which is between 0 and m·(1 − e^−h), up.
            let slack = slack(from, to, l);
            let up = ((m - w + slack * m) / scale).clamp(0.0, m);
            moved = moved.max(2.0 * slack * growth);
            masses[i] += m - up;
            masses[i + 1] += up;
            left = right;
        }
        // What lies beyond the ends.
        let low = self.place(first as f64 * h);
        let (below, above) = match self.side {
            Side::Removing => ((f64::NEG_INFINITY, low), (left, f64::INFINITY)),
            Side::Adding => ((low, f64::INFINITY), (f64::NEG_INFINITY, left)),
        };
        let mass = |(from, to): (f64, f64)| masses_between(from, to, 0.0, 1.0).0;
        let (below, infinite) = (mass(below), mass(above));
        masses[0] += below;
        Losses { first, masses, infinite, outside: below + infinite, moved }
    }
}

/// What the masses between two places can be wrong by, relatively, and the losses there: the exponents −x²/2 and l are
/// rounded, tails lose a digit or two when they are subtracted, and special functions are good to some units. What matters
/// is the end that is nearer to zero: most of the mass is there, and y²·e^(−y²/2) is no more than that of the other end.
fn slack(from: f64, to: f64, l: f64) -> f64 {
    let near = if from < 0.0 && to > 0.0 { 0.0 } else { from.abs().min(to.abs()) };
    f64::EPSILON * (160.0 + 2.0 * (near * near + l.abs()))
}

/// e^scale·(Φ(b) − Φ(a)) for a ≤ b, to a relative 1e-13 or so also where both are far out or close together.
fn normal_between(a: f64, b: f64, scale: f64) -> f64 {
    if a >= b {
        return 0.0;
    }
    let (width, middle) = (b - a, 0.5 * (a + b));
    if width * (1.0 + middle.abs()) < 0.05 {
        // The integral of φ over a short interval, by its even derivatives in the middle.
        let (w, m) = (width * width, middle * middle);
        let third = ((m - 15.0) * m + 45.0) * m - 15.0;
        let series =
            1.0 + w * ((m - 1.0) / 24.0 + w * (((m - 6.0) * m + 3.0) / 1920.0 + w * third / 322_560.0));
        return exp(scale - 0.5 * m) / (2.0 * PI).sqrt() * width * series;
    }
    // e^scale·(Φ(−x) − Φ(−y)) for 0 < x < y, where each may be too small for a number; the common factor e^(−x²/2), whose
    // exponent is rounded, is not part of the difference.
    let tail = |x: f64, y: f64| {
        let beyond =
            if y.is_finite() { erfcx(y * FRAC_1_SQRT_2) * exp(-0.5 * (y - x) * (y + x)) } else { 0.0 };
        0.5 * (erfcx(x * FRAC_1_SQRT_2) - beyond) * exp(scale - 0.5 * x * x)
    };
    if a > 0.0 {
        tail(a, b)
    } else if b < 0.0 {
        tail(-b, -a)
    } else {
        exp(scale) * (0.5 * (erfc(a * FRAC_1_SQRT_2) - erfc(b * FRAC_1_SQRT_2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_and_its_place_are_inverse() {
        for side in [Side::Removing, Side::Adding] {
            for (q, z) in [(1.0, 1.0), (0.01, 1.0), (0.3, 0.4), (1e-4, 5.0), (0.9, 0.05)] {
                let step = Step { sampling_rate: q, noise_multiplier: z, side };
                for x in [-1.0, 0.0, 0.3, 0.5, 1.0, 2.5] {
                    let loss = step.loss(x);
                    let again = step.place(loss) * z;
                    // Losses near ln(1 − q) determine x badly, and it does not matter there.
                    if (loss.exp() - 1.0 + q).abs() > 1e-6 && (-loss).exp() - 1.0 + q > 1e-6 {
                        assert!((again - x).abs() < 1e-6 * (1.0 + x.abs()), "{step:?} {x} {again}");
                    }
                }
            }
        }
    }

    #[test]
    fn mass_and_the_curve_at_grid_points_are_kept() {
        for side in [Side::Removing, Side::Adding] {
            for (q, z) in [(1.0, 1.0), (0.01, 1.0), (0.3, 0.4), (1e-3, 5.0)] {
                let step = Step { sampling_rate: q, noise_multiplier: z, side };
                let h = 0.01;
                let losses = step.discretize(h, step.range(1e-14));
                let total: f64 = losses.masses.iter().sum::<f64>() + losses.infinite;
                assert!((total - 1.0).abs() < 1e-12, "{step:?}: {total}");
                // δ(ε) at grid points is the true one, by quadrature of (P − e^ε·Q)₊ over x.
                for i in [0i64, 3, 20] {
                    let epsilon = i as f64 * h;
                    let found: f64 = losses.infinite
                        + losses
                            .masses
                            .iter()
                            .enumerate()
                            .map(|(j, p)| {
                                p * -expm1((epsilon - (losses.first + j as i64) as f64 * h).min(0.0))
                            })
                            .sum::<f64>();
                    let points = 400_000;
                    let (from, to) = (-12.0 * z, 1.0 + 12.0 * z);
                    let width = (to - from) / points as f64;
                    let density =
                        |x: f64, mean: f64| exp(-0.5 * ((x - mean) / z).powi(2)) / (z * (2.0 * PI).sqrt());
                    let truth: f64 = (0..points)
                        .map(|j| {
                            let x = from + (j as f64 + 0.5) * width;
                            let (plain, mixed) =
                                (density(x, 0.0), (1.0 - q) * density(x, 0.0) + q * density(x, 1.0));
                            let (p, w) = if side == Side::Removing { (mixed, plain) } else { (plain, mixed) };
                            (p - exp(epsilon) * w).max(0.0) * width
                        })
                        .sum();
                    assert!((found - truth).abs() < 1e-8, "{step:?} ε = {epsilon}: {found} {truth}");
                }
            }
        }
    }

    #[test]
    fn short_intervals_agree_with_tails() {
        for a in [-9.0, -3.0, -0.1, 0.0, 0.5, 4.0, 8.0] {
            for width in [1e-3, 4e-3, 1.9e-2, 2.1e-2, 0.1] {
                let pieces: f64 = (0..8)
                    .map(|i| {
                        normal_between(a + width * i as f64 / 8.0, a + width * (i + 1) as f64 / 8.0, 0.0)
                    })
                    .sum();
                let whole = normal_between(a, a + width, 0.0);
                assert!((pieces / whole - 1.0).abs() < 4e-14, "{a} {width}: {pieces} {whole}");
            }
        }
        assert_eq!(normal_between(f64::NEG_INFINITY, f64::INFINITY, 0.0), 1.0);
        let far = normal_between(40.0, 41.0, 800.0);
        assert!((far / (0.5 * erfcx(40.0 * FRAC_1_SQRT_2)) - 1.0).abs() < 1e-12, "{far}");
    }
}
