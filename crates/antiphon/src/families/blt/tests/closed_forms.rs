//! Closed forms against matrices that are written out, and for long runs against sums over all steps.

use super::*;
use crate::families::blt::doubling::Steps;
use crate::families::blt::rational::{Ratio, Rational};
use crate::families::blt::segments::{Cut, Segments};
use crate::families::blt::sensitivity::Rule;
use crate::families::comb::definition;
use crate::linalg::dense;
use crate::mechanism::Factorization;

#[test]
fn gram_matrix_and_variances_are_those_of_the_definition() {
    let mut random = Random(1);
    for number in 0..40 {
        let n = random.between(1, 60);
        let buffers = random.between(1, 5);
        let filter = random_filter(&mut random, buffers);
        let factors: Vec<f64> = (0..n).map(|_| 0.5 + random.uniform()).collect();
        let blt = toeplitz(&filter, &factors);
        let written = definition::explicit(&with_factors(filter, factors)).unwrap();
        let x = dense::gram(&written.encoder);
        let largest = (0..n).map(|i| x[(i, i)]).fold(0.0, f64::max);
        for i in 0..n {
            for j in 0..n {
                assert!((blt.gram(i, j) - x[(i, j)]).abs() < 1e-12 * largest, "{number} {i} {j}");
            }
        }
        for workload in workloads(n) {
            let b = workload.apply(&written.noising);
            for (i, found) in blt.variances(&workload).iter().enumerate() {
                let exact: f64 = (0..n).map(|j| b[(i, j)] * b[(i, j)]).sum();
                assert!(near(*found, exact, 1e-11), "{number} {workload:?} {i} {found} {exact}");
            }
        }
        let dense = Workload::dense(workloads(n)[3].matrix()).unwrap();
        let same: Vec<f64> = blt.variances(&workloads(n)[3]);
        assert!(blt.variances(&dense).iter().zip(same).all(|(x, y)| near(*x, y, 1e-11)));
    }
}

#[test]
fn the_error_without_a_profile_is_that_of_all_variances_for_any_momentum() {
    let mut random = Random(2);
    for number in 0..40 {
        let n = random.between(1, 60);
        let buffers = random.between(1, 5);
        let filter = random_filter(&mut random, buffers);
        let blt = toeplitz(&filter, &vec![1.0; n]);
        // Every second time momentum is a zero of the filter: partial fractions would not exist.
        let momentum = if number % 2 == 0 { filter.zeros()[0] } else { random.uniform() * 0.99 };
        let exact: f64 = blt.variances(&Workload::training(n, momentum, None).unwrap()).iter().sum();
        let found = Steps::new(&Rational::of(&filter), momentum, n).covariances.variance();
        assert!(near(found, exact, 1e-11), "{number} {n} {momentum} {found} {exact}");
    }
}

#[test]
fn segments_of_one_step_give_the_error_and_its_derivatives() {
    let mut random = Random(3);
    for number in 0..20 {
        let n = random.between(2, 50);
        let buffers = random.between(1, 4);
        let filter = random_filter(&mut random, buffers);
        let factors: Vec<f64> = (0..n).map(|_| 0.5 + random.uniform()).collect();
        let rational = Rational::of(&filter);
        for workload in workloads(n) {
            let training = workload.as_training().unwrap();
            let rates: Vec<f64> = (0..n).map(|t| training.rate(t)).collect();
            let exact: f64 = toeplitz(&filter, &factors).variances(&workload).iter().sum();
            let knots: Vec<usize> = (0..n).collect();
            let segments = Segments::new(&rational, training.momentum(), &Cut::new(n, &knots));
            let mut slopes = vec![0.0; n];
            let found = segments.sum(&factors, &rates, &mut slopes);
            assert!(near(found, exact, 1e-10), "{number} {workload:?} {found} {exact}");
            for t in 0..n {
                let moved = |by: f64| {
                    let mut moved = factors.clone();
                    moved[t] += by;
                    segments.sum(&moved, &rates, &mut vec![0.0; n])
                };
                // A quadratic form: central differences are exact but for rounding.
                let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
                assert!((slope - slopes[t]).abs() < 1e-9 * found, "{number} {t} {slope} {}", slopes[t]);
            }
        }
    }
}

#[test]
fn long_segments_give_what_short_ones_do() {
    let filter = Filter::new(&[0.9995, 0.97, 0.6], &[0.995, 0.9, 0.2]).unwrap();
    let rational = Rational::of(&filter);
    // o and rates change in steps 700 and 1700 alone.
    let (n, knots) = (3_000, [0, 700, 1_700]);
    let (gains, rates) = ([1.0, 1.3, 1.9], [1.0, 0.5, 0.1]);
    let which = |t: usize| knots.partition_point(|knot| *knot <= t) - 1;
    for momentum in [0.0, 0.9] {
        let all = |numbers: [f64; 3]| (0..n).map(|t| numbers[which(t)]).collect::<Vec<f64>>();
        let workload = Workload::training(n, momentum, Some(all(rates))).unwrap();
        let exact: f64 = toeplitz(&filter, &all(gains)).variances(&workload).iter().sum();
        let cut = Cut::new(n, &knots);
        assert!(cut.ranges().len() < 300 && cut.ranges().iter().map(|range| range.len()).sum::<usize>() == n);
        let of = |numbers: [f64; 3]| {
            cut.ranges().iter().map(|range| numbers[which(range.start)]).collect::<Vec<f64>>()
        };
        let mut slopes = vec![0.0; cut.ranges().len()];
        let found = Segments::new(&rational, momentum, &cut).sum(&of(gains), &of(rates), &mut slopes);
        assert!(near(found, exact, 1e-9), "{momentum} {found} {exact}");
    }
}

#[test]
fn geometric_sums_have_their_digits_next_to_one() {
    for (gap, n) in [(1e-3, 10), (1e-9, 1_000_000), (1e-15, 1_000), (0.3, 7), (1.0, 4), (0.0, 12)] {
        let ratio = Ratio::of(1.0 - gap);
        let mut power = 1.0;
        let mut sum = 0.0;
        for _ in 0..n {
            sum += power;
            power *= 1.0 - gap;
        }
        assert!(near(ratio.sum(n), sum, 1e-9), "{gap} {n} {} {sum}", ratio.sum(n));
        // 1 − (1 − g)² = 2g − g².
        let g = ratio.gap();
        assert!(near(ratio.times(ratio).gap(), 2.0 * g - g * g, 4.0 * f64::EPSILON) || g == 0.0);
    }
    // To all digits, by the binomial series: (1 − (1−g)^n)/g = n − n(n−1)/2·g + …
    let (g, n) = (2f64.powi(-50), 1_000_000);
    let exact = 1e6 - 1e6 * (1e6 - 1.0) / 2.0 * g;
    assert!(near(Ratio::of(1.0 - g).sum(n), exact, 1e-15));
}

#[test]
fn a_million_steps_as_by_sums_over_all_of_them() {
    let n = 1_000_000;
    let filter = Filter::new(&[1.0 - 1e-6, 0.9999, 0.95, 0.3], &[1.0 - 3e-5, 0.998, 0.7, 0.1]).unwrap();
    let rational = Rational::of(&filter);
    let powers = |ratios: &[Ratio], m: usize| ratios.iter().map(|r| r.pow(m)).collect::<Vec<_>>();
    let c: Vec<f64> = (0..n)
        .map(|m| match m {
            0 => 1.0,
            _ => powers(&rational.poles, m - 1).iter().zip(&rational.weights).map(|(p, w)| p * w).sum(),
        })
        .collect();
    for (b, k) in [(50_000, 20), (50_000, 7), (33_333, 31), (n, 1)] {
        let d = |j: usize| 1.0 / (1.0 + 0.1 * j as f64);
        let mut v = vec![0.0; n];
        for j in 0..k.min(n.div_ceil(b)) {
            v[j * b..].iter_mut().zip(&c).for_each(|(v, c)| *v += d(j) * c);
        }
        let exact: f64 = v.iter().map(|x| x * x).sum();
        let rule = Rule::new(&rational, n, b, k);
        assert!(near(rule.squared(d), exact, 1e-11), "{b} {k} {} {exact}", rule.squared(d));
        assert!(rule.rounding() < 1e-12);
    }
    let blt = toeplitz(&filter, &vec![1.0; n]);
    for momentum in [0.0, 0.9] {
        let exact: f64 = blt.variances(&Workload::training(n, momentum, None).unwrap()).iter().sum();
        let found = Steps::new(&rational, momentum, n).covariances.variance();
        assert!(near(found, exact, 1e-9), "{momentum} {found} {exact}");
    }
    // The prefix sums of w, by their definition.
    let mut prefix = 0.0;
    let mut exact = 0.0;
    for t in 0..n {
        prefix += match t {
            0 => 1.0,
            _ => -powers(&rational.zeros, t - 1)
                .iter()
                .zip(&rational.inverse_weights)
                .map(|(p, w)| p * w)
                .sum::<f64>(),
        };
        exact += (n - t) as f64 * prefix * prefix;
    }
    let found = Steps::new(&rational, 0.0, n).covariances.variance();
    assert!(near(found, exact, 1e-9), "{found} {exact}");
}
