//! Reshuffled epochs: one step of every epoch, anywhere in it. (A pattern without a step of some epoch is never worse.)
//!
//! There are b^k patterns. Where X is zero between epochs, every X_π is diagonal and the maximum is the sum of the largest
//! diagonal entries of the epochs: exact, without looking at patterns. Otherwise an upper bound from shares of what pairs of epochs
//! add (`shares`), and a lower bound from bad patterns that a search finds (`search`) and from those of fixed order. Where these do
//! not meet and there are few patterns, all of them are solved.

mod search;
mod shares;
#[cfg(test)]
mod tests;

use super::exact::{self, PatternBounds};
use super::min_sep::{Found, worst_of};
use super::{Bound, EXACT_TO, Kind, Method, TOLERANCE, bounds};
use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use rayon::prelude::*;
use shares::{Pairs, Shares};

/// How many patterns of the search are solved to full accuracy.
const FINALISTS: usize = 3;
/// Up to this number, all patterns are solved.
const FEW_PATTERNS: usize = 4096;
/// More epochs than these have no elliptope solved: an interior point method would take hours.
const LARGEST_ELLIPTOPE: usize = 4096;

/// Bounds on the square over all patterns, and a pattern that reaches the lower one.
pub(super) fn squared(x: &Matrix, schema: &Schema) -> Found {
    let (k, b) = parts(schema);
    let heaviest = heaviest(k, b, |i| x[(i, i)]);
    if is_block_diagonal(x, b) {
        let bounds = epoch_maxima(heaviest.iter().map(|i| x[(*i, *i)]));
        return Found { bounds, worst: heaviest.clone(), heaviest };
    }
    let (bounds, worst) = bracket(x, k, b, &heaviest);
    if meet(bounds) || !few(k, b) {
        return Found { bounds, worst, heaviest };
    }
    let (bounds, worst) = enumerated(x, k, b, bounds.lower, worst);
    Found { bounds, worst, heaviest }
}

/// Every method, on the squares.
pub(super) fn all_methods(x: &Matrix, schema: &Schema) -> Result<Vec<Bound>> {
    let (k, b) = parts(schema);
    let heaviest = heaviest(k, b, |i| x[(i, i)]);
    let (PatternBounds { lower, upper, method }, worst) = bracket(x, k, b, &heaviest);
    let bound = |method, kind, value| Bound { value, kind, method };
    let mut found = Vec::new();
    if is_block_diagonal(x, b) {
        let value = epoch_maxima(heaviest.iter().map(|i| x[(*i, *i)])).upper;
        found.push(bound(Method::EpochMaxima, Kind::Exact, value));
    }
    if few(k, b) {
        let (all, _) = enumerated(x, k, b, lower, worst);
        let kind = if meet(all) { Kind::Exact } else { Kind::UpperBound };
        found.push(bound(Method::EveryPattern, kind, all.upper));
    }
    found.push(bound(Method::Elliptope, Kind::LowerBound, lower));
    found.push(bound(method, Kind::UpperBound, upper));
    found.push(bound(Method::Spectral, Kind::UpperBound, bounds::spectral(x, k)?));
    Ok(found)
}

/// The parts of a schema of reshuffled epochs: (k, b).
fn parts(schema: &Schema) -> (usize, usize) {
    match schema {
        Schema::Reshuffled { epochs, steps_per_epoch } => (*epochs, *steps_per_epoch),
        _ => unreachable!("no other schema comes here"),
    }
}

/// Whether the ends of a bracket count as one value.
fn meet(bounds: PatternBounds) -> bool {
    bounds.upper <= bounds.lower * (1.0 + EXACT_TO)
}

/// Whether all patterns can be solved.
fn few(k: usize, b: usize) -> bool {
    u32::try_from(k).ok().and_then(|k| b.checked_pow(k)).is_some_and(|count| count <= FEW_PATTERNS)
}

/// Whether X_ij = 0 exactly wherever i and j are in different epochs.
fn is_block_diagonal(x: &Matrix, b: usize) -> bool {
    let behind = |i: usize| &x.col_as_slice(i)[(i / b + 1) * b..];
    (0..x.nrows()).all(|i| behind(i).iter().all(|entry| *entry == 0.0))
}

/// The step of the largest weight in every epoch, the first one of these.
pub(super) fn heaviest(k: usize, b: usize, weight: impl Fn(usize) -> f64) -> Vec<usize> {
    let heavier = |a: (f64, usize), i: usize| if weight(i) > a.0 { (weight(i), i) } else { a };
    (0..k).map(|e| (e * b..(e + 1) * b).fold((f64::NEG_INFINITY, e * b), heavier).1).collect()
}

/// Exact where X is zero between epochs, from the largest diagonal entry of every epoch. Its lower end holds for every X (R = I).
pub(super) fn epoch_maxima(maxima: impl ExactSizeIterator<Item = f64>) -> PatternBounds {
    // Either way: a sum of k terms that are not negative.
    let rounding = (maxima.len() + 1) as f64 * f64::EPSILON;
    let sum: f64 = maxima.sum();
    PatternBounds {
        lower: sum * (1.0 - rounding),
        upper: sum * (1.0 + rounding),
        method: Method::EpochMaxima,
    }
}

/// The bracket from shares and from the search, and a pattern that reaches its lower end.
fn bracket(x: &Matrix, k: usize, b: usize, heaviest: &[usize]) -> (PatternBounds, Vec<usize>) {
    let none = Shares::none(x, k, b);
    let mut shares = none.clone();
    shares.improve(Pairs::Absolute);
    let walks = search::worst(x, k, b, vec![heaviest.to_vec(), shares.heaviest()], FINALISTS);
    let correlations = walks.first().map(search::Walk::correlations);
    let found = walks.into_iter().map(|walk| walk.pattern).collect();
    let (lower, worst) = from_below(x, k, b, heaviest, found);
    // Every bound holds, so the smallest does.
    let upper = none.bound().min(shares.bound());
    let mut bounds = PatternBounds { lower, upper, method: Method::EpochPairs };
    if !meet(bounds) {
        shares.improve(Pairs::AroundMiddles);
        bounds.upper = bounds.upper.min(shares.bound());
        let mut signed = none;
        correlations.iter().for_each(|r| signed.improve(Pairs::Signed(r)));
        bounds.upper = bounds.upper.min(signed.bound());
    }
    (bounds, worst)
}

/// The largest lower bound among the heaviest pattern, those that the search found and those of fixed order, and the pattern that
/// reaches it.
fn from_below(
    x: &Matrix,
    k: usize,
    b: usize,
    heaviest: &[usize],
    found: Vec<Vec<usize>>,
) -> (f64, Vec<usize>) {
    let diagonal = (epoch_maxima(heaviest.iter().map(|i| x[(*i, *i)])).lower, heaviest.to_vec());
    let fixed = (0..b).map(|r| (0..k).map(|e| e * b + r).collect()).collect();
    let mut worst = diagonal;
    for patterns in [found, fixed] {
        // Patterns that cannot reach what is found are left early; without an elliptope only closed forms count.
        let floor = if k > LARGEST_ELLIPTOPE { f64::INFINITY } else { worst.0 };
        let other = worst_of(x, patterns, floor);
        worst = if other.0 > worst.0 { other } else { worst };
    }
    worst
}

/// All patterns, those left early that cannot reach what is known: bounds on the square, and the worst.
fn enumerated(x: &Matrix, k: usize, b: usize, lower: f64, worst: Vec<usize>) -> (PatternBounds, Vec<usize>) {
    let solve = |pattern: &Vec<usize>| exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, lower);
    let patterns = all_patterns(k, b);
    let solved: Vec<PatternBounds> = patterns.par_iter().map(solve).collect();
    let mut found = (PatternBounds { lower, upper: lower, method: Method::EveryPattern }, worst);
    for (one, pattern) in solved.into_iter().zip(patterns) {
        // A bound that is none must not be lost, as f64::max would.
        found.0.upper = if one.upper <= found.0.upper { found.0.upper } else { one.upper };
        if one.lower > found.0.lower {
            found.0.lower = one.lower;
            found.1 = pattern;
        }
    }
    found
}

/// All patterns with one step of every epoch.
fn all_patterns(k: usize, b: usize) -> Vec<Vec<usize>> {
    let longer = |patterns: Vec<Vec<usize>>, e: usize| -> Vec<Vec<usize>> {
        let steps = e * b..(e + 1) * b;
        let with = |pattern: &Vec<usize>, i: usize| pattern.iter().copied().chain([i]).collect();
        patterns.iter().flat_map(|pattern| steps.clone().map(move |i| with(pattern, i))).collect()
    };
    (0..k).fold(vec![Vec::new()], longer)
}
