//! Uphill from one pattern to worse ones, under minimum separation.
//!
//! A pattern and unit vectors g_i for its steps have the value Σ X_ij⟨g_i, g_j⟩ ≤ sens². With
//! p_t = Σ_j X_tj g_j over the other steps of the pattern, a step at t adds X_tt + 2‖p_t‖ with the best vector for it. So
//!
//! - `settle` improves the vectors of a fixed pattern, as the mixing method does;
//! - `relocate` takes one step out at a time and puts it back where it adds most;
//! - `rearranged` moves all at once: the places that would be best for every step if no other moved, by a dynamic
//!   programme that keeps the separation; the result is kept only where it is better;
//! - `slid` moves all steps from one on by the same distance: among steps that are all b apart, none can move alone;
//! - `grow` adds steps as long as there is room.

use crate::linalg::dense::Matrix;
use std::ops::Range;

/// Components of a vector. It takes √(2k) to exclude false maxima, but four rank patterns well and fill a register.
pub(super) const DIMENSION: usize = 4;
/// Sweeps over the vectors after a change of the pattern.
const SWEEPS: usize = 3;
/// An improvement by less does not count.
const LEAST_GAIN: f64 = 1e-9;

pub(super) type Vector = [f64; DIMENSION];

pub(super) fn inner(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn norm(v: &Vector) -> f64 {
    inner(v, v).sqrt()
}

pub(super) fn add(sum: &mut Vector, factor: f64, v: &Vector) {
    sum.iter_mut().zip(v).for_each(|(s, v)| *s += factor * v);
}

/// A pattern with a vector for each of its steps.
#[derive(Clone)]
pub(super) struct Climb<'a> {
    x: &'a Matrix,
    b: usize,
    k: usize,
    pub(super) pattern: Vec<usize>,
    vectors: Vec<Vector>,
    /// Σ X_ij⟨g_i, g_j⟩.
    pub(super) value: f64,
}

impl<'a> Climb<'a> {
    /// Begins at a pattern, with more steps where there is room for them.
    pub(super) fn new(x: &'a Matrix, b: usize, k: usize, pattern: Vec<usize>) -> Self {
        let vectors = (0..pattern.len()).map(first_vector).collect();
        let mut climb = Climb { x, b, k, pattern, vectors, value: 0.0 };
        climb.settle();
        climb.grow();
        climb
    }

    /// All moves in turn, until none of them helps.
    pub(super) fn climb(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let before = self.value;
            self.relocate();
            self.take(self.rearranged());
            self.take(self.slid());
            self.grow();
            if self.value <= before * (1.0 + LEAST_GAIN) {
                break;
            }
        }
    }

    /// Takes the place of another climb, if that is better.
    fn take(&mut self, other: Option<Self>) {
        if let Some(other) = other.filter(|other| other.value > self.value) {
            *self = other;
        }
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
            self.spread(&mut pulls, *step, g);
        }
        pulls
    }

    /// Adds what a step with the vector g pulls.
    fn spread(&self, pulls: &mut [Vector], step: usize, g: &Vector) {
        for (pull, entry) in pulls.iter_mut().zip(self.x.col_as_slice(step)) {
            add(pull, *entry, g);
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

    /// The steps at which one can be added between place − 1 and place `next` of the pattern.
    fn room(&self, place: usize, next: usize) -> Range<usize> {
        let from = if place == 0 { 0 } else { self.pattern[place - 1] + self.b };
        from..self.pattern.get(next).map_or(self.x.nrows(), |step| (step + 1).saturating_sub(self.b))
    }

    /// Adds the step that adds most, until there are k of them or no room.
    fn grow(&mut self) {
        let before = self.pattern.len();
        if before == self.k {
            return;
        }
        let mut pulls = self.pulls();
        while self.pattern.len() < self.k {
            let rooms =
                (0..=self.pattern.len()).flat_map(|place| self.room(place, place).map(move |t| (place, t)));
            let gains = rooms.map(|(place, t)| (self.gain(t, &pulls[t]), place, t));
            let Some((_, place, t)) = gains.reduce(|a, b| if b.0 > a.0 { b } else { a }) else { break };
            let g = direction(&pulls[t]).unwrap_or(first_vector(self.pattern.len()));
            self.spread(&mut pulls, t, &g);
            self.pattern.insert(place, t);
            self.vectors.insert(place, g);
        }
        if self.pattern.len() > before {
            self.settle();
        }
    }

    /// Every step in turn to where it adds most while the others stay.
    fn relocate(&mut self) {
        let mut pulls = self.pulls();
        for i in 0..self.pattern.len() {
            if let Some((place, t, new)) = self.better_place(i, &pulls) {
                let (step, old) = (self.pattern.remove(i), self.vectors.remove(i));
                self.spread(&mut pulls, step, &old.map(|x| -x));
                self.spread(&mut pulls, t, &new);
                self.pattern.insert(place, t);
                self.vectors.insert(place, new);
            }
        }
        self.settle();
    }

    /// Where step i of the pattern adds most, if elsewhere: its place among the others, the step and the vector.
    fn better_place(&self, i: usize, pulls: &[Vector]) -> Option<(usize, usize, Vector)> {
        let (step, g) = (self.pattern[i], self.vectors[i]);
        let column = self.x.col_as_slice(step);
        let without = |t: usize| {
            let mut pull = pulls[t];
            add(&mut pull, -column[t], &g);
            pull
        };
        // Between its neighbours, or between any two others; without it, places after i are one less.
        let apart = (0..=self.pattern.len()).filter(|place| *place != i && *place != i + 1);
        let rooms =
            apart.flat_map(|place| self.room(place, place).map(move |t| (place - usize::from(place > i), t)));
        let rooms = self.room(i, i + 1).map(|t| (i, t)).chain(rooms);
        let stay = (self.gain(step, &without(step)), i, step);
        let gains = rooms.map(|(place, t)| (self.gain(t, &without(t)), place, t));
        let (_, place, t) = gains.fold(stay, |a, b| if b.0 > a.0 { b } else { a });
        (t != step).then(|| (place, t, direction(&without(t)).unwrap_or(g)))
    }

    /// All steps at the places that are best for each if the others stay, at distances of at least b.
    fn rearranged(&self) -> Option<Self> {
        let (b, length) = (self.b, self.pattern.len());
        let pulls = self.pulls();
        // Step l of a pattern is at l·b + u with u below this width, and u never falls from one step to the next.
        let width = self.x.nrows() - (length - 1) * b;
        // best[l·width + u]: the first l + 1 steps, the last of them at l·b + u or before.
        let mut best = Vec::with_capacity(length * width);
        for (l, (step, g)) in self.pattern.iter().zip(&self.vectors).enumerate() {
            let column = self.x.col_as_slice(*step);
            let mut most = f64::NEG_INFINITY;
            for u in 0..width {
                let t = l * b + u;
                let mut pull = pulls[t];
                add(&mut pull, -column[t], g);
                let before = if l == 0 { 0.0 } else { best[(l - 1) * width + u] };
                most = most.max(before + self.gain(t, &pull));
                best.push(most);
            }
        }
        let mut pattern = vec![0; length];
        let mut u = width - 1;
        for l in (0..length).rev() {
            while u > 0 && best[l * width + u] == best[l * width + u - 1] {
                u -= 1;
            }
            pattern[l] = l * b + u;
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
        let (n, length) = (self.x.nrows(), self.pattern.len());
        // Farther moves are what `relocate` and other beginnings are for; these cost O(nk) together.
        let reach = n.div_ceil(length);
        let widest =
            self.pattern.windows(2).map(|pair| pair[1] - pair[0] - self.b).fold(self.pattern[0], usize::max);
        let (back, forth) =
            (reach.min(widest) as isize, reach.min(n - 1 - self.pattern[length - 1]) as isize);
        let products = self.products();
        let mut best = (LEAST_GAIN * self.value, 0, 0);
        for distance in (-back..=forth).filter(|distance| *distance != 0) {
            for (from, change) in self.changes(&products, distance).into_iter().enumerate() {
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

    /// 2⟨g_i, g_j⟩, row after row.
    fn products(&self) -> Vec<f64> {
        self.vectors.iter().flat_map(|a| self.vectors.iter().map(|b| 2.0 * inner(a, b))).collect()
    }

    /// How the value changes where all steps from place l on move by `distance` and the vectors stay, for every l; −∞
    /// where they have no room.
    fn changes(&self, products: &[f64], distance: isize) -> Vec<f64> {
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
            let row = &products[l * length..(l + 1) * length];
            for (twice, &other) in row[..l].iter().zip(&self.pattern) {
                one += twice * (there[other] - here[other]);
            }
            for (twice, &other) in row[l + 1..].iter().zip(&self.pattern[l + 1..]) {
                let other_to = other.wrapping_add_signed(distance);
                one -= twice * (here[other_to] - here[other]);
                both += twice * (there[other_to] - here[other]);
            }
            if l == 0 || to >= self.pattern[l - 1] + self.b {
                changes[l] = one + both;
            }
        }
        changes
    }
}

/// The vector in this direction, where there is one.
pub(super) fn direction(v: &Vector) -> Option<Vector> {
    let norm = norm(v);
    (norm > 1e-150).then(|| v.map(|x| x / norm))
}

/// The vector that place i begins with: fixed, and different for all places.
pub(super) fn first_vector(i: usize) -> Vector {
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
                climb.climb(5);
                check(&climb);
                assert!(climb.value >= before * (1.0 - 1e-12));
            }
        }
    }

    #[test]
    fn the_change_of_a_slide_is_the_difference_of_values() {
        let mut noise = Noise(62);
        let (n, b) = (24, 3);
        let x = random_gram(&mut noise, n, n);
        let climb = Climb::new(&x, b, 6, vec![2, 5, 9, 14, 17, 20]);
        let mut seen = 0;
        for distance in (-5..=5).filter(|distance| *distance != 0) {
            for (l, change) in climb.changes(&climb.products(), distance).into_iter().enumerate() {
                let mut moved = climb.clone();
                let to = |step: usize| step.checked_add_signed(distance).filter(|step| *step < n);
                let tail: Option<Vec<usize>> = climb.pattern[l..].iter().map(|step| to(*step)).collect();
                let room = tail.filter(|tail| l == 0 || tail[0] >= climb.pattern[l - 1] + b);
                assert_eq!(room.is_some(), change.is_finite(), "{distance} {l}");
                if let Some(tail) = room {
                    moved.pattern.splice(l.., tail);
                    assert!(
                        (value(&moved) - value(&climb) - change).abs() < 1e-11,
                        "{distance} {l}: {change}"
                    );
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
        let mut climb = Climb::new(&x, 4, 5, vec![0, 4, 8, 12, 16]);
        assert!(climb.slid().unwrap().value > 5.0 + 0.7, "{:?}", climb.slid().unwrap().pattern);
        climb.climb(20);
        assert_eq!(climb.pattern, [0, 5, 10, 15, 20]);
        assert!((climb.value - 8.2).abs() < 1e-6, "{}", climb.value); // 5 + 2·4·0.4
    }
}
