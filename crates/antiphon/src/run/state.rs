//! What is kept of a run between two processes: all but its secrets.

use super::Unit;
use super::guard::Memory;
use crate::accounting::Adjacency;
use crate::error::{Error, Result};
use crate::noise::{Key, seal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a run is and how far it has come. There is no key in it and no noise: it says by fingerprints which keys belong to it.
///
/// The log of a sampled run and the step of a state tell nothing that the noise protects; who took part when does, where batches are
/// secret. Keep a state as private as the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The version of this form.
    pub(super) antiphon_run_state: u32,
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// Steps that are done.
    pub(super) step: usize,
    /// Who took part so far, where a schema decides about it.
    pub(super) participation: Option<Memory>,
    /// Of all of it, by the key of the run: who has no key can change no state.
    pub(super) seal: String,
}

impl State {
    /// Steps that are done.
    pub fn step(&self) -> usize {
        self.step
    }
}

/// Seals the states of a run, by a secret that follows from its key.
pub(super) struct Seal(seal::Seal);

impl Seal {
    pub fn new(key: &Key) -> Seal {
        Seal(seal::Seal::new(key, "the seal of a run's states"))
    }

    /// The seal of a state, whatever seal it has.
    pub fn of(&self, state: &State) -> String {
        let unsealed = State { seal: String::new(), ..state.clone() };
        let text = serde_json::to_string(&unsealed).expect("plain fields");
        self.0.end(self.0.begin("antiphon run state v1").chain_update(text))
    }
}

/// All that two processes must agree on to work on the same run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The id of the mechanism, or what is sampled.
    pub mechanism: String,
    /// The id of the noise: coefficients and σ, as they are used.
    pub noise: String,
    pub stddev: f64,
    pub clip_norm: f64,
    pub adjacency: Adjacency,
    pub unit: Unit,
    pub units: Option<usize>,
    pub params: u64,
    pub layout: String,
    pub key_fingerprint: String,
    /// Of the key of Poisson samples.
    pub sampling_fingerprint: Option<String>,
}

impl Identity {
    /// Refuses another run, and says in what it differs.
    pub fn check(&self, found: &Identity) -> Result<()> {
        let [ours, theirs] =
            [self, found].map(|identity| serde_json::to_value(identity).expect("plain fields"));
        let differ: Vec<String> = ours
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, value)| theirs.get(name.as_str()) != Some(value))
            .map(|(name, value)| format!("{name} was {} and is {value}", theirs[name.as_str()]))
            .collect();
        match differ.is_empty() && self == found {
            true => Ok(()),
            false => Err(Error::Privacy(format!(
                "the state belongs to another run and cannot be restored into this one: {}",
                differ.join("; ")
            ))),
        }
    }

    /// What a key file calls the run.
    pub fn id(&self) -> String {
        let text = serde_json::to_string(self).expect("plain fields");
        let hash = Sha256::new().chain_update(b"antiphon private run v1").chain_update(text);
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::IDENTITY;
    use crate::make::make;
    use crate::mechanism::family::Run;
    use crate::noise::Cipher;
    use crate::run::{Budget, PrivateRun, Settings};
    use crate::schema::Schema;
    use crate::testing::{Seeded, mutate_json};
    use crate::verify::{Verified, verify};
    use crate::workload::Workload;

    fn mechanism(schema: &Schema) -> Verified {
        let workload = Workload::prefix_sum(schema.steps());
        verify(make(IDENTITY, &Run::new(schema, &workload, &|_| true)).unwrap()).unwrap()
    }

    /// Whoever has the key can seal any state. What a run accepts of it makes no step panic, and no state is ahead of its run.
    #[test]
    fn changed_states_with_a_seal_that_fits_never_panic() {
        let schemas = [
            Schema::epochs(3, 2).unwrap(),
            Schema::min_separation(6, 2, 2).unwrap(),
            Schema::reshuffled(3, 2).unwrap(),
            Schema::patterns(6, vec![vec![0, 2, 5], vec![1, 2, 3, 4]]).unwrap(),
        ];
        let seeded = &mut Seeded(1);
        let (mut sealed, mut restored) = (0, 0);
        for (number, schema) in schemas.iter().enumerate() {
            let mechanism = mechanism(schema);
            let units = [Some(6), None][number % 2];
            let settings =
                Settings { units, ..Settings::new(Budget::Target { epsilon: 4.0, delta: 1e-5 }, 1.0, 6, 3) };
            let key = || Key::from_seed(1, Cipher::ChaCha20);
            let mut run = PrivateRun::new(mechanism.clone(), &settings, key()).unwrap();
            let privacy = *run.privacy();
            for (step, units) in [(0, &[0, 1][..]), (1, &[2]), (2, &[0, 1])] {
                run.admit(step, units).unwrap();
                run.privatize(&mut [0.5; 3]).unwrap();
            }
            let before = serde_json::to_value(run.state()).unwrap();
            for _ in 0..3_000 {
                let mut changed = before.clone();
                // What the run is must be the same: step and participation are what can differ.
                match seeded.below(4) {
                    0 => mutate_json(&mut changed["step"], seeded),
                    _ => {
                        (0..=seeded.below(3)).for_each(|_| mutate_json(&mut changed["participation"], seeded))
                    }
                }
                let Ok(mut state) = serde_json::from_value::<State>(changed) else { continue };
                state.seal = Seal::new(&key()).of(&state);
                sealed += 1;
                let mut run = PrivateRun::accounted(mechanism.clone(), &settings, privacy, key()).unwrap();
                if run.restore(&state).is_err() {
                    continue;
                }
                restored += 1;
                assert!(run.step() == state.step() && run.step() <= run.steps());
                for step in run.step()..run.steps() {
                    for units in [&[0, 1][..], &[2], &[5, 4, 3], &[]] {
                        let _ = run.admit(step, units);
                    }
                    run.privatize(&mut [0.5; 3]).unwrap();
                }
            }
        }
        assert!(sealed > 2_000 && restored > 200 && restored < sealed, "{sealed} {restored}");
    }
}
