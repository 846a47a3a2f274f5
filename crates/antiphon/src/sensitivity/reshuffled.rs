//! Reshuffled epochs: at most one step of every epoch, anywhere in it.

use super::exact::{self, PatternBounds};
use super::min_sep::Found;
use super::{Bound, Kind, Method, TOLERANCE};
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use rayon::prelude::*;

/// Bounds on the square over all patterns, and a pattern that reaches the lower one.
pub(super) fn squared(x: &Matrix, schema: &Schema) -> Found {
    let (k, b) = parts(schema);
    let diagonal = |i: &usize| x[(*i, *i)];
    let largest =
        |e: usize| (e * b..(e + 1) * b).fold(e * b, |a, i| if diagonal(&i) > diagonal(&a) { i } else { a });
    let heaviest = (0..k).map(largest).collect();
    let (lower, worst) = from_below(x, k, b);
    Found {
        bounds: PatternBounds { lower, upper: pair_maxima(x, k, b), method: Method::AbsoluteSums },
        worst,
        heaviest,
    }
}

/// Every method, on the squares.
pub(super) fn all_methods(x: &Matrix, schema: &Schema) -> Vec<Bound> {
    let PatternBounds { lower, upper, method } = squared(x, schema).bounds;
    vec![
        Bound { value: lower, kind: Kind::LowerBound, method: Method::Elliptope },
        Bound { value: upper, kind: Kind::UpperBound, method },
    ]
}

/// The parts of a schema of reshuffled epochs: (k, b).
fn parts(schema: &Schema) -> (usize, usize) {
    match schema {
        Schema::Reshuffled { epochs, steps_per_epoch } => (*epochs, *steps_per_epoch),
        _ => unreachable!("only called for reshuffled epochs"),
    }
}

/// Σ over pairs of epochs of the largest |X_ij| between them, on the diagonal of the largest X_ii.
fn pair_maxima(x: &Matrix, k: usize, b: usize) -> f64 {
    let row = |e: usize| {
        let mut maxima = vec![0.0f64; e + 1];
        for j in e * b..(e + 1) * b {
            let column = x.col_as_slice(j);
            maxima[e] = maxima[e].max(column[j]);
            for (other, steps) in column[..e * b].chunks(b).enumerate() {
                maxima[other] = steps.iter().fold(maxima[other], |a, entry| a.max(entry.abs()));
            }
        }
        maxima[e] + 2.0 * maxima[..e].iter().sum::<f64>()
    };
    let sum: f64 = (0..k).into_par_iter().map(row).collect::<Vec<_>>().iter().sum();
    // Up: sums of at most k non-negative terms, nested twice.
    sum * (1.0 + 4.0 * (k + 1) as f64 * f64::EPSILON)
}

/// The largest lower bound among the patterns of fixed order.
fn from_below(x: &Matrix, k: usize, b: usize) -> (f64, Vec<usize>) {
    let pattern = |r: usize| -> Vec<usize> { (0..k).map(|e| e * b + r).collect() };
    let lower = |r: usize| exact::pattern_above(&dense::principal(x, &pattern(r)), TOLERANCE, 0.0).lower;
    let values: Vec<f64> = (0..b).into_par_iter().map(lower).collect();
    let best = (0..b).fold(0, |a, r| if values[r] > values[a] { r } else { a });
    (values[best], if values[best] > 0.0 { pattern(best) } else { Vec::new() })
}
