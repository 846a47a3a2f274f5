//! Dense matrices: thin names over faer, so that no other room has to know it.

use crate::error::{Error, Result};
use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::solvers::SelfAdjointEigen;
use faer::linalg::svd::{self, ComputeSvdVectors};
use faer::{Accum, Par, Side, get_global_parallelism};
use rayon::prelude::*;
use std::cmp::Ordering;

/// A dense column-major matrix of `f64`, indexed as `m[(row, column)]`.
pub type Matrix = faer::Mat<f64>;

/// A matrix with entries `f(row, column)`.
pub fn from_fn(rows: usize, columns: usize, f: impl FnMut(usize, usize) -> f64) -> Matrix {
    Matrix::from_fn(rows, columns, f)
}

/// The n×n identity.
pub fn identity(n: usize) -> Matrix {
    Matrix::identity(n, n)
}

/// MᵀM.
pub fn gram(m: &Matrix) -> Matrix {
    m.transpose() * m
}

/// The rows and columns `index` of a symmetric matrix.
pub fn principal(m: &Matrix, index: &[usize]) -> Matrix {
    from_fn(index.len(), index.len(), |i, j| m[(index[i], index[j])])
}

/// Replaces m by (m + mᵀ)/2.
pub fn symmetrize(m: &mut Matrix) {
    for j in 0..m.ncols() {
        for i in 0..j {
            let mean = 0.5 * (m[(i, j)] + m[(j, i)]);
            m[(i, j)] = mean;
            m[(j, i)] = mean;
        }
    }
}

/// Refuses, by `name`, what is not a finite, square, lower triangular matrix with a non-zero diagonal.
pub fn check_invertible_triangle(m: &Matrix, name: &str) -> Result<()> {
    let n = m.nrows();
    if n == 0 || m.ncols() != n {
        return Err(Error::argument(name, "square and not empty", format!("{n}×{}", m.ncols())));
    }
    for j in 0..n {
        for (i, x) in m.col_as_slice(j).iter().enumerate() {
            let allowed = match i.cmp(&j) {
                _ if !x.is_finite() => "finite",
                Ordering::Less if *x != 0.0 => "0 (lower triangular)",
                Ordering::Equal if *x == 0.0 => "non-zero (on the diagonal)",
                _ => continue,
            };
            return Err(Error::argument(format!("entry ({i}, {j}) of {name}"), allowed, x));
        }
    }
    Ok(())
}

/// Whether every entry is finite.
pub fn is_finite(m: &Matrix) -> bool {
    (0..m.ncols()).all(|j| m.col(j).iter().all(|x| x.is_finite()))
}

/// Replaces a square m by J·mᵀ·J, where J reverses the order: entry (i, j) becomes that of (n−1−j, n−1−i).
/// Keeps lower triangles lower. In place, because fresh memory for large matrices costs more than the work.
pub fn flip_transpose(m: &mut Matrix) {
    let n = m.nrows();
    for j in 0..n {
        for i in 0..n - 1 - j {
            let other = (n - 1 - j, n - 1 - i);
            (m[(i, j)], m[other]) = (m[other], m[(i, j)]);
        }
    }
}

/// Calls `f(j, column j)` for all columns, in parallel.
pub fn for_each_column(m: &mut Matrix, f: impl Fn(usize, &mut [f64]) + Sync) {
    m.as_mut().par_col_iter_mut().enumerate().for_each(|(j, column)| {
        if let Some(column) = column.try_as_col_major_mut() {
            f(j, column.as_slice_mut());
        }
    });
}

/// A power of two within a factor of two of x, and 1 for 0; never so small or large that its square leaves the range.
pub fn power_of_two(x: f64) -> f64 {
    if x > 0.0 { 2f64.powi(x.log2().floor().clamp(-500.0, 500.0) as i32) } else { 1.0 }
}

/// ‖m‖²_F.
pub fn squared_norm(m: &Matrix) -> f64 {
    (0..m.ncols()).map(|j| m.col(j).squared_norm_l2()).sum()
}

/// Replaces the lower triangle of a symmetric positive definite matrix by its Cholesky factor L
/// (m = LLᵀ) and clears the upper one. Reads the lower triangle only.
pub fn cholesky_in_place(m: &mut Matrix) -> Result<()> {
    cholesky_with(m, get_global_parallelism())
}

/// As [`cholesky_in_place`], on the calling thread only: for many small matrices in a parallel loop.
pub fn small_cholesky_in_place(m: &mut Matrix) -> Result<()> {
    cholesky_with(m, Par::Seq)
}

fn cholesky_with(m: &mut Matrix, par: Par) -> Result<()> {
    use faer::linalg::cholesky::llt::factor;
    let n = m.nrows();
    let scratch = factor::cholesky_in_place_scratch::<f64>(n, par, Default::default());
    let mut buffer = faer::dyn_stack::MemBuffer::new(scratch);
    factor::cholesky_in_place(
        m.as_mut(),
        Default::default(),
        par,
        faer::dyn_stack::MemStack::new(&mut buffer),
        Default::default(),
    )
    .map_err(|_| Error::Numerical(format!("a {n}×{n} matrix is not positive definite")))?;
    for j in 1..n {
        m.col_mut(j).subrows_mut(0, j).fill(0.0);
    }
    Ok(())
}

/// The inverse of a lower triangular matrix.
pub fn lower_inverse(l: &Matrix) -> Result<Matrix> {
    let n = l.nrows();
    if let Some(i) = (0..n).find(|i| l[(*i, *i)] == 0.0 || !l[(*i, *i)].is_finite()) {
        return Err(Error::Numerical(format!(
            "a triangular matrix has {} on its diagonal (row {i}) and no inverse",
            l[(i, i)]
        )));
    }
    let mut inverse = Matrix::zeros(n, n);
    faer::linalg::triangular_inverse::invert_lower_triangular(
        inverse.as_mut(),
        l.as_ref(),
        get_global_parallelism(),
    );
    Ok(inverse)
}

/// As [`lower_inverse`], on the calling thread only.
pub fn small_lower_inverse(l: &Matrix) -> Result<Matrix> {
    Ok(transposed(&small_upper_inverse(&transposed(l), l.nrows())?))
}

/// The inverse of the upper triangular n×n corner of a matrix, on the calling thread only.
pub fn small_upper_inverse(r: &Matrix, n: usize) -> Result<Matrix> {
    if (0..n).any(|i| r[(i, i)] == 0.0 || !r[(i, i)].is_finite()) {
        return Err(Error::Numerical("a triangular matrix has no inverse".into()));
    }
    let mut inverse = Matrix::zeros(n, n);
    faer::linalg::triangular_inverse::invert_upper_triangular(
        inverse.as_mut(),
        r.as_ref().submatrix(0, 0, n, n),
        Par::Seq,
    );
    Ok(inverse)
}

/// a·b on the calling thread only.
pub fn small_product(a: &Matrix, b: &Matrix) -> Matrix {
    let mut product = Matrix::zeros(a.nrows(), b.ncols());
    faer::linalg::matmul::matmul(product.as_mut(), Accum::Replace, a.as_ref(), b.as_ref(), 1.0, Par::Seq);
    product
}

/// The upper triangular (or trapezoidal) R of a QR decomposition, with min(rows, columns) rows, on the calling
/// thread only.
pub fn small_qr(m: &Matrix) -> Matrix {
    use faer::linalg::qr::no_pivoting::factor;
    let mut m = m.clone();
    let (rows, columns) = (m.nrows(), m.ncols());
    let size = rows.min(columns);
    let block = 8.min(size.max(1));
    let mut householder = Matrix::zeros(block, size);
    let scratch = factor::qr_in_place_scratch::<f64>(rows, columns, block, Par::Seq, Default::default());
    let mut buffer = faer::dyn_stack::MemBuffer::new(scratch);
    factor::qr_in_place(
        m.as_mut(),
        householder.as_mut(),
        Par::Seq,
        faer::dyn_stack::MemStack::new(&mut buffer),
        Default::default(),
    );
    from_fn(size, columns, |i, j| if i <= j { m[(i, j)] } else { 0.0 })
}

/// Mᵀ.
pub fn transposed(m: &Matrix) -> Matrix {
    m.transpose().to_owned()
}

/// [a | b].
pub fn hstack(a: &Matrix, b: &Matrix) -> Matrix {
    let split = a.ncols();
    from_fn(a.nrows(), split + b.ncols(), |i, j| if j < split { a[(i, j)] } else { b[(i, j - split)] })
}

/// A bound on ‖a·b − I‖₂ for lower triangular a and b, rounding errors included: how well one inverts the other.
/// Fails where it is not below one half.
pub fn inverse_residual(a: &Matrix, b: &Matrix) -> Result<f64> {
    let n = a.nrows();
    let mut e = lower_product(a, b);
    for i in 0..n {
        e[(i, i)] -= 1.0;
    }
    // |fl(ab) − ab| ≤ γ_n|a||b| entrywise. The subtraction of one adds at most ε/2 of the same.
    let rounding = 1.01 * (n + 1) as f64 * f64::EPSILON * abs_product_norm(a, b);
    let residual = squared_norm(&e).sqrt() * (1.0 + 1e-9) + rounding;
    if residual < 0.5 {
        Ok(residual)
    } else {
        Err(Error::Numerical(format!(
            "the matrix is too ill-conditioned to invert: ‖C·C⁻¹ − I‖ may be {residual:.1e}"
        )))
    }
}

/// A bound on ‖|a||b|‖₂, up to its own rounding: ‖M‖₂² ≤ ‖M‖₁‖M‖_∞, and the row and column sums of M = |a||b| are |a|(|b|1) and
/// (1ᵀ|a|)|b|. NaN where it cannot be computed.
pub fn abs_product_norm(a: &Matrix, b: &Matrix) -> f64 {
    let row_sums = abs_product(a, &abs_product(b, &vec![1.0; b.ncols()], false), false);
    let column_sums = abs_product(b, &abs_product(a, &vec![1.0; a.nrows()], true), true);
    // f64::max drops a NaN; an allowance that cannot be computed must not vanish.
    let largest = |x: &[f64]| {
        if x.iter().all(|x| x.is_finite()) { x.iter().copied().fold(0.0, f64::max) } else { f64::NAN }
    };
    largest(&row_sums).sqrt() * largest(&column_sums).sqrt()
}

/// |m|·x or |m|ᵀ·x.
fn abs_product(m: &Matrix, x: &[f64], transpose: bool) -> Vec<f64> {
    let columns = 0..m.ncols();
    if transpose {
        let dot = |j| m.col_as_slice(j).iter().zip(x).map(|(m, x)| m.abs() * x).sum();
        return columns.into_par_iter().map(dot).collect();
    }
    let mut y = vec![0.0; m.nrows()];
    for j in columns {
        y.iter_mut().zip(m.col_as_slice(j)).for_each(|(y, m)| *y += m.abs() * x[j]);
    }
    y
}

/// The product of two lower triangular matrices.
pub fn lower_product(a: &Matrix, b: &Matrix) -> Matrix {
    let mut product = Matrix::zeros(a.nrows(), b.ncols());
    triangular::matmul(
        product.as_mut(),
        BlockStructure::TriangularLower,
        Accum::Replace,
        a.as_ref(),
        BlockStructure::TriangularLower,
        b.as_ref(),
        BlockStructure::TriangularLower,
        1.0,
        get_global_parallelism(),
    );
    product
}

/// Eigenvalues in increasing order, and the matrix whose columns are the eigenvectors.
/// Reads the lower triangle only.
pub fn symmetric_eigen(m: &Matrix) -> Result<(Vec<f64>, Matrix)> {
    let eigen: SelfAdjointEigen<f64> =
        m.self_adjoint_eigen(Side::Lower).map_err(|_| not_converged("eigenvalues", m))?;
    let values = eigen.S().column_vector().iter().copied().collect();
    Ok((values, eigen.U().to_owned()))
}

/// Into how many parts faer cuts sums of these decompositions. By default it is the number of threads, and then the last bits of a
/// mechanism, and all noise that is derived from its hash, would depend on that. Any number of threads can work on four parts.
fn parts() -> Par {
    Par::rayon(4)
}

/// The smallest and the largest eigenvalue of a symmetric matrix.
pub fn extreme_eigenvalues(m: &Matrix) -> Result<(f64, f64)> {
    let n = m.nrows();
    let mut values = Diag::zeros(n);
    let scratch =
        evd::self_adjoint_evd_scratch::<f64>(n, evd::ComputeEigenvectors::No, parts(), Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    evd::self_adjoint_evd(m.as_ref(), values.as_mut(), None, parts(), stack, Default::default())
        .map_err(|_| not_converged("eigenvalues", m))?;
    let values = values.column_vector();
    Ok((values[0], values[n - 1]))
}

/// The lower triangular C' with C'ᵀC' = CᵀC, and an estimate of ‖C − QC'‖_F for an orthogonal Q. From a QR decomposition
/// of C with its columns reversed: CJ = QR gives C' = JRJ. CᵀC itself would square the condition number.
pub fn lower_factor(c: &Matrix) -> Result<(Matrix, f64)> {
    let (m, n) = (c.nrows(), c.ncols());
    if m < n {
        return Err(Error::Numerical(format!("CᵀC is singular: C has {m} rows for {n} steps")));
    }
    let r = small_qr(&from_fn(m, n, |i, j| c[(i, n - 1 - j)]));
    let factor = from_fn(n, n, |i, j| r[(n - 1 - i, n - 1 - j)]);
    // Householder QR is backward stable: a small multiple of m·n^½·ε‖C‖_F (Higham, Theorem 19.4).
    let error = 8.0 * m as f64 * (n as f64).sqrt() * f64::EPSILON * squared_norm(c).sqrt();
    Ok((factor, error))
}

/// The singular values, largest first.
pub fn singular_values(m: &Matrix) -> Result<Vec<f64>> {
    decompose(m, None)
}

/// The singular value decomposition m = P·diag(σ)·Qᵀ of a square matrix, as (P, σ, Q).
pub fn singular_value_decomposition(m: &Matrix) -> Result<(Matrix, Vec<f64>, Matrix)> {
    let (mut p, mut q) = (Matrix::zeros(m.nrows(), m.nrows()), Matrix::zeros(m.ncols(), m.ncols()));
    let values = decompose(m, Some((&mut p, &mut q)))?;
    Ok((p, values, q))
}

fn decompose(m: &Matrix, vectors: Option<(&mut Matrix, &mut Matrix)>) -> Result<Vec<f64>> {
    let (rows, columns) = m.shape();
    let wanted = if vectors.is_some() { ComputeSvdVectors::Full } else { ComputeSvdVectors::No };
    let mut values = Diag::zeros(rows.min(columns));
    let (p, q) = vectors.unzip();
    let scratch = svd::svd_scratch::<f64>(rows, columns, wanted, wanted, parts(), Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let [p, q] = [p, q].map(|vectors| vectors.map(Matrix::as_mut));
    svd::svd(m.as_ref(), values.as_mut(), p, q, parts(), stack, Default::default())
        .map_err(|_| not_converged("singular values", m))?;
    Ok(values.column_vector().iter().copied().collect())
}

fn not_converged(what: &str, m: &Matrix) -> Error {
    Error::Numerical(format!("the {what} of a {}×{} matrix did not converge", m.nrows(), m.ncols()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_two_is_near_and_harmless() {
        for x in [5e-324, 1e-300, 0.3, 1.0, 7.9, 1e300, f64::MAX] {
            let power = power_of_two(x);
            assert_eq!(power.log2().fract(), 0.0);
            assert!(power * power > 0.0 && (power * power).is_finite());
        }
        assert_eq!((power_of_two(7.9), power_of_two(0.0)), (4.0, 1.0));
    }

    #[test]
    fn cholesky_and_inverse_undo_each_other() {
        let m = from_fn(40, 40, |i, j| 1.0 / (1.0 + (i as f64 - j as f64).abs()) + f64::from(i == j));
        let mut l = m.clone();
        cholesky_in_place(&mut l).unwrap();
        assert_eq!(l[(0, 1)], 0.0);
        let back = &l * l.transpose();
        assert!(squared_norm(&(&back - &m)) < 1e-24);
        let unit = lower_product(&l, &lower_inverse(&l).unwrap());
        assert!(squared_norm(&(&unit - identity(40))) < 1e-24);
    }

    #[test]
    fn an_allowance_that_overflows_is_refused() {
        // Two uncoupled rows of 1e308: the row sums of |a||b| are infinite, and infinity times the zeros of the upper
        // triangle is NaN, which a plain maximum would drop together with the whole allowance.
        let mut w = identity(7);
        for i in [2, 4] {
            w[(i, 0)] = 1e308;
            w[(i, 1)] = 1e308;
        }
        assert!(inverse_residual(&identity(7), &w).is_err());
        assert!(inverse_residual(&w, &identity(7)).is_err());
        assert!(inverse_residual(&identity(7), &identity(7)).unwrap() < 1e-13);
    }

    #[test]
    fn an_indefinite_matrix_and_a_zero_diagonal_are_refused() {
        let mut m = from_fn(2, 2, |i, j| if i == j { 1.0 } else { 2.0 });
        assert!(cholesky_in_place(&mut m).is_err());
        assert!(lower_inverse(&Matrix::zeros(2, 2)).is_err());
    }

    #[test]
    fn singular_values_of_the_prefix_sum_are_known_in_closed_form() {
        // σ_j = 1 / (2 sin((2j−1)π / (4n+2))), the classical spectrum of the summation matrix.
        let n = 30;
        let m = from_fn(n, n, |i, j| f64::from(i >= j));
        for (j, value) in singular_values(&m).unwrap().into_iter().enumerate() {
            let angle = (2 * j + 1) as f64 * std::f64::consts::PI / (4 * n + 2) as f64;
            let expected = 0.5 / angle.sin();
            assert!((value - expected).abs() < 1e-12 * expected, "{j}: {value} {expected}");
        }
    }
}
