//! The bounds of the paper that need no optimization, and all methods side by side.
//!
//! All are for the *squared* sensitivity of one pattern with gram matrix X, k×k, and for vector contributions.

use super::exact::{self, PatternBounds};
use super::interior::column_sums;
use super::source::Source;
use super::{Bound, Kind, Method, Sensitivity, TOLERANCE, brute};
use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use rayon::prelude::*;

/// Σ|X_ij|, an upper bound since |R_ij| ≤ 1; exact where the signs of X can be flipped away.
pub fn absolute_sums(x: &Matrix) -> f64 {
    let k = x.nrows();
    // A nested sum of non-negative terms is within 2k·u of the truth; 2kε = 4k·u is safely above.
    column_sums(k, |i, j| x[(i, j)].abs()) * (1.0 + 2.0 * k as f64 * f64::EPSILON)
}

/// k·λ_max(X), an upper bound (paper, theorem on upper-bounding sensitivity, there for scalars):
/// tr(X R) ≤ λ_max(X)·tr R, and tr R = k for vectors as well.
///
/// `participations` is k where X covers more steps than one pattern: λ_max of a block is no larger.
pub fn spectral(x: &Matrix, participations: usize) -> Result<f64> {
    let (low, high) = dense::extreme_eigenvalues(x)?;
    // The eigenvalue solver is backward stable: a modest multiple of n·ε·‖X‖, taken here as 16.
    let rounding = 16.0 * x.nrows() as f64 * f64::EPSILON;
    let norm = high.max(-low).max(0.0);
    Ok((high.max(0.0) + rounding * norm) * participations as f64 * (1.0 + 2.0 * f64::EPSILON))
}

/// π/2 times the best value over signs, an upper bound by Grothendieck's inequality for positive
/// semi-definite X. The factor belongs to the *square*; on the sensitivity it is √(π/2).
///
/// `scalar` must itself be an upper bound on max sᵀXs over signs s.
pub fn grothendieck(scalar: f64) -> f64 {
    // FRAC_PI_2 lies below π/2 by 6e-17; 2ε more than pays for that and for the product.
    std::f64::consts::FRAC_PI_2 * scalar * (1.0 + 2.0 * f64::EPSILON)
}

/// Every method on the squares, over listed patterns.
pub(super) fn listed_methods(source: &Source, patterns: &[Vec<usize>]) -> Result<Vec<Bound>> {
    struct One {
        signs: bool,
        elliptope: PatternBounds,
        absolute: f64,
        spectral: f64,
        scalar: Option<brute::ScalarMaximum>,
    }
    let all: Vec<One> = patterns
        .par_iter()
        .map(|pattern| {
            let x = source.block(pattern).0;
            Ok(One {
                signs: x.nrows() <= 2 || exact::consistent_signs(&x).is_some(),
                elliptope: exact::elliptope(&x, TOLERANCE, 0.0),
                absolute: absolute_sums(&x),
                spectral: spectral(&x, x.nrows())?,
                scalar: brute::scalar_squared(&x).ok(),
            })
        })
        .collect::<Result<_>>()?;
    let largest = |f: &dyn Fn(&One) -> f64| all.iter().map(f).fold(0.0, f64::max);
    let bound = |method, kind, value| Bound { value, kind, method };
    let signs = all.iter().all(|one| one.signs);
    let mut found = Vec::new();
    if signs {
        found.push(bound(Method::NonNegative, Kind::Exact, largest(&|one| one.absolute)));
    }
    let elliptope = PatternBounds {
        lower: largest(&|one| one.elliptope.lower),
        upper: largest(&|one| one.elliptope.upper),
        method: Method::Elliptope,
    };
    match Sensitivity::from_squared(elliptope, 1.0)?.kind() {
        Kind::Exact => found.push(bound(Method::Elliptope, Kind::Exact, elliptope.upper)),
        _ => {
            found.push(bound(Method::Elliptope, Kind::UpperBound, elliptope.upper));
            found.push(bound(Method::Elliptope, Kind::LowerBound, elliptope.lower));
        }
    }
    if all.iter().all(|one| one.scalar.is_some()) {
        let scalar =
            |f: &dyn Fn(&brute::ScalarMaximum) -> f64| largest(&|one| one.scalar.as_ref().map_or(0.0, f));
        let (lower, upper) = (scalar(&|s| s.lower), scalar(&|s| s.upper));
        // Signs are enough for vectors where k ≤ 2 or X_π ≥ 0 up to signs (paper, appendix "From scalar to
        // vector contributions").
        let (kind, value) = if signs { (Kind::Exact, upper) } else { (Kind::LowerBound, lower) };
        found.push(bound(Method::ScalarBruteForce, kind, value));
        let value = grothendieck(upper);
        found.push(bound(Method::Grothendieck, Kind::UpperBound, value));
    }
    found.push(bound(Method::AbsoluteSums, Kind::UpperBound, largest(&|one| one.absolute)));
    found.push(bound(Method::Spectral, Kind::UpperBound, largest(&|one| one.spectral)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_a_matrix_with_known_spectrum() {
        // 2I + J on three steps: eigenvalues 2, 2, 5; all entries sum to 15 = 3·5.
        let x = dense::from_fn(3, 3, |i, j| if i == j { 3.0 } else { 1.0 });
        assert!((absolute_sums(&x) - 15.0).abs() < 1e-13 && absolute_sums(&x) >= 15.0);
        let value = spectral(&x, 3).unwrap();
        assert!((value - 15.0).abs() < 1e-12 && value >= 15.0);
        // 2I − J·(1/2): eigenvalues 2, 2, 1/2; the bound is 6 while the absolute sums are 3·(3/2 + 1).
        let x = dense::from_fn(3, 3, |i, j| if i == j { 1.5 } else { -0.5 });
        assert!((spectral(&x, 3).unwrap() - 6.0).abs() < 1e-12);
        assert!((absolute_sums(&x) - 7.5).abs() < 1e-13);
    }

    #[test]
    fn grothendieck_rounds_up() {
        // The nearest f64 lies below π/2 (by 6e-17), so the bound for 1 must lie strictly above it.
        let nearest = std::f64::consts::FRAC_PI_2;
        assert!(grothendieck(1.0) > nearest && grothendieck(1.0) < nearest * (1.0 + 1e-15));
    }
}
