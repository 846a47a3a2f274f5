//! Several runs of one kind: their mean, and how sure it is.

use antiphon::noise::{Cipher, Key};

/// Samples of the bootstrap.
const RESAMPLED: usize = 10_000;

/// A mean and its 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The interval; one run has none.
    pub interval: Option<[f64; 2]>,
}

impl Summary {
    /// Of some figures, at least one. The interval is that of the percentiles of the mean over 10,000 samples with replacement,
    /// by a fixed key: the same figures have the same interval.
    pub fn of(figures: &[f64]) -> Summary {
        let count = figures.len();
        let mean = figures.iter().sum::<f64>() / count as f64;
        if count < 2 {
            return Summary { mean, interval: None };
        }
        let key = Key::from_seed(0, Cipher::ChaCha20);
        let mut words = vec![0; count];
        let mut means: Vec<f64> = (0..RESAMPLED)
            .map(|sample| {
                key.fill_words(sample as u64, &mut words);
                words.iter().map(|word| figures[(word % count as u64) as usize]).sum::<f64>() / count as f64
            })
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| means[(part * (RESAMPLED - 1) as f64).round() as usize];
        Summary { mean, interval: Some([at(0.025), at(0.975)]) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_mean_and_have_the_width_of_a_normal_one() {
        assert_eq!(Summary::of(&[0.5]), Summary { mean: 0.5, interval: None });
        assert_eq!(Summary::of(&[0.5; 4]).interval, Some([0.5, 0.5]));
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
