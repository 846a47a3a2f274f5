//! The FFT mechanisms: factor the circulant in which the prefix sum sits (paper, section 4 and its appendices).
//!
//! The prefix sum is the corner of a circulant of size 2n with first column v = (1, …, 1, 0, …, 0), whose eigenvalues
//! are the discrete Fourier transform v̂: n, then 0 at even and 1 − i·cot(πk/2n) at odd places, of absolute value
//! 1/sin(πk/2n). Both mechanisms share the encoder C = F*·√v̂·F·E, real and 2n×n, where E appends n zeros. Its gram
//! matrix is Toeplitz, the corner of the circulant with eigenvalues |v̂|. They differ in the decoder:
//!
//! - [`Fft`]: what Algorithm 1 of the paper does, B = P·F*·√v̂·F;
//! - [`FftOptimal`]: the pseudo-inverse. The paper solves a Toeplitz system for every coordinate in O(n log² n); here
//!   the inverse is found once and applied in O(n log n) ([`ToeplitzInverse`]).
//!
//! Nothing of size n² is formed.

use super::factorization::{Cost, Factorization, add_squares, variances_by_columns};
use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::linalg::toeplitz::{Circulant, Complex, ToeplitzInverse};
use crate::workload::Workload;
use rayon::prelude::*;
use std::f64::consts::PI;

/// The encoder that both share.
#[derive(Clone)]
struct Encoder {
    steps: usize,
    /// F*·√v̂·F.
    root: Circulant,
    /// The first column of the gram matrix.
    gram: Vec<f64>,
}

impl Encoder {
    fn new(steps: usize) -> Self {
        let absolute: Vec<Complex> = magnitudes(steps).into_iter().map(|x| Complex::new(x, 0.0)).collect();
        let mut gram = Circulant::new(&absolute).first_column();
        gram.truncate(steps);
        let root: Vec<Complex> = (0..2 * steps)
            .map(|k| match (k, k % 2) {
                (0, _) => Complex::new((steps as f64).sqrt(), 0.0),
                (_, 0) => Complex::default(),
                _ => Complex::new(1.0, -1.0 / (PI * k as f64 / (2 * steps) as f64).tan()).sqrt(),
            })
            .collect();
        Encoder { steps, root: Circulant::new(&root), gram }
    }

    /// A transform of N numbers s errs by a few ε·log₂N·√N·‖s‖ in the norm, hence in every entry, and is divided by N.
    /// The constant is an estimate, far above what tests see.
    fn gram_error(&self) -> f64 {
        let size = 2.0 * self.steps as f64;
        let norm = magnitudes(self.steps).iter().map(|x| x * x).sum::<f64>().sqrt();
        8.0 * f64::EPSILON * (size.log2() + 1.0) * norm / size.sqrt()
    }

    /// C·x for a pair.
    fn encode(&self, x: &mut Vec<Complex>) {
        x.resize(2 * self.steps, Complex::default());
        self.root.apply(x);
    }

    /// Cᵀ·z for a pair.
    fn encode_transpose(&self, z: &mut Vec<Complex>) {
        self.root.apply_transpose(z);
        z.truncate(self.steps);
    }

    fn cost(&self, transforms: f64) -> Cost {
        let size = 2.0 * self.steps as f64;
        // 5·N·log₂N for a complex transform, which serves two coordinates.
        let flops = transforms * 2.5 * size * size.log2() / self.steps as f64;
        Cost {
            stream_memory_rows: self.steps, // every step's noise depends on all of Z
            stream_flops_per_step: flops,
            stream_gaussians_per_step: 2.0,
            pregenerate_memory_rows: 2 * self.steps, // Z, transformed in place: two columns as one complex one
            pregenerate_flops_per_step: flops,
            coefficient_bytes: 16 * 2 * self.steps,
        }
    }
}

/// |v̂|.
fn magnitudes(steps: usize) -> Vec<f64> {
    let magnitude = |k: usize| match (k, k % 2) {
        (0, _) => steps as f64,
        (_, 0) => 0.0,
        _ => 1.0 / (PI * k as f64 / (2 * steps) as f64).sin(),
    };
    (0..2 * steps).map(magnitude).collect()
}

/// Applies a map of pairs of columns to a matrix, two columns at a time, in parallel.
fn map_pairs(m: &Matrix, rows: usize, f: impl Fn(&mut Vec<Complex>) + Sync) -> Matrix {
    let pairs: Vec<Vec<Complex>> = (0..m.ncols().div_ceil(2))
        .into_par_iter()
        .map(|p| {
            let first = m.col_as_slice(2 * p);
            let mut pair: Vec<Complex> = match (2 * p + 1 < m.ncols()).then(|| m.col_as_slice(2 * p + 1)) {
                Some(second) => first.iter().zip(second).map(|(a, b)| Complex::new(*a, *b)).collect(),
                None => first.iter().map(|a| Complex::new(*a, 0.0)).collect(),
            };
            f(&mut pair);
            pair
        })
        .collect();
    let mut out = Matrix::zeros(rows, m.ncols());
    dense::for_each_column(&mut out, |j, column| {
        let pair = &pairs[j / 2];
        for (x, pair) in column.iter_mut().zip(pair) {
            *x = if j % 2 == 0 { pair.re } else { pair.im };
        }
    });
    out
}

/// The FFT mechanism, Algorithm 1 of the paper.
#[derive(Clone)]
pub struct Fft {
    encoder: Encoder,
}

impl Fft {
    /// For so many steps, at least one.
    pub fn new(steps: usize) -> Self {
        Fft { encoder: Encoder::new(steps) }
    }
}

impl Factorization for Fft {
    fn steps(&self) -> usize {
        self.encoder.steps
    }

    fn inputs(&self) -> usize {
        2 * self.encoder.steps
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        self.encoder.gram[i.abs_diff(j)]
    }

    fn gram_error(&self) -> f64 {
        self.encoder.gram_error()
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        map_pairs(x, self.inputs(), |x| self.encoder.encode(x))
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        // W = S⁻¹B: the differences of B·z.
        map_pairs(z, self.steps(), |z| {
            self.encoder.root.apply(z);
            z.truncate(self.encoder.steps);
            for t in (1..z.len()).rev() {
                let before = z[t - 1];
                z[t] -= before;
            }
        })
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        map_pairs(u, self.inputs(), |u| {
            for t in 0..u.len() - 1 {
                let after = u[t + 1];
                u[t] -= after;
            }
            u.resize(2 * self.encoder.steps, Complex::default());
            self.encoder.root.apply_transpose(u);
        })
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match workload {
            // B·Bᵀ is the same Toeplitz matrix as CᵀC.
            Workload::Training(training) if training.is_prefix_sum() => {
                vec![self.encoder.gram[0]; self.steps()]
            }
            _ => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        self.encoder.cost(2.0)
    }
}

/// The FFT mechanism with its optimal decoder W = C⁺ = X⁻¹Cᵀ.
#[derive(Clone)]
pub struct FftOptimal {
    encoder: Encoder,
    inverse: ToeplitzInverse,
}

impl FftOptimal {
    /// For so many steps, at least one.
    pub fn new(steps: usize) -> Result<Self> {
        let encoder = Encoder::new(steps);
        let inverse = ToeplitzInverse::new(&encoder.gram)?;
        Ok(FftOptimal { encoder, inverse })
    }
}

impl Factorization for FftOptimal {
    fn steps(&self) -> usize {
        self.encoder.steps
    }

    fn inputs(&self) -> usize {
        2 * self.encoder.steps
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        self.encoder.gram[i.abs_diff(j)]
    }

    fn gram_error(&self) -> f64 {
        self.encoder.gram_error()
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        map_pairs(x, self.inputs(), |x| self.encoder.encode(x))
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        map_pairs(z, self.steps(), |z| {
            self.encoder.encode_transpose(z);
            self.inverse.apply(z);
        })
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        map_pairs(u, self.inputs(), |u| {
            self.inverse.apply(u);
            self.encoder.encode(u);
        })
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        // A·X⁻¹·Aᵀ = (A·L)(A·L)ᵀ − (A·M)(A·M)ᵀ for triangular Toeplitz L and M.
        let n = self.steps();
        let [l, m] = self.inverse.generators();
        let squares = |generator: &[f64]| -> Vec<f64> {
            let mut sums = vec![0.0; n];
            match workload {
                // S·L is Toeplitz as well: its row t holds the first t + 1 entries of its first column.
                Workload::Training(training) if training.is_prefix_sum() => {
                    let (mut entry, mut sum) = (0.0, 0.0);
                    for (sums, x) in sums.iter_mut().zip(generator) {
                        entry += x;
                        sum += entry * entry;
                        *sums = sum;
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
        squares(&l).iter().zip(squares(&m)).map(|(a, b)| a - b).collect()
    }

    fn cost(&self) -> Cost {
        let mut cost = self.encoder.cost(10.0); // two for Cᵀ, eight for the formula of Gohberg and Semencul
        cost.coefficient_bytes *= 3;
        cost.pregenerate_memory_rows = 5 * self.steps(); // the argument, its padded copy and a product
        cost
    }
}

/// ‖v̂‖₁ = n + Σ 1/sin(πk/2n) over odd k < 2n.
pub fn norm(steps: usize) -> f64 {
    magnitudes(steps).iter().sum()
}

/// The variance σ² of Z with which Algorithm 1 of the paper is ρ-zCDP for contributions of norm κ in a single
/// participation: κ²‖v̂‖₁/(4nρ). The squared sensitivity is κ²·X_00 = κ²‖v̂‖₁/2n, and a Gaussian mechanism has
/// ρ = sensitivity²/(2σ²).
pub fn noise_variance(steps: usize, rho: f64, contribution: f64) -> f64 {
    contribution * contribution * norm(steps) / (4.0 * steps as f64 * rho)
}

/// The zCDP of Algorithm 1 with noise variance σ², for contributions of norm κ and *any* schema with at most
/// `participations` of them: k²ρ, ρ = κ²‖v̂‖₁/(4nσ²) (paper, theorems on privacy under one and under k participations).
/// Where the schema is known, the exact sensitivity gives less.
pub fn zcdp(steps: usize, noise_variance: f64, contribution: f64, participations: usize) -> f64 {
    let rho = contribution * contribution * norm(steps) / (4.0 * steps as f64 * noise_variance);
    rho * (participations as f64).powi(2) * (1.0 + 4.0 * steps as f64 * f64::EPSILON) // up: 2n terms were added
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
