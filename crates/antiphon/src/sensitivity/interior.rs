//! The elliptope problem by a primal–dual interior point method.
//!
//! For a symmetric E with zero diagonal
//!
//! ```text
//! max { tr(E R) : R ⪰ 0, diag R = 1 }  =  min { Σ w_i : Diag(w) ⪰ E },
//! ```
//!
//! and every iterate is strictly feasible on both sides, so each one proves a bracket. The direction is
//! that of Helmberg, Rendl, Vanderbei and Wolkowicz, "An interior-point method for semidefinite
//! programming" (SIAM J. Optim. 6, 1996), Section 3: with Z = Diag(w) − E and a target ν for ZR = νI,
//!
//! ```text
//! (Z⁻¹ ∘ R) Δw = ν diag(Z⁻¹) − 1,
//! ΔR = ν Z⁻¹ − R − sym(Z⁻¹ Diag(Δw) R).
//! ```
//!
//! It needs no rank condition and does not stall. An iteration costs O(k³); from a warm start three to ten
//! reach nine digits, from a cold one fifteen to twenty.

use crate::linalg::dense::{self, Matrix};
use std::ops::Range;

/// The iteration stops here at the latest; three to twenty are usual.
const MOST_ITERATIONS: usize = 60;
/// Up to this size everything stays on the calling thread.
const SMALL: usize = 256;

/// A lower and an upper bound on max tr(E R).
#[derive(Debug, Clone, Copy)]
pub(super) struct Bracket {
    pub(super) lower: f64,
    pub(super) upper: f64,
}

/// Cholesky in floating point either fails or proves that A + ΔA is positive definite with
/// |ΔA_ij| ≤ γ·√(A_ii A_jj), γ = (k+1)u/(1 − 2(k+1)u) (Higham, "Accuracy and Stability of Numerical
/// Algorithms", Section 10.1), hence A + kγ·diag(A) ⪰ 0. This is kγ rounded up (ε = 2u).
pub(super) fn cholesky_margin(k: usize) -> f64 {
    k as f64 * (k + 1) as f64 * f64::EPSILON
}

/// Bounds on max tr(E R), improved until `enough(lower, upper)` or until rounding stops the progress.
///
/// Reads all of E, whose diagonal must be zero and whose largest entry should be near one.
/// `start` holds positive w with Diag(w) ≻ E and a positive definite R with unit diagonal.
pub(super) fn solve(
    e: &Matrix,
    start: (Vec<f64>, Matrix),
    enough: impl Fn(f64, f64) -> bool,
) -> Option<Bracket> {
    let k = e.nrows();
    let (mut w, mut r) = start;
    let margin = cholesky_margin(k);
    let absolute: f64 = column_sums(k, |i, j| e[(i, j)].abs());
    let mut factor = slack_factor(e, &w)?;
    cholesky(r.clone())?;
    let mut best = Bracket { lower: 0.0, upper: f64::INFINITY };
    let mut centring = 0.3;
    for iteration in 0..=MOST_ITERATIONS {
        let sum: f64 = w.iter().sum();
        // Cholesky reads the lower triangle, so the value is of the same R.
        let value = 2.0 * column_sums(k, |i, j| if i > j { e[(i, j)] * r[(i, j)] } else { 0.0 });
        // Both sides have passed Cholesky; the margin pays for what that leaves open, kε for the sums.
        // The diagonal of Diag(w) − E is w itself, so scaling w by 1 + margin is enough.
        let upper = sum * (1.0 + margin) * (1.0 + k as f64 * f64::EPSILON);
        // (R + margin·I)/(1 + margin) is feasible, and tr E = 0.
        let lower = value / (1.0 + margin) - 2.0 * k as f64 * f64::EPSILON * absolute;
        let stalled = upper >= best.upper && lower <= best.lower;
        best.lower = best.lower.max(lower);
        best.upper = best.upper.min(upper);
        let gap = sum - value;
        // NaN must stop the loop too.
        let positive = gap > 0.0;
        if enough(best.lower, best.upper) || stalled || !positive || iteration == MOST_ITERATIONS {
            break;
        }
        let target = centring * gap / k as f64;
        let Some((dw, dr)) = direction(&factor, &r, target) else {
            break;
        };

        let try_dual = |step: f64| {
            let moved: Vec<f64> = w.iter().zip(&dw).map(|(w, d)| w + step * d).collect();
            slack_factor(e, &moved).map(|factor| (moved, factor))
        };
        let try_primal = |step: f64| {
            let moved = dense::from_fn(k, k, |i, j| r[(i, j)] + step * dr[(i, j)]);
            let moved = unit_diagonal(moved)?;
            cholesky(moved.clone()).map(|_| moved)
        };
        let Some((dual_step, (moved, moved_factor))) = longest(try_dual) else {
            break;
        };
        let Some((primal_step, moved_r)) = longest(try_primal) else {
            break;
        };
        (w, factor, r) = (moved, moved_factor, moved_r);
        // Long steps mean that the iterate is well centred, and the next target may be bolder.
        centring = match dual_step.min(primal_step) {
            step if step > 0.9 => 0.02,
            step if step > 0.6 => 0.15,
            _ => 0.5,
        };
    }
    Some(best)
}

/// Δw and ΔR of the module's formulas.
fn direction(factor: &Matrix, r: &Matrix, target: f64) -> Option<(Vec<f64>, Matrix)> {
    let k = r.nrows();
    let inverse = inverse(factor)?;
    let mixed = cholesky(dense::from_fn(k, k, |i, j| inverse[(i, j)] * r[(i, j)]))?;
    let mut dw: Vec<f64> = (0..k).map(|i| target * inverse[(i, i)] - 1.0).collect();
    solve_in_place(&mixed, &mut dw);
    let scaled = dense::from_fn(k, k, |i, j| dw[i] * r[(i, j)]);
    let product = product(&inverse, &scaled);
    let dr = dense::from_fn(k, k, |i, j| {
        target * inverse[(i, j)] - r[(i, j)] - 0.5 * (product[(i, j)] + product[(j, i)])
    });
    (dw.iter().all(|d| d.is_finite()) && dense::is_finite(&dr)).then_some((dw, dr))
}

/// The longest step among 1, 0.95·0.8, 0.95·0.8², … that `attempt` accepts. Shortened steps have passed
/// at 1/0.95 of their length as well, which keeps the iterate away from the boundary.
fn longest<T>(attempt: impl Fn(f64) -> Option<T>) -> Option<(f64, T)> {
    if let Some(moved) = attempt(1.0) {
        return Some((1.0, moved));
    }
    let mut step = 1.0;
    while step > 1e-4 {
        step *= 0.8;
        if attempt(step).is_some() {
            return attempt(0.95 * step).map(|moved| (0.95 * step, moved));
        }
    }
    None
}

/// The Cholesky factor of Diag(w) − E, or nothing where that is not positive definite.
pub(super) fn slack_factor(e: &Matrix, w: &[f64]) -> Option<Matrix> {
    let k = w.len();
    cholesky(dense::from_fn(k, k, |i, j| if i == j { w[i] } else { -e[(i, j)] }))
}

fn cholesky(mut m: Matrix) -> Option<Matrix> {
    if m.nrows() <= SMALL {
        dense::small_cholesky_in_place(&mut m).ok()?;
    } else {
        dense::cholesky_in_place(&mut m).ok()?;
    }
    (0..m.nrows()).all(|i| m[(i, i)] > 0.0 && m[(i, i)].is_finite()).then_some(m)
}

/// (LLᵀ)⁻¹. Small ones by hand on the calling thread, where patterns already run in parallel.
fn inverse(l: &Matrix) -> Option<Matrix> {
    let k = l.nrows();
    if k > SMALL {
        return Some(dense::gram(&dense::lower_inverse(l).ok()?));
    }
    // Row p of L⁻¹ as column p of `rows`, by forward substitution: L_pp·row_p = e_p − Σ_q L_pq·row_q.
    let mut rows = Matrix::zeros(k, k);
    let mut row = vec![0.0; k];
    for p in 0..k {
        row[..p].fill(0.0);
        add_columns(&mut row[..p], &rows, 0..p, |q| -l[(p, q)]);
        row[p] = 1.0;
        let scale = 1.0 / l[(p, p)];
        let column = rows.col_as_slice_mut(p);
        column.iter_mut().zip(&row[..=p]).for_each(|(x, y)| *x = scale * y);
    }
    // L⁻ᵀL⁻¹ = Σ_p row_p row_pᵀ.
    let mut inverse = Matrix::zeros(k, k);
    for j in 0..k {
        let column = &mut inverse.col_as_slice_mut(j)[..=j];
        add_columns(column, &rows, j..k, |p| rows[(j, p)]);
        for i in 0..j {
            inverse[(j, i)] = inverse[(i, j)];
        }
    }
    Some(inverse)
}

/// A·B.
fn product(a: &Matrix, b: &Matrix) -> Matrix {
    if a.nrows() > SMALL {
        return a * b;
    }
    let mut product = Matrix::zeros(a.nrows(), b.ncols());
    for j in 0..b.ncols() {
        add_columns(product.col_as_slice_mut(j), a, 0..a.ncols(), |p| b[(p, j)]);
    }
    product
}

/// sum += Σ_p weight(p)·(head of column p of m), four columns at a time.
fn add_columns(sum: &mut [f64], m: &Matrix, columns: Range<usize>, weight: impl Fn(usize) -> f64) {
    let n = sum.len();
    let mut p = columns.start;
    while p + 4 <= columns.end {
        let [a, b, c, d] = [0, 1, 2, 3].map(|q| &m.col_as_slice(p + q)[..n]);
        let [x, y, z, w] = [0, 1, 2, 3].map(|q| weight(p + q));
        for i in 0..n {
            sum[i] += (x * a[i] + y * b[i]) + (z * c[i] + w * d[i]);
        }
        p += 4;
    }
    for p in p..columns.end {
        let x = weight(p);
        sum.iter_mut().zip(m.col_as_slice(p)).for_each(|(sum, a)| *sum += x * a);
    }
}

/// D^(−½) R D^(−½) with D = diag R: exactly 1 on the diagonal, and positive definite where R is.
fn unit_diagonal(mut r: Matrix) -> Option<Matrix> {
    let k = r.nrows();
    let inverse: Vec<f64> = (0..k).map(|i| 1.0 / r[(i, i)].sqrt()).collect();
    if inverse.iter().any(|s| !s.is_finite()) {
        return None;
    }
    for j in 0..k {
        for i in 0..k {
            r[(i, j)] = if i == j { 1.0 } else { r[(i, j)] * (inverse[i] * inverse[j]) };
        }
    }
    Some(r)
}

/// x ← (LLᵀ)⁻¹ x.
fn solve_in_place(l: &Matrix, x: &mut [f64]) {
    let k = x.len();
    for j in 0..k {
        x[j] /= l[(j, j)];
        for i in j + 1..k {
            x[i] -= l[(i, j)] * x[j];
        }
    }
    for j in (0..k).rev() {
        let below: f64 = (j + 1..k).map(|i| l[(i, j)] * x[i]).sum();
        x[j] = (x[j] - below) / l[(j, j)];
    }
}

/// Σ_ij f(i, j), column by column: the rounding error is at most 2k·u·Σ|f|, not k²·u·Σ|f|.
pub(super) fn column_sums(k: usize, f: impl Fn(usize, usize) -> f64) -> f64 {
    (0..k).map(|j| (0..k).map(|i| f(i, j)).sum::<f64>()).sum()
}

/// Row sums of |E| make Diag(w) − E diagonally dominant; the little more makes it strict.
pub(super) fn cold_start(e: &Matrix) -> (Vec<f64>, Matrix) {
    let k = e.nrows();
    let rows: Vec<f64> = (0..k).map(|j| (0..k).map(|i| e[(i, j)].abs()).sum()).collect();
    let mean = rows.iter().sum::<f64>() / k as f64;
    let w = rows.iter().map(|row| 1.1 * row + 0.1 * mean).collect();
    (w, dense::identity(k))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_triangle_is_known_in_closed_form() {
        // E = −(J − I) on three vertices: the best R has −1/2 off the diagonal, tr(E R) = 3, w = 1.
        let e = dense::from_fn(3, 3, |i, j| if i == j { 0.0 } else { -1.0 });
        let bracket = solve(&e, cold_start(&e), |_, _| false).unwrap();
        assert!(bracket.lower <= 3.0 && bracket.upper >= 3.0, "{bracket:?}");
        assert!(bracket.upper - bracket.lower < 1e-9, "{bracket:?}");
    }

    #[test]
    fn a_pentagon_gives_lovasz() {
        // E = −adjacency of the 5-cycle: neighbours at angle 4π/5, tr(E R) = 10·cos(π/5).
        let e = dense::from_fn(5, 5, |i, j| match (i + 5 - j) % 5 {
            1 | 4 => -1.0,
            _ => 0.0,
        });
        let expected = 10.0 * (std::f64::consts::PI / 5.0).cos();
        let bracket = solve(&e, cold_start(&e), |_, _| false).unwrap();
        assert!((bracket.lower - expected).abs() < 1e-9 && bracket.lower <= expected);
        assert!((bracket.upper - expected).abs() < 1e-9 && bracket.upper >= expected);
    }

    #[test]
    fn an_infeasible_start_is_refused() {
        let e = dense::from_fn(2, 2, |i, j| f64::from(i != j));
        assert!(solve(&e, (vec![0.5, 0.5], dense::identity(2)), |_, _| false).is_none());
        let indefinite = dense::from_fn(2, 2, |i, j| if i == j { 1.0 } else { 1.5 });
        assert!(solve(&e, (vec![2.0, 2.0], indefinite), |_, _| false).is_none());
    }
}
