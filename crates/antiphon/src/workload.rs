//! Workloads: the linear map A that training applies to the stream of gradients.
//!
//! A model after step t is the sum of all updates so far. With learning rates η and
//! momentum β that is
//!
//! ```text
//! A = S · diag(η) · M_β,     S prefix sum, M_β[i,j] = β^(i−j) for i ≥ j,
//! A⁻¹ = (I − βN) · diag(1/η) · (I − N),     N the shift by one step,
//! ```
//!
//! so A⁻¹ has at most two bands below its diagonal. The linear-time solver lives on that.

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// A lower triangular, invertible workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Stochastic gradient descent with momentum and a learning-rate schedule.
    Training(Training),
    /// Any lower triangular matrix with a non-zero diagonal.
    Dense(Matrix),
}

/// The parameters of [`Workload::Training`].
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    steps: usize,
    momentum: f64,
    /// `None` means all ones.
    rates: Option<Vec<f64>>,
}

/// A linear fall of the learning rate at the end of training, written `FRACTION:END`.
///
/// With m = round(FRACTION·n): η_{n−m+j} = 1 + (END − 1)(j + 1)/m for j = 0..m−1, and 1 before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cooldown {
    /// The part of all steps over which the rate falls, in (0, 1].
    pub fraction: f64,
    /// The last rate as a multiple of the first, in (0, 1].
    pub end: f64,
}

impl Cooldown {
    /// The rates of all steps.
    pub fn rates(&self, steps: usize) -> Result<Vec<f64>> {
        if !(self.fraction > 0.0 && self.fraction <= 1.0) {
            return Err(Error::argument("the cooldown's FRACTION", "in (0, 1]", self.fraction));
        }
        if !(self.end > 0.0 && self.end <= 1.0) {
            return Err(Error::argument("the cooldown's END", "in (0, 1]", self.end));
        }
        let falling = (self.fraction * steps as f64).round() as usize;
        Ok((0..steps)
            .map(|i| match (i + falling).checked_sub(steps) {
                Some(j) => 1.0 + (self.end - 1.0) * (j + 1) as f64 / falling as f64,
                None => 1.0,
            })
            .collect())
    }
}

impl std::str::FromStr for Cooldown {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::argument("the cooldown", "FRACTION:END, for example 0.25:0.05", text);
        let (fraction, end) = text.split_once(':').ok_or_else(bad)?;
        let cooldown = Cooldown {
            fraction: fraction.trim().parse().map_err(|_| bad())?,
            end: end.trim().parse().map_err(|_| bad())?,
        };
        cooldown.rates(1).map(|_| cooldown)
    }
}

impl Workload {
    /// All ones on and below the diagonal: the model after each step of plain SGD.
    pub fn prefix_sum(steps: usize) -> Self {
        Workload::Training(Training { steps, momentum: 0.0, rates: None })
    }

    /// SGD with momentum in [0, 1) and, if given, one positive learning rate per step.
    pub fn training(steps: usize, momentum: f64, rates: Option<Vec<f64>>) -> Result<Self> {
        if !(0.0..1.0).contains(&momentum) {
            return Err(Error::argument("momentum", "in [0, 1)", momentum));
        }
        if let Some(rates) = &rates {
            if rates.len() != steps {
                let allowed = format!("a list of {steps} rates, one per step");
                let value = format!("{} rates", rates.len());
                return Err(Error::argument("learning_rates", allowed, value));
            }
            // Far from overflow in all that is computed from them.
            if let Some(i) = rates.iter().position(|r| !(1e-30..=1e30).contains(r)) {
                let argument = format!("the learning rate of step {i}");
                return Err(Error::argument(argument, "in [1e-30, 1e30]", rates[i]));
            }
        }
        Ok(Workload::Training(Training { steps, momentum, rates }))
    }

    /// A lower triangular matrix with a non-zero diagonal.
    pub fn dense(a: Matrix) -> Result<Self> {
        dense::check_invertible_triangle(&a, "the workload matrix")?;
        Ok(Workload::Dense(a))
    }

    /// n.
    pub fn steps(&self) -> usize {
        match self {
            Workload::Training(training) => training.steps,
            Workload::Dense(a) => a.nrows(),
        }
    }

    /// A/s for a power of two s near its largest entry (or learning rate), and s: nothing is rounded unless entries are 300 decades apart. `None` where
    /// that is of no use, between 2⁻⁴⁰ and 2⁴⁰.
    pub fn normalized(&self) -> Option<(Workload, f64)> {
        let largest = match self {
            Workload::Training(training) => training.rates()?.iter().copied().fold(0.0, f64::max),
            Workload::Dense(a) => (0..a.ncols())
                .flat_map(|j| a.col_as_slice(j))
                .fold(0.0, |largest: f64, x| largest.max(x.abs())),
        };
        let exponent = largest.log2().floor();
        if exponent.abs() <= 40.0 || !exponent.is_finite() {
            return None;
        }
        // In two steps: one alone may be out of range.
        let half = (-exponent / 2.0).floor() as i32;
        let (first, second) = (2f64.powi(half), 2f64.powi(-(exponent as i32) - half));
        let divided = |x: f64| x * first * second;
        let workload = match self {
            Workload::Training(training) => {
                let rates = training.rates.as_ref().map(|rates| rates.iter().map(|x| divided(*x)).collect());
                Workload::Training(Training { rates, ..training.clone() })
            }
            Workload::Dense(a) => {
                Workload::dense(dense::from_fn(a.nrows(), a.ncols(), |i, j| divided(a[(i, j)]))).ok()?
            }
        };
        Some((workload, 2f64.powi(exponent as i32)))
    }

    /// A as a dense matrix.
    pub fn matrix(&self) -> Matrix {
        match self {
            Workload::Training(training) => {
                let mut a = dense::identity(training.steps);
                for j in 0..training.steps {
                    training.apply(a.col_as_slice_mut(j));
                }
                a
            }
            Workload::Dense(a) => a.clone(),
        }
    }

    /// A·m. Linear in the size of m for a training workload.
    pub fn apply(&self, m: &Matrix) -> Matrix {
        match self {
            Workload::Training(training) => {
                let mut product = m.clone();
                for j in 0..m.ncols() {
                    training.apply(product.col_as_slice_mut(j));
                }
                product
            }
            Workload::Dense(a) => a * m,
        }
    }

    /// An upper bound on ‖A·m‖_F: the computed norm and what rounding can have taken from it.
    ///
    /// Each entry of a computed product is Σ_s A_is·m_sj with every term perturbed by at most 3n roundings (two per
    /// step of momentum, one per step of the sum), so the error is at most γ_{3n}·(|A||m|)_ij; the sum of n² squares
    /// adds 2n roundings.
    pub fn product_norm(&self, m: &Matrix) -> f64 {
        let rounding = 4.0 * self.steps() as f64 * f64::EPSILON; // γ_{3n} and more, with ε twice the unit roundoff
        self.norms(m).0 * (1.0 + rounding) + rounding * self.absolute_product_norm(m)
    }

    /// ‖|A||m|‖_F, which measures rounding errors of A·m.
    pub fn absolute_product_norm(&self, m: &Matrix) -> f64 {
        self.norms(m).1
    }

    /// ‖A·m‖_F and ‖|A||m|‖_F as computed.
    fn norms(&self, m: &Matrix) -> (f64, f64) {
        let (squares, absolute): (Vec<f64>, Vec<f64>) = match self {
            // A has no negative entries.
            Workload::Training(training) => (0..m.ncols())
                .into_par_iter()
                .map(|j| {
                    let square = |mut column: Vec<f64>| -> f64 {
                        training.apply(&mut column);
                        column.iter().map(|x| x * x).sum()
                    };
                    let column = m.col_as_slice(j);
                    (square(column.to_vec()), square(column.iter().map(|x| x.abs()).collect()))
                })
                .unzip(),
            Workload::Dense(a) => {
                let absolute = |m: &Matrix| dense::from_fn(m.nrows(), m.ncols(), |i, j| m[(i, j)].abs());
                (vec![dense::squared_norm(&(a * m))], vec![dense::squared_norm(&(absolute(a) * absolute(m)))])
            }
        };
        // Up: a square that underflows is below the smallest number, of which 2⁻¹⁰⁷⁴ is one.
        let lost = self.steps() as f64 * m.ncols() as f64 * f64::from_bits(1);
        ((squares.iter().sum::<f64>() + lost).sqrt(), (absolute.iter().sum::<f64>() + lost).sqrt())
    }

    /// The bands of A⁻¹ where it has few.
    pub fn inverse_bands(&self) -> Option<InverseBands> {
        match self {
            Workload::Training(training) => Some(training.inverse_bands()),
            Workload::Dense(_) => None,
        }
    }

    /// The parameters of a training workload.
    pub fn as_training(&self) -> Option<&Training> {
        match self {
            Workload::Training(training) => Some(training),
            Workload::Dense(_) => None,
        }
    }

    /// The workload in words, for people.
    pub fn describe(&self) -> String {
        match self {
            Workload::Training(Training { momentum, rates, .. }) => {
                match (*momentum > 0.0, rates.is_some()) {
                    (false, false) => "prefix sum".into(),
                    (true, false) => format!("momentum {momentum}"),
                    (false, true) => "learning-rate schedule".into(),
                    (true, true) => format!("momentum {momentum} with a learning-rate schedule"),
                }
            }
            Workload::Dense(_) => "a dense matrix".into(),
        }
    }
}

impl Training {
    /// β.
    pub fn momentum(&self) -> f64 {
        self.momentum
    }

    /// η, or `None` where all are 1.
    pub fn rates(&self) -> Option<&[f64]> {
        self.rates.as_deref()
    }

    /// The largest ratio of a rate to an earlier one.
    pub fn largest_rise(&self) -> f64 {
        let (mut least, mut rise) = (f64::INFINITY, 1.0f64);
        for rate in self.rates().unwrap_or(&[]) {
            least = least.min(*rate);
            rise = rise.max(rate / least);
        }
        rise
    }

    /// Whether this is the plain prefix sum: no momentum, all rates one.
    pub fn is_prefix_sum(&self) -> bool {
        self.momentum == 0.0 && self.rates.is_none()
    }

    /// The steps `from..to` as a workload of their own: a diagonal block of A.
    pub fn part(&self, from: usize, to: usize) -> Training {
        let rates = self.rates.as_ref().map(|rates| rates[from..to].to_vec());
        Training { steps: to - from, momentum: self.momentum, rates }
    }

    /// A run of fewer steps, with the rates of these.
    pub(crate) fn sampled(&self, steps: impl ExactSizeIterator<Item = usize>) -> Training {
        let count = steps.len();
        let rates = self.rates.as_ref().map(|rates| steps.map(|t| rates[t]).collect());
        Training { steps: count, momentum: self.momentum, rates }
    }

    /// The learning rate of a step.
    pub fn rate(&self, i: usize) -> f64 {
        self.rates.as_ref().map_or(1.0, |rates| rates[i])
    }

    /// x ← A·x, by the recurrences of momentum and of the prefix sum.
    pub fn apply(&self, x: &mut [f64]) {
        let (mut velocity, mut sum) = (0.0, 0.0);
        for (i, x) in x.iter_mut().enumerate() {
            velocity = self.momentum * velocity + *x;
            sum += self.rate(i) * velocity;
            *x = sum;
        }
    }

    /// x ← Aᵀ·x, the same recurrences run backwards.
    pub fn apply_transpose(&self, x: &mut [f64]) {
        let (mut velocity, mut sum) = (0.0, 0.0);
        for (i, x) in x.iter_mut().enumerate().rev() {
            sum += *x;
            velocity = self.momentum * velocity + self.rate(i) * sum;
            *x = velocity;
        }
    }

    fn inverse_bands(&self) -> InverseBands {
        let inverse = |i: usize| 1.0 / self.rate(i);
        let beta = self.momentum;
        let bandwidth = if beta > 0.0 { 2 } else { 1 };
        let rows = (0..self.steps)
            .map(|i| {
                let before = if i > 0 { beta * inverse(i - 1) } else { 0.0 };
                [inverse(i), if i > 0 { -inverse(i) - before } else { 0.0 }, if i > 1 { before } else { 0.0 }]
            })
            .collect();
        InverseBands { bandwidth, rows }
    }
}

/// A⁻¹ as a lower banded matrix.
#[derive(Debug, Clone)]
pub struct InverseBands {
    /// The number of bands below the diagonal, 1 or 2.
    pub bandwidth: usize,
    /// Row i holds A⁻¹[i, i], A⁻¹[i, i−1], A⁻¹[i, i−2].
    pub rows: Vec<[f64; 3]>,
}

impl InverseBands {
    /// A⁻¹[i, j].
    pub fn get(&self, i: usize, j: usize) -> f64 {
        match i.checked_sub(j) {
            Some(distance) if distance < 3 => self.rows[i][distance],
            _ => 0.0,
        }
    }

    /// x ← A⁻¹·x.
    pub fn apply(&self, x: &mut [f64]) {
        for i in (0..x.len()).rev() {
            let row = &self.rows[i];
            x[i] = (0..=i.min(2)).map(|d| row[d] * x[i - d]).sum();
        }
    }

    /// x ← A⁻ᵀ·x.
    pub fn apply_transpose(&self, x: &mut [f64]) {
        let n = x.len();
        for j in 0..n {
            x[j] = (0..=2.min(n - 1 - j)).map(|d| self.rows[j + d][d] * x[j + d]).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workloads(n: usize) -> Vec<Workload> {
        let rates = Cooldown { fraction: 0.5, end: 0.05 }.rates(n).unwrap();
        vec![
            Workload::prefix_sum(n),
            Workload::training(n, 0.9, None).unwrap(),
            Workload::training(n, 0.0, Some(rates.clone())).unwrap(),
            Workload::training(n, 0.95, Some(rates)).unwrap(),
        ]
    }

    #[test]
    fn norms_of_tiny_products_are_not_understated() {
        // Entries of 1.5e-162, whose squares are below the smallest number.
        let n = 200;
        let workload = Workload::training(n, 0.0, Some(vec![1e-8; n])).unwrap();
        let m = dense::from_fn(n, n, |i, j| if i == j { 1.5e-154 } else { 0.0 });
        let exact = 1.5e-162 * ((n * (n + 1)) as f64 / 2.0).sqrt();
        assert!(workload.product_norm(&m) >= exact, "{:e}", workload.product_norm(&m));
    }

    #[test]
    fn the_matrix_is_the_definition() {
        for workload in workloads(7) {
            let training = workload.as_training().unwrap();
            let a = workload.matrix();
            for i in 0..7 {
                for j in 0..7 {
                    let definition: f64 =
                        (j..=i).map(|s| training.rate(s) * training.momentum.powi((s - j) as i32)).sum();
                    assert!((a[(i, j)] - definition).abs() < 1e-14);
                }
            }
        }
    }

    #[test]
    fn the_bands_invert_the_matrix() {
        for workload in workloads(9) {
            let a = workload.matrix();
            let bands = workload.inverse_bands().unwrap();
            let inverse = dense::from_fn(9, 9, |i, j| bands.get(i, j));
            let error = &(&a * &inverse) - dense::identity(9);
            assert!(dense::squared_norm(&error) < 1e-24);
            let training = workload.as_training().unwrap();
            let start: Vec<f64> = (0..9).map(|i| (i as f64).sin()).collect();
            let mut x = start.clone();
            training.apply(&mut x);
            bands.apply(&mut x);
            training.apply_transpose(&mut x);
            bands.apply_transpose(&mut x);
            for (x, y) in x.iter().zip(&start) {
                assert!((x - y).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn the_cooldown_ends_where_it_says() {
        let cooldown: Cooldown = "0.25:0.05".parse().unwrap();
        let rates = cooldown.rates(8).unwrap();
        assert_eq!(rates[..6], [1.0; 6]);
        assert!((rates[6] - 0.525).abs() < 1e-15 && (rates[7] - 0.05).abs() < 1e-15);
        assert!("0.25".parse::<Cooldown>().is_err());
        let message = "1.5:0.1".parse::<Cooldown>().unwrap_err().to_string();
        assert_eq!(message, "the cooldown's FRACTION must be in (0, 1], got 1.5");
    }

    #[test]
    fn bad_rates_and_matrices_are_refused() {
        let error = Workload::training(2, 0.0, Some(vec![1.0, 0.0])).unwrap_err();
        assert_eq!(error.to_string(), "the learning rate of step 1 must be in [1e-30, 1e30], got 0");
        assert!(Workload::training(2, 1.0, None).is_err());
        assert!(Workload::training(2, f64::NAN, None).is_err());
        assert!(Workload::dense(dense::from_fn(2, 2, |_, _| 1.0)).is_err());
    }
}
