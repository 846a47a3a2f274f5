//! What a comb does to vectors, in linear time.

use super::shape::Comb;
use super::written_out;
use crate::error::Result;
use crate::linalg::dense::Matrix;
use crate::mechanism::factorization::{Cost, Factorization, map_columns};
use crate::schema::Schema;
use crate::sensitivity::WorstCase;

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
}

impl Coefficients {
    /// Of a comb that was checked.
    pub fn new(comb: Comb) -> Coefficients {
        Coefficients {
            weights: comb.filter.weights(),
            inverse_weights: comb.filter.inverse_weights(),
            input: (0..comb.steps).map(|t| comb.input_gain(t)).collect(),
            output: (0..comb.steps).map(|t| comb.output_gain(t)).collect(),
            comb,
        }
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

    /// None under the schema that the comb is made for: no rule is needed there. Under any other one C is written out.
    fn own_sensitivity(&self, schema: &Schema) -> Option<Result<WorstCase>> {
        match schema.residues() == Some(self.comb.period) {
            true => None,
            false => Some(written_out::worst_case(&self.comb, schema)),
        }
    }

    fn gram_is_slow(&self) -> bool {
        true
    }

    /// Slow: from two columns of C.
    fn gram(&self, i: usize, j: usize) -> f64 {
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
