//! Arithmetic progressions r, r + s, r + 2s, … of every stride s ≥ b, as beginnings of the search for bad patterns.
//!
//! A loader that does not keep a fixed order returns an example after more than b steps as easily as after b, so
//! strides above b matter as much as b itself. Each progression gets two scores: Σ|X_ij|, which no contribution
//! exceeds, and the larger one of Σ X_ij and Σ ±X_ij with alternating signs, which two contributions reach. Moving a
//! progression by one stride removes its first step and adds one behind its last, so a score costs O(k) and all of
//! them together O(n² log k).

use crate::linalg::dense::Matrix;
use rayon::prelude::*;

/// One progression: first step, stride, number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Progression {
    first: usize,
    stride: usize,
    count: usize,
}

impl Progression {
    fn pattern(self) -> Vec<usize> {
        (0..self.count).map(|i| self.first + i * self.stride).collect()
    }
}

/// The sums over one progression: of absolute values, as they are, and with alternating signs.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    absolute: f64,
    plain: f64,
    alternating: f64,
}

impl Sums {
    /// Adds `sign` times all entries that `step` has with itself and with `others`, nearest first.
    fn change(&mut self, x: &Matrix, sign: f64, step: usize, others: impl Iterator<Item = usize>) {
        let mut sums = Sums::default();
        let mut alternating = -1.0;
        for other in others {
            let entry = x[(other, step)];
            sums.absolute += entry.abs();
            sums.plain += entry;
            sums.alternating += alternating * entry;
            alternating = -alternating;
        }
        let own = x[(step, step)];
        self.absolute += sign * (own + 2.0 * sums.absolute);
        self.plain += sign * (own + 2.0 * sums.plain);
        self.alternating += sign * (own + 2.0 * sums.alternating);
    }

    fn scores(self) -> [f64; 2] {
        [self.absolute, self.plain.max(self.alternating)]
    }
}

/// At most `most` patterns: for either score the strides with the best progressions, one progression per stride.
pub(super) fn best(x: &Matrix, b: usize, k: usize, most: usize) -> Vec<Vec<usize>> {
    // Single steps have no stride, so one stride lists them all.
    let strides = if k == 1 { b..b + 1 } else { b..x.nrows().max(b + 1) };
    let champions: Vec<_> = strides.into_par_iter().map(|stride| champions(x, stride, k)).collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for score in 0..2 {
        let mut ranked: Vec<(f64, Progression)> = champions.iter().map(|pair| pair[score]).collect();
        // Stable, so that equal scores stay in the order of their strides.
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, progression) in ranked.into_iter().take(most.div_ceil(2)) {
            let pattern = progression.pattern();
            if !found.contains(&pattern) {
                found.push(pattern);
            }
        }
    }
    found.truncate(most);
    found
}

/// The best progression of one stride, by either score, among those that cannot be made longer.
fn champions(x: &Matrix, stride: usize, k: usize) -> [(f64, Progression); 2] {
    let n = x.nrows();
    let mut best = [(f64::NEG_INFINITY, Progression { first: 0, stride, count: 1 }); 2];
    for residue in 0..stride.min(n) {
        let mut sums = Sums::default();
        let mut first = residue;
        for step in (residue..n).step_by(stride) {
            let mut count = (step - first) / stride;
            if count == k {
                // Before a step is added, the first one goes.
                let others = (1..k).map(|i| first + i * stride);
                sums.change(x, -1.0, first, others);
                first += stride;
                count -= 1;
            }
            sums.change(x, 1.0, step, (1..=count).map(|i| step - i * stride));
            count += 1;
            if count == k || step + stride >= n {
                for (best, score) in best.iter_mut().zip(sums.scores()) {
                    if score > best.0 {
                        *best = (score, Progression { first, stride, count });
                    }
                }
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::sensitivity::testing::{Noise, random_gram};

    #[test]
    fn the_champions_are_those_of_plain_sums() {
        let mut noise = Noise(51);
        for (n, stride, k) in [(1, 1, 1), (12, 1, 4), (13, 3, 3), (14, 4, 9), (15, 7, 2), (9, 8, 2), (9, 2, 1)] {
            let x = random_gram(&mut noise, n, n);
            let found = champions(&x, stride, k);
            let mut expected = [f64::NEG_INFINITY; 2];
            for first in 0..n {
                let pattern: Vec<usize> = (first..n).step_by(stride).take(k).collect();
                let block = dense::principal(&x, &pattern);
                let sum = |f: &dyn Fn(usize, usize) -> f64| -> f64 {
                    let c = pattern.len();
                    (0..c * c).map(|p| f(p / c, p % c)).sum()
                };
                let sign = |i: usize, j: usize| if (i + j) % 2 == 0 { 1.0 } else { -1.0 };
                let plain = sum(&|i, j| block[(i, j)]).max(sum(&|i, j| sign(i, j) * block[(i, j)]));
                expected[0] = expected[0].max(sum(&|i, j| block[(i, j)].abs()));
                // Adding a step can lower a signed sum; only progressions that cannot be made longer count.
                if pattern.len() == k || first < stride {
                    expected[1] = expected[1].max(plain);
                }
            }
            for (found, expected) in found.iter().zip(expected) {
                assert!((found.0 / expected - 1.0).abs() < 1e-12, "{n} {stride} {k}: {found:?} {expected}");
            }
        }
    }

    #[test]
    fn every_progression_is_allowed_and_none_comes_twice() {
        let mut noise = Noise(52);
        for (n, b, k) in [(1, 1, 1), (20, 3, 4), (20, 1, 20), (17, 5, 2), (6, 2, 1)] {
            let found = best(&random_gram(&mut noise, n, n), b, k, 10);
            assert!(!found.is_empty() && found.len() <= 10);
            for (i, pattern) in found.iter().enumerate() {
                assert!(pattern.len() <= k && pattern.windows(2).all(|pair| pair[1] - pair[0] >= b));
                assert!(pattern.iter().all(|step| *step < n) && !found[..i].contains(pattern));
            }
        }
    }
}
