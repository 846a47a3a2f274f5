//! Which key the flags name.

use crate::args::only;
use antiphon::error::{Error, Result};
use antiphon::noise::file::{Claimed, Keys, beside};
use antiphon::noise::key_file::{self, Use};
use antiphon::noise::{Cipher, Key};
use clap::Args;
use std::path::{Path, PathBuf};

/// The flags.
#[derive(Args)]
#[command(next_help_heading = "Key")]
pub struct KeyArgs {
    /// Key file: read if it exists, otherwise created with a fresh random key. Default: a new file OUTPUT.key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Use the key of --key even if it is recorded for other noise. Two runs with noise from one key are NOT private: their noise can
    /// cancel
    #[arg(long, requires = "key")]
    reuse_key: bool,
    /// Derive the key from this number, for experiments. Not private: whoever knows or guesses the seed can compute the noise
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Cipher that generates random numbers from a new key: aes256-ctr or chacha20 (default: aes256-ctr with --seed, else the faster
    /// one on this machine)
    #[arg(long, value_name = "NAME", value_parser = Cipher::from_name)]
    cipher: Option<Cipher>,
}

/// Says what a key file said before its key was claimed, where that is remarkable.
pub fn remark(claimed: Claimed, keys: &Keys) {
    let path = keys.path.as_deref().unwrap_or("".as_ref()).display();
    match claimed {
        Claimed::Alone => {}
        Claimed::Unknown => eprintln!(
            "antiphon: {path} had no record of what its key was used for; one is written now. If this key was used for other noise, use a new key"
        ),
        Claimed::Shared => eprintln!(
            "antiphon: WARNING: this key is recorded for other noise too; if both are used in training, the runs are NOT private"
        ),
    }
}

impl KeyArgs {
    /// Whether one is named, as a file or by its seed.
    pub fn named(&self) -> bool {
        self.key.is_some() || self.seed.is_some()
    }

    fn check(&self) -> Result<()> {
        only("--seed", &[("--key", self.seed.and(self.key.as_ref()).map(|path| path.display()))])
    }

    /// The key that is named.
    pub fn of_name(&self, intended: Use) -> Result<Keys> {
        self.check()?;
        if let Some(seed) = self.seed {
            let key = Key::from_seed(seed, self.cipher.unwrap_or(Cipher::Aes256Ctr));
            return Ok(Keys::of(key, intended));
        }
        let path = self.key.as_ref().ok_or_else(|| Error::argument("--key", "given", "nothing"))?;
        let new = self.cipher.unwrap_or_else(Cipher::fastest);
        self.same_cipher_of(Keys::in_file(path, new, intended, self.reuse_key)?)
    }

    /// The key of a job that writes to this file.
    pub fn of_output(&self, output: &Path, force: bool, intended: Use) -> Result<Keys> {
        if self.named() {
            return self.of_name(intended);
        }
        let new = self.cipher.unwrap_or_else(Cipher::fastest);
        self.same_cipher_of(Keys::beside(output, new, intended, force)?)
    }

    /// A key that is there already, to look at noise and not to draw any: the one that is named, else that of a file.
    pub fn existing(&self, table: &Path, cipher: Cipher) -> Result<Key> {
        self.check()?;
        match (self.seed, &self.key) {
            (Some(seed), _) => Ok(Key::from_seed(seed, self.cipher.unwrap_or(cipher))),
            (None, Some(path)) => self.same_cipher(key_file::read(path)?),
            (None, None) => self.same_cipher(key_file::read(&beside(table, "key"))?),
        }
    }

    /// A key for a test: the one that is named, else a fresh one that nobody keeps.
    pub fn for_test(&self) -> Result<Key> {
        self.check()?;
        match (self.seed, &self.key) {
            (Some(seed), _) => Ok(Key::from_seed(seed, self.cipher.unwrap_or(Cipher::Aes256Ctr))),
            (None, Some(path)) => key_file::read(path),
            (None, None) => Key::from_os(self.cipher.unwrap_or_else(Cipher::fastest)),
        }
    }

    fn same_cipher(&self, key: Key) -> Result<Key> {
        self.check_cipher(&key).map(|()| key)
    }

    fn same_cipher_of(&self, keys: Keys) -> Result<Keys> {
        self.check_cipher(&keys.key).map(|()| keys)
    }

    fn check_cipher(&self, key: &Key) -> Result<()> {
        match self.cipher.filter(|cipher| *cipher != key.cipher()) {
            Some(cipher) => {
                Err(Error::argument("--cipher", format!("{}, as the key has it", key.cipher()), cipher))
            }
            None => Ok(()),
        }
    }
}
