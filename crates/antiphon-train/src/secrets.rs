//! What is random in a run, and where it comes from: one key, from which there is another for each purpose.

use antiphon::noise::{Cipher, Key};

/// The keys of a run.
#[derive(Debug)]
pub struct Secrets {
    /// Of the noise. It serves one run.
    pub noise: Key,
    /// Of the Poisson samples, which privacy rests on as well.
    pub sampling: Key,
    /// Of the order of the examples.
    pub order: Key,
    /// Of the parameters at the start.
    pub start: Key,
}

impl Secrets {
    /// From a key that nobody else has.
    pub fn from_key(key: Key) -> Secrets {
        let purposes = ["training: noise", "training: sampling", "training: order", "training: start"];
        let [noise, sampling, order, start] = key.split(purposes);
        Secrets { noise, sampling, order, start }
    }

    /// The key of what units do by chance, from that of the start.
    pub(crate) fn units(start: Key) -> Key {
        let [units] = start.split(["training: units"]);
        units
    }

    /// From a seed, for experiments. Order and start depend on the seed alone, so runs with the same seed can be compared in
    /// pairs. The noise depends on the run as well (its id): the same noise under changed gradients would cancel.
    pub fn from_seed(seed: u64, run: &str) -> Secrets {
        // The cipher is fixed, so that a seeded run can be the same on every machine.
        let key = Key::from_seed(seed, Cipher::Aes256Ctr);
        let [of_run, order, start] = key.split([run, "training: order", "training: start"]);
        let [noise, sampling] = of_run.split(["training: noise", "training: sampling"]);
        Secrets { noise, sampling, order, start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_purpose_has_a_key_of_its_own() {
        let all = |secrets: &Secrets| {
            [&secrets.noise, &secrets.sampling, &secrets.order, &secrets.start].map(Key::fingerprint)
        };
        let key = |byte| Key::from_bytes([byte; 32], Cipher::ChaCha20);
        let runs = [
            Secrets::from_key(key(1)),
            Secrets::from_key(key(2)),
            Secrets::from_seed(1, "a"),
            Secrets::from_seed(2, "a"),
        ];
        let names: HashSet<String> = runs.iter().flat_map(all).collect();
        assert_eq!(names.len(), 16);
        let (here, there) = (Secrets::from_seed(1, "a"), Secrets::from_seed(1, "b"));
        assert_eq!(here.order.fingerprint(), there.order.fingerprint());
        assert_eq!(here.start.fingerprint(), there.start.fingerprint());
        assert_ne!(here.noise.fingerprint(), there.noise.fingerprint());
        assert_ne!(here.sampling.fingerprint(), there.sampling.fingerprint());
    }
}
