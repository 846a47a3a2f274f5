//! Every mechanism against its definition: the fast forms of the library and explicit matrices, which share no code.

mod common;

use antiphon::families;
use antiphon::families::fft::{self, Fft};
use antiphon::families::tree::OnlineTree;
use antiphon::linalg::dense::{self, Matrix};
use antiphon::mechanism::factorization::variances_by_columns;
use antiphon::mechanism::stamp::lengths;
use antiphon::mechanism::{
    DenseFactorization, Factorization, Family, NoisingMatrix, Stamped, Structured, evaluate,
};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::sensitivity;
use antiphon::verify::definitions;
use antiphon::workload::Workload;
use common::workload;
use proptest::prelude::*;
use std::f64::consts::PI;
use std::sync::Arc;

/// C and W, written out entry by entry from their definitions.
fn explicit(family: Family, n: usize, stamps: usize) -> (Matrix, Matrix) {
    let definitions::Explicit { encoder, noising, .. } =
        definitions::explicit(&Structured::formula(family, stamps), n).unwrap();
    (encoder, noising)
}

/// A ⊕ B ⊕ …
fn block_diagonal(blocks: &[Matrix]) -> Matrix {
    let rows = blocks.iter().map(|b| b.nrows()).sum();
    let columns = blocks.iter().map(|b| b.ncols()).sum();
    let mut out = Matrix::zeros(rows, columns);
    let (mut row, mut column) = (0, 0);
    for block in blocks {
        for j in 0..block.ncols() {
            for i in 0..block.nrows() {
                out[(row + i, column + j)] = block[(i, j)];
            }
        }
        (row, column) = (row + block.nrows(), column + block.ncols());
    }
    out
}

fn largest_difference(a: &Matrix, b: &Matrix) -> f64 {
    assert_eq!((a.nrows(), a.ncols()), (b.nrows(), b.ncols()));
    let mut largest = 0.0f64;
    for j in 0..a.ncols() {
        for i in 0..a.nrows() {
            largest = largest.max((a[(i, j)] - b[(i, j)]).abs());
        }
    }
    largest
}

fn family() -> impl Strategy<Value = Family> {
    prop::sample::select(families::formulas().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    /// B·C = A for every mechanism, workload and number of stamps, and the fast forms are the definitions.
    #[test]
    fn every_mechanism_factors_every_workload(
        family in family(), n in 1usize..70, stamps in 1usize..9, kind in 0usize..4,
    ) {
        let stamps = stamps.min(n);
        let fast = Structured::formula(family, stamps).factorization(n).unwrap();
        let (c, w) = explicit(family, n, stamps);
        let (unit, inputs) = (dense::identity(n), dense::identity(fast.inputs()));
        let encoder = fast.encode(&unit);
        prop_assert!(largest_difference(&encoder, &c) < 1e-11);
        let noise = fast.noise(&inputs);
        prop_assert!(largest_difference(&noise, &w) < 1e-9);
        prop_assert!(largest_difference(&fast.noise_transpose(&unit), &dense::transposed(&w)) < 1e-9);
        let x = dense::gram(&c);
        let gram = dense::from_fn(n, n, |i, j| fast.gram(i, j));
        prop_assert!(largest_difference(&gram, &x) <= fast.gram_error() + 1e-12);

        let workload = workload(kind, n);
        let a = workload.matrix();
        let decoder = workload.apply(&noise);
        prop_assert!(largest_difference(&(&decoder * &encoder), &a) < 1e-9);

        let variances = fast.variances(&workload);
        let slow = variances_by_columns(&fast, &workload);
        for t in 0..n {
            let definition: f64 = (0..decoder.ncols()).map(|j| decoder[(t, j)].powi(2)).sum();
            prop_assert!((variances[t] / definition - 1.0).abs() < 1e-8, "{t} {} {definition}", variances[t]);
            prop_assert!((slow[t] / definition - 1.0).abs() < 1e-8);
        }
    }

    /// The evaluation agrees with the sensitivity and the loss of the explicit matrices.
    #[test]
    fn evaluations_are_those_of_the_matrices(
        family in family(), epochs in 1usize..6, b in 1usize..12, stamps in 1usize..6, kind in 0usize..4,
    ) {
        let schema = Schema::epochs(epochs, b).unwrap();
        let n = schema.steps();
        let stamps = stamps.min(n);
        let (c, w) = explicit(family, n, stamps);
        let workload = workload(kind, n);
        let fast = Structured::formula(family, stamps).factorization(n).unwrap();
        let found = evaluate(&fast, &schema, &workload).unwrap();
        let truth = sensitivity::sensitivity_of_encoder(&c, &schema).unwrap();
        prop_assert!(found.sensitivity.upper >= truth.lower);
        prop_assert!((found.sensitivity.upper / truth.upper - 1.0).abs() < 1e-8);
        let loss = truth.upper.powi(2) * dense::squared_norm(&workload.apply(&w));
        prop_assert!((found.loss() / loss - 1.0).abs() < 1e-7);
        // The paper's bound is one, and no better.
        let bound = found.spectral_bound.unwrap();
        prop_assert!(bound >= found.sensitivity.lower * (1.0 - 1e-12), "{bound} {:?}", found.sensitivity);
        prop_assert!(found.spectral_loss().unwrap() >= found.loss() * (1.0 - 1e-7));
    }

    /// Noise that is drawn step by step, each node once, is the matrix form; and little is kept.
    #[test]
    fn the_online_tree_streams_its_matrix(n in 1usize..300, d in 1usize..4) {
        let tree = OnlineTree::new(n);
        let z = dense::from_fn(tree.inputs(), d, |i, j| ((7 * i + 3 * j) as f64).sin());
        let matrix = &explicit(families::TREE_ONLINE, n, 1).1 * &z;
        let mut stream = tree.stream(d);
        let mut asked = vec![0; tree.inputs()];
        let mut row = vec![0.0; d];
        for t in 0..n {
            let more = stream.next_into(&mut row, |node, row| {
                asked[node] += 1;
                (0..d).for_each(|j| row[j] = z[(node, j)]);
            });
            prop_assert!(more);
            for j in 0..d {
                prop_assert!((row[j] - matrix[(t, j)]).abs() < 1e-12);
            }
            prop_assert!(stream.rows() < tree.cost().stream_memory_rows);
        }
        prop_assert!(!stream.next_into(&mut row, |_, _| ()));
        prop_assert!(asked.iter().all(|times| *times == 1), "{asked:?}");
    }
}

/// Restarting: the decoder on the diagonal, its last row repeated below (paper, appendix on stamping). For prefix sums
/// this is what stamped noising matrices do.
#[test]
fn stamps_restart_prefix_sums() {
    for family in families::formulas() {
        let (length, stamps) = (11, 3);
        let (_, w) = explicit(family, length, 1);
        let b = Workload::prefix_sum(length).apply(&w);
        let columns = b.ncols();
        let restarted = dense::from_fn(length * stamps, columns * stamps, |i, j| {
            match (i / length).cmp(&(j / columns)) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => b[(i % length, j % columns)],
                std::cmp::Ordering::Greater => b[(length - 1, j % columns)],
            }
        });
        let fast = Structured::formula(family, stamps).factorization(length * stamps).unwrap();
        let noise = fast.noise(&dense::identity(fast.inputs()));
        let decoder = Workload::prefix_sum(length * stamps).apply(&noise);
        assert!(largest_difference(&decoder, &restarted) < 1e-10, "{family:?}");
    }
}

/// The contract of the FFT's optimal decoder: equal to the dense pseudo-inverse to 1e-9 at n = 300.
#[test]
fn the_fft_decoder_is_the_pseudo_inverse() {
    for n in [1, 2, 3, 17, 128, 211, 300] {
        let (_, slow) = explicit(families::FFT_OPTIMAL, n, 1);
        let fast = Fft::with_optimal_decoder(n).unwrap();
        let noise = fast.noise(&dense::identity(2 * n));
        let difference = largest_difference(&noise, &slow);
        assert!(difference < 1e-9, "n = {n}: {difference:e}");
        let prefix = Workload::prefix_sum(n);
        let difference = largest_difference(&prefix.apply(&noise), &prefix.apply(&slow));
        assert!(difference < 1e-9, "n = {n}: {difference:e}");
    }
}

/// No decoder is better than the pseudo-inverse, and the certificate of optimality holds against all of them.
#[test]
fn optimal_decoders_are_better_and_none_beats_the_optimum() {
    let schema = Schema::epochs(4, 8).unwrap();
    for kind in 0..3 {
        let workload = workload(kind, 32);
        let optimum = optimize(&schema, &workload, &Params::default(), &|_| true).unwrap().mechanism;
        for stamps in [1, 2, 4, 5, 32] {
            let loss = |family| {
                let fast = Structured::formula(family, stamps).factorization(32).unwrap();
                evaluate(&fast, &schema, &workload).unwrap().loss()
            };
            assert!(loss(families::TREE_OPTIMAL) <= loss(families::TREE_ONLINE) * (1.0 + 1e-9));
            assert!(loss(families::FFT_OPTIMAL) <= loss(families::FFT) * (1.0 + 1e-9));
            for family in families::formulas() {
                assert!(loss(family) >= optimum.claims().lower_bound.unwrap(), "{family:?} {stamps}");
            }
        }
    }
}

/// A dense mechanism as a factorization, alone and stamped, agrees with what its matrix says.
#[test]
fn dense_mechanisms_are_factorizations_too() {
    let made_for = Schema::single(12).unwrap();
    let optimized = optimize(&made_for, &Workload::prefix_sum(12), &Params::default(), &|_| true).unwrap();
    let antiphon::mechanism::Noise::Dense(noising) = optimized.mechanism.noise() else { panic!("dense") };
    let used_under = Schema::epochs(6, 6).unwrap();
    let workload = workload(2, 36);
    let stamped = Stamped::of(
        (0..3).map(|_| Arc::new(DenseFactorization::new(noising.clone()).unwrap()) as Arc<dyn Factorization>),
    );
    let found = evaluate(&stamped, &used_under, &workload).unwrap();
    let w = block_diagonal(&vec![noising.matrix().clone(); 3]);
    let whole = NoisingMatrix::new(w).unwrap();
    let truth = whole.sensitivity(&used_under).unwrap().sensitivity;
    assert!(found.sensitivity.upper >= truth.lower && found.sensitivity.upper <= truth.upper * (1.0 + 1e-8));
    let loss = truth.upper.powi(2) * whole.squared_error(&workload);
    assert!((found.loss() / loss - 1.0).abs() < 1e-8);
    assert!(found.max_variance() >= found.loss() / 36.0);
}

/// The error of the gram matrix stays below what is allowed for, also where the transform's size is a large prime.
#[test]
fn the_allowance_covers_the_transform() {
    for n in [1, 5, 64, 499, 1000, 1009] {
        let fast = Structured::formula(families::FFT, 1).factorization(n).unwrap();
        for j in [0, n / 3, n / 2, n - 1] {
            let terms = (1..2 * n).step_by(2).map(|k| {
                let angle = PI * k as f64 / (2 * n) as f64;
                (PI * ((k * j) % (2 * n)) as f64 / n as f64).cos() / angle.sin()
            });
            let direct = (n as f64 + terms.sum::<f64>()) / (2 * n) as f64;
            let error = (fast.gram(0, j) - direct).abs();
            assert!(error <= fast.gram_error(), "n = {n}: {error:e} {:e}", fast.gram_error());
        }
        assert!(fast.gram_error() < 1e-11);
    }
}

/// Steps, and the diagonal of the gram matrix: ‖v̂‖₁/2n = ½ + (1/2n)·Σ 1/sin(πk/2n) over odd k < 2n, summed with
/// mpmath 1.4.1 at 40 digits.
const GRAM_DIAGONALS: [(usize, f64); 2] =
    [(10_007, 3.913_226_548_086_709_4), (1_000_003, 5.378_875_961_585_171)];

/// Long runs, where the angles of the transform once lost digits near π.
#[test]
fn the_allowance_covers_the_transform_of_long_runs() {
    for (n, expected) in GRAM_DIAGONALS {
        let fast = Structured::formula(families::FFT, 1).factorization(n).unwrap();
        let error = (fast.gram(0, 0) - expected).abs();
        assert!(error <= fast.gram_error(), "n = {n}: {error:e} {:e}", fast.gram_error());
        assert!(fft::noise_variance(n, 0.25, 1.0) >= 2.0 * expected * (1.0 - f64::EPSILON));
    }
}

/// Rates of any size, alone and with stamps: nothing leaks from a large column into a small one.
#[test]
fn variances_hold_for_rates_of_any_size() {
    let n = 37;
    let steep = |i: usize| if i.is_multiple_of(2) { 1e30 } else { 1e-30 };
    let rates: [Vec<f64>; 4] = [
        vec![1e-15; n],
        vec![1e20; n],
        (0..n).map(steep).collect(),
        (0..n).map(|i| 0.5f64.powi(i as i32)).collect(),
    ];
    for rates in rates {
        for momentum in [0.0, 0.9, 0.99] {
            let workload = Workload::training(n, momentum, Some(rates.clone())).unwrap();
            for family in families::formulas() {
                for stamps in [1, 3, 7, n] {
                    let fast = Structured::formula(family, stamps).factorization(n).unwrap();
                    let decoder = workload.apply(&explicit(family, n, stamps).1);
                    for (t, variance) in fast.variances(&workload).iter().enumerate() {
                        let definition: f64 = (0..decoder.ncols()).map(|j| decoder[(t, j)].powi(2)).sum();
                        assert!(
                            (variance / definition - 1.0).abs() < 1e-9,
                            "{family:?} {stamps} {t}: {variance:e} {definition:e}"
                        );
                    }
                }
            }
        }
    }
}

/// A stream whose coordinates change would not be W·Z.
#[test]
#[should_panic(expected = "the same coordinates at every step")]
fn a_stream_keeps_its_coordinates() {
    let mut stream = OnlineTree::new(4).stream(2);
    stream.next_into(&mut [0.0; 3], |_, _| ());
}

/// A matrix whose gram matrix underflows has no sensitivity of zero.
#[test]
fn a_tiny_encoder_is_refused() {
    let w = dense::from_fn(3, 3, |i, j| {
        if i == j {
            1e170
        } else if i > j {
            -5e169
        } else {
            0.0
        }
    });
    let error = DenseFactorization::new(NoisingMatrix::new(w).unwrap()).unwrap_err();
    assert!(
        error.to_string().starts_with("the largest squared norm of a column of C must be in [1e-280, 1e280]")
    );
}

/// The figures of the paper's analysis. Its corollary gives 23.954 at n = 100 and ρ = 1/2, the mechanism has a quarter of that:
/// ‖v̂‖₁²/(8ρn²), checked against the covariance of the explicit decoder.
#[test]
fn the_fft_mechanisms_error_and_privacy() {
    let (n, rho, kappa) = (100, 0.5, 1.0);
    let (c, w) = explicit(families::FFT, n, 1);
    let b = Workload::prefix_sum(n).apply(&w);
    let variance = fft::noise_variance(n, rho, kappa);
    // One participation: ρ = sens²/(2σ²).
    let squared = dense::gram(&c)[(0, 0)];
    assert!((squared / (2.0 * variance) - rho).abs() < 1e-12);
    assert!(
        (fft::zcdp(n, variance, kappa, 1) / rho - 1.0).abs() < 1e-12
            && fft::zcdp(n, variance, kappa, 1) >= rho
    );
    assert!((fft::zcdp(n, variance, 2.0, 1) / (4.0 * rho) - 1.0).abs() < 1e-12);
    // The mean squared error of the real mechanism, and the paper's corollary.
    let measured = variance * dense::squared_norm(&b) / n as f64;
    assert!((fft::mean_squared_error(n, rho, kappa) / measured - 1.0).abs() < 1e-12);
    assert!((fft::mean_squared_error(n, rho, kappa) - 5.988).abs() < 1e-3);
    assert!((fft::mean_squared_error_in_the_paper(n, rho, kappa) - 23.954).abs() < 1e-3);
    // k²ρ holds for every schema with k participations: the exact sensitivity is never above it.
    for schema in [
        Schema::epochs(4, 25).unwrap(),
        Schema::patterns(n, vec![vec![0, 1, 2, 3], vec![10, 50, 98, 99]]).unwrap(),
        Schema::fixed_order_at_most(n, 7, 4).unwrap(),
    ] {
        let fast = Structured::formula(families::FFT, 1).factorization(n).unwrap();
        let found = evaluate(&fast, &schema, &Workload::prefix_sum(n)).unwrap();
        let exact = found.sensitivity.upper.powi(2) / (2.0 * variance);
        assert!(exact <= fft::zcdp(n, variance, kappa, 4) * (1.0 + 1e-12), "{exact}");
    }
    // Near-optimal under one participation: the paper's corollary is "about 6×" the lower bound, and its mechanism
    // within "1.2×" of it, which is true of the root mean squared error from n = 1,000 on.
    let ratio = |n| fft::mean_squared_error(n, rho, kappa) / fft::lower_bound_of_huu(n, rho);
    assert!((4.0 * ratio(100) - 6.0).abs() < 0.1);
    assert!([1_000, 10_000, 100_000].iter().all(|n| (1.0..1.2).contains(&f64::sqrt(ratio(*n)))));
}

/// Minimum separation: the schema whose patterns cannot be listed.
#[test]
fn mechanisms_under_minimum_separation() {
    let schema = Schema::min_separation(24, 6, 3).unwrap();
    for family in families::formulas() {
        let fast = Structured::formula(family, 2).factorization(24).unwrap();
        let found = evaluate(&fast, &schema, &Workload::prefix_sum(24)).unwrap();
        let (c, _) = explicit(family, 24, 2);
        let truth = sensitivity::sensitivity_of_encoder(&c, &schema).unwrap();
        assert!(found.sensitivity.upper >= truth.lower && found.spectral_bound.is_none());
        assert!((found.sensitivity.upper / truth.upper - 1.0).abs() < 1e-9, "{family:?}");
    }
}

#[test]
fn bad_stamps_are_refused() {
    for stamps in [0, 11] {
        let error = Structured::formula(families::FFT, stamps).factorization(10).err().unwrap();
        assert_eq!(error.to_string(), format!("stamps must be in 1..=10, got {stamps}"));
    }
    assert_eq!(lengths(10, 4).unwrap(), [3, 3, 2, 2]);
    let fast = Structured::formula(families::IDENTITY, 1).factorization(4).unwrap();
    let error = evaluate(&fast, &Schema::epochs(2, 3).unwrap(), &Workload::prefix_sum(4)).unwrap_err();
    assert_eq!(error.to_string(), "the schema must be for 4 steps, as the factorization is, got 6 steps");
}
