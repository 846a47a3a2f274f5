//! The optimum for a fixed order under minimum separation: examples that return a little later than in the fixed order
//! move it more than those that keep to it, and the lower bound says so.

use antiphon::linalg::dense::{self, Matrix};
use antiphon::mechanism::Noise;
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::sensitivity::{Kind, pattern_squared, worst_case_of_encoder, worst_case_of_gram};
use antiphon::workload::Workload;

/// The encoder of the optimum for a fixed order.
fn optimum(epochs: usize, steps_per_epoch: usize) -> Matrix {
    let schema = Schema::epochs(epochs, steps_per_epoch).unwrap();
    let workload = Workload::prefix_sum(epochs * steps_per_epoch);
    let found = optimize(&schema, &workload, &Params::default(), &|_| true).unwrap();
    let Noise::Dense(noising) = found.mechanism.noise() else { panic!("a dense mechanism was asked for") };
    noising.encoder().unwrap()
}

/// The sensitivity of one pattern.
fn of_pattern(x: &Matrix, pattern: &[usize]) -> f64 {
    pattern_squared(&dense::principal(x, pattern), 1e-9).unwrap().lower.sqrt()
}

/// The largest sensitivity of a progression with this stride, over all first steps.
fn of_stride(x: &Matrix, stride: usize, participations: usize) -> f64 {
    let n = x.nrows();
    let pattern = |first: usize| (first..n).step_by(stride).take(participations).collect::<Vec<_>>();
    (0..n).map(|first| of_pattern(x, &pattern(first))).fold(0.0, f64::max)
}

#[test]
fn the_lower_bound_is_no_less_than_any_progression_reaches() {
    for (epochs, b) in [(8, 25), (10, 40)] {
        let n = epochs * b;
        let c = optimum(epochs, b);
        let x = dense::gram(&c);
        let by_stride: Vec<f64> = (b..n).map(|stride| of_stride(&x, stride, epochs)).collect();
        let best = by_stride.iter().copied().fold(0.0, f64::max);
        // The mechanism was made for stride b, where its sensitivity is one; others are much worse.
        assert!((by_stride[0] - 1.0).abs() < 1e-6 && best > 1.1, "{by_stride:?}");
        let schema = Schema::min_separation(n, b, epochs).unwrap();
        let found = worst_case_of_encoder(&c, &schema).unwrap();
        let (lower, upper) = (found.sensitivity.lower, found.sensitivity.upper);
        assert!(best * (1.0 - 1e-8) <= lower && lower <= upper, "{found:?} {best}");
        // The pattern that is named is allowed and reaches the lower bound.
        let pattern = found.pattern.unwrap();
        assert!(pattern.len() <= epochs && pattern.windows(2).all(|pair| pair[1] - pair[0] >= b));
        assert!((of_pattern(&x, &pattern) / lower - 1.0).abs() < 1e-8, "{pattern:?}");
    }
}

#[test]
fn the_optimum_of_twenty_epochs_is_not_private_for_a_loader_that_drifts() {
    // Every 105 steps instead of every 100: 1.189 = √1.414, as a direct evaluation of that pattern says.
    let c = optimum(20, 100);
    let drifting: Vec<usize> = (0..20).map(|i| 105 * i).collect();
    let reached = of_pattern(&dense::gram(&c), &drifting);
    assert!((reached - 1.189).abs() < 5e-4, "{reached}");
    let found = worst_case_of_encoder(&c, &Schema::min_separation(2000, 100, 20).unwrap()).unwrap();
    assert!(found.sensitivity.lower >= reached * (1.0 - 1e-8), "{found:?}");
    // Chains of row sums alone say 1.2113 from above.
    assert_eq!(found.sensitivity.kind(), Kind::Exact, "{found:?}");
    assert!((found.sensitivity.upper - 1.19211).abs() < 5e-6, "{found:?}");
}

#[test]
fn the_bracket_nearly_closes_where_patterns_have_room() {
    // Without places in the bound on row sums the first two would be 0.24 % and 0.5 % wide.
    let x = dense::gram(&optimum(8, 25));
    for (b, k, width) in [(10, 4, 1e-6), (24, 8, 1e-3), (20, 8, 4e-3), (25, 8, 9e-3)] {
        let schema = Schema::min_separation(200, b, k).unwrap();
        let found = worst_case_of_gram(&x, &schema).unwrap().sensitivity;
        assert!(
            found.lower <= found.upper && found.upper < found.lower * (1.0 + width),
            "{b} {k}: {found:?}"
        );
        assert_eq!(found.kind(), Kind::Exact, "{b} {k}: {found:?}");
    }
}

#[test]
fn the_worst_listed_pattern_is_the_first_that_reaches_the_maximum() {
    let x = dense::from_fn(6, 6, |i, j| f64::from(i == j) * [1.0, 2.0, 1.0, 2.0, 1.0, 1.0][i]);
    let listed = vec![vec![0, 2], vec![1, 4], vec![3, 5]];
    let found = worst_case_of_gram(&x, &Schema::patterns(6, listed).unwrap()).unwrap();
    assert_eq!((found.pattern, found.sensitivity.kind()), (Some(vec![1, 4]), Kind::Exact));
    // Banded under minimum separation: the best chain of diagonal entries.
    let schema = Schema::min_separation(6, 2, 3).unwrap();
    assert_eq!(worst_case_of_gram(&x, &schema).unwrap().pattern, Some(vec![1, 3, 5]));
    // Nothing is the worst of nothing.
    for schema in [schema, Schema::epochs(2, 3).unwrap()] {
        assert_eq!(worst_case_of_gram(&Matrix::zeros(6, 6), &schema).unwrap().pattern, None);
    }
}
