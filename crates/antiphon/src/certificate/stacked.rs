//! The checker's own way to V⁻¹ + τU: one plain QR decomposition per group and node, for determinants and for the blocks of Σ w_j (V⁻¹ + τ_j U)⁻¹.
//!
//! [A⁻¹, √τ·L]ᵀ has, for the columns of one group of residues, three kinds of rows: those of √τ·L_gᵀ, those of A⁻ᵀ
//! that start in the group, and what earlier groups left over. They are stacked as they are and handed to a QR
//! decomposition; its first rows belong to the factor, the rest is carried on. Slower than the solver's elimination
//! and written without it.

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::linalg::quadrature::Quadrature;
use crate::mechanism::Certificate;
use crate::schema::Schema;
use crate::workload::{InverseBands, Training, Workload};
use rayon::prelude::*;

/// A banded workload, residue classes, and the certificate's U.
pub struct Stacked<'a> {
    n: usize,
    workload: &'a Workload,
    training: &'a Training,
    bands: InverseBands,
    certificate: &'a Certificate,
    /// For each group of residues its steps, and the residues themselves.
    groups: Vec<(Vec<usize>, Vec<usize>)>,
    b: usize,
}

impl<'a> Stacked<'a> {
    /// `None` where the structure does not apply.
    pub fn new(schema: &Schema, workload: &'a Workload, certificate: &'a Certificate) -> Option<Self> {
        let b = schema.residues()?;
        let n = schema.steps();
        let bands = workload.inverse_bands()?;
        // Rates that rise, together with momentum, cost more digits than the allowance covers.
        let training = workload.as_training()?;
        if training.momentum() > 0.0 && training.largest_rise() > 1001.0 {
            return None;
        }
        let count = b / bands.bandwidth;
        if count < 3 {
            return None;
        }
        let mut groups = vec![(Vec::new(), Vec::new()); count];
        for r in 0..b {
            let (steps, residues) = &mut groups[(r / bands.bandwidth).min(count - 1)];
            residues.push(r);
            steps.extend((r..n).step_by(b));
        }
        Some(Stacked { n, workload, training, bands, certificate, groups, b })
    }

    /// An interval that holds the spectrum of the pencil (V⁻¹, U), from norms (docs/theory.md, section 6).
    pub fn spectrum(&self) -> (f64, f64) {
        let norm = |sums: Vec<f64>| sums.into_iter().fold(0.0, f64::max);
        // ‖M‖₂² ≤ ‖M‖₁‖M‖_∞. The entries of A are not negative, so its sums come from vectors of ones.
        let ones = dense::from_fn(self.n, 1, |_, _| 1.0);
        let rows = self.workload.apply(&ones);
        let mut columns = vec![1.0; self.n];
        self.training.apply_transpose(&mut columns);
        let a = norm(rows.col(0).iter().copied().collect()) * norm(columns);
        let entry = |i: usize, j: usize| self.bands.get(i, j).abs();
        let inverse_rows =
            (0..self.n).map(|i| (i.saturating_sub(2)..=i).map(|j| entry(i, j)).sum()).collect();
        let inverse_columns =
            (0..self.n).map(|j| (j..self.n.min(j + 3)).map(|i| entry(i, j)).sum()).collect();
        let inverse = norm(inverse_rows) * norm(inverse_columns);
        let (mut u, mut u_inverse) = (0.0f64, 0.0f64);
        for factor in &self.certificate.factors {
            let k = factor.len().isqrt();
            let l = dense::from_fn(k, k, |i, j| factor[i * k + j]);
            u = u.max(dense::squared_norm(&l)); // the trace of U_r
            // A block that is singular, or too close to it for numbers: no upper end. (`max` would drop a NaN.)
            let norm =
                dense::small_lower_inverse(&l).map_or(f64::INFINITY, |inverse| dense::squared_norm(&inverse));
            u_inverse = u_inverse.max(if norm.is_nan() { f64::INFINITY } else { norm });
        }
        (1.0 / (1.01 * a * u), 1.01 * inverse * u_inverse)
    }

    /// About the interval that holds the spectrum, from power iterations: 1/‖AL‖² from a vector without signs, as the largest singular vectors of smooth
    /// problems are, and ‖(AL)⁻¹‖² from one of alternating signs. For rules that are bounds on any interval; the norms where this makes no sense.
    pub fn likely_spectrum(&self) -> (f64, f64) {
        let (low, high) = self.spectrum();
        let largest = largest_eigenvalue(vec![1.0; self.n], |x| {
            self.apply_factor(x, false);
            self.training.apply(x);
            self.training.apply_transpose(x);
            self.apply_factor(x, true);
        });
        let alternating = (0..self.n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let inverse = largest_eigenvalue(alternating, |x| {
            self.solve_factor(x, true);
            self.bands.apply_transpose(x);
            self.bands.apply(x);
            self.solve_factor(x, false);
        });
        let within = |x: f64, otherwise: f64| if x > low && x < high { x } else { otherwise };
        (within(0.8 / largest, low), within(4.0 * inverse, high))
    }

    /// x ← L·x, or Lᵀ·x.
    fn apply_factor(&self, x: &mut [f64], transposed: bool) {
        for (steps, factor) in self.factors() {
            let (k, old) = (steps.len(), steps.iter().map(|i| x[*i]).collect::<Vec<f64>>());
            for i in 0..k {
                x[steps[i]] = match transposed {
                    false => (0..=i).map(|j| factor[i * k + j] * old[j]).sum(),
                    true => (i..k).map(|j| factor[j * k + i] * old[j]).sum(),
                };
            }
        }
    }

    /// x ← L⁻¹·x, or L⁻ᵀ·x.
    fn solve_factor(&self, x: &mut [f64], transposed: bool) {
        for (steps, factor) in self.factors() {
            let k = steps.len();
            for place in 0..k {
                let i = if transposed { k - 1 - place } else { place };
                let known: f64 = match transposed {
                    false => (0..i).map(|j| factor[i * k + j] * x[steps[j]]).sum(),
                    true => (i + 1..k).map(|j| factor[j * k + i] * x[steps[j]]).sum(),
                };
                x[steps[i]] = (x[steps[i]] - known) / factor[i * k + i];
            }
        }
    }

    /// n.
    pub fn steps(&self) -> usize {
        self.n
    }

    /// η of a step, which is also A's entry on the diagonal.
    pub fn rate(&self, step: usize) -> f64 {
        self.training.rate(step)
    }

    /// ‖row i of A⁻¹‖.
    pub fn inverse_row_norm(&self, step: usize) -> f64 {
        self.bands.rows[step].iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    /// The steps and the factor L_r of every residue.
    pub fn factors(&self) -> impl Iterator<Item = (Vec<usize>, &[f64])> {
        let steps = |r: usize| (r..self.n).step_by(self.b).collect();
        self.certificate.factors.iter().enumerate().map(move |(r, factor)| (steps(r), &factor[..]))
    }

    /// Upper bounds on ‖A·e_j‖ = √V_jj: column j of A has n − j entries Σ_{s=j}^t η_s·β^{s−j}, at most the whole sum each.
    pub fn column_norms(&self) -> Vec<f64> {
        let mut norms = vec![0.0; self.n];
        let mut sum = 0.0;
        for j in (0..self.n).rev() {
            sum = self.rate(j) + self.training.momentum() * sum;
            norms[j] = sum * ((self.n - j) as f64).sqrt() * (1.0 + 1e-9); // up: a million roundings at most
        }
        norms
    }

    /// tr(U·X) from the blocks X_r, and the same sum with absolute values, which rounding errors are relative to.
    pub fn trace(&self, blocks: &[Matrix]) -> (f64, f64) {
        let (mut sum, mut absolute) = (0.0, 0.0);
        for (factor, x) in self.certificate.factors.iter().zip(blocks) {
            let k = x.nrows();
            for j in 0..k {
                // lᵀXl for column j of L_r.
                for i in j..k {
                    let left = factor[i * k + j];
                    for t in j..k {
                        let product = left * x[(i, t)] * factor[t * k + j];
                        sum += product;
                        absolute += product.abs();
                    }
                }
            }
        }
        (sum, absolute)
    }

    /// The blocks X_r of Σ w_j (V⁻¹ + τ_j U)⁻¹, one per residue.
    pub fn blocks(&self, rule: &Quadrature) -> Result<Vec<Matrix>> {
        let poles: Vec<(f64, f64)> = rule.nodes.iter().copied().zip(rule.weights.iter().copied()).collect();
        // A few nodes at a time, so that memory stays a small multiple of the result.
        let mut total: Option<Vec<Matrix>> = None;
        for chunk in poles.chunks(rayon::current_num_threads()) {
            let parts: Vec<Result<Vec<Matrix>>> =
                chunk.par_iter().map(|(node, weight)| self.one_node(node.sqrt(), *weight)).collect();
            for part in parts {
                let part = part?;
                match &mut total {
                    None => total = Some(part),
                    Some(sum) => sum.iter_mut().zip(&part).for_each(|(sum, x)| *sum += x),
                }
            }
        }
        total.ok_or_else(|| Error::Numerical("an empty quadrature".into()))
    }

    /// The triangular factor R of [A⁻¹, root·L]ᵀ, group after group: `visit` sees the steps of the columns of a stack (those of the
    /// group first), the stack, and its R. The rows of R beyond the group's own are carried into the next stack.
    pub fn sweep(&self, root: f64, mut visit: impl FnMut(&[&[usize]], &Matrix, Matrix)) {
        let last = self.groups.len() - 1;
        let steps = |g: usize| &self.groups[g].0[..];
        let sl = steps(last).len();
        // Rows left over from before, over the columns [g | last].
        let mut carry = dense::hstack(&self.coupling(last, 0), &self.coupling(last, last));
        for g in 0..last {
            // Columns [g | g+1 | last]; the group before the last has no middle.
            let middle = if g + 1 < last { steps(g + 1) } else { &[] };
            let (s, sn) = (steps(g).len(), middle.len());
            let own = self.coupling(g, g);
            let next = self.coupling(g, g + 1);
            let l = self.scaled_factor(g, root);
            let mut stack = Matrix::zeros(s + carry.nrows() + s, s + sn + sl);
            let first = s + carry.nrows();
            for i in 0..s {
                for j in 0..s {
                    stack[(i, j)] = l[(j, i)];
                    stack[(first + i, j)] = own[(i, j)];
                }
                for j in 0..next.ncols() {
                    stack[(first + i, s + j)] = next[(i, j)];
                }
            }
            for i in 0..carry.nrows() {
                for j in 0..s {
                    stack[(s + i, j)] = carry[(i, j)];
                }
                for j in 0..sl {
                    stack[(s + i, s + sn + j)] = carry[(i, s + j)];
                }
            }
            let r = dense::small_qr(&stack);
            carry = dense::from_fn(r.nrows() - s, sn + sl, |i, j| r[(s + i, s + j)]);
            visit(&[steps(g), middle, steps(last)], &stack, r);
        }
        let l = self.scaled_factor(last, root);
        let stack = dense::from_fn(sl + carry.nrows(), sl, |i, j| match i < sl {
            true => l[(j, i)],
            false => carry[(i - sl, j)],
        });
        let r = dense::small_qr(&stack);
        visit(&[steps(last)], &stack, r);
    }

    /// weight·(V⁻¹ + root²·U)⁻¹, its block for every residue.
    fn one_node(&self, root: f64, weight: f64) -> Result<Vec<Matrix>> {
        let last = self.groups.len() - 1;
        let size = |g: usize| self.groups[g].0.len();
        let sl = size(last);
        let mut factors = Vec::with_capacity(last + 1);
        self.sweep(root, |_, _, r| factors.push(r));
        let inverse = dense::small_upper_inverse(&factors[last], sl)?;
        // Walk back: rows g of R·G = R⁻ᵀ give the blocks of G = (RᵀR)⁻¹.
        let corner = dense::small_product(&inverse, &dense::transposed(&inverse));
        let mut blocks = vec![Matrix::zeros(0, 0); self.b];
        self.take(last, &corner, weight, &mut blocks);
        // G over the columns [g+1 | last], both ways.
        let mut known = corner;
        for g in (0..last).rev() {
            let (s, sn) = (size(g), if g + 1 < last { size(g + 1) } else { 0 });
            let r = &factors[g];
            let inverse = dense::small_upper_inverse(r, s)?;
            let beside = dense::from_fn(s, sn + sl, |i, j| r[(i, s + j)]);
            let p = dense::small_product(&inverse, &beside);
            // [G_{g,g+1} | G_{g,last}] = −P·known, and G_gg = R⁻¹R⁻ᵀ + P·known·Pᵀ.
            let minus = dense::small_product(&p, &known);
            let diagonal = dense::small_product(&inverse, &dense::transposed(&inverse))
                + dense::small_product(&minus, &dense::transposed(&p));
            self.take(g, &diagonal, weight, &mut blocks);
            known = dense::from_fn(s + sl, s + sl, |i, j| match (i < s, j < s) {
                (true, true) => diagonal[(i, j)],
                (true, false) => -minus[(i, sn + j - s)],
                (false, true) => -minus[(j, sn + i - s)],
                (false, false) => known[(sn + i - s, sn + j - s)],
            });
        }
        Ok(blocks)
    }

    /// Cuts the blocks of single residues out of a group's block.
    fn take(&self, g: usize, block: &Matrix, weight: f64, blocks: &mut [Matrix]) {
        let mut start = 0;
        for r in &self.groups[g].1 {
            let k = self.certificate.factors[*r].len().isqrt();
            blocks[*r] = dense::from_fn(k, k, |i, j| weight * block[(start + i, start + j)]);
            start += k;
        }
    }

    /// root·L over the steps of a group.
    fn scaled_factor(&self, g: usize, root: f64) -> Matrix {
        let (steps, residues) = &self.groups[g];
        let mut l = Matrix::zeros(steps.len(), steps.len());
        let mut start = 0;
        for r in residues {
            let factor = &self.certificate.factors[*r];
            let k = factor.len().isqrt();
            for i in 0..k {
                for j in 0..=i {
                    l[(start + i, start + j)] = root * factor[i * k + j];
                }
            }
            start += k;
        }
        l
    }

    /// The entries A⁻¹[t, s] with s in group `from` (rows) and t in group `to` (columns).
    fn coupling(&self, from: usize, to: usize) -> Matrix {
        let (rows, columns) = (&self.groups[from].0, &self.groups[to].0);
        dense::from_fn(rows.len(), columns.len(), |i, j| self.bands.get(columns[j], rows[i]))
    }
}

/// The largest eigenvalue of a symmetric positive operator, nearly and from below.
fn largest_eigenvalue(mut x: Vec<f64>, apply: impl Fn(&mut [f64])) -> f64 {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut value = 0.0;
    for _ in 0..12 {
        let before = norm(&x);
        x.iter_mut().for_each(|x| *x /= before);
        apply(&mut x);
        value = norm(&x);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_singular_for_numbers_has_no_upper_end() {
        let schema = Schema::epochs(2, 3).unwrap();
        let workload = Workload::prefix_sum(6);
        let identity = vec![1.0, 0.0, 0.0, 1.0];
        for tiny in [0.0, 5e-324, 1e-310, 1e-200] {
            let certificate =
                Certificate::new(vec![vec![tiny, 0.0, 0.0, tiny], identity.clone(), identity.clone()]);
            let stacked = Stacked::new(&schema, &workload, &certificate).unwrap();
            assert_eq!(stacked.spectrum().1, f64::INFINITY, "{tiny:e}");
        }
        let certificate = Certificate::new(vec![identity; 3]);
        let stacked = Stacked::new(&schema, &workload, &certificate).unwrap();
        assert!(stacked.spectrum().1 < 100.0);
        // The eigenvalues of V⁻¹ are 4·sin²(π(2i + 1)/26): 0.0581 and 3.7709 at the ends.
        let (low, high) = stacked.likely_spectrum();
        assert!((0.04..0.0582).contains(&low) && (3.7..16.0).contains(&high), "{low} {high}");
    }
}
