//! The units of a text, each with everything that it wrote.

use super::lines::{Record, parse};
use super::{TextName, TextUnit, Tokens, canonical, poets};
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
pub fn read(name: &TextName, data: &Path, unit: TextUnit) -> Result<(PathBuf, Vec<Unit>)> {
    let (path, records) = records(name, data)?;
    match group(records, unit) {
        Ok(units) => Ok((path, units)),
        Err(reason) => Err(Error::File { path, reason }),
    }
}

fn records(name: &TextName, data: &Path) -> Result<(PathBuf, Vec<Record>)> {
    if let Some(expected) = canonical::file(name) {
        return canonical::read(name, expected, data);
    }
    match name {
        TextName::File(path) => {
            let io = |source| Error::Io { path: path.clone(), source };
            // A pipe would be waited for without an end.
            if !fs::metadata(path).map_err(io)?.is_file() {
                return Err(Error::File { path: path.clone(), reason: "expected a regular file".into() });
            }
            let bytes = fs::read(path).map_err(|source| Error::Io { path: path.clone(), source })?;
            let refuse = |reason| Error::File { path: path.clone(), reason };
            Ok((path.clone(), parse(&bytes).map_err(refuse)?))
        }
        name => Ok((name.to_string().into(), poets::records()?)),
    }
}

/// How much text there is, in all parts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSize {
    /// Units.
    pub users: usize,
    /// Lines with at least one token.
    pub lines: usize,
    /// Tokens as is usual for the text, before lines are cut.
    pub tokens: usize,
}

/// Reads a text and counts.
pub fn size(name: &TextName, data: &Path, unit: TextUnit) -> Result<TextSize> {
    let (_, units) = read(name, data, unit)?;
    let tokens = Tokens::usual(name);
    let mut size = TextSize { users: units.len(), lines: 0, tokens: 0 };
    for line in units.iter().flat_map(|unit| &unit.texts).flat_map(|text| text.lines()) {
        let count = tokens.split(&tokens.prepare(line)).count();
        size.lines += usize::from(count > 0);
        size.tokens += count;
    }
    Ok(size)
}

/// Puts the lines of each unit together.
pub fn group(records: Vec<Record>, unit: TextUnit) -> Checked<Vec<Unit>> {
    let mut units: BTreeMap<(String, Option<String>), Vec<String>> = BTreeMap::new();
    for Record { user, conversation, text } in records {
        let conversation = match (unit, conversation) {
            (TextUnit::User, _) => None,
            (TextUnit::ConversationSide, Some(conversation)) => Some(conversation),
            (TextUnit::ConversationSide, None) => {
                return Err(format!(
                    "expected a field \"conversation\" on every line, because units are conversation sides, \
                     found none on a line of user {user:?}"
                ));
            }
        };
        units.entry((user, conversation)).or_default().push(text);
    }
    Ok(units.into_iter().map(|((user, _), texts)| Unit { user, texts }).collect())
}
