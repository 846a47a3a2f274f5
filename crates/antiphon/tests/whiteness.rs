//! Is the noise that a mechanism draws the noise that its matrix promises? Whitened by the mechanism's own matrix it
//! must be white. The test must be able to fail: two classic mistakes have to be caught by it.
//!
//! For every mechanism, 10⁵ coordinates of noise N = W·Z over 24 steps, with a fixed key. With LLᵀ = W·Wᵀ, the rows
//! of Y = L⁻¹N are independent and standard normal. Two tests, each at α = 10⁻³ per mechanism:
//!
//! - variances: the sum of squares of row t is χ² with d degrees, so (Σy² − d)/√(2d) is standard normal for large d,
//!   and the sum of their squares over the steps is χ² with 24 degrees;
//! - the largest of all 276 correlations between steps, each normal with variance 1/d, against the two-sided quantile
//!   at α/276 (Bonferroni).

use antiphon::families;
use antiphon::families::comb::{Comb, filter::Filter};
use antiphon::linalg::dense::{self, Matrix};
use antiphon::make;
use antiphon::mechanism::{DenseFactorization, Factorization, Noise, Stamped, Structured};
use antiphon::noise::{Cipher, Key, Rows, Stddev};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::verify::verify;
use antiphon::workload::Workload;
use std::sync::Arc;

const STEPS: usize = 24;
const COORDINATES: usize = 100_000;
const ALPHA: f64 = 1e-3;
/// Coordinates that are drawn at once.
const TILE: usize = 4_000;

/// What the tests look at: the p-value of the variances, and of the largest correlation.
#[derive(Debug)]
struct Whiteness {
    variances: f64,
    correlation: f64,
}

impl Whiteness {
    fn white(&self) -> bool {
        self.variances > ALPHA && self.correlation > ALPHA
    }
}

/// L with LLᵀ = W·Wᵀ.
fn covariance_factor(factorization: &dyn Factorization) -> Matrix {
    let w = factorization.noise(&dense::identity(factorization.inputs()));
    let mut l = &w * w.transpose();
    dense::cholesky_in_place(&mut l).unwrap();
    l
}

/// Tests noise that is drawn tile by tile: `draw(first coordinate, width)` gives one column per coordinate.
fn test(factor: &Matrix, mut draw: impl FnMut(usize, usize) -> Matrix) -> Whiteness {
    let whiten = dense::lower_inverse(factor).unwrap();
    let mut products = Matrix::zeros(STEPS, STEPS);
    for first in (0..COORDINATES).step_by(TILE) {
        let white = &whiten * &draw(first, TILE);
        products += &white * white.transpose();
    }
    let d = COORDINATES as f64;
    let chi_squared: f64 = (0..STEPS).map(|t| (products[(t, t)] - d).powi(2) / (2.0 * d)).sum();
    // The upper tail of χ² with an even number 2m of degrees: e^(−x/2)·Σ_{j<m} (x/2)^j/j!.
    let half = chi_squared / 2.0;
    let terms = (0..STEPS / 2).scan(1.0, |term, j| {
        let now = *term;
        *term *= half / (j + 1) as f64;
        Some(now)
    });
    let variances = (-half).exp() * terms.sum::<f64>();
    let mut largest = 0.0f64;
    for i in 0..STEPS {
        for j in 0..i {
            let correlation = products[(i, j)] / (products[(i, i)] * products[(j, j)]).sqrt();
            largest = largest.max(correlation.abs() * d.sqrt());
        }
    }
    let pairs = (STEPS * (STEPS - 1) / 2) as f64;
    // Two-sided normal tail, times the number of pairs.
    let correlation = (pairs * libm::erfc(largest / 2f64.sqrt())).min(1.0);
    Whiteness { variances, correlation }
}

/// Rows `rows` of Z for a range of coordinates.
fn gaussians(key: &Key, rows: usize, first: usize, width: usize) -> Matrix {
    let mut row = vec![0.0; width];
    let mut z = Matrix::zeros(rows, width);
    for i in 0..rows {
        key.fill(i as u64, first as u64, &mut row);
        row.iter().enumerate().for_each(|(j, x)| z[(i, j)] = *x);
    }
    z
}

/// Of combs: epochs that divide the steps, a last epoch that is not complete, and a single epoch.
const PERIODS: [usize; 3] = [8, 7, STEPS];

/// A comb with two buffers and so much of each normal in the next epochs.
fn comb(period: usize, mixed: f64) -> Comb {
    let k = STEPS.div_ceil(period);
    let entry = |row: usize, column: usize| if row == column { 1.0 } else { -mixed / (row - column) as f64 };
    let mix: Vec<f64> = (0..k).flat_map(|row| (0..=row).map(move |column| entry(row, column))).collect();
    let gain =
        |count: usize, last: f64| (0..count).map(|i| 1.0 + (last - 1.0) * i as f64 / count as f64).collect();
    Comb {
        steps: STEPS,
        period,
        filter: Filter::new(&[0.97, 0.6], &[0.8, 0.2]).unwrap(),
        mix_knots: vec![0, period - 1],
        mix: mix.iter().copied().chain(mix.iter().map(|x| x * 1.1)).collect(),
        gain_knots: vec![0, period - 1],
        input_gain: gain(2 * k, 1.3),
        output_gain: gain(2 * k, 0.7),
        residue_gain: Vec::new(),
    }
}

fn structured(comb: &Comb) -> Structured {
    Structured::new(families::COMB_BLT, 1, comb.to_parameters())
}

/// Every mechanism, under its name.
fn mechanisms() -> Vec<(String, Arc<dyn Factorization>)> {
    let mut all: Vec<(String, Arc<dyn Factorization>)> = Vec::new();
    for family in families::formulas() {
        for stamps in [1, 3, 5] {
            let stamped = Structured::formula(family, stamps).factorization(STEPS).unwrap();
            all.push((format!("{} ×{stamps}", family.name()), Arc::new(stamped)));
        }
    }
    for period in PERIODS {
        let stamped = structured(&comb(period, 0.3)).factorization(STEPS).unwrap();
        all.push((format!("comb, period {period}"), Arc::new(stamped)));
    }
    let dense = |schema: Schema| -> Arc<dyn Factorization> {
        let workload = Workload::training(schema.steps(), 0.9, None).unwrap();
        let optimized = optimize(&schema, &workload, &Params::default(), &|_| true).unwrap();
        let Noise::Dense(noising) = optimized.mechanism.noise() else { panic!("a dense mechanism") };
        Arc::new(DenseFactorization::new(noising.clone()).unwrap())
    };
    all.push(("optimal".into(), dense(Schema::epochs(3, 8).unwrap())));
    all.push(("single-epoch".into(), dense(Schema::single(STEPS).unwrap())));
    let stamped = Stamped::of((0..2).map(|_| dense(Schema::single(STEPS / 2).unwrap())));
    all.push(("single-epoch ×2".into(), Arc::new(stamped)));
    all
}

#[test]
fn noise_is_white_once_its_own_matrix_is_undone() {
    for (number, (name, mechanism)) in mechanisms().iter().enumerate() {
        let key = Key::from_seed(number as u64, Cipher::Aes256Ctr);
        let draw = |first, width| mechanism.noise(&gaussians(&key, mechanism.inputs(), first, width));
        let found = test(&covariance_factor(mechanism.as_ref()), draw);
        assert!(found.white(), "{name}: {found:?}");
    }
}

/// The first mistake: Z is drawn anew at every step, so each row has the right variance and none of the correlations.
#[test]
fn redrawing_z_at_every_step_is_caught() {
    // One of each kind: a fresh Z for every step is a lot to draw.
    for (name, mechanism) in
        mechanisms().into_iter().filter(|(name, _)| !name.contains("×3") && !name.contains("×5"))
    {
        let w = mechanism.noise(&dense::identity(mechanism.inputs()));
        let draw = |first, width| {
            let mut noise = Matrix::zeros(STEPS, width);
            for t in 0..STEPS {
                let fresh = gaussians(
                    &Key::from_seed(1000 + t as u64, Cipher::Aes256Ctr),
                    mechanism.inputs(),
                    first,
                    width,
                );
                let row = w.row(t) * &fresh;
                (0..width).for_each(|j| noise[(t, j)] = row[j]);
            }
            noise
        };
        let found = test(&covariance_factor(mechanism.as_ref()), draw);
        // Independent noise is the one mechanism that does not mind.
        assert_eq!(found.white(), name.starts_with("identity"), "{name}: {found:?}");
    }
}

/// The second mistake: the Cholesky factor is used transposed, so the noise has the covariance LᵀL and not LLᵀ.
#[test]
fn a_transposed_cholesky_factor_is_caught() {
    for (number, (name, mechanism)) in mechanisms().iter().enumerate() {
        let key = Key::from_seed(2000 + number as u64, Cipher::Aes256Ctr);
        let factor = covariance_factor(mechanism.as_ref());
        let right = test(&factor, |first, width| &factor * &gaussians(&key, STEPS, first, width));
        assert!(right.white(), "{name}: {right:?}");
        let wrong = test(&factor, |first, width| factor.transpose() * &gaussians(&key, STEPS, first, width));
        assert_eq!(wrong.white(), name.starts_with("identity"), "{name}: {wrong:?}");
    }
}

/// The stream itself, as training reads it: white by the matrix of its own comb, and not by that of one with other mixes, without
/// replayed normals, or with other epochs.
#[test]
fn streams_of_combs_are_white_and_those_of_others_are_not() {
    for period in PERIODS {
        let schema = Schema::fixed_order(STEPS, period).unwrap();
        let workload = Workload::prefix_sum(STEPS);
        let made =
            make::structured(structured(&comb(period, 0.3)), &schema, &workload, 0.1, &|_| true).unwrap();
        let (key, sigma) = (Key::from_seed(3000, Cipher::Aes256Ctr), Stddev::without_privacy(1.0).unwrap());
        let mut rows = Rows::of(&verify(made).unwrap(), &key, sigma, 0..COORDINATES as u64, 1 << 20).unwrap();
        let mut noise = vec![vec![0.0f32; COORDINATES]; STEPS];
        noise.iter_mut().for_each(|row| rows.next_into(row).unwrap());
        let draw =
            |first: usize, width: usize| dense::from_fn(STEPS, width, |t, j| f64::from(noise[t][first + j]));
        let whitened =
            |comb: &Comb| test(&covariance_factor(&structured(comb).factorization(STEPS).unwrap()), draw);
        let right = whitened(&comb(period, 0.3));
        assert!(right.white(), "{period}: {right:?}");
        let mut gained = comb(period, 0.3);
        gained.output_gain.iter_mut().for_each(|x| *x *= 1.02);
        let mut filtered = comb(period, 0.3);
        filtered.filter = Filter::new(&[0.97, 0.6], &[0.82, 0.2]).unwrap();
        let mixed = [0.25, 0.0].map(|mixed| comb(period, mixed));
        // A comb of one epoch has nothing to mix.
        let mixed = mixed.into_iter().chain([comb(period - 1, 0.3)]).filter(|_| period < STEPS);
        for (number, wrong) in [gained, filtered].into_iter().chain(mixed).enumerate() {
            let found = whitened(&wrong);
            assert!(!found.white(), "{period}, wrong {number}: {found:?}");
        }
    }
}
