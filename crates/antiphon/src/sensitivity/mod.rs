//! Sensitivity: how far one example can move what the mechanism releases.
//!
//! For an encoder C with gram matrix X = CᵀC, a [`Schema`] of patterns π, and contributions that are
//! *vectors* of norm at most one (gradients after clipping),
//!
//! ```text
//! sens²(X) = max over π of  max { tr(X_π R) : R ⪰ 0, diag R = 1 }.
//! ```
//!
//! The inner maximum is over the elliptope. It is solved to about nine digits with a proof from both sides
//! ([`pattern_squared`]), so every answer here is a bracket, and says whether its ends meet.
//! A [`Sensitivity`] is private to use at its `upper` end whatever its kind.
//!
//! | file | room |
//! |---|---|
//! | `exact` | one pattern: closed forms, then the elliptope |
//! | `mixing` | coordinate ascent, cheap and often enough |
//! | `interior` | the interior point method that settles the rest |
//! | `source` | checks a matrix, scales it and hands out its blocks |
//! | `largest` | the maximum over patterns, without solving those that cannot reach it |
//! | `bounds` | the paper's upper bounds |
//! | `brute` | the paper's brute force over signs |
//! | `min_sep` | minimum separation, where the patterns cannot be listed |
//! | `chains` | the dynamic programme that it uses |
//! | `tighten` | a tighter upper bound where they leave a gap: windows of steps by place (`places`), shares of pairs (`shares`), |
//! | | branch and bound (`branch`) |
//! | `search` | a search for bad patterns under minimum separation |
//! | `progressions` | where it begins: arithmetic progressions |
//! | `climb` | how it goes on: from a pattern to a worse one |
//! | `reshuffled` | reshuffled epochs, where the patterns cannot be listed either; `shares` bounds from above, `search` finds bad patterns |

pub mod bounds;
mod branch;
pub mod brute;
mod chains;
mod climb;
pub mod exact;
mod interior;
mod largest;
mod min_sep;
mod mixing;
mod places;
mod progressions;
mod reshuffled;
mod search;
mod shares;
mod source;
#[cfg(test)]
pub(crate) mod testing;
mod tighten;

pub use exact::{PatternBounds, pattern_squared};
pub use largest::{Largest, Listed, largest_of_encoder, largest_of_entries};

use crate::error::{Error, Result};
use crate::linalg::dense::Matrix;
use crate::schema::Schema;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
pub use source::Entries;
use source::Source;

/// Two ends of a bracket that agree to this relative width count as one exact value.
pub const EXACT_TO: f64 = 1e-8;
/// Relative width of the bracket on the square that [`sensitivity_of_gram`] works for.
const TOLERANCE: f64 = 2e-9;

/// How a figure was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// √Σ|X_ij| where flipping the signs of some steps makes X_π non-negative: exact.
    NonNegative,
    /// The semidefinite programme over the elliptope, bounded from both sides.
    Elliptope,
    /// Chains of diagonal entries under minimum separation, where X is banded: exact.
    BandedDynamicProgram,
    /// All signs: exact for scalar contributions, a lower bound for vectors.
    ScalarBruteForce,
    /// √(k·λ_max(X_π)): an upper bound.
    Spectral,
    /// √Σ|X_ij|: an upper bound.
    AbsoluteSums,
    /// √(π/2) times the brute force over signs: an upper bound.
    Grothendieck,
    /// Chains of row sums of |X| under minimum separation: an upper bound.
    ChainOfRowSums,
    /// The earliest pattern of the smallest monotone matrix above |X|, under minimum separation: an upper
    /// bound, tight where X is non-negative and falls along and away from its diagonal.
    MonotoneMajorant,
    /// The largest diagonal entry of every epoch, for reshuffled epochs, where X is zero between epochs: exact.
    EpochMaxima,
    /// Shares of what pairs of epochs add, and the elliptope over epochs, for reshuffled epochs: an upper bound.
    EpochPairs,
    /// The semidefinite programme over the elliptope for every pattern of reshuffled epochs, where there are few: exact.
    EveryPattern,
    /// Shares of pairs by place under minimum separation: an upper bound.
    SharesByPlace,
    /// The pattern {0, b, 2b, …} of a Toeplitz matrix with falling coefficients, under minimum separation and fixed order: exact where its columns are scaled by
    /// factors that do not grow, otherwise an upper bound.
    Toeplitz,
    /// Branch and bound over the patterns of minimum separation: exact where it came to its end, otherwise an upper bound.
    BranchAndBound,
}

impl Method {
    /// The method in words, for people.
    pub fn describe(self) -> &'static str {
        match self {
            Method::NonNegative => "closed form (non-negative gram matrix up to signs)",
            Method::Elliptope => "semidefinite programme over the elliptope",
            Method::BandedDynamicProgram => "dynamic programme (banded gram matrix)",
            Method::ScalarBruteForce => "brute force over signs (scalar contributions)",
            Method::Spectral => "largest eigenvalue",
            Method::AbsoluteSums => "sum of absolute values",
            Method::Grothendieck => "Grothendieck's inequality over the brute force",
            Method::ChainOfRowSums => "dynamic programme over row sums of absolute values",
            Method::MonotoneMajorant => "monotone majorant",
            Method::EpochMaxima => "largest diagonal entries of the epochs (gram matrix zero between epochs)",
            Method::EveryPattern => "semidefinite programme over the elliptope, pattern by pattern",
            Method::EpochPairs => "shares of pairs of epochs, and the elliptope over epochs",
            Method::SharesByPlace => "shares of pairs by place",
            Method::Toeplitz => "Toeplitz rule (the earliest pattern is the worst)",
            Method::BranchAndBound => "branch and bound over patterns",
        }
    }
}

/// What a figure says about the sensitivity for vector contributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Equal to it, up to [`EXACT_TO`].
    #[serde(rename = "exact")]
    Exact,
    /// Not below it.
    #[serde(rename = "upper")]
    UpperBound,
    /// Not above it.
    #[serde(rename = "lower")]
    LowerBound,
}

/// One figure with what it means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The figure, for the sensitivity and not its square.
    pub value: f64,
    /// Exact, or a bound on which side.
    pub kind: Kind,
    /// How it was found.
    pub method: Method,
}

/// The sensitivity (not squared) as a bracket.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// Never below the truth: computed with rounding upwards. Use this value to scale noise.
    pub upper: f64,
    /// Never above the truth: some example reaches it.
    pub lower: f64,
    /// What gave the upper end.
    pub method: Method,
}

impl Sensitivity {
    /// [`Kind::Exact`] where the ends meet to [`EXACT_TO`], otherwise [`Kind::UpperBound`].
    pub fn kind(&self) -> Kind {
        if self.upper <= self.lower * (1.0 + EXACT_TO) { Kind::Exact } else { Kind::UpperBound }
    }

    /// From bounds on the square of the sensitivity of a matrix that was divided by `scale`.
    pub(crate) fn from_squared(squared: PatternBounds, scale: f64) -> Result<Self> {
        // The root is correctly rounded and the scale a power of two; ε pays for the former.
        let upper = squared.upper.sqrt() * (1.0 + f64::EPSILON) * scale;
        if !upper.is_finite() {
            return Err(Error::Numerical(format!("the bound on the sensitivity is not finite: {upper}")));
        }
        let lower = squared.lower.max(0.0).sqrt() * (1.0 - f64::EPSILON) * scale;
        Ok(Sensitivity { upper, lower, method: squared.method })
    }
}

/// The sensitivity, and a pattern that reaches its lower end.
#[derive(Debug, Clone, PartialEq)]
pub struct WorstCase {
    /// The bracket.
    pub sensitivity: Sensitivity,
    /// An example that takes part in these steps reaches the lower end of the bracket, with the worst contributions. Other
    /// patterns may reach as much, and more where the bracket is no exact value. `None` where the lower end is zero.
    pub pattern: Option<Vec<usize>>,
}

impl WorstCase {
    fn of(source: &Source<'_>, schema: &Schema) -> Result<Self> {
        let (squared, pattern) = source.squared(schema);
        let sensitivity = Sensitivity::from_squared(squared, source.sensitivity_scale)?;
        let pattern = Some(pattern).filter(|pattern| sensitivity.lower > 0.0 && !pattern.is_empty());
        Ok(WorstCase { sensitivity, pattern })
    }
}

/// The sensitivity of the gram matrix X = CᵀC.
///
/// Exact to [`EXACT_TO`] where the schema lists its patterns, under minimum separation where X is banded, and for reshuffled epochs
/// where X is zero between epochs; otherwise under minimum separation and for reshuffled epochs a bracket, which may still be tight.
pub fn sensitivity_of_gram(x: &Matrix, schema: &Schema) -> Result<Sensitivity> {
    worst_case_of_gram(x, schema).map(|found| found.sensitivity)
}

/// As [`sensitivity_of_gram`], with a pattern that reaches the lower end.
pub fn worst_case_of_gram(x: &Matrix, schema: &Schema) -> Result<WorstCase> {
    WorstCase::of(&Source::gram(x, schema)?, schema)
}

/// The sensitivity of an encoder C, with one column per step and any number of rows.
///
/// As [`sensitivity_of_gram`] of CᵀC, and the rounding of that product is part of the bracket. Where the schema
/// lists its patterns, only the blocks C_πᵀC_π are formed.
pub fn sensitivity_of_encoder(c: &Matrix, schema: &Schema) -> Result<Sensitivity> {
    worst_case_of_encoder(c, schema).map(|found| found.sensitivity)
}

/// As [`sensitivity_of_encoder`], with a pattern that reaches the lower end.
pub fn worst_case_of_encoder(c: &Matrix, schema: &Schema) -> Result<WorstCase> {
    WorstCase::of(&Source::encoder(c, schema)?, schema)
}

/// As [`sensitivity_of_gram`], for a gram matrix that is computed entry by entry; its rounding is part of the bracket.
///
/// Under minimum separation and for reshuffled epochs the whole matrix is formed, which is refused for many thousands of steps; not
/// where [`Entries::blocks`] shows that it is zero between epochs.
pub fn sensitivity_of_entries(entries: Entries<'_>, schema: &Schema) -> Result<Sensitivity> {
    worst_case_of_entries(entries, schema).map(|found| found.sensitivity)
}

/// As [`sensitivity_of_entries`], with a pattern that reaches the lower end.
pub fn worst_case_of_entries(entries: Entries<'_>, schema: &Schema) -> Result<WorstCase> {
    WorstCase::of(&Source::entries(entries, schema)?, schema)
}

/// The paper's upper bound √(k·λ_max), the largest over the patterns; `None` for schemas whose patterns cannot be listed.
pub fn spectral_bound_of_entries(entries: Entries<'_>, schema: &Schema) -> Result<Option<f64>> {
    let source = Source::entries(entries, schema)?;
    let Some(patterns) = schema.listed() else {
        return Ok(None);
    };
    let squares: Vec<f64> = patterns
        .par_iter()
        .map(|pattern| {
            let (x, allowance) = source.block(pattern);
            Ok(bounds::spectral(&x, schema.max_participations())? + allowance)
        })
        .collect::<Result<_>>()?;
    let largest = squares.iter().copied().fold(0.0, f64::max);
    Ok(Some(largest.sqrt() * (1.0 + f64::EPSILON) * source.sensitivity_scale)) // up
}

/// The sensitivity by every method that applies, each with what it proves about vector contributions.
///
/// With listed patterns: closed form (where it applies to every pattern), elliptope, absolute sums, spectral, and, for
/// patterns of at most [`brute::LARGEST`] steps, the brute force over signs and Grothendieck's bound from it.
/// Under minimum separation: the banded dynamic programme, or else the bounds that replace it. For reshuffled epochs: the largest
/// diagonal entries where X is zero between epochs, every pattern where there are few, and the bounds that replace them.
pub fn all_methods(x: &Matrix, schema: &Schema) -> Result<Vec<Bound>> {
    let source = Source::gram(x, schema)?;
    let squared = match schema.listed() {
        Some(patterns) => bounds::listed_methods(&source, &patterns)?,
        None => {
            let x = source.full_gram(schema.steps());
            match schema {
                Schema::Reshuffled { .. } => reshuffled::all_methods(&x, schema)?,
                _ => min_sep::all_methods(&x, schema)?,
            }
        }
    };
    let root = |bound: Bound| {
        let away = if bound.kind == Kind::LowerBound { -f64::EPSILON } else { f64::EPSILON };
        let value = bound.value.max(0.0).sqrt() * (1.0 + away) * source.sensitivity_scale;
        Bound { value, ..bound }
    };
    Ok(squared.into_iter().map(root).collect())
}

#[cfg(test)]
mod tests {
    use super::testing::{Noise, random_gram, random_matrix};
    use super::*;
    use crate::linalg::dense;

    /// The paper's counterexample (appendix, "A counterexample for general C"): 1 by signs.
    fn counterexample() -> Matrix {
        let entries = [[2.0, 1.0, 1.0], [1.0, 2.0, -1.0], [1.0, -1.0, 2.0]];
        dense::from_fn(3, 3, |i, j| entries[i][j] / 24f64.sqrt())
    }

    #[test]
    fn the_papers_counterexample_by_every_method() {
        // By signs 1 (paper). By vectors √1.125: X has 1/4 on the diagonal and ±1/8 off it, with signs that make a
        // negative triangle, so R = ∓1/2 off the diagonal is best: 3/4 + 6·(1/8)·(1/2) = 9/8.
        let schema = Schema::every_step(3).unwrap();
        let c = counterexample();
        let found = sensitivity_of_encoder(&c, &schema).unwrap();
        assert_eq!((found.kind(), found.method), (Kind::Exact, Method::Elliptope));
        assert!(found.lower <= 1.060_660_171_779_821_2 && found.upper >= 1.060_660_171_779_821_2);
        let all = all_methods(&dense::gram(&c), &schema).unwrap();
        let expected = [
            (Method::Elliptope, Kind::Exact, 1.125f64.sqrt()),
            (Method::ScalarBruteForce, Kind::LowerBound, 1.0),
            (Method::Grothendieck, Kind::UpperBound, std::f64::consts::FRAC_PI_2.sqrt()),
            (Method::AbsoluteSums, Kind::UpperBound, 1.5f64.sqrt()),
            (Method::Spectral, Kind::UpperBound, 1.125f64.sqrt()),
        ];
        assert_eq!(all.len(), expected.len(), "{all:?}");
        for (found, (method, kind, value)) in all.iter().zip(expected) {
            assert_eq!((found.method, found.kind), (method, kind));
            assert!((found.value - value).abs() < 2e-9, "{found:?} {value}");
        }
    }

    #[test]
    fn with_two_participations_or_no_signs_every_method_that_can_is_exact() {
        let mut noise = Noise(21);
        let pairs = random_gram(&mut noise, 6, 6);
        let positive = dense::from_fn(6, 6, |i, j| 1.0 / (1.0 + i.abs_diff(j) as f64));
        for (x, schema) in
            [(pairs, Schema::epochs(2, 3).unwrap()), (positive, Schema::every_step(6).unwrap())]
        {
            let all = all_methods(&x, &schema).unwrap();
            let exact: Vec<&Bound> = all.iter().filter(|bound| bound.kind == Kind::Exact).collect();
            let methods: Vec<Method> = exact.iter().map(|bound| bound.method).collect();
            assert_eq!(methods, [Method::NonNegative, Method::Elliptope, Method::ScalarBruteForce]);
            let truth = sensitivity_of_gram(&x, &schema).unwrap();
            for bound in &exact {
                assert!((bound.value / truth.upper - 1.0).abs() < 1e-8, "{bound:?} {truth:?}");
            }
        }
    }

    #[test]
    fn encoder_and_gram_agree_and_the_maximum_is_over_all_patterns() {
        let mut noise = Noise(22);
        for rows in [2, 12, 40] {
            let c = random_matrix(&mut noise, rows, 12);
            let x = dense::gram(&c);
            let listed = vec![vec![0, 3, 5, 6], vec![1, 2, 7, 8, 9], vec![3, 10, 11]];
            for schema in [
                Schema::epochs(4, 3).unwrap(),
                Schema::fixed_order_at_most(12, 2, 3).unwrap(),
                Schema::patterns(12, listed).unwrap(),
                Schema::single(12).unwrap(),
            ] {
                let encoder = sensitivity_of_encoder(&c, &schema).unwrap();
                let gram = sensitivity_of_gram(&x, &schema).unwrap();
                assert_eq!((encoder.kind(), gram.kind()), (Kind::Exact, Kind::Exact));
                assert!((encoder.upper / gram.upper - 1.0).abs() < 1e-8);
                let slow = schema.listed().unwrap().iter().fold(0.0f64, |worst, pattern| {
                    let block = dense::principal(&x, pattern);
                    worst.max(exact::elliptope(&block, TOLERANCE, 0.0).upper)
                });
                assert!((gram.upper / slow.sqrt() - 1.0).abs() < 1e-8, "{gram:?} {slow}");
            }
        }
    }

    #[test]
    fn single_participation_is_the_largest_column_norm() {
        let mut noise = Noise(23);
        let c = random_matrix(&mut noise, 4, 9);
        let norm = (0..9).map(|j| c.col(j).norm_l2()).fold(0.0, f64::max);
        let found = sensitivity_of_encoder(&c, &Schema::single(9).unwrap()).unwrap();
        assert!(found.lower <= norm && norm <= found.upper && found.upper < norm * (1.0 + 1e-13));
    }

    #[test]
    fn extreme_scales_neither_overflow_nor_vanish() {
        let schema = Schema::every_step(3).unwrap();
        for scale in [1e-300, 1e-200, 1e200, 1e300] {
            let c = dense::from_fn(3, 3, |i, j| scale * counterexample()[(i, j)]);
            let found = sensitivity_of_encoder(&c, &schema).unwrap();
            assert_eq!(found.kind(), Kind::Exact);
            assert!((found.upper / scale / 1.125f64.sqrt() - 1.0).abs() < 1e-8, "{scale}: {found:?}");
            let x = dense::from_fn(3, 3, |i, j| scale * dense::gram(&counterexample())[(i, j)]);
            let found = sensitivity_of_gram(&x, &schema).unwrap();
            assert!((found.upper / scale.sqrt() / 1.125f64.sqrt() - 1.0).abs() < 1e-8);
        }
        let found = sensitivity_of_encoder(&Matrix::zeros(2, 3), &schema).unwrap();
        assert_eq!((found.lower, found.upper, found.kind()), (0.0, 0.0, Kind::Exact));
    }

    #[test]
    fn bad_matrices_are_refused_by_name() {
        let schema = Schema::every_step(2).unwrap();
        let gram = |x: Matrix| sensitivity_of_gram(&x, &schema).unwrap_err().to_string();
        assert_eq!(
            gram(dense::identity(3)),
            "the gram matrix must be 2×2, one row and column for each step of the schema, got 3×3"
        );
        assert_eq!(
            gram(dense::from_fn(2, 2, |i, j| if i < j { 0.5 } else { 1.0 })),
            "entry (0, 1) of the gram matrix must be equal to entry (1, 0), which is 1, got 0.5"
        );
        assert_eq!(
            gram(dense::from_fn(2, 2, |i, j| if i == j { -1.0 } else { 0.0 })),
            "entry (0, 0) of the gram matrix must be non-negative (on the diagonal), got -1"
        );
        assert_eq!(
            gram(dense::from_fn(2, 2, |_, _| f64::INFINITY)),
            "entry (0, 0) of the gram matrix must be finite, got inf"
        );
        let error = sensitivity_of_encoder(&Matrix::zeros(2, 3), &schema).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the encoder must be a matrix with 2 columns, one for each step of the schema, got 2×3"
        );
    }

    #[test]
    fn kinds_and_methods_have_stable_names() {
        let bound = Bound { value: 1.0, kind: Kind::UpperBound, method: Method::ScalarBruteForce };
        let text = serde_json::to_string(&bound).unwrap();
        assert_eq!(text, r#"{"value":1.0,"kind":"upper","method":"scalar-brute-force"}"#);
    }
}
