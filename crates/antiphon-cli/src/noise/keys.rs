//! The key of a job: where it comes from, and that it serves nothing else.

use super::job::beside;
use crate::args::only;
use antiphon::error::{Error, Result};
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

/// A key and where it comes from.
pub struct Keys {
    pub key: Key,
    pub seeded: bool,
    /// The file that has it, if one does.
    pub path: Option<PathBuf>,
    /// Whether it was made for this job alone.
    pub own: bool,
    /// What it is to be used for.
    intended: Use,
    reuse: bool,
}

impl Keys {
    /// Records the use of the key, or refuses it. To be called before the first number is drawn.
    pub fn claim(&self) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let before = key_file::claim(path, &self.intended, self.reuse)?;
        if before.is_empty() {
            eprintln!(
                "antiphon: {} had no record of what its key was used for; one is written now. If this key was used for other noise, use a new key",
                path.display()
            );
        }
        if before.iter().any(|other| *other != self.intended) {
            eprintln!(
                "antiphon: WARNING: this key is recorded for other noise too; if both are used in training, the runs are NOT private"
            );
        }
        Ok(())
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
        let reuse = self.reuse_key;
        if let Some(seed) = self.seed {
            let key = Key::from_seed(seed, self.cipher.unwrap_or(Cipher::Aes256Ctr));
            return Ok(Keys { key, seeded: true, path: None, own: false, intended, reuse });
        }
        let path = self.key.clone().ok_or_else(|| Error::argument("--key", "given", "nothing"))?;
        let new = self.cipher.unwrap_or_else(Cipher::fastest);
        let key = self.same_cipher(key_file::read_or_create(&path, new, intended.clone())?)?;
        Ok(Keys { key, seeded: false, path: Some(path), own: false, intended, reuse })
    }

    /// The key of a job that writes to this file.
    pub fn of_output(&self, output: &Path, force: bool, intended: Use) -> Result<Keys> {
        if self.named() {
            return self.of_name(intended);
        }
        let path = beside(output, "key");
        // The note comes before the file, and stays until that has its name.
        let unfinished = beside(output, "partial.json").exists();
        let key = match path.exists() {
            true if unfinished => self.same_cipher(key_file::read(&path)?)?,
            true if !force => {
                return Err(Error::File {
                    path,
                    reason: "exists, and is the key of other noise. The same noise must not be used in two runs: remove the file, or \
                             use --force to make a new key; for more noise of the same run, give this file with --key"
                        .into(),
                });
            }
            there => {
                if there {
                    std::fs::remove_file(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
                }
                let new = self.cipher.unwrap_or_else(Cipher::fastest);
                key_file::create(&path, new, intended.clone())?
            }
        };
        Ok(Keys { key, seeded: false, path: Some(path), own: true, intended, reuse: false })
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
        match self.cipher.filter(|cipher| *cipher != key.cipher()) {
            Some(cipher) => {
                Err(Error::argument("--cipher", format!("{}, as the key has it", key.cipher()), cipher))
            }
            None => Ok(key),
        }
    }
}
