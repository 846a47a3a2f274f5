//! A search for bad patterns under minimum separation, from below.
//!
//! There are too many patterns to try, so this finds one that is bad and does not prove that none is worse. It begins
//! at the best arithmetic progressions, at the patterns of the caller, and at patterns grown from one step, and goes
//! uphill from there (`climb`): from all of these a little, from the better ones farther.
//!
//! The values here rank patterns; a bound is claimed only after `exact::pattern_above` has evaluated the pattern.
//! Nothing is random and no climb depends on another, so the number of threads changes nothing.

use super::climb::Climb;
use super::progressions;
use crate::linalg::dense::Matrix;
use rayon::prelude::*;

/// Rounds from each beginning that is left. Before each of these numbers, the worse half of the beginnings is dropped.
const ROUNDS: [usize; 3] = [1, 2, 24];
/// Beginnings × steps, about: it keeps the search cheap beside the upper bound, which takes O(n²k).
const EFFORT: usize = 64_000;

/// The worst patterns found, worst first: at most `most`, without repetitions.
pub(super) fn worst(x: &Matrix, b: usize, k: usize, given: Vec<Vec<usize>>, most: usize) -> Vec<Vec<usize>> {
    let n = x.nrows();
    let beginnings = (EFFORT / n.max(1)).clamp(32, 640);
    let mut starts = given;
    starts.extend(progressions::best(x, b, k, beginnings / 2));
    let seeds = (beginnings / 2).min(n);
    starts.extend((0..seeds).map(|i| vec![i * n / seeds]));
    let mut climbs: Vec<Climb> = starts.into_par_iter().map(|start| Climb::new(x, b, k, start)).collect();
    for rounds in ROUNDS {
        let half = climbs.len().div_ceil(2);
        climbs = best_of(climbs, half.max(most));
        climbs.par_iter_mut().for_each(|climb| climb.climb(rounds));
    }
    best_of(climbs, most).into_iter().map(|climb| climb.pattern).collect()
}

/// The climbs with the largest values, largest first and no pattern twice.
fn best_of(mut climbs: Vec<Climb<'_>>, most: usize) -> Vec<Climb<'_>> {
    // Stable: equal values keep the order of their beginnings.
    climbs.sort_by(|a, b| b.value.total_cmp(&a.value));
    let mut best: Vec<Climb> = Vec::new();
    for climb in climbs {
        if best.len() < most && !best.iter().any(|other| other.pattern == climb.pattern) {
            best.push(climb);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, random_gram};

    #[test]
    fn patterns_come_once_and_the_number_of_threads_changes_nothing() {
        let mut noise = Noise(63);
        for (n, b, k) in [(1, 1, 1), (12, 1, 4), (20, 5, 4), (21, 4, 9), (30, 6, 3), (25, 13, 2)] {
            let x = random_gram(&mut noise, 3, n);
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| worst(&x, b, k, vec![vec![n - 1]], 5))
            };
            let found = with(1);
            assert_eq!(found, with(3));
            assert!(!found.is_empty() && found.len() <= 5);
            assert!(found.iter().enumerate().all(|(i, pattern)| !found[..i].contains(pattern)));
        }
    }
}
