//! Arithmetic progressions r, r + s, r + 2s, … of every stride s from b on, as beginnings of the search for bad patterns.
//!
//! A loader that does not keep a fixed order returns an example after more than b steps as easily as after b, so
//! strides above b matter as much as b itself. Each progression gets two scores: Σ|X_ij|, which no contribution
//! exceeds, and the larger one of Σ X_ij and Σ ±X_ij with alternating signs, which two contributions reach.
//!
//! Strides end where progressions have fewer than k steps and room for another step between any two: with that step
//! they reach no less. Of many first steps some are tried, evenly spaced, since the search moves whole patterns
//! afterwards. All scores together cost O(n²).

use crate::linalg::dense::Matrix;
use rayon::prelude::*;

/// Most first steps that are tried for one stride.
const FIRSTS: usize = 64;

/// At most `most` patterns: for either score the strides with the best progressions, one progression per stride.
pub(super) fn best(x: &Matrix, b: usize, k: usize, most: usize) -> Vec<Vec<usize>> {
    let longest = (x.nrows() - 1).checked_div(k - 1).unwrap_or(b);
    let strides = b..=longest.max(2 * b - 1).min(x.nrows());
    let champions: Vec<_> = strides.into_par_iter().map(|stride| champions(x, stride, k)).collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for score in 0..2 {
        let mut ranked: Vec<&(f64, Vec<usize>)> = champions.iter().map(|pair| &pair[score]).collect();
        // Stable, so that equal scores stay in the order of their strides.
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, pattern) in ranked.into_iter().take(most.div_ceil(2)) {
            if !found.contains(pattern) {
                found.push(pattern.clone());
            }
        }
    }
    found.truncate(most);
    found
}

/// The best progression of one stride, by either score.
fn champions(x: &Matrix, stride: usize, k: usize) -> [(f64, Vec<usize>); 2] {
    let mut best = [const { (f64::NEG_INFINITY, Vec::new()) }; 2];
    for pattern in progressions(x.nrows(), stride, k) {
        for (best, score) in best.iter_mut().zip(scores(x, &pattern)) {
            if score > best.0 {
                *best = (score, pattern.clone());
            }
        }
    }
    best
}

/// Progressions of one stride that cannot be made longer: all of them, or some where they are many.
fn progressions(n: usize, stride: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
    // From 0 to where k steps just fit; a first step before one stride cannot be extended to the left in any case.
    let firsts = n.saturating_sub((k - 1) * stride).max(stride.min(n));
    // A score costs O(count²), so n / count of them cost as much as a row of X for every step.
    let count = n.div_ceil(stride).min(k);
    let tried = firsts.min(FIRSTS).min((n / count).max(4));
    (0..tried).map(move |i| (i * firsts / tried..n).step_by(stride).take(k).collect())
}

/// Σ|X_ij|, and the larger one of Σ X_ij and Σ (−1)^(i−j) X_ij.
fn scores(x: &Matrix, pattern: &[usize]) -> [f64; 2] {
    let mut own = 0.0;
    // Sums over pairs: absolute values, entries at even distances in the pattern, at odd ones.
    let (mut absolute, mut parity) = (0.0, [0.0; 2]);
    for (i, step) in pattern.iter().enumerate() {
        let column = x.col_as_slice(*step);
        own += column[*step];
        for (j, other) in pattern[..i].iter().enumerate() {
            absolute += column[*other].abs();
            parity[(i - j) % 2] += column[*other];
        }
    }
    [own + 2.0 * absolute, own + 2.0 * (parity[0] + parity[1].abs())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::sensitivity::bounds;
    use crate::sensitivity::testing::{Noise, random_gram};

    #[test]
    fn the_scores_are_what_they_say() {
        let x = random_gram(&mut Noise(51), 9, 9);
        let pattern = [1, 3, 4, 8];
        let [absolute, signed] = scores(&x, &pattern);
        let block = dense::principal(&x, &pattern);
        assert!((absolute - bounds::absolute_sums(&block)).abs() < 1e-12);
        let with = |signs: [f64; 4]| -> f64 {
            (0..16).map(|p| (p / 4, p % 4)).map(|(i, j)| signs[i] * block[(i, j)] * signs[j]).sum()
        };
        assert!((signed - with([1.0; 4]).max(with([1.0, -1.0, 1.0, -1.0]))).abs() < 1e-12);
    }

    #[test]
    fn no_progression_could_be_longer() {
        for (n, stride, k) in
            [(1, 1, 1), (12, 1, 4), (13, 3, 3), (14, 4, 9), (15, 7, 2), (9, 9, 2), (400, 2, 7)]
        {
            let found: Vec<Vec<usize>> = progressions(n, stride, k).collect();
            assert!(found.len() <= FIRSTS && found[0][0] == 0);
            for pattern in &found {
                let (first, last) = (pattern[0], pattern[pattern.len() - 1]);
                assert!(
                    pattern.len() == k || (first < stride && last + stride >= n),
                    "{n} {stride} {k}: {pattern:?}"
                );
                assert!(last < n && pattern.windows(2).all(|pair| pair[1] - pair[0] == stride));
            }
        }
        // Five first steps, all tried; and of fourteen, five.
        let firsts = |n, stride, k| progressions(n, stride, k).map(|pattern| pattern[0]).collect::<Vec<_>>();
        assert_eq!(firsts(20, 5, 4), [0, 1, 2, 3, 4]);
        assert_eq!(firsts(20, 2, 4), [0, 2, 5, 8, 11]);
    }

    #[test]
    fn every_stride_that_matters_is_looked_at() {
        // Entries at one distance only: the progression of that stride is the best, whichever it is.
        for (n, b, k, strides) in
            [(30, 3, 5, 3..=7), (30, 6, 5, 6..=11), (9, 8, 2, 8..=8), (40, 1, 3, 1..=19)]
        {
            for stride in strides {
                let x = dense::from_fn(n, n, |i, j| match i.abs_diff(j) {
                    0 => 1.0,
                    distance => f64::from(distance == stride),
                });
                let found = best(&x, b, k, 6);
                assert!(found.len() <= 6 && found.contains(&(0..n).step_by(stride).take(k).collect()));
                for (i, pattern) in found.iter().enumerate() {
                    assert!(
                        pattern.windows(2).all(|pair| pair[1] - pair[0] >= b)
                            && !found[..i].contains(pattern)
                    );
                }
            }
        }
        // Single steps have no stride.
        assert!(best(&dense::identity(5), 2, 1, 4).iter().all(|pattern| pattern.len() == 1));
    }
}
