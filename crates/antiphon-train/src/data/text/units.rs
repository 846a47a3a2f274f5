//! The units of a text, each with everything that it wrote.

use super::lines::{Record, parse};
use super::{TextName, TextUnit};
use crate::data::checked::Checked;
use antiphon::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// All text of a unit, in the order of the file.
#[derive(Debug)]
pub struct Unit {
    /// The user to whom it belongs.
    pub user: String,
    /// What it wrote; each may have several lines.
    pub texts: Vec<String>,
}

/// The units of a text in the order of their names, and what to call the place that they come from.
pub fn read(name: &TextName, _data: &Path, unit: TextUnit) -> Result<(PathBuf, Vec<Unit>)> {
    let (path, records) = match name {
        TextName::File(path) => {
            let bytes = fs::read(path).map_err(|source| Error::Io { path: path.clone(), source })?;
            (path.clone(), parse(&bytes))
        }
        name => return Err(Error::Unsupported(format!("{name} is not there yet"))),
    };
    let units = records.and_then(|records| group(records, unit));
    units.map(|units| (path.clone(), units)).map_err(|reason| Error::File { path, reason })
}

/// Puts the lines of each unit together.
pub fn group(records: Vec<Record>, unit: TextUnit) -> Checked<Vec<Unit>> {
    let mut units: BTreeMap<(String, Option<String>), Vec<String>> = BTreeMap::new();
    for (i, Record { user, conversation, text }) in records.into_iter().enumerate() {
        let conversation = match (unit, conversation) {
            (TextUnit::User, _) => None,
            (TextUnit::ConversationSide, Some(conversation)) => Some(conversation),
            (TextUnit::ConversationSide, None) => {
                return Err(format!(
                    "line {}: expected a field \"conversation\", because units are conversation sides, found none",
                    i + 1
                ));
            }
        };
        units.entry((user, conversation)).or_default().push(text);
    }
    Ok(units.into_iter().map(|((user, _), texts)| Unit { user, texts }).collect())
}
