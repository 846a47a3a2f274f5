//! Independent noise: C = I. DP-SGD and DP-GD as a matrix mechanism, the baseline of all others.

use super::factorization::{Cost, Factorization, Past, add_squares};
use crate::linalg::dense::Matrix;
use crate::workload::Workload;

/// C = W = I.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// n.
    pub steps: usize,
}

impl Factorization for Identity {
    fn steps(&self) -> usize {
        self.steps
    }

    fn inputs(&self) -> usize {
        self.steps
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        f64::from(i == j)
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        x.clone()
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        z.clone()
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        u.clone()
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match workload {
            Workload::Training(training) => {
                let mut past = Past::default();
                let variance = |t| {
                    past.step(training, t);
                    let eta = training.rate(t);
                    past.add([eta * eta, eta, 1.0]); // fresh noise: p = 1, u = η
                    past.variance()
                };
                (0..self.steps).map(variance).collect()
            }
            Workload::Dense(a) => {
                let mut sums = vec![0.0; self.steps];
                add_squares(&mut sums, a);
                sums
            }
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            stream_memory_rows: 1,
            stream_flops_per_step: 0.0,
            stream_gaussians_per_step: 1.0,
            pregenerate_memory_rows: 1,
            pregenerate_flops_per_step: 0.0,
            coefficient_bytes: 0,
        }
    }
}
