//! Is a field normal, and are its numbers independent? Moments, the distribution, tails and correlations, each with the
//! probability that chance alone does as badly.

use std::f64::consts::FRAC_1_SQRT_2;

/// Coordinates that are drawn at once.
pub const CHUNK: usize = 1 << 16;
/// Cells of the distribution, on (−8, 8).
const CELLS: usize = 4096;
const REACH: f64 = 8.0;
/// Cells of the tails: between these, on both sides.
const TAILS: [f64; 6] = [3.0, 3.5, 4.0, 4.5, 5.0, f64::INFINITY];
/// Numbers beyond a chunk that its correlations need.
pub const OVERLAP: usize = LAGS[LAGS.len() - 1];
/// Distances whose correlations are tested: neighbours, the cosine's sine, the next group, the next ChaCha block or two.
pub const LAGS: [usize; 6] = [1, 2, 8, 16, 32, 64];

/// What is summed up over chunks of a field.
#[derive(Clone)]
pub struct Sums {
    count: u64,
    powers: [f64; 4],
    cells: Vec<u64>,
    tails: [[u64; 5]; 2],
    /// Products, and products of x² − 1, at each lag; the last is the next step.
    products: [[f64; 2]; LAGS.len() + 1],
}

impl Sums {
    /// Of nothing.
    pub fn none() -> Sums {
        let (cells, products) = (vec![0; CELLS], [[0.0; 2]; LAGS.len() + 1]);
        Sums { count: 0, powers: [0.0; 4], cells, tails: [[0; 5]; 2], products }
    }

    /// Of one chunk of a step and of the next step, each [`OVERLAP`] numbers longer.
    pub fn of(here: &[f64], next: &[f64]) -> Sums {
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

    /// Of both.
    pub fn plus(mut self, other: Sums) -> Sums {
        self.count += other.count;
        self.powers.iter_mut().zip(other.powers).for_each(|(a, b)| *a += b);
        self.cells.iter_mut().zip(other.cells).for_each(|(a, b)| *a += b);
        self.tails.as_flattened_mut().iter_mut().zip(other.tails.as_flattened()).for_each(|(a, b)| *a += b);
        let products = self.products.as_flattened_mut().iter_mut();
        products.zip(other.products.as_flattened()).for_each(|(a, b)| *a += b);
        self
    }

    /// All tests.
    pub fn tests(&self) -> Vec<Test> {
        let n = self.count as f64;
        let mut tests = Vec::new();
        // The variance of xᵏ is E x²ᵏ − (E xᵏ)²: 1, 2, 15, 96.
        for (k, (mean, variance)) in
            [(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0f64)].into_iter().enumerate()
        {
            let errors = (self.powers[k] - n * mean) / (n * variance).sqrt();
            tests.push(Test::normal(format!("moment {}", k + 1), errors));
        }
        let (mut below, mut distance) = (0, 0.0f64);
        for (i, cell) in self.cells.iter().enumerate().take(CELLS - 1) {
            below += cell;
            let edge = (i + 1) as f64 * (2.0 * REACH / CELLS as f64) - REACH;
            distance = distance.max((below as f64 / n - normal_below(edge)).abs());
        }
        tests.push(Test::kolmogorov("Kolmogorov–Smirnov", distance * n.sqrt()));
        let (mut chi_squared, mut cells) = (0.0, 0);
        for (i, ends) in TAILS.windows(2).enumerate() {
            let expected = n * (normal_below(-ends[0]) - normal_below(-ends[1]));
            // Counts that are too small to be nearly normal say nothing by their squares.
            if expected >= 5.0 {
                cells += 2;
                chi_squared +=
                    self.tails.iter().map(|side| (side[i] as f64 - expected).powi(2) / expected).sum::<f64>();
            }
        }
        tests.push(Test::chi_squared("tails", chi_squared, cells));
        for (i, [plain, squares]) in self.products.into_iter().enumerate() {
            let what = LAGS.get(i).map_or("next step".into(), |lag| format!("lag {lag}"));
            tests.push(Test::normal(format!("correlation, {what}"), plain / n.sqrt()));
            tests.push(Test::normal(format!("correlation of squares, {what}"), squares / n.sqrt()));
        }
        tests
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

/// One test and what came out.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Test {
    /// What was tested.
    pub name: String,
    /// The statistic: standard errors, or as the name of the test says.
    pub statistic: f64,
    /// How likely chance alone is to do as badly.
    pub p_value: f64,
}

impl Test {
    /// A number that should be standard normal, two-sided.
    pub fn normal(name: impl Into<String>, errors: f64) -> Test {
        Test { name: name.into(), statistic: errors, p_value: libm::erfc(errors.abs() * FRAC_1_SQRT_2) }
    }

    /// The largest of several such numbers in absolute value, which need not be independent (Bonferroni).
    pub fn largest(name: impl Into<String>, errors: &[f64]) -> Test {
        // What is no number must stay noticeable: min and max would drop it.
        let worse = |a: f64, b: &f64| if a.is_nan() || b.abs() <= a { a } else { b.abs() };
        let one = Test::normal(name, errors.iter().fold(0.0, worse));
        // Of none there is nothing to find fault with: a mechanism of one step has no pairs.
        let p_value = one.p_value * errors.len().max(1) as f64;
        Test { p_value: if p_value > 1.0 { 1.0 } else { p_value }, ..one }
    }

    /// √n·sup|F_n − Φ|.
    fn kolmogorov(name: &str, distance: f64) -> Test {
        // 2·Σ (−1)^{k−1}·e^{−2k²x²}; below 0.3 it is one to nine digits, and the sum converges slowly.
        let term = |k: i32| {
            2.0 * f64::from(1 - 2 * ((k + 1) % 2)) * (-2.0 * f64::from(k * k) * distance * distance).exp()
        };
        let p_value = if distance < 0.3 { 1.0 } else { (1..40).map(term).sum::<f64>().clamp(0.0, 1.0) };
        Test { name: name.into(), statistic: distance, p_value }
    }

    /// χ² with an even number of degrees of freedom: e^{−x/2}·Σ_{i < degrees/2} (x/2)ⁱ/i!.
    fn chi_squared(name: &str, statistic: f64, degrees: usize) -> Test {
        let (half, mut term, mut sum) = (statistic / 2.0, 1.0, 0.0);
        for i in 0..degrees / 2 {
            sum += term;
            term *= half / (i + 1) as f64;
        }
        let p_value = if degrees == 0 { 1.0 } else { sum * (-half).exp() };
        Test { name: name.into(), statistic, p_value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_the_tables() {
        // Quantiles of the usual tables.
        assert!((Test::normal("", -1.959964).p_value - 0.05).abs() < 1e-6);
        assert!((Test::normal("", 3.290527).p_value - 1e-3).abs() < 1e-8);
        assert!((Test::kolmogorov("", 1.358).p_value - 0.05).abs() < 1e-4);
        assert!((Test::kolmogorov("", 1.949).p_value - 1e-3).abs() < 1e-5);
        assert!((Test::chi_squared("", 18.307, 10).p_value - 0.05).abs() < 1e-5);
        assert!((Test::chi_squared("", 29.588, 10).p_value - 1e-3).abs() < 1e-6);
        assert!((Test::largest("", &[1.0, -3.290527]).p_value - 2e-3).abs() < 1e-8);
        assert!(Test::largest("", &[f64::NAN, 1.0]).p_value.is_nan());
        assert_eq!(Test::largest("", &[]).p_value, 1.0);
    }
}
