//! The paper's three sets of constraints on X = CᵀC, solved to a certified gap on small problems.
//!
//! All minimise tr(VX⁻¹), V = AᵀA, over positive definite X (paper, Section 3); the appendix "Impact of
//! non-negativity constraints" compares what may be asked of X besides. This room reproduces that
//! comparison. It works on the n(n+1)/2 entries of X, in O(n⁶) per Newton step, so it is for tables and
//! for checking the fast optimizer, not for training.
//!
//! Every constraint is linear in X, a half-space; `barrier` minimises over them.

mod barrier;

use super::corners::{Corner, corners, covering_patterns};
use crate::error::{Error, Result};
use crate::linalg::Matrix;
use crate::schema::Schema;
use crate::workload::Workload;
use barrier::{HalfSpace, Problem, cell, cells};

/// What is asked of X besides being positive definite. 1_π is the indicator of pattern π.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    /// uᵀXu ≤ 1 for every u with entries ±1 on one pattern and 0 elsewhere.
    ///
    /// This bounds the sensitivity for *scalar* contributions only. It is NOT a valid guarantee for
    /// vector contributions such as gradients, whose sensitivity may be larger.
    Corners,
    /// 1_πᵀX1_π ≤ 1 for every pattern, and X_ij ≥ 0 for steps i ≠ j that share a pattern:
    /// the least that makes the bound valid for vector contributions by claim 2 of the theorem in the
    /// paper's appendix "From scalar to vector contributions".
    NonNegativeOnSharedPairs,
    /// 1_πᵀX1_π ≤ 1 for every pattern, and X_ij ≥ 0 for all i ≠ j: what the paper's experiments use.
    NonNegative,
}

/// A feasible X and how far it can be from the best.
#[derive(Debug, Clone)]
pub struct VariantSolution {
    /// X, strictly inside all sign constraints and scaled so that its largest uᵀXu is 1.
    pub gram: Matrix,
    /// tr(VX⁻¹) · max uᵀXu: the total squared error, an upper bound on the optimum.
    pub loss: f64,
    /// A lower bound on the optimum from the dual function (up to rounding of the arithmetic).
    pub lower_bound: f64,
    /// The smallest X_ij over all i and j.
    pub min_entry: f64,
    /// The smallest X_ij over i ≠ j that share a pattern; `None` where no two steps do.
    pub min_shared_entry: Option<f64>,
    /// How many Newton steps it took.
    pub iterations: usize,
}

/// The relative gap to ask for, and the smallest that the arithmetic reaches.
pub const SMALLEST_GAP: f64 = 1e-9;

/// Finds the optimal X under `constraint`, to a relative gap of at most `gap` between `loss` and `lower_bound`.
///
/// The schema must list its patterns, and they must cover all steps, of which there may be at most
/// [`MAX_SMALL_STEPS`](super::corners::MAX_SMALL_STEPS).
pub fn optimize_variant(
    workload: &Workload,
    schema: &Schema,
    constraint: Constraint,
    gap: f64,
) -> Result<VariantSolution> {
    if !(SMALLEST_GAP..1.0).contains(&gap) {
        return Err(Error::argument("gap", format!("in [{SMALLEST_GAP:e}, 1)"), gap));
    }
    let patterns = covering_patterns(workload, schema)?;
    let problem = Problem::new(&workload.matrix(), half_spaces(&patterns, constraint)?);
    // uᵀXu ≤ 3/4 for this X, for all signs, and its entries are positive.
    let cells = cells(workload.steps());
    let half = 0.5 / schema.max_participations() as f64;
    let start = cells.iter().map(|(i, j)| half * (half + f64::from(i == j))).collect();
    let best = problem.solve(start, gap)?;
    let shared = cells.iter().filter(|(i, j)| i != j && share(&patterns, *i, *j));
    Ok(VariantSolution {
        loss: best.loss,
        lower_bound: best.lower_bound,
        min_entry: cells.iter().map(|c| best.gram[*c]).fold(f64::INFINITY, f64::min),
        min_shared_entry: shared.map(|c| best.gram[*c]).reduce(f64::min),
        iterations: best.iterations,
        gram: best.gram,
    })
}

fn share(patterns: &[Vec<usize>], i: usize, j: usize) -> bool {
    patterns.iter().any(|pattern| pattern.contains(&i) && pattern.contains(&j))
}

/// Everything that `constraint` asks for, as half-spaces.
fn half_spaces(patterns: &[Vec<usize>], constraint: Constraint) -> Result<Vec<HalfSpace>> {
    let bounded: Vec<Corner> = match constraint {
        Constraint::Corners => corners(patterns)?,
        _ => patterns.iter().map(|p| p.iter().map(|i| (*i, 1.0)).collect()).collect(),
    };
    // 1 − uᵀXu, where X_ij and X_ji are one variable.
    let bound = |u: &Corner| {
        let mut terms = Vec::new();
        for (e, (i, x)) in u.iter().enumerate() {
            for (j, y) in &u[..=e] {
                terms.push((cell(*i, *j), if i == j { -1.0 } else { -2.0 * x * y }));
            }
        }
        HalfSpace { offset: 1.0, terms }
    };
    let mut all: Vec<_> = bounded.iter().map(bound).collect();
    let n = 1 + patterns.iter().flatten().max().copied().unwrap_or(0);
    for (i, j) in cells(n) {
        let signed = match constraint {
            Constraint::Corners => false,
            Constraint::NonNegativeOnSharedPairs => share(patterns, i, j),
            Constraint::NonNegative => true,
        };
        if signed && i != j {
            let terms = vec![(cell(i, j), 1.0)];
            all.push(HalfSpace { offset: 0.0, terms });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::optimize::corners::total_squared_error;
    use Constraint::{Corners, NonNegative, NonNegativeOnSharedPairs};

    const ALL: [Constraint; 3] = [Corners, NonNegativeOnSharedPairs, NonNegative];

    #[test]
    fn the_papers_table_of_negative_entries() {
        // Paper, table of the appendix "Impact of non-negativity constraints": n = 6, k = 3, b = 2, three decimals.
        let table = [
            (0.0, Corners, -0.000, -0.000, 6.461),
            (0.0, NonNegativeOnSharedPairs, -0.000, -0.000, 6.461),
            (0.0, NonNegative, -0.000, -0.000, 6.461),
            (0.95, Corners, -0.031, -0.031, 16.114),
            (0.95, NonNegativeOnSharedPairs, -0.015, -0.000, 16.131),
            (0.95, NonNegative, -0.000, -0.000, 16.134),
        ];
        let schema = Schema::epochs(3, 2).unwrap();
        for (momentum, constraint, min_entry, min_shared_entry, error) in table {
            let workload = Workload::training(6, momentum, None).unwrap();
            let solution = optimize_variant(&workload, &schema, constraint, SMALLEST_GAP).unwrap();
            let near = |value: f64, printed: f64| (value - printed).abs() <= 5e-4;
            assert!(near(solution.min_entry, min_entry), "{constraint:?}: {}", solution.min_entry);
            assert!(near(solution.min_shared_entry.unwrap(), min_shared_entry), "{constraint:?}");
            assert!(near(solution.loss.sqrt(), error), "{constraint:?}: {}", solution.loss.sqrt());
            assert!(solution.lower_bound <= solution.loss);
            assert!(solution.loss <= solution.lower_bound * (1.0 + SMALLEST_GAP));
        }
    }

    #[test]
    fn a_diagonal_workload_has_a_closed_form() {
        // One pattern with all steps, A = diag(d): flipping signs shows that a diagonal X is optimal, with Σ X_ii = 1
        // under every variant, so X_ii = d_i / Σd and the loss is (Σd)².
        let d = [1.0, 2.0, 0.5, 3.0];
        let a = dense::from_fn(4, 4, |i, j| if i == j { d[i] } else { 0.0 });
        let workload = Workload::dense(a).unwrap();
        for constraint in ALL {
            let schema = Schema::every_step(4).unwrap();
            let solution = optimize_variant(&workload, &schema, constraint, 1e-9).unwrap();
            assert!((solution.loss / 6.5f64.powi(2) - 1.0).abs() < 1e-9, "{constraint:?}");
            for i in 0..4 {
                assert!((solution.gram[(i, i)] - d[i] / 6.5).abs() < 1e-4, "{constraint:?}");
            }
        }
    }

    #[test]
    fn tighter_constraints_cost_more_and_every_solution_is_feasible() {
        let schemas = [
            Schema::fixed_order(7, 3).unwrap(),
            Schema::fixed_order_at_most(7, 2, 2).unwrap(),
            Schema::patterns(7, vec![vec![0, 1, 4], vec![1, 2, 3, 4], vec![5], vec![5, 6]]).unwrap(),
        ];
        let workload = Workload::training(7, 0.9, None).unwrap();
        for schema in schemas {
            let patterns = schema.listed().unwrap();
            let solutions = ALL.map(|c| optimize_variant(&workload, &schema, c, 1e-9).unwrap());
            for (constraint, s) in ALL.iter().zip(&solutions) {
                assert!(s.lower_bound <= s.loss && s.loss <= s.lower_bound * (1.0 + 1e-9));
                let error = total_squared_error(&workload.matrix(), &s.gram).unwrap();
                assert!((error / s.loss - 1.0).abs() < 1e-12);
                let signed = |pattern: &[usize], signs: usize| -> f64 {
                    let sign = |e: usize| 1.0 - 2.0 * ((signs >> e) & 1) as f64;
                    let pairs = pattern
                        .iter()
                        .enumerate()
                        .flat_map(|i| pattern.iter().enumerate().map(move |j| (i, j)));
                    pairs.map(|((e, i), (f, j))| sign(e) * sign(f) * s.gram[(*i, *j)]).sum()
                };
                for pattern in &patterns {
                    let all_signs = if *constraint == Corners { 1 << pattern.len() } else { 1 };
                    assert!((0..all_signs).all(|signs| signed(pattern, signs) <= 1.0 + 1e-14));
                }
            }
            assert!(solutions[0].lower_bound <= solutions[1].loss);
            assert!(solutions[1].lower_bound <= solutions[2].loss);
            assert!(solutions[1].min_shared_entry.unwrap() > 0.0);
            assert!(solutions[2].min_entry > 0.0);
            if schema.max_participations() > 2 {
                // What is not asked for is not given, and the order is strict.
                assert!(solutions[0].min_shared_entry.unwrap() < -1e-3);
                assert!(solutions[1].min_entry < -1e-3);
                assert!(solutions[0].loss < solutions[1].lower_bound);
                assert!(solutions[1].loss < solutions[2].lower_bound);
            }
        }
    }

    #[test]
    fn bad_arguments_are_named_with_range_and_value() {
        let message = |steps: usize, schema: Result<Schema>, gap: f64| {
            let workload = Workload::prefix_sum(steps);
            optimize_variant(&workload, &schema.unwrap(), NonNegative, gap).unwrap_err().to_string()
        };
        assert_eq!(message(4, Schema::single(4), 0.0), "gap must be in [1e-9, 1), got 0");
        assert!(message(4, Schema::single(4), f64::NAN).starts_with("gap must be"));
        assert_eq!(
            message(25, Schema::single(25), 1e-6),
            "steps must be in 1..=24 for the constraint variants, got 25"
        );
        assert_eq!(
            message(3, Schema::single(4), 1e-6),
            "the steps of the workload must be 4, the steps of the schema, got 3"
        );
        assert_eq!(
            message(3, Schema::patterns(3, vec![vec![0, 2]]), 1e-6),
            "every step must be in at least one pattern, got step 1 in none"
        );
        assert!(message(4, Schema::min_separation(4, 2, 2), 1e-6).contains("minimum separation"));
    }
}
