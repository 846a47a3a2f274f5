//! Which examples are in which step.
//!
//! Matrix mechanisms take minibatches in a fixed order: the examples are shuffled once, by a key, and cut into batches; every
//! epoch goes through the same ones, and an example is in exactly one of them. DP-SGD takes a Poisson sample at every step:
//! each example with probability q, by a fresh coin.

use antiphon::noise::Key;

/// The batches of a run.
#[derive(Clone, Debug)]
pub enum Batches {
    /// The same ones in every epoch.
    FixedOrder {
        /// The examples in their order.
        order: Vec<usize>,
        /// Examples in a batch; the last one may have fewer.
        size: usize,
    },
    /// A sample at every step.
    Poisson {
        /// How many examples there are.
        examples: usize,
        /// An example is in a step if its word is below this: q·2⁶⁴, rounded down.
        limit: u64,
        /// The coins.
        key: Key,
    },
}

impl Batches {
    /// A fixed order of so many examples.
    pub fn fixed_order(examples: usize, size: usize, key: &Key) -> Batches {
        Batches::FixedOrder { order: permutation(examples, key), size }
    }

    /// Poisson samples. The probability is at most q, and less by no more than 2⁻⁶⁴.
    pub fn poisson(examples: usize, q: f64, key: &Key) -> Batches {
        let limit = (q * 2f64.powi(64)).floor();
        Batches::Poisson { examples, limit: limit as u64, key: key.clone() }
    }

    /// The examples of a step.
    pub fn step(&self, step: usize) -> Vec<usize> {
        match self {
            Batches::FixedOrder { order, size } => {
                let first = step % order.len().div_ceil(*size) * size;
                order[first..(first + size).min(order.len())].to_vec()
            }
            Batches::Poisson { examples, limit, key } => {
                let mut words = vec![0; *examples];
                key.fill_words(step as u64, &mut words);
                (0..*examples).filter(|example| words[*example] < *limit).collect()
            }
        }
    }
}

/// All numbers below `count`, in an order that the key fixes: sorted by random words.
pub fn permutation(count: usize, key: &Key) -> Vec<usize> {
    let mut words = vec![0; count];
    key.fill_words(0, &mut words);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by_key(|example| (words[*example], *example));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::noise::Cipher;

    #[test]
    fn an_epoch_has_every_example_once_and_the_next_is_the_same() {
        let key = Key::from_seed(3, Cipher::Aes256Ctr);
        let batches = Batches::fixed_order(103, 10, &key);
        let epoch: Vec<usize> = (0..11).flat_map(|step| batches.step(step)).collect();
        let mut sorted = epoch.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..103).collect::<Vec<_>>());
        assert_ne!(epoch, sorted);
        assert_eq!(batches.step(10).len(), 3);
        assert!((0..11).all(|step| batches.step(step) == batches.step(step + 22)));
        let other = Batches::fixed_order(103, 10, &Key::from_seed(4, Cipher::Aes256Ctr));
        assert_ne!(other.step(0), batches.step(0));
    }

    #[test]
    fn permutations_are_uniform() {
        // The place of example 0 among four: χ² with three degrees of freedom, α = 10⁻³.
        let mut counts = [0; 4];
        for seed in 0..4000 {
            let order = permutation(4, &Key::from_seed(seed, Cipher::ChaCha20));
            counts[order.iter().position(|example| *example == 0).unwrap()] += 1;
        }
        let chi_squared: f64 = counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_squared < 16.3, "{counts:?}");
    }

    #[test]
    fn poisson_samples_have_their_rate_and_are_fresh() {
        let batches = Batches::poisson(1000, 0.05, &Key::from_seed(3, Cipher::Aes256Ctr));
        let samples: Vec<Vec<usize>> = (0..400).map(|step| batches.step(step)).collect();
        let total: usize = samples.iter().map(Vec::len).sum();
        // Of 400,000 coins: mean 20,000, standard deviation 138.
        assert!((total as f64 - 20_000.0).abs() < 450.0, "{total}");
        let both = samples.windows(2).map(|two| two[0].iter().filter(|x| two[1].contains(x)).count());
        let both: usize = both.sum();
        // 399,000 pairs of coins, both with probability 1/400: 998 ± 32.
        assert!((both as f64 - 997.5).abs() < 105.0, "{both}");
        assert_eq!(batches.step(7), samples[7]);
        let lengths: Vec<f64> = samples.iter().map(|sample| sample.len() as f64).collect();
        let variance = lengths.iter().map(|x| (x - 50.0).powi(2)).sum::<f64>() / 400.0;
        assert!((variance / 47.5 - 1.0).abs() < 0.25, "{variance}"); // not a fixed size
        assert!(Batches::poisson(10, 0.0, &Key::from_seed(1, Cipher::Aes256Ctr)).step(0).is_empty());
    }
}
