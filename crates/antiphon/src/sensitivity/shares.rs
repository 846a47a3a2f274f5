//! An upper bound on Σ|X_ij| over all patterns of exactly m steps, by shares of pairs that depend on the places.
//!
//! For places s < t and steps i, j let f_st(i, j) = 2|X_ij|. Choose any numbers d_st(i) and d_ts(j): what the pair gives to
//! its step at place s if that is i, and to the one at place t if that is j. For every pattern i_0 < i_1 < …
//!
//! ```text
//! Σ|X_ij| = Σ_s w_s(i_s) + Σ_{s<t} r_st(i_s, i_t),   w_s(i) = X_ii + Σ_t d_st(i),   r_st(i, j) = f_st(i, j) − d_st(i) − d_ts(j),
//! ```
//!
//! so the largest chain of w plus the largest r_st of every pair of places bounds all of them, whatever the numbers are. This
//! is the dual of the linear relaxation of a Markov random field with one variable per place. The numbers are found by
//! sequential reweighted message passing (Kolmogorov, "A new look at reweighted message passing", 2015; for pairs it is
//! TRW-S, 2006): a place takes from its pairs all that it can without raising r, and gives equal parts to those that come
//! after it in the sweep. No sweep raises the sum of the largest w_s and r_st. Between sweeps the numbers are extrapolated.

use super::places::{Weights, Windows, largest};
use crate::linalg::dense::Matrix;
use rayon::prelude::*;
use std::ops::Range;

/// Pairs of steps for which it pays to use several threads.
const PARALLEL: usize = 60_000;

/// The numbers d of the module text, for windows that may shrink.
pub(super) struct Shares<'a> {
    x: &'a Matrix,
    pub(super) windows: Windows,
    /// d_st(i) at s·m + t and i − `starts`[s].
    given: Vec<Vec<f64>>,
    starts: Vec<usize>,
}

/// The numbers at some time.
#[derive(Clone)]
pub(super) struct Numbers(Vec<Vec<f64>>);

/// What the numbers prove.
pub(super) struct Proof {
    /// For every step of every window a bound on the patterns that have it there.
    pub(super) through: Weights,
    /// A bound on all patterns in the windows.
    pub(super) bound: f64,
    /// The pattern with the largest sum of weights w.
    pub(super) best: Vec<usize>,
    /// Entry c: the largest r_st of all pairs of places from c on, added up.
    pub(super) rests: Vec<f64>,
    /// How far rounding can have moved these bounds; it is part of them.
    pub(super) rounding: f64,
}

impl<'a> Shares<'a> {
    pub(super) fn new(x: &'a Matrix, windows: Windows) -> Self {
        let m = windows.places();
        let given = (0..m * m).map(|st| vec![0.0; windows.range(st / m).len()]).collect();
        let starts = (0..m).map(|s| windows.range(s).start).collect();
        Shares { x, windows, given, starts }
    }

    /// Pairs of steps that one sweep compares, about: about half of all, twice. A proof compares half as many.
    pub(super) fn cost(windows: &Windows) -> usize {
        windows.size().saturating_mul(windows.size()) / 2
    }

    /// Numbers that are kept for these windows.
    pub(super) fn memory(windows: &Windows) -> usize {
        windows.size().saturating_mul(windows.places())
    }

    /// d_st(i) for the steps of the window of s.
    pub(super) fn given(&self, s: usize, t: usize) -> &[f64] {
        let (range, start) = (self.windows.range(s), self.starts[s]);
        &self.given[s * self.windows.places() + t][range.start - start..range.end - start]
    }

    fn given_mut(&mut self, s: usize, t: usize) -> &mut [f64] {
        let (range, start) = (self.windows.range(s), self.starts[s]);
        &mut self.given[s * self.windows.places() + t][range.start - start..range.end - start]
    }

    /// w_s of the module text, with the pairs of places from `first` on only.
    pub(super) fn weights(&self, s: usize, first: usize) -> Vec<f64> {
        let mut weights: Vec<f64> = self.windows.range(s).map(|i| self.x[(i, i)]).collect();
        for t in (first..self.windows.places()).filter(|t| *t != s) {
            weights.iter_mut().zip(self.given(s, t)).for_each(|(weight, given)| *weight += given);
        }
        weights
    }

    /// The largest r_st(i, j) over j, for every i in the window of s: first by i, then by t among `others`, which are all
    /// before s or all behind it. One i after the other, since that reads X as it lies in memory.
    fn rests(&self, s: usize, others: Range<usize>) -> Vec<Vec<f64>> {
        let window = self.windows.range(s);
        let of_step = |i: usize| others.clone().map(|t| self.rest(s, i, t)).collect();
        if window.len() * self.windows.size() < PARALLEL {
            window.map(of_step).collect()
        } else {
            window.into_par_iter().map(of_step).collect()
        }
    }

    fn rest(&self, s: usize, i: usize, t: usize) -> f64 {
        let (window, apart) = (self.windows.range(t), s.abs_diff(t) * self.windows.b);
        let steps = if s < t {
            (i + apart).max(window.start)..window.end
        } else {
            window.start..window.end.min(i + 1 - apart)
        };
        let theirs = &self.given(t, s)[steps.start - window.start..steps.end - window.start];
        let own = self.given(s, t)[i - self.windows.range(s).start];
        largest_difference(&self.x.col_as_slice(i)[steps], theirs) - own
    }

    /// The numbers as they are now, to come back to.
    pub(super) fn kept(&self) -> Numbers {
        Numbers(self.given.clone())
    }

    /// Back to these.
    pub(super) fn restore(&mut self, kept: Numbers) {
        self.given = kept.0;
    }

    /// Farther in the direction from `since` to here, by this factor: sweeps go the same way for long. This may be too far, and
    /// the next proof tells.
    pub(super) fn extrapolate(&mut self, since: &Numbers, factor: f64) {
        for (given, since) in self.given.iter_mut().flatten().zip(since.0.iter().flatten()) {
            *given += factor * (*given - since);
        }
    }

    /// A sweep over the places, forwards and back.
    pub(super) fn sweep(&mut self) {
        let m = self.windows.places();
        (0..m).for_each(|s| self.visit(s, 0..s, s + 1..m));
        (0..m).rev().for_each(|s| self.visit(s, s + 1..m, 0..s));
    }

    /// Place s takes from the pairs with places before it in the sweep, and gives to those after it. (From the latter it took
    /// in the sweep the other way, and nothing has changed since.)
    fn visit(&mut self, s: usize, before: Range<usize>, after: Range<usize>) {
        let m = self.windows.places();
        let rests = self.rests(s, before.clone());
        for (number, t) in before.enumerate() {
            let given = self.given_mut(s, t).iter_mut();
            given.zip(&rests).for_each(|(given, rests)| *given += rests[number]);
        }
        let part = 1.0 / s.max(m - 1 - s).max(1) as f64;
        let weights = self.weights(s, 0);
        for t in after {
            self.given_mut(s, t).iter_mut().zip(&weights).for_each(|(given, weight)| *given -= part * weight);
        }
    }

    /// The largest r_st of all pairs of places s < t, for every s.
    fn largest_rests(&self) -> Vec<Vec<f64>> {
        let m = self.windows.places();
        let larger = |mut a: Vec<f64>, b: &Vec<f64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = a.max(*b));
            a
        };
        let of_place = |s: usize| {
            let none = vec![f64::NEG_INFINITY; m - 1 - s];
            self.rests(s, s + 1..m).iter().fold(none, larger)
        };
        (0..m).map(of_place).collect()
    }

    /// What the numbers prove now, from the numbers alone.
    pub(super) fn proof(&self) -> Proof {
        let m = self.windows.places();
        let largest_rests = self.largest_rests();
        let rest = |first: usize| largest_rests[first..].iter().flatten().sum();
        let rests: Vec<f64> = (0..m).map(rest).collect();
        let weights: Weights = (0..m).map(|s| self.weights(s, 0)).collect();
        let rounding = self.rounding(&largest_rests);
        let mut through = self.windows.through(&weights);
        // Upwards: `rounding` covers every sum that is in these. Where it is infinite, a sum may be none.
        let up =
            |value: f64| if rounding.is_finite() { value + (rests[0] + rounding) } else { f64::INFINITY };
        through.iter_mut().flatten().for_each(|value| *value = up(*value));
        Proof { bound: largest(&through[0]), best: self.windows.best(&weights), through, rests, rounding }
    }

    /// How far rounding can move a sum of w and r. Each w is a sum of m terms, each r one of three, and at most m + m²/2 of
    /// them are added; the error of a sum is at most the number of additions one after the other, here below m² + 2m, times u
    /// times the sum of the absolute values. ε = 2u, and twice that again, pays for the rounding of this sum itself.
    fn rounding(&self, largest_rests: &[Vec<f64>]) -> f64 {
        let m = self.windows.places();
        let size = |values: &[f64]| match values.iter().all(|value| value.is_finite()) {
            true => values.iter().fold(0.0f64, |a, b| a.max(b.abs())),
            // Then nothing is proven; a maximum would drop a NaN.
            false => f64::INFINITY,
        };
        // As a part of w and as a part of r, where 0 ≤ f ≤ |r| + |d| + |d| for the largest r.
        let given =
            |s: usize| (0..m).map(|t| if t == s { 0.0 } else { 4.0 * size(self.given(s, t)) }).sum::<f64>();
        let own = |s: usize| self.windows.range(s).map(|i| self.x[(i, i)]).fold(0.0, f64::max);
        let rests: f64 = largest_rests.iter().flatten().map(|rest| 2.0 * rest.abs()).sum();
        4.0 * (m * m + 2 * m) as f64 * f64::EPSILON * ((0..m).map(|s| own(s) + given(s)).sum::<f64>() + rests)
    }
}

/// The largest 2|entry| − share.
fn largest_difference(entries: &[f64], shares: &[f64]) -> f64 {
    const LANES: usize = 4;
    // Not f64::max, which does more for NaN and is slower; all of these are numbers.
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    let mut best = [f64::NEG_INFINITY; LANES];
    let (entries, shares) = (entries.chunks_exact(LANES), shares.chunks_exact(LANES));
    for (best, (entry, share)) in best.iter_mut().zip(entries.remainder().iter().zip(shares.remainder())) {
        *best = 2.0 * entry.abs() - share;
    }
    for (entries, shares) in entries.zip(shares) {
        for lane in 0..LANES {
            best[lane] = larger(best[lane], 2.0 * entries[lane].abs() - shares[lane]);
        }
    }
    best.into_iter().fold(f64::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::sensitivity::bounds::absolute_sums;
    use crate::sensitivity::testing::{Noise, all_patterns, random_gram};

    const SCHEMAS: [(usize, usize, usize); 6] =
        [(6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2), (12, 2, 5), (7, 7, 1)];

    /// Σ|X_ij| of every pattern of m steps.
    fn sums(x: &Matrix, b: usize, m: usize) -> Vec<(Vec<usize>, f64)> {
        let patterns = all_patterns(x.nrows(), b, m).into_iter().filter(|pattern| pattern.len() == m);
        patterns.map(|pattern| (pattern.clone(), absolute_sums(&dense::principal(x, &pattern)))).collect()
    }

    fn shares(x: &Matrix, b: usize, m: usize) -> Shares<'_> {
        Shares::new(x, Windows::new(x.nrows(), b, m).unwrap())
    }

    fn check(shares: &Shares<'_>, sums: &[(Vec<usize>, f64)]) {
        let Proof { through, bound, rests, .. } = shares.proof();
        assert_eq!(rests.len(), shares.windows.places());
        for (pattern, sum) in sums {
            // The sums are rounded up by 2kε.
            let sum = sum * (1.0 - 1e-14);
            assert!(sum <= bound);
            for (s, i) in pattern.iter().enumerate() {
                assert!(sum <= through[s][i - shares.windows.range(s).start], "{pattern:?} at {s}");
            }
        }
    }

    #[test]
    fn any_numbers_prove_a_bound() {
        let mut noise = Noise(91);
        for (n, b, m) in SCHEMAS {
            let x = random_gram(&mut noise, 4, n);
            let mut shares = shares(&x, b, m);
            let sums = sums(&x, b, m);
            for size in [0.0, 0.1, 1.0, 100.0] {
                shares.given.iter_mut().flatten().for_each(|given| *given = size * noise.normal());
                check(&shares, &sums);
            }
        }
    }

    #[test]
    fn sweeps_come_close_to_the_truth() {
        let mut noise = Noise(92);
        let (mut tight, mut count) = (0, 0);
        for (n, b, m) in SCHEMAS {
            for _ in 0..8 {
                let x = random_gram(&mut noise, 4, n);
                let mut shares = shares(&x, b, m);
                let sums = sums(&x, b, m);
                let truth = sums.iter().map(|(_, sum)| *sum).fold(0.0, f64::max);
                let first = shares.proof().bound;
                (0..40).for_each(|_| shares.sweep());
                check(&shares, &sums);
                let last = shares.proof().bound;
                assert!(last <= first * (1.0 + 1e-12), "{n} {b} {m}: {first} {last}");
                // One place or one pair of places has no other bound.
                assert!(m > 2 || last < truth * (1.0 + 1e-12), "{n} {b} {m}: {last} {truth}");
                tight += usize::from(last < truth * (1.0 + 1e-6));
                count += 1;
            }
        }
        assert!(2 * tight > count, "{tight} of {count}");
    }

    #[test]
    fn numbers_that_are_none_prove_nothing() {
        let x = random_gram(&mut Noise(97), 4, 9);
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut shares = shares(&x, 2, 3);
            shares.given[1][2] = bad;
            let proof = shares.proof();
            assert_eq!(proof.bound, f64::INFINITY);
            assert_eq!(shares.windows.trimmed(&proof.through, 1e300), Some(shares.windows.clone()));
        }
    }

    #[test]
    fn smaller_windows_still_prove_what_is_in_them() {
        let mut noise = Noise(93);
        let (n, b, m) = (12, 2, 4);
        for _ in 0..10 {
            let x = random_gram(&mut noise, 4, n);
            let mut shares = shares(&x, b, m);
            let sums = sums(&x, b, m);
            let limit = 0.8 * sums.iter().map(|(_, sum)| *sum).fold(0.0, f64::max);
            let above: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum > limit).collect();
            for _ in 0..5 {
                shares.sweep();
                shares.windows = shares.windows.trimmed(&shares.proof().through, limit).unwrap();
                check(&shares, &above);
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let x = random_gram(&mut Noise(94), 5, 400);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut shares = shares(&x, 20, 4);
                assert!(shares.windows.range(0).len() * shares.windows.size() > PARALLEL);
                (0..3).for_each(|_| shares.sweep());
                shares.proof().bound
            })
        };
        assert_eq!(with(1), with(3));
    }
}
