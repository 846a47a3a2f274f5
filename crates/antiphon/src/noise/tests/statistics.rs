//! Is the field normal, and are its numbers independent? Moments, the distribution, tails and correlations.
//!
//! Each statistic is compared with what chance alone exceeds once in a thousand. The keys are fixed, so a test that passes
//! will go on passing. The long version, 10⁹ samples of each type and cipher, takes about two minutes on two cores:
//!
//! ```text
//! cargo test --release -p antiphon --lib noise -- --ignored --nocapture
//! ```

use super::*;
use rayon::prelude::*;
use std::f64::consts::FRAC_1_SQRT_2;

/// Two-sided, α = 10⁻³.
const NORMAL: f64 = 3.29;
/// √n·sup|F_n − Φ|, α = 10⁻³ (Kolmogorov).
const KOLMOGOROV: f64 = 1.95;
/// χ² with as many degrees as there are tail cells, α = 10⁻³.
const TAIL_CHI_SQUARED: f64 = 29.6;

/// Coordinates that are drawn at once.
const CHUNK: usize = 1 << 16;
/// Cells of the distribution, on (−8, 8).
const CELLS: usize = 4096;
const REACH: f64 = 8.0;
/// Cells of the tails: between these, on both sides.
const TAILS: [f64; 6] = [3.0, 3.5, 4.0, 4.5, 5.0, f64::INFINITY];
/// Distances whose correlations are tested: neighbours, the cosine's sine, the next group, the next ChaCha block or two.
const LAGS: [usize; 6] = [1, 2, 8, 16, 32, 64];

/// What is summed up.
#[derive(Clone)]
struct Sums {
    count: u64,
    powers: [f64; 4],
    cells: Vec<u64>,
    tails: [[u64; 5]; 2],
    /// Products, and products of x² − 1, at each lag; the last is the next step.
    products: [[f64; 2]; LAGS.len() + 1],
}

impl Sums {
    fn none() -> Sums {
        let (cells, products) = (vec![0; CELLS], [[0.0; 2]; LAGS.len() + 1]);
        Sums { count: 0, powers: [0.0; 4], cells, tails: [[0; 5]; 2], products }
    }

    fn of(here: &[f64], next: &[f64]) -> Sums {
        let mut sums = Sums::none();
        sums.count = CHUNK as u64;
        for x in &here[..CHUNK] {
            let square = x * x;
            for (sum, power) in sums.powers.iter_mut().zip([*x, square, x * square, square * square]) {
                *sum += power;
            }
            let cell = ((x + REACH) * (CELLS as f64 / (2.0 * REACH))) as usize;
            sums.cells[cell.min(CELLS - 1)] += 1;
            if x.abs() > TAILS[0] {
                let tail = TAILS.iter().rposition(|low| x.abs() > *low).expect("a tail");
                sums.tails[usize::from(*x > 0.0)][tail] += 1;
            }
        }
        for (lag, products) in LAGS.iter().zip(&mut sums.products) {
            *products = correlation(here, &here[*lag..]);
        }
        sums.products[LAGS.len()] = correlation(here, next);
        sums
    }

    fn plus(mut self, other: Sums) -> Sums {
        self.count += other.count;
        self.powers.iter_mut().zip(other.powers).for_each(|(a, b)| *a += b);
        self.cells.iter_mut().zip(other.cells).for_each(|(a, b)| *a += b);
        self.tails.as_flattened_mut().iter_mut().zip(other.tails.as_flattened()).for_each(|(a, b)| *a += b);
        let products = self.products.as_flattened_mut().iter_mut();
        products.zip(other.products.as_flattened()).for_each(|(a, b)| *a += b);
        self
    }

    /// Every statistic in units of what it may be.
    fn check(&self, name: &str) {
        let n = self.count as f64;
        let mut found = Vec::new();
        // The variance of xᵏ is E x²ᵏ − (E xᵏ)²: 1, 2, 15, 96.
        for (k, (mean, variance)) in
            [(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0f64)].into_iter().enumerate()
        {
            let errors = (self.powers[k] - n * mean) / (n * variance).sqrt();
            found.push((format!("moment {}", k + 1), errors.abs() / NORMAL));
        }
        let (mut below, mut distance) = (0, 0.0f64);
        for (i, cell) in self.cells.iter().enumerate().take(CELLS - 1) {
            below += cell;
            let edge = (i + 1) as f64 * (2.0 * REACH / CELLS as f64) - REACH;
            distance = distance.max((below as f64 / n - normal_below(edge)).abs());
        }
        found.push(("distribution".into(), distance * n.sqrt() / KOLMOGOROV));
        let mut chi_squared = 0.0;
        for (i, ends) in TAILS.windows(2).enumerate() {
            let expected = n * (normal_below(-ends[0]) - normal_below(-ends[1]));
            for side in self.tails {
                chi_squared += (side[i] as f64 - expected).powi(2) / expected;
            }
        }
        found.push(("tails".into(), chi_squared / TAIL_CHI_SQUARED));
        for (i, [plain, squares]) in self.products.into_iter().enumerate() {
            let what = LAGS.get(i).map_or("the next step".into(), |lag| format!("{lag} further"));
            found.push((format!("correlation, {what}"), plain.abs() / n.sqrt() / NORMAL));
            found.push((format!("correlation of squares, {what}"), squares.abs() / n.sqrt() / NORMAL));
        }
        for (what, ratio) in found {
            println!("{name} {what:<42} {ratio:.2} of its limit");
            assert!(ratio < 1.0, "{name}: {what} is {ratio} times its limit");
        }
    }
}

/// Sums of xy, and of (x² − 1)(y² − 1)/2; both have variance one per term.
fn correlation(here: &[f64], there: &[f64]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for (x, y) in here[..CHUNK].iter().zip(there) {
        sums[0] += x * y;
        sums[1] += (x * x - 1.0) * (y * y - 1.0) / 2.0;
    }
    sums
}

/// Φ.
fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// Statistics of the first `chunks` chunks of a step.
fn examine<T: Normal + Into<f64>>(name: &str, key: &Key, chunks: usize) {
    let sums = (0..chunks)
        .into_par_iter()
        .map(|chunk| {
            // Beyond the chunk as far as the longest lag.
            let row = |step: u64| -> Vec<f64> {
                let drawn: Vec<T> = drawn(key, step, (chunk * CHUNK) as u64, CHUNK + LAGS[LAGS.len() - 1]);
                drawn.into_iter().map(Into::into).collect()
            };
            Sums::of(&row(1000), &row(1001))
        })
        .reduce(Sums::none, Sums::plus);
    sums.check(&format!("{name} {}", key.cipher()));
}

#[test]
fn the_field_is_normal_and_independent() {
    let chunks = 10_000_000usize.div_ceil(CHUNK);
    for cipher in Cipher::ALL {
        examine::<f32>("f32", &Key::from_seed(2024, cipher), chunks);
        examine::<f64>("f64", &Key::from_seed(2025, cipher), chunks);
    }
}

#[test]
#[ignore = "10⁹ samples, for a release build"]
fn the_field_is_normal_and_independent_at_length() {
    let chunks = 1_000_000_000usize.div_ceil(CHUNK);
    for cipher in Cipher::ALL {
        examine::<f32>("f32", &Key::from_seed(2026, cipher), chunks);
        examine::<f64>("f64", &Key::from_seed(2027, cipher), chunks);
    }
}

/// The tests can fail: a field that ends at four standard deviations is noticed.
#[test]
#[should_panic(expected = "limit")]
fn a_field_without_tails_is_noticed() {
    let clipped = |i: usize| {
        let x: Vec<f64> = drawn(&Key::from_seed(1, Cipher::ChaCha20), i as u64, 0, CHUNK + 64);
        x.into_iter().map(|x| x.clamp(-4.0, 4.0)).collect::<Vec<f64>>()
    };
    (0..100).map(|i| Sums::of(&clipped(i), &clipped(i + 1))).fold(Sums::none(), Sums::plus).check("clipped");
}
