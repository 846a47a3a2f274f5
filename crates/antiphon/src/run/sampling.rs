//! Poisson samples: each unit is in a step with probability q, by a coin of its own.

use crate::noise::Key;

/// The samples of a run, fixed by a key.
pub struct Samples {
    units: usize,
    /// A unit is in a step if its word is below this: q·2⁶⁴, rounded down.
    limit: u64,
    key: Key,
}

impl Samples {
    /// Of so many units. The probability is at most q, and less by no more than 2⁻⁶⁴.
    pub fn new(units: usize, q: f64, key: Key) -> Samples {
        Samples { units, limit: (q * 2f64.powi(64)).floor() as u64, key }
    }

    /// Who is in a step, in rising order.
    pub fn step(&self, step: usize) -> Vec<usize> {
        let mut words = vec![0; self.units];
        self.key.fill_words(step as u64, &mut words);
        (0..self.units).filter(|unit| words[*unit] < self.limit).collect()
    }

    pub(super) fn share(&self) -> Samples {
        Samples { units: self.units, limit: self.limit, key: self.key.share() }
    }

    /// The key's name.
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Cipher;

    #[test]
    fn poisson_samples_have_their_rate_and_are_fresh() {
        let samples_of = Samples::new(1000, 0.05, Key::from_seed(3, Cipher::Aes256Ctr));
        let samples: Vec<Vec<usize>> = (0..400).map(|step| samples_of.step(step)).collect();
        let total: usize = samples.iter().map(Vec::len).sum();
        // Of 400,000 coins: mean 20,000, standard deviation 138.
        assert!((total as f64 - 20_000.0).abs() < 450.0, "{total}");
        let both = samples.windows(2).map(|two| two[0].iter().filter(|x| two[1].contains(x)).count());
        let both: usize = both.sum();
        // 399,000 pairs of coins, both with probability 1/400: 998 ± 32.
        assert!((both as f64 - 997.5).abs() < 105.0, "{both}");
        assert_eq!(samples_of.step(7), samples[7]);
        let lengths: Vec<f64> = samples.iter().map(|sample| sample.len() as f64).collect();
        let variance = lengths.iter().map(|x| (x - 50.0).powi(2)).sum::<f64>() / 400.0;
        assert!((variance / 47.5 - 1.0).abs() < 0.25, "{variance}"); // not a fixed size
        assert!(Samples::new(10, 0.0, Key::from_seed(1, Cipher::Aes256Ctr)).step(0).is_empty());
    }
}
