//! Patterns of exactly m steps, by place: the step at place s is in a window, and at least b after the one at place s − 1.
//!
//! Windows shrink where a bound shows that no pattern through their ends can be worse than one that is known.

use std::ops::Range;

/// Where the steps of a pattern can be, place by place. Every step of a window is a step of some pattern inside the windows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Windows {
    pub(super) b: usize,
    ranges: Vec<Range<usize>>,
}

/// A number for every step of every window: entry i − start of the window for step i.
pub(super) type Weights = Vec<Vec<f64>>;

impl Windows {
    /// All patterns of `places` steps, at least one, among n; `None` where they do not fit.
    pub(super) fn new(n: usize, b: usize, places: usize) -> Option<Self> {
        let end = |s: usize| n.saturating_sub((places - 1 - s).saturating_mul(b));
        Windows { b, ranges: (0..places).map(|s| s * b..end(s)).collect() }.consistent()
    }

    /// Those to which no step can be added. Every other pattern of fewer than k steps is part of a longer one, which
    /// reaches no less.
    pub(super) fn of_maximal(n: usize, b: usize, places: usize) -> Option<Self> {
        let mut all = Windows::new(n, b, places)?;
        // No room for a step before the first (it is below b), behind the last, or between two (2b − 1 apart at most).
        let widest = 2 * b - 1;
        for (s, range) in all.ranges.iter_mut().enumerate() {
            range.end = range.end.min(b + s * widest);
            range.start = range.start.max(n.saturating_sub(b + (places - 1 - s) * widest));
        }
        all.consistent()
    }

    pub(super) fn places(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn range(&self, place: usize) -> Range<usize> {
        self.ranges[place].clone()
    }

    /// The windows of the places from `place` on.
    pub(super) fn from(&self, place: usize) -> Self {
        Windows { b: self.b, ranges: self.ranges[place..].to_vec() }
    }

    /// Steps in all windows together.
    pub(super) fn size(&self) -> usize {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    /// Without the ends that no pattern inside the windows can reach; `None` where there is no pattern at all.
    fn consistent(mut self) -> Option<Self> {
        for s in 1..self.places() {
            self.ranges[s].start = self.ranges[s].start.max(self.ranges[s - 1].start + self.b);
        }
        for s in (1..self.places()).rev() {
            self.ranges[s - 1].end = self.ranges[s - 1].end.min(self.ranges[s].end.saturating_sub(self.b));
        }
        self.ranges.iter().all(|range| !range.is_empty()).then_some(self)
    }

    /// The windows without their ends where `through` is at most `enough`; `None` where nothing is left.
    pub(super) fn trimmed(&self, through: &Weights, enough: f64) -> Option<Self> {
        let trim = |(range, values): (&Range<usize>, &Vec<f64>)| {
            // NaN is no bound, and drops nothing.
            let more = |value: &f64| *value > enough || value.is_nan();
            let (first, last) = (values.iter().position(more)?, values.iter().rposition(more)?);
            Some(range.start + first..range.start + last + 1)
        };
        let ranges = self.ranges.iter().zip(through).map(trim).collect::<Option<_>>()?;
        Windows { b: self.b, ranges }.consistent()
    }

    /// weight(place, step), for every step of every window.
    pub(super) fn weights(&self, weight: impl Fn(usize, usize) -> f64) -> Weights {
        let weight = &weight;
        self.ranges
            .iter()
            .enumerate()
            .map(|(s, range)| range.clone().map(|i| weight(s, i)).collect())
            .collect()
    }

    /// For every step of every window the largest sum of weights over the patterns that have it at this place.
    pub(super) fn through(&self, weights: &Weights) -> Weights {
        let mut sums = weights.clone();
        // Before: the best of the patterns that end at most b before.
        for s in 1..self.places() {
            let (done, rest) = sums.split_at_mut(s);
            let (before, mut seen, mut best) = (&done[s - 1], 0, f64::NEG_INFINITY);
            for (sum, i) in rest[0].iter_mut().zip(self.range(s)) {
                let end = (i + 1 - self.b - self.ranges[s - 1].start).min(before.len());
                before[seen..end].iter().for_each(|value| best = best.max(*value));
                seen = seen.max(end);
                *sum += best;
            }
        }
        let behind = self.behind(weights);
        for (sums, behind) in sums.iter_mut().zip(&behind) {
            sums.iter_mut().zip(behind).for_each(|(sum, behind)| *sum += behind);
        }
        sums
    }

    /// For every step of every window the largest sum of weights over the steps behind it.
    pub(super) fn behind(&self, weights: &Weights) -> Weights {
        let mut sums: Weights = weights.iter().map(|weights| vec![0.0; weights.len()]).collect();
        for s in (1..self.places()).rev() {
            let (rest, done) = sums.split_at_mut(s);
            let (next, own) = (self.range(s), &weights[s]);
            let (mut seen, mut best) = (next.len(), f64::NEG_INFINITY);
            for (sum, i) in rest[s - 1].iter_mut().zip(self.range(s - 1)).rev() {
                let start = (i + self.b).max(next.start) - next.start;
                (start..seen).for_each(|j| best = best.max(own[j] + done[0][j]));
                seen = seen.min(start);
                *sum = best;
            }
        }
        sums
    }

    /// The pattern with the largest sum of weights.
    pub(super) fn best(&self, weights: &Weights) -> Vec<usize> {
        let behind = self.behind(weights);
        let mut pattern = Vec::with_capacity(self.places());
        let mut from = 0;
        for (s, range) in self.ranges.iter().enumerate() {
            let sum = |i: usize| weights[s][i - range.start] + behind[s][i - range.start];
            let steps = from.max(range.start)..range.end;
            let better = |best: usize, i: usize| if sum(i) > sum(best) { i } else { best };
            // There is one, since every step of a window is a step of some pattern.
            let step = steps.clone().fold(steps.start, better);
            pattern.push(step);
            from = step + self.b;
        }
        pattern
    }
}

/// The largest of these.
pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, all_patterns};

    const SCHEMAS: [(usize, usize, usize); 7] =
        [(1, 1, 1), (6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2), (12, 5, 3), (13, 3, 4)];

    fn inside(windows: &Windows, pattern: &[usize]) -> bool {
        pattern.iter().enumerate().all(|(s, i)| windows.range(s).contains(i))
    }

    #[test]
    fn windows_hold_the_patterns_that_they_should() {
        for (n, b, k) in SCHEMAS {
            let all = all_patterns(n, b, k);
            for m in 1..=k {
                let of_length: Vec<_> = all.iter().filter(|pattern| pattern.len() == m).collect();
                let windows = Windows::new(n, b, m).unwrap();
                assert!(of_length.iter().all(|pattern| inside(&windows, pattern)));
                for s in 0..m {
                    assert!(windows.range(s).all(|i| of_length.iter().any(|pattern| pattern[s] == i)));
                }
                // A pattern to which no step can be added is inside the windows of those.
                let room = |pattern: &[usize]| (0..n).any(|t| pattern.iter().all(|i| i.abs_diff(t) >= b));
                let maximal = Windows::of_maximal(n, b, m);
                for pattern in of_length.iter().filter(|pattern| !room(pattern)) {
                    assert!(inside(maximal.as_ref().unwrap(), pattern), "{n} {b}: {pattern:?} {maximal:?}");
                }
            }
            assert!(Windows::new(n, b, n.div_ceil(b) + 1).is_none());
        }
        // Three steps of thirteen, three apart, leave room for a fourth, except for …
        assert_eq!(Windows::of_maximal(13, 3, 3).unwrap().range(0), 0..3);
        assert!(Windows::of_maximal(13, 3, 2).is_none());
    }

    #[test]
    fn the_largest_sums_are_those_of_all_patterns() {
        let mut noise = Noise(81);
        for (n, b, k) in SCHEMAS {
            for m in 1..=k {
                let windows = Windows::new(n, b, m).unwrap();
                let numbers: Vec<f64> = (0..n * m).map(|_| noise.normal()).collect();
                let weights = windows.weights(|s, i| numbers[s * n + i]);
                let through = windows.through(&weights);
                let sum =
                    |pattern: &[usize]| pattern.iter().enumerate().map(|(s, i)| numbers[s * n + i]).sum();
                let sums: Vec<(Vec<usize>, f64)> = all_patterns(n, b, k)
                    .into_iter()
                    .filter(|pattern| pattern.len() == m)
                    .map(|pattern| (pattern.clone(), sum(&pattern)))
                    .collect();
                for s in 0..m {
                    for i in windows.range(s) {
                        let of = sums.iter().filter(|(pattern, _)| pattern[s] == i);
                        let expected = of.map(|(_, sum)| *sum).fold(f64::NEG_INFINITY, f64::max);
                        let found = through[s][i - windows.range(s).start];
                        assert!((found - expected).abs() < 1e-12, "{n} {b} {m}: {found} {expected}");
                    }
                }
                let most = sums.iter().map(|(_, sum)| *sum).fold(f64::NEG_INFINITY, f64::max);
                assert!((sum(&windows.best(&weights)) - most).abs() < 1e-12);
                // Trimmed windows lose no pattern above the limit.
                let mut values: Vec<f64> = sums.iter().map(|(_, sum)| *sum).collect();
                values.sort_by(f64::total_cmp);
                let limit = values[values.len() / 2];
                let trimmed = windows.trimmed(&through, limit + 1e-12);
                for (pattern, _) in sums.iter().filter(|(_, sum)| *sum > limit + 1e-9) {
                    assert!(inside(trimmed.as_ref().unwrap(), pattern));
                }
                assert!(windows.trimmed(&through, values[values.len() - 1] + 1e-9).is_none());
            }
        }
    }
}
