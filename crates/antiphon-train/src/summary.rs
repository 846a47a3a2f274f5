//! Several runs of one kind: their mean, and how sure it is.

use antiphon::noise::{Cipher, Key};
use std::f64::consts::PI;

/// Samples of the bootstrap.
const RESAMPLED: usize = 10_000;

/// Fewer runs have Student's interval: means of samples of a few figures are too near to each other. Of five figures even the expanded percentiles
/// hold the mean 92 times in 100.
const FEW: usize = 10;

/// What is said of the intervals.
pub const INTERVALS: &str =
    "95% intervals over the runs (bootstrap; Student's where there are fewer than ten)";

/// A mean and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The interval; one run has none.
    pub interval: Option<[f64; 2]>,
}

impl Summary {
    /// Of some figures, at least one. The interval of fewer than ten is Student's. Others have percentiles of the mean over 10,000 samples with
    /// replacement, by a fixed key: the same figures have the same interval. Plain percentiles are too near; they are expanded to where
    /// Student's interval would have them (T. Hesterberg, What Teachers Should Know About the Bootstrap, 2015).
    pub fn of(figures: &[f64]) -> Summary {
        Summary::with(figures, RESAMPLED)
    }

    fn with(figures: &[f64], resampled: usize) -> Summary {
        let count = figures.len();
        let mean = figures.iter().sum::<f64>() / count as f64;
        if count < 2 {
            return Summary { mean, interval: None };
        }
        if count < FEW {
            let squares = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>();
            let half = student(count) * (squares / ((count - 1) * count) as f64).sqrt();
            return Summary { mean, interval: Some([mean - half, mean + half]) };
        }
        let key = Key::from_seed(0, Cipher::ChaCha20);
        let mut words = vec![0; count];
        let mut means: Vec<f64> = (0..resampled)
            .map(|sample| {
                key.fill_words(sample as u64, &mut words);
                words.iter().map(|word| figures[(word % count as u64) as usize]).sum::<f64>() / count as f64
            })
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| means[(part * (resampled - 1) as f64).round() as usize];
        let tail = tail(count);
        Summary { mean, interval: Some([at(tail), at(1.0 - tail)]) }
    }

    /// Of the differences of two kinds of runs, pair by pair: what a seed has in common does not count.
    pub fn of_differences(figures: &[f64], others: &[f64]) -> Summary {
        Summary::of(&figures.iter().zip(others).map(|(a, b)| a - b).collect::<Vec<f64>>())
    }

    /// A hundred times the figures, for people: `90.29% [89.82, 90.76]`.
    pub fn in_hundredths(&self, unit: &str) -> String {
        let interval = self.interval.map(|[low, high]| format!(" [{:.2}, {:.2}]", 100.0 * low, 100.0 * high));
        format!("{:.2}{unit}{}", 100.0 * self.mean, interval.unwrap_or_default())
    }
}

/// The expanded percentile for n figures: Φ(−t·√(n/(n − 1))) instead of 2.5 %.
fn tail(count: usize) -> f64 {
    let n = count as f64;
    libm::erfc(student(count) * (n / (n - 1.0)).sqrt() / 2f64.sqrt()) / 2.0
}

/// Student's t for n figures, at least two: with n − 1 degrees of freedom it is within ±t 95 times in 100.
fn student(count: usize) -> f64 {
    let (mut low, mut high) = (1.9, 13.0);
    while high - low > 1e-9 {
        let middle = (low + high) / 2.0;
        *(if within(middle, count - 1) < 0.95 { &mut low } else { &mut high }) = middle;
    }
    high
}

/// The probability that Student's variable is within ±t (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn within(t: f64, freedom: usize) -> f64 {
    let theta = (t / (freedom as f64).sqrt()).atan();
    let odd = freedom % 2 == 1;
    // cos θ + 2/3 cos³θ + … + cos^(ν−2) θ, or 1 + 1/2 cos²θ + … + cos^(ν−2) θ.
    let (mut term, mut sum) = (if odd { theta.cos() } else { 1.0 }, 0.0);
    for power in (if odd { 1 } else { 0 }..freedom.saturating_sub(1)).step_by(2) {
        sum += term;
        term *= theta.cos().powi(2) * (power + 1) as f64 / (power + 2) as f64;
    }
    let sum = theta.sin() * sum;
    if odd { (theta + sum) * 2.0 / PI } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_expanded_as_student_would() {
        // Quantiles of tables: t with 1, 2, 4, 19 and 99 degrees of freedom.
        for (count, t) in [(2, 12.7062), (3, 4.3027), (5, 2.7764), (20, 2.0930), (100, 1.9842)] {
            assert!((within(t, count - 1) - 0.95).abs() < 1e-5, "{count}: {}", within(t, count - 1));
            let n = count as f64;
            let expected = libm::erfc(t * (n / (n - 1.0)).sqrt() / 2f64.sqrt()) / 2.0;
            assert!((tail(count) / expected - 1.0).abs() < 1e-3, "{count}: {} {expected}", tail(count));
        }
    }

    /// Means of normals, 2,000 times: the interval should hold zero 95 times in 100, with a standard error of 0.5.
    #[test]
    fn intervals_cover_what_they_say() {
        for count in [2, 3, 5, 9, 10, 20] {
            let key = Key::from_seed(1, Cipher::ChaCha20);
            let held = (0..2000u64).filter(|trial| {
                let mut figures = vec![0.0; count];
                key.fill_f64(*trial, 0, &mut figures);
                let [low, high] = Summary::with(&figures, 1000).interval.unwrap();
                low <= 0.0 && 0.0 <= high
            });
            let part = held.count() as f64 / 2000.0;
            assert!((0.93..=0.97).contains(&part), "{count}: {part}");
        }
    }

    #[test]
    fn intervals_hold_the_mean_and_have_the_width_of_a_normal_one() {
        assert_eq!(Summary::of(&[0.5]), Summary { mean: 0.5, interval: None });
        assert_eq!(Summary::of(&[0.5; 4]).interval, Some([0.5, 0.5]));
        // By hand: 7/3 ± 4.302653·√(7/3)/√3, with t from a table.
        let [low, high] = Summary::of(&[1.0, 2.0, 4.0]).interval.unwrap();
        assert!((low + 1.461250).abs() < 1e-5 && (high - 6.127916).abs() < 1e-5, "{low} {high}");
        // 1, …, 100: the mean has a standard error of 2.887 (without Bessel's correction).
        let figures: Vec<f64> = (1..=100).map(f64::from).collect();
        let Summary { mean, interval: Some([low, high]) } = Summary::of(&figures) else { panic!() };
        assert_eq!(mean, 50.5);
        assert!((high - low - 2.0 * 1.96 * 2.887).abs() < 0.4, "{low} {high}");
        assert!(((high + low) / 2.0 - mean).abs() < 0.2);
    }

    #[test]
    fn pairs_have_in_common_what_does_not_count() {
        let (figures, others) = ([0.9, 0.5, 0.7], [0.8, 0.4, 0.6]);
        let Summary { mean, interval: Some([low, high]) } = Summary::of_differences(&figures, &others) else {
            panic!()
        };
        assert!((mean - 0.1).abs() < 1e-12 && high - low < 1e-12);
        assert_eq!(
            Summary { mean: 0.9029, interval: Some([0.5, 1.0]) }.in_hundredths("%"),
            "90.29% [50.00, 100.00]"
        );
        assert_eq!(Summary::of(&[-0.012]).in_hundredths(" points"), "-1.20 points");
    }
}
