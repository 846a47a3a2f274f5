//! What is kept of a run between two processes: all but its secrets.

use super::Unit;
use super::guard::Memory;
use crate::accounting::Adjacency;
use crate::error::{Error, Result};
use crate::noise::Key;
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

/// A secret that follows from the key of a run, to seal its states with.
pub(super) struct Seal([u64; 8]);

impl Seal {
    pub fn new(key: &Key) -> Seal {
        let [key] = key.share().split(["the seal of a run's states"]);
        let mut secret = [0; 8];
        key.fill_words(0, &mut secret);
        Seal(secret)
    }

    /// The seal of a state, whatever seal it has: SHA-256 over the state with the secret on both sides.
    pub fn of(&self, state: &State) -> String {
        let unsealed = State { seal: String::new(), ..state.clone() };
        let text = serde_json::to_string(&unsealed).expect("plain fields");
        let mut hash = Sha256::new().chain_update(b"antiphon run state v1");
        self.0.iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash.update(text);
        self.0.iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
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
