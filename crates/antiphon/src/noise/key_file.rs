//! A key in a file: one JSON object that only its owner may read, with a record of what the key is used for.
//!
//! Two runs with noise from one key can be subtracted from each other, and the noise cancels. So the file says what its key is used
//! for before the first number is drawn, and any other use is refused.

use super::{Cipher, Key, Origin, fresh_secret};
use crate::atomic;
use crate::error::{Error, Hint, Result};
use crate::text::counted;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a key is used for.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Use {
    /// The noise of one mechanism for one model: any steps and coordinates of it.
    Noise {
        /// [`Prepared::id`](super::Prepared::id).
        noise_id: String,
        /// σ.
        stddev: f64,
        /// Parameters of the model.
        params: u64,
    },
    /// A training run, whose folder says which.
    Train,
    /// A [`PrivateRun`](crate::run::PrivateRun).
    Run {
        /// Of all that it is.
        id: String,
        /// A state of it after so many steps was kept: there is no way back before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<usize>,
    },
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Use::Noise { noise_id, stddev, params } => {
                write!(f, "noise {noise_id} with stddev {stddev} for {params} parameters")
            }
            Use::Train => f.write_str("a training run"),
            Use::Run { id, .. } => write!(f, "the run {id}"),
        }
    }
}

/// Where the use of a key is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The file.
    pub(crate) path: PathBuf,
    /// Of the key in it, from which a key may be a part.
    pub(crate) fingerprint: String,
}

/// What the file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The version of this form.
    antiphon_key: u32,
    cipher: String,
    /// 256 bits in hexadecimal.
    key: String,
    /// Files of earlier versions have no such record: nobody knows what their keys were used for.
    #[serde(skip_serializing_if = "Option::is_none")]
    uses: Option<Vec<Use>>,
}

/// Makes a fresh key for a use and writes both down. An existing file is an error: a key that is lost cannot be made again.
pub fn create(path: &Path, cipher: Cipher, first: Use) -> Result<Key> {
    create_for(path, cipher, vec![first])
}

fn create_for(path: &Path, cipher: Cipher, uses: Vec<Use>) -> Result<Key> {
    let secret = fresh_secret()?;
    let key: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    write(path, false, &Stored { antiphon_key: 1, cipher: cipher.name().into(), key, uses: Some(uses) })?;
    Ok(Key::from_bytes(secret, cipher).with_origin(Origin::File).recorded_in(path))
}

impl Key {
    /// A fresh key in a new file, which will say what it is used for. An existing file is an error.
    pub fn fresh(path: &Path) -> Result<Key> {
        Key::fresh_for(path, Cipher::fastest())
    }

    /// The same with a cipher of one's choice.
    pub fn fresh_for(path: &Path, cipher: Cipher) -> Result<Key> {
        create_for(path, cipher, Vec::new())
    }

    /// The key in a file. A [`PrivateRun`](crate::run::PrivateRun) that begins with it is recorded there, and another one is refused.
    pub fn load(path: &Path) -> Result<Key> {
        read(path)
    }
}

/// Reads a key. What begins with it is recorded in its file, or refused.
pub fn read(path: &Path) -> Result<Key> {
    Ok(load(path)?.0.recorded_in(path))
}

/// Reads the key of a training run, whose folder keeps it from another one: the file must say that it is one. Nothing more is recorded.
pub fn read_for_training(path: &Path) -> Result<Key> {
    let (key, stored) = load(path)?;
    match stored.uses.as_deref() {
        Some([Use::Train]) => Ok(key),
        _ => Err(Error::File { path: path.into(), reason: "is not the key of a training run".into() }),
    }
}

/// Makes the fresh key of a training run, whose folder keeps it from another one. An existing file is an error.
pub fn create_for_training(path: &Path, cipher: Cipher) -> Result<Key> {
    create(path, cipher, Use::Train)?;
    read_for_training(path)
}

/// Reads a key, or makes one for this use if there is no such file. Processes that ask at the same time get the same key.
pub fn read_or_create(path: &Path, new: Cipher, first: Use) -> Result<Key> {
    let _others_wait = locked(path);
    if path.exists() { read(path) } else { create(path, new, first) }
}

/// Records what the key in this file is to be used for, and returns the uses that were recorded before. A use that differs from
/// those is refused, unless `reuse` says that this is what is wanted.
pub fn claim(path: &Path, intended: &Use, reuse: bool) -> Result<Vec<Use>> {
    let _others_wait = locked(path);
    let (key, mut stored) = load(path)?;
    let before = stored.uses.clone().unwrap_or_default();
    if before.contains(intended) && (reuse || before.len() == 1) {
        return Ok(before);
    }
    if let Some(other) = before.iter().find(|other| *other != intended).filter(|_| !reuse) {
        let reason = format!(
            "its key (fingerprint {}) is already used for {other}, and cannot be used for {intended}. The noise of two runs \
             with one key can cancel in their difference",
            key.fingerprint()
        );
        return Err(Error::File { path: path.into(), reason }.with(Hint::ReuseKey));
    }
    if !before.contains(intended) {
        stored.uses.get_or_insert_default().push(intended.clone());
        write(path, true, &stored)?;
    }
    Ok(before)
}

/// Records that the key in this file serves a run, which begins or goes on after some steps. A key that has any record begins no run, and
/// a run goes on only if it is the one in the record; one that goes on after no step at all may also be recorded now.
pub(crate) fn claim_run(record: &Record, id: &str, goes_on_after: Option<usize>) -> Result<()> {
    let path = &record.path;
    let _others_wait = locked(path);
    let (key, mut stored) = load(path)?;
    let run = Use::Run { id: id.into(), kept: None };
    let refuse = |why: &str| {
        Err(Error::Privacy(format!("{}: its key (fingerprint {}) {why}", path.display(), key.fingerprint())))
    };
    if key.fingerprint() != record.fingerprint {
        return refuse("is not the one that was read from it");
    }
    match (stored.uses.as_deref(), goes_on_after) {
        (Some([Use::Run { id: known, .. }]), Some(_)) if known == id => Ok(()),
        (Some([]), None | Some(0)) => {
            stored.uses = Some(vec![run]);
            write(path, true, &stored)
        }
        (_, Some(_)) => refuse("has no record of the run whose state is restored"),
        (None, None) => refuse(
            "has no record of what it was used for, as in files of earlier versions: it may have been used. Use a new key",
        ),
        (Some([other, ..]), None) => refuse(&format!(
            "is already used for {other}, and a key serves one run: the noise of two runs with one key can cancel in their \
             difference. Use another key, or restore the state of that run to go on with it"
        )),
    }
}

/// Records that a state of the run after so many steps was kept. If a later one was kept already, another process goes on with the run, or has: two of
/// them would use the same noise for different sums. Only a run that repeats steps on purpose may do that.
pub(crate) fn record_kept(record: &Record, id: &str, steps: usize, may_be_earlier: bool) -> Result<()> {
    let _others_wait = locked(&record.path);
    let (_, mut stored) = load(&record.path)?;
    match stored.uses.as_deref_mut() {
        Some([Use::Run { id: known, kept }]) if known == id => {
            if let Some(later) = kept.filter(|later| *later > steps && !may_be_earlier) {
                return Err(overtaken(record, later, steps));
            }
            *kept = Some(kept.map_or(steps, |before| before.max(steps)));
            write(&record.path, true, &stored)
        }
        _ => Ok(()), // a run that has not begun
    }
}

/// What is wrong where a later state was kept than the one that a process has.
pub(crate) fn overtaken(record: &Record, later: usize, steps: usize) -> Error {
    let (path, later, steps) = (record.path.display(), counted(later, "step"), counted(steps, "step"));
    Error::Privacy(format!(
        "{path}: a state after {later} of this run was kept, later than this one, after {steps}: another process goes on with the run. Two processes with \
         one key use the same noise for different sums: stop this one, and publish nothing of it"
    ))
}

/// After how many steps the last state of the run was kept, as far as its key file knows.
pub(crate) fn kept(record: &Record, id: &str) -> Result<Option<usize>> {
    match load(&record.path)?.1.uses.as_deref() {
        Some([Use::Run { id: known, kept }]) if known == id => Ok(*kept),
        _ => Ok(None),
    }
}

fn write(path: &Path, replace: bool, stored: &Stored) -> Result<()> {
    let text = serde_json::to_string(stored).expect("plain fields") + "\n";
    atomic::write_secret(path, replace, |file| file.write_all(text.as_bytes()))
}

/// Keeps other processes that claim or make keys in the same folder waiting. The file itself will not do: it is replaced. Where a
/// folder cannot be locked, nobody waits.
fn locked(path: &Path) -> Option<File> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

fn load(path: &Path) -> Result<(Key, Stored)> {
    let text = fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    // Reasons do not quote the file: it holds a secret.
    let refuse = |reason: &str| Error::File { path: path.into(), reason: reason.into() };
    let stored: Stored = serde_json::from_str(&text)
        .map_err(|_| refuse("is not a key: one JSON object with antiphon_key, cipher and key"))?;
    if stored.antiphon_key != 1 {
        return Err(refuse("is a key of another version; this program reads version 1"));
    }
    let cipher = Cipher::from_name(&stored.cipher)
        .map_err(|_| refuse("names a cipher other than aes256-ctr and chacha20"))?;
    let digits = stored.key.as_bytes();
    let mut secret = [0; 32];
    let valid = digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit);
    if !valid {
        return Err(refuse("holds a key that is not 64 hexadecimal digits"));
    }
    for (byte, pair) in secret.iter_mut().zip(digits.as_chunks::<2>().0) {
        let value = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
        *byte = 16 * value(pair[0]) + value(pair[1]);
    }
    Ok((Key::from_bytes(secret, cipher).with_origin(Origin::File), stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_are_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for cipher in Cipher::ALL {
            let made = create(&path, cipher, Use::Train).unwrap();
            assert!(create(&path, cipher, Use::Train).is_err());
            let read = read(&path).unwrap();
            assert_eq!((read.fingerprint(), read.cipher()), (made.fingerprint(), cipher));
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            }
            std::fs::remove_file(&path).unwrap();
        }
        let known = format!("{{\"antiphon_key\":1,\"cipher\":\"chacha20\",\"key\":\"{}\"}}", "ab".repeat(32));
        std::fs::write(&path, &known).unwrap();
        let expected = Key::from_bytes([0xab; 32], Cipher::ChaCha20).fingerprint();
        assert_eq!(read(&path).unwrap().fingerprint(), expected);
        for (from, to, reason) in [
            ("chacha20", "rc4", "cipher"),
            ("\":1", "\":2", "another version"),
            ("abab", "abax", "hexadecimal"),
            ("abab", "ab", "hexadecimal"),
            ("{", "[", "not a key"),
        ] {
            std::fs::write(&path, known.replacen(from, to, 1)).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains(reason) && !message.contains("abab"), "{message}");
        }
    }
    fn noise(noise_id: &str, stddev: f64, params: u64) -> Use {
        Use::Noise { noise_id: noise_id.into(), stddev, params }
    }

    #[test]
    fn a_key_serves_one_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let first = noise("ab", 0.1, 10);
        let key = read_or_create(&path, Cipher::ChaCha20, first.clone()).unwrap();
        let same = read_or_create(&path, Cipher::Aes256Ctr, Use::Train).unwrap();
        assert_eq!(same.fingerprint(), key.fingerprint(), "what is there is read");
        assert_eq!(claim(&path, &first, false).unwrap(), std::slice::from_ref(&first));
        let secret = load(&path).unwrap().1.key;
        for other in [noise("cd", 0.1, 10), noise("ab", 0.2, 10), noise("ab", 0.1, 11), Use::Train] {
            let text = claim(&path, &other, false).unwrap_err().to_string();
            assert!(
                text.contains("is already used for noise ab with stddev 0.1 for 10 parameters"),
                "{text}"
            );
            assert!(text.contains(&key.fingerprint()) && !text.contains(&secret), "{text}");
            let uses = load(&path).unwrap().1.uses.unwrap();
            assert_eq!(uses, std::slice::from_ref(&first), "nothing was recorded");
        }
        // Who insists is recorded too, and then neither use goes without saying.
        assert_eq!(claim(&path, &Use::Train, true).unwrap(), std::slice::from_ref(&first));
        assert_eq!(claim(&path, &Use::Train, true).unwrap(), [first.clone(), Use::Train]);
        assert!(claim(&path, &first, false).unwrap_err().to_string().contains("used for a training run"));
        assert_eq!(read(&path).unwrap().fingerprint(), key.fingerprint());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_without_a_record_gets_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let old = format!("{{\"antiphon_key\":1,\"cipher\":\"chacha20\",\"key\":\"{}\"}}", "ab".repeat(32));
        fs::write(&path, &old).unwrap();
        assert_eq!(claim(&path, &noise("ab", 0.1, 10), false).unwrap(), []);
        assert_eq!(claim(&path, &noise("ab", 0.1, 10), false).unwrap().len(), 1);
        assert!(claim(&path, &Use::Train, false).is_err());
        let expected = Key::from_bytes([0xab; 32], Cipher::ChaCha20).fingerprint();
        assert_eq!(read(&path).unwrap().fingerprint(), expected);
    }
}
