//! A tighter upper bound under minimum separation, where chains of row sums and the monotone majorant leave a gap.
//!
//! Patterns are looked at by their length m, since places mean something only then: m = k, and the smaller m of which there are
//! patterns to which no step can be added. For each m:
//!
//! 1. steps are dropped through which no pattern can reach more than the worst one that is known, by the chains of row sums;
//! 2. shares of pairs by place (`shares`) lower the bound, sweep by sweep, and more steps are dropped;
//! 3. branch and bound (`branch`) settles what is left.
//!
//! All three end at limits of work that are counted, so the result depends neither on time nor on threads.

use super::Method;
use super::branch::{self, Known};
use super::min_sep::{RowSums, rounding};
use super::places::{Windows, largest};
use super::shares::{Proof, Shares};
use crate::linalg::dense::Matrix;

/// Most additions and comparisons of all sweeps.
const SWEEPING: usize = 1 << 30;
/// Most of them for branch and bound.
const BRANCHING: usize = 1 << 27;
/// Most numbers that `shares` keeps: 128 MiB.
const MEMORY: usize = 1 << 24;
/// Most sweeps for one length.
const SWEEPS: usize = 400;
/// Sweeps between two looks at the bound.
const BETWEEN: usize = 2;
/// Sweeps end where they close less than this share of the gap from one look to the next.
const STALLED: f64 = 1e-3;

/// What is found.
pub(super) struct Tightened {
    pub(super) known: Known,
    pub(super) upper: f64,
    pub(super) method: Method,
}

/// An upper bound on all patterns, and the worst that is known: at least as bad as the one that is given.
pub(super) fn tighten(x: &Matrix, rows: &RowSums<'_>, known: Known) -> Tightened {
    let mut state = State { x, rows, known, sweeping: SWEEPING, branching: BRANCHING };
    // Long patterns first: they are the worst in most cases, and what is found there helps with the shorter ones.
    let bounds: Vec<(f64, Method)> = (1..=rows.k).rev().map(|places| state.of_length(places)).collect();
    let method = if state.branching < BRANCHING {
        Method::BranchAndBound
    } else if state.sweeping < SWEEPING {
        Method::SharesByPlace
    } else {
        Method::ChainOfRowSums
    };
    let left_out = (state.known.upper(), method);
    let (upper, method) = bounds.into_iter().fold(left_out, |a, b| if b.0 > a.0 { b } else { a });
    Tightened { known: state.known, upper, method }
}

struct State<'a> {
    x: &'a Matrix,
    rows: &'a RowSums<'a>,
    known: Known,
    sweeping: usize,
    branching: usize,
}

impl State<'_> {
    /// What patterns of this length reach at most, of those that `known` does not cover, and what proves it.
    fn of_length(&mut self, places: usize) -> (f64, Method) {
        const NONE: (f64, Method) = (0.0, Method::BranchAndBound);
        let (n, b, k) = (self.x.nrows(), self.rows.b, self.rows.k);
        let windows =
            if places == k { Windows::new(n, b, places) } else { Windows::of_maximal(n, b, places) };
        let Some((windows, plain)) = windows.and_then(|windows| self.without_light_steps(windows)) else {
            return NONE;
        };
        if Shares::cost(&windows) > self.sweeping || Shares::memory(&windows) > MEMORY {
            return (plain, Method::ChainOfRowSums);
        }
        let Some((shares, proof)) = self.swept(Shares::new(self.x, windows)) else { return NONE };
        let left = branch::search(&shares, &proof, &mut self.known, self.x, &mut self.branching);
        if left < plain { (left, Method::BranchAndBound) } else { (plain, Method::ChainOfRowSums) }
    }

    /// The windows without steps that row sums exclude, and the bound that these give.
    fn without_light_steps(&self, mut windows: Windows) -> Option<(Windows, f64)> {
        let mut bound = f64::INFINITY;
        for share in RowSums::SHARES {
            let weights = windows.weights(|place, i| self.rows.weight(share, i, place, windows.places()));
            let mut through = windows.through(&weights);
            // Upwards, as for the bound itself; one more sum here.
            let up = 1.0 + 2.0 * rounding(self.rows.k);
            through.iter_mut().flatten().for_each(|value| *value *= up);
            bound = bound.min(largest(&through[0]));
            windows = windows.trimmed(&through, self.known.enough())?;
        }
        Some((windows, bound))
    }

    /// Sweeps until they no longer help or no step is left.
    fn swept<'x>(&mut self, mut shares: Shares<'x>) -> Option<(Shares<'x>, Proof)> {
        let enough = self.known.enough();
        let mut gap = f64::INFINITY;
        for _ in 0..SWEEPS / BETWEEN {
            // And as much as a sweep for the proof.
            let cost = Shares::cost(&shares.windows).saturating_mul(BETWEEN + 1);
            if cost > self.sweeping {
                break;
            }
            self.sweeping -= cost;
            (0..BETWEEN).for_each(|_| shares.sweep());
            let proof = shares.proof();
            shares.windows = shares.windows.trimmed(&proof.through, enough)?;
            let closed = gap - (proof.bound - enough);
            if closed < STALLED * gap {
                break;
            }
            gap = proof.bound - enough;
        }
        let proof = shares.proof();
        Some((shares, proof))
    }
}
