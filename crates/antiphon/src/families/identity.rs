//! Independent noise: C = I. DP-SGD and DP-GD as a matrix mechanism, the baseline of all others.

use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::Family;
use crate::mechanism::factorization::{Cost, Factorization, Past, add_squares};
use crate::mechanism::family::{Explicit, Needs, Row, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::{Access, Draw, Kernel, Recurrence, TILE, scaled};
use crate::workload::Workload;
use std::ops::Range;
use std::sync::Arc;

/// Independent noise.
pub const IDENTITY: Family = Family::of(&Independent);

struct Independent;

impl Row for Independent {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["independent"]
    }

    fn about(&self) -> &'static str {
        "Independent noise in every step: DP-SGD without amplification by sampling"
    }

    fn needs(&self) -> Needs {
        Needs::Nothing // stamps of length one are all that it is
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        Ok(Arc::new(Identity { steps: stamp.steps }))
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        Ok(super::exactly(dense::identity(stamp.steps), dense::identity(stamp.steps)))
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(Normals { steps: stamp.steps, stddev }))
    }
}

/// Rows of Z.
struct Normals {
    steps: usize,
    stddev: f64,
}

impl Kernel for Normals {
    fn inputs(&self) -> usize {
        self.steps
    }

    fn row_sum(&self) -> f64 {
        1.0 + 1e-6
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        let mut z = [0.0; TILE];
        for (step, out) in wanted.zip(out.chunks_mut(TILE)) {
            draw(step, &mut z);
            scaled(self.stddev, z.iter().map(|z| f64::from(*z)), out);
        }
    }

    fn access(&self) -> Access<'_> {
        Access::Single
    }

    fn recurrence(&self, step: usize) -> Option<Recurrence> {
        let inputs = vec![(step as u64, 1.0)];
        Some(Recurrence { inputs, buffers: Vec::new(), scale: self.stddev, first: true })
    }
}

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

    fn block_start(&self, step: usize) -> usize {
        step
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
