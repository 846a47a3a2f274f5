//! Which examples are in which step, in a fixed order: the examples are shuffled once, by a key, and cut into batches; every epoch goes
//! through the same ones, and an example is in exactly one of them. (Poisson samples are drawn by the run itself.)

use antiphon::noise::Key;

/// The batches of an epoch.
#[derive(Clone, Debug)]
pub struct Batches {
    /// The examples in their order.
    order: Vec<usize>,
    /// Examples in a batch; the last one may have fewer.
    size: usize,
}

impl Batches {
    /// A fixed order of so many examples.
    pub fn fixed_order(examples: usize, size: usize, key: &Key) -> Batches {
        Batches { order: permutation(examples, key), size }
    }

    /// The examples of a step.
    pub fn step(&self, step: usize) -> Vec<usize> {
        let Batches { order, size } = self;
        let first = step % order.len().div_ceil(*size) * size;
        order[first..(first + size).min(order.len())].to_vec()
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
}
