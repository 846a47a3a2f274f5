//! The exact sensitivity of one participation pattern, for contributions that are vectors.
//!
//! One example contributes a matrix G whose rows have norm at most one. With X the gram matrix on the
//! pattern's steps, ‖CG‖² = tr(X·GGᵀ), and GGᵀ ranges over the elliptope:
//!
//! ```text
//! sens² = max { tr(X R) : R ⪰ 0, diag R = 1 }  =  min { Σ y_i : Diag(y) ⪰ X }.
//! ```
//!
//! The diagonal of X contributes its trace whatever R is. So the work is on the off-diagonal part E alone,
//! scaled to one, with y = diag X + w and Diag(w) ⪰ E: nothing cancels when E is tiny beside the diagonal.
//!
//! Closed forms come first, then the mixing method (coordinate ascent on unit vectors g_i with
//! R_ij = ⟨g_i, g_j⟩; Wang, Chang and Kolter 2017), which is cheap and often enough for a loose
//! tolerance, then the interior point method, which settles everything else.

use super::Method;
use super::interior::{self, column_sums};
use super::mixing::Ascent;
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};

/// After how many sweeps of the mixing method the bracket is looked at; the last ends it.
const CHECKPOINTS: [usize; 5] = [2, 6, 14, 30, 62];

/// Bounds on the *squared* sensitivity of one pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PatternBounds {
    /// Proven from below: some contribution of unit vectors reaches it.
    pub lower: f64,
    /// Proven from above, rounding included.
    pub upper: f64,
    /// What gave the upper bound.
    pub method: Method,
}

/// The squared sensitivity of one pattern with gram matrix `x`, as a bracket whose relative width is at most
/// `tolerance` unless rounding forbids it (about k²·1e-16). Exact up to that width.
///
/// Reads the lower triangle of `x`, which must be finite with a non-negative diagonal.
/// A closed form answers regardless of the tolerance where one applies.
pub fn pattern_squared(x: &Matrix, tolerance: f64) -> Result<PatternBounds> {
    if !(0.0..1.0).contains(&tolerance) {
        return Err(Error::argument("tolerance", "in [0, 1)", tolerance));
    }
    check_block(x)?;
    let bounds = pattern_above(x, tolerance, 0.0);
    if bounds.upper.is_finite() {
        Ok(bounds)
    } else {
        Err(Error::argument(
            "the gram matrix of a pattern",
            "small enough for the sum of its entries to be finite",
            format!("a sum of {}", bounds.upper),
        ))
    }
}

fn check_block(x: &Matrix) -> Result<()> {
    let k = x.nrows();
    if k == 0 || x.ncols() != k {
        let value = format!("{}×{}", x.nrows(), x.ncols());
        return Err(Error::argument("the gram matrix of a pattern", "square and not empty", value));
    }
    for j in 0..k {
        for i in j..k {
            let name = || format!("entry ({i}, {j}) of the gram matrix of a pattern");
            if !x[(i, j)].is_finite() {
                return Err(Error::argument(name(), "finite", x[(i, j)]));
            }
            if i == j && x[(i, j)] < 0.0 {
                return Err(Error::argument(name(), "non-negative (on the diagonal)", x[(i, j)]));
            }
        }
    }
    Ok(())
}

/// As [`pattern_squared`] for a block that has been checked. Where the upper bound falls below `floor`, the
/// pattern cannot matter to a maximum that is already `floor`, and the bracket may be left wide.
pub(super) fn pattern_above(x: &Matrix, tolerance: f64, floor: f64) -> PatternBounds {
    let k = x.nrows();
    let entry = |i: usize, j: usize| x[(i.max(j), i.min(j))].abs();
    let sum = column_sums(k, entry);
    // A nested sum of non-negative terms is within 2k·u of the truth; 2kε = 4k·u is safely above.
    let rounding = 2.0 * k as f64 * f64::EPSILON;
    let exact = k <= 2 || consistent_signs(x).is_some();
    let absolute = PatternBounds {
        lower: if exact { sum * (1.0 - rounding) } else { 0.0 },
        upper: sum * (1.0 + rounding),
        method: if exact { Method::NonNegative } else { Method::AbsoluteSums },
    };
    if exact || absolute.upper < floor || !sum.is_finite() {
        return absolute;
    }
    let elliptope = elliptope(x, tolerance, floor);
    if elliptope.upper <= absolute.upper {
        elliptope
    } else {
        PatternBounds { lower: elliptope.lower, ..absolute }
    }
}

/// Signs s with s_i s_j X_ij ≥ 0 for all i, j, if there are any: a two-colouring, breadth first, of the graph
/// of the non-zero entries. Entries that are exactly zero impose nothing. Flipping row i of G
/// by s_i makes X non-negative, and then R = 11ᵀ is best: sens² = Σ|X_ij| (paper, Section 2).
pub(super) fn consistent_signs(x: &Matrix) -> Option<Vec<f64>> {
    let k = x.nrows();
    let entry = |i: usize, j: usize| x[(i.max(j), i.min(j))];
    let mut signs = vec![0.0; k];
    let mut queue = Vec::with_capacity(k);
    for root in 0..k {
        if signs[root] != 0.0 {
            continue;
        }
        signs[root] = 1.0;
        queue.clear();
        queue.push(root);
        let mut head = 0;
        while head < queue.len() {
            let i = queue[head];
            head += 1;
            for j in (0..k).filter(|j| *j != i && entry(i, *j) != 0.0) {
                let wanted = signs[i] * entry(i, j).signum();
                if signs[j] == 0.0 {
                    signs[j] = wanted;
                    queue.push(j);
                } else if signs[j] != wanted {
                    return None;
                }
            }
        }
    }
    Some(signs)
}

/// The bracket without closed forms, for any size and any signs.
pub(super) fn elliptope(x: &Matrix, tolerance: f64, floor: f64) -> PatternBounds {
    let k = x.nrows();
    let entry = |i: usize, j: usize| if i == j { 0.0 } else { x[(i.max(j), i.min(j))] };
    let trace: f64 = (0..k).map(|i| x[(i, i)]).sum();
    let rounding = 2.0 * k as f64 * f64::EPSILON;
    let (trace_down, trace_up) = (trace * (1.0 - rounding), trace * (1.0 + rounding));
    let largest = (0..k).flat_map(|j| (0..j).map(move |i| entry(i, j).abs())).fold(0.0, f64::max);
    let total = |lower: f64, upper: f64| PatternBounds {
        // R = I always gives the trace.
        lower: trace_down + lower.max(0.0),
        // One more rounding for the sum and one for the scale.
        upper: (trace_up + upper) * (1.0 + 2.0 * f64::EPSILON),
        method: Method::Elliptope,
    };
    if largest == 0.0 {
        return total(0.0, 0.0);
    }
    // A power of two, so that scaling is exact.
    let scale = dense::power_of_two(largest);
    let e = dense::from_fn(k, k, |i, j| entry(i, j) / scale);
    let enough = |lower: f64, upper: f64| {
        let bounds = total(scale * lower, scale * upper);
        bounds.upper <= bounds.lower * (1.0 + tolerance) || bounds.upper < floor
    };

    let mut ascent = Ascent::new(&e);
    let mut lower = 0.0f64;
    let mut swept = 0;
    for checkpoint in CHECKPOINTS {
        while swept < checkpoint {
            ascent.sweep();
            swept += 1;
        }
        lower = lower.max(ascent.evaluate());
        if let Some(upper) = ascent.upper_if(&e, |upper| enough(lower, upper)) {
            return total(scale * lower, scale * upper);
        }
    }
    // A warm start needs three to ten iterations, a cold one fifteen to twenty; the latter in reserve.
    let mut upper = f64::INFINITY;
    let starts: [&dyn Fn() -> _; 2] = [&|| ascent.start(&e), &|| Some(interior::cold_start(&e))];
    for start in starts {
        if let Some(bracket) = start().and_then(|start| interior::solve(&e, start, enough)) {
            lower = lower.max(bracket.lower);
            upper = upper.min(bracket.upper);
        }
        if enough(lower, upper) {
            break;
        }
    }
    total(scale * lower, scale * upper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, hard_gram, random_contribution, random_gram};
    use crate::sensitivity::{bounds, brute};

    #[test]
    fn both_ends_meet_on_two_hundred_hard_matrices() {
        let mut noise = Noise(1);
        for number in 0..200 {
            let k = 3 + number * 7 % 48;
            let x = hard_gram(&mut noise, number, k);
            for found in [pattern_squared(&x, 2e-9).unwrap(), elliptope(&x, 2e-9, 0.0)] {
                let gap = (found.upper - found.lower) / found.lower;
                assert!((0.0..1e-8).contains(&gap), "{number}, k = {k}: {found:?}, gap {gap:e}");
            }
        }
    }

    #[test]
    fn the_rounding_limit_is_reached_where_no_tolerance_is_given() {
        let mut noise = Noise(2);
        for k in [3, 8, 21] {
            let found = pattern_squared(&random_gram(&mut noise, k, k), 0.0).unwrap();
            assert!(found.lower <= found.upper && found.upper < found.lower * (1.0 + 1e-10), "{found:?}");
        }
    }

    #[test]
    fn no_contribution_exceeds_the_upper_end() {
        let mut noise = Noise(3);
        for number in 0..60 {
            let k = noise.between(3, 9);
            let x = hard_gram(&mut noise, number, k);
            let found = pattern_squared(&x, 1e-6).unwrap();
            for d in [1, 2, 3, k] {
                let value = random_contribution(&mut noise, &x, d);
                assert!(value <= found.upper, "{number}: {value} {found:?}");
            }
        }
    }

    #[test]
    fn the_value_lies_between_the_signs_and_the_papers_bounds() {
        let mut noise = Noise(4);
        let mut strict = 0;
        for _ in 0..60 {
            let k = noise.between(3, 10);
            let rows = noise.between(2, 12);
            let x = random_gram(&mut noise, rows, k);
            let found = elliptope(&x, 2e-9, 0.0);
            let scalar = brute::scalar_squared(&x).unwrap();
            assert!(scalar.lower <= found.upper);
            assert!(found.lower <= bounds::grothendieck(scalar.upper));
            assert!(found.lower <= bounds::spectral(&x, k).unwrap());
            assert!(found.lower <= bounds::absolute_sums(&x));
            strict += usize::from(found.lower > scalar.upper);
        }
        // Vectors do more than signs in most of these; otherwise the test would say nothing.
        assert!(strict > 30, "{strict}");
    }

    #[test]
    fn three_steps_agree_with_a_grid_over_the_plane() {
        // Extreme points of the elliptope have rank r with r(r+1)/2 ≤ k, so for k = 3 two dimensions suffice,
        // and the first vector may be fixed.
        let mut noise = Noise(5);
        for _ in 0..10 {
            let x = random_gram(&mut noise, 3, 3);
            let value = |a: f64, b: f64| {
                let off = x[(1, 0)] * a.cos() + x[(2, 0)] * b.cos() + x[(2, 1)] * (a - b).cos();
                x[(0, 0)] + x[(1, 1)] + x[(2, 2)] + 2.0 * off
            };
            let (mut best, mut at, mut width) = (0.0, (0.0, 0.0), std::f64::consts::PI);
            // Eight times finer each time, first over the whole torus in steps of one degree.
            for level in 0..8 {
                let points = if level == 0 { 180 } else { 16 };
                let (a0, b0) = at;
                for p in -points..=points {
                    for q in -points..=points {
                        let step = width / f64::from(points);
                        let (a, b) = (a0 + step * f64::from(p), b0 + step * f64::from(q));
                        if value(a, b) > best {
                            (best, at) = (value(a, b), (a, b));
                        }
                    }
                }
                width /= if level == 0 { 90.0 } else { 8.0 };
            }
            let found = elliptope(&x, 1e-10, 0.0);
            assert!(best <= found.upper && found.lower <= best * (1.0 + 1e-9), "{best} {found:?}");
        }
    }

    #[test]
    fn signs_that_flip_away_give_the_closed_form() {
        let mut noise = Noise(6);
        for k in 1..12 {
            let s: Vec<f64> = (0..k).map(|_| noise.normal().signum()).collect();
            let mut x = random_gram(&mut noise, k, k);
            let sum = column_sums(k, |i, j| x[(i, j)].abs());
            for j in 0..k {
                for i in 0..k {
                    x[(i, j)] = s[i] * s[j] * x[(i, j)].abs();
                }
            }
            let found = pattern_squared(&x, 0.0).unwrap();
            assert_eq!(found.method, Method::NonNegative);
            assert!(found.lower <= sum && sum <= found.upper && found.upper < sum * (1.0 + 1e-13));
        }
        // A negative triangle cannot be flipped away, two separate negative edges can.
        let triangle = dense::from_fn(3, 3, |i, j| if i == j { 1.0 } else { -0.5 });
        assert_eq!(consistent_signs(&triangle), None);
        let edges = dense::from_fn(4, 4, |i, j| match (i, j) {
            (0, 1) | (1, 0) | (2, 3) | (3, 2) => -0.5,
            _ => f64::from(i == j),
        });
        assert_eq!(consistent_signs(&edges), Some(vec![1.0, -1.0, 1.0, -1.0]));
    }

    #[test]
    fn scaling_the_matrix_scales_the_square() {
        let mut noise = Noise(7);
        let x = random_gram(&mut noise, 7, 7);
        let one = pattern_squared(&x, 2e-9).unwrap();
        for scale in [2f64.powi(600), 2f64.powi(-600), 1e-100, 3.0] {
            let scaled = dense::from_fn(7, 7, |i, j| scale * x[(i, j)]);
            let found = pattern_squared(&scaled, 2e-9).unwrap();
            assert!((found.upper / scale / one.upper - 1.0).abs() < 1e-8, "{scale}");
            assert!((found.lower / scale / one.lower - 1.0).abs() < 1e-8, "{scale}");
        }
    }

    #[test]
    fn nothing_and_one_step() {
        let found = pattern_squared(&Matrix::zeros(5, 5), 0.0).unwrap();
        assert_eq!((found.lower, found.upper), (0.0, 0.0));
        let found = elliptope(&Matrix::zeros(5, 5), 0.0, 0.0);
        assert_eq!((found.lower, found.upper), (0.0, 0.0));
        let found = pattern_squared(&dense::from_fn(1, 1, |_, _| 7.0), 0.0).unwrap();
        assert!(found.lower <= 7.0 && found.upper >= 7.0 && found.upper - found.lower < 1e-13);
    }

    #[test]
    fn a_pattern_below_the_floor_is_left_early() {
        let mut noise = Noise(8);
        let x = random_gram(&mut noise, 12, 12);
        let full = elliptope(&x, 2e-9, 0.0);
        let early = pattern_above(&x, 2e-9, 1.01 * full.upper);
        assert!(early.upper < 1.01 * full.upper && early.upper >= full.lower);
        assert!(early.upper - early.lower > 1e-6 * early.upper, "{early:?} was not early");
    }

    #[test]
    fn bad_blocks_are_refused() {
        let message = |x: Matrix| pattern_squared(&x, 0.0).unwrap_err().to_string();
        assert_eq!(
            message(dense::from_fn(2, 2, |i, j| if i > j { f64::NAN } else { 1.0 })),
            "entry (1, 0) of the gram matrix of a pattern must be finite, got NaN"
        );
        assert_eq!(
            message(dense::from_fn(1, 1, |_, _| -2.0)),
            "entry (0, 0) of the gram matrix of a pattern must be non-negative (on the diagonal), got -2"
        );
        assert!(message(Matrix::zeros(2, 3)).ends_with("must be square and not empty, got 2×3"));
        assert!(pattern_squared(&dense::identity(2), f64::NAN).is_err());
        assert!(pattern_squared(&dense::from_fn(2, 2, |_, _| 1e308), 0.0).is_err());
    }
}
