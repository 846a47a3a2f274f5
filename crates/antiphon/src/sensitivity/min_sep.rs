//! Minimum separation: participations at least b steps apart, at most k of them.
//!
//! There are exponentially many patterns. Where X has no entries at distance b or more, every X_π is diagonal and
//! the maximum is a chain of diagonal entries: exact, by a dynamic programme. Otherwise two upper bounds, of
//! which the smaller counts, and a lower bound from bad patterns that a search finds (`search`).
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

use super::chains::{best_chain, best_chain_by_place, fill_table};
use super::exact::{self, PatternBounds};
use super::{Bound, Kind, Method, TOLERANCE, bounds, search};
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
    let (rows, chain) = chain_of_row_sums(x, b, k);
    let majorant = monotone_majorant(x, b, k);
    let (upper, method) =
        if majorant <= rows { (majorant, Method::MonotoneMajorant) } else { (rows, Method::ChainOfRowSums) };
    let (lower, worst) = from_below(x, schema, vec![chain, heaviest.clone()]);
    Found { bounds: PatternBounds { lower, upper, method }, worst, heaviest }
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
    let (rows, chain) = chain_of_row_sums(x, b, k);
    let majorant = monotone_majorant(x, b, k);
    let (lower, _) = from_below(x, schema, vec![chain]);
    found.push(bound(Method::Elliptope, Kind::LowerBound, lower));
    found.push(bound(Method::ChainOfRowSums, Kind::UpperBound, rows));
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
fn rounding(k: usize) -> f64 {
    4.0 * (k + 1) as f64 * f64::EPSILON
}

/// The first upper bound of the module text, and the chain that it comes from.
fn chain_of_row_sums(x: &Matrix, b: usize, k: usize) -> (f64, Vec<usize>) {
    let n = x.nrows();
    let chains = chains_of_rows(x, b, k);
    let with = |share: f64| {
        let chains = &chains;
        let weight = move |i: usize| {
            move |place: usize| {
                let [before, behind] = &chains[i];
                x[(i, i)] + share * before[place] + (2.0 - share) * behind[k - 1 - place]
            }
        };
        best_chain_by_place((0..n).map(weight), b, k)
    };
    // 2θ; every share gives a bound, so the smallest of them is one.
    let [first, others @ ..] = [2.0, 1.0, 0.0].map(with);
    let (value, chain) = others.into_iter().fold(first, |a, b| if b.0 < a.0 { b } else { a });
    (value * (1.0 + rounding(k)), chain)
}

/// For every row i of |X| the best chains of c entries, c = 0..k: at steps before i and at steps behind it.
fn chains_of_rows(x: &Matrix, b: usize, k: usize) -> Vec<[Vec<f64>; 2]> {
    let n = x.nrows();
    let row = |table: &mut Vec<f64>, i: usize| {
        // X is symmetric; a column is contiguous in memory.
        [0..(i + 1).saturating_sub(b), (i + b).min(n)..n].map(|steps| {
            let entries = steps.map(|j| x[(j, i)].abs()).map(|entry| move |_| entry);
            fill_table(entries, b, k - 1, table);
            table[table.len() - k..].to_vec()
        })
    };
    (0..n).into_par_iter().map_init(Vec::new, row).collect()
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
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, all_patterns, random_gram, random_matrix};
    use crate::sensitivity::{sensitivity_of_encoder, sensitivity_of_gram};

    /// The truth by enumeration: bounds on the square over all patterns.
    fn enumerated(x: &Matrix, b: usize, k: usize) -> (f64, f64) {
        all_patterns(x.nrows(), b, k)
            .iter()
            .map(|pattern| exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, 0.0))
            .fold((0.0, 0.0), |(low, high), one| (one.lower.max(low), one.upper.max(high)))
    }

    fn schemas() -> impl Iterator<Item = (usize, usize, usize)> {
        [(1, 1, 1), (6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2), (12, 5, 3), (7, 7, 1)].into_iter()
    }

    #[test]
    fn a_banded_encoder_is_exact() {
        let mut noise = Noise(11);
        for (n, b, k) in schemas() {
            let schema = Schema::min_separation(n, b, k).unwrap();
            let full = random_matrix(&mut noise, n, n);
            let inside = |i: usize, j: usize| i >= j && i - j < b;
            let c = dense::from_fn(n, n, |i, j| if inside(i, j) { full[(i, j)] } else { 0.0 });
            let (low, high) = enumerated(&dense::gram(&c), b, k);
            let found = sensitivity_of_encoder(&c, &schema).unwrap();
            assert_eq!(found.method, Method::BandedDynamicProgram);
            assert_eq!(found.kind(), Kind::Exact);
            assert!(found.lower.powi(2) <= high && low <= found.upper.powi(2));
        }
    }

    #[test]
    fn one_entry_at_the_separation_itself_is_not_banded() {
        let entry = |distance: usize| {
            dense::from_fn(6, 6, |i, j| f64::from(i == j || (i.abs_diff(j) == distance && i + j < 6)))
        };
        assert!(is_banded(&entry(2), 3));
        assert!(!is_banded(&entry(3), 3));
        assert!(!is_banded(&entry(5), 3));
    }

    #[test]
    fn the_bracket_holds_the_truth() {
        let mut noise = Noise(12);
        for (n, b, k) in schemas() {
            let schema = Schema::min_separation(n, b, k).unwrap();
            for rows in [3, n] {
                let x = random_gram(&mut noise, rows, n);
                let (low, high) = enumerated(&x, b, k);
                let found = squared(&x, &schema).bounds;
                assert!(found.lower <= high && low <= found.upper, "{n} {b} {k}: {found:?} {low}");
                assert!(low <= chain_of_row_sums(&x, b, k).0);
                assert!(low <= monotone_majorant(&x, b, k));
                assert!(low <= bounds::spectral(&x, k).unwrap());
                assert!(found.lower > 0.5 * low, "{n} {b} {k}: {found:?} {low}");
            }
        }
    }

    /// The largest Σ w_i(l) of the module text by enumeration, with chains by enumeration as well.
    fn placed(x: &Matrix, b: usize, k: usize, share: f64) -> f64 {
        let n = x.nrows();
        let best = |i: usize, most: usize, allowed: &dyn Fn(usize) -> bool| {
            let sum = |pattern: &Vec<usize>| pattern.iter().map(|j| x[(i, *j)].abs()).sum::<f64>();
            let fits = |pattern: &Vec<usize>| pattern.len() <= most && pattern.iter().all(|j| allowed(*j));
            all_patterns(n, b, k).iter().filter(|pattern| fits(pattern)).map(sum).fold(0.0, f64::max)
        };
        let weights: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let weight = |l: usize| {
                    let before = best(i, l, &|j| j + b <= i);
                    x[(i, i)] + share * before + (2.0 - share) * best(i, k - 1 - l, &|j| j >= i + b)
                };
                (0..k).map(weight).collect()
            })
            .collect();
        let sum = |pattern: &Vec<usize>| pattern.iter().enumerate().map(|(l, i)| weights[*i][l]).sum::<f64>();
        all_patterns(n, b, k).iter().map(sum).fold(0.0, f64::max)
    }

    #[test]
    fn the_chain_of_row_sums_keeps_what_its_text_says() {
        let mut noise = Noise(15);
        let mut better = 0;
        for (n, b, k) in [(1, 1, 1), (6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2)] {
            for _ in 0..6 {
                let x = random_gram(&mut noise, 3, n);
                let least = [0.0, 1.0, 2.0]
                    .map(|share| placed(&x, b, k, share))
                    .into_iter()
                    .fold(f64::INFINITY, f64::min);
                let found = chain_of_row_sums(&x, b, k).0;
                assert!(enumerated(&x, b, k).0 <= found && least <= found, "{n} {b} {k}: {found} {least}");
                // Without places, every step may have the best split of its k − 1 others.
                let chains = chains_of_rows(&x, b, k);
                let split = |i: usize, c: usize| chains[i][0][c] + chains[i][1][k - 1 - c];
                let loose = |i: usize| x[(i, i)] + (0..k).map(|c| split(i, c)).fold(0.0, f64::max);
                let plain = best_chain(&(0..n).map(loose).collect::<Vec<_>>(), b, k).0;
                assert!(found <= plain * (1.0 + 2.0 * rounding(k)), "{n} {b} {k}: {found} {plain}");
                better += usize::from(found < 0.999 * plain);
            }
        }
        assert!(better > 5, "{better}");
    }

    #[test]
    fn the_search_nearly_always_finds_the_worst_pattern() {
        let mut noise = Noise(14);
        let (mut found_it, mut fixed_is_it, mut count) = (0, 0, 0);
        for (n, b, k) in [(12, 1, 4), (16, 3, 5), (20, 5, 4), (30, 6, 4), (26, 4, 6)] {
            let schema = Schema::min_separation(n, b, k).unwrap();
            for number in 0..24 {
                let x = match number % 6 {
                    // Few directions, so that vectors matter; many; and smooth columns, as those of mechanisms are.
                    0 => random_gram(&mut noise, 2, n),
                    1 => random_gram(&mut noise, 4, n),
                    2 => random_gram(&mut noise, n, n),
                    _ => smooth_gram(&mut noise, n),
                };
                let (low, high) = enumerated(&x, b, k);
                let found = squared(&x, &schema);
                assert!(found.bounds.lower <= high, "{n} {b} {k}: {:?} {high}", found.bounds);
                assert!(found.bounds.lower > 0.97 * low, "{n} {b} {k}: {:?} {low}", found.bounds);
                let again = exact::pattern_above(&dense::principal(&x, &found.worst), TOLERANCE, 0.0);
                assert_eq!(again.lower, found.bounds.lower);
                let fixed = Schema::FixedOrder { steps: n, steps_per_epoch: b, max_participations: k };
                let same = |value: f64| usize::from(value > low * (1.0 - 1e-8));
                fixed_is_it += same(worst_of(&x, fixed.listed().unwrap(), 0.0).0);
                found_it += same(found.bounds.lower);
                count += 1;
            }
        }
        println!(
            "the worst of all patterns: found {found_it} of {count} times, of fixed order {fixed_is_it} times"
        );
        assert!(100 * found_it >= 97 * count, "{found_it} of {count}");
        assert!(4 * fixed_is_it < count, "{fixed_is_it} of {count}: the matrices are too easy");
    }

    /// CᵀC for a C whose columns are moving sums of noise with changing signs: nearby steps resemble each other.
    fn smooth_gram(noise: &mut Noise, n: usize) -> Matrix {
        let rough = random_matrix(noise, n, n + 4);
        let (lag, pull) = (noise.between(2, 7), noise.normal());
        let entry = |i: usize, j: usize| (0..4).map(|d| rough[(i, j + d)]).sum::<f64>();
        let decay = |i: usize, j: usize| pull * (((i + n - j) % lag) as f64 - 1.0);
        dense::gram(&dense::from_fn(n, n, |i, j| entry(i, j) + decay(i, j)))
    }

    #[test]
    fn falling_toeplitz_encoders_are_exact() {
        for (n, b, k) in schemas() {
            let schema = Schema::min_separation(n, b, k).unwrap();
            // The square root of the prefix sum: 1, 1/2, 3/8, …
            let mut root = vec![1.0];
            (1..n).for_each(|t| root.push(root[t - 1] * (1.0 - 0.5 / t as f64)));
            let c = dense::from_fn(n, n, |i, j| if i >= j { root[i - j] } else { 0.0 });
            let found = sensitivity_of_encoder(&c, &schema).unwrap();
            let (low, high) = enumerated(&dense::gram(&c), b, k);
            assert_eq!(found.kind(), Kind::Exact, "{n} {b} {k}: {found:?}");
            assert!(found.lower.powi(2) <= high && low <= found.upper.powi(2));
        }
    }

    #[test]
    fn the_row_sums_beat_the_majorant_where_the_late_steps_are_heavy() {
        // Growing diagonal, one small entry far out: the majorant takes the largest for all.
        let n = 9;
        let x = dense::from_fn(n, n, |i, j| match i.abs_diff(j) {
            0 => 1.0 + i as f64,
            4 => 0.01,
            _ => 0.0,
        });
        let schema = Schema::min_separation(n, 3, 3).unwrap();
        let found = sensitivity_of_gram(&x, &schema).unwrap();
        assert_eq!(found.method, Method::ChainOfRowSums);
        let (low, high) = enumerated(&x, 3, 3);
        assert!(found.lower.powi(2) <= high && low <= found.upper.powi(2));
        assert!(found.upper < 1.01 * found.lower);
    }
}
