//! The fast forms against dense algebra, on random combs.

use super::blocks::Sums;
use super::factorization::Coefficients;
use super::filter::Filter;
use super::loss::System;
use super::testing::random_comb;
use super::{COMB_BLT, Comb, definition, sensitivity};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::Structured;
use crate::mechanism::factorization::{Factorization, variances_by_columns};
use crate::schema::Schema;
use crate::sensitivity::testing::Noise as Seeded;
use crate::workload::Workload;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-11 * (1.0 + a.abs().max(b.abs()))
}

#[test]
fn fast_forms_are_the_definition() {
    for seed in 0..200 {
        let comb = random_comb(seed, 40);
        let steps = comb.steps;
        let explicit = definition::explicit(&comb).unwrap();
        let fast = Coefficients::new(comb);
        let identity = dense::identity(steps);
        let same =
            |a: &Matrix, b: &Matrix| (0..steps).all(|j| (0..steps).all(|i| close(a[(i, j)], b[(i, j)])));
        assert!(same(&fast.encode(&identity), &explicit.encoder));
        assert!(same(&fast.noise(&identity), &explicit.noising));
        assert!(same(&fast.noise_transpose(&identity), &dense::transposed(&explicit.noising)));
        assert!(same(&(&explicit.noising * &explicit.encoder), &identity));
    }
}

#[test]
fn gram_blocks_are_those_of_the_encoder() {
    for seed in 0..200 {
        let comb = random_comb(seed, 40);
        let (steps, period) = (comb.steps, comb.period);
        let x = dense::gram(&definition::explicit(&comb).unwrap().encoder);
        let k = comb.epochs();
        let blocks = sensitivity::blocks(&Coefficients::new(comb.clone())).unwrap();
        assert!(blocks.error < 1e-9 && blocks.residual < 1e-12);
        let blocks = blocks.matrices;
        for r in 0..period {
            for (i, j) in (0..k * k).map(|at| (at / k, at % k)) {
                let (s, t) = (i * period + r, j * period + r);
                let expected = if s < steps && t < steps { x[(s, t)] } else { 0.0 };
                assert!(close(blocks[r * k * k + i * k + j], expected), "{steps} {period} {r} {i} {j}");
            }
        }
    }
}

#[test]
fn the_transpose_of_the_sums_is_one() {
    let mut seeded = Seeded(3);
    for seed in 0..100 {
        let comb = random_comb(seed, 40);
        let period = comb.period;
        let k = comb.epochs();
        let sums = Sums::new(k, period, &comb.filter);
        let mut symmetric = || {
            let mut all = vec![0.0; period * k * k];
            for m in all.chunks_exact_mut(k * k) {
                for (i, j) in (0..k * k).map(|at| (at / k, at % k)).filter(|(i, j)| i <= j) {
                    m[i * k + j] = seeded.normal();
                    m[j * k + i] = m[i * k + j];
                }
            }
            all
        };
        let (a, b) = (symmetric(), symmetric());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        assert!(close(dot(&sums.grams(&a), &b), dot(&a, &sums.transposed(&b))));
    }
}

fn workloads(steps: usize) -> Vec<Workload> {
    let rates: Vec<f64> = (0..steps).map(|t| 1.0 - 0.8 * t as f64 / steps as f64).collect();
    vec![
        Workload::prefix_sum(steps),
        Workload::training(steps, 0.9, None).unwrap(),
        Workload::training(steps, 0.0, Some(rates.clone())).unwrap(),
        Workload::training(steps, 0.7, Some(rates)).unwrap(),
    ]
}

#[test]
fn variances_are_those_of_the_columns() {
    for seed in 0..60 {
        let comb = random_comb(seed, 40);
        let (steps, period) = (comb.steps, comb.period);
        for workload in workloads(steps) {
            let fast = Coefficients::new(comb.clone());
            let expected = variances_by_columns(&fast, &workload);
            for (found, expected) in fast.variances(&workload).iter().zip(&expected) {
                assert!(close(*found, *expected), "{steps} {period} {found} {expected}");
            }
        }
    }
}

#[test]
fn the_gradient_of_the_loss_is_that_of_differences() {
    for seed in 0..30 {
        let comb = random_comb(seed, 40);
        let (steps, period) = (comb.steps, comb.period);
        for workload in workloads(steps) {
            let coefficients = Coefficients::new(comb.clone());
            let covariances = coefficients.covariances();
            let training = workload.as_training().unwrap();
            let loss = |output: &[f64], covariances: &[f64]| {
                let system = System::new(period, &comb.filter, training, output);
                system.variances(covariances).iter().sum::<f64>()
            };
            let output = coefficients.output.clone();
            let system = System::new(period, &comb.filter, training, &output);
            let found = system.gradient(&covariances);
            assert!(close(found.loss, loss(&output, &covariances)));
            let h = 1e-5;
            for t in 0..steps {
                let moved = |by: f64| {
                    let mut output = output.clone();
                    output[t] += by;
                    loss(&output, &covariances)
                };
                let expected = (moved(h) - moved(-h)) / (2.0 * h);
                assert!(
                    (found.output[t] - expected).abs() < 1e-6 * found.loss,
                    "{t} {} {expected}",
                    found.output[t]
                );
            }
            // The loss is linear in the covariances.
            let sum: f64 = found.covariance.iter().zip(&covariances).map(|(a, b)| a * b).sum();
            assert!(close(sum, found.loss), "{sum} {}", found.loss);
            let k = comb.epochs();
            for at in (0..covariances.len()).step_by(3) {
                let (r, i, j) = (at / (k * k), at / k % k, at % k);
                if i.max(j) * period + r >= steps {
                    continue;
                }
                let mut moved = covariances.clone();
                moved[at] += 1.0;
                moved[r * k * k + j * k + i] += 1.0;
                let by = loss(&output, &moved) - found.loss;
                let expected = found.covariance[at] + found.covariance[r * k * k + j * k + i];
                assert!((by - expected).abs() < 1e-9 * found.loss.max(by.abs()), "{at} {by} {expected}");
            }
        }
    }
}

/// Steps that are scaled so that what reaches from one to the other counts most, although its weight is 1e-165, and the square of that is no number.
#[test]
fn no_part_of_the_sensitivity_is_lost_by_underflow() {
    let (b, far) = (166, 165);
    let ten = |power: i32| 10f64.powi(power);
    // Step 1 of the first epoch meets step 0 of the second after 165 steps.
    let root = |r: usize| match r {
        0 => ten(41),
        1 => ten(-44), // 1e5 times smaller than along the others: its column is the longest
        _ => ten(41) * ten(r as i32 - b as i32).sqrt(),
    };
    let input = |t: usize| match t {
        0 => ten(50),
        t if t == b => ten(-60),
        t => ten((b - t % b) as i32 - 120).max(ten(-60)) * ten(8),
    };
    let comb = Comb {
        steps: 2 * b,
        period: b,
        filter: Filter::new(&[0.1], &[0.0]).unwrap(),
        mix_knots: vec![0, 1],
        mix: vec![1e-60, 0.0, 1e-60, 1.0, 0.0, 1.0],
        gain_knots: (0..b).collect(),
        input_gain: (0..2 * b).map(input).collect(),
        output_gain: (0..2 * b).map(|t| root(t % b)).collect(),
        residue_gain: (0..b).map(root).collect(),
    };
    comb.check().unwrap();
    let fast = Coefficients::new(comb);
    let unit = dense::from_fn(2 * b, 1, |t, _| f64::from(t == 1));
    let column = fast.encode(&unit).col(0).norm_l2();
    // 1/(e·L) = 1e120 at step b, weight 1e-165 of T⁻¹, 1/o = 1e88. No other column is longer than 1e38.
    assert!((column / (ten(120 + 88) * 0.1f64.powi(far)) - 1.0).abs() < 1e-6, "{column:e}");
    let found = fast.own_sensitivity(&Schema::fixed_order(2 * b, b).unwrap()).unwrap();
    assert!(found.is_err() || found.unwrap().sensitivity.upper >= column);
}

/// A kilobyte can name 2²⁴ steps with 16 buffers, whose tables would take 2 GiB each.
#[test]
fn a_small_file_does_not_ask_for_much_memory() {
    let interlaced: Vec<f64> = (0..32).map(|i| 0.9 - 0.02 * i as f64).collect();
    let [poles, zeros] =
        [0, 1].map(|from| interlaced.iter().skip(from).step_by(2).copied().collect::<Vec<_>>());
    let refused = |steps: usize, period: usize, buffers: usize| {
        let k = steps.div_ceil(period);
        let identity = (0..k).flat_map(|row| (0..=row).map(move |i| f64::from(i == row)));
        let comb = Comb {
            steps,
            period,
            filter: Filter::new(&poles[..buffers], &zeros[..buffers]).unwrap(),
            mix_knots: vec![0],
            mix: identity.collect(),
            gain_knots: vec![0],
            input_gain: vec![1.0; k],
            output_gain: vec![1.0; k],
            residue_gain: Vec::new(),
        };
        let structured = Structured::new(COMB_BLT, 1, comb.to_parameters());
        structured.factorization(steps).err().map(|error| error.to_string())
    };
    for (steps, period, buffers) in [(1 << 24, 1 << 24, 16), (1 << 24, 1 << 17, 1)] {
        let message = refused(steps, period, buffers).unwrap();
        assert!(message.contains("is too large"), "{message}");
    }
    assert_eq!(refused(1 << 20, 1 << 18, 4), None);
}
