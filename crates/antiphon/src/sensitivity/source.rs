//! Where the blocks X_π come from: a gram matrix that was given, an encoder's columns, or a formula.

use super::Method;
use super::exact::PatternBounds;
use super::{min_sep, reshuffled};
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;

/// Largest relative asymmetry of a gram matrix that passes for rounding.
const ASYMMETRY: f64 = 1e-10;

/// Most steps for which a gram matrix that is given by a formula is written out.
const LARGEST_FULL: usize = 12_000;

/// Where blocks of the gram matrix come from: a checked matrix, divided by a power of two so
/// that squares and sums neither overflow nor vanish.
pub(super) struct Source<'a> {
    given: Given<'a>,
    /// What the matrix is divided by.
    scale: f64,
    /// What the sensitivity of the divided matrix is to be multiplied with.
    pub(super) sensitivity_scale: f64,
}

enum Given<'a> {
    Encoder(&'a Matrix),
    Gram(&'a Matrix),
    Entries(Entries<'a>),
}

/// A gram matrix that is computed and not stored.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    /// X_ij, symmetric.
    pub entry: &'a (dyn Fn(usize, usize) -> f64 + Sync),
    /// How far the computed entries can be from the true ones, at most.
    pub error: f64,
    /// For a step, the first step of its block, where X is block diagonal: X_ij is zero, exactly, between steps whose blocks have
    /// different first steps. `None` where nothing is known.
    pub blocks: Option<&'a (dyn Fn(usize) -> usize + Sync)>,
}

impl Entries<'_> {
    /// Whether the schema is one of reshuffled epochs, and no block reaches from one epoch into another.
    fn within_epochs(&self, schema: &Schema) -> bool {
        let (Some(first), Schema::Reshuffled { steps_per_epoch: b, .. }) = (self.blocks, schema) else {
            return false;
        };
        (0..schema.steps()).all(|i| first(i) / b == i / b)
    }
}

impl<'a> Source<'a> {
    pub(super) fn entries(entries: Entries<'a>, schema: &Schema) -> Result<Self> {
        // f64::max would drop a NaN.
        let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        let largest = (0..schema.steps()).map(|i| (entries.entry)(i, i)).fold(0.0, larger);
        if !(largest.is_finite() && entries.error.is_finite()) {
            return Err(Error::Numerical("the diagonal of a gram matrix is not finite".into()));
        }
        if !schema.is_listed() && schema.steps() > LARGEST_FULL && !entries.within_epochs(schema) {
            return Err(Error::Unsupported(format!(
                "for {} the sensitivity needs the whole gram matrix, which is too large for {} steps (at most \
                 {LARGEST_FULL})",
                schema.name(),
                schema.steps()
            )));
        }
        let root = dense::power_of_two(largest.sqrt());
        Ok(Source { given: Given::Entries(entries), scale: root * root, sensitivity_scale: root })
    }

    pub(super) fn encoder(c: &'a Matrix, schema: &Schema) -> Result<Self> {
        let n = schema.steps();
        if c.ncols() != n || c.nrows() == 0 {
            let value = format!("{}×{}", c.nrows(), c.ncols());
            let allowed = format!("a matrix with {n} columns, one for each step of the schema");
            return Err(Error::argument("the encoder", allowed, value));
        }
        let scale = scale_of_entry(largest_entry(c, "the encoder")?);
        Ok(Source { given: Given::Encoder(c), scale, sensitivity_scale: scale })
    }

    pub(super) fn gram(x: &'a Matrix, schema: &Schema) -> Result<Self> {
        let n = schema.steps();
        if x.nrows() != n || x.ncols() != n {
            let value = format!("{}×{}", x.nrows(), x.ncols());
            let allowed = format!("{n}×{n}, one row and column for each step of the schema");
            return Err(Error::argument("the gram matrix", allowed, value));
        }
        let largest = largest_entry(x, "the gram matrix")?;
        for j in 0..n {
            if x[(j, j)] < 0.0 {
                let name = format!("entry ({j}, {j}) of the gram matrix");
                return Err(Error::argument(name, "non-negative (on the diagonal)", x[(j, j)]));
            }
            for i in 0..j {
                // Halves, since the difference of two finite numbers may overflow.
                if (0.5 * x[(i, j)] - 0.5 * x[(j, i)]).abs() > 0.5 * ASYMMETRY * largest {
                    let name = format!("entry ({i}, {j}) of the gram matrix");
                    let allowed = format!("equal to entry ({j}, {i}), which is {}", x[(j, i)]);
                    return Err(Error::argument(name, allowed, x[(i, j)]));
                }
            }
        }
        // An even exponent, so that the root of the scale is a power of two as well.
        let root = dense::power_of_two(largest.sqrt());
        Ok(Source { given: Given::Gram(x), scale: root * root, sensitivity_scale: root })
    }

    /// How much rounding in entries of X that were computed from the encoder's columns can change tr(X_π R), where the norms of
    /// the columns of π add up to `norms`; `None` where blocks are not formed from columns.
    pub(super) fn product_allowance(&self, norms: f64) -> Option<f64> {
        match &self.given {
            // A sum of m products in any order is within m·u·‖c_i‖‖c_j‖ of c_iᵀc_j, so tr(X_π R) is within
            // m·u·(Σ‖c_i‖)². Here with ε = 2u, since the norms are computed as well.
            Given::Encoder(c) => Some(c.nrows() as f64 * f64::EPSILON * norms * norms),
            _ => None,
        }
    }

    /// X_π of the divided matrix, and how much rounding in it can change tr(X_π R).
    pub(super) fn block(&self, pattern: &[usize]) -> (Matrix, f64) {
        let k = pattern.len();
        match &self.given {
            Given::Encoder(c) => {
                let m = c.nrows();
                let x = dense::gram(&dense::from_fn(m, k, |i, j| c[(i, pattern[j])] / self.scale));
                let norms: f64 = (0..k).map(|i| x[(i, i)].sqrt()).sum();
                (x, self.product_allowance(norms).unwrap_or(0.0))
            }
            Given::Gram(x) => {
                let mean = |i: usize, j: usize| {
                    let (i, j) = (pattern[i], pattern[j]);
                    0.5 * (x[(i, j)] / self.scale) + 0.5 * (x[(j, i)] / self.scale)
                };
                (dense::from_fn(k, k, mean), 0.0)
            }
            Given::Entries(entries) => {
                let x = dense::from_fn(k, k, |i, j| (entries.entry)(pattern[i], pattern[j]) / self.scale);
                (x, entries.error / self.scale * (k * k) as f64) // |R_ij| ≤ 1
            }
        }
    }

    /// All of X, divided.
    pub(super) fn full_gram(&self, steps: usize) -> Matrix {
        let all: Vec<usize> = (0..steps).collect();
        self.block(&all).0
    }

    /// Bounds on the square, for the divided matrix, and a pattern that reaches the lower one (any pattern, or none,
    /// where that is zero).
    pub(super) fn squared(&self, schema: &Schema) -> (PatternBounds, Vec<usize>) {
        if let Given::Entries(entries) = &self.given
            && entries.within_epochs(schema)
        {
            return self.largest_of_epochs(entries, schema);
        }
        let Some(patterns) = schema.listed() else {
            let x = self.full_gram(schema.steps());
            // Comparisons would drop a NaN, and the bound would not know of it. This one is refused by whoever takes the root.
            if !dense::is_finite(&x) {
                let lost = PatternBounds { lower: 0.0, upper: f64::NAN, method: Method::AbsoluteSums };
                return (lost, Vec::new());
            }
            let found = match schema {
                Schema::Reshuffled { .. } => reshuffled::squared(&x, schema),
                _ => min_sep::squared(&x, schema),
            };
            let allowance = match &self.given {
                // The heaviest pattern need not be the longest.
                Given::Entries(entries) => {
                    entries.error / self.scale * (schema.max_participations() as f64).powi(2)
                }
                _ => self.block(&found.heaviest).1,
            };
            return (widened(found.bounds, allowance), found.worst);
        };
        let (bounds, number) = self.largest(patterns.len(), &|number| patterns[number].clone());
        (bounds, patterns.get(number).cloned().unwrap_or_default())
    }

    /// The same for reshuffled epochs, where X is zero between them.
    fn largest_of_epochs(&self, entries: &Entries<'_>, schema: &Schema) -> (PatternBounds, Vec<usize>) {
        let k = schema.max_participations();
        let diagonal = |i: usize| (entries.entry)(i, i) / self.scale;
        let heaviest = reshuffled::heaviest(k, schema.steps() / k, diagonal);
        let bounds = reshuffled::epoch_maxima(heaviest.iter().map(|i| diagonal(*i)));
        // Of k diagonal entries; the zeros between epochs are exact.
        (widened(bounds, entries.error / self.scale * k as f64), heaviest)
    }
}

pub(super) fn widened(bounds: PatternBounds, by: f64) -> PatternBounds {
    PatternBounds {
        lower: (bounds.lower - by).max(0.0),
        upper: (bounds.upper + by) * (1.0 + f64::EPSILON),
        ..bounds
    }
}

/// The largest absolute entry; an entry that is not finite is refused.
fn largest_entry(m: &Matrix, name: &str) -> Result<f64> {
    let mut largest = 0.0f64;
    for j in 0..m.ncols() {
        for i in 0..m.nrows() {
            if !m[(i, j)].is_finite() {
                let name = format!("entry ({i}, {j}) of {name}");
                return Err(Error::argument(name, "finite", m[(i, j)]));
            }
            largest = largest.max(m[(i, j)].abs());
        }
    }
    Ok(largest)
}

/// What to divide an encoder with this largest entry by: a power of two so near that the squares of the entries that
/// are left, and sums of them, stay far inside the range of numbers.
fn scale_of_entry(x: f64) -> f64 {
    if x > 0.0 { 2f64.powi(x.log2().floor().clamp(-1000.0, 1000.0) as i32) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, random_matrix};

    #[test]
    fn entries_whose_squares_leave_the_range_are_no_zero() {
        let schema = Schema::every_step(2).unwrap();
        for entry in [1e305, 1e-320] {
            // The second column is the first one with its signs changed: sens² = 4·128·entry². The signs alternate, so
            // that products of entries that overflow would cancel to NaN.
            let c = dense::from_fn(128, 2, |i, j| if (i + j) % 2 == 0 { entry } else { -entry });
            let found = crate::sensitivity::sensitivity_of_encoder(&c, &schema).unwrap();
            assert!((found.upper / entry / 512f64.sqrt() - 1.0).abs() < 1e-3, "{found:?}");
        }
        // A sensitivity beyond the largest number has no finite bound, and says so.
        let c = dense::from_fn(1000, 2, |_, _| 1e308);
        assert!(crate::sensitivity::sensitivity_of_encoder(&c, &schema).is_err());
    }

    #[test]
    fn entries_that_are_no_numbers_are_refused_under_every_schema() {
        for schema in [Schema::min_separation(9, 2, 3), Schema::reshuffled(3, 3), Schema::epochs(3, 3)] {
            let schema = schema.unwrap();
            for bad in [(0, 6), (0, 0), (4, 4)] {
                for value in [f64::NAN, f64::INFINITY] {
                    let entry = |i: usize, j: usize| match (i.min(j), i.max(j)) {
                        pair if pair == bad => value,
                        (a, b) => {
                            if a == b {
                                1.0
                            } else {
                                0.1
                            }
                        }
                    };
                    let entries = Entries { entry: &entry, error: 0.0, blocks: None };
                    assert!(
                        crate::sensitivity::sensitivity_of_entries(entries, &schema).is_err(),
                        "{schema:?} {bad:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_allowance_covers_the_rounding_of_the_product() {
        // The same block from columns in another order of rows differs by rounding only, and by less than that.
        let mut noise = Noise(41);
        let (m, n) = (500, 4);
        let c = random_matrix(&mut noise, m, n);
        let turned = dense::from_fn(m, n, |i, j| c[(m - 1 - i, j)]);
        let schema = Schema::every_step(n).unwrap();
        let (x, allowance) = Source::encoder(&c, &schema).unwrap().block(&[0, 1, 2, 3]);
        let (y, _) = Source::encoder(&turned, &schema).unwrap().block(&[0, 1, 2, 3]);
        let changed: f64 = (0..n).map(|j| (0..n).map(|i| (x[(i, j)] - y[(i, j)]).abs()).sum::<f64>()).sum();
        let trace: f64 = (0..n).map(|i| x[(i, i)]).sum();
        assert!(changed <= allowance && allowance < 1e-11 * trace, "{changed:e} {allowance:e}");
    }
}
