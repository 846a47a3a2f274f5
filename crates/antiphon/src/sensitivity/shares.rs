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
//! after it in the sweep. No sweep raises the sum of the largest w_s and r_st.

use super::places::{Weights, Windows, largest};
use crate::linalg::dense::Matrix;
use rayon::prelude::*;

/// Pairs of steps for which it pays to use several threads.
const PARALLEL: usize = 100_000;

/// The numbers d of the module text, for windows that may shrink.
pub(super) struct Shares<'a> {
    x: &'a Matrix,
    pub(super) windows: Windows,
    /// d_st(i) at s·m + t and i − `starts`[s].
    given: Vec<Vec<f64>>,
    starts: Vec<usize>,
}

/// What the numbers prove.
pub(super) struct Proof {
    /// For every step of every window a bound on the patterns that have it there.
    pub(super) through: Weights,
    /// A bound on all patterns in the windows.
    pub(super) bound: f64,
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

    /// Additions and comparisons of one sweep, about.
    pub(super) fn cost(windows: &Windows) -> usize {
        windows.size().saturating_mul(windows.size())
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

    /// The largest r_st(i, j) over j, for every i in the window of s.
    fn rests(&self, s: usize, t: usize) -> Vec<f64> {
        let (window, theirs) = (self.windows.range(t), self.given(t, s));
        let apart = s.abs_diff(t) * self.windows.b;
        let rest = |(i, own): (usize, &f64)| {
            let steps = if s < t {
                (i + apart).max(window.start)..window.end
            } else {
                window.start..window.end.min(i + 1 - apart)
            };
            let theirs = &theirs[steps.start - window.start..steps.end - window.start];
            largest_difference(&self.x.col_as_slice(i)[steps], theirs) - own
        };
        self.windows.range(s).zip(self.given(s, t)).map(rest).collect()
    }

    /// A sweep over the places, forwards and back.
    pub(super) fn sweep(&mut self) {
        let m = self.windows.places();
        (0..m).for_each(|s| self.visit(s, s + 1..m));
        (0..m).rev().for_each(|s| self.visit(s, 0..s));
    }

    /// Place s takes from all its pairs, and gives to those that come after it.
    fn visit(&mut self, s: usize, after: std::ops::Range<usize>) {
        let m = self.windows.places();
        let others: Vec<usize> = (0..m).filter(|t| *t != s).collect();
        let work = self.windows.range(s).len() * self.windows.size();
        let rests: Vec<Vec<f64>> = if work < PARALLEL {
            others.iter().map(|t| self.rests(s, *t)).collect()
        } else {
            others.par_iter().map(|t| self.rests(s, *t)).collect()
        };
        for (t, rests) in others.iter().zip(&rests) {
            self.given_mut(s, *t).iter_mut().zip(rests).for_each(|(given, rest)| *given += rest);
        }
        let part = 1.0 / s.max(m - 1 - s).max(1) as f64;
        let weights = self.weights(s, 0);
        for t in after {
            self.given_mut(s, t).iter_mut().zip(&weights).for_each(|(given, weight)| *given -= part * weight);
        }
    }

    /// The largest r_st of every pair of places from `first` on, added up.
    pub(super) fn rest(&self, first: usize) -> f64 {
        let m = self.windows.places();
        let pairs: Vec<(usize, usize)> = (first..m).flat_map(|s| (s + 1..m).map(move |t| (s, t))).collect();
        let one = |(s, t): &(usize, usize)| largest(&self.rests(*s, *t));
        let rests: Vec<f64> = pairs.par_iter().map(one).collect();
        rests.iter().sum()
    }

    /// What the numbers prove now, from the numbers alone.
    pub(super) fn proof(&self) -> Proof {
        let m = self.windows.places();
        let rest = self.rest(0);
        let weights: Weights = (0..m).map(|s| self.weights(s, 0)).collect();
        let rounding = self.rounding();
        let mut through = self.windows.through(&weights);
        // Upwards: `rounding` covers every sum that is in these.
        through.iter_mut().flatten().for_each(|value| *value += rest + rounding);
        let bound = largest(&through[0]);
        Proof { through, bound, rounding }
    }

    /// How far rounding can move a sum of w and r. Each w is a sum of m terms, each r one of three, and at most m + m²/2 of
    /// them are added; the error of a sum is at most the number of additions one after the other, here below m² + 2m, times u
    /// times the sum of the absolute values. ε = 2u, and twice that again, pays for the rounding of this sum itself.
    fn rounding(&self) -> f64 {
        let m = self.windows.places();
        let size = |values: &[f64]| values.iter().fold(0.0f64, |a, b| a.max(b.abs()));
        let mut total = 0.0;
        for s in 0..m {
            total += self.windows.range(s).map(|i| self.x[(i, i)]).fold(0.0, f64::max);
            for t in (0..m).filter(|t| *t != s) {
                // As a part of w and as a part of r; f is at most |r| + |d| + |d|.
                total += 4.0 * size(self.given(s, t));
                total += self.rests(s, t).iter().fold(0.0f64, |a, b| a.max(b.abs()));
            }
        }
        4.0 * (m * m + 2 * m) as f64 * f64::EPSILON * total
    }
}

/// The largest 2|entry| − share.
fn largest_difference(entries: &[f64], shares: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut best = [f64::NEG_INFINITY; LANES];
    let (entries, shares) = (entries.chunks_exact(LANES), shares.chunks_exact(LANES));
    let tail = entries.remainder().iter().zip(shares.remainder());
    let last = tail.map(|(entry, share)| 2.0 * entry.abs() - share).fold(f64::NEG_INFINITY, f64::max);
    for (entries, shares) in entries.zip(shares) {
        for lane in 0..LANES {
            let value = 2.0 * entries[lane].abs() - shares[lane];
            // Not f64::max, which does more for NaN and does not vectorise; all of these are finite.
            best[lane] = if value > best[lane] { value } else { best[lane] };
        }
    }
    best.into_iter().fold(last, f64::max)
}
