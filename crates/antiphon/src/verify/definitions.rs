//! The structured mechanisms as docs/FORMAT.md defines them: every entry of C and of W, by slow and obvious code.
//!
//! Written from that page. Nothing is shared with the fast forms in [`mechanism`](crate::mechanism), not even the
//! lengths of the stamps or the order of the nodes, so that one checks the other.

use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::{Family, Structured};
use std::f64::consts::PI;

/// Both matrices, written out.
#[derive(Debug, Clone)]
pub struct Explicit {
    /// C, one column per step.
    pub encoder: Matrix,
    /// W with W·C = I, one row per step.
    pub noising: Matrix,
    /// A bound on the norm by which rounding moved a column of C.
    pub column_error: f64,
}

/// C and W over so many steps: those of all stamps along the diagonal.
pub fn explicit(structured: Structured, steps: usize) -> Result<Explicit> {
    structured.check(steps)?;
    let stamps = structured.stamps;
    // n mod s stamps are longer by one: the first ones.
    let lengths = (0..stamps).map(|i| (steps - i).div_ceil(stamps));
    let parts = lengths.map(|length| stamp(structured.family, length)).collect::<Result<Vec<_>>>()?;
    Ok(Explicit {
        encoder: block_diagonal(parts.iter().map(|part| &part.encoder)),
        noising: block_diagonal(parts.iter().map(|part| &part.noising)),
        column_error: parts.iter().map(|part| part.column_error).fold(0.0, f64::max),
    })
}

/// One stamp of n steps.
fn stamp(family: Family, n: usize) -> Result<Explicit> {
    let exactly = |encoder, noising| Explicit { encoder, noising, column_error: 0.0 };
    Ok(match family {
        Family::Identity => exactly(dense::identity(n), dense::identity(n)),
        Family::TreeOnline => exactly(tree(n), differences(&online_estimates(n))),
        Family::TreeOptimal => exactly(tree(n), pseudo_inverse(&tree(n))?),
        Family::Fft | Family::FftOptimal => {
            let (y, error) = fft_column(n);
            let circulant = |i: usize, j: usize| y[(2 * n + i - j) % (2 * n)];
            let encoder = dense::from_fn(2 * n, n, circulant);
            let noising = match family {
                Family::Fft => differences(&dense::from_fn(n, 2 * n, circulant)),
                _ => pseudo_inverse(&encoder)?,
            };
            Explicit { encoder, noising, column_error: error * (2.0 * n as f64).sqrt() }
        }
    })
}

/// The nodes (l, q) of the tree, level by level from the leaves to the root.
fn nodes(n: usize) -> Vec<(usize, usize)> {
    let mut nodes = Vec::new();
    for level in 0.. {
        let count = n.div_ceil(1 << level);
        nodes.extend((0..count).map(|place| (level, place)));
        if count == 1 {
            break;
        }
    }
    nodes
}

/// Row (l, q) is one on the steps q·2^l, …, (q+1)·2^l − 1.
fn tree(n: usize) -> Matrix {
    let nodes = nodes(n);
    dense::from_fn(nodes.len(), n, |i, step| f64::from(step >> nodes[i].0 == nodes[i].1))
}

/// The weights of all nodes in the estimates of the n prefix sums.
fn online_estimates(n: usize) -> Matrix {
    let nodes = nodes(n);
    let root = nodes[nodes.len() - 1].0;
    let mut b = Matrix::zeros(n, nodes.len());
    for t in 0..n {
        if t + 1 == n {
            add_estimate(&mut b, t, root, 0, 1.0);
            continue;
        }
        // The subtrees that the first t + 1 steps fill, the largest first.
        let mut first = 0;
        for level in (0..=root).rev().filter(|level| ((t + 1) >> level) & 1 == 1) {
            add_estimate(&mut b, t, level, first >> level, 1.0);
            first += 1 << level;
        }
    }
    b
}

/// Adds `factor` times the estimate at a node to row t: its own weight, and the rest from the nodes below.
fn add_estimate(b: &mut Matrix, t: usize, level: usize, place: usize, factor: f64) {
    let n = b.nrows();
    if place >= n.div_ceil(1 << level) {
        return; // virtual steps only
    }
    let before: usize = (0..level).map(|l| n.div_ceil(1 << l)).sum();
    let size = (1u64 << level) as f64;
    let own = size / (2.0 * size - 1.0);
    b[(t, before + place)] += factor * own;
    if level > 0 {
        add_estimate(b, t, level - 1, 2 * place, factor * (1.0 - own));
        add_estimate(b, t, level - 1, 2 * place + 1, factor * (1.0 - own));
    }
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

/// S⁻¹·B: every row minus the one before it.
fn differences(b: &Matrix) -> Matrix {
    dense::from_fn(b.nrows(), b.ncols(), |i, j| if i == 0 { b[(0, j)] } else { b[(i, j)] - b[(i - 1, j)] })
}

/// C⁺ = (CᵀC)⁻¹Cᵀ, by the Cholesky factor of CᵀC.
fn pseudo_inverse(c: &Matrix) -> Result<Matrix> {
    let mut l = dense::gram(c);
    dense::cholesky_in_place(&mut l)?;
    let inverse = dense::lower_inverse(&l)?;
    let half = &inverse * c.transpose();
    Ok(inverse.transpose() * &half)
}

/// A ⊕ B ⊕ …
fn block_diagonal<'a>(blocks: impl Iterator<Item = &'a Matrix> + Clone) -> Matrix {
    let rows = blocks.clone().map(|block| block.nrows()).sum();
    let columns = blocks.clone().map(|block| block.ncols()).sum();
    let mut out = Matrix::zeros(rows, columns);
    let (mut row, mut column) = (0, 0);
    for block in blocks {
        for j in 0..block.ncols() {
            let below = &mut out.col_as_slice_mut(column + j)[row..];
            below[..block.nrows()].copy_from_slice(block.col_as_slice(j));
        }
        (row, column) = (row + block.nrows(), column + block.ncols());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_five_steps_by_hand() {
        let c = tree(5);
        let rows: Vec<Vec<f64>> = (0..c.nrows()).map(|i| (0..5).map(|j| c[(i, j)]).collect()).collect();
        assert_eq!(rows.len(), 5 + 3 + 2 + 1);
        assert_eq!(rows[2], [0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(rows[6], [0.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(rows[7], [0.0, 0.0, 0.0, 0.0, 1.0]); // its other step is virtual
        assert_eq!(rows[8], [1.0, 1.0, 1.0, 1.0, 0.0]);
        assert_eq!(rows[10], [1.0; 5]);
        // The sum of two steps: 2/3 of their node, 1/3 of the leaves.
        let b = online_estimates(5);
        let row: Vec<f64> = (0..11).map(|j| b[(1, j)]).collect();
        let third = 1.0 / 3.0;
        let expected = [third, third, 0.0, 0.0, 0.0, 2.0 * third, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{row:?}");
    }

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
