//! Which examples are in which step. The examples are shuffled, by a key, and cut into batches; every epoch goes through all of them once,
//! in the same order or in one of its own. Users may also be drawn step by step ([`crate::rested`]). (Poisson samples are drawn by the run itself.)

use crate::order::Order;
use crate::rested;
use crate::settings::Settings;
use antiphon::noise::Key;
use std::cell::RefCell;

/// The batches of all epochs. Any step can be asked for, without those before it: a run that is resumed goes on as it would have.
#[derive(Debug)]
pub struct Batches {
    /// The examples in the order of the first epoch.
    first: Vec<usize>,
    /// Examples in a batch; the last one of an epoch may have fewer.
    size: usize,
    /// The examples of a window within which later epochs shuffle anew; none where they do not.
    window: Option<usize>,
    /// All steps, where they are drawn one after the other.
    drawn: Option<Vec<Vec<usize>>>,
    key: Key,
    /// The epoch that was asked for last, and its order: steps come one after the other.
    latest: RefCell<(usize, Vec<usize>)>,
}

impl Batches {
    /// Of a run over so many examples, or users.
    pub fn new(settings: &Settings, examples: usize, key: Key) -> Batches {
        let Settings { order, batch_size: size, .. } = *settings;
        let drawn = match order {
            Order::Rested { min_separation, max_participations } => {
                let rule = rested::Rule { users: examples, size, min_separation, max_participations };
                Some(rule.draw(settings.steps(examples), &key))
            }
            _ => None,
        };
        let first = permutation(examples, &key);
        let window = order.window(examples.div_ceil(size)).map(|steps| steps * size);
        Batches { first, size, window, drawn, key, latest: RefCell::default() }
    }

    /// The examples of a step.
    pub fn step(&self, step: usize) -> Vec<usize> {
        if let Some(drawn) = &self.drawn {
            return drawn.get(step).cloned().unwrap_or_default();
        }
        let steps_per_epoch = self.first.len().div_ceil(self.size);
        let (epoch, batch) = (step / steps_per_epoch, step % steps_per_epoch);
        let of = |order: &[usize]| {
            let start = batch * self.size;
            order[start..(start + self.size).min(order.len())].to_vec()
        };
        let Some(window) = self.window.filter(|_| epoch > 0) else {
            return of(&self.first);
        };
        let mut latest = self.latest.borrow_mut();
        if latest.0 != epoch {
            *latest = (epoch, self.later(epoch, window));
        }
        of(&latest.1)
    }

    /// The order of an epoch after the first: that of the first, shuffled within windows of so many examples.
    fn later(&self, epoch: usize, window: usize) -> Vec<usize> {
        let mut order = self.first.clone();
        let words = words(epoch, order.len(), &self.key);
        order.chunks_mut(window).for_each(|part| shuffle(part, &words));
        order
    }
}

/// All numbers below `count`, in an order that the key fixes.
pub fn permutation(count: usize, key: &Key) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, &words(0, count, key));
    order
}

/// A random word for every example, those of an epoch.
fn words(epoch: usize, examples: usize, key: &Key) -> Vec<u64> {
    let mut words = vec![0; examples];
    key.fill_words(epoch as u64, &mut words);
    words
}

/// Sorts examples by their random words.
fn shuffle(examples: &mut [usize], words: &[u64]) {
    examples.sort_unstable_by_key(|example| (words[*example], *example));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Name;
    use crate::secrets::Secrets;
    use antiphon::noise::Cipher;
    use antiphon::run::{Unit, guard::Guard};

    const EXAMPLES: usize = 103;
    const EPOCHS: usize = 6;
    /// Of ten examples each, the last one of three.
    const STEPS: usize = 11;

    fn batches(order: Order, seed: u64) -> Batches {
        Batches::new(&settings(order), EXAMPLES, Key::from_seed(seed, Cipher::Aes256Ctr))
    }

    fn settings(order: Order) -> Settings {
        Settings { epochs: EPOCHS, batch_size: 10, order, ..Settings::usual(Name::Digits, None) }
    }

    fn separated(steps: usize) -> Order {
        Order::separated(Some(steps), None, EPOCHS, STEPS)
    }

    fn epoch(batches: &Batches, epoch: usize) -> Vec<usize> {
        (epoch * STEPS..(epoch + 1) * STEPS).flat_map(|step| batches.step(step)).collect()
    }

    #[test]
    fn an_epoch_has_every_example_once_in_batches_of_the_same_size() {
        for order in [Order::Fixed, Order::Reshuffled, separated(1), separated(4), separated(11)] {
            let batches = batches(order, 3);
            for number in 0..EPOCHS {
                let mut sorted = epoch(&batches, number);
                assert_ne!(sorted, (0..EXAMPLES).collect::<Vec<_>>());
                sorted.sort_unstable();
                assert_eq!(sorted, (0..EXAMPLES).collect::<Vec<_>>(), "{order:?}");
            }
            let sizes: Vec<usize> = (0..STEPS * EPOCHS).map(|step| batches.step(step).len()).collect();
            assert!(sizes.chunks(STEPS).all(|epoch| epoch == [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3]));
        }
    }

    /// Seeded runs are a promise: a batch of `train --batch-size 10 --seed 3` at commit 42e040d, where all orders were fixed.
    #[test]
    fn fixed_order_is_what_it_was_and_the_same_in_every_epoch() {
        let digits = Batches::new(&settings(Order::Fixed), 1440, Secrets::from_seed(3, "any run").order);
        for step in [143, 287] {
            assert_eq!(digits.step(step), [806, 1099, 621, 644, 118, 880, 488, 824, 947, 932]);
        }
        let fixed = batches(Order::Fixed, 3);
        assert!((0..STEPS).all(|step| fixed.step(step) == fixed.step(step + 2 * STEPS)));
        assert_ne!(batches(Order::Fixed, 4).step(0), fixed.step(0));
        // The others begin like it.
        for order in [Order::Reshuffled, separated(4)] {
            assert_eq!(epoch(&batches(order, 3), 0), epoch(&fixed, 0));
        }
    }

    #[test]
    fn orders_of_epochs_differ_and_do_not_depend_on_what_was_asked_before() {
        for order in [Order::Reshuffled, separated(4)] {
            let straight = batches(order, 3);
            let all: Vec<Vec<usize>> = (0..STEPS * EPOCHS).map(|step| straight.step(step)).collect();
            let epochs: Vec<&[Vec<usize>]> = all.chunks(STEPS).collect();
            for (i, one) in epochs.iter().enumerate() {
                assert!(epochs[..i].iter().all(|other| other != one), "{order:?}");
            }
            let (back, resumed) = (batches(order, 3), batches(order, 3));
            for step in (0..STEPS * EPOCHS).rev() {
                assert_eq!(back.step(step), all[step], "{order:?}");
            }
            assert_eq!(resumed.step(40), all[40]);
            assert_ne!(batches(order, 4).step(40), all[40]);
        }
        // Nothing is left of the batches of the first epoch: of ten examples, one or so comes again in the same step.
        let shuffled = batches(Order::Reshuffled, 3);
        let first = shuffled.step(0);
        let same = shuffled.step(STEPS).iter().filter(|example| first.contains(example)).count();
        assert!(same < 6, "{same}");
    }

    /// The steps of every example.
    fn participations(batches: &Batches) -> Vec<Vec<usize>> {
        let mut steps = vec![Vec::new(); EXAMPLES];
        for step in 0..STEPS * EPOCHS {
            batches.step(step).iter().for_each(|example| steps[*example].push(step));
        }
        steps
    }

    #[test]
    fn examples_rest_as_long_as_they_must_and_no_longer() {
        for least in 1..=STEPS {
            let order = separated(least);
            let schema = order.schema(EPOCHS, STEPS).unwrap();
            let mut shortest = usize::MAX;
            for seed in 0..40 {
                for steps in participations(&batches(order, seed)) {
                    assert!(schema.permits(&steps) && steps.len() == EPOCHS, "{least}: {steps:?}");
                    let apart = steps.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
                    assert!(apart >= least, "{apart} {least}");
                    shortest = shortest.min(apart);
                }
            }
            // It is really used: the schedule is not fixed order under another name.
            assert_eq!(shortest, least);
        }
    }

    /// The guard of a run lets every order pass under its own schema, and reshuffled epochs under no stricter one.
    #[test]
    fn a_guard_admits_every_step_of_its_own_schema() {
        let admitted = |order: Order, schema: Order| {
            let mut guard = Guard::new(&schema.schema(EPOCHS, STEPS).unwrap(), Unit::Example, Some(EXAMPLES));
            let batches = batches(order, 5);
            (0..STEPS * EPOCHS).all(|step| match guard.check(step, &batches.step(step)) {
                Ok(changes) => {
                    guard.commit(changes);
                    true
                }
                Err(_) => false,
            })
        };
        for order in [Order::Fixed, Order::Reshuffled, separated(1), separated(4), separated(11)] {
            assert!(admitted(order, order), "{order:?}");
        }
        assert!(admitted(Order::Fixed, Order::Reshuffled) && admitted(Order::Fixed, separated(11)));
        assert!(!admitted(Order::Reshuffled, Order::Fixed) && !admitted(Order::Reshuffled, separated(4)));
        assert!(!admitted(separated(4), Order::Fixed) && !admitted(separated(4), separated(5)));
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
