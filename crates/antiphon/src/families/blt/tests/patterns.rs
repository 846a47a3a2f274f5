//! Sensitivity against all patterns of short runs.

use super::*;
use crate::linalg::dense;
use crate::mechanism::{Factorization, sensitivity_of};
use crate::schema::Schema;
use crate::sensitivity::testing::all_patterns;
use crate::sensitivity::{Kind, Method, PatternBounds};

/// Σ X_ij over a pattern: the square of its sensitivity, since no entry is negative.
fn of_pattern(blt: &Toeplitz, pattern: &[usize]) -> f64 {
    pattern.iter().map(|i| pattern.iter().map(|j| blt.gram(*i, *j)).sum::<f64>()).sum()
}

fn truth<'a>(blt: &Toeplitz, patterns: impl IntoIterator<Item = &'a Vec<usize>>) -> f64 {
    patterns.into_iter().map(|pattern| of_pattern(blt, pattern)).fold(0.0, f64::max)
}

/// Whether the bracket has the truth in it, and how wide it is.
fn holds(bounds: &PatternBounds, truth: f64) -> f64 {
    assert!(
        bounds.lower <= truth * (1.0 + 1e-13) && truth * (1.0 - 1e-13) <= bounds.upper,
        "{bounds:?} {truth}"
    );
    bounds.upper / bounds.lower - 1.0
}

#[test]
fn the_rule_is_the_worst_of_all_patterns_where_the_profile_does_not_grow() {
    let mut random = Random(11);
    let mut incomplete = 0;
    for number in 0..150 {
        let n = random.between(1, 14);
        let b = random.between(1, n);
        let k = random.between(1, n.div_ceil(b));
        let buffers = random.between(1, 4);
        let filter = random_filter(&mut random, buffers);
        let mut factors: Vec<f64> = (0..n).map(|_| 0.2 + random.uniform()).collect();
        match number % 3 {
            0 => factors.fill(1.0),
            _ => factors.sort_by(f64::total_cmp),
        }
        let blt = toeplitz(&filter, &factors);
        let all = all_patterns(n, b, k);
        let (bounds, pattern) = blt.separated(b, k);
        assert!(holds(&bounds, truth(&blt, &all)) < 1e-11, "{number} {n} {b} {k}");
        assert!(all.contains(&pattern), "{pattern:?}");
        // Fixed order has fewer patterns, but the same worst one.
        let schema = Schema::fixed_order_at_most(n, b, k).unwrap();
        assert!(holds(&bounds, truth(&blt, &schema.listed().unwrap())) < 1e-11);
        incomplete += usize::from(n > k * b);
        for schema in [schema, Schema::min_separation(n, b, k).unwrap()] {
            let found = sensitivity_of(&blt, &schema).unwrap();
            assert_eq!(found.kind(), Kind::Exact, "{schema:?} {found:?}");
            assert!(k == 1 || found.method == Method::Toeplitz, "{found:?}");
        }
    }
    assert!(incomplete > 20, "{incomplete} runs end after the last participation");
}

#[test]
fn profiles_that_grow_are_never_below_the_truth() {
    let mut random = Random(12);
    let mut wide = 0;
    for number in 0..150 {
        let n = random.between(2, 13);
        let b = random.between(1, n);
        let k = random.between(1, n.div_ceil(b));
        let buffers = random.between(1, 3);
        let filter = random_filter(&mut random, buffers);
        let factors: Vec<f64> = (0..n).map(|_| 10f64.powf(2.0 * random.uniform() - 1.0)).collect();
        let blt = toeplitz(&filter, &factors);
        let exact = truth(&blt, &all_patterns(n, b, k));
        wide += usize::from(holds(&blt.separated(b, k).0, exact) > 1e-3);
        for schema in [Schema::min_separation(n, b, k), Schema::fixed_order_at_most(n, b, k)] {
            let schema = schema.unwrap();
            let exact = match schema.listed() {
                Some(patterns) => truth(&blt, &patterns),
                None => exact,
            };
            let found = sensitivity_of(&blt, &schema).unwrap();
            assert!(found.upper.powi(2) >= exact * (1.0 - 1e-13), "{number} {schema:?} {found:?} {exact}");
            assert!(found.lower.powi(2) <= exact * (1.0 + 1e-9), "{number} {schema:?} {found:?} {exact}");
        }
        let single = blt.single().0;
        assert!(holds(&single, truth(&blt, &all_patterns(n, n, 1))) < 1e-11);
    }
    assert!(wide > 50, "{wide} brackets are wide");
}

#[test]
fn counterexamples_to_the_rule_without_its_condition() {
    // c = 0.9^t in 12 steps, three epochs of four: the pattern {0, 4, 8} is not the worst where D grows.
    let filter = Filter::new(&[0.9], &[0.0]).unwrap();
    for (d, k, rule) in [([1.0, 0.01, 1.0], 3, 10.52), ([0.5, 1.0, 1.0], 2, 8.31)] {
        let factors: Vec<f64> = (0..12).map(|t| 1.0 / d[t / 4]).collect();
        let blt = toeplitz(&filter, &factors);
        let (bounds, _) = blt.separated(4, k);
        let exact = truth(&blt, &all_patterns(12, 4, k));
        assert!((bounds.lower - rule).abs() < 0.01 && exact > 1.04 * rule, "{bounds:?} {exact}");
        assert!(bounds.upper >= exact);
        let found = sensitivity_of(&blt, &Schema::min_separation(12, 4, k).unwrap()).unwrap();
        assert!(found.upper.powi(2) >= exact * (1.0 - 1e-13));
    }
}

#[test]
fn what_comes_behind_the_last_participation_counts() {
    // c hardly falls, and the run goes on for long: two thirds of the norm are behind k·b.
    let filter = Filter::new(&[0.999], &[0.5]).unwrap();
    let blt = toeplitz(&filter, &[1.0; 14]);
    let whole = blt.separated(2, 2).0.lower;
    let cut = toeplitz(&filter, &[1.0; 4]).separated(2, 2).0.upper;
    assert!(cut < 0.5 * whole, "{cut} {whole}");
    assert!(holds(&blt.separated(2, 2).0, truth(&blt, &all_patterns(14, 2, 2))) < 1e-11);
}

#[test]
fn reshuffled_epochs_are_bounded_from_above() {
    let mut random = Random(13);
    for number in 0..60 {
        let (epochs, b) = (random.between(2, 4), random.between(2, 4));
        let n = epochs * b;
        let buffers = random.between(1, 3);
        let filter = random_filter(&mut random, buffers);
        let mut factors: Vec<f64> = (0..n).map(|_| 0.2 + random.uniform()).collect();
        if number % 2 == 0 {
            factors.sort_by(f64::total_cmp);
        }
        let blt = toeplitz(&filter, &factors);
        let mut patterns = vec![vec![]];
        for epoch in 0..epochs {
            let longer = |p: &Vec<usize>| {
                let p = p.clone();
                (0..b).map(move |r| [p.as_slice(), &[epoch * b + r]].concat()).collect::<Vec<_>>()
            };
            patterns = patterns.iter().flat_map(longer).collect();
        }
        holds(&blt.reshuffled(b, epochs).0, truth(&blt, &patterns));
    }
    // Long runs have no other rule.
    let comb = with_factors(Filter::new(&[0.999, 0.8], &[0.95, 0.2]).unwrap(), vec![1.0; 15_000]);
    let found = sensitivity_of(&Toeplitz::new(comb), &Schema::reshuffled(15, 1_000).unwrap()).unwrap();
    assert_eq!((found.kind(), found.method), (Kind::UpperBound, Method::Toeplitz));
    assert!(found.upper < 1.5 * found.lower, "{found:?}");
}

#[test]
fn lists_of_patterns_go_by_the_gram_matrix() {
    let filter = Filter::new(&[0.99, 0.5], &[0.8, 0.2]).unwrap();
    let blt = toeplitz(&filter, &[1.0, 1.1, 0.9, 1.2, 1.0, 1.3]);
    let patterns = vec![vec![0, 1, 4], vec![2, 3], vec![5]];
    let found = sensitivity_of(&blt, &Schema::patterns(6, patterns.clone()).unwrap()).unwrap();
    let exact = truth(&blt, &patterns);
    assert!(
        found.kind() == Kind::Exact && (found.upper.powi(2) / exact - 1.0).abs() < 1e-8,
        "{found:?} {exact}"
    );
    // An error that is allowed for is no smaller than that of an entry.
    let written = crate::families::comb::definition::explicit(&with_factors(filter, vec![1.0; 6])).unwrap();
    let x = dense::gram(&written.encoder);
    let equal = toeplitz(&Filter::new(&[0.99, 0.5], &[0.8, 0.2]).unwrap(), &[1.0; 6]);
    assert!((0..6).all(|i| (equal.gram(i, 0) - x[(i, 0)]).abs() <= equal.gram_error()));
}
