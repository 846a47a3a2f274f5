//! The structured mechanisms as docs/FORMAT.md defines them: every entry of C and of W, by slow and obvious code.
//!
//! Each family has its own part of that page in a file of its own. Nothing is shared with the fast forms, not even the
//! lengths of the stamps or the order of the nodes, so that one checks the other.

use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::Structured;
use crate::mechanism::family::Stamp;

pub use crate::mechanism::family::Explicit;

/// C and W over so many steps: those of all stamps along the diagonal.
pub fn explicit(structured: &Structured, steps: usize) -> Result<Explicit> {
    structured.check(steps)?;
    let (stamps, parameters) = (structured.stamps, &structured.parameters);
    // n mod s stamps are longer by one: the first ones.
    let lengths: Vec<usize> = (0..stamps).map(|i| (steps - i).div_ceil(stamps)).collect();
    let stamp = |(number, steps): (usize, &usize)| {
        structured.family.definition(&Stamp { number, steps: *steps, lengths: &lengths, parameters })
    };
    let parts = lengths.iter().enumerate().map(stamp).collect::<Result<Vec<_>>>()?;
    Ok(Explicit {
        encoder: block_diagonal(parts.iter().map(|part| &part.encoder)),
        noising: block_diagonal(parts.iter().map(|part| &part.noising)),
        column_error: parts.iter().map(|part| part.column_error).fold(0.0, f64::max),
    })
}

/// S⁻¹·B: every row minus the one before it.
pub fn differences(b: &Matrix) -> Matrix {
    dense::from_fn(b.nrows(), b.ncols(), |i, j| if i == 0 { b[(0, j)] } else { b[(i, j)] - b[(i - 1, j)] })
}

/// C⁺ = (CᵀC)⁻¹Cᵀ, by the Cholesky factor of CᵀC.
pub fn pseudo_inverse(c: &Matrix) -> Result<Matrix> {
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
