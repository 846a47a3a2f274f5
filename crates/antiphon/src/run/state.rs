//! What is kept of a run between two processes: all but its secrets.

use super::Unit;
use super::guard::Memory;
use crate::accounting::Adjacency;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

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
}

impl State {
    /// Steps that are done.
    pub fn step(&self) -> usize {
        self.step
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
    pub units: usize,
    pub params: u64,
    pub layout: String,
    pub key_fingerprint: String,
    /// Of the key of Poisson samples.
    pub sampling_fingerprint: Option<String>,
}

impl Identity {
    /// Refuses another run, and says in what it differs.
    pub fn check(&self, found: &Identity) -> Result<()> {
        let [ours, theirs] = [self, found].map(|identity| serde_json::to_value(identity).unwrap_or_default());
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
        use sha2::{Digest, Sha256};
        let text = serde_json::to_string(self).unwrap_or_default();
        let hash = Sha256::new().chain_update(b"antiphon private run v1").chain_update(text);
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
