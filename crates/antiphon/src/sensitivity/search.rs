//! A search for bad patterns under minimum separation, from below.
//!
//! There are too many patterns to try, so this finds one that is bad and does not prove that none is worse. A
//! pattern and unit vectors g_i for its steps have the value Σ X_ij⟨g_i, g_j⟩ ≤ sens². From a beginning the search
//! goes uphill: with p_t = Σ_j X_tj g_j over the other steps of the pattern, a step at t adds
//! X_tt + 2‖p_t‖ with the best vector for it. So
//!
//! - `settle` improves the vectors of a fixed pattern, as the mixing method does;
//! - `relocate` takes one step out at a time and puts it back where it adds most;
//! - `rearranged` moves all at once: the places that would be best for every step if no other moved, by a dynamic
//!   programme that keeps the separation; the result is kept only where it is better;
//! - `slid` moves all steps from one on by the same distance: among steps that are all b apart, none can move alone;
//! - `grow` adds steps as long as there is room.
//!
//! Beginnings are the best arithmetic progressions, the patterns of the caller, and patterns grown from one step.
//! The values here rank patterns; a bound is claimed only after [`exact::pattern_above`](super::exact) has
//! evaluated the pattern. Nothing is random and every beginning is followed alone, so the number of threads
//! changes nothing.

use super::progressions;
use crate::linalg::dense::Matrix;
use rayon::prelude::*;

/// Components of a vector. It takes √(2k) to exclude false maxima, but four rank patterns well and fill a register.
const DIMENSION: usize = 4;
/// Most rounds from one beginning; few need more than ten.
const ROUNDS: usize = 24;
/// Sweeps over the vectors after a change of the pattern.
const SWEEPS: usize = 3;
/// An improvement by less does not count.
const LEAST_GAIN: f64 = 1e-9;
/// Beginnings × steps, about: it keeps the search cheap beside the upper bound, which takes O(n²k).
const EFFORT: usize = 48_000;

type Vector = [f64; DIMENSION];

fn inner(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(v: &Vector) -> f64 {
    inner(v, v).sqrt()
}

fn add(sum: &mut Vector, factor: f64, v: &Vector) {
    sum.iter_mut().zip(v).for_each(|(s, v)| *s += factor * v);
}

/// The worst patterns found, worst first: at most `most`, without repetitions.
pub(super) fn worst(x: &Matrix, b: usize, k: usize, given: Vec<Vec<usize>>, most: usize) -> Vec<Vec<usize>> {
    let n = x.nrows();
    let beginnings = (EFFORT / n.max(1)).clamp(24, 480);
    let mut starts = given;
    starts.extend(progressions::best(x, b, k, beginnings / 2));
    let seeds = (beginnings / 2).min(n);
    starts.extend((0..seeds).map(|i| vec![i * n / seeds]));
    let mut found: Vec<Climb> =
        starts.into_par_iter().map(|start| Climb::new(x, b, k, start).to_the_top()).collect();
    // Stable: equal values keep the order of their beginnings.
    found.sort_by(|a, b| b.value.total_cmp(&a.value));
    let mut patterns: Vec<Vec<usize>> = Vec::new();
    for climb in found {
        if patterns.len() < most && !patterns.contains(&climb.pattern) {
            patterns.push(climb.pattern);
        }
    }
    patterns
}

/// A pattern with a vector for each of its steps.
#[derive(Clone)]
struct Climb<'a> {
    x: &'a Matrix,
    b: usize,
    k: usize,
    pattern: Vec<usize>,
    vectors: Vec<Vector>,
    value: f64,
}

impl<'a> Climb<'a> {
    fn new(x: &'a Matrix, b: usize, k: usize, pattern: Vec<usize>) -> Self {
        let vectors = (0..pattern.len()).map(first_vector).collect();
        let mut climb = Climb { x, b, k, pattern, vectors, value: 0.0 };
        climb.settle();
        climb
    }

    fn to_the_top(mut self) -> Self {
        self.grow();
        for _ in 0..ROUNDS {
            let before = self.value;
            self.relocate();
            for moved in [self.rearranged(), self.slid()].into_iter().flatten() {
                if moved.value > self.value {
                    self = moved;
                }
            }
            self.grow();
            if self.value <= before * (1.0 + LEAST_GAIN) {
                break;
            }
        }
        self
    }

    /// Σ_j X_tj g_j over the steps of the pattern, without the one at place `but`.
    fn pull(&self, t: usize, but: usize) -> Vector {
        let column = self.x.col_as_slice(t);
        let mut sum = [0.0; DIMENSION];
        for (j, (step, g)) in self.pattern.iter().zip(&self.vectors).enumerate() {
            if j != but {
                add(&mut sum, column[*step], g);
            }
        }
        sum
    }

    /// The same over all steps of the pattern, for every t.
    fn pulls(&self) -> Vec<Vector> {
        let mut pulls = vec![[0.0; DIMENSION]; self.x.nrows()];
        for (step, g) in self.pattern.iter().zip(&self.vectors) {
            self.spread(&mut pulls, *step, 1.0, g);
        }
        pulls
    }

    fn spread(&self, pulls: &mut [Vector], step: usize, sign: f64, g: &Vector) {
        for (pull, entry) in pulls.iter_mut().zip(self.x.col_as_slice(step)) {
            add(pull, sign * entry, g);
        }
    }

    /// Every vector in turn becomes the best one for the others; then the value.
    fn settle(&mut self) {
        for sweep in 0..=SWEEPS {
            self.value = 0.0;
            for i in 0..self.pattern.len() {
                let step = self.pattern[i];
                let pull = self.pull(step, i);
                if sweep < SWEEPS {
                    self.vectors[i] = direction(&pull).unwrap_or(self.vectors[i]);
                }
                self.value += self.x[(step, step)] + inner(&pull, &self.vectors[i]);
            }
        }
    }

    /// What a step at t adds where the others pull like this.
    fn gain(&self, t: usize, pull: &Vector) -> f64 {
        self.x[(t, t)] + 2.0 * norm(pull)
    }

    /// The best step that has room beside the pattern, and its place in it.
    fn best_room(&self, pulls: &[Vector]) -> Option<(usize, usize)> {
        let (n, b) = (self.x.nrows(), self.b);
        let mut best = None;
        let mut most = f64::NEG_INFINITY;
        for place in 0..=self.pattern.len() {
            let from = if place == 0 { 0 } else { self.pattern[place - 1] + b };
            let to = self.pattern.get(place).map_or(n, |next| (next + 1).saturating_sub(b));
            for t in from..to {
                let gain = self.gain(t, &pulls[t]);
                if gain > most {
                    (best, most) = (Some((place, t)), gain);
                }
            }
        }
        best
    }

    fn insert(&mut self, pulls: &mut [Vector], place: usize, t: usize, otherwise: Vector) {
        let g = direction(&pulls[t]).unwrap_or(otherwise);
        self.spread(pulls, t, 1.0, &g);
        self.pattern.insert(place, t);
        self.vectors.insert(place, g);
    }

    fn grow(&mut self) {
        let before = self.pattern.len();
        if before == self.k {
            return;
        }
        let mut pulls = self.pulls();
        while self.pattern.len() < self.k
            && let Some((place, t)) = self.best_room(&pulls)
        {
            self.insert(&mut pulls, place, t, first_vector(self.pattern.len()));
        }
        if self.pattern.len() > before {
            self.settle();
        }
    }

    fn relocate(&mut self) {
        let mut pulls = self.pulls();
        for i in 0..self.pattern.len() {
            // The step at place i may come back at another place; whoever is at place i next is as good a choice.
            let i = i.min(self.pattern.len() - 1);
            let (step, g) = (self.pattern.remove(i), self.vectors.remove(i));
            self.spread(&mut pulls, step, -1.0, &g);
            let (place, t) = match self.best_room(&pulls) {
                Some((place, t)) if self.gain(t, &pulls[t]) > self.gain(step, &pulls[step]) => (place, t),
                _ => (i, step),
            };
            self.insert(&mut pulls, place, t, g);
        }
        self.settle();
    }

    /// All steps at the places that are best for each if the others stay, at distances of at least b.
    fn rearranged(&self) -> Option<Self> {
        let (n, b, length) = (self.x.nrows(), self.b, self.pattern.len());
        let pulls = self.pulls();
        // best[l·n + t]: the first l + 1 steps, the last of them at t or before.
        let mut best = vec![f64::NEG_INFINITY; length * n];
        for (l, (step, g)) in self.pattern.iter().zip(&self.vectors).enumerate() {
            let column = self.x.col_as_slice(*step);
            for t in l * b..n - (length - 1 - l) * b {
                let mut pull = pulls[t];
                add(&mut pull, -column[t], g);
                let before = if l == 0 { 0.0 } else { best[(l - 1) * n + t - b] };
                let stay = if t > l * b { best[l * n + t - 1] } else { f64::NEG_INFINITY };
                best[l * n + t] = stay.max(before + self.gain(t, &pull));
            }
        }
        let mut pattern = vec![0; length];
        let mut t = n - 1;
        for l in (0..length).rev() {
            while t > l * b && best[l * n + t] == best[l * n + t - 1] {
                t -= 1;
            }
            pattern[l] = t;
            t = t.saturating_sub(b);
        }
        self.moved_to(pattern)
    }

    /// The same vectors on another pattern, settled.
    fn moved_to(&self, pattern: Vec<usize>) -> Option<Self> {
        (pattern != self.pattern).then(|| {
            let mut moved = Climb { pattern, ..self.clone() };
            moved.settle();
            moved
        })
    }

    /// All steps from one on moved by the same distance: the move that helps most, if one does.
    fn slid(&self) -> Option<Self> {
        // Farther moves are what `relocate` and other beginnings are for; these cost O(nk) together.
        let reach = self.x.nrows().div_ceil(self.pattern.len()) as isize;
        let mut best = (LEAST_GAIN * self.value, 0, 0);
        for distance in (-reach..=reach).filter(|distance| *distance != 0) {
            for (from, change) in self.changes(distance).into_iter().enumerate() {
                if change > best.0 {
                    best = (change, from, distance);
                }
            }
        }
        let (_, from, distance) = best;
        let mut pattern = self.pattern.clone();
        pattern[from..].iter_mut().for_each(|step| *step = step.wrapping_add_signed(distance));
        self.moved_to(pattern)
    }

    /// How the value changes where all steps from place l on move by `distance` and the vectors stay, for every l; −∞
    /// where they have no room.
    fn changes(&self, distance: isize) -> Vec<f64> {
        let length = self.pattern.len();
        let mut changes = vec![f64::NEG_INFINITY; length];
        let moved = |step: usize| step.checked_add_signed(distance).filter(|step| *step < self.x.nrows());
        // The changes of pairs of which the later step moves, and of those that move together.
        let (mut one, mut both) = (0.0, 0.0);
        for l in (0..length).rev() {
            let step = self.pattern[l];
            let Some(to) = moved(step) else { break };
            let (here, there) = (self.x.col_as_slice(step), self.x.col_as_slice(to));
            both += there[to] - here[step];
            for (j, &other) in self.pattern.iter().enumerate().filter(|(j, _)| *j != l) {
                let twice = 2.0 * inner(&self.vectors[l], &self.vectors[j]);
                if j < l {
                    one += twice * (there[other] - here[other]);
                } else {
                    let other_to = other.wrapping_add_signed(distance);
                    one -= twice * (here[other_to] - here[other]);
                    both += twice * (there[other_to] - here[other]);
                }
            }
            if l == 0 || to >= self.pattern[l - 1] + self.b {
                changes[l] = one + both;
            }
        }
        changes
    }
}

/// The vector in this direction, where there is one.
fn direction(v: &Vector) -> Option<Vector> {
    let norm = norm(v);
    (norm > 1e-150).then(|| v.map(|x| x / norm))
}

/// The vector that place i begins with: fixed, and different for all places.
fn first_vector(i: usize) -> Vector {
    let mut state = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let v = std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    });
    direction(&v).unwrap_or([1.0, 0.0, 0.0, 0.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, random_gram};

    const SCHEMAS: [(usize, usize, usize); 6] =
        [(1, 1, 1), (12, 1, 4), (20, 5, 4), (21, 4, 9), (30, 6, 3), (25, 13, 2)];

    /// Σ X_ij⟨g_i, g_j⟩, by the definition.
    fn value(climb: &Climb<'_>) -> f64 {
        let places = 0..climb.pattern.len();
        let term = |i: usize, j: usize| {
            climb.x[(climb.pattern[i], climb.pattern[j])] * inner(&climb.vectors[i], &climb.vectors[j])
        };
        places.clone().flat_map(|i| places.clone().map(move |j| (i, j))).map(|(i, j)| term(i, j)).sum()
    }

    fn check(climb: &Climb<'_>) {
        let Climb { x, b, k, pattern, .. } = climb;
        assert!(pattern.len() <= *k && pattern.iter().all(|step| *step < x.nrows()), "{pattern:?}");
        assert!(pattern.windows(2).all(|pair| pair[1] >= pair[0] + b), "{pattern:?} {b}");
        assert!(climb.vectors.iter().all(|g| (norm(g) - 1.0).abs() < 1e-14));
        assert!((climb.value - value(climb)).abs() < 1e-12 * climb.value);
    }

    #[test]
    fn every_move_keeps_the_pattern_allowed_and_says_its_value() {
        let mut noise = Noise(61);
        for (n, b, k) in SCHEMAS {
            let x = random_gram(&mut noise, n, n);
            for first in 0..n.min(b) {
                let pattern = (first..n).step_by(b).take(k).collect();
                let mut climb = Climb::new(&x, b, k, pattern);
                check(&climb);
                climb.rearranged().iter().chain(&climb.slid()).for_each(check);
                let before = climb.value;
                climb.relocate();
                check(&climb);
                assert!(climb.value >= before * (1.0 - 1e-12));
                let before = climb.value;
                let top = climb.to_the_top();
                check(&top);
                assert!(top.value >= before * (1.0 - 1e-12));
            }
        }
    }

    #[test]
    fn the_change_of_a_slide_is_the_difference_of_values() {
        let mut noise = Noise(62);
        let (n, b) = (24, 3);
        let x = random_gram(&mut noise, n, n);
        let climb = Climb::new(&x, b, 9, vec![2, 5, 9, 14, 17, 20]);
        let mut seen = 0;
        for distance in (-5..=5).filter(|distance| *distance != 0) {
            for (l, change) in climb.changes(distance).into_iter().enumerate() {
                let mut moved = climb.clone();
                let to = |step: usize| step.checked_add_signed(distance).filter(|step| *step < n);
                let tail: Option<Vec<usize>> = climb.pattern[l..].iter().map(|step| to(*step)).collect();
                let room = tail.filter(|tail| l == 0 || tail[0] >= climb.pattern[l - 1] + b);
                assert_eq!(room.is_some(), change.is_finite(), "{distance} {l}");
                if let Some(tail) = room {
                    moved.pattern.splice(l.., tail);
                    assert!((value(&moved) - value(&climb) - change).abs() < 1e-11, "{distance} {l}: {change}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn a_pattern_without_room_slides_to_where_it_is_best() {
        // Entries at distance 5 only, so progressions of stride 5 are worst; every step is b = 4 from the next in the
        // first pattern, and no single step but the last can move.
        let x = crate::linalg::dense::from_fn(21, 21, |i, j| match i.abs_diff(j) {
            0 => 1.0,
            5 => 0.4,
            _ => 0.0,
        });
        let slid = Climb::new(&x, 4, 5, vec![0, 4, 8, 12, 16]).slid().unwrap();
        assert!(slid.value > 5.0 + 0.7, "{:?}", slid.pattern);
        let top = Climb::new(&x, 4, 5, vec![0, 4, 8, 12, 16]).to_the_top();
        assert_eq!(top.pattern, [0, 5, 10, 15, 20]);
        assert!((top.value - 8.2).abs() < 1e-6, "{}", top.value); // 5 + 2·4·0.4
    }

    #[test]
    fn patterns_come_once_and_the_number_of_threads_changes_nothing() {
        let mut noise = Noise(63);
        for (n, b, k) in SCHEMAS {
            let x = random_gram(&mut noise, 3, n);
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| worst(&x, b, k, vec![vec![n - 1]], 5))
            };
            let found = with(1);
            assert_eq!(found, with(3));
            assert!(!found.is_empty() && found.len() <= 5);
            assert!(found.iter().enumerate().all(|(i, pattern)| !found[..i].contains(pattern)));
        }
    }
}
