//! The dense route: X(U) from a singular value decomposition, for any workload and any partition into patterns.
//! It is also the oracle of the structured route.

use super::blocks::BlockDual;
use crate::error::Result;
use crate::linalg::dense::{self, Matrix};

/// X(U) = L⁻ᵀ(LᵀVL)^½L⁻¹ and a = tr(UX) = ‖AL‖_*, from AL = PΣQᵀ: X = L⁻ᵀQΣQᵀL⁻¹. V is never formed.
pub fn gram(a: &Matrix, l: &Matrix) -> Result<(Matrix, f64)> {
    let n = l.nrows();
    let (_, sigma, q) = dense::singular_value_decomposition(&(a * l))?;
    let inverse = dense::lower_inverse(l)?;
    // X = (L⁻ᵀ Q Σ^½)(L⁻ᵀ Q Σ^½)ᵀ
    let mut half = inverse.transpose() * q;
    for j in 0..n {
        let root = sigma[j].sqrt();
        half.col_mut(j).iter_mut().for_each(|x| *x *= root);
    }
    let x = &half * half.transpose();
    Ok((x, sigma.iter().sum()))
}

/// A lower triangular L with LLᵀ = U. For disjoint patterns it is ⊕ √v_r·L_r over all steps; patterns that overlap
/// are added up and factored.
pub fn factor_matrix(dual: &BlockDual) -> Result<Matrix> {
    let n = dual.patterns.iter().flatten().max().map_or(0, |last| last + 1);
    let disjoint = dual.patterns.iter().map(Vec::len).sum::<usize>() == n;
    let mut l = Matrix::zeros(n, n);
    for (r, steps) in dual.patterns.iter().enumerate() {
        let k = steps.len();
        let block = if disjoint { dual.scaled_factor(r).collect() } else { dual.block(r) };
        for (e, x) in block.iter().enumerate() {
            l[(steps[e / k], steps[e % k])] += x;
        }
    }
    if !disjoint {
        dense::cholesky_in_place(&mut l)?;
    }
    Ok(l)
}

/// All factors √v_π·L_π side by side, each on the steps of its pattern: an n×(Σ k_π) matrix with the Gram matrix U, and
/// without the rounding of a factorization.
pub fn wide_factor(dual: &BlockDual) -> Matrix {
    let n = dual.patterns.iter().flatten().max().map_or(0, |last| last + 1);
    let mut l = Matrix::zeros(n, dual.patterns.iter().map(Vec::len).sum());
    let mut offset = 0;
    for (r, steps) in dual.patterns.iter().enumerate() {
        let k = steps.len();
        for (e, x) in dual.scaled_factor(r).enumerate() {
            l[(steps[e / k], offset + e % k)] = x;
        }
        offset += k;
    }
    l
}

/// The diagonal blocks of X, row-major, one per pattern.
pub fn blocks_of(x: &Matrix, patterns: &[Vec<usize>]) -> Vec<Vec<f64>> {
    patterns
        .iter()
        .map(|steps| {
            let k = steps.len();
            (0..k * k).map(|e| x[(steps[e / k], steps[e % k])]).collect()
        })
        .collect()
}
