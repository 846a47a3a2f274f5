//! What every mechanism has: an encoder C, a noising matrix W with W·C = I, and their costs.

use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use crate::sensitivity::WorstCase;
use crate::workload::{Training, Workload};
use serde::Serialize;

/// A pair (C, W) with W·C = I, given by what it does rather than by its entries.
///
/// The mechanism protects CG + Z and adds WZ to the gradients G. For a workload A the decoder is B = AW, so B·C = A
/// whatever A is; that is how a mechanism made for prefix sums serves training with momentum. Where C is not square,
/// W is a choice: the pseudo-inverse of C is the one with the least noise.
///
/// Matrices hold one vector per column, so that many coordinates are treated at once.
pub trait Factorization: Send + Sync {
    /// n, the number of steps: columns of C, rows of W.
    fn steps(&self) -> usize;

    /// The number of independent Gaussians per coordinate: rows of C, columns of W.
    fn inputs(&self) -> usize;

    /// X_ij of the gram matrix X = CᵀC.
    fn gram(&self, i: usize, j: usize) -> f64;

    /// Whether an entry takes time that grows with n. C is written out then where many of them are needed.
    fn gram_is_slow(&self) -> bool {
        false
    }

    /// How far [`Factorization::gram`] can be from the true entry by rounding.
    fn gram_error(&self) -> f64 {
        0.0
    }

    /// The first step of the block that a step is in: X is exactly zero between different blocks. One block by default.
    fn block_start(&self, _step: usize) -> usize {
        0
    }

    /// The sensitivity under a schema by a rule of its own, rounded up, where there is one: otherwise it comes from the gram matrix.
    fn own_sensitivity(&self, _schema: &Schema) -> Option<Result<WorstCase>> {
        None
    }

    /// C·x.
    fn encode(&self, x: &Matrix) -> Matrix;

    /// W·z, the noise in gradient space.
    fn noise(&self, z: &Matrix) -> Matrix;

    /// Wᵀ·u.
    fn noise_transpose(&self, u: &Matrix) -> Matrix;

    /// The variance of the noise in every iterate, for Z of unit variance: the diagonal of A·W·Wᵀ·Aᵀ.
    fn variances(&self, workload: &Workload) -> Vec<f64> {
        variances_by_columns(self, workload)
    }

    /// What it takes to draw the noise.
    fn cost(&self) -> Cost;
}

/// What it takes to draw noise, for each coordinate of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Rows of d numbers kept between steps when noise is drawn while training.
    pub stream_memory_rows: usize,
    /// Floating-point operations per step and coordinate when noise is drawn while training, on average.
    pub stream_flops_per_step: f64,
    /// Gaussians per step and coordinate when noise is drawn while training, on average; those drawn again from the key
    /// count each time.
    pub stream_gaussians_per_step: f64,
    /// Numbers per coordinate that are kept while all noise is drawn before training. The noise itself, one row per
    /// step, goes to a disk.
    pub pregenerate_memory_rows: usize,
    /// Floating-point operations per step and coordinate when all noise is drawn before training, on average.
    pub pregenerate_flops_per_step: f64,
    /// Bytes for the mechanism's own coefficients, whatever the size of the model.
    pub coefficient_bytes: usize,
}

impl Cost {
    /// Of one dense matrix for all steps.
    pub fn dense(steps: usize) -> Cost {
        let n = steps as f64;
        Cost {
            stream_memory_rows: 1, // earlier rows of Z are drawn again from the key
            stream_flops_per_step: n + 1.0,
            stream_gaussians_per_step: (n + 1.0) / 2.0,
            pregenerate_memory_rows: steps, // a column of Z
            pregenerate_flops_per_step: n + 1.0,
            coefficient_bytes: 4 * steps * (steps + 1),
        }
    }
}

/// Columns that are treated at once.
const TILE: usize = 64;

/// The variances from the columns of A·W, one tile at a time: the obvious way, O(n · inputs) and more.
pub fn variances_by_columns<F: Factorization + ?Sized>(factorization: &F, workload: &Workload) -> Vec<f64> {
    let (n, inputs) = (factorization.steps(), factorization.inputs());
    let mut variances = vec![0.0; n];
    for first in (0..inputs).step_by(TILE) {
        let columns = workload.apply(&factorization.noise(&units(inputs, first)));
        add_squares(&mut variances, &columns);
    }
    variances
}

/// Columns `first..` of the identity, one tile of them.
fn units(n: usize, first: usize) -> Matrix {
    dense::from_fn(n, TILE.min(n - first), |i, j| f64::from(i == first + j))
}

/// C, written out: inputs × n numbers.
pub fn encoder_matrix(factorization: &dyn Factorization) -> Matrix {
    let n = factorization.steps();
    let mut c = Matrix::zeros(factorization.inputs(), n);
    for first in (0..n).step_by(TILE) {
        let tile = factorization.encode(&units(n, first));
        for j in 0..tile.ncols() {
            c.col_as_slice_mut(first + j).copy_from_slice(tile.col_as_slice(j));
        }
    }
    c
}

/// X, written out: n×n numbers.
pub fn gram_matrix(factorization: &dyn Factorization) -> Matrix {
    let n = factorization.steps();
    match factorization.gram_is_slow() {
        true => dense::gram(&encoder_matrix(factorization)),
        false => dense::from_fn(n, n, |i, j| factorization.gram(i, j)),
    }
}

/// W, written out: n × inputs numbers.
pub fn noising_matrix(factorization: &dyn Factorization) -> Matrix {
    let n = factorization.steps();
    let mut w = Matrix::zeros(n, factorization.inputs());
    for first in (0..n).step_by(TILE) {
        let tile = factorization.noise_transpose(&units(n, first));
        for j in 0..tile.ncols() {
            tile.col_as_slice(j).iter().enumerate().for_each(|(i, x)| w[(first + j, i)] = *x);
        }
    }
    w
}

/// Adds the squared norm of every row.
pub(crate) fn add_squares(sums: &mut [f64], m: &Matrix) {
    for j in 0..m.ncols() {
        sums.iter_mut().zip(m.col_as_slice(j)).for_each(|(sum, x)| *sum += x * x);
    }
}

/// Noise from earlier, independent sources, on its way through a training workload: u is what it has done to the
/// model so far and p what momentum still holds of it, of which only the inner products matter.
///
/// ```text
/// p ← βp,  u ← u + ηp      at every step
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Past {
    /// ‖u‖², ⟨u, p⟩, ‖p‖².
    products: [f64; 3],
}

impl Past {
    /// Takes in one more independent source.
    pub fn add(&mut self, products: [f64; 3]) {
        self.products.iter_mut().zip(products).for_each(|(sum, x)| *sum += x);
    }

    /// Step t of the workload without new noise.
    pub fn step(&mut self, workload: &Training, t: usize) {
        let (beta, eta) = (workload.momentum(), workload.rate(t));
        let [uu, up, pp] = self.products;
        let (up, pp) = (beta * up, beta * beta * pp);
        self.products = [uu + 2.0 * eta * up + eta * eta * pp, up + eta * pp, pp];
    }

    /// ‖u‖².
    pub fn variance(&self) -> f64 {
        self.products[0]
    }
}

/// Applies a map of single columns to every column of a matrix, in parallel. The map gets a column and a zeroed one
/// of `rows` entries to fill.
pub(crate) fn map_columns(m: &Matrix, rows: usize, f: impl Fn(&[f64], &mut [f64]) + Sync) -> Matrix {
    let mut out = Matrix::zeros(rows, m.ncols());
    dense::for_each_column(&mut out, |j, column| f(m.col_as_slice(j), column));
    out
}
