//! ‖A·Diag(o)·T‖²_F where o and the learning rates change slowly: what a design minimises. Figures that are claimed come from elsewhere.
//!
//! The run is cut into segments of some steps, and o and the rate η of a segment are taken as constant. Let v be the noise after momentum β and y its prefix
//! sum for o = η = 1, as [`Steps`] has it. With c = ηβ/(1 − β), the noise of an iterate in step τ of a segment is
//!
//! ```text
//! u = η·o·y + κ − c·β^τ·λ
//! ```
//!
//! with κ and λ fixed. From a segment to the next one, momentum and iterate go on where they are:
//!
//! ```text
//! λ' = β^L·λ + (o − o')·v,      κ' = κ + (ηo − η'o')·y + c'(o − o')·v + (c' − c)·β^L·λ
//! ```
//!
//! So the sum of all variances is a quadratic form in o, and covariances of the state with κ and λ are all that it takes. It is exact where o and η are constant
//! in each segment.

use super::doubling::{Square, Steps};
use super::rational::{Ratio, Rational};
use crate::linalg::vectors::{add, dot};
use std::ops::Range;

/// About so many segments.
const SEGMENTS: usize = 256;

/// Where the segments are.
#[derive(Debug, Clone)]
pub struct Cut(Vec<Range<usize>>);

impl Cut {
    /// Of n steps, between knots.
    pub fn new(steps: usize, knots: &[usize]) -> Cut {
        let length = steps.div_ceil(SEGMENTS);
        let between = |(i, first): (usize, &usize)| {
            let (first, end) = (*first, knots.get(i + 1).copied().unwrap_or(steps));
            let part = (end - first).div_ceil((end - first).div_ceil(length));
            (first..end).step_by(part).map(move |first| first..end.min(first + part))
        };
        Cut(knots.iter().enumerate().flat_map(between).collect())
    }

    /// The steps of every segment.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }
}

/// What of the sum depends on T and momentum alone.
#[derive(Debug)]
pub struct Segments {
    momentum: f64,
    /// What so many steps do, for every length of a segment, and which of them each segment has.
    lengths: Vec<Length>,
    which: Vec<usize>,
    /// v = ν·x.
    velocity: Vec<f64>,
    /// Σ Var(y) over the steps of every segment.
    variances: Vec<f64>,
    /// Covariances at the end of every segment.
    ends: Vec<End>,
}

/// Segments of one length.
#[derive(Debug)]
struct Length {
    steps: Steps,
    /// β^L, Σ β^τ and Σ β^(2τ), τ = 1..L.
    fade: f64,
    fades: f64,
    squared_fades: f64,
}

/// E[x·y], E[x·v], E[y²], E[yv] and E[v²].
#[derive(Debug)]
struct End {
    output: Vec<f64>,
    velocity: Vec<f64>,
    yy: f64,
    yv: f64,
    vv: f64,
}

/// E[xκ], E[xλ], E[κ²], E[κλ] and E[λ²]; or derivatives by them.
#[derive(Debug, Clone)]
struct Offsets {
    kappa: Vec<f64>,
    lambda: Vec<f64>,
    kk: f64,
    kl: f64,
    ll: f64,
}

/// What changes between two segments: κ' = κ + y·A + v·B + λ·G, λ' = λ + v·E.
#[derive(Debug, Clone, Copy)]
struct Change {
    a: f64,
    b: f64,
    g: f64,
    e: f64,
}

impl Segments {
    /// For a cut of the run.
    pub fn new(rational: &Rational, momentum: f64, cut: &Cut) -> Segments {
        // A momentum below this hardly matters, and v would be a difference that cancels.
        let momentum = if momentum < 1e-3 { 0.0 } else { momentum };
        let counts: Vec<usize> = cut.ranges().iter().map(Range::len).collect();
        let mut distinct = counts.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let lengths: Vec<Length> =
            distinct.iter().map(|count| Length::new(rational, momentum, *count)).collect();
        let mut segments = Segments {
            momentum,
            lengths,
            which: counts.iter().map(|count| distinct.partition_point(|other| other < count)).collect(),
            velocity: velocity(rational, momentum),
            variances: Vec::new(),
            ends: Vec::new(),
        };
        let mut covariance = Square::zero(rational.buffers() + 2);
        for i in 0..counts.len() {
            let steps = &segments.length(i).steps;
            let variance = steps.squares.inner(&covariance) + steps.covariances.variance();
            covariance = steps.map.around(&covariance);
            covariance.add(&steps.covariance);
            segments.variances.push(variance);
            segments.ends.push(End::new(&covariance, &segments.velocity));
        }
        segments
    }

    fn length(&self, segment: usize) -> &Length {
        &self.lengths[self.which[segment]]
    }

    /// The sum for o and η of every segment, and its derivatives by o.
    pub fn sum(&self, gains: &[f64], rates: &[f64], gradient: &mut [f64]) -> f64 {
        let count = gains.len();
        let c = |i: usize| rates[i] * self.momentum / (1.0 - self.momentum);
        let change = |i: usize| {
            let e = gains[i] - gains[i + 1];
            Change {
                a: rates[i] * gains[i] - rates[i + 1] * gains[i + 1],
                b: c(i + 1) * e,
                g: c(i + 1) - c(i),
                e,
            }
        };
        let mut sum = 0.0;
        // At the beginning of every segment, and at its end before anything changes.
        let (mut begins, mut ends) = (vec![Offsets::none(self.velocity.len())], Vec::with_capacity(count));
        for i in 0..count {
            let (value, slope) =
                self.length(i).value(&begins[i], rates[i] * gains[i], c(i), self.variances[i]);
            sum += value;
            gradient[i] = slope * rates[i];
            let mut now = begins[i].clone();
            self.length(i).pass(&mut now);
            ends.push(now.clone());
            if i + 1 < count {
                now.change(&change(i), &self.ends[i], &self.velocity);
                begins.push(now);
            }
        }
        let mut slopes = Offsets::none(self.velocity.len());
        for i in (0..count).rev() {
            if i + 1 < count {
                let by = slopes.change_back(&change(i), &ends[i], &self.ends[i], &self.velocity);
                let by_gain = c(i + 1) * by.b + by.e;
                gradient[i] += rates[i] * by.a + by_gain;
                gradient[i + 1] -= rates[i + 1] * by.a + by_gain;
            }
            self.length(i).pass_back(&mut slopes, rates[i] * gains[i], c(i));
        }
        sum
    }
}

impl Length {
    fn new(rational: &Rational, momentum: f64, count: usize) -> Length {
        let beta = Ratio::of(momentum);
        let squared = beta.times(beta);
        Length {
            steps: Steps::new(rational, momentum, count),
            fade: beta.pow(count),
            fades: momentum * beta.sum(count),
            squared_fades: squared.value() * squared.sum(count),
        }
    }

    /// Σ Var(u) over the steps, and its derivative by f = η·o.
    fn value(&self, at: &Offsets, f: f64, c: f64, variance: f64) -> (f64, f64) {
        let mixed = dot(&self.steps.outputs, &at.kappa) - c * dot(&self.steps.faded_outputs, &at.lambda);
        let offsets = self.steps.count as f64 * at.kk - 2.0 * c * self.fades * at.kl
            + c * c * self.squared_fades * at.ll;
        (f * (f * variance + 2.0 * mixed) + offsets, 2.0 * (f * variance + mixed))
    }

    /// From the beginning of a segment to its end.
    fn pass(&self, at: &mut Offsets) {
        at.kappa = self.steps.map.apply(&at.kappa);
        at.lambda = self.steps.map.apply(&at.lambda);
        at.lambda.iter_mut().for_each(|x| *x *= self.fade);
        at.kl *= self.fade;
        at.ll *= self.fade * self.fade;
    }

    /// Derivatives by what is at the end to those by what is at the beginning.
    fn pass_back(&self, slopes: &mut Offsets, f: f64, c: f64) {
        slopes.kappa = self.steps.map.row_times(&slopes.kappa);
        add(&mut slopes.kappa, 2.0 * f, &self.steps.outputs);
        slopes.lambda = self.steps.map.row_times(&slopes.lambda);
        slopes.lambda.iter_mut().for_each(|x| *x *= self.fade);
        add(&mut slopes.lambda, -2.0 * f * c, &self.steps.faded_outputs);
        slopes.kk += self.steps.count as f64;
        slopes.kl = self.fade * slopes.kl - 2.0 * c * self.fades;
        slopes.ll = self.fade * self.fade * slopes.ll + c * c * self.squared_fades;
    }
}

impl End {
    fn new(covariance: &Square, velocity: &[f64]) -> End {
        let with = covariance.apply(velocity);
        let output = covariance.last_row().to_vec();
        End {
            yy: covariance.variance(),
            yv: with[with.len() - 1],
            vv: dot(velocity, &with),
            output,
            velocity: with,
        }
    }
}

impl Offsets {
    fn none(size: usize) -> Offsets {
        Offsets { kappa: vec![0.0; size], lambda: vec![0.0; size], kk: 0.0, kl: 0.0, ll: 0.0 }
    }

    fn change(&mut self, by: &Change, end: &End, velocity: &[f64]) {
        let Change { a, b, g, e } = *by;
        let (kappa, lambda) = (Pair::of(&self.kappa, velocity), Pair::of(&self.lambda, velocity));
        self.kk += 2.0 * (a * kappa.y + b * kappa.v + g * self.kl + g * (a * lambda.y + b * lambda.v))
            + a * a * end.yy
            + 2.0 * a * b * end.yv
            + b * b * end.vv
            + g * g * self.ll;
        self.kl += a * lambda.y
            + b * lambda.v
            + g * self.ll
            + e * (kappa.v + a * end.yv + b * end.vv + g * lambda.v);
        self.ll += e * (2.0 * lambda.v + e * end.vv);
        add(&mut self.kappa, a, &end.output);
        add(&mut self.kappa, b, &end.velocity);
        add(&mut self.kappa, g, &self.lambda);
        add(&mut self.lambda, e, &end.velocity);
    }

    /// Derivatives by what is behind a change to those by what is before it, and by what changes.
    fn change_back(&mut self, by: &Change, before: &Offsets, end: &End, velocity: &[f64]) -> Change {
        let Change { a, b, g, e } = *by;
        let (kappa, lambda) = (Pair::of(&before.kappa, velocity), Pair::of(&before.lambda, velocity));
        let (kk, kl, ll) = (self.kk, self.kl, self.ll);
        let slopes = Change {
            a: dot(&self.kappa, &end.output)
                + 2.0 * kk * (kappa.y + a * end.yy + b * end.yv + g * lambda.y)
                + kl * (lambda.y + e * end.yv),
            b: dot(&self.kappa, &end.velocity)
                + 2.0 * kk * (kappa.v + a * end.yv + b * end.vv + g * lambda.v)
                + kl * (lambda.v + e * end.vv),
            g: 0.0, // the rates are given
            e: dot(&self.lambda, &end.velocity)
                + kl * (kappa.v + a * end.yv + b * end.vv + g * lambda.v)
                + 2.0 * ll * (lambda.v + e * end.vv),
        };
        add(&mut self.lambda, g, &self.kappa);
        let last = velocity.len() - 1;
        self.lambda[last] += a * (2.0 * kk * g + kl);
        add(&mut self.lambda, 2.0 * kk * g * b + kl * (b + g * e) + 2.0 * ll * e, velocity);
        self.kappa[last] += 2.0 * kk * a;
        add(&mut self.kappa, 2.0 * kk * b + kl * e, velocity);
        self.kl += 2.0 * g * kk;
        self.ll += g * g * kk + g * kl;
        slopes
    }
}

/// The components of E[x·(something)] that belong to y and v.
struct Pair {
    y: f64,
    v: f64,
}

impl Pair {
    fn of(with: &[f64], velocity: &[f64]) -> Pair {
        Pair { y: with[with.len() - 1], v: dot(velocity, with) }
    }
}

/// ν: y = βy' + Σ g_a x_a with the y' before it, and v = y − y'. Of no use without momentum.
fn velocity(rational: &Rational, momentum: f64) -> Vec<f64> {
    let weights = rational.prefix_weights();
    match momentum > 0.0 {
        true => weights.iter().map(|g| g / momentum).chain([1.0 - 1.0 / momentum]).collect(),
        false => vec![0.0; weights.len() + 1],
    }
}
