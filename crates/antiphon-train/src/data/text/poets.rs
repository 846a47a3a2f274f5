//! The poets, compiled in: a text for first steps and for tests, with nothing to fetch.
//!
//! 12,524 poets of the Tang and the Song, each with the first lines of the poems, at most 96 characters; `poets/README.md` says from
//! where, and under which licence.

use super::lines::{Record, parse};
use antiphon::error::{Error, Result};
use flate2::read::GzDecoder;
use std::io::Read;

/// Lines of JSON, compressed.
const PACKED: &[u8] = include_bytes!("poets/poets.jsonl.gz");

/// A record for each poet.
pub fn records() -> Result<Vec<Record>> {
    let records = unpacked().map_err(|error| error.to_string()).and_then(|bytes| parse(&bytes));
    records.map_err(|reason| Error::Unsupported(format!("the poets in this program are damaged: {reason}")))
}

/// The lines of JSON.
pub(in crate::data) fn unpacked() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(PACKED).read_to_end(&mut bytes)?;
    Ok(bytes)
}
