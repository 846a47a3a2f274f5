//! Keys: 256 secret bits and the name of a cipher.

use super::key_file::Record;
use super::stream::{QUAD, Stream};
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;

/// What makes the random words of a [`Key`]. It belongs to the key: another cipher is another field.
///
/// Both give the same bits on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-256 in counter mode: the faster one where the processor has instructions for it, the slower one elsewhere.
    Aes256Ctr,
    /// ChaCha20: fast everywhere.
    ChaCha20,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Cipher; 2] = [Cipher::Aes256Ctr, Cipher::ChaCha20];

    /// The faster one on this machine. A choice for new keys: write its name down beside the key.
    pub fn fastest() -> Cipher {
        if aes::hardware_accelerated() { Cipher::Aes256Ctr } else { Cipher::ChaCha20 }
    }

    /// The name that files and messages use.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes256Ctr => "aes256-ctr",
            Cipher::ChaCha20 => "chacha20",
        }
    }

    /// The cipher of that name.
    pub fn from_name(name: &str) -> Result<Cipher> {
        Cipher::ALL.into_iter().find(|cipher| cipher.name() == name).ok_or_else(|| Error::Argument {
            argument: "cipher".into(),
            allowed: "aes256-ctr or chacha20".into(),
            value: name.into(),
        })
    }
}

impl std::fmt::Display for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The secret that fixes all noise of a run: 256 bits, and the cipher that expands them.
///
/// Who knows the key knows the noise. It is not printed.
///
/// ```
/// use antiphon::noise::{Cipher, Key};
///
/// # fn main() -> antiphon::Result<()> {
/// let key = Key::from_os(Cipher::fastest())?;
///
/// // z(step, coordinate): two ranges of a step agree where they meet.
/// let (mut whole, mut part) = ([0.0f32; 100], [0.0f32; 10]);
/// key.fill_f32(7, 0, &mut whole);
/// key.fill_f32(7, 60, &mut part);
/// assert_eq!(whole[60..70], part);
///
/// // Another key, another field; and a name for each that does not tell it.
/// let other = Key::from_os(Cipher::fastest())?;
/// assert_ne!(key.fingerprint(), other.fingerprint());
/// # Ok(())
/// # }
/// ```
///
/// A key serves one run: noise under two runs with one key cancels in their difference. So a key is no value to copy, a
/// [`PrivateRun`](crate::run::PrivateRun) takes the one that it is given, and [`Key::split`] takes the key that it makes others from.
pub struct Key {
    pub(super) stream: Stream,
    secret: [u8; 32],
    origin: Origin,
    /// Where it is to be recorded what the key is used for, before the first number is drawn.
    pub(crate) record: Option<Record>,
}

/// Where a key comes from. A key that is made from another has its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Fresh random bits of the operating system.
    OperatingSystem,
    /// A key file.
    File,
    /// A seed: not private against anyone who knows or guesses it.
    Seed,
    /// Bits that the caller had.
    Bytes,
}

impl Key {
    /// A fresh key from the operating system.
    pub fn from_os(cipher: Cipher) -> Result<Key> {
        Ok(Key { origin: Origin::OperatingSystem, ..Key::from_bytes(fresh_secret()?, cipher) })
    }

    /// The key that belongs to a seed, for runs that are to be repeated.
    ///
    /// A seeded run is not private against anyone who knows the seed, or guesses it: 64 bits at most, and few where a
    /// person chose them.
    pub fn from_seed(seed: u64, cipher: Cipher) -> Key {
        let hash = Sha256::new().chain_update(b"antiphon noise key v1").chain_update(seed.to_le_bytes());
        Key { origin: Origin::Seed, ..Key::from_bytes(hash.finalize().into(), cipher) }
    }

    /// The key with these bits.
    pub fn from_bytes(secret: [u8; 32], cipher: Cipher) -> Key {
        let stream = match cipher {
            Cipher::Aes256Ctr => Stream::aes(secret),
            Cipher::ChaCha20 => Stream::ChaCha20(secret),
        };
        Key { stream, secret, origin: Origin::Bytes, record: None }
    }

    /// The cipher.
    pub fn cipher(&self) -> Cipher {
        match self.stream {
            Stream::Aes256Ctr(_) => Cipher::Aes256Ctr,
            Stream::ChaCha20(_) => Cipher::ChaCha20,
        }
    }

    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The same bits with another origin: for a process of a run whose key another process has read. A key from a seed stays one: statements say that
    /// its noise is not private.
    pub fn with_origin(self, origin: Origin) -> Key {
        match self.origin {
            Origin::Seed => self,
            _ => Key { origin, ..self },
        }
    }

    /// The secret bits: for whoever draws the same field on another device, or in another process of the same run. Who knows them knows
    /// the noise.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The same with a file that is to say what the key is used for.
    pub(crate) fn recorded_in(self, file: &Path) -> Key {
        // Absolute: a program may change its folder.
        let path = std::fs::canonicalize(file).unwrap_or_else(|_| file.into());
        Key { record: Some(Record { path, fingerprint: self.fingerprint() }), ..self }
    }

    /// Another hold on the same key, for what draws from it within one run.
    pub(crate) fn share(&self) -> Key {
        Key {
            stream: self.stream.clone(),
            secret: self.secret,
            origin: self.origin,
            record: self.record.clone(),
        }
    }

    /// Writes uniform random words: those of a step, from its first on. They are what normals are made of, so a key serves one
    /// or the other.
    pub fn fill_words(&self, step: u64, out: &mut [u64]) {
        const WORDS: usize = QUAD / size_of::<u64>();
        let mut quads = [[0; QUAD]; 64];
        for (i, out) in out.chunks_mut(64 * WORDS).enumerate() {
            let quads = &mut quads[..out.len().div_ceil(WORDS)];
            self.stream.words(step, (i * 64 * 4) as u64, quads);
            let bytes = quads.as_flattened().as_chunks().0;
            out.iter_mut().zip(bytes).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        }
    }

    /// Keys for several purposes, with the same cipher. None of them tells anything about this one, nor about the others. This key is
    /// used up, and no purpose may be named twice, so no two of them are the same.
    ///
    /// # Panics
    ///
    /// If a purpose is named twice.
    pub fn split<const N: usize>(self, purposes: [&str; N]) -> [Key; N] {
        let twice = (1..N).any(|i| purposes[..i].contains(&purposes[i]));
        assert!(!twice, "every purpose of a key must be named once, got {purposes:?}");
        // Words that no run comes to, hashed: uniform to whoever does not know the key.
        let mut words = [0; 8];
        self.fill_words(u64::MAX - 1, &mut words);
        let mut hash = Sha256::new().chain_update(b"antiphon derived key v1");
        words.iter().for_each(|word| hash.update(word.to_le_bytes()));
        purposes.map(|purpose| {
            let bits = hash.clone().chain_update(purpose).finalize().into();
            Key { origin: self.origin, record: self.record.clone(), ..Key::from_bytes(bits, self.cipher()) }
        })
    }

    /// A name for the key that does not tell it: the SHA-256 of normals that no run comes to, in hexadecimal. Equal keys, of the
    /// same cipher, have equal names.
    pub fn fingerprint(&self) -> String {
        let mut normals = [0.0f64; 16];
        self.fill(u64::MAX, 0, &mut normals);
        let mut hash = Sha256::new().chain_update(self.describe());
        normals.iter().for_each(|z| hash.update(z.to_le_bytes()));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What fixes the field beside the secret bits: the version of its layout, and the cipher. Two keys with the same bits
    /// and the same description draw the same noise, in any version of this library.
    pub fn describe(&self) -> String {
        format!("gaussian field 1, {}", self.cipher())
    }
}

/// Bits for a key, from the operating system.
pub fn fresh_secret() -> Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|reason| {
        Error::Unsupported(format!("the operating system has no random numbers for a key: {reason}"))
    })?;
    Ok(secret)
}

impl std::fmt::Debug for Key {
    /// Without the secret, so that no log has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({}, ..)", self.cipher())
    }
}
