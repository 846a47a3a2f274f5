//! What a comb does to vectors, in linear time.

use super::loss::System;
use super::sensitivity::{self, Blocks};
use super::shape::Comb;
use super::written_out;
use crate::error::Result;
use crate::linalg::dense::Matrix;
use crate::mechanism::factorization::{Cost, Factorization, map_columns, variances_by_columns};
use crate::schema::Schema;
use crate::sensitivity::WorstCase;
use crate::workload::Workload;
use std::sync::OnceLock;

/// All coefficients of a comb, step by step.
#[derive(Debug, Clone)]
pub struct Coefficients {
    /// The numbers that they are made of.
    pub comb: Comb,
    /// ω and ω̂.
    pub weights: Vec<f64>,
    /// The weights of T.
    pub inverse_weights: Vec<f64>,
    /// e.
    pub input: Vec<f64>,
    /// o.
    pub output: Vec<f64>,
    blocks: OnceLock<std::result::Result<Blocks, String>>,
}

impl Coefficients {
    /// Of a comb that was checked.
    pub fn new(comb: Comb) -> Coefficients {
        Coefficients {
            weights: comb.filter.weights(),
            inverse_weights: comb.filter.inverse_weights(),
            input: (0..comb.steps).map(|t| comb.input_gain(t)).collect(),
            output: (0..comb.steps).map(|t| comb.output_gain(t)).collect(),
            blocks: OnceLock::new(),
            comb,
        }
    }

    /// X between steps of the same residue; or why there is none.
    pub fn blocks(&self) -> &std::result::Result<Blocks, String> {
        self.blocks.get_or_init(|| sensitivity::blocks(self).map_err(|error| error.to_string()))
    }

    /// K_r = J_rJ_rᵀ with J_r = Diag(e_r)·L_r, the covariance of what goes into the filter, for every residue: k×k matrices.
    pub fn covariances(&self) -> Vec<f64> {
        let (k, b) = (self.comb.epochs(), self.comb.period);
        let mut all = vec![0.0; b * k * k];
        let mut rows = vec![Vec::new(); k];
        for (residue, covariance) in all.chunks_exact_mut(k * k).enumerate() {
            let length = self.comb.epochs_of(residue);
            for (j, row) in rows.iter_mut().enumerate().take(length) {
                self.comb.mix_row(residue, j, row);
                let e = self.input[j * b + residue];
                row.iter_mut().for_each(|x| *x *= e);
            }
            for i in 0..length {
                for j in 0..length {
                    covariance[i * k + j] = rows[i].iter().zip(&rows[j]).map(|(x, y)| x * y).sum();
                }
            }
        }
        all
    }

    /// x ← T·x.
    fn filter(&self, x: &mut [f64]) {
        let zeros = self.comb.filter.zeros();
        let mut buffers = vec![0.0; zeros.len()];
        for x in x {
            let (mut out, own) = (*x, *x);
            for ((s, zero), weight) in buffers.iter_mut().zip(zeros).zip(&self.inverse_weights) {
                out -= weight * *s;
                *s = zero * *s + own;
            }
            *x = out;
        }
    }

    /// x ← T⁻¹·x.
    fn unfilter(&self, x: &mut [f64]) {
        let poles = self.comb.filter.poles();
        let mut buffers = vec![0.0; poles.len()];
        for x in x {
            let (mut out, own) = (*x, *x);
            for ((s, pole), weight) in buffers.iter_mut().zip(poles).zip(&self.weights) {
                out += weight * *s;
                *s = pole * *s + own;
            }
            *x = out;
        }
    }

    /// Calls with every step t, and row t of ⊕L_r: its entries and the steps where they stand.
    fn for_each_mix(&self, steps: impl Iterator<Item = usize>, mut f: impl FnMut(usize, &[f64], usize)) {
        let period = self.comb.period;
        let mut row = Vec::new();
        for t in steps {
            self.comb.mix_row(t % period, t / period, &mut row);
            f(t, &row, t % period);
        }
    }
}

impl Factorization for Coefficients {
    fn steps(&self) -> usize {
        self.comb.steps
    }

    fn inputs(&self) -> usize {
        self.comb.steps
    }

    /// Under the schema that the comb is made for from its blocks, under any other one from C written out.
    fn own_sensitivity(&self, schema: &Schema) -> Option<Result<WorstCase>> {
        Some(match schema.residues() == Some(self.comb.period) {
            true => sensitivity::worst_case(self, schema),
            false => written_out::worst_case(&self.comb, schema),
        })
    }

    /// Of the blocks, and of entries between residues, which come from columns. With the residual δ of the inverses, X of the exact C differs by
    /// 1/(1 − δ)² − 1 at most, relative to its diagonal; columns are rounded by n·ε, and by what solving with L makes of it, ‖|L⁻¹||L|‖ ≤ δ/((k + 2)ε).
    fn gram_error(&self) -> f64 {
        let Ok(blocks) = self.blocks() else {
            return f64::INFINITY;
        };
        let (k, n, residual) = (self.comb.epochs(), self.steps() as f64, blocks.residual);
        let diagonal = blocks.matrices.chunks_exact(k * k).flat_map(|block| block.iter().step_by(k + 1));
        let largest = diagonal.copied().fold(0.0, f64::max);
        let stretch = 1.0 / ((1.0 - residual) * (1.0 - residual));
        let columns = 8.0 * n * (f64::EPSILON + residual / (k + 2) as f64) * stretch;
        blocks.error + (stretch - 1.0 + columns) * largest // up
    }

    fn gram_is_slow(&self) -> bool {
        true
    }

    /// Slow between steps of different residues: from two columns of C.
    fn gram(&self, i: usize, j: usize) -> f64 {
        if i % self.comb.period == j % self.comb.period {
            return self.blocks().as_ref().map_or(f64::NAN, |blocks| blocks.entry(self, i, j));
        }
        let n = self.steps();
        let units = crate::linalg::dense::from_fn(n, 2, |t, c| f64::from(t == if c == 0 { i } else { j }));
        let columns = self.encode(&units);
        columns.col_as_slice(0).iter().zip(columns.col_as_slice(1)).map(|(a, b)| a * b).sum()
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        map_columns(x, self.steps(), |x, y| {
            y.iter_mut().zip(x).zip(&self.output).for_each(|((y, x), o)| *y = x / o);
            self.unfilter(y);
            y.iter_mut().zip(&self.input).for_each(|(y, e)| *y /= e);
            // Row by row: the entries before it are solved already.
            self.for_each_mix(0..self.steps(), |t, row, residue| {
                let (diagonal, before) = row.split_last().expect("a row has its diagonal");
                let solved = before.iter().enumerate().map(|(i, x)| x * y[i * self.comb.period + residue]);
                y[t] = (y[t] - solved.sum::<f64>()) / diagonal;
            });
        })
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        map_columns(z, self.steps(), |z, y| {
            self.for_each_mix(0..self.steps(), |t, row, residue| {
                let mixed = row.iter().enumerate().map(|(i, x)| x * z[i * self.comb.period + residue]);
                y[t] = self.input[t] * mixed.sum::<f64>();
            });
            self.filter(y);
            y.iter_mut().zip(&self.output).for_each(|(y, o)| *y *= o);
        })
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        map_columns(u, self.steps(), |u, y| {
            // Tᵀ is T with time reversed.
            let mut x: Vec<f64> = u.iter().zip(&self.output).map(|(u, o)| u * o).rev().collect();
            self.filter(&mut x);
            x.reverse();
            self.for_each_mix(0..self.steps(), |t, row, residue| {
                let own = self.input[t] * x[t];
                row.iter().enumerate().for_each(|(i, l)| y[i * self.comb.period + residue] += l * own);
            });
        })
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match workload.as_training() {
            Some(training) => {
                let comb = &self.comb;
                System::new(comb.period, &comb.filter, training, &self.output).variances(&self.covariances())
            }
            None => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        let (n, k, d) = (self.steps(), self.comb.epochs(), self.comb.filter.buffers());
        // Step t draws one normal for its own epoch and one for every epoch before it.
        let drawn = (0..k).map(|j| (j + 1) * (n - j * self.comb.period).min(self.comb.period)).sum::<usize>();
        let normals = drawn as f64 / n as f64;
        let flops = 2.0 * normals + 4.0 * d as f64 + 2.0;
        let numbers = self.comb.mix.len() + self.comb.residue_gain.len() + 2 * self.comb.output_gain.len();
        Cost {
            stream_memory_rows: d + 1, // the buffers, and the row in the making
            stream_flops_per_step: flops,
            stream_gaussians_per_step: normals,
            pregenerate_memory_rows: d + 1,
            pregenerate_flops_per_step: flops,
            coefficient_bytes: 8 * (numbers + 2 * d),
        }
    }
}
