//! Determinants of V⁻¹ + τU from below, for every finite certificate: how far rounding can have moved them is bounded, not assumed.
//!
//! A QR decomposition of F = [A⁻¹, √τ·L]ᵀ gives the R of a nearby F + ΔF. With column j of ΔF of norm at most e_j,
//!
//! ```text
//! ln det FᵀF ≥ 2·Σ ln|r_ii| − 2θ − θ²,    θ = Σ_j e_j·√G_jj,    G = (V⁻¹ + τU)⁻¹
//! ```
//!
//! (docs/theory.md, section 8), and G_jj is at most V_jj and at most (U⁻¹)_jj/τ, which need no G.

use super::stacked::Stacked;
use crate::linalg::dense::Matrix;

/// The unit roundoff.
const UNIT: f64 = 0.5 * f64::EPSILON;
/// A relative margin for sums of positive numbers that are used as bounds: at most a million terms with a few roundings each.
const UP: f64 = 1.0 + 1e-9;

/// What does not depend on τ.
pub struct Determinants<'a> {
    stacked: &'a Stacked<'a>,
    /// At least √V_jj, by step.
    columns: Vec<f64>,
    /// At least √(U⁻¹)_jj, by step.
    inverse: Vec<f64>,
}

impl<'a> Determinants<'a> {
    /// Bounds on the diagonals of V and of U⁻¹.
    pub fn new(stacked: &'a Stacked<'a>) -> Self {
        Determinants { columns: stacked.column_norms(), inverse: inverse_norms(stacked), stacked }
    }

    /// A lower bound on Σ_i ln(1 + τ/μ_i) = ln det(V⁻¹ + τU) + ln det V, never negative.
    pub fn logarithms(&self, node: f64) -> f64 {
        let root = node.sqrt();
        let mut errors = vec![0.0; self.columns.len()];
        // Two levels of sums, whose rounding errors grow with the length of each.
        let mut sums = Vec::new();
        let (mut magnitudes, mut largest_group) = (0.0, 0);
        self.stacked.sweep(root, |columns, stack, r| {
            let unit = backward_error(r.nrows());
            let steps = columns.iter().copied().flatten();
            for (j, step) in steps.enumerate() {
                errors[*step] += unit * (norm(stack, j) + 1e-150); // where squares underflow
            }
            let mut sum = 0.0;
            for (i, step) in columns[0].iter().enumerate() {
                let (factor, rate) = (r[(i, i)].abs().ln(), self.stacked.rate(*step).ln());
                sum += factor + rate;
                magnitudes += factor.abs() + rate.abs();
            }
            sums.push(sum);
            largest_group = largest_group.max(columns[0].len());
        });
        let sum: f64 = sums.chunks(1000).map(|chunk| chunk.iter().sum::<f64>()).sum();
        // A logarithm is within two units, and a term goes through three sums.
        let longest = largest_group + 1000 + sums.len() / 1000 + 8;
        let rounding = longest as f64 * UNIT * magnitudes;
        let theta = self.theta(&errors, root);
        let value = 2.0 * (sum - rounding - theta * (1.0 + 0.5 * theta));
        // A NaN is no bound either.
        if value > 0.0 { value } else { 0.0 }
    }

    /// About θ for a node, without a decomposition: all columns of F but those of the last group take part in two of them. It says whether rounding can decide what
    /// is computed from V⁻¹ + τU.
    pub fn conditioning(&self, node: f64) -> f64 {
        let root = node.sqrt();
        let mut errors = vec![0.0; self.columns.len()];
        for (steps, factor) in self.stacked.factors() {
            let k = steps.len();
            for (i, step) in steps.iter().enumerate() {
                let own: f64 = factor[i * k..(i + 1) * k].iter().map(|x| x * x).sum();
                let norm = (self.stacked.inverse_row_norm(*step).powi(2) + node * own).sqrt();
                errors[*step] = 2.0 * backward_error(6 * k) * norm;
            }
        }
        self.theta(&errors, root)
    }

    /// Σ_j e_j·√G_jj, rounded up.
    fn theta(&self, errors: &[f64], root: f64) -> f64 {
        let each = errors.iter().zip(&self.columns).zip(&self.inverse);
        UP * each.map(|((error, column), inverse)| error * column.min(inverse / root)).sum::<f64>()
    }
}

/// The norm by which a QR decomposition with so many reflections moves a column of norm one, and what the rounding of the entries of F adds.
///
/// An estimate. Higham (Theorem 19.4) proves a multiple of reflections times rows; errors of single reflections have no common direction, and in practice
/// add up like the root of their number. What can be measured is how far the Gram matrix moves: over stacks with entries of forty decades,
/// as far as columns moved by 0.24 of this could move it (the test below).
fn backward_error(reflections: usize) -> f64 {
    8.0 * ((reflections as f64).sqrt() + 1.0) * UNIT
}

/// ‖column j‖, rounded up.
fn norm(m: &Matrix, j: usize) -> f64 {
    UP * m.col_as_slice(j).iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// √(U⁻¹)_jj = ‖column j of L⁻¹‖ from above. |L⁻¹| is at most the inverse of the comparison matrix, which has |l_ii| on its diagonal and −|l_ij|
/// below, and whose inverse is a sum of positive terms: rounding cannot hurt it.
fn inverse_norms(stacked: &Stacked<'_>) -> Vec<f64> {
    let mut norms = vec![f64::INFINITY; stacked.steps()];
    for (steps, factor) in stacked.factors() {
        let k = steps.len();
        for j in 0..k {
            let mut column = vec![0.0; k];
            column[j] = 1.0 / factor[j * k + j].abs();
            for i in j + 1..k {
                let sum: f64 = (j..i).map(|t| factor[i * k + t].abs() * column[t]).sum();
                column[i] = (sum + f64::MIN_POSITIVE) / factor[i * k + i].abs(); // where products underflow
            }
            let norm = UP * column.iter().map(|x| x * x).sum::<f64>().sqrt();
            // 0/0 in the column of a singular factor: no bound.
            norms[steps[j]] = if norm.is_nan() { f64::INFINITY } else { norm };
        }
    }
    norms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::mechanism::Certificate;
    use crate::noise::{Cipher, Key};
    use crate::schema::Schema;
    use crate::workload::Workload;

    /// Numbers in [0, 1) from a seed.
    fn uniform(seed: u64) -> impl FnMut() -> f64 {
        let key = Key::from_seed(seed, Cipher::ChaCha20);
        let mut words = vec![0u64; 1 << 16];
        key.fill_words(0, &mut words);
        let mut next = words.into_iter().cycle();
        move || (next.next().unwrap_or(0) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// xᵀy with twice the precision, as a sum of two numbers.
    fn dot(x: &[f64], y: &[f64]) -> (f64, f64) {
        x.iter().zip(y).fold((0.0, 0.0), |(high, low), (a, b)| {
            let product = a * b;
            let sum = high + product;
            let back = sum - high;
            let lost = (high - (sum - back)) + (product - back) + a.mul_add(*b, -product);
            (sum, low + lost)
        })
    }

    /// The largest |AᵀA − RᵀR|_ij / 2‖a_i‖‖a_j‖ in units: what columns moved by that much, times their norms, can do.
    fn moved(a: &Matrix) -> f64 {
        let r = dense::small_qr(a);
        let mut largest = 0.0f64;
        for i in 0..a.ncols() {
            for j in 0..=i {
                let (x, y) =
                    (dot(a.col_as_slice(i), a.col_as_slice(j)), dot(r.col_as_slice(i), r.col_as_slice(j)));
                let scale = 2.0 * norm(a, i) * norm(a, j);
                if scale > 0.0 {
                    largest = largest.max(((x.0 - y.0) + (x.1 - y.1)).abs() / (scale * UNIT));
                }
            }
        }
        largest
    }

    #[test]
    fn decompositions_move_columns_far_less_than_allowed() {
        let mut next = uniform(1);
        let mut worst = 0.0f64;
        for case in 0..400 {
            let s = [1, 2, 3, 6, 10, 20, 40][case % 7];
            // Even cases have entries of one size, odd ones of forty decades, in rows or in single places.
            let spread = if case % 2 == 0 { 0.0 } else { 40.0 };
            let mut rows = vec![0.0; 4 * s];
            rows.iter_mut().for_each(|row| *row = 10f64.powf(spread * (next() - 0.5)));
            let single = case % 4 == 3;
            let a = dense::from_fn(4 * s, 3 * s, |i, _| {
                let size = if single { 10f64.powf(spread * (next() - 0.5)) } else { rows[i] };
                size * (2.0 * next() - 1.0)
            });
            worst = worst.max(moved(&a) * UNIT / backward_error(3 * s));
        }
        assert!(worst > 0.0 && worst < 0.25, "{worst} of what is allowed");
    }

    #[test]
    fn determinants_are_bounds_and_close_ones() {
        // The oracle: ln det(I + τ·(AL)ᵀ(AL)) from singular values of AL.
        for (epochs, b, momentum) in [(3, 7, 0.0), (2, 9, 0.9), (5, 6, 0.5), (1, 12, 0.0)] {
            let schema = Schema::epochs(epochs, b).unwrap();
            let n = epochs * b;
            let rates = (0..n).map(|i| 1.0 / (1.0 + i as f64)).collect();
            let workload = Workload::training(n, momentum, Some(rates)).unwrap();
            let mut next = uniform(2 + n as u64);
            let mut l = Matrix::zeros(n, n);
            let factors = (0..b)
                .map(|r| {
                    let mut factor = vec![0.0; epochs * epochs];
                    for i in 0..epochs {
                        for j in 0..=i {
                            factor[i * epochs + j] = 2.0 * next() - 1.0 + if i == j { 2.0 } else { 0.0 };
                            l[(r + i * b, r + j * b)] = factor[i * epochs + j];
                        }
                    }
                    factor
                })
                .collect();
            let certificate = Certificate::new(factors);
            let stacked = Stacked::new(&schema, &workload, &certificate).unwrap();
            let determinants = Determinants::new(&stacked);
            let values = dense::singular_values(&workload.apply(&l)).unwrap();
            for node in [1e-6, 1e-3, 1.0, 1e3, 1e8] {
                let exact: f64 = values.iter().map(|x| (node * x * x).ln_1p()).sum();
                let bound = determinants.logarithms(node);
                assert!(bound <= exact * (1.0 + 1e-13), "{epochs}×{b}, τ = {node:e}: {bound:e} > {exact:e}");
                assert!(
                    bound >= exact - 1e-9 * (1.0 + exact),
                    "{epochs}×{b}, τ = {node:e}: {bound:e} < {exact:e}"
                );
            }
        }
    }
}
