//! The maximum over patterns, without solving those that cannot reach it: over the patterns of a schema, and over millions
//! that really happened.

use super::Entries;
use super::exact::{self, PatternBounds};
use super::source::{Source, widened};
use super::{Method, Sensitivity, TOLERANCE};
use crate::error::Result;
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most steps for which X is written out to look patterns up in: 128 MiB.
const LARGEST_TABLE: usize = 4096;

/// Most steps of a pattern that is solved; longer ones are bounded.
const LARGEST_BLOCK: usize = 4096;

/// Patterns by number. Unlike those of a schema they may have a step more than once: contributions to one step add up.
#[derive(Clone, Copy)]
pub struct Listed<'a> {
    /// How many.
    pub count: usize,
    /// The number of steps in all of them together.
    pub steps: usize,
    /// The pattern with this number, not empty.
    pub get: &'a (dyn Fn(usize) -> Vec<usize> + Sync),
}

/// The largest sensitivity of some patterns, and a pattern that has it.
#[derive(Debug, Clone, Copy)]
pub struct Largest {
    /// The bracket of the maximum; zero where there are no patterns.
    pub sensitivity: Sensitivity,
    /// The number of the pattern that reaches the lower end.
    pub pattern: usize,
}

/// The largest sensitivity of an encoder over these patterns. For the patterns of a schema it is, to the last bit, that of
/// [`sensitivity_of_encoder`](super::sensitivity_of_encoder).
pub fn largest_of_encoder(c: &Matrix, patterns: Listed<'_>) -> Result<Largest> {
    let source = Source::encoder(c, &every_step(c.ncols())?)?;
    // Looking up k² entries is cheaper than k² inner products if X is looked up often enough.
    let mean = patterns.steps as f64 / patterns.count.max(1) as f64;
    let often = patterns.steps as f64 * mean > (c.ncols() as f64).powi(2);
    let found = match often && c.ncols() <= LARGEST_TABLE {
        true => source.largest_by_table(c.ncols(), patterns),
        false => source.largest(patterns.count, patterns.get),
    };
    named(found, source.sensitivity_scale)
}

/// The same for a gram matrix of so many steps that is computed entry by entry.
pub fn largest_of_entries(entries: Entries<'_>, steps: usize, patterns: Listed<'_>) -> Result<Largest> {
    let source = Source::entries(entries, &every_step(steps)?)?;
    named(source.largest(patterns.count, patterns.get), source.sensitivity_scale)
}

/// Only its number of steps is looked at.
fn every_step(steps: usize) -> Result<Schema> {
    Schema::every_step(steps)
}

fn named((bounds, pattern): (PatternBounds, usize), scale: f64) -> Result<Largest> {
    Ok(Largest { sensitivity: Sensitivity::from_squared(bounds, scale)?, pattern })
}

/// The largest lower bound so far: a pattern that cannot reach it need not be solved. An f64 that is not negative is ordered
/// as its bits are. The result does not depend on who comes first, since whatever is cut short lies strictly below the
/// final maximum.
struct Floor(AtomicU64);

impl Floor {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn raise(&self, lower: f64) {
        self.0.fetch_max(lower.to_bits(), Ordering::Relaxed);
    }
}

/// A pattern with every step once, and how often it was there: contributions to one step add up to one of that norm.
struct Counted {
    steps: Vec<usize>,
    counts: Vec<f64>,
}

impl Counted {
    fn new(pattern: &[usize]) -> Counted {
        let mut sorted = pattern.to_vec();
        sorted.sort_unstable();
        let groups = sorted.chunk_by(|a, b| a == b);
        let (steps, counts) = groups.map(|same| (same[0], same.len() as f64)).unzip();
        Counted { steps, counts }
    }

    /// X_π for contributions of these norms, and how much rounding can change tr(X_π R) where it can change that of X by `allowance`.
    fn scaled(&self, x: Matrix, allowance: f64) -> (Matrix, f64) {
        let largest = self.counts.iter().copied().fold(1.0, f64::max);
        if largest == 1.0 {
            return (x, allowance);
        }
        let scaled = dense::from_fn(x.nrows(), x.ncols(), |i, j| self.counts[i] * self.counts[j] * x[(i, j)]);
        // Two products per entry, and Σ|X_ij| ≤ (Σ√X_ii)².
        let norms: f64 = (0..x.nrows()).map(|i| scaled[(i, i)].sqrt()).sum();
        (scaled, allowance * largest * largest + 4.0 * f64::EPSILON * norms * norms)
    }
}

type Numbered = (PatternBounds, usize);

const NOTHING: Numbered = (PatternBounds { lower: 0.0, upper: 0.0, method: Method::NonNegative }, 0);

/// The larger one of two bounds at either end, and which pattern reaches the lower end: the first of those that do.
fn worse(a: Numbered, b: Numbered) -> Numbered {
    let bounds = PatternBounds {
        lower: a.0.lower.max(b.0.lower),
        // f64::max would drop a NaN; a bound that is none must not be lost.
        upper: if a.0.upper.is_nan() || b.0.upper.is_nan() { f64::NAN } else { a.0.upper.max(b.0.upper) },
        method: if b.0.upper > a.0.upper { b.0.method } else { a.0.method },
    };
    (bounds, if b.0.lower > a.0.lower { b.1 } else { a.1 })
}

impl Source<'_> {
    /// The largest bounds on the square over these patterns, for the divided matrix, and the number of the pattern.
    pub(super) fn largest(
        &self,
        count: usize,
        pattern: &(dyn Fn(usize) -> Vec<usize> + Sync),
    ) -> (PatternBounds, usize) {
        let floor = Floor(AtomicU64::new(0));
        let one = |number: usize| (self.solved(&pattern(number), &floor), number);
        (0..count).into_par_iter().map(one).reduce(|| NOTHING, worse)
    }

    fn solved(&self, pattern: &[usize], floor: &Floor) -> PatternBounds {
        let pattern = Counted::new(pattern);
        let bounds = match pattern.steps.len() <= LARGEST_BLOCK {
            true => {
                let (x, allowance) = self.block(&pattern.steps);
                let (x, allowance) = pattern.scaled(x, allowance);
                // The allowance is added afterwards, so the floor must leave room for it.
                widened(exact::pattern_above(&x, TOLERANCE, floor.get() - allowance), allowance)
            }
            false => self.by_norms(&pattern),
        };
        floor.raise(bounds.lower);
        bounds
    }

    /// Bounds on the square for a pattern that is too long to be solved: contributions that are orthogonal reach Σ m_i²X_ii, and none exceed
    /// (Σ m_i√X_ii)².
    fn by_norms(&self, pattern: &Counted) -> PatternBounds {
        let (mut sum, mut squares, mut allowance) = (0.0, 0.0, 0.0);
        for (step, count) in pattern.steps.iter().zip(&pattern.counts) {
            let (x, error) = self.block(&[*step]);
            sum += count * (x[(0, 0)] + error).sqrt();
            squares += count * count * (x[(0, 0)] - error).max(0.0);
            allowance += 4.0 * f64::EPSILON;
        }
        PatternBounds {
            lower: squares * (1.0 - allowance).max(0.0), // down: as many roundings as steps
            upper: sum * sum * (1.0 + 2.0 * allowance),  // up
            method: Method::AbsoluteSums,
        }
    }

    /// The same for many patterns: those that cannot reach the maximum are recognised in a table of X. The others are then
    /// solved as they always are. Where two patterns differ by less than the tolerance, the upper end may be that of either.
    fn largest_by_table(&self, steps: usize, patterns: Listed<'_>) -> (PatternBounds, usize) {
        let x = self.full_gram(steps);
        let quick = |number: usize| (self.quick(&x, &(patterns.get)(number)), number);
        let mut order: Vec<(f64, usize)> = (0..patterns.count).into_par_iter().map(quick).collect();
        // The largest first: it raises the floor for all others. A NaN counts as larger than any number, and is solved.
        order.par_sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let floor = Floor(AtomicU64::new(0));
        let one = |(quick, number): &(f64, usize)| {
            if *quick < floor.get() {
                return NOTHING;
            }
            let pattern = (patterns.get)(*number);
            match self.reaches(&x, &pattern, floor.get()) {
                true => (self.solved(&pattern, &floor), *number),
                false => NOTHING,
            }
        };
        let Some((first, rest)) = order.split_first() else {
            return NOTHING;
        };
        let first = one(first);
        rest.par_iter().map(one).reduce(|| first, worse)
    }

    /// Σ|X_ij| over a pattern from the table, rounded up: tr(X_π R) is no larger, as |R_ij| ≤ 1.
    fn quick(&self, x: &Matrix, pattern: &[usize]) -> f64 {
        let Counted { steps, counts } = Counted::new(pattern);
        let (mut sum, mut norms) = (0.0, 0.0);
        for (place, j) in steps.iter().enumerate() {
            norms += counts[place] * x[(*j, *j)].sqrt();
            let later = steps.iter().zip(&counts).skip(place + 1);
            let below: f64 = later.map(|(i, count)| count * x[(*i, *j)].abs()).sum();
            sum += counts[place] * (counts[place] * x[(*j, *j)] + 2.0 * below);
        }
        // Up: k² terms in nested sums, as in `exact`, and the rounding of the products in the table.
        let rounding = (2.0 * steps.len() as f64 + 4.0) * f64::EPSILON;
        sum * (1.0 + rounding) + self.product_allowance(norms).unwrap_or(0.0)
    }

    /// Whether the block of the table leaves it open that a pattern is as large as `floor`.
    fn reaches(&self, x: &Matrix, pattern: &[usize], floor: f64) -> bool {
        let pattern = Counted::new(pattern);
        if pattern.steps.len() > LARGEST_BLOCK {
            return true;
        }
        let (block, rounding) = pattern.scaled(dense::principal(x, &pattern.steps), 0.0);
        let norms: f64 = (0..block.nrows()).map(|i| block[(i, i)].sqrt()).sum();
        let allowance = rounding + self.product_allowance(norms).unwrap_or(0.0);
        let bounds = exact::pattern_above(&block, TOLERANCE, floor - allowance);
        let upper = widened(bounds, allowance).upper;
        upper >= floor || upper.is_nan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, random_matrix};
    use crate::sensitivity::{sensitivity_of_encoder, sensitivity_of_entries};

    fn listed(get: &(dyn Fn(usize) -> Vec<usize> + Sync), count: usize) -> Listed<'_> {
        Listed { count, steps: (0..count).map(|number| get(number).len()).sum(), get }
    }

    #[test]
    fn patterns_of_a_schema_have_its_sensitivity_to_the_last_bit() {
        let mut noise = Noise(61);
        let c = random_matrix(&mut noise, 30, 24);
        let schema = Schema::epochs(6, 4).unwrap();
        let patterns = schema.listed().unwrap();
        let get = |number: usize| patterns[number].clone();
        let found = largest_of_encoder(&c, listed(&get, 4)).unwrap();
        let expected = sensitivity_of_encoder(&c, &schema).unwrap();
        assert_eq!(found.sensitivity, expected);
        let worst = Schema::patterns(24, vec![get(found.pattern)]).unwrap();
        assert_eq!(sensitivity_of_encoder(&c, &worst).unwrap().upper, expected.upper);
        let x = dense::gram(&c);
        let entry = |i: usize, j: usize| x[(i, j)];
        let entries = Entries { entry: &entry, error: 1e-12, blocks: None };
        let found = largest_of_entries(entries, 24, listed(&get, 4)).unwrap();
        assert_eq!(found.sensitivity, sensitivity_of_entries(entries, &schema).unwrap());
    }

    #[test]
    fn the_table_changes_nothing() {
        let mut noise = Noise(62);
        for round in 0..20 {
            let c = random_matrix(&mut noise, 20, 16);
            // Enough of them for the table: 16² < 200 · 9.
            let patterns: Vec<Vec<usize>> = (0..200)
                .map(|_| {
                    let k = noise.between(1, 7);
                    let mut steps: Vec<usize> = (0..k).map(|_| noise.between(0, 15)).collect();
                    steps.sort_unstable();
                    steps
                })
                .collect();
            let get = |number: usize| patterns[number].clone();
            let listed = listed(&get, patterns.len());
            assert!(listed.steps as f64 * listed.steps as f64 / 200.0 > 256.0);
            let source = Source::encoder(&c, &every_step(16).unwrap()).unwrap();
            let plain = named(source.largest(200, &get), source.sensitivity_scale).unwrap();
            let found = largest_of_encoder(&c, listed).unwrap();
            assert_eq!(found.sensitivity.upper, plain.sensitivity.upper, "{round}");
            assert_eq!(get(found.pattern), get(plain.pattern), "{round}");
        }
    }

    #[test]
    fn a_step_twice_counts_twice_and_no_pattern_is_nothing() {
        // One step of norm 1 twice: contributions add up to 2.
        let c = dense::identity(3);
        let found = largest_of_encoder(&c, listed(&|_| vec![1, 1], 1)).unwrap().sensitivity;
        assert!(found.lower <= 2.0 && found.upper >= 2.0 && found.upper < 2.0 + 1e-12, "{found:?}");
        // Against a block with the steps repeated.
        let mut noise = Noise(63);
        for _ in 0..20 {
            let c = random_matrix(&mut noise, 9, 6);
            let mut pattern: Vec<usize> = (0..noise.between(2, 7)).map(|_| noise.between(0, 5)).collect();
            pattern.sort_unstable();
            let repeated = dense::from_fn(9, pattern.len(), |i, j| c[(i, pattern[j])]);
            let slow =
                sensitivity_of_encoder(&repeated, &Schema::every_step(pattern.len()).unwrap()).unwrap();
            let found = largest_of_encoder(&c, listed(&|_| pattern.clone(), 1)).unwrap().sensitivity;
            assert!((found.upper / slow.upper - 1.0).abs() < 1e-8, "{pattern:?}: {found:?} {slow:?}");
            assert!(found.upper >= slow.lower && found.lower <= slow.upper);
        }
        // Too often to be written out, and too long to be solved.
        let found = largest_of_encoder(&c, listed(&|_| vec![1; 60_000], 1)).unwrap().sensitivity;
        assert!(found.lower <= 6e4 && found.upper >= 6e4 && found.upper < 6e4 * (1.0 + 1e-9), "{found:?}");
        let entry = |i: usize, j: usize| f64::from(i == j);
        let entries = Entries { entry: &entry, error: 0.0, blocks: None };
        let get = |_| (0..5000).collect();
        let found = largest_of_entries(entries, 5000, listed(&get, 1)).unwrap().sensitivity;
        assert!(found.lower <= 5000f64.sqrt() && found.upper >= 5000.0 && found.lower > 70.0, "{found:?}");
        let found = largest_of_encoder(&c, listed(&|_| vec![], 0)).unwrap().sensitivity;
        assert_eq!((found.lower, found.upper), (0.0, 0.0));
    }
}
