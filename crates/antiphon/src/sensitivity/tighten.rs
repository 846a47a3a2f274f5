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
use super::climb::Climb;
use super::min_sep::{RowSums, rounding};
use super::places::{Windows, largest};
use super::shares::{Numbers, Proof, Shares};
use crate::linalg::dense::Matrix;

/// Pairs of steps that all sweeps together may compare: this many, and a quarter of the additions of the chains of row sums.
const SWEEPING: usize = 3 << 26;
/// Additions for branch and bound.
const BRANCHING: usize = 1 << 28;
/// Most numbers in one set, of weights or of shares: 64 MiB. A few sets are kept at a time.
const MEMORY: usize = 1 << 23;
/// Most looks at the bound for one length.
const LOOKS: usize = 150;
/// Sweeps from one look to the next.
const BETWEEN: usize = 3;
/// A look counts as stalled where less than this share of the gap was closed since the last …
const STALLED: f64 = 1e-2;
/// … and sweeps end after so many of them in a row.
const PATIENCE: usize = 3;
/// How far the first extrapolation goes; how much farther after one that helped, and how much less far after one that did not.
const EXTRAPOLATION: [f64; 3] = [2.0, 1.3, 0.5];
/// Rounds uphill from the pattern that a proof points at.
const ROUNDS: usize = 4;

/// What is found.
pub(super) struct Tightened {
    pub(super) known: Known,
    pub(super) upper: f64,
    pub(super) method: Method,
}

/// An upper bound on all patterns, and the worst that is known: at least as bad as the one that is given.
pub(super) fn tighten(x: &Matrix, rows: &RowSums<'_>, known: Known) -> Tightened {
    let sweeping = x.nrows().saturating_mul(x.nrows()).saturating_mul(rows.k) / 4 + SWEEPING;
    let mut state = State { x, rows, known, sweeping, branching: BRANCHING };
    // Long patterns first: they are the worst in most cases, and what is found there helps with the shorter ones.
    let bounds: Vec<(f64, Method)> = (1..=rows.k).rev().map(|places| state.of_length(places)).collect();
    let method = if state.branching < BRANCHING {
        Method::BranchAndBound
    } else if state.sweeping < sweeping {
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
    /// What patterns of this length reach at most, of those that `known` does not cover, and what proves it. Infinite where they
    /// are too many to look at.
    fn of_length(&mut self, places: usize) -> (f64, Method) {
        const NONE: (f64, Method) = (0.0, Method::BranchAndBound);
        let (n, b, k) = (self.x.nrows(), self.rows.b, self.rows.k);
        let windows =
            if places == k { Windows::new(n, b, places) } else { Windows::of_maximal(n, b, places) };
        let Some(windows) = windows else { return NONE };
        if windows.size() > MEMORY {
            return (f64::INFINITY, Method::ChainOfRowSums);
        }
        let Some((windows, plain)) = self.without_light_steps(windows) else { return NONE };
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
        // Something is left for the other lengths.
        let reserve = self.sweeping / 8;
        let (mut pace, mut least, mut stalled) = (Pace::new(), f64::INFINITY, 0);
        for look in 1..=LOOKS {
            // With one for the proof.
            let cost = Shares::cost(&shares.windows).saturating_mul(BETWEEN + 1);
            if cost > self.sweeping - reserve || stalled == PATIENCE {
                break;
            }
            self.sweeping -= cost;
            shares.sweep();
            let proof = shares.proof();
            if look.is_power_of_two() {
                self.climb_from(&proof.best);
            }
            let enough = self.known.enough();
            shares.windows = shares.windows.trimmed(&proof.through, enough)?;
            pace.look(&mut shares, proof.bound <= least);
            let closed = least - proof.bound;
            stalled = if closed < STALLED * (least - enough) { stalled + 1 } else { 0 };
            least = least.min(proof.bound);
            (1..BETWEEN).for_each(|_| shares.sweep());
            pace.extrapolate(&mut shares);
        }
        // The last extrapolation was not looked at.
        pace.look(&mut shares, false);
        let proof = shares.proof();
        Some((shares, proof))
    }

    /// Looks for a worse pattern, uphill from this one.
    fn climb_from(&mut self, pattern: &[usize]) {
        let mut climb = Climb::new(self.x, self.rows.b, self.rows.k, pattern.to_vec());
        climb.climb(ROUNDS);
        // The value that the climb ended at is itself a sum that some contribution reaches, up to rounding.
        if climb.value > self.known.lower * (1.0 - 1e-3) && climb.pattern != self.known.worst {
            self.known.solve(self.x, &climb.pattern);
        }
    }
}

/// Extrapolation of the shares, with a way back from where it was too far.
struct Pace {
    factor: f64,
    /// Where the last extrapolation began, and whether it has been looked at since.
    before: Option<(Numbers, bool)>,
}

impl Pace {
    fn new() -> Self {
        Pace { factor: EXTRAPOLATION[0], before: None }
    }

    /// Back to before the last extrapolation if that did not help.
    fn look(&mut self, shares: &mut Shares<'_>, helped: bool) {
        let [_, farther, less] = EXTRAPOLATION;
        if let Some((before, seen)) = &mut self.before
            && !std::mem::replace(seen, true)
        {
            if helped {
                self.factor *= farther;
            } else {
                self.factor *= less;
                shares.restore(before.clone());
            }
        }
    }

    fn extrapolate(&mut self, shares: &mut Shares<'_>) {
        let here = shares.kept();
        if let Some((before, _)) = &self.before {
            shares.extrapolate(before, self.factor);
        }
        // Numbers that were not extrapolated yet are no reason to go back.
        self.before = Some((here, self.before.is_none()));
    }
}
