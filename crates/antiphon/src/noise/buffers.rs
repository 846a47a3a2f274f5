//! What streams keep between two rows, in a file: a process that goes on from it draws the same bits as if it had never stopped, and does
//! not have to make the rows before again.
//!
//! ```text
//! one line of JSON     what it belongs to, and for every range of coordinates where it stands
//! numbers              for every range: what its streams keep (f64), then the rows that are ready (f32), little-endian
//! 64 characters        the seal of all of it
//! ```
//!
//! Together with the rows that are published it tells about the noise of later ones: it is as secret as the key.

use super::seal::Seal;
use super::{Key, Rows};
use crate::atomic;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::path::Path;

/// The longest first line that is read: a run has few ranges of coordinates.
const LONGEST_LINE: u64 = 1 << 20;
/// Bytes that are read and written at once.
const PIECE: usize = 1 << 16;
const SEAL: usize = 64;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// The version of this form.
    antiphon_buffers: u32,
    /// [`Rows::id`].
    noise: String,
    key_fingerprint: String,
    streams: Vec<Place>,
}

/// Where the streams of a range of coordinates stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub coordinates: Range<u64>,
    /// The row that is given out next.
    pub position: usize,
    /// The row that is made next.
    pub step: usize,
    /// Rows that are ready.
    pub ready: Range<usize>,
}

/// What they keep: numbers of the streams, and of the rows that are ready.
#[derive(Default)]
pub struct Numbers {
    pub memory: Vec<f64>,
    pub ready: Vec<f32>,
}

fn seal(key: &Key) -> (Seal, Sha256) {
    let seal = Seal::new(key, "the seal of a stream's buffers");
    let begun = seal.begin("antiphon buffers v1");
    (seal, begun)
}

fn header(rows: &[Rows]) -> Header {
    Header {
        antiphon_buffers: 1,
        noise: rows.first().map_or(String::new(), |rows| rows.id().into()),
        key_fingerprint: rows.first().map_or(String::new(), |rows| rows.key().fingerprint()),
        streams: rows.iter().map(Rows::place).collect(),
    }
}

/// Writes what streams of one noise under one key keep, as a whole or not at all. Only the owner may read the file.
pub fn write(path: &Path, rows: &[Rows]) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let (seal, mut hash) = seal(first.key());
    let line = serde_json::to_string(&header(rows)).expect("plain fields") + "\n";
    atomic::write_secret(path, true, |file| {
        let mut file = BufWriter::with_capacity(PIECE, file);
        let mut put = |bytes: &[u8]| {
            hash.update(bytes);
            file.write_all(bytes)
        };
        put(line.as_bytes())?;
        for rows in rows {
            let (memory, ready) = rows.kept();
            memory.iter().try_for_each(|x| put(&x.to_le_bytes()))?;
            ready.iter().try_for_each(|x| put(&x.to_le_bytes()))?;
        }
        file.write_all(seal.end(hash).as_bytes())?;
        file.flush()
    })
}

/// Reads what [`write`] wrote for the same streams, and lets them go on from there. If it is refused, nothing has happened.
pub fn read(path: &Path, rows: &mut [Rows]) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let io = |source| Error::Io { path: path.into(), source };
    let refuse = |reason: &str| Error::File { path: path.into(), reason: reason.into() };
    let damaged = || refuse("is damaged, or not the buffers of a run: nothing of it is used");
    let mut file = BufReader::with_capacity(PIECE, File::open(path).map_err(io)?);
    let mut line = Vec::new();
    file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(io)?;
    let found: Header = serde_json::from_slice(&line).map_err(|_| damaged())?;
    let ours = header(rows);
    if (found.antiphon_buffers, &found.noise, &found.key_fingerprint)
        != (ours.antiphon_buffers, &ours.noise, &ours.key_fingerprint)
    {
        return Err(refuse("has the buffers of another run, or of another version"));
    }
    let coordinates = |header: &Header| -> Vec<Range<u64>> {
        header.streams.iter().map(|place| place.coordinates.clone()).collect()
    };
    if coordinates(&found) != coordinates(&ours) {
        return Err(refuse("has the buffers of other coordinates"));
    }
    let (seal, mut hash) = seal(first.key());
    hash.update(&line);
    let mut all = Vec::with_capacity(rows.len());
    for (rows, place) in rows.iter().zip(&found.streams) {
        let [memory, ready] = rows.lengths(place).ok_or_else(damaged)?;
        let memory = numbers(&mut file, memory, &mut hash, f64::from_le_bytes);
        let ready = numbers(&mut file, ready, &mut hash, f32::from_le_bytes);
        // A file that ends too early is damaged; any other failure has its own name.
        let named = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(),
            _ => io(error),
        };
        all.push(Numbers { memory: memory.map_err(named)?, ready: ready.map_err(named)? });
    }
    let mut end = Vec::new();
    file.take(SEAL as u64 + 1).read_to_end(&mut end).map_err(io)?;
    if end != seal.end(hash).as_bytes() {
        return Err(damaged());
    }
    for ((rows, place), numbers) in rows.iter_mut().zip(&found.streams).zip(all) {
        rows.go_on(place, numbers);
    }
    Ok(())
}

/// So many numbers.
fn numbers<T, const N: usize>(
    file: &mut impl Read,
    count: usize,
    hash: &mut Sha256,
    from: impl Fn([u8; N]) -> T,
) -> io::Result<Vec<T>> {
    let mut bytes = vec![0; PIECE];
    // Grows with what is really there: a header can name any length.
    let mut all = Vec::new();
    while all.len() < count {
        let piece = &mut bytes[..PIECE.min((count - all.len()) * N)];
        file.read_exact(piece)?;
        hash.update(&*piece);
        all.extend(piece.as_chunks::<N>().0.iter().map(|bytes| from(*bytes)));
    }
    Ok(all)
}
