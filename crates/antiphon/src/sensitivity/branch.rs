//! Branch and bound over the patterns of exactly m steps: exact where it ends within its limit of work.
//!
//! A branch is the beginning of a pattern, i_0 < … < i_{c−1}. With the numbers of `shares`, the patterns that begin so reach at most
//!
//! ```text
//! ς(X on the beginning) + max Σ_{t≥c} ( X_jj + Σ_{s<c} 2|X_{i_s j}| + Σ_{t'≥c} d_tt'(j) )_{j = i_t} + Σ_{c≤t<t'} max r_tt',
//! ```
//!
//! with the maximum over chains inside the windows. The branch with the largest bound comes first, so the bound of the branch
//! that is next holds for all that are left, whenever the work is stopped. Whole patterns are solved (`exact`).
//! Work is counted and not timed: the result is the same on every machine.

use super::exact;
use super::places::Weights;
use super::shares::{Proof, Shares};
use super::{EXACT_TO, TOLERANCE};
use crate::linalg::dense::{self, Matrix};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Work for one pattern of m steps, in units of m³ additions.
const SOLVING: usize = 250;
/// Most branches in memory.
const OPEN: usize = 1 << 19;

/// The worst pattern that is known, and what is proven of the patterns that were looked at.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Proven from below, by the pattern.
    pub(super) lower: f64,
    pub(super) worst: Vec<usize>,
    /// An upper bound on all patterns that were solved.
    pub(super) solved: f64,
}

impl Known {
    /// Patterns that cannot reach more than this are left out. A quarter of what counts as exact above the worst known
    /// pattern, on the square: many patterns can be equally bad, and those need not all be solved.
    pub(super) fn enough(&self) -> f64 {
        self.lower * (1.0 + 0.5 * EXACT_TO)
    }

    /// An upper bound on all patterns that were solved or left out.
    pub(super) fn upper(&self) -> f64 {
        self.solved.max(self.enough())
    }

    pub(super) fn solve(&mut self, x: &Matrix, pattern: &[usize]) {
        let found = exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, self.lower);
        self.solved = self.solved.max(found.upper);
        if found.lower > self.lower {
            (self.lower, self.worst) = (found.lower, pattern.to_vec());
        }
    }
}

/// The beginning of a pattern, and what patterns that begin so reach at most.
#[derive(PartialEq)]
struct Branch {
    bound: f64,
    steps: Vec<usize>,
}

impl Eq for Branch {}

impl Ord for Branch {
    /// By bound; longer ones first where these are equal, then the order of the steps.
    fn cmp(&self, other: &Self) -> Ordering {
        let length = |branch: &Branch| branch.steps.len();
        let bounds = self.bound.total_cmp(&other.bound);
        bounds.then(length(self).cmp(&length(other))).then_with(|| other.steps.cmp(&self.steps))
    }
}

impl PartialOrd for Branch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Looks at the patterns in the windows of `shares` until none that is left can be worse than `known` by more than its
/// tolerance, or `work` is used up. Returns what those that are left reach at most: nothing where none is left.
pub(super) fn search(
    shares: &Shares<'_>,
    proof: &Proof,
    known: &mut Known,
    x: &Matrix,
    work: &mut usize,
) -> f64 {
    let tree = Tree::new(shares, proof, x);
    let m = shares.windows.places();
    let mut open = BinaryHeap::from([Branch { bound: proof.bound, steps: Vec::new() }]);
    while let Some(branch) = open.pop() {
        if branch.bound <= known.enough() {
            break;
        }
        let cost = tree.cost(branch.steps.len());
        if cost > *work || open.len() > OPEN {
            *work = 0;
            return branch.bound;
        }
        *work -= cost;
        if branch.steps.len() == m {
            known.solve(x, &branch.steps);
        } else {
            open.extend(tree.children(&branch, known.enough()));
        }
    }
    0.0
}

/// What all branches share.
struct Tree<'a> {
    x: &'a Matrix,
    shares: &'a Shares<'a>,
    /// Entry c: the weights of places c.. with what pairs of these places give, and their rests.
    later: Vec<(Weights, f64)>,
    rounding: f64,
}

impl<'a> Tree<'a> {
    fn new(shares: &'a Shares<'a>, proof: &Proof, x: &'a Matrix) -> Self {
        let m = shares.windows.places();
        let later = |c: usize| ((c..m).map(|t| shares.weights(t, c)).collect(), proof.rests[c]);
        // Upwards: the sums here have the terms of `proof`, or entries of X that these terms add up to.
        Tree { x, shares, later: (0..m).map(later).collect(), rounding: 2.0 * proof.rounding }
    }

    /// Additions for a branch of c steps, about.
    fn cost(&self, c: usize) -> usize {
        let windows = &self.shares.windows;
        let m = windows.places();
        if c == m {
            SOLVING * m * m * m
        } else {
            (c..m).map(|t| windows.range(t).len()).sum::<usize>() * (c + 2) + SOLVING * c * c * c / 4
        }
    }

    /// The branches that are longer by one step and can reach more than `enough`.
    fn children(&self, branch: &Branch, enough: f64) -> Vec<Branch> {
        let c = branch.steps.len();
        let windows = &self.shares.windows;
        let (later, rest) = &self.later[c];
        let weights: Weights = later
            .iter()
            .enumerate()
            .map(|(t, weights)| self.with_pairs(&branch.steps, c + t, weights))
            .collect();
        let behind = windows.from(c).behind(&weights);
        let base = self.beginning(&branch.steps) + rest + self.rounding;
        let earliest = branch.steps.last().map_or(0, |last| last + windows.b);
        let child = |(i, (weight, behind)): (usize, (&f64, &f64))| {
            let bound = branch.bound.min(base + weight + behind);
            let longer = || branch.steps.iter().copied().chain([i]).collect();
            (i >= earliest && bound > enough).then(|| Branch { bound, steps: longer() })
        };
        windows.range(c).zip(weights[0].iter().zip(&behind[0])).filter_map(child).collect()
    }

    /// The weights of a later place with 2|X_ij| for the steps i of the beginning.
    fn with_pairs(&self, beginning: &[usize], place: usize, weights: &[f64]) -> Vec<f64> {
        let mut weights = weights.to_vec();
        for i in beginning {
            let entries = &self.x.col_as_slice(*i)[self.shares.windows.range(place)];
            weights.iter_mut().zip(entries).for_each(|(weight, entry)| *weight += 2.0 * entry.abs());
        }
        weights
    }

    /// ς of the beginning itself, from above.
    fn beginning(&self, steps: &[usize]) -> f64 {
        if steps.is_empty() {
            0.0
        } else {
            exact::pattern_above(&dense::principal(self.x, steps), 1e-3, 0.0).upper
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::places::Windows;
    use crate::sensitivity::testing::{Noise, all_patterns, random_gram};

    /// What all patterns of m steps reach, by enumeration.
    fn truth(x: &Matrix, b: usize, m: usize) -> f64 {
        let patterns = all_patterns(x.nrows(), b, m).into_iter().filter(|pattern| pattern.len() == m);
        let solved =
            patterns.map(|pattern| exact::pattern_above(&dense::principal(x, &pattern), TOLERANCE, 0.0));
        solved.map(|found| found.lower).fold(0.0, f64::max)
    }

    /// The bracket after this much work, from a first pattern; and how much of the work is left.
    fn bracket(x: &Matrix, b: usize, m: usize, sweeps: usize, mut work: usize) -> (Known, f64, usize) {
        let mut shares = Shares::new(x, Windows::new(x.nrows(), b, m).unwrap());
        (0..sweeps).for_each(|_| shares.sweep());
        let mut known = Known { lower: 0.0, worst: Vec::new(), solved: 0.0 };
        let left = search(&shares, &shares.proof(), &mut known, x, &mut work);
        let upper = left.max(known.upper());
        (known, upper, work)
    }

    const SCHEMAS: [(usize, usize, usize); 5] = [(6, 1, 4), (9, 2, 3), (10, 3, 4), (12, 2, 5), (7, 7, 1)];

    #[test]
    fn with_enough_work_it_is_exact() {
        let mut noise = Noise(95);
        for (n, b, m) in SCHEMAS {
            for rows in [2, 4, n] {
                let x = random_gram(&mut noise, rows, n);
                let truth = truth(&x, b, m);
                for sweeps in [0, 6] {
                    let (known, upper, left) = bracket(&x, b, m, sweeps, usize::MAX);
                    assert!(
                        left > 0 && known.lower <= truth * (1.0 + 1e-8) && truth <= upper,
                        "{known:?} {truth}"
                    );
                    assert!(upper <= known.lower * (1.0 + EXACT_TO), "{known:?} {upper}");
                    let again = exact::pattern_above(&dense::principal(&x, &known.worst), TOLERANCE, 0.0);
                    assert!(again.lower >= truth * (1.0 - 1e-8));
                }
            }
        }
    }

    #[test]
    fn the_bound_holds_wherever_the_work_stops() {
        let mut noise = Noise(96);
        for (n, b, m) in SCHEMAS {
            let x = random_gram(&mut noise, 3, n);
            let truth = truth(&x, b, m);
            let mut last = f64::INFINITY;
            for work in (0..18).map(|p| 1 << p) {
                let (known, upper, _) = bracket(&x, b, m, 2, work);
                assert!(known.lower <= truth * (1.0 + 1e-8) && truth <= upper, "{work}: {known:?} {truth}");
                // Up to what counts as exact, which is added to the worst pattern that is known.
                assert!(upper <= last * (1.0 + EXACT_TO), "{work}: {upper} {last}");
                last = upper;
            }
        }
    }
}
