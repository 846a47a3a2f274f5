//! Minimum separation: participations at least b steps apart, at most k of them.
//!
//! There are exponentially many patterns. Where X has no entries at distance b or more, every X_π is diagonal and
//! the maximum is a chain of diagonal entries: exact, by a dynamic programme. Otherwise two upper bounds, of
//! which the smaller counts, and a lower bound from bad patterns that a search finds (`search`). Where these leave a gap,
//! `tighten` lowers the upper bound, and raises the lower one where it comes across a worse pattern.
//!
//! **Chain of row sums.** tr(X_π R) ≤ Σ_{i∈π} Σ_{j∈π} |X_ij|. Of a pair i < j, give the share θ of 2|X_ij| to j and the rest to
//! i. If i is the l-th step of the pattern, from 0, there are l others before it and at most k − 1 − l behind it. So what i
//! is given is at most
//!
//! ```text
//! w_i(l) = X_ii + 2θ·(best chain of l entries |X_ij| before i) + 2(1 − θ)·(best chain of k − 1 − l behind i),
//! ```
//!
//! and the sum is at most the best chain of w_i(l) with each step weighed at its place. Any θ in [0, 1] gives a bound;
//! the smallest of those for 0, ½ and 1 counts. O(n²k).
//!
//! **Monotone majorant.** Let M be the smallest matrix with M ≥ |X| that does not grow along a diagonal
//! (M_{i+1,j+1} ≤ M_{ij}) nor away from the main one (M_{i,j+1} ≤ M_{ij} for j ≥ i + b). The l-th step of a
//! pattern is at least l·b, and two steps are at least as far apart as their places in {0, b, 2b, …}; so
//! moving a pattern to {0, b, …, (k−1)b} lowers no entry of M, and the sum of M over that pattern bounds
//! all. Where X itself is non-negative and monotone the bound is reached. This contains the
//! case of Toeplitz encoders with falling coefficients (Kalinin and Lampert, "Banded
//! square root matrix factorization for differentially private model training", 2024). O(n²).

use super::branch::Known;
use super::chains::{best_chain, best_chain_by_place, fill_table};
use super::exact::{self, PatternBounds};
use super::tighten::{self, Tightened};
use super::{Bound, EXACT_TO, Kind, Method, TOLERANCE, bounds, search};
use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use rayon::prelude::*;

/// How many patterns of the search are solved to full accuracy.
const FINALISTS: usize = 3;

/// The parts of a minimum-separation schema: (b, k).
fn parts(schema: &Schema) -> (usize, usize) {
    match schema {
        Schema::MinSeparation { min_separation, max_participations, .. } => {
            (*min_separation, *max_participations)
        }
        _ => unreachable!("every other schema lists its patterns"),
    }
}

/// What is found over all patterns.
pub(super) struct Found {
    /// Bounds on the square.
    pub(super) bounds: PatternBounds,
    /// A pattern that reaches the lower one; empty where that is zero.
    pub(super) worst: Vec<usize>,
    /// A pattern that maximises Σ √X_ii, which bounds the rounding error of an X that the caller computed.
    pub(super) heaviest: Vec<usize>,
}

/// Bounds on the square over all patterns, and a pattern that reaches the lower one.
pub(super) fn squared(x: &Matrix, schema: &Schema) -> Found {
    let (b, k) = parts(schema);
    let norms: Vec<f64> = (0..x.nrows()).map(|i| x[(i, i)].sqrt()).collect();
    let heaviest = best_chain(&norms, b, k).1;
    if is_banded(x, b) {
        let (bounds, worst) = banded(x, b, k);
        return Found { bounds, worst, heaviest };
    }
    let rows = RowSums::new(x, b, k);
    let (by_rows, chain) = rows.bound();
    let majorant = monotone_majorant(x, b, k);
    let (upper, method) = if majorant <= by_rows {
        (majorant, Method::MonotoneMajorant)
    } else {
        (by_rows, Method::ChainOfRowSums)
    };
    let (lower, worst) = from_below(x, schema, vec![chain, heaviest.clone()]);
    if upper <= lower * (1.0 + EXACT_TO) {
        return Found { bounds: PatternBounds { lower, upper, method }, worst, heaviest };
    }
    let found = tightened(x, &rows, lower, worst);
    let (upper, method) = if found.upper < upper { (found.upper, found.method) } else { (upper, method) };
    let bounds = PatternBounds { lower: found.known.lower, upper, method };
    Found { bounds, worst: found.known.worst, heaviest }
}

/// A tighter upper bound, and a worse pattern than this one where there is one on the way.
fn tightened(x: &Matrix, rows: &RowSums<'_>, lower: f64, worst: Vec<usize>) -> Tightened {
    tighten::tighten(x, rows, Known { lower, worst, solved: 0.0 })
}

/// Every method, on the squares.
pub(super) fn all_methods(x: &Matrix, schema: &Schema) -> Result<Vec<Bound>> {
    let (b, k) = parts(schema);
    let bound = |method, kind, value| Bound { value, kind, method };
    let mut found = Vec::new();
    if is_banded(x, b) {
        let value = banded(x, b, k).0.upper;
        found.push(bound(Method::BandedDynamicProgram, Kind::Exact, value));
    }
    let rows = RowSums::new(x, b, k);
    let (by_rows, chain) = rows.bound();
    let majorant = monotone_majorant(x, b, k);
    let (lower, worst) = from_below(x, schema, vec![chain]);
    let tight = tightened(x, &rows, lower, worst);
    found.push(bound(Method::Elliptope, Kind::LowerBound, tight.known.lower));
    if tight.method != Method::ChainOfRowSums {
        let exact = tight.upper <= tight.known.lower * (1.0 + EXACT_TO);
        found.push(bound(tight.method, if exact { Kind::Exact } else { Kind::UpperBound }, tight.upper));
    }
    found.push(bound(Method::ChainOfRowSums, Kind::UpperBound, by_rows));
    found.push(bound(Method::MonotoneMajorant, Kind::UpperBound, majorant));
    found.push(bound(Method::Spectral, Kind::UpperBound, bounds::spectral(x, k)?));
    Ok(found)
}

/// Whether X_ij = 0 exactly wherever one example could take part in both i and j.
fn is_banded(x: &Matrix, b: usize) -> bool {
    let n = x.nrows();
    (0..n).all(|j| (j + b..n).all(|i| x[(i, j)] == 0.0))
}

/// Exact for a banded X: the best chain of diagonal entries, and that chain.
fn banded(x: &Matrix, b: usize, k: usize) -> (PatternBounds, Vec<usize>) {
    let diagonal: Vec<f64> = (0..x.nrows()).map(|i| x[(i, i)]).collect();
    let (value, chain) = best_chain(&diagonal, b, k);
    let rounding = rounding(k);
    let bounds = PatternBounds {
        lower: value * (1.0 - rounding),
        upper: value * (1.0 + rounding),
        method: Method::BandedDynamicProgram,
    };
    (bounds, chain)
}

/// Sums of at most k terms, nested at most twice, all non-negative: 2k·u, with room to spare.
pub(super) fn rounding(k: usize) -> f64 {
    4.0 * (k + 1) as f64 * f64::EPSILON
}

/// The first upper bound of the module text.
pub(super) struct RowSums<'a> {
    x: &'a Matrix,
    pub(super) b: usize,
    pub(super) k: usize,
    /// For every row i of |X| the best chains of c entries, c = 0..k: at steps before i and at steps behind it.
    chains: Vec<[Vec<f64>; 2]>,
}

impl<'a> RowSums<'a> {
    /// 2θ; every share gives a bound, so the smallest of them is one.
    pub(super) const SHARES: [f64; 3] = [2.0, 1.0, 0.0];

    fn new(x: &'a Matrix, b: usize, k: usize) -> Self {
        let n = x.nrows();
        let row = |table: &mut Vec<f64>, i: usize| {
            // X is symmetric; a column is contiguous in memory.
            [0..(i + 1).saturating_sub(b), (i + b).min(n)..n].map(|steps| {
                let entries = steps.map(|j| x[(j, i)].abs()).map(|entry| move |_| entry);
                fill_table(entries, b, k - 1, table);
                table[table.len() - k..].to_vec()
            })
        };
        RowSums { x, b, k, chains: (0..n).into_par_iter().map_init(Vec::new, row).collect() }
    }

    /// w_i(l) of the module text, for patterns of at most so many steps.
    pub(super) fn weight(&self, share: f64, i: usize, place: usize, places: usize) -> f64 {
        let [before, behind] = &self.chains[i];
        self.x[(i, i)] + share * before[place] + (2.0 - share) * behind[places - 1 - place]
    }

    /// The bound, and the chain that it comes from.
    fn bound(&self) -> (f64, Vec<usize>) {
        let with = |share: f64| {
            let weight = move |i: usize| move |place: usize| self.weight(share, i, place, self.k);
            best_chain_by_place((0..self.x.nrows()).map(weight), self.b, self.k)
        };
        let [first, others @ ..] = Self::SHARES.map(with);
        let (value, chain) = others.into_iter().fold(first, |a, b| if b.0 < a.0 { b } else { a });
        (value * (1.0 + rounding(self.k)), chain)
    }
}

/// The second upper bound of the module text.
fn monotone_majorant(x: &Matrix, b: usize, k: usize) -> f64 {
    let n = x.nrows();
    // Rows from the last to the first: entry j − i − b of `row` is M_{i,j}, so the entry one step along
    // the diagonal stands in the same place of the row below.
    let mut row: Vec<f64> = Vec::new();
    let mut diagonal = 0.0f64;
    let mut sum = 0.0;
    for i in (0..n).rev() {
        diagonal = diagonal.max(x[(i, i)]);
        let reach = n.saturating_sub(i + b);
        row.resize(reach, 0.0);
        let mut outer = 0.0f64;
        for d in (0..reach).rev() {
            outer = outer.max(row[d]).max(x[(i + b + d, i)].abs());
            row[d] = outer;
        }
        if i % b == 0 && i / b < k {
            let place = i / b;
            let later: f64 = (place + 1..k).map(|q| row[(q - place - 1) * b]).sum();
            sum += diagonal + 2.0 * later;
        }
    }
    sum * (1.0 + rounding(k))
}

/// The largest lower bound among the patterns that the search finds and the fixed-order patterns r, r + b, r + 2b, …,
/// and the pattern that reaches it. The search also begins at the patterns that are given.
fn from_below(x: &Matrix, schema: &Schema, given: Vec<Vec<usize>>) -> (f64, Vec<usize>) {
    let (b, k) = parts(schema);
    let given = given.into_iter().filter(|chain| !chain.is_empty()).collect();
    let found = search::worst(x, b, k, given, FINALISTS);
    let (lower, worst) = worst_of(x, found, 0.0);
    // Many fixed-order patterns are as bad as each other in the mechanisms made for them, so that the search could end
    // below the best of them by a little. Those that cannot reach what is found are left early.
    let fixed = Schema::FixedOrder { steps: x.nrows(), steps_per_epoch: b, max_participations: k };
    let (other, pattern) = worst_of(x, fixed.listed().unwrap_or_default(), lower);
    if other > lower { (other, pattern) } else { (lower, worst) }
}

/// The largest proven lower bound among these patterns, and the first pattern that reaches it. Patterns that cannot
/// reach `floor` need not be solved.
pub(super) fn worst_of(x: &Matrix, patterns: Vec<Vec<usize>>, floor: f64) -> (f64, Vec<usize>) {
    let lower =
        |pattern: &Vec<usize>| exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, floor).lower;
    let values: Vec<f64> = patterns.par_iter().map(lower).collect();
    let worse = |a: (f64, Vec<usize>), b: (f64, Vec<usize>)| if b.0 > a.0 { b } else { a };
    values.into_iter().zip(patterns).fold((0.0, Vec::new()), worse)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod widths;
