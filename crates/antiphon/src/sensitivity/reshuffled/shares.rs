//! Upper bounds for reshuffled epochs, from shares.
//!
//! A pattern has one step i_e in every epoch e. Of what the pair of epochs e, f adds, 2X_ij R_ef with i = i_e and j = i_f, let
//! step i be given the share a_ef(i) and step j the share a_fe(j): any numbers. What is left is at most P = max (2X_ij − a_ef(i) − a_fe(j))
//! over the steps of both epochs where R_ef = 1, and Q = max (−2X_ij − a_ef(i) − a_fe(j)) where R_ef = −1. In between
//! it is linear in R_ef, so at most (1 + R_ef)/2·P + (1 − R_ef)/2·Q, and
//!
//! ```text
//! sens² ≤ Σ_e max_i ( X_ii + Σ_f a_ef(i) ) + Σ_{e<f} (P_ef + Q_ef)/2 + max_R Σ_{e<f} R_ef (P_ef − Q_ef)/2,
//! ```
//!
//! where the last maximum is over the elliptope of k×k matrices. Every choice of shares gives a bound. Where X is constant between any
//! two epochs, no shares at all are exact: P = −Q = 2X_ij. Good shares come from the message passing of Globerson and Jaakkola, "Fixing max-product"
//! (NIPS 2007): it makes Σ_e max_i (…) smaller, pair by pair, and keeps what is left of pairs at zero.

use super::LARGEST_ELLIPTOPE;
use crate::linalg::dense::Matrix;
use crate::sensitivity::{TOLERANCE, exact};
use rayon::prelude::*;
use std::ops::Range;

/// Sweeps over all pairs of epochs, at most.
const SWEEPS: usize = 60;
/// A sweep that lowers the bound by less, relatively, is the last.
const LEAST_GAIN: f64 = 1e-6;

/// What the steps of every epoch are given of its pairs.
#[derive(Clone)]
pub(super) struct Shares<'a> {
    x: &'a Matrix,
    k: usize,
    b: usize,
    /// a_ef(i) in place (e·k + f)·b + i.
    given: Vec<f64>,
    /// X_ii + Σ_f a_ef(i), kept up to date.
    weights: Vec<f64>,
}

/// What pairs of epochs are taken to add at most, while shares are sought.
#[derive(Clone, Copy)]
pub(super) enum Pairs<'r> {
    /// 2|X_ij|: best for an X without signs.
    Absolute,
    /// 2|X_ij − m_ef| with m_ef = (P − Q)/4, beside what m_ef itself adds in the elliptope. For given shares no other m_ef gives a smaller
    /// bound, and the bound of the module text is the one with this m_ef.
    AroundMiddles,
    /// 2X_ij R_ef, for the R of a bad pattern: best where one R is the worst for nearly all bad patterns.
    Signed(&'r Matrix),
}

impl<'a> Shares<'a> {
    /// No shares.
    pub(super) fn none(x: &'a Matrix, k: usize, b: usize) -> Self {
        let weights = (0..k * b).map(|i| x[(i, i)]).collect();
        Shares { x, k, b, given: vec![0.0; k * k * b], weights }
    }

    /// Shares that come from anywhere.
    #[cfg(test)]
    pub(super) fn from_fn(x: &'a Matrix, k: usize, b: usize, mut share: impl FnMut(usize) -> f64) -> Self {
        let mut shares = Shares::none(x, k, b);
        shares.given = (0..k * k * b).map(&mut share).collect();
        (0..k).for_each(|e| shares.given[(e * k + e) * b..][..b].fill(0.0));
        shares
    }

    fn given(&self, e: usize, f: usize) -> &[f64] {
        &self.given[(e * self.k + f) * self.b..][..self.b]
    }

    fn steps(&self, e: usize) -> Range<usize> {
        e * self.b..(e + 1) * self.b
    }

    /// The entries of X between a step and the steps of an epoch.
    fn entries(&self, step: usize, epoch: usize) -> &'a [f64] {
        &self.x.col_as_slice(step)[self.steps(epoch)]
    }

    /// The steps with the largest weights, one of every epoch: a pattern that may be bad.
    pub(super) fn heaviest(&self) -> Vec<usize> {
        super::heaviest(self.k, self.b, |i| self.weights[i])
    }

    /// Better shares, as long as sweeps improve them.
    pub(super) fn improve(&mut self, pairs: Pairs<'_>) {
        let mut before = f64::INFINITY;
        for _ in 0..SWEEPS {
            let middles = match pairs {
                Pairs::AroundMiddles => self.middles(),
                _ => Matrix::zeros(self.k, self.k),
            };
            let potential = |e: usize, f: usize| match pairs {
                Pairs::Signed(r) => Potential::Linear(2.0 * r[(e.max(f), e.min(f))]),
                _ => Potential::Around(middles[(e.max(f), e.min(f))]),
            };
            matchings(self.k).for_each(|matching| self.update(&matching, &potential));
            // After a sweep nothing is left of any pair; what the middles add is left out, this only decides when to stop.
            let after: f64 = self.heaviest().iter().map(|i| self.weights[*i]).sum();
            if before - after < LEAST_GAIN * after.abs() {
                break;
            }
            before = after;
        }
    }

    /// Updates pairs of epochs that have no epoch in common.
    fn update(
        &mut self,
        matching: &[(usize, usize)],
        potential: &(impl Fn(usize, usize) -> Potential + Sync),
    ) {
        let ends: Vec<(usize, usize)> = matching.iter().flat_map(|(e, f)| [(*e, *f), (*f, *e)]).collect();
        let new: Vec<Vec<f64>> =
            ends.par_iter().map(|(e, f)| self.new_weights(*e, *f, potential(*e, *f))).collect();
        for ((e, f), weights) in ends.into_iter().zip(new) {
            let given = &mut self.given[(e * self.k + f) * self.b..][..self.b];
            let old = &mut self.weights[e * self.b..(e + 1) * self.b];
            for ((given, old), new) in given.iter_mut().zip(old).zip(weights) {
                *given += new - *old;
                *old = new;
            }
        }
    }

    /// The new weights of epoch e: halfway between those without its share of the pair, and the most that the pair and the weights of the
    /// other epoch add up to.
    fn new_weights(&self, e: usize, f: usize, potential: Potential) -> Vec<f64> {
        let mut most = vec![f64::NEG_INFINITY; self.b];
        for (j, share) in self.steps(f).zip(self.given(f, e)) {
            let weight = self.weights[j] - share;
            let entries = self.entries(j, e);
            match potential {
                Potential::Around(middle) => raise(&mut most, entries, |x| weight + 2.0 * (x - middle).abs()),
                Potential::Linear(factor) => raise(&mut most, entries, |x| weight + factor * x),
            }
        }
        let own = self.weights[self.steps(e)].iter().zip(self.given(e, f));
        own.zip(most).map(|((weight, share), most)| 0.5 * (weight - share + most)).collect()
    }

    /// (P − Q)/4 for every pair of epochs, below the diagonal.
    fn middles(&self) -> Matrix {
        let mut middles = Matrix::zeros(self.k, self.k);
        self.left().iter().for_each(|left| middles[(left.f, left.e)] = 0.25 * (left.p - left.q));
        middles
    }

    /// What is left of all pairs of epochs.
    fn left(&self) -> Vec<Left> {
        let pairs: Vec<(usize, usize)> = (0..self.k).flat_map(|f| (0..f).map(move |e| (e, f))).collect();
        pairs.into_par_iter().map(|(e, f)| self.left_of(e, f)).collect()
    }

    fn left_of(&self, e: usize, f: usize) -> Left {
        let given = self.given(f, e);
        let mut left = Left { e, f, p: f64::NEG_INFINITY, q: f64::NEG_INFINITY, size: 0.0 };
        for (i, share) in self.steps(e).zip(self.given(e, f)) {
            for (entry, other) in self.entries(i, f).iter().zip(given) {
                left.p = left.p.max(2.0 * entry - share - other);
                left.q = left.q.max(-2.0 * entry - share - other);
                left.size = left.size.max(2.0 * entry.abs() + share.abs() + other.abs());
            }
        }
        left
    }

    /// The bound of these shares, rounding included.
    pub(super) fn bound(&self) -> f64 {
        let k = self.k;
        let mut middles = Matrix::zeros(k, k);
        // By the later epoch of a pair, so that no sum has more than k terms.
        let (mut centres, mut sizes) = (vec![0.0; k], vec![0.0; k]);
        for Left { e, f, p, q, size } in self.left() {
            middles[(f, e)] = 0.25 * (p - q);
            centres[f] += 0.5 * (p + q);
            sizes[f] += size;
        }
        let (mut sum, mut size): (f64, f64) = (centres.iter().sum(), sizes.iter().sum());
        for e in 0..k {
            let (heaviest, magnitude) = self.heaviest_of(e);
            sum += heaviest;
            size += magnitude;
        }
        let floor = if k > LARGEST_ELLIPTOPE { f64::INFINITY } else { 0.0 };
        let elliptope = exact::pattern_above(&middles, TOLERANCE, floor).upper;
        // Up: sums of at most k terms, nested twice, whose absolute values add up to `size` at most; P, Q and the middles that the
        // elliptope sees are each within a few ε of it.
        sum + elliptope + 4.0 * (k + 8) as f64 * f64::EPSILON * size
    }

    /// max_i (X_ii + Σ_f a_ef(i)) of an epoch, from the shares alone, and the most that absolute values add up to.
    fn heaviest_of(&self, e: usize) -> (f64, f64) {
        let (mut heaviest, mut magnitude) = (f64::NEG_INFINITY, 0.0f64);
        for (place, i) in self.steps(e).enumerate() {
            let shares = (0..self.k).map(|f| self.given(e, f)[place]);
            let (sum, absolute) = shares.fold((0.0, 0.0), |(s, a), share| (s + share, a + share.abs()));
            heaviest = heaviest.max(self.x[(i, i)] + sum);
            magnitude = magnitude.max(self.x[(i, i)] + absolute);
        }
        (heaviest, magnitude)
    }
}

/// What is left of a pair of epochs e < f.
struct Left {
    e: usize,
    f: usize,
    p: f64,
    q: f64,
    /// At least the absolute values of all that is added up in P and Q.
    size: f64,
}

/// What a pair of steps is taken to add, as a function of its entry x.
#[derive(Clone, Copy)]
enum Potential {
    /// 2|x − m|
    Around(f64),
    /// This factor times x.
    Linear(f64),
}

/// Raises every number to the value of its entry.
fn raise(most: &mut [f64], entries: &[f64], value: impl Fn(f64) -> f64) {
    for (most, entry) in most.iter_mut().zip(entries) {
        let value = value(*entry);
        // Not f64::max, which is no vector instruction.
        *most = if value > *most { value } else { *most };
    }
}

/// All pairs of k epochs in groups without a common epoch, as in a tournament.
fn matchings(k: usize) -> impl Iterator<Item = Vec<(usize, usize)>> {
    // An odd number of epochs gets one more, which is left out.
    let rounds = (k + k % 2).saturating_sub(1);
    (0..rounds).map(move |round| {
        let place = |i: usize| if i == rounds { rounds } else { (round + i) % rounds };
        let pair = |i: usize| if i == 0 { (place(0), rounds) } else { (place(i), place(rounds - i)) };
        (0..rounds.div_ceil(2)).map(pair).filter(|(e, f)| e.max(f) < &k).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_epochs_comes_once_and_no_epoch_twice_in_a_group() {
        for k in 1..12 {
            let mut seen = Vec::new();
            for matching in matchings(k) {
                let mut epochs: Vec<usize> = matching.iter().flat_map(|(e, f)| [*e, *f]).collect();
                epochs.sort_unstable();
                assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{k}: {matching:?}");
                seen.extend(matching.into_iter().map(|(e, f)| (e.min(f), e.max(f))));
            }
            seen.sort_unstable();
            let all: Vec<(usize, usize)> = (0..k).flat_map(|e| (e + 1..k).map(move |f| (e, f))).collect();
            assert_eq!(seen, all);
        }
    }
}
