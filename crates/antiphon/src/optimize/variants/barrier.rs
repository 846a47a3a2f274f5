//! The log-barrier method: tr(VX⁻¹) over the symmetric X inside some half-spaces.
//!
//! For growing t, Newton's method minimises
//!
//! ```text
//! φ_t(X) = t · tr(VX⁻¹) − Σ_ℓ log ℓ(X),
//! ```
//!
//! whose first term also keeps X positive definite. At a minimum, a *centre*, the numbers 1/(t·ℓ(X)) are
//! Lagrange multipliers, and their dual value bounds the optimum from below.

use crate::error::{Error, Hint, Result};
use crate::linalg::{Matrix, dense};
use crate::optimize::corners::{dual_bound, total_squared_error};

/// t grows by this factor from centre to centre.
const GROWTH: f64 = 12.0;
/// A centre is found when the squared Newton decrement falls below this: the gap there is within
/// a few per cent of that of the exact centre, and rounding of the slacks stays well below.
const CENTRED: f64 = 1e-5;
/// Newton steps towards one centre; 5 to 15 are usual.
const MAX_STEPS_PER_CENTRE: usize = 100;

/// ℓ(X) = offset + Σ coefficient · X_ij over some cells (i, j), i ≥ j.
pub(super) struct HalfSpace {
    pub(super) offset: f64,
    /// Cells by their place, see [`cell`], and their coefficients.
    pub(super) terms: Vec<(usize, f64)>,
}

impl HalfSpace {
    /// ℓ without its offset.
    fn linear(&self, x: &[f64]) -> f64 {
        self.terms.iter().map(|(cell, c)| c * x[*cell]).sum()
    }
}

/// Minimise tr(VX⁻¹), V = AᵀA, over the half-spaces. Their offsets are 0 or 1.
pub(super) struct Problem {
    /// A, scaled to Frobenius norm 1.
    a: Matrix,
    /// The squared norm that was taken out of A.
    scale: f64,
    /// The variables X_ij, i ≥ j, in the order of [`cell`].
    cells: Vec<(usize, usize)>,
    half_spaces: Vec<HalfSpace>,
}

/// An X inside all half-spaces, with what Newton's method needs of it.
struct Point {
    x: Vec<f64>,
    /// X⁻¹.
    inverse: Matrix,
    /// A·X⁻¹.
    response: Matrix,
    /// ℓ(X), all positive.
    slacks: Vec<f64>,
}

/// The best X, scaled so that its largest 1 − ℓ(X), of those with offset 1, is 1; and its bounds.
pub(super) struct Best {
    pub(super) gram: Matrix,
    pub(super) loss: f64,
    pub(super) lower_bound: f64,
    pub(super) iterations: usize,
}

impl Problem {
    pub(super) fn new(a: &Matrix, half_spaces: Vec<HalfSpace>) -> Self {
        let n = a.nrows();
        let norm = dense::squared_norm(a).sqrt();
        Problem {
            a: dense::from_fn(n, n, |i, j| a[(i, j)] / norm),
            scale: norm * norm,
            cells: cells(n),
            half_spaces,
        }
    }

    fn matrix(&self, x: &[f64]) -> Matrix {
        let n = self.a.nrows();
        dense::from_fn(n, n, |i, j| x[cell(i.max(j), i.min(j))])
    }

    /// `None` outside the interior.
    fn point(&self, x: Vec<f64>) -> Option<Point> {
        let slacks: Vec<f64> = self.half_spaces.iter().map(|h| h.offset + h.linear(&x)).collect();
        if !slacks.iter().all(|slack| *slack > 0.0) {
            return None;
        }
        let mut l = self.matrix(&x);
        dense::small_cholesky_in_place(&mut l).ok()?;
        let inverse = dense::gram(&dense::lower_inverse(&l).ok()?);
        let response = &self.a * &inverse;
        dense::is_finite(&response).then_some(Point { x, inverse, response, slacks })
    }

    /// Follows the centres from a `start` inside all half-spaces until the relative gap is at most `gap`.
    pub(super) fn solve(&self, start: Vec<f64>, gap: f64) -> Result<Best> {
        let mut point = self.point(start).ok_or_else(|| {
            Error::Numerical("the optimizer's starting point is not strictly feasible".into())
        })?;
        let mut best =
            Best { gram: self.matrix(&point.x), loss: f64::INFINITY, lower_bound: 0.0, iterations: 0 };
        let mut t = self.half_spaces.len() as f64 / total_squared_error(&self.a, &best.gram)?;
        loop {
            let centred = self.centre(&mut point, t, &mut best.iterations);
            best.lower_bound = best.lower_bound.max(self.lower_bound(&point, t).unwrap_or(0.0));
            let (gram, loss) = self.rescaled(&point)?;
            if loss < best.loss {
                (best.gram, best.loss) = (gram, loss);
            }
            let reached = best.loss / best.lower_bound - 1.0;
            if reached <= gap {
                best.loss *= self.scale;
                best.lower_bound *= self.scale;
                return Ok(best);
            }
            if centred.is_none() {
                return Err(Error::NoConvergence {
                    gap: reached,
                    target: gap,
                    iterations: best.iterations,
                    hint: Hint::LargerGap,
                });
            }
            t *= GROWTH;
        }
    }

    /// Newton's method on φ_t; `None` where rounding stops it before the centre.
    fn centre(&self, point: &mut Point, t: f64, iterations: &mut usize) -> Option<()> {
        for _ in 0..MAX_STEPS_PER_CENTRE {
            let (gradient, hessian) = self.derivatives(point, t);
            let direction = newton_direction(hessian, &gradient)?;
            let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            if -slope <= CENTRED {
                return Some(());
            }
            *point = self.line_search(point, &direction, slope, t)?;
            *iterations += 1;
        }
        None
    }

    /// ∇φ_t and ∇²φ_t. With W = X⁻¹VX⁻¹ the derivatives of tr(VX⁻¹) in directions D and E are
    /// −tr(WD) and tr(VX⁻¹DX⁻¹EX⁻¹) + tr(VX⁻¹EX⁻¹DX⁻¹) = 2 tr(WDX⁻¹E).
    fn derivatives(&self, point: &Point, t: f64) -> (Vec<f64>, Matrix) {
        let (w, y) = (dense::gram(&point.response), &point.inverse);
        // The direction of cell (i, j) is e_i e_jᵀ + e_j e_iᵀ, halved on the diagonal.
        let weight = |(i, j): (usize, usize)| if i == j { 0.5 } else { 1.0 };
        let mut gradient: Vec<f64> =
            self.cells.iter().map(|c| -2.0 * t * weight(*c) * w[(c.0, c.1)]).collect();
        let mut hessian = dense::from_fn(self.cells.len(), self.cells.len(), |p, q| {
            let ((a, b), (c, d)) = (self.cells[p], self.cells[q]);
            let trace =
                w[(d, a)] * y[(b, c)] + w[(d, b)] * y[(a, c)] + w[(c, a)] * y[(b, d)] + w[(c, b)] * y[(a, d)];
            2.0 * t * weight((a, b)) * weight((c, d)) * trace
        });
        for (half_space, slack) in self.half_spaces.iter().zip(&point.slacks) {
            for (p, x) in &half_space.terms {
                gradient[*p] -= x / slack;
                for (q, y) in &half_space.terms {
                    hessian[(*p, *q)] += (x / slack) * (y / slack);
                }
            }
        }
        (gradient, hessian)
    }

    /// Halves the step until φ_t falls by a tenth of what its slope promises, strictly inside.
    fn line_search(&self, from: &Point, direction: &[f64], slope: f64, t: f64) -> Option<Point> {
        let d = self.matrix(direction);
        let changes: Vec<f64> = self.half_spaces.iter().map(|h| h.linear(direction)).collect();
        let mut length = 1.0;
        while length > 1e-12 {
            let x = from.x.iter().zip(direction).map(|(x, d)| x + length * d).collect();
            if let Some(to) = self.point(x) {
                // Differences without cancellation, X'⁻¹ − X⁻¹ = −s X⁻¹DX'⁻¹ and log(1 + sℓ(D)/ℓ(X)):
                // φ_t itself has too few digits when t is large.
                let product = &from.response * &d;
                let trace: f64 = (0..d.ncols())
                    .map(|j| (0..d.nrows()).map(|i| product[(i, j)] * to.response[(i, j)]).sum::<f64>())
                    .sum();
                let slacks = changes.iter().zip(&from.slacks);
                let logs: f64 = slacks.map(|(change, slack)| (length * change / slack).ln_1p()).sum();
                if -t * length * trace - logs <= 0.1 * length * slope {
                    return Some(to);
                }
            }
            length *= 0.5;
        }
        None
    }

    /// The dual value of the multipliers 1/(t·ℓ(X)), where it has one.
    ///
    /// The Lagrangian is tr(VX⁻¹) − Σ multiplier·ℓ(X) = tr(VX⁻¹) + tr(UX) − Σ multiplier·offset.
    fn lower_bound(&self, point: &Point, t: f64) -> Option<f64> {
        let n = self.a.nrows();
        let (mut u, mut total) = (Matrix::zeros(n, n), 0.0);
        for (half_space, slack) in self.half_spaces.iter().zip(&point.slacks) {
            let multiplier = 1.0 / (t * slack);
            total += multiplier * half_space.offset;
            for (index, coefficient) in &half_space.terms {
                // X_ij stands for two entries of X, so each gets half of the coefficient.
                let (i, j) = self.cells[*index];
                u[(i, j)] -= 0.5 * multiplier * coefficient;
                u[(j, i)] -= 0.5 * multiplier * coefficient;
            }
        }
        dual_bound(&self.a, u, total).ok()
    }

    /// X over its largest uᵀXu, and the loss of that: signs do not change, and the loss never rises.
    fn rescaled(&self, point: &Point) -> Result<(Matrix, f64)> {
        let bounds = self.half_spaces.iter().filter(|h| h.offset > 0.0);
        let largest = bounds.map(|h| -h.linear(&point.x)).fold(0.0, f64::max);
        let scaled: Vec<f64> = point.x.iter().map(|x| x / largest).collect();
        // Rounding may leave a value just above 1; the loss pays for it.
        let bounds = self.half_spaces.iter().filter(|h| h.offset > 0.0);
        let excess = bounds.map(|h| -h.linear(&scaled)).fold(1.0, f64::max);
        let gram = self.matrix(&scaled);
        let loss = total_squared_error(&self.a, &gram)? * excess;
        Ok((gram, loss))
    }
}

/// The variables X_ij, i ≥ j.
pub(super) fn cells(n: usize) -> Vec<(usize, usize)> {
    (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))).collect()
}

/// The place of X_ij, i ≥ j, among the variables.
pub(super) fn cell(i: usize, j: usize) -> usize {
    i * (i + 1) / 2 + j
}

/// −H⁻¹g by Cholesky, `None` where H is not positive definite to working accuracy.
fn newton_direction(mut hessian: Matrix, gradient: &[f64]) -> Option<Vec<f64>> {
    dense::small_cholesky_in_place(&mut hessian).ok()?;
    let l = &hessian;
    let m = gradient.len();
    let mut d: Vec<f64> = gradient.iter().map(|g| -g).collect();
    for j in 0..m {
        d[j] /= l[(j, j)];
        for i in j + 1..m {
            d[i] -= l[(i, j)] * d[j];
        }
    }
    for j in (0..m).rev() {
        for i in j + 1..m {
            d[j] -= l[(i, j)] * d[i];
        }
        d[j] /= l[(j, j)];
    }
    Some(d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::variants::{Constraint, half_spaces};
    use crate::workload::Workload;
    use Constraint::{Corners, NonNegative, NonNegativeOnSharedPairs};

    #[test]
    fn derivatives_match_differences() {
        let (patterns, t) = ([vec![0, 2], vec![1, 2, 3]], 3.0);
        let a = Workload::training(4, 0.5, None).unwrap().matrix();
        for constraint in [Corners, NonNegativeOnSharedPairs, NonNegative] {
            let problem = Problem::new(&a, half_spaces(&patterns, constraint).unwrap());
            let start = problem.cells.iter();
            let x: Vec<f64> =
                start.map(|(i, j)| if i == j { 0.2 } else { 0.01 + 0.002 * *i as f64 }).collect();
            let value = |x: &[f64]| {
                let point = problem.point(x.to_vec()).unwrap();
                let logs: f64 = point.slacks.iter().map(|slack| slack.ln()).sum();
                t * total_squared_error(&problem.a, &problem.matrix(x)).unwrap() - logs
            };
            let (gradient, hessian) = problem.derivatives(&problem.point(x.clone()).unwrap(), t);
            for p in 0..x.len() {
                let moved = |h: f64| {
                    let mut y = x.clone();
                    y[p] += h;
                    y
                };
                let h = 1e-6;
                let slope = (value(&moved(h)) - value(&moved(-h))) / (2.0 * h);
                assert!((slope - gradient[p]).abs() < 1e-5 * (1.0 + slope.abs()), "{constraint:?} {p}");
                let at = |h: f64| problem.derivatives(&problem.point(moved(h)).unwrap(), t).0;
                for (q, (up, down)) in at(h).iter().zip(at(-h)).enumerate() {
                    let slope = (up - down) / (2.0 * h);
                    let error = (slope - hessian[(p, q)]).abs();
                    assert!(error < 1e-5 * (1.0 + slope.abs()), "{constraint:?} {p} {q}");
                }
            }
        }
    }
}
