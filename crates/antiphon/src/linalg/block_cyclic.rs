//! Inverses of V⁻¹ + τU in linear time, for V⁻¹ = A⁻¹A⁻ᵀ with A⁻¹ banded and U = LLᵀ block diagonal.
//!
//! U couples the steps of one residue class r, r+b, r+2b, …; A⁻¹ couples a step with the few before it. Ordered
//! by groups of neighbouring residues, V⁻¹ + τU is block tridiagonal with one cyclic corner (the last group meets
//! the first one an epoch later). Nothing is squared: the factor R with RᵀR = V⁻¹ + τU comes from orthogonal row
//! operations on [A⁻¹, √τ·L]ᵀ, group by group, with the last group as a border:
//!
//! 1. the *carry*, rows that touch group g and the last group, is annihilated against √τ·L_gᵀ;
//!    what is left of it touches the last group only and is folded into that group's triangle;
//! 2. the rows of A⁻ᵀ that belong to group g, touching g and g+1, are annihilated against the result;
//!    what is left of them is the carry of group g+1.
//!
//! Walking back gives the diagonal blocks of the inverse (selected inversion) or, block column by block column,
//! all of it. Each SIMD lane holds another τ; see the kernels in `lanes.rs`.

mod eliminate;
mod tasks;

use super::dense::Matrix;
use super::lanes::Lane;
use super::quadrature::Quadrature;
use crate::workload::InverseBands;
use eliminate::{Elimination, Place};
use pulp::{Arch, Simd};
use rayon::prelude::*;
use std::any::Any;
use std::sync::Mutex;
use tasks::{DenseTask, DiagonalTask, batches};

/// Which steps form which group, and how A⁻ᵀ couples them.
pub struct BlockCyclic {
    /// The steps of each group.
    groups: Vec<Vec<usize>>,
    /// For each step its position in its group.
    position: Vec<usize>,
    /// For each step its group.
    group: Vec<usize>,
    /// For each step s the non-zero A⁻¹[t, s], as (t, value).
    coupling: Vec<Vec<(usize, f64)>>,
    /// For each group but the last, where its blocks are in an [`Elimination`]; and where they end.
    places: Vec<Place>,
    /// Eliminations of the last call, whose memory the next one uses again: fresh pages cost as much as the work.
    spare: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// U = LLᵀ as the solver sees it: for each group the lower triangular factor of its diagonal block, row-major.
pub type GroupFactors = Vec<Vec<f64>>;

impl BlockCyclic {
    /// Groups must be cyclically ordered: A⁻¹[t, s] ≠ 0 only for t in the group of s or the next one, and within a
    /// group only for `position[t] ≥ position[s]`. There must be at least three groups.
    pub fn new(groups: Vec<Vec<usize>>, coupling: Vec<Vec<(usize, f64)>>) -> Self {
        let n = coupling.len();
        let (mut position, mut group) = (vec![0; n], vec![0; n]);
        for (g, steps) in groups.iter().enumerate() {
            for (p, step) in steps.iter().enumerate() {
                position[*step] = p;
                group[*step] = g;
            }
        }
        debug_assert!(groups.len() >= 3);
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let last = groups.len() - 1;
        let mut places = vec![Place::default()];
        for g in 0..last {
            // The group before the last has no block towards a next one.
            let next = if g + 1 < last { sizes[g + 1] } else { 0 };
            places.push(Place {
                inverse: places[g].inverse + sizes[g] * sizes[g],
                to_next: places[g].to_next + sizes[g] * next,
                to_last: places[g].to_last + sizes[g] * sizes[last],
            });
        }
        BlockCyclic { groups, position, group, coupling, places, spare: Mutex::default() }
    }

    /// The steps of each group.
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// For each group the diagonal blocks of Σ_j w_j (V⁻¹ + τ_j U)⁻¹ and of Σ_j w_j τ_j (V⁻¹ + τ_j U)⁻¹, row-major.
    pub fn diagonal_blocks(&self, factors: &GroupFactors, rule: &Quadrature) -> Vec<[Vec<f64>; 2]> {
        let batches = batches(rule);
        let task = DiagonalTask { structure: self, factors, batches: &batches };
        let mut parts = Arch::new().dispatch(task);
        // Summed in a fixed order, so that the number of threads changes no bit.
        let mut total = parts.remove(0);
        total.par_iter_mut().enumerate().for_each(|(g, block)| {
            for part in &parts {
                for which in 0..2 {
                    let pairs = block[which].iter_mut().zip(&part[g][which]);
                    pairs.for_each(|(sum, x)| *sum += x);
                }
            }
        });
        total
    }

    /// The lower triangle of Σ_j w_j (V⁻¹ + τ_j U)⁻¹ as a dense matrix, its steps in reversed order: entry (i, j), i ≥ j,
    /// is that of the steps (n−1−i, n−1−j). `progress` is told how many of all nodes are done.
    pub fn lower_reversed(
        &self,
        factors: &GroupFactors,
        rule: &Quadrature,
        progress: impl Fn(usize, usize),
    ) -> Matrix {
        let n = self.position.len();
        let batches = batches(rule);
        // Column block h holds, group by group, the blocks (g, h) with g ≤ h.
        let mut columns: Vec<Vec<f64>> = (0..self.groups.len())
            .map(|h| {
                let rows: usize = self.groups[..=h].iter().map(Vec::len).sum();
                vec![0.0; rows * self.groups[h].len()]
            })
            .collect();
        let threads = rayon::current_num_threads();
        for (chunk, some) in batches.chunks(threads).enumerate() {
            progress(chunk * threads, batches.len());
            let task = DenseTask { structure: self, factors, batches: some, columns: &mut columns };
            Arch::new().dispatch(task);
        }
        progress(batches.len(), batches.len());
        let mut x = Matrix::zeros(n, n);
        for (h, column) in columns.iter().enumerate() {
            let rows = self.groups[..=h].iter().flatten();
            for (i, values) in rows.zip(column.chunks_exact(self.groups[h].len())) {
                for (j, value) in self.groups[h].iter().zip(values) {
                    x[(n - 1 - i.min(j), n - 1 - i.max(j))] = *value;
                }
            }
        }
        x
    }

    /// An elimination to fill, with memory if there is some.
    fn take<F: Send + 'static>(&self) -> Box<Elimination<F>> {
        let spare = self.spare.lock().ok().and_then(|mut spare| spare.pop());
        spare.and_then(|any| any.downcast().ok()).unwrap_or_default()
    }

    /// Keeps the memory of an elimination.
    fn give<F: Send + 'static>(&self, elimination: Box<Elimination<F>>) {
        if let Ok(mut spare) = self.spare.lock() {
            spare.push(elimination);
        }
    }

    fn next(&self, g: usize) -> usize {
        (g + 1) % self.groups.len()
    }

    /// Writes the entries A⁻¹[t, s], s in group `from` (rows), t in group `to` (columns), into a cleared block.
    #[inline(always)]
    fn couple<S: Simd>(&self, simd: S, block: &mut [Lane<S::f64s>], from: usize, to: usize) {
        block.fill(Lane(simd.splat_f64s(0.0)));
        let columns = self.groups[to].len();
        for (row, step) in self.groups[from].iter().enumerate() {
            for (t, value) in &self.coupling[*step] {
                if self.group[*t] == to {
                    block[row * columns + self.position[*t]] = Lane(simd.splat_f64s(*value));
                }
            }
        }
    }
}

/// The grouping for residue classes modulo `b` over `n` steps: ⌊b/p⌋ groups of p neighbouring residues each, the
/// last one also with the b mod p left over, where p is the bandwidth of A⁻¹. `None` with fewer than three groups.
pub fn residue_groups(n: usize, b: usize, bands: &InverseBands) -> Option<BlockCyclic> {
    let p = bands.bandwidth;
    let count = b / p;
    if count < 3 {
        return None;
    }
    let groups = (0..count)
        .map(|g| {
            let end = if g + 1 == count { b } else { (g + 1) * p };
            (g * p..end).flat_map(|r| (r..n).step_by(b)).collect()
        })
        .collect();
    let coupling = (0..n).map(|s| (s..n.min(s + p + 1)).map(|t| (t, bands.get(t, s))).collect()).collect();
    Some(BlockCyclic::new(groups, coupling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::workload::Workload;

    /// Σ_j w_j (A⁻¹A⁻ᵀ + τ_j LLᵀ)⁻¹ by dense Cholesky factorizations: the oracle.
    fn oracle(a_inverse: &Matrix, l: &Matrix, rule: &Quadrature) -> Matrix {
        let n = l.nrows();
        let mut sum = Matrix::zeros(n, n);
        for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
            let mut m = a_inverse * a_inverse.transpose() + (l * l.transpose()) * faer::Scale(*node);
            dense::cholesky_in_place(&mut m).unwrap();
            let inverse = dense::lower_inverse(&m).unwrap();
            sum += (inverse.transpose() * &inverse) * faer::Scale(*weight);
        }
        sum
    }

    #[test]
    fn blocks_and_dense_agree_with_the_oracle() {
        for (n, b, momentum) in
            [(12, 3, 0.0), (23, 5, 0.0), (30, 7, 0.9), (7, 7, 0.0), (40, 6, 0.5), (29, 9, 0.9)]
        {
            let workload = Workload::training(n, momentum, None).unwrap();
            let bands = workload.inverse_bands().unwrap();
            let structure = residue_groups(n, b, &bands).unwrap();
            let factors: GroupFactors = structure
                .groups()
                .iter()
                .map(|steps| {
                    let s = steps.len();
                    (0..s * s)
                        .map(|e| {
                            let (i, j) = (e / s, e % s);
                            // Steps of different residues are not coupled by U.
                            if steps[i] % b != steps[j] % b || j > i {
                                0.0
                            } else if i == j {
                                1.0 + 0.1 * (steps[i] as f64).sin()
                            } else {
                                0.3 * ((steps[i] * 7 + steps[j]) as f64).cos()
                            }
                        })
                        .collect()
                })
                .collect();
            let mut l = Matrix::zeros(n, n);
            for (steps, factor) in structure.groups().iter().zip(&factors) {
                for (i, row) in steps.iter().enumerate() {
                    for (j, column) in steps.iter().enumerate() {
                        l[(*row, *column)] = factor[i * steps.len() + j];
                    }
                }
            }
            let a_inverse = dense::from_fn(n, n, |i, j| bands.get(i, j));
            let rule = Quadrature::new(1e-3, 5.0, 11).unwrap();
            let expected = oracle(&a_inverse, &l, &rule);
            let scale = dense::squared_norm(&expected).sqrt();
            let full = structure.lower_reversed(&factors, &rule, |_, _| ());
            for i in 0..n {
                for j in i..n {
                    let error = full[(n - 1 - i, n - 1 - j)] - expected[(i, j)];
                    assert!(error.abs() < 1e-12 * scale, "n={n} b={b} ({i},{j}): {error:e}");
                }
            }
            let blocks = structure.diagonal_blocks(&factors, &rule);
            for (steps, [block, _]) in structure.groups().iter().zip(&blocks) {
                for (i, row) in steps.iter().enumerate() {
                    for (j, column) in steps.iter().enumerate() {
                        let error = block[i * steps.len() + j] - expected[(*row, *column)];
                        assert!(error.abs() < 1e-12 * scale, "n={n} b={b}: {error:e}");
                    }
                }
            }
        }
    }
}
