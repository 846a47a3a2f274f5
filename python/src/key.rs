//! Keys.

use crate::errors::{Result, argument};
use antiphon::Error;
use antiphon::noise::{self as library, Cipher, Origin};
use pyo3::exceptions::PyFileExistsError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Mutex;

/// The secret that fixes all noise of a run. A key serves one run, which takes it.
///
/// >>> key = antiphon.Key.from_seed(1)     # for experiments: not private
/// >>> key
/// Key(aes256-ctr, from a seed)
#[pyclass(frozen, module = "antiphon")]
pub struct Key {
    inner: Mutex<Option<library::Key>>,
    cipher: Cipher,
    origin: Origin,
    fingerprint: String,
}

impl Key {
    fn of(key: library::Key) -> Key {
        let (cipher, origin, fingerprint) = (key.cipher(), key.origin(), key.fingerprint());
        Key { inner: Mutex::new(Some(key)), cipher, origin, fingerprint }
    }

    /// Takes the key out.
    fn take(&self) -> Result<library::Key> {
        let taken = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        Ok(taken.ok_or_else(|| self::taken(&self.fingerprint))?)
    }
}

fn taken(fingerprint: &str) -> Error {
    Error::Privacy(format!(
        "the key (fingerprint {fingerprint}) serves a run already, and a key serves one run: the noise of two runs with one key can \
         cancel in their difference. Use another key"
    ))
}

/// The key that is named: a [`Key`], or a file, which is made with a fresh key if it does not exist.
pub fn named(value: &Bound<'_, PyAny>) -> Result<library::Key> {
    if let Ok(key) = value.cast::<Key>() {
        return key.get().take();
    }
    let Ok(path) = value.extract::<PathBuf>() else {
        return Err(argument(
            "key",
            "an antiphon.Key or the path of a key file",
            crate::arrays::described(value),
        ));
    };
    Ok(match path.exists() {
        true => library::Key::load(&path)?,
        false => library::Key::fresh(&path)?,
    })
}

#[pymethods]
impl Key {
    /// The key that belongs to a seed, the same as `--seed` of the command line, for runs that are to be repeated.
    ///
    /// NOT private: whoever knows or guesses the seed can compute the noise.
    #[staticmethod]
    #[pyo3(signature = (seed, *, cipher="aes256-ctr"))]
    fn from_seed(seed: i128, cipher: &str) -> Result<Key> {
        let seed = u64::try_from(seed).map_err(|_| argument("seed", format!("in 0..={}", u64::MAX), seed))?;
        Ok(Key::of(library::Key::from_seed(seed, Cipher::from_name(cipher)?)))
    }

    /// A fresh random key in a new file, readable by its owner only. The file records which run the key is used for.
    ///
    /// The cipher is the faster one of this machine by default. Noise on a device needs "chacha20".
    #[staticmethod]
    #[pyo3(signature = (path, *, cipher=None))]
    fn fresh(path: PathBuf, cipher: Option<&str>) -> Result<Key> {
        if path.exists() {
            let message = format!(
                "{}: exists; a key is never replaced, read it with Key.load or name another file",
                path.display()
            );
            return Err(PyFileExistsError::new_err(message).into());
        }
        let cipher = cipher.map_or(Ok(Cipher::fastest()), Cipher::from_name)?;
        Ok(Key::of(library::Key::fresh_for(&path, cipher)?))
    }

    /// The key in a file. A run that begins with it is recorded in the file; a second one is refused.
    #[staticmethod]
    fn load(path: PathBuf) -> Result<Key> {
        Ok(Key::of(library::Key::load(&path)?))
    }

    /// The key for the other processes of the same run, as bytes. They are the secret: send them to those processes and nowhere else.
    fn _shared<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let held = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let key = held.as_ref().ok_or_else(|| taken(&self.fingerprint))?;
        let mut bytes = key.secret().to_vec();
        bytes.push(u8::from(key.cipher() == Cipher::ChaCha20));
        bytes.push(u8::from(key.origin() == Origin::Seed));
        Ok(PyBytes::new(py, &bytes))
    }

    /// The key from such bytes. Its use is recorded by the process that has the key file.
    #[staticmethod]
    fn _from_shared(bytes: &[u8]) -> Result<Key> {
        let wrong = || argument("bytes", "what _shared() gave", format!("{} bytes", bytes.len()));
        let (secret, rest) = bytes.split_first_chunk::<32>().ok_or_else(wrong)?;
        let &[cipher, seeded] = rest else { return Err(wrong()) };
        let cipher = if cipher == 1 { Cipher::ChaCha20 } else { Cipher::Aes256Ctr };
        let origin = if seeded == 1 { Origin::Seed } else { Origin::File };
        Ok(Key::of(library::Key::from_bytes(*secret, cipher).with_origin(origin)))
    }

    /// A name for the key that does not tell it.
    #[getter]
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What expands the key: "aes256-ctr" or "chacha20".
    #[getter]
    fn cipher(&self) -> &'static str {
        self.cipher.name()
    }

    fn __repr__(&self) -> String {
        let origin = match self.origin {
            Origin::Seed => "from a seed",
            Origin::File => "from a file",
            _ => "fresh",
        };
        format!("Key({}, {origin})", self.cipher.name())
    }
}
