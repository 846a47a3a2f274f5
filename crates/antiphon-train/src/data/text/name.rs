//! The names of texts, and of units of privacy in them.

use antiphon::error::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The texts that are known, and files of the user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextName {
    /// Poets of the Tang and the Song with a few lines of each: small enough to be compiled in.
    Poets,
    /// The same poets with all their poems.
    Poetry,
    /// Conversations in English of people who do not know each other.
    Chitchat,
    /// A file of lines `{"user": …, "text": …}`.
    File(PathBuf),
}

impl TextName {
    /// All that are not files of the user.
    pub const KNOWN: [TextName; 3] = [TextName::Poets, TextName::Poetry, TextName::Chitchat];
}

impl fmt::Display for TextName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextName::Poets => f.pad("poets"),
            TextName::Poetry => f.pad("poetry"),
            TextName::Chitchat => f.pad("chitchat"),
            TextName::File(path) => f.pad(&path.to_string_lossy()),
        }
    }
}

impl FromStr for TextName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(known) = TextName::KNOWN.into_iter().find(|name| name.to_string() == text) {
            return Ok(known);
        }
        match text.ends_with(".jsonl") || Path::new(text).is_file() {
            true => Ok(TextName::File(text.into())),
            false => Err(Error::argument("dataset", "poets, poetry, chitchat or a file of JSON lines", text)),
        }
    }
}

/// Whose text is one unit: what can change without the result of a private training changing by much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextUnit {
    /// All text of a user.
    User,
    /// What a user said in one conversation. A user of many conversations is protected less than a user of one.
    ConversationSide,
}

impl fmt::Display for TextUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TextUnit::User => "user",
            TextUnit::ConversationSide => "conversation-side",
        })
    }
}

impl FromStr for TextUnit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [TextUnit::User, TextUnit::ConversationSide];
        let found = all.into_iter().find(|unit| unit.to_string() == text);
        found.ok_or_else(|| Error::argument("unit", "user or conversation-side", text))
    }
}
