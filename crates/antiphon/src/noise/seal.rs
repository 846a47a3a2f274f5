//! Seals: who does not have the key of a run can change nothing that the run keeps between two processes.

use super::Key;
use sha2::{Digest, Sha256};

/// A secret that follows from a key and a purpose.
pub(crate) struct Seal([u64; 8]);

impl Seal {
    /// For one kind of what is kept.
    pub fn new(key: &Key, purpose: &str) -> Seal {
        let [key] = key.share().split([purpose]);
        let mut secret = [0; 8];
        key.fill_words(0, &mut secret);
        Seal(secret)
    }

    /// Begins the seal of something: SHA-256 over a label, and over the thing with the secret on both sides.
    pub fn begin(&self, label: &str) -> Sha256 {
        self.with_secret(Sha256::new().chain_update(label))
    }

    /// Ends it, in hexadecimal.
    pub fn end(&self, hash: Sha256) -> String {
        self.with_secret(hash).finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn with_secret(&self, mut hash: Sha256) -> Sha256 {
        self.0.iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash
    }
}
