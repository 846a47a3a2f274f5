//! Is this table the noise of that mechanism and key?

use super::{Description, beside, job};
use crate::error::{Error, Result};
use crate::noise::{Cipher, Key, Part, Prepared, Stddev, fresh_secret};
use crate::verify::Verified;
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Random places that are drawn again, beside the first and the last one.
const PLACES: usize = 64;

/// What was found: how many numbers were compared, or what is wrong.
pub type Verdict = std::result::Result<usize, String>;

/// Compares a table with the noise of a mechanism. `key` is asked for the key, once its cipher is known. An error is that there was nothing
/// to compare with.
pub fn check(mechanism: &Verified, table: &Path, key: impl FnOnce(Cipher) -> Result<Key>) -> Result<Verdict> {
    let beside = beside(table, "json");
    let found = Description::read(&beside)?;
    let refuse = |error: Error| Error::File { path: beside.clone(), reason: error.to_string() };
    let part = found.part(mechanism.steps()).map_err(refuse)?;
    let cipher = Cipher::from_name(&found.cipher).map_err(refuse)?;
    if found.about.id != mechanism.id() {
        return Ok(Err("it was made with a different mechanism".into()));
    }
    let key = key(cipher)?;
    if found.key_fingerprint != key.fingerprint() {
        return Ok(Err(format!(
            "it was drawn with a different key, with fingerprint {}",
            found.key_fingerprint
        )));
    }
    let prepared =
        Prepared::of(mechanism, Stddev::without_privacy(found.about.amount.stddev).map_err(refuse)?)?;
    if found.about.noise_id != prepared.id() {
        return Ok(Err("its noise id is not that of this mechanism and standard deviation".into()));
    }
    let io = |source| Error::Io { path: table.into(), source };
    let mut file = File::open(table).map_err(io)?;
    if let Some(reason) = bytes_around(&mut file, table, &found, &part).map_err(io)? {
        return Ok(Err(reason));
    }
    compare(&mut file, found.offset, &part, &prepared, &key, io)
}

/// What is wrong with the header or the length, if anything is.
fn bytes_around(
    file: &mut File,
    path: &Path,
    found: &Description,
    part: &Part,
) -> io::Result<Option<String>> {
    let expected = job::header(path, part);
    let mut header = vec![0; expected.len()];
    let length = file.metadata()?.len();
    let whole = part.bytes().and_then(|bytes| bytes.checked_add(found.offset));
    if Some(length) != whole {
        return Ok(Some(format!("it has {length} bytes where its description says {}", whole.unwrap_or(0))));
    }
    if found.offset != expected.len() as u64 || file.read_exact(&mut header).is_err() || header != expected {
        return Ok(Some("its header is not the one that belongs to its name and shape".into()));
    }
    Ok(None)
}

fn compare(
    file: &mut File,
    offset: u64,
    part: &Part,
    prepared: &Prepared,
    key: &Key,
    io: impl Fn(io::Error) -> Error,
) -> Result<Verdict> {
    let places = places(part)?;
    let drawn: Result<Vec<f32>> =
        places.par_iter().map(|(step, coordinate)| prepared.number(key, *step, *coordinate)).collect();
    for ((step, coordinate), drawn) in places.iter().zip(drawn?) {
        let row = (step - part.rows.start) as u64;
        let place = row * part.width() + coordinate - part.coordinates.start;
        let mut bytes = [0; 4];
        file.seek(SeekFrom::Start(offset + 4 * place)).map_err(&io)?;
        file.read_exact(&mut bytes).map_err(&io)?;
        // Bits, not values. The numbers are not printed: they are secret.
        if bytes != drawn.to_le_bytes() {
            return Ok(Err(format!("the number at step {step}, coordinate {coordinate} differs")));
        }
    }
    Ok(Ok(places.len()))
}

/// Steps and coordinates: the first, the last, and random ones that nobody can foresee.
fn places(part: &Part) -> Result<Vec<(usize, u64)>> {
    let (rows, columns) = (&part.rows, &part.coordinates);
    let mut words = [0; 2 * PLACES];
    Key::from_bytes(fresh_secret()?, Cipher::ChaCha20).fill_words(0, &mut words);
    let random = words
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[a, b]| (rows.start + (a % rows.len() as u64) as usize, columns.start + b % part.width()));
    Ok([(rows.start, columns.start), (rows.end - 1, columns.end - 1)].into_iter().chain(random).collect())
}
