//! The two ends of a bracket, from one sum of losses.
//!
//! Losses on the grid are never less than the truth, so that end needs no argument but for rounding. The other end needs a
//! bound on what connecting the dots can have added to δ: `Below`.

use super::compose::Sum;
use libm::{exp, expm1, log, log1p};
use std::f64::consts::FRAC_PI_2;

/// A sum of losses, and what follows from it for every grid point.
pub struct Ends<'a> {
    sum: &'a Sum,
    /// δ at every grid point.
    deltas: Vec<f64>,
}

impl<'a> Ends<'a> {
    /// Nothing is subtracted on the way: δ = Σ p·(1 − e^(l − loss)) over the losses above l, and b = Σ p·e^(l − loss).
    pub fn new(sum: &'a Sum) -> Self {
        let points = sum.masses.len();
        let mut deltas = vec![0.0; points];
        let (shrink, rest) = (exp(-sum.h), -expm1(-sum.h));
        let (mut delta, mut b) = (0.0, 0.0);
        for i in (0..points).rev() {
            deltas[i] = delta;
            b += sum.masses[i];
            delta += b * rest;
            b *= shrink;
        }
        Ends { sum, deltas }
    }

    /// An ε for which δ is not above the given one, the smallest that follows; zero where that does. `None` where not even
    /// the largest possible loss is known to do.
    pub fn epsilon_above(&self, delta: f64) -> Option<f64> {
        let sum = self.sum;
        let most = sum.scaled((delta - sum.infinite).max(0.0)) * (1.0 - sum.relative); // down
        let goal = |i: usize| (most - sum.blur_of_delta(sum.loss(i))) / (1.0 + sum.relative); // down
        // At the largest loss, only infinite ones count.
        let top = (sum.infinite <= delta).then_some(sum.top.max(0.0));
        // Both δ and what blurs it fall with ε. What is not a number is not enough.
        let found = first(self.deltas.len(), |i| self.deltas[i] <= goal(i));
        if found == self.deltas.len() {
            return top;
        }
        let mut epsilon = sum.loss(found);
        if found > 0 {
            // Between this grid point and the one below, δ is δ(l) − b·(e^x − 1) at l + x.
            let (below, shrink) = (found - 1, exp(-sum.h));
            let b = sum.masses[found..].iter().rev().fold(0.0, |b, p| (b + p) * shrink);
            let between = sum.loss(below) + log1p((self.deltas[below] - goal(below)) / b);
            if goal(below) > 0.0 && between < epsilon {
                epsilon = between.max(sum.loss(below));
            }
        }
        top.map(|top| top.min(epsilon.max(0.0)))
    }

    /// An ε for which δ is above the given one, the largest that a search among grid points finds; zero where it finds none.
    pub fn epsilon_below(&self, delta: f64) -> f64 {
        let sum = self.sum;
        let goal = sum.scaled(delta + sum.outside) * (1.0 + sum.relative);
        let below = Below::new(self, delta);
        let exceeds = |i: usize| {
            let loss = sum.loss(i);
            let plain = self.deltas[i] * (1.0 - sum.relative) - sum.blur_of_delta(loss);
            plain > goal && plain - below.added(loss) > goal
        };
        // δ falls with ε. Down from where that alone exceeds, in larger and larger steps, then between the last two: far
        // below, errors are too large to tell.
        let lowest = (1 - sum.first).max(0) as usize;
        let (mut end, mut step) = (self.deltas.partition_point(|d| *d > goal), 1);
        while end >= lowest + step {
            if exceeds(end - step) {
                // One below the first that does not exceed.
                let from = end - step;
                return sum.loss(from + first(step, |i| !exceeds(from + i)) - 1);
            }
            end -= step;
            step *= 2;
        }
        0.0
    }

    /// δ at an ε, from above.
    pub fn delta_above(&self, epsilon: f64) -> f64 {
        let sum = self.sum;
        if epsilon >= sum.top {
            return sum.infinite.next_up().min(1.0); // up, also where there are no numbers
        }
        let scaled = self.plain_delta(epsilon) * (1.0 + sum.relative) + sum.blur_of_delta(epsilon);
        let delta = (sum.unscaled(scaled) * (1.0 + sum.relative) + sum.infinite).next_up();
        if delta.is_nan() { 1.0 } else { delta.min(1.0) }
    }

    /// δ at an ε, from below.
    pub fn delta_below(&self, epsilon: f64) -> f64 {
        let (sum, plain) = (self.sum, self.plain_delta(epsilon));
        let added = Below::new(self, sum.unscaled(plain)).added(epsilon);
        let scaled = plain * (1.0 - sum.relative) - sum.blur_of_delta(epsilon) - added;
        // What is not a number is zero here.
        (sum.unscaled(scaled.max(0.0)) * (1.0 - sum.relative) - sum.outside).max(0.0)
    }

    fn plain_delta(&self, epsilon: f64) -> f64 {
        let sum = self.sum;
        let from = ((epsilon / sum.h).floor() as i64 + 1 - sum.first).max(0) as usize;
        let term = |i: usize| sum.masses[i] * -expm1((epsilon - sum.loss(i)).min(0.0));
        (from..sum.masses.len()).rev().map(term).sum()
    }
}

/// The first of 0..n for which something is true, if it is true for all that follow; n where it is for none.
fn first(n: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// A bound on what connecting the dots can have added to δ.
///
/// The losses on the grid are S̃ = S − D, where D adds up, for every step, how far its loss was moved. Given the true
/// losses the moves are independent, each takes two values that are h apart, and e^D has mean one. So D has a mean between
/// −σ²/2 and 0, a variance of at most σ² = T·h²/4, and tails like a normal variable with that variance (Hoeffding).
///
/// For c = e^(ε−S), δ̃ − δ = E[(1 − c·e^D)₊ − (1 − c)₊] is what the convex function gains beyond its tangent: with
/// x = |S − ε|, it is (e^(D−x) − 1)₊ where S is above ε and (1 − e^(x+D))₊ where it is below. Given S, and with
/// y = x − σ²/2, the mean of that is at most
///
/// ```text
/// G(x) = e^t·min( ½(√(σ² + y²) − y),  σ√(π/2)·e^(−y²/2σ²) )   for y ≥ 0,      e^t·(σ/2 − y)   for y < 0
/// ```
///
/// (Scarf's bound from the variance, Hoeffding's integrated), and the probability e^(−n²/2) that D is above t = σ² + nσ, also
/// when weighted by e^D. Nothing is known of S but S̃: Chebyshev says that they are within r = σ²/2 + 2σ of each other three
/// times out of four, whatever S is, so
///
/// ```text
/// E G(|S − ε|) ≤ 4/3·E G((|S̃ − ε| − r)₊).
/// ```
///
/// What rounding moved up makes the mean of e^D smaller than one by [`Sum::moved`] at most, and adds that to δ where S is
/// above ε.
struct Below<'a> {
    ends: &'a Ends<'a>,
    sigma: f64,
    /// n.
    deviations: f64,
}

/// Layers per standard deviation, in which G is taken to be what it is at their inner end.
const LAYERS: f64 = 4.0;

impl<'a> Below<'a> {
    /// For a δ about as large as the given one.
    fn new(ends: &'a Ends<'a>, delta: f64) -> Self {
        let deviations = (2.0 * log(1e6 / delta.max(1e-300))).max(1.0).sqrt();
        Below { ends, sigma: 0.5 * ends.sum.count.sqrt() * ends.sum.h, deviations }
    }

    /// In units of the sum.
    fn added(&self, epsilon: f64) -> f64 {
        let (sigma, n) = (self.sigma, self.deviations);
        let bias = 0.5 * sigma * sigma;
        let growth = exp(2.0 * bias + n * sigma);
        if growth > 1e9 {
            return f64::INFINITY; // such a grid says nothing
        }
        let gain = |x: f64| {
            let y = x - bias;
            let scarf = 0.5 * if y < 0.0 { sigma - 2.0 * y } else { sigma.hypot(y) - y };
            let hoeffding = sigma * FRAC_PI_2.sqrt() * exp(-0.5 * (y.max(0.0) / sigma).powi(2));
            if y < 0.0 { scarf } else { scarf.min(hoeffding) }
        };
        // The layers of |S̃ − ε| beyond r, on both sides; the innermost includes what is nearer.
        let (r, width) = (bias + 2.0 * sigma, sigma / LAYERS);
        let layer = |i: usize| {
            let (near, far) = (i as f64 * width, (i + 1) as f64 * width + r);
            let from = if i == 0 { 0.0 } else { near + r };
            let mass =
                self.between(epsilon + from, epsilon + far) + self.between(epsilon - far, epsilon - from);
            gain(near) * mass
        };
        let layers = (0..(LAYERS * (n + bias / sigma)).ceil() as usize).map(layer).sum::<f64>();
        let rest = exp(-0.5 * n * n); // beyond the layers, and of D
        let moved = self.ends.sum.moved * self.between(epsilon - r, f64::INFINITY);
        4.0 / 3.0 * (growth * layers + moved) + self.ends.sum.scaled((1.0 + 4.0 * growth * sigma) * rest)
    }

    /// The mass between two losses, up.
    fn between(&self, from: f64, to: f64) -> f64 {
        let sum = self.ends.sum;
        let place = |l: f64| (l / sum.h - sum.first as f64).clamp(0.0, sum.masses.len() as f64);
        let (i, j) = (place(from).floor() as usize, place(to).ceil() as usize);
        let mass: f64 = sum.masses[i..sum.masses.len().min(j + 1)].iter().sum();
        mass * (1.0 + sum.relative) + sum.blur_of_mass(from)
    }
}
