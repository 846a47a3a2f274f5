//! The best mechanism whose noise is independent between epochs, for epochs that are reshuffled, and a bound on all others.
//!
//! Under reshuffled epochs, a block diagonal X = ⊕ X_e has the squared sensitivity Σ_e max_i X_ii (docs/theory.md, section 2). Its squared error is
//! Σ_e tr(V_e X_e⁻¹), with V_e the block of AᵀA that belongs to the epoch: it has in it what the noise of the epoch does to all later iterates. So
//! X_e = s_e·X_e*, with X_e* the optimum for a single participation under V_e and a_e² its loss; and Σ s_e = 1 with Σ a_e²/s_e least
//! gives s_e = a_e/Σa and the loss (Σ a_e)².
//!
//! The dual of the same blocks bounds all mechanisms: patterns that pick their step of every epoch independently, with the weights u_e of the optimum
//! of the epoch, and one vector g_e for each epoch. The g_e are such that ⟨g_e, g_e'⟩ are the sums over blocks of X⁻¹VX⁻¹, which is what the dual
//! of the optimum would be.

use super::{Observer, Params, optimize};
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::{Certificate, Noise, NoisingMatrix};
use crate::schema::Schema;
use crate::workload::{Training, Workload};

/// Blocks along the diagonal.
#[derive(Debug, Clone)]
pub struct ByEpoch {
    /// C_e⁻¹, one for each epoch.
    pub blocks: Vec<NoisingMatrix>,
    /// For as many reshuffled epochs of the same length.
    pub certificate: Certificate,
}

/// The optimum for blocks of these lengths, which are all the steps of the workload, to a relative accuracy `gap` of each block.
pub fn by_epoch(lengths: &[usize], workload: &Workload, gap: f64, observer: Observer<'_>) -> Result<ByEpoch> {
    let mut optima = Vec::with_capacity(lengths.len());
    let mut start = 0;
    for length in lengths {
        optima.push(Optimum::new(workload, start, start + length, gap, observer)?);
        start += length;
    }
    let total: f64 = optima.iter().map(|optimum| optimum.root).sum();
    let blocks = optima.iter().map(|optimum| optimum.scaled(total)).collect::<Result<Vec<_>>>()?;
    let mut factors: Vec<Vec<f64>> = optima.iter().flat_map(|one| &one.weights).map(|u| vec![*u]).collect();
    factors.push(directions(&blocks, workload, total));
    Ok(ByEpoch { blocks, certificate: Certificate::new(factors) })
}

/// One epoch.
struct Optimum {
    noising: NoisingMatrix,
    /// u, with the sum 1.
    weights: Vec<f64>,
    /// a, the root of the loss.
    root: f64,
}

impl Optimum {
    fn new(workload: &Workload, start: usize, end: usize, gap: f64, observer: Observer<'_>) -> Result<Self> {
        // L with LᵀL = V_e, lower triangular.
        let (factor, _) = dense::lower_factor(&columns(workload, start, end))?;
        let params = Params { gap, ..Params::default() };
        let single = Schema::single(end - start)?;
        let found = optimize(&single, &Workload::dense(factor)?, &params, observer)?.mechanism;
        let (Noise::Dense(noising), Some(certificate)) = (found.noise, found.certificate) else {
            return Err(Error::Unsupported("a dense mechanism was asked for".into()));
        };
        let squares: Vec<f64> = certificate.factors.iter().map(|factor| factor[0] * factor[0]).collect();
        let sum: f64 = squares.iter().sum();
        let weights = squares.into_iter().map(|u| u / sum).collect();
        Ok(Optimum { noising, weights, root: found.claims.loss.sqrt() })
    }

    /// W_e of C_e = √s_e·C_e*.
    fn scaled(&self, total: f64) -> Result<NoisingMatrix> {
        let scale = (total / self.root).sqrt();
        let w = self.noising.matrix();
        NoisingMatrix::new(dense::from_fn(w.nrows(), w.ncols(), |i, j| scale * w[(i, j)]))
    }
}

/// A matrix M with MᵀM = V_e: the columns start..end of A, or fewer rows that do the same.
fn columns(workload: &Workload, start: usize, end: usize) -> Matrix {
    match workload {
        Workload::Training(training) => training_columns(training, workload.steps(), start, end),
        Workload::Dense(a) => {
            dense::from_fn(a.nrows() - start, end - start, |i, j| a[(start + i, start + j)])
        }
    }
}

/// After the epoch, row t of A is u + h_t·p on its columns, with u the last row of A there, p that of M_β, and h_t what momentum has added since
/// (`mechanism::stamp`). So all later rows are two: those of the triangular factor of the matrix with rows (1, h_t), times u and p.
fn training_columns(training: &Training, n: usize, start: usize, end: usize) -> Matrix {
    let length = end - start;
    let local = training.part(start, end);
    let mut own = dense::identity(length);
    (0..length).for_each(|j| local.apply(own.col_as_slice_mut(j)));
    let (mut fade, mut gain) = (1.0, 0.0);
    let mut later = Matrix::zeros(n - end, 2);
    for t in end..n {
        fade *= training.momentum();
        gain += training.rate(t) * fade;
        (later[(t - end, 0)], later[(t - end, 1)]) = (1.0, gain);
    }
    let rows = (n - end).min(2);
    let factor = if rows < 2 { later } else { dense::small_qr(&later) };
    let p = |j: usize| training.momentum().powi((length - 1 - j).min(i32::MAX as usize) as i32);
    dense::from_fn(length + rows, length, |i, j| match i.checked_sub(length) {
        None => own[(i, j)],
        Some(row) => factor[(row, 0)] * own[(length - 1, j)] + factor[(row, 1)] * p(j),
    })
}

/// The vectors g_e, as the rows of a lower triangular matrix: with y_e = X_e⁻¹1 and Y = ⊕ y_e, the sums over blocks of X⁻¹VX⁻¹/λ are (AY)ᵀ(AY)/λ,
/// λ = (Σ a_e)². At the optimum their diagonal is one.
fn directions(blocks: &[NoisingMatrix], workload: &Workload, total: f64) -> Vec<f64> {
    let k = blocks.len();
    let mut y = Matrix::zeros(workload.steps(), k);
    let mut start = 0;
    for (e, block) in blocks.iter().enumerate() {
        let (w, b) = (block.matrix(), block.steps());
        let sums: Vec<f64> = (0..b).map(|j| w.col_as_slice(j).iter().sum()).collect(); // Wᵀ1
        for i in 0..b {
            y[(start + i, e)] = (0..b).map(|j| w[(i, j)] * sums[j]).sum::<f64>() / total;
        }
        start += b;
    }
    let triangle = dense::small_qr(&workload.apply(&y));
    let mut rows = vec![0.0; k * k];
    for (e, row) in rows.chunks_mut(k).enumerate() {
        (0..=e).for_each(|j| row[j] = triangle[(j, e)]);
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1.0);
        row.iter_mut().for_each(|x| *x /= norm);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::lower_bound;

    fn loss(found: &ByEpoch, workload: &Workload) -> f64 {
        let mut w = Matrix::zeros(workload.steps(), workload.steps());
        let (mut start, mut squared) = (0, 0.0);
        for block in &found.blocks {
            let b = block.steps();
            for i in 0..b {
                (0..=i).for_each(|j| w[(start + i, start + j)] = block.matrix()[(i, j)]);
            }
            let c = block.encoder().unwrap();
            squared += (0..b).map(|j| c.col(j).squared_norm_l2()).fold(0.0, f64::max);
            start += b;
        }
        squared * workload.product_norm(&w).powi(2)
    }

    #[test]
    fn fewer_rows_have_the_same_gram_matrix() {
        let rates: Vec<f64> = (0..12).map(|t| 1.0 + (t as f64 * 0.7).sin() / 2.0).collect();
        for workload in [
            Workload::prefix_sum(12),
            Workload::training(12, 0.9, None).unwrap(),
            Workload::training(12, 0.5, Some(rates)).unwrap(),
        ] {
            let v = dense::gram(&workload.matrix());
            for (start, end) in [(0, 12), (0, 4), (4, 8), (8, 12), (3, 11), (11, 12), (0, 1)] {
                let m = columns(&workload, start, end);
                let same = |i: usize, j: usize| (dense::gram(&m)[(i, j)] - v[(start + i, start + j)]).abs();
                let worst = (0..end - start).flat_map(|i| (0..end - start).map(move |j| (i, j)));
                assert!(worst.map(|(i, j)| same(i, j)).fold(0.0, f64::max) < 1e-10 * v[(0, 0)]);
            }
        }
    }

    /// Against the optimum over all mechanisms, with all patterns listed: 1.0042 and 1.0182 for prefix sums and momentum 0.9 at (3, 3), from the
    /// optimizer for listed patterns.
    #[test]
    fn small_cases_against_all_mechanisms() {
        for (epochs, b) in [(2usize, 3usize), (3, 3), (4, 2), (2, 6), (1, 5), (5, 1)] {
            let n = epochs * b;
            let patterns: Vec<Vec<usize>> = (0..b.pow(epochs as u32))
                .map(|number| (0..epochs).map(|e| e * b + number / b.pow(e as u32) % b).collect())
                .collect();
            let listed = Schema::patterns(n, patterns).unwrap();
            for momentum in [0.0, 0.9] {
                let workload = Workload::training(n, momentum, None).unwrap();
                let params = Params { gap: 1e-4, ..Params::default() };
                let best = optimize(&listed, &workload, &params, &|_| true).unwrap().mechanism.claims;
                let found = by_epoch(&vec![b; epochs], &workload, 1e-6, &|_| true).unwrap();
                let loss = loss(&found, &workload);
                let bound = match Schema::reshuffled(epochs, b).unwrap() {
                    schema if schema.is_listed() => best.lower_bound.unwrap(),
                    schema => lower_bound(&schema, &workload, &found.certificate).unwrap().value,
                };
                let optimum = best.lower_bound.unwrap();
                println!(
                    "({epochs}, {b}) β = {momentum}: loss/optimum {:.4}, bound/optimum {:.4}",
                    loss / optimum,
                    bound / optimum
                );
                assert!(loss >= optimum * (1.0 - 1e-9) && bound <= best.loss);
                assert!(loss < 1.03 * optimum && bound > 0.95 * optimum);
                if epochs == 1 {
                    assert!(loss < 1.0002 * optimum);
                }
            }
        }
    }
}
