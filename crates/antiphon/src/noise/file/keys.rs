//! The key of a table: where it comes from, and that it serves nothing else.

use super::beside;
use crate::error::{Error, Hint, Result};
use crate::noise::key_file::{self, Use};
use crate::noise::{Cipher, Key};
use std::path::{Path, PathBuf};

/// A key and what it is to be used for.
pub struct Keys {
    /// The key.
    pub key: Key,
    /// The file that has it, if one does.
    pub path: Option<PathBuf>,
    /// Whether it was made for this table alone.
    pub own: bool,
    intended: Use,
    reuse: bool,
}

/// What a key file said before its key was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// Nothing else: the key is for this.
    Alone,
    /// There was no record. If the key was used for other noise, nobody knows.
    Unknown,
    /// The key is recorded for other noise too, and that was wanted. If both are used in training, neither is private.
    Shared,
}

impl Keys {
    /// A key that is at hand. If it comes from a file, its use is recorded there; else the caller sees to it that it serves nothing else.
    pub fn of(key: Key, intended: Use) -> Keys {
        let path = key.record.as_ref().map(|record| record.path.clone());
        Keys { key, path, own: false, intended, reuse: false }
    }

    /// The key in a file, which is made if there is none. `reuse` says that the key may be used although it is recorded for other noise.
    pub fn in_file(path: &Path, new: Cipher, intended: Use, reuse: bool) -> Result<Keys> {
        let key = key_file::read_or_create(path, new, intended.clone())?;
        Ok(Keys { key, path: Some(path.into()), own: false, intended, reuse })
    }

    /// A key of its own for a table that is written to a file: a new one beside it, or the one of that table if it is unfinished. `force`
    /// says that the key of another table may be replaced.
    pub fn beside(output: &Path, new: Cipher, intended: Use, force: bool) -> Result<Keys> {
        let path = beside(output, "key");
        // The note comes before the file, and stays until that has its name.
        let unfinished = beside(output, "partial.json").exists();
        let key = match path.exists() {
            true if unfinished => key_file::read(&path)?,
            true if !force => {
                let reason =
                    "exists, and is the key of other noise. The same noise must not be used in two runs"
                        .into();
                return Err(Error::File { path, reason }.with(Hint::ReplaceKey));
            }
            there => {
                if there {
                    std::fs::remove_file(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
                }
                key_file::create(&path, new, intended.clone())?
            }
        };
        Ok(Keys { key, path: Some(path), own: true, intended, reuse: false })
    }

    /// Records the use of the key, or refuses it. To be called before the first number is drawn.
    pub fn claim(&self) -> Result<Claimed> {
        let Some(path) = &self.path else {
            return Ok(Claimed::Alone);
        };
        let before = key_file::claim(path, &self.intended, self.reuse)?;
        Ok(match before.iter().any(|other| *other != self.intended) {
            true => Claimed::Shared,
            false if before.is_empty() => Claimed::Unknown,
            false => Claimed::Alone,
        })
    }
}
