//! A search for bad patterns of reshuffled epochs, from below.
//!
//! A pattern and unit vectors g_i for its steps have the value Σ X_ij⟨g_i, g_j⟩ ≤ sens², and a step at t adds
//! X_tt + 2‖Σ_j X_tj g_j‖ to the others, with the best vector for it (`climb`). So every epoch in turn moves its step to where it adds
//! most, until none moves; from the better patterns also two epochs at once. It begins at patterns of fixed order, at patterns grown from one step, and at those of the caller.
//!
//! The values here rank patterns; a bound is claimed only after `exact::pattern_above` has evaluated the pattern.
//! Nothing is random and no beginning depends on another, so the number of threads changes nothing.

use crate::linalg::dense::{self, Matrix};
use crate::sensitivity::climb::{DIMENSION, Vector, add, direction, first_vector, inner, norm};
use rayon::prelude::*;

/// Rounds over all epochs from each beginning, at most.
const ROUNDS: usize = 24;
/// Sweeps over the vectors before the epochs move.
const SWEEPS: usize = 3;
/// An improvement by less does not count.
const LEAST_GAIN: f64 = 1e-9;
/// From so many patterns at most, two epochs move at once.
const FARTHER: usize = 8;
/// Beginnings × steps × epochs, about: it keeps the search cheap beside the upper bound.
const EFFORT: usize = 100_000_000;

/// A pattern with a vector for the step of each epoch.
#[derive(Clone)]
pub(super) struct Walk<'a> {
    x: &'a Matrix,
    b: usize,
    pub(super) pattern: Vec<usize>,
    vectors: Vec<Vector>,
    /// Σ X_ij⟨g_i, g_j⟩.
    value: f64,
}

/// The worst patterns found, worst first: at most `most`, without repetitions.
pub(super) fn worst(x: &Matrix, k: usize, b: usize, given: Vec<Vec<usize>>, most: usize) -> Vec<Walk<'_>> {
    let n = x.nrows();
    let beginnings = (EFFORT / (n * k)).clamp(8, 256).min(n);
    let orders = (beginnings / 2).clamp(1, b);
    let fixed = (0..orders).map(|r| (0..k).map(|e| e * b + r * b / orders).collect::<Vec<_>>());
    let at_patterns: Vec<Vec<usize>> = given.into_iter().chain(fixed).collect();
    let seeds: Vec<usize> = (0..beginnings).map(|i| i * n / beginnings).collect();
    let mut walks: Vec<Walk> = at_patterns.into_par_iter().map(|pattern| Walk::at(x, b, pattern)).collect();
    walks.par_extend(seeds.into_par_iter().map(|seed| Walk::grown(x, k, b, seed)));
    walks.par_iter_mut().for_each(Walk::climb);
    // Moves of two epochs at once cost more, so only the better half has them.
    let half = walks.len().div_ceil(2).min(FARTHER.max(most));
    let mut best = best_of(walks, half);
    best.par_iter_mut().for_each(Walk::climb_farther);
    best_of(best, most)
}

/// The walks with the largest values, largest first and no pattern twice.
fn best_of(mut walks: Vec<Walk<'_>>, most: usize) -> Vec<Walk<'_>> {
    // Stable: equal values keep the order of their beginnings.
    walks.sort_by(|a, b| b.value.total_cmp(&a.value));
    let mut best: Vec<Walk> = Vec::new();
    for walk in walks {
        if best.len() < most && !best.iter().any(|other| other.pattern == walk.pattern) {
            best.push(walk);
        }
    }
    best
}

impl<'a> Walk<'a> {
    fn at(x: &'a Matrix, b: usize, pattern: Vec<usize>) -> Self {
        let vectors = (0..pattern.len()).map(first_vector).collect();
        Walk { x, b, pattern, vectors, value: 0.0 }
    }

    /// From one step on: the epochs after it, then those before it, each with the step that adds most to what is there.
    fn grown(x: &'a Matrix, k: usize, b: usize, seed: usize) -> Self {
        let mut walk = Walk::at(x, b, (0..k).map(|e| e * b).collect());
        let mut pulls = vec![[0.0; DIMENSION]; x.nrows()];
        let first = seed / b;
        walk.put(first, seed, first_vector(0), &mut pulls);
        for e in (first + 1..k).chain((0..first).rev()) {
            let t = walk.best_step(e, &pulls);
            let g = direction(&pulls[t]).unwrap_or(first_vector(e));
            walk.put(e, t, g, &mut pulls);
        }
        walk
    }

    fn put(&mut self, e: usize, step: usize, g: Vector, pulls: &mut [Vector]) {
        self.pattern[e] = step;
        self.vectors[e] = g;
        self.spread(pulls, step, &g);
    }

    /// Adds what a step with the vector g pulls.
    fn spread(&self, pulls: &mut [Vector], step: usize, g: &Vector) {
        for (pull, entry) in pulls.iter_mut().zip(self.x.col_as_slice(step)) {
            add(pull, *entry, g);
        }
    }

    /// Σ_j X_tj g_j over all steps of the pattern, for every t.
    fn pulls(&self) -> Vec<Vector> {
        let mut pulls = vec![[0.0; DIMENSION]; self.x.nrows()];
        for (step, g) in self.pattern.iter().zip(&self.vectors) {
            self.spread(&mut pulls, *step, g);
        }
        pulls
    }

    /// The step of an epoch that adds most where the others pull like this.
    fn best_step(&self, e: usize, pulls: &[Vector]) -> usize {
        let gain = |t: usize| self.x[(t, t)] + 2.0 * norm(&pulls[t]);
        let larger = |a: (f64, usize), t: usize| if gain(t) > a.0 { (gain(t), t) } else { a };
        (e * self.b..(e + 1) * self.b).fold((f64::NEG_INFINITY, e * self.b), larger).1
    }

    /// Rounds of moves, until one does not help.
    fn climb(&mut self) {
        self.settle();
        for _ in 0..ROUNDS {
            let before = self.value;
            self.relocate();
            self.settle();
            if self.value <= before * (1.0 + LEAST_GAIN) {
                break;
            }
        }
    }

    /// Moves of two epochs at once, and rounds of single moves after each that helps.
    fn climb_farther(&mut self) {
        for _ in 0..ROUNDS {
            let mut moved = self.clone();
            moved.relocate_pairs();
            moved.climb();
            if moved.value <= self.value * (1.0 + LEAST_GAIN) {
                break;
            }
            *self = moved;
        }
    }

    /// Every pair of epochs in turn: both steps to where they add most while the others stay.
    fn relocate_pairs(&mut self) {
        let mut pulls = self.pulls();
        for f in 1..self.pattern.len() {
            for e in 0..f {
                let Some([first, second]) = self.better_pair(e, f, &pulls) else { continue };
                for (epoch, (step, g)) in [(e, first), (f, second)] {
                    let old = self.vectors[epoch].map(|x| -x);
                    self.spread(&mut pulls, self.pattern[epoch], &old);
                    self.put(epoch, step, g, &mut pulls);
                }
            }
        }
    }

    /// Where the steps of two epochs add more than they do: the first with the vector that the others ask for, the second with the best
    /// one after that.
    fn better_pair(&self, e: usize, f: usize, pulls: &[Vector]) -> Option<[(usize, Vector); 2]> {
        let both = [(self.pattern[e], self.vectors[e]), (self.pattern[f], self.vectors[f])];
        let without = |t: usize| {
            let mut pull = pulls[t];
            both.iter().for_each(|(step, g)| add(&mut pull, -self.x[(t, *step)], g));
            pull
        };
        let [(s, g), (t, h)] = both;
        let now = self.x[(s, s)] + self.x[(t, t)] + 2.0 * self.x[(t, s)] * inner(&g, &h);
        let now = now + 2.0 * (inner(&without(s), &g) + inner(&without(t), &h));
        let others: Vec<(usize, Vector)> = (f * self.b..(f + 1) * self.b).map(|t| (t, without(t))).collect();
        let mut best = (now + LEAST_GAIN * self.value, None);
        for s in e * self.b..(e + 1) * self.b {
            let pull = without(s);
            let g = direction(&pull).unwrap_or(g);
            let first = self.x[(s, s)] + 2.0 * norm(&pull);
            for (t, pull) in &others {
                let mut pull = *pull;
                add(&mut pull, self.x[(*t, s)], &g);
                let value = first + self.x[(*t, *t)] + 2.0 * norm(&pull);
                if value > best.0 {
                    best = (value, Some([(s, g), (*t, direction(&pull).unwrap_or(h))]));
                }
            }
        }
        best.1
    }

    /// Every epoch in turn: its step to where it adds most while the others stay.
    fn relocate(&mut self) {
        let mut pulls = self.pulls();
        for e in 0..self.pattern.len() {
            let (step, g) = (self.pattern[e], self.vectors[e]);
            self.spread(&mut pulls, step, &g.map(|x| -x));
            let t = self.best_step(e, &pulls);
            let g = direction(&pulls[t]).unwrap_or(g);
            self.put(e, t, g, &mut pulls);
        }
    }

    /// ⟨g_e, g_f⟩: the correlations that make the pattern bad.
    pub(super) fn correlations(&self) -> Matrix {
        let k = self.pattern.len();
        dense::from_fn(k, k, |e, f| inner(&self.vectors[e], &self.vectors[f]))
    }

    /// Every vector in turn becomes the best one for the others; then the value.
    fn settle(&mut self) {
        let block = dense::principal(self.x, &self.pattern);
        for sweep in 0..=SWEEPS {
            self.value = 0.0;
            for e in 0..self.pattern.len() {
                let mut pull = [0.0; DIMENSION];
                for (f, g) in self.vectors.iter().enumerate().filter(|(f, _)| *f != e) {
                    add(&mut pull, block[(f, e)], g);
                }
                if sweep < SWEEPS {
                    self.vectors[e] = direction(&pull).unwrap_or(self.vectors[e]);
                }
                self.value += block[(e, e)] + inner(&pull, &self.vectors[e]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, random_gram};

    #[test]
    fn moves_keep_one_step_in_every_epoch_and_never_lower_the_value() {
        let mut noise = Noise(72);
        for (k, b) in [(1, 5), (2, 7), (5, 1), (5, 4), (9, 3)] {
            let x = random_gram(&mut noise, 3, k * b);
            for seed in 0..k * b {
                let mut walk = Walk::grown(&x, k, b, seed);
                assert_eq!(walk.pattern[seed / b], seed);
                for round in 0..6 {
                    let before = walk.value;
                    walk.settle();
                    let block = dense::principal(&x, &walk.pattern);
                    let term = |e: usize, f: usize| block[(e, f)] * inner(&walk.vectors[e], &walk.vectors[f]);
                    let slow: f64 =
                        (0..k).flat_map(|e| (0..k).map(move |f| (e, f))).map(|(e, f)| term(e, f)).sum();
                    assert!((walk.value - slow).abs() < 1e-12 * slow.abs(), "{} {slow}", walk.value);
                    assert!(round == 0 || walk.value >= before * (1.0 - 1e-12), "{} {before}", walk.value);
                    assert!(walk.pattern.iter().enumerate().all(|(e, step)| step / b == e));
                    if round % 2 == 0 { walk.relocate() } else { walk.relocate_pairs() }
                }
            }
        }
    }

    #[test]
    fn patterns_come_once_and_the_number_of_threads_changes_nothing() {
        let mut noise = Noise(73);
        for (k, b) in [(1, 5), (2, 7), (5, 1), (5, 4), (9, 3)] {
            let x = random_gram(&mut noise, 3, k * b);
            let given: Vec<usize> = (0..k).map(|e| (e + 1) * b - 1).collect();
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let found = pool.install(|| worst(&x, k, b, vec![given.clone()], 5));
                found.into_iter().map(|walk| walk.pattern).collect::<Vec<_>>()
            };
            let found = with(1);
            assert_eq!(found, with(3));
            assert!(!found.is_empty() && found.len() <= 5);
            assert!(found.iter().enumerate().all(|(i, pattern)| !found[..i].contains(pattern)));
        }
    }
}
