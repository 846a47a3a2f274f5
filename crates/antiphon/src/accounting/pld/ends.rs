//! The two ends of a bracket, from one sum of losses.
//!
//! Losses on the grid are never less than the truth, so that end needs no argument but for rounding. The other end needs a
//! bound on what connecting the dots can have added to δ: [`Below`].

use super::compose::Sum;
use libm::{exp, expm1, log, log1p};
use std::f64::consts::FRAC_PI_2;

impl Sum {
    /// An ε for which δ is not above the given one, the smallest that follows; zero where that does. `None` where not even
    /// the largest possible loss is known to do.
    pub fn epsilon_above(&self, delta: f64) -> Option<f64> {
        let most = self.scaled(delta) * (1.0 - self.relative) - self.infinite; // down
        let mut above = Above::new(self);
        // At the largest loss, only infinite ones count.
        let mut found = (most >= 0.0).then_some(self.top.max(0.0));
        for i in (0..self.masses.len()).rev() {
            let loss = self.loss(i);
            let goal = (most - self.blur_of_delta(loss)) / (1.0 + self.relative); // down
            // What is not a number is not enough.
            let enough = above.delta <= goal;
            if !enough {
                // Between this grid point and the one above, if that one is enough.
                let between = loss + above.distance(goal);
                let inside = goal > 0.0 && between > loss && between <= loss + self.h;
                return found.map(|top| if inside { top.min(between.max(0.0)) } else { top });
            }
            if loss <= 0.0 {
                return Some(0.0);
            }
            found = found.map(|top| top.min(loss));
            above.take(self.masses[i]);
        }
        found // the circle ends above zero
    }

    /// δ at an ε, from above.
    pub fn delta_above(&self, epsilon: f64) -> f64 {
        let scaled =
            self.plain_delta(epsilon) * (1.0 + self.relative) + self.infinite + self.blur_of_delta(epsilon);
        (self.unscaled(scaled) * (1.0 + self.relative)).min(1.0)
    }

    /// δ at an ε, from below.
    pub fn delta_below(&self, epsilon: f64) -> f64 {
        let plain = self.plain_delta(epsilon);
        let added = Below::new(self, self.unscaled(plain)).added(epsilon);
        let scaled = plain * (1.0 - self.relative) - self.outside - self.blur_of_delta(epsilon) - added;
        (self.unscaled(scaled.max(0.0)) * (1.0 - self.relative)).max(0.0)
    }

    fn plain_delta(&self, epsilon: f64) -> f64 {
        let from = ((epsilon / self.h).floor() as i64 + 1 - self.first).max(0) as usize;
        let term = |i: usize| self.masses[i] * -expm1((epsilon - self.loss(i)).min(0.0));
        (from..self.masses.len()).rev().map(term).sum()
    }

    /// An ε for which δ is above the given one, the largest that a search among grid points finds; zero where it finds none.
    pub fn epsilon_below(&self, delta: f64) -> f64 {
        let goal = self.scaled(delta) * (1.0 + self.relative);
        let below = Below::new(self, delta);
        let mut deltas = vec![0.0; self.masses.len()];
        let mut above = Above::new(self);
        for i in (0..self.masses.len()).rev() {
            deltas[i] = above.delta;
            above.take(self.masses[i]);
        }
        let exceeds = |i: usize| {
            let loss = self.loss(i);
            let plain = deltas[i] * (1.0 - self.relative) - self.outside - self.blur_of_delta(loss);
            plain > goal && plain - below.added(loss) > goal
        };
        // δ falls with ε. Down from where that alone exceeds, in larger and larger steps, then between the last two: far
        // below, errors are too large to tell.
        let lowest = (1 - self.first).max(0) as usize;
        let (mut end, mut step) = (deltas.partition_point(|d| *d > goal), 1);
        let mut found = loop {
            if end < lowest + step {
                return 0.0;
            }
            if exceeds(end - step) {
                break end - step;
            }
            end -= step;
            step *= 2;
        };
        while end - found > 1 {
            let middle = found + (end - found) / 2;
            if exceeds(middle) { found = middle } else { end = middle }
        }
        self.loss(found)
    }
}

/// The losses above a grid point l that moves down: δ = Σ p·(1 − e^(l − loss)) there, and b = Σ p·e^(l − loss).
struct Above {
    delta: f64,
    b: f64,
    shrink: f64,
    rest: f64,
}

impl Above {
    fn new(sum: &Sum) -> Self {
        Above { delta: 0.0, b: 0.0, shrink: exp(-sum.h), rest: -expm1(-sum.h) }
    }

    /// Moves down by one grid point, past this mass. Nothing is subtracted.
    fn take(&mut self, mass: f64) {
        let b = self.b + mass;
        self.delta += b * self.rest;
        self.b = b * self.shrink;
    }

    /// How far above the grid point δ falls to a goal, as long as no other grid point lies between: δ − b·(e^x − 1).
    fn distance(&self, goal: f64) -> f64 {
        log1p((self.delta - goal) / self.b)
    }
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
    sum: &'a Sum,
    /// Running sums of masses from the top, where they are small.
    above: Vec<f64>,
    sigma: f64,
    /// n.
    deviations: f64,
}

/// Layers per standard deviation, in which G is taken to be what it is at their inner end.
const LAYERS: f64 = 4.0;

impl<'a> Below<'a> {
    /// For a δ about as large as the given one.
    fn new(sum: &'a Sum, delta: f64) -> Self {
        let mut above = vec![0.0; sum.masses.len() + 1];
        for i in (0..sum.masses.len()).rev() {
            above[i] = above[i + 1] + sum.masses[i];
        }
        let deviations = (2.0 * log(1e6 / delta.max(1e-300))).max(1.0).sqrt();
        Below { sum, above, sigma: 0.5 * sum.count.sqrt() * sum.h, deviations }
    }

    /// In units of the sum.
    fn added(&self, epsilon: f64) -> f64 {
        let (sigma, n) = (self.sigma, self.deviations);
        let bias = 0.5 * sigma * sigma;
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
        let moved = self.sum.moved * self.between(epsilon - r, f64::INFINITY);
        let growth = exp(2.0 * bias + n * sigma);
        4.0 / 3.0 * (growth * layers + moved) + self.sum.scaled((1.0 + 4.0 * growth * sigma) * rest)
    }

    /// The mass between two losses, up.
    fn between(&self, from: f64, to: f64) -> f64 {
        let (sum, last) = (self.sum, self.sum.masses.len() as f64);
        let place = |l: f64| l / sum.h - sum.first as f64;
        let i = place(from).floor().clamp(0.0, last) as usize;
        let j = (place(to).ceil() + 1.0).clamp(0.0, last) as usize;
        (self.above[i] - self.above[j]).max(0.0) + sum.relative * self.above[i] + sum.blur_of_mass(from)
    }
}
