//! What a token is.

use super::TextName;
use antiphon::error::{Error, Result};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tokens {
    /// Words of letters, digits and apostrophes inside of them, in lower case, and the marks `. , ! ? ;`. All else is left out.
    Words,
    /// Every character; white space is a space, and none at the ends of a line. Control characters are left out.
    Characters,
}

/// The marks that are tokens beside words.
const MARKS: &str = ".,!?;";

impl Tokens {
    /// The usual for a text: characters for the poems, words for all else.
    pub fn usual(name: &TextName) -> Self {
        match name {
            TextName::Poets | TextName::Poetry => Tokens::Characters,
            TextName::Chitchat | TextName::File(_) => Tokens::Words,
        }
    }

    /// The usual number of tokens of a line.
    pub fn line_length(self) -> usize {
        match self {
            Tokens::Words => 20,
            Tokens::Characters => 24,
        }
    }

    /// The usual size of a vocabulary.
    pub fn vocabulary_size(self) -> usize {
        match self {
            Tokens::Words => 2000,
            Tokens::Characters => 1000,
        }
    }

    /// A line as [`split`](Tokens::split) wants it: in lower case with one form of apostrophe, or with one form of white space.
    pub fn prepare(self, line: &str) -> Cow<'_, str> {
        match self {
            Tokens::Words => Cow::Owned(line.to_lowercase().replace(['’', '‘', '＇'], "'")),
            Tokens::Characters => {
                let line = line.trim();
                let plain = |c: char| c == ' ' || !(c.is_whitespace() || c.is_control());
                if line.chars().all(plain) {
                    return Cow::Borrowed(line);
                }
                let spaced = line.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
                Cow::Owned(spaced.filter(|c| !c.is_control()).collect())
            }
        }
    }

    /// The tokens of a line that is prepared.
    pub fn split(self, line: &str) -> Split<'_> {
        Split { tokens: self, rest: line }
    }
}

/// The tokens of a line.
#[derive(Clone, Debug)]
pub struct Split<'a> {
    tokens: Tokens,
    rest: &'a str,
}

impl<'a> Split<'a> {
    /// So many bytes from the front.
    fn take_bytes(&mut self, bytes: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        token
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.tokens == Tokens::Characters {
            let first = self.rest.chars().next()?;
            return Some(self.take_bytes(first.len_utf8()));
        }
        let in_word = |c: char| c.is_alphanumeric() || c == '\'';
        // An apostrophe at the beginning of a word is taken for a quotation mark, and so is one at its end.
        self.rest = self.rest.trim_start_matches(|c: char| !c.is_alphanumeric() && !MARKS.contains(c));
        let first = self.rest.chars().next()?;
        if MARKS.contains(first) {
            return Some(self.take_bytes(first.len_utf8()));
        }
        let bytes = self.rest.find(|c| !in_word(c)).unwrap_or(self.rest.len());
        Some(self.take_bytes(bytes).trim_end_matches('\''))
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tokens::Words => "words",
            Tokens::Characters => "characters",
        })
    }
}

impl FromStr for Tokens {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = [Tokens::Words, Tokens::Characters].into_iter().find(|tokens| tokens.to_string() == text);
        found.ok_or_else(|| Error::argument("tokens", "words or characters", text))
    }
}
