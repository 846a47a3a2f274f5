//! The paper's own dual iteration over all sign corners: slow, simple, and an oracle.
//!
//! Section 3 of the paper minimises tr(VX⁻¹), V = AᵀA, over positive definite X with uᵀXu ≤ 1 for
//! every *corner* u: a vector with entries ±1 on one pattern and 0 elsewhere. Its dual function
//! (Theorem 3.1) has one multiplier per corner, and Corollary 3.1 gives a fixed point for them.
//! Iterating it converges slowly and needs 2^(k−1) corners per pattern, so nothing but tests and
//! tables should use it; [`super::variants`] solves the same problem by Newton steps.

use crate::error::{Error, Result};
use crate::linalg::{Matrix, dense};
use crate::schema::Schema;
use crate::workload::Workload;

/// Largest number of steps of the small problems solved here and in [`super::variants`].
pub const MAX_SMALL_STEPS: usize = 24;
/// Largest number of corners over all patterns, counted up to sign.
pub const MAX_CORNERS: usize = 1 << 12;

/// One corner: the steps of a pattern, each with its sign, the first always +1.
pub type Corner = Vec<(usize, f64)>;

/// What [`corner_fixed_point`] found.
#[derive(Debug, Clone)]
pub struct CornerFixedPoint {
    /// v, one multiplier per corner, in the order of [`corners`].
    pub multipliers: Vec<f64>,
    /// A lower bound on the optimum, from the multipliers (up to rounding of the arithmetic).
    pub lower_bound: f64,
    /// X, scaled so that the largest uᵀXu is 1.
    pub gram: Matrix,
    /// tr(VX⁻¹) of this X: an upper bound on the optimum.
    pub loss: f64,
}

/// All corners of all patterns, u and −u counted once: 2^(k−1) for a pattern of k steps.
pub fn corners(patterns: &[Vec<usize>]) -> Result<Vec<Corner>> {
    let count = patterns.iter().fold(0usize, |count, pattern| {
        let of_pattern = 1usize.checked_shl(pattern.len() as u32 - 1);
        count.saturating_add(of_pattern.unwrap_or(usize::MAX))
    });
    if count > MAX_CORNERS {
        let allowed = format!("in 1..={MAX_CORNERS}");
        return Err(Error::argument("the number of corners of all patterns", allowed, count));
    }
    let mut all = Vec::with_capacity(count);
    for pattern in patterns {
        for signs in 0..1usize << (pattern.len() - 1) {
            // Bit e − 1 of `signs` is the sign of participation e; participation 0 stays +1.
            let sign = |e: usize| {
                if ((signs << 1) >> e) & 1 == 1 { -1.0 } else { 1.0 }
            };
            all.push(pattern.iter().enumerate().map(|(e, i)| (*i, sign(e))).collect());
        }
    }
    Ok(all)
}

/// Runs `iterations` steps of the multiplicative fixed point of Corollary 3.1,
///
/// ```text
/// v ← diagpart((H_vᵀ V H_v)^½),     H_v = [u_1 … u_m] diag(v)^½,
/// ```
///
/// from equal multipliers. By H_vᵀ X(v) H_v = (H_vᵀ V H_v)^½ with X(v) the minimiser of the Lagrangian
/// this is v_u ← v_u · uᵀX(v)u, which needs n×n matrices only. For *scalar* contributions, as all corners.
pub fn corner_fixed_point(
    workload: &Workload,
    schema: &Schema,
    iterations: usize,
) -> Result<CornerFixedPoint> {
    let patterns = covering_patterns(workload, schema)?;
    let corners = corners(&patterns)?;
    let a = workload.matrix();
    let mut v = vec![1.0; corners.len()];
    for _ in 0..iterations {
        let x = lagrangian_minimizer(&a, &weighted_sum(&corners, &v, a.nrows()))?;
        for (v, u) in v.iter_mut().zip(&corners) {
            *v *= quadratic_form(u, &x);
        }
    }
    let sum = weighted_sum(&corners, &v, a.nrows());
    let mut gram = lagrangian_minimizer(&a, &sum)?;
    let largest = corners.iter().map(|u| quadratic_form(u, &gram)).fold(0.0, f64::max);
    gram = dense::from_fn(a.nrows(), a.nrows(), |i, j| gram[(i, j)] / largest);
    Ok(CornerFixedPoint {
        lower_bound: dual_bound(&a, sum, v.iter().sum())?,
        multipliers: v,
        loss: total_squared_error(&a, &gram)?,
        gram,
    })
}

/// The patterns of a schema that fits the workload, is small enough and leaves no step out.
pub(super) fn covering_patterns(workload: &Workload, schema: &Schema) -> Result<Vec<Vec<usize>>> {
    let n = schema.steps();
    if workload.steps() != n {
        let allowed = format!("{n}, the steps of the schema");
        return Err(Error::argument("the steps of the workload", allowed, workload.steps()));
    }
    if n > MAX_SMALL_STEPS {
        let allowed = format!("in 1..={MAX_SMALL_STEPS} for the constraint variants");
        return Err(Error::argument("steps", allowed, n));
    }
    let patterns = schema.listed().ok_or_else(|| {
        Error::Unsupported(format!(
            "the constraint variants need a list of patterns, and there are too many of them for {}; \
             use a fixed order or an explicit list",
            schema.name()
        ))
    })?;
    let missing = (0..n).find(|i| patterns.iter().all(|pattern| !pattern.contains(i)));
    match missing {
        Some(i) => Err(Error::argument("every step", "in at least one pattern", format!("step {i} in none"))),
        None => Ok(patterns),
    }
}

/// tr(VX⁻¹) = ‖A L⁻ᵀ‖²_F with X = LLᵀ.
pub(super) fn total_squared_error(a: &Matrix, x: &Matrix) -> Result<f64> {
    let mut l = x.clone();
    dense::small_cholesky_in_place(&mut l)?;
    Ok(dense::squared_norm(&(a * dense::lower_inverse(&l)?.transpose())))
}

/// The best bound of the dual function on the ray through multipliers with U = `u` and Σv = `total`.
///
/// g(s·v) = inf_X tr(VX⁻¹) + s·tr(UX) − s·Σv = 2a√s − s·Σv with a = tr((U^½VU^½)^½) (Theorem 3.1),
/// and √s = a/Σv gives a²/Σv. With U = LLᵀ, a is the sum of the singular values of A·L.
pub(super) fn dual_bound(a: &Matrix, mut u: Matrix, total: f64) -> Result<f64> {
    dense::small_cholesky_in_place(&mut u)?;
    let root: f64 = dense::singular_values(&(a * &u))?.iter().sum();
    Ok(root * root / total)
}

/// X(v) = U^−½ (U^½VU^½)^½ U^−½, written with U = LLᵀ and A·L = P·diag(σ)·Qᵀ as (L⁻ᵀQ)·diag(σ)·(L⁻ᵀQ)ᵀ.
fn lagrangian_minimizer(a: &Matrix, u: &Matrix) -> Result<Matrix> {
    let mut l = u.clone();
    dense::small_cholesky_in_place(&mut l)?;
    let (_, sigma, q) = dense::singular_value_decomposition(&(a * &l))?;
    let mut half = dense::lower_inverse(&l)?.transpose() * &q;
    for (j, sigma) in sigma.iter().enumerate() {
        half.col_as_slice_mut(j).iter_mut().for_each(|x| *x *= sigma.sqrt());
    }
    Ok(&half * half.transpose())
}

/// U = Σ v_u uuᵀ.
fn weighted_sum(corners: &[Corner], v: &[f64], n: usize) -> Matrix {
    let mut sum = Matrix::zeros(n, n);
    for (u, v) in corners.iter().zip(v) {
        for (i, x) in u {
            for (j, y) in u {
                sum[(*i, *j)] += v * x * y;
            }
        }
    }
    sum
}

/// uᵀXu.
fn quadratic_form(u: &Corner, x: &Matrix) -> f64 {
    let row = |i: usize| u.iter().map(|(j, s)| s * x[(i, *j)]).sum::<f64>();
    u.iter().map(|(i, s)| s * row(*i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::variants::{Constraint, optimize_variant};
    use proptest::prelude::*;

    #[test]
    fn corners_are_all_signs_up_to_the_first() {
        let all = corners(&[vec![1, 4, 5], vec![0]]).unwrap();
        assert_eq!(all.len(), 5);
        assert_eq!(all[0], [(1, 1.0), (4, 1.0), (5, 1.0)]);
        assert_eq!(all[1], [(1, 1.0), (4, -1.0), (5, 1.0)]);
        assert_eq!(all[3], [(1, 1.0), (4, -1.0), (5, -1.0)]);
        assert_eq!(all[4], [(0, 1.0)]);
        let message = corners(&[(0..14).collect()]).unwrap_err().to_string();
        assert_eq!(message, "the number of corners of all patterns must be in 1..=4096, got 8192");
    }

    #[test]
    fn one_step_is_the_formula_of_the_corollary() {
        // The literal m×m form: the square root of H_vᵀVH_v has rank n < m.
        let workload = Workload::training(6, 0.95, None).unwrap();
        let schema = Schema::epochs(3, 2).unwrap();
        let before = corner_fixed_point(&workload, &schema, 3).unwrap().multipliers;
        let after = corner_fixed_point(&workload, &schema, 4).unwrap().multipliers;
        let corners = corners(&schema.listed().unwrap()).unwrap();
        let mut h = Matrix::zeros(6, corners.len());
        for (column, u) in corners.iter().enumerate() {
            u.iter().for_each(|(i, s)| h[(*i, column)] = s * before[column].sqrt());
        }
        let (values, vectors) = dense::symmetric_eigen(&dense::gram(&workload.apply(&h))).unwrap();
        for (row, after) in after.iter().enumerate() {
            let literal: f64 =
                (0..corners.len()).map(|j| values[j].max(0.0).sqrt() * vectors[(row, j)].powi(2)).sum();
            assert!((literal - after).abs() < 1e-6 * after, "{literal} {after}");
            // The step moves, so that equality is not trivial.
            assert!((before[row] - after).abs() > 1e-4 * after);
        }
    }

    #[test]
    fn the_fixed_point_and_newton_find_the_same_optimum() {
        for workload in [Workload::prefix_sum(6), Workload::training(6, 0.95, None).unwrap()] {
            let schema = Schema::epochs(3, 2).unwrap();
            let fixed = corner_fixed_point(&workload, &schema, 1000).unwrap();
            let newton = optimize_variant(&workload, &schema, Constraint::Corners, 1e-9).unwrap();
            assert!(fixed.loss >= newton.lower_bound && fixed.lower_bound <= newton.loss);
            assert!(fixed.loss <= newton.loss * (1.0 + 1e-6), "{} {}", fixed.loss, newton.loss);
            assert!(fixed.lower_bound >= newton.loss * (1.0 - 1e-6));
            // Corollary 3.1: the optimum is the sum of the multipliers.
            let total: f64 = fixed.multipliers.iter().sum();
            assert!((total / newton.loss - 1.0).abs() < 1e-6);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn newton_agrees_with_the_fixed_point_on_random_problems(
            n in 1usize..=8,
            raw in prop::collection::vec(-1.0f64..1.0, 64),
            members in prop::collection::vec(0u32..256, 3),
        ) {
            let a = dense::from_fn(n, n, |i, j| match i.cmp(&j) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.5 + raw[8 * i + j],
                std::cmp::Ordering::Greater => raw[8 * i + j],
            });
            // Random overlapping patterns of at most four steps, and singletons for what they leave out.
            let mut patterns: Vec<Vec<usize>> = members
                .iter()
                .map(|bits| (0..n).filter(|i| (bits >> i) & 1 == 1).take(4).collect())
                .filter(|pattern: &Vec<usize>| !pattern.is_empty())
                .collect();
            let left_out: Vec<usize> =
                (0..n).filter(|i| patterns.iter().all(|p| !p.contains(i))).collect();
            patterns.extend(left_out.into_iter().map(|i| vec![i]));
            let workload = Workload::dense(a).unwrap();
            let schema = Schema::patterns(n, patterns).unwrap();
            let newton = optimize_variant(&workload, &schema, Constraint::Corners, 1e-9).unwrap();
            // Corners with uᵀXu just below 1 lose their multipliers slowly, so some problems need many iterations.
            let mut reached = false;
            for iterations in [500, 5_000, 50_000] {
                let fixed = corner_fixed_point(&workload, &schema, iterations).unwrap();
                // Each bound holds against the other method at any time, …
                prop_assert!(fixed.loss >= newton.lower_bound * (1.0 - 1e-12));
                prop_assert!(fixed.lower_bound <= newton.loss * (1.0 + 1e-12));
                reached = fixed.lower_bound >= newton.loss * (1.0 - 1e-6);
                if reached {
                    break;
                }
            }
            // … and in the end they meet.
            prop_assert!(reached);
        }
    }
}
