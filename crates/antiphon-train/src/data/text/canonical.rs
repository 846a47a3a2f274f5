//! The files that a fetch writes and a run reads: lines of JSON, compressed, with a sum that is known.

use super::TextName;
use super::lines::{Record, parse};
use crate::data::checked::{self, Expected, Sum};
use crate::data::folder;
use antiphon::error::Result;
use std::path::{Path, PathBuf};

/// The poems, one on a line.
pub const POETRY: Expected<'static> = Expected {
    name: "poetry.jsonl",
    bytes: 69_088_947,
    sum: Sum::Sha256("c9694d152b4f663838677d8681c34de822cab215beb8d56fbaa1f211d7826b28"),
};

/// The messages of the conversations, one on a line.
pub const CHITCHAT: Expected<'static> = Expected {
    name: "chitchat.jsonl",
    bytes: 41_404_191,
    sum: Sum::Sha256("b1a2115ddf1632da0275c13c94a78f1010f08247b89b18a54f8633107d40dde6"),
};

/// The file of a text, if a fetch writes one.
pub fn file(name: &TextName) -> Option<&'static Expected<'static>> {
    match name {
        TextName::Poetry => Some(&POETRY),
        TextName::Chitchat => Some(&CHITCHAT),
        TextName::Poets | TextName::File(_) => None,
    }
}

/// The folder with the file of a text: one of its own in `data`, or `data` itself where it lies there. Where there is none of
/// either, the one that a fetch makes.
pub fn locate(name: &TextName, expected: &Expected<'_>, data: &Path) -> PathBuf {
    let own = data.join(name.to_string());
    let has = |folder: &PathBuf| checked::find(folder, expected.name).is_some();
    [own.clone(), data.into()].into_iter().find(has).unwrap_or(own)
}

/// Reads the file of a text.
pub fn read(name: &TextName, expected: &Expected<'_>, data: &Path) -> Result<(PathBuf, Vec<Record>)> {
    let folder = locate(name, expected, data);
    let records =
        checked::read(&folder, expected, parse).map_err(|error| folder::with_command(error, name, data))?;
    let path = checked::find(&folder, expected.name).unwrap_or(folder);
    Ok((path, records))
}
