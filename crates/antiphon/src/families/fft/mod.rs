//! The FFT mechanisms: factor the circulant in which the prefix sum sits (paper, section 4 and its appendices).
//!
//! The prefix sum is the corner of a circulant of size 2n with first column v = (1, …, 1, 0, …, 0), whose eigenvalues
//! are the discrete Fourier transform v̂: n, then 0 at even and 1 − i·cot(πk/2n) at odd places, of absolute value
//! 1/sin(πk/2n). Both mechanisms share the encoder C = F*·√v̂·F·E, real and 2n×n, where E appends n zeros. Its gram
//! matrix is Toeplitz, the corner of the circulant with eigenvalues |v̂|. They differ in the decoder:
//!
//! - [`Fft::new`]: what Algorithm 1 of the paper does, B = P·F*·√v̂·F;
//! - [`Fft::with_optimal_decoder`]: the pseudo-inverse. The paper solves a Toeplitz system for every coordinate in O(n log² n); here
//!   the inverse is found once and applied in O(n log n) ([`ToeplitzInverse`]).
//!
//! Nothing of size n² is formed.

mod definition;
mod fourier;
mod stream;

use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::linalg::toeplitz::{Circulant, Complex, ToeplitzInverse};
use crate::mechanism::Family;
use crate::mechanism::factorization::{Cost, Factorization, add_squares, variances_by_columns};
use crate::mechanism::family::{Explicit, Row, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::Kernel;
use crate::workload::Workload;
use rayon::prelude::*;
use std::f64::consts::PI;
use std::sync::Arc;
use stream::FftNoise;

/// The paper's Algorithm 1.
pub const FFT: Family = Family::of(&Decoder { optimal: false });
/// The same encoder with its optimal decoder.
pub const FFT_OPTIMAL: Family = Family::of(&Decoder { optimal: true });

struct Decoder {
    optimal: bool,
}

impl Row for Decoder {
    fn name(&self) -> &'static str {
        if self.optimal { "fft-optimal" } else { "fft" }
    }

    fn aliases(&self) -> &'static [&'static str] {
        if self.optimal { &["fft-optimal-decoder"] } else { &[] }
    }

    fn about(&self) -> &'static str {
        match self.optimal {
            true => "The FFT mechanism with its optimal decoder",
            false => "The paper's FFT mechanism; the noise is computed before training",
        }
    }

    fn has_optimal_decoder(&self) -> bool {
        self.optimal
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        Ok(match self.optimal {
            true => Arc::new(Fft::with_optimal_decoder(stamp.steps)?),
            false => Arc::new(Fft::new(stamp.steps)),
        })
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        definition::explicit(stamp.steps, self.optimal)
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(FftNoise::new(stamp.steps, self.optimal, stddev)?))
    }
}

/// The FFT mechanism, with the decoder of Algorithm 1 or the optimal one.
#[derive(Clone)]
pub struct Fft {
    steps: usize,
    /// F*·√v̂·F.
    root: Circulant,
    /// The first column of the gram matrix.
    gram: Vec<f64>,
    /// X⁻¹, where the decoder is the optimal one.
    inverse: Option<ToeplitzInverse>,
}

impl Fft {
    /// Algorithm 1, for so many steps, at least one.
    pub fn new(steps: usize) -> Self {
        let absolute: Vec<Complex> = magnitudes(steps).into_iter().map(|x| Complex::new(x, 0.0)).collect();
        let mut gram = Circulant::new(&absolute).first_column();
        gram.truncate(steps);
        let root: Vec<Complex> = (0..2 * steps)
            .map(|k| match (k, k % 2) {
                (0, _) => Complex::new((steps as f64).sqrt(), 0.0),
                (_, 0) => Complex::default(),
                // The second half is the conjugate of the first.
                _ => {
                    let cotangent = 1.0 / angle(k, steps).tan();
                    Complex::new(1.0, if k < steps { -cotangent } else { cotangent }).sqrt()
                }
            })
            .collect();
        Fft { steps, root: Circulant::new(&root), gram, inverse: None }
    }

    /// The same encoder with its optimal decoder.
    pub fn with_optimal_decoder(steps: usize) -> Result<Self> {
        let fft = Fft::new(steps);
        let inverse = ToeplitzInverse::new(&fft.gram)?;
        Ok(Fft { inverse: Some(inverse), ..fft })
    }

    /// The variances of Algorithm 1 under momentum β without a schedule. The prefix sums have the covariance B·Bᵀ, the same
    /// Toeplitz matrix X as CᵀC, and A·S⁻¹ = M_β, so iterate t has Σ_ij β^(i+j)·X_|i−j| over i, j ≤ t.
    fn momentum_variances(&self, beta: f64) -> Vec<f64> {
        let (mut power, mut cross, mut sum) = (1.0, 0.0, 0.0);
        let variance = |(t, x): (usize, &f64)| {
            if t > 0 {
                power *= beta; // β^t
                cross = x + beta * cross; // Σ_{i<t} β^i·X_{t−i}
            }
            sum += power * (2.0 * cross + power * self.gram[0]);
            sum
        };
        self.gram.iter().enumerate().map(variance).collect()
    }

    /// The diagonal of A·X⁻¹·Aᵀ = (A·L)(A·L)ᵀ − (A·M)(A·M)ᵀ, for triangular Toeplitz L and M.
    fn optimal_variances(&self, inverse: &ToeplitzInverse, workload: &Workload) -> Vec<f64> {
        let n = self.steps;
        let squares = |generator: &[f64]| -> Vec<f64> {
            let mut sums = vec![0.0; n];
            match workload {
                // Without a schedule A is Toeplitz, and so is A·L: its row t holds the first t + 1 entries of its first
                // column, which is A times that of L.
                Workload::Training(training) if training.rates().is_none() => {
                    sums.copy_from_slice(generator);
                    training.apply(&mut sums);
                    let mut sum = 0.0;
                    for entry in &mut sums {
                        sum += *entry * *entry;
                        *entry = sum;
                    }
                }
                _ => {
                    for first in (0..n).step_by(64) {
                        let width = 64.min(n - first);
                        let shifted = dense::from_fn(n, width, |i, j| {
                            i.checked_sub(first + j).map_or(0.0, |place| generator[place])
                        });
                        add_squares(&mut sums, &workload.apply(&shifted));
                    }
                }
            }
            sums
        };
        let [l, m] = inverse.generators();
        squares(&l).iter().zip(squares(&m)).map(|(a, b)| a - b).collect()
    }
}

/// |v̂|.
fn magnitudes(steps: usize) -> Vec<f64> {
    let magnitude = |k: usize| match (k, k % 2) {
        (0, _) => steps as f64,
        (_, 0) => 0.0,
        _ => 1.0 / angle(k, steps).sin(),
    };
    (0..2 * steps).map(magnitude).collect()
}

/// πk/2n, mirrored to at most π/2: near π the rounding of the angle would be all that is left of its sine.
fn angle(k: usize, steps: usize) -> f64 {
    PI * k.min(2 * steps - k) as f64 / (2 * steps) as f64
}

/// Applies a map of pairs of columns to a matrix, two columns at a time, in parallel. Each column is divided by a power of
/// two before and multiplied by it after, since rounding errors do mix the two parts of a complex number: a small column
/// must not travel with a large one.
fn map_pairs(m: &Matrix, rows: usize, f: impl Fn(&mut Vec<Complex>) + Sync) -> Matrix {
    let scales: Vec<f64> = (0..m.ncols())
        .map(|j| dense::power_of_two(m.col_as_slice(j).iter().fold(0.0, |largest, x| x.abs().max(largest))))
        .collect();
    let entry = |i: usize, j: usize| if j < m.ncols() { m[(i, j)] / scales[j] } else { 0.0 };
    let pairs: Vec<Vec<Complex>> = (0..m.ncols().div_ceil(2))
        .into_par_iter()
        .map(|p| {
            let mut pair =
                (0..m.nrows()).map(|i| Complex::new(entry(i, 2 * p), entry(i, 2 * p + 1))).collect();
            f(&mut pair);
            pair
        })
        .collect();
    let mut out = Matrix::zeros(rows, m.ncols());
    dense::for_each_column(&mut out, |j, column| {
        for (x, pair) in column.iter_mut().zip(&pairs[j / 2]) {
            *x = scales[j] * if j % 2 == 0 { pair.re } else { pair.im };
        }
    });
    out
}

impl Factorization for Fft {
    fn steps(&self) -> usize {
        self.steps
    }

    fn inputs(&self) -> usize {
        2 * self.steps
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        self.gram[i.abs_diff(j)]
    }

    /// A transform of N numbers s errs by a few ε·log₂N·√N·‖s‖ in the norm, hence in every entry, and is divided by N.
    /// The constant is an estimate, far above what tests see.
    fn gram_error(&self) -> f64 {
        let size = 2.0 * self.steps as f64;
        let norm = magnitudes(self.steps).iter().map(|x| x * x).sum::<f64>().sqrt();
        8.0 * f64::EPSILON * (size.log2() + 1.0) * norm / size.sqrt()
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        map_pairs(x, self.inputs(), |x| {
            x.resize(2 * self.steps, Complex::default());
            self.root.apply(x);
        })
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        map_pairs(z, self.steps, |z| match &self.inverse {
            // W = X⁻¹Cᵀ.
            Some(inverse) => {
                self.root.apply_transpose(z);
                z.truncate(self.steps);
                inverse.apply(z);
            }
            // W = S⁻¹B: the differences of B·z.
            None => {
                self.root.apply(z);
                z.truncate(self.steps);
                for t in (1..z.len()).rev() {
                    let before = z[t - 1];
                    z[t] -= before;
                }
            }
        })
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        map_pairs(u, self.inputs(), |u| match &self.inverse {
            Some(inverse) => {
                inverse.apply(u);
                u.resize(2 * self.steps, Complex::default());
                self.root.apply(u);
            }
            None => {
                for t in 0..u.len() - 1 {
                    let after = u[t + 1];
                    u[t] -= after;
                }
                u.resize(2 * self.steps, Complex::default());
                self.root.apply_transpose(u);
            }
        })
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match (&self.inverse, workload) {
            (Some(inverse), _) => self.optimal_variances(inverse, workload),
            (None, Workload::Training(training)) if training.rates().is_none() => {
                self.momentum_variances(training.momentum())
            }
            _ => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        // Two transforms for B or Cᵀ; eight more and two more spectra for the formula of Gohberg and Semencul.
        let (transforms, spectra, rows) = if self.inverse.is_some() { (10.0, 3, 5) } else { (2.0, 1, 2) };
        let size = 2.0 * self.steps as f64;
        // 5·N·log₂N for a complex transform, which serves two coordinates.
        let flops = transforms * 2.5 * size * size.log2() / self.steps as f64;
        Cost {
            stream_memory_rows: self.steps, // every step's noise depends on all of Z
            stream_flops_per_step: flops,
            stream_gaussians_per_step: 2.0,
            pregenerate_memory_rows: rows * self.steps, // Z, and where it is inverted a padded copy and a product
            pregenerate_flops_per_step: flops,
            coefficient_bytes: spectra * 16 * 2 * self.steps,
        }
    }
}

/// ‖v̂‖₁ = n + Σ 1/sin(πk/2n) over odd k < 2n.
pub fn norm(steps: usize) -> f64 {
    magnitudes(steps).iter().sum()
}

/// The variance σ² of Z with which Algorithm 1 of the paper is ρ-zCDP for contributions of norm κ in a single
/// participation, rounded up: κ²‖v̂‖₁/(4nρ). The squared sensitivity is κ²·X_00 = κ²‖v̂‖₁/2n, and a Gaussian mechanism has
/// ρ = sensitivity²/(2σ²).
pub fn noise_variance(steps: usize, rho: f64, contribution: f64) -> f64 {
    rounded_up(contribution * contribution * norm(steps) / (4.0 * steps as f64 * rho), steps)
}

/// The zCDP of Algorithm 1 with noise variance σ², for contributions of norm κ and *any* schema with at most
/// `participations` of them: k²ρ, ρ = κ²‖v̂‖₁/(4nσ²) (paper, theorems on privacy under one and under k participations).
/// Where the schema is known, the exact sensitivity gives less.
pub fn zcdp(steps: usize, noise_variance: f64, contribution: f64, participations: usize) -> f64 {
    let rho = contribution * contribution * norm(steps) / (4.0 * steps as f64 * noise_variance);
    rounded_up(rho * (participations as f64).powi(2), steps)
}

/// Up, by more than the rounding errors of a sum of 2n positive terms.
fn rounded_up(x: f64, steps: usize) -> f64 {
    x * (1.0 + (4.0 * steps as f64 + 32.0) * f64::EPSILON)
}

/// The mean squared error per iterate of Algorithm 1 at ρ-zCDP: κ²‖v̂‖₁²/(8ρn²).
///
/// The paper's corollary has 2 in place of 8: it counts the imaginary part of the noise, which is not added, and all
/// 2n coordinates, of which n are used. See [`mean_squared_error_in_the_paper`].
pub fn mean_squared_error(steps: usize, rho: f64, contribution: f64) -> f64 {
    noise_variance(steps, rho, contribution) * norm(steps) / (2.0 * steps as f64)
}

/// The paper's corollary as printed, four times the error of the mechanism.
pub fn mean_squared_error_in_the_paper(steps: usize, rho: f64, contribution: f64) -> f64 {
    4.0 * mean_squared_error(steps, rho, contribution)
}

/// No factorization has a smaller mean squared error on prefix sums under a single participation at ρ-zCDP
/// (Henzinger, Upadhyay and Upadhyay 2022, theorem 2): (2 + ln((2n+1)/3) + ln(2n+1)/2n)²/(2ρπ²).
pub fn lower_bound_of_huu(steps: usize, rho: f64) -> f64 {
    let size = 2.0 * steps as f64;
    (2.0 + ((size + 1.0) / 3.0).ln() + (size + 1.0).ln() / size).powi(2) / (2.0 * rho * PI * PI)
}
