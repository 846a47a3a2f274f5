//! A key in a file: one JSON object that only its owner may read.

use super::{Cipher, Key, fresh_secret};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// What the file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The version of this form.
    antiphon_key: u32,
    cipher: String,
    /// 256 bits in hexadecimal.
    key: String,
}

/// Makes a fresh key and writes it down. An existing file is an error: a key that is lost cannot be made again.
pub fn create(path: &Path, cipher: Cipher) -> Result<Key> {
    let secret = fresh_secret()?;
    let key: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let stored = Stored { antiphon_key: 1, cipher: cipher.name().into(), key };
    let io = |source| Error::Io { path: path.into(), source };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(io)?;
    let text = serde_json::to_string(&stored).expect("three plain fields");
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(io)?;
    file.sync_all().map_err(io)?;
    Ok(Key::from_bytes(secret, cipher))
}

/// Reads a key.
pub fn read(path: &Path) -> Result<Key> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    // Reasons do not quote the file: it holds a secret.
    let refuse = |reason: &str| Error::File { path: path.into(), reason: reason.into() };
    let stored: Stored = serde_json::from_str(&text)
        .map_err(|_| refuse("is not a key: one JSON object with antiphon_key, cipher and key"))?;
    if stored.antiphon_key != 1 {
        return Err(refuse("is a key of another version; this program knows version 1"));
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
    Ok(Key::from_bytes(secret, cipher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_are_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for cipher in Cipher::ALL {
            let made = create(&path, cipher).unwrap();
            assert!(create(&path, cipher).is_err());
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
}
