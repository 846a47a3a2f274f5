//! The FFT mechanisms as docs/FORMAT.md defines them: slow, and written from that page alone.

use crate::error::Result;
use crate::linalg::dense;
use crate::mechanism::family::Explicit;
use crate::verify::definitions::{differences, pseudo_inverse};
use std::f64::consts::PI;

/// Both matrices, with the decoder of Algorithm 1 or the optimal one.
pub fn explicit(n: usize, optimal: bool) -> Result<Explicit> {
    let (y, error) = fft_column(n);
    let circulant = |i: usize, j: usize| y[(2 * n + i - j) % (2 * n)];
    let encoder = dense::from_fn(2 * n, n, circulant);
    let noising = match optimal {
        true => pseudo_inverse(&encoder)?,
        false => differences(&dense::from_fn(n, 2 * n, circulant)),
    };
    Ok(Explicit { encoder, noising, column_error: error * (2.0 * n as f64).sqrt() })
}

/// The first column of the circulant F*·√v̂·F of size 2n, and a bound on the error of its entries:
///
/// ```text
/// y_a = (√n + Σ_{k odd} cos(π(4ka + k − n)/4n) / √sin(πk/2n)) / 2n.
/// ```
fn fft_column(n: usize) -> (Vec<f64>, f64) {
    let size = 2 * n;
    let weight = |k: usize| 1.0 / (PI * k.min(size - k) as f64 / size as f64).sin().sqrt();
    let weights: Vec<(usize, f64)> = (1..size).step_by(2).map(|k| (k, weight(k))).collect();
    let entry = |a: usize| {
        // Whole turns are 8n; they are taken off in integers.
        let turn = |k: usize| (4 * k * a + k + 7 * n) % (8 * n);
        let cosine = |k: usize| (PI * turn(k) as f64 / (4 * n) as f64).cos();
        let sum: f64 = weights.iter().map(|(k, weight)| weight * cosine(*k)).sum();
        ((n as f64).sqrt() + sum) / size as f64
    };
    // A cosine of an angle below 2π and its weight are within 32ε; a sum of n + 1 terms adds less than n·ε of their
    // absolute values.
    let absolute = (n as f64).sqrt() + weights.iter().map(|(_, weight)| weight).sum::<f64>();
    let error = (n + 32) as f64 * f64::EPSILON * absolute / size as f64;
    ((0..size).map(entry).collect(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_squares_to_the_prefix_sum() {
        // Circulants multiply as their columns are convolved: y ∗ y = (1, …, 1, 0, …, 0).
        for n in [1, 2, 5, 30] {
            let (y, error) = fft_column(n);
            assert!(error < 1e-13);
            for i in 0..2 * n {
                let sum: f64 = (0..2 * n).map(|a| y[a] * y[(2 * n + i - a) % (2 * n)]).sum();
                assert!((sum - f64::from(i < n)).abs() < 1e-13, "n = {n}, entry {i}: {sum}");
            }
        }
    }
}
