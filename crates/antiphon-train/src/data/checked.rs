//! Reading files that are known beforehand: their names, their sizes and the sums of their content.

use antiphon::error::{Error, Result};
use flate2::read::GzDecoder;
use md5::{Digest, Md5};
use sha2::Sha256;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What a file gives, or in words what is wrong with it: what was expected, and what was found.
pub type Checked<T> = std::result::Result<T, String>;

/// What a file has to be.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// Its name when not compressed.
    pub name: &'a str,
    /// Its size when not compressed.
    pub bytes: usize,
    /// The sum of its content when not compressed.
    pub sum: Sum<'a>,
}

/// A sum in hexadecimal. MD5 finds damage and mix-ups, not forgeries; it is what is known of CIFAR-10's files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum<'a> {
    /// MD5.
    Md5(&'a str),
    /// SHA-256.
    Sha256(&'a str),
}

impl Sum<'_> {
    /// Whether these bytes have this sum; otherwise what was expected and found.
    pub fn check(self, bytes: &[u8]) -> Checked<()> {
        let (kind, expected, found) = match self {
            Sum::Md5(sum) => ("MD5", sum, hexadecimal(&Md5::digest(bytes))),
            Sum::Sha256(sum) => ("SHA-256", sum, hexadecimal(&Sha256::digest(bytes))),
        };
        match expected == found {
            true => Ok(()),
            false => Err(format!("expected content with the {kind} sum {expected}, found {found}")),
        }
    }
}

/// Bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file in a folder, if it is there; an IDX file may be compressed, and so may lines of JSON.
pub fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let packed = (name.ends_with("-ubyte") || name.ends_with(".jsonl")).then(|| format!("{name}.gz"));
    let names = packed.into_iter().chain([name.into()]);
    names.map(|name| folder.join(name)).find(|path| path.exists())
}

/// Reads a file, lets `parse` look at it and checks its sum. The sum comes last, because a parser knows better what is wrong.
pub fn read<T>(folder: &Path, expected: &Expected<'_>, parse: impl FnOnce(&[u8]) -> Checked<T>) -> Result<T> {
    let refuse = |path: &Path, reason: String| Error::File { path: path.into(), reason };
    let Some(path) = find(folder, expected.name) else {
        let reason = format!("expected a file of {} bytes, found none", expected.bytes);
        return Err(refuse(&folder.join(expected.name), reason));
    };
    let bytes = content(&path, expected.bytes).map_err(|error| match error.kind() {
        // What the decompressor says of a damaged file.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            let reason = format!("expected {} bytes, compressed by gzip, found damage", expected.bytes);
            refuse(&path, format!("{reason}: {error}"))
        }
        _ => Error::Io { path: path.clone(), source: error },
    })?;
    let parsed = parse(&bytes).map_err(|reason| refuse(&path, reason))?;
    expected.sum.check(&bytes).map_err(|reason| refuse(&path, reason))?;
    Ok(parsed)
}

/// The content of a file, decompressed if its name says so. At most one byte more than expected: enough to see that there is
/// more, and a bomb stays small.
fn content(path: &Path, expected: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(expected + 1);
    let most = expected as u64 + 1;
    match path.extension().is_some_and(|extension| extension == "gz") {
        true => GzDecoder::new(io::BufReader::new(file)).take(most).read_to_end(&mut bytes)?,
        false => file.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}
