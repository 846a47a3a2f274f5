//! Reshuffled epochs: at most one step of every epoch, anywhere in it.

mod search;
mod shares;
#[cfg(test)]
mod tests;

use super::exact::PatternBounds;
use super::min_sep::{Found, worst_of};
use super::{Bound, Kind, Method, bounds};
use crate::error::Result;
use crate::linalg::dense::Matrix;
use crate::schema::Schema;
use shares::{Pairs, Shares};

/// How many patterns of the search are solved to full accuracy.
const FINALISTS: usize = 3;

/// Bounds on the square over all patterns, and a pattern that reaches the lower one.
pub(super) fn squared(x: &Matrix, schema: &Schema) -> Found {
    let (k, b) = parts(schema);
    let heaviest = Shares::none(x, k, b).heaviest();
    if is_block_diagonal(x, b) {
        let bounds = epoch_maxima(heaviest.iter().map(|i| x[(*i, *i)]), k);
        return Found { bounds, worst: heaviest.clone(), heaviest };
    }
    let bounds = bracket(x, k, b);
    let upper = bounds.upper.iter().copied().fold(f64::INFINITY, f64::min);
    Found {
        bounds: PatternBounds { lower: bounds.lower, upper, method: Method::EpochPairs },
        worst: bounds.worst,
        heaviest,
    }
}

struct Bracket {
    upper: [f64; 4],
    lower: f64,
    worst: Vec<usize>,
}

fn bracket(x: &Matrix, k: usize, b: usize) -> Bracket {
    let none = Shares::none(x, k, b);
    let with = |pairs: Pairs<'_>| {
        let mut shares = none.clone();
        shares.improve(&pairs);
        shares
    };
    let absolute = with(Pairs::Absolute);
    let around = with(Pairs::AroundMiddles);
    let given = vec![none.heaviest(), absolute.heaviest(), around.heaviest()];
    let found = search::worst(x, k, b, given, FINALISTS);
    let signed = with(Pairs::Signed(&found[0].correlations()));
    let upper = [&none, &absolute, &around, &signed].map(|s| s.bound());
    let (lower, worst) = worst_of(x, found.into_iter().map(|walk| walk.pattern).collect(), 0.0);
    let fixed = (0..b).map(|r| (0..k).map(|e| e * b + r).collect()).collect();
    let (other, pattern) = worst_of(x, fixed, lower);
    let (lower, worst) = if other > lower { (other, pattern) } else { (lower, worst) };
    Bracket { upper, lower, worst }
}

/// Every method, on the squares.
pub(super) fn all_methods(x: &Matrix, schema: &Schema) -> Result<Vec<Bound>> {
    let (k, _) = parts(schema);
    let PatternBounds { lower, upper, method } = squared(x, schema).bounds;
    let bound = |method, kind, value| Bound { value, kind, method };
    Ok(vec![
        bound(Method::Elliptope, Kind::LowerBound, lower),
        bound(method, Kind::UpperBound, upper),
        bound(Method::Spectral, Kind::UpperBound, bounds::spectral(x, k)?),
    ])
}

/// The parts of a schema of reshuffled epochs: (k, b).
fn parts(schema: &Schema) -> (usize, usize) {
    match schema {
        Schema::Reshuffled { epochs, steps_per_epoch } => (*epochs, *steps_per_epoch),
        _ => unreachable!("only called for reshuffled epochs"),
    }
}

/// Whether X_ij = 0 exactly wherever i and j are in different epochs.
fn is_block_diagonal(x: &Matrix, b: usize) -> bool {
    let n = x.nrows();
    (0..n).all(|i| x.col_as_slice(i)[(i / b + 1) * b..].iter().all(|entry| *entry == 0.0))
}

/// Exact where X is zero between epochs, from the largest diagonal entries of the k epochs.
pub(super) fn epoch_maxima(maxima: impl Iterator<Item = f64>, k: usize) -> PatternBounds {
    let sum: f64 = maxima.sum();
    // Either way: a sum of k terms that are not negative.
    let rounding = (k + 1) as f64 * f64::EPSILON;
    PatternBounds {
        lower: sum * (1.0 - rounding),
        upper: sum * (1.0 + rounding),
        method: Method::EpochMaxima,
    }
}
