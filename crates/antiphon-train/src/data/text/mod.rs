//! Text of users, for user-level training: where it comes from, and what a training run gets.
//!
//! | name | users | tokens | where from |
//! |---|---|---|---|
//! | [`TextName::Poets`] | poets of the Tang and the Song, a few lines of each | characters | compiled in |
//! | [`TextName::Poetry`] | the same poets, all their poems | characters | [`fetch`](mod@super::fetch) |
//! | [`TextName::Chitchat`] | people who chat, or their sides of the conversations | words | [`fetch`](mod@super::fetch) |
//! | [`TextName::File`] | the users of a file of lines `{"user": …, "text": …}` | words or characters | the user |
//!
//! Lines become numbers as in the Stack Overflow benchmark of Reddi et al. (Adaptive Federated Optimization, 2020; `to_ids` in
//! TensorFlow Federated's `simulation/baselines/stackoverflow/word_prediction_preprocessing.py`): the first
//! [`line_length`](TextOptions::line_length) tokens of a line, then [`END`] if they are fewer than that; a token that is not in the
//! vocabulary is [`UNKNOWN`]. [`BEGIN`] is not stored: a model puts it in front.
//!
//! Users are divided into those to train on, to validate on and to test on by a hash of their names ([`split`]).
//! A vocabulary that is counted in the training text depends on the users, and no ε of a run covers that: [`Source`] says where
//! it came from.
//!
//! ```
//! use antiphon_train::data::text::{TextName, TextOptions, load_text};
//! # fn main() -> antiphon::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("mine.jsonl");
//! let lines: String = (0..99).map(|i| format!("{{\"user\": {i}, \"text\": \"Hello, world!\"}}\n")).collect();
//! # std::fs::write(&path, lines).unwrap();
//! let name = TextName::File(path);
//! let text = load_text(&name, "unused".as_ref(), &TextOptions::usual(&name, None))?;
//! assert_eq!(text.train.users() + text.validation.users() + text.test.users(), 99);
//! let words: Vec<&str> = text.train.line(0, 0).iter().map(|&id| text.vocabulary.word(id)).collect();
//! assert_eq!(words, ["hello", ",", "world", "!", "<end>"]);
//! # Ok(())
//! # }
//! ```

pub mod corpus;
pub mod split;
pub mod tokens;
pub mod vocabulary;

pub(super) mod canonical;
mod lines;
mod name;
pub(super) mod poets;
mod units;

pub(super) use lines::Record;
#[cfg(test)]
pub(super) use lines::parse;

pub use corpus::Corpus;
pub use name::{TextName, TextUnit};
pub use tokens::Tokens;
pub use vocabulary::{Source, Vocabulary, VocabularyChoice};

use super::checked::hexadecimal;
use antiphon::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use units::Unit;

pub use units::{TextSize, size};

/// The token before a line. It is not stored.
pub const BEGIN: u32 = 0;
/// The token after a line that was not cut.
pub const END: u32 = 1;
/// Any token outside of the vocabulary.
pub const UNKNOWN: u32 = 2;
/// The first token of the vocabulary.
pub const FIRST_WORD: u32 = 3;

/// How text becomes numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// What a token is; none is the usual for the text ([`Tokens::usual`]).
    pub tokens: Option<Tokens>,
    /// Whose text is one unit of privacy.
    pub unit: TextUnit,
    /// Where the vocabulary comes from.
    pub vocabulary: VocabularyChoice,
    /// How many different tokens there are at most, [`BEGIN`], [`END`] and [`UNKNOWN`] included: at least four.
    pub vocabulary_size: usize,
    /// Lines are cut to so many tokens.
    pub line_length: usize,
}

impl TextOptions {
    /// The usual options for a text: units are users, the vocabulary has 1,000 characters or 2,000 words, and lines have 24
    /// characters or 20 words.
    pub fn usual(name: &TextName, tokens: Option<Tokens>) -> Self {
        let kind = tokens.unwrap_or(Tokens::usual(name));
        TextOptions {
            tokens,
            unit: TextUnit::User,
            vocabulary: VocabularyChoice::Usual,
            vocabulary_size: kind.vocabulary_size(),
            line_length: kind.line_length(),
        }
    }

    fn check(&self, name: &TextName) -> Result<Tokens> {
        if self.vocabulary_size <= FIRST_WORD as usize {
            let allowed = "at least 4 (three of them are for the beginning, the end and unknown tokens)";
            return Err(Error::argument("vocabulary_size", allowed, self.vocabulary_size));
        }
        if self.line_length == 0 {
            return Err(Error::argument("line_length", "at least 1", 0));
        }
        let poems = matches!(name, TextName::Poets | TextName::Poetry);
        if poems && self.unit != TextUnit::User {
            return Err(Error::argument("unit", format!("user for {name}"), self.unit));
        }
        if poems && self.tokens == Some(Tokens::Words) {
            return Err(Error::argument("tokens", format!("characters for {name}"), Tokens::Words));
        }
        Ok(self.tokens.unwrap_or(Tokens::usual(name)))
    }
}

/// Text of users to train on, to validate on and to test on, as numbers.
#[derive(Clone, Debug)]
pub struct TextData {
    /// Which text this is.
    pub name: TextName,
    /// Whose text is one unit: what is called a user in a [`Corpus`].
    pub unit: TextUnit,
    /// The tokens that the numbers stand for.
    pub vocabulary: Vocabulary,
    /// The users to train on, in the order of their names.
    pub train: Corpus,
    /// The users to validate on.
    pub validation: Corpus,
    /// The users to test on.
    pub test: Corpus,
    fingerprint: String,
}

impl TextData {
    /// The SHA-256 of the options, the vocabulary and all lines of all users, in hexadecimal. The name of a file is not in it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// Reads a text from its file in the folder `data`, or from where the name says; the bundled one needs none.
///
/// A file that is missing, damaged or not of the right form is an error that says where, what was expected and what was found.
pub fn load_text(name: &TextName, data: &Path, options: &TextOptions) -> Result<TextData> {
    let tokens = options.check(name)?;
    let (path, units) = units::read(name, data, options.unit)?;
    let parts = split::divide(&units).map_err(|reason| Error::File { path: path.clone(), reason })?;
    let vocabulary = vocabulary::choose(name, options, tokens, &path, &parts[0])?;
    let [train, validation, test] = parts.map(|part| {
        encode(part.into_iter().map(|unit| &unit.texts), tokens, &vocabulary, options.line_length)
    });
    let mut data = TextData {
        name: name.clone(),
        unit: options.unit,
        vocabulary,
        train,
        validation,
        test,
        fingerprint: String::new(),
    };
    data.fingerprint = fingerprint(&data, tokens, options.line_length);
    Ok(data)
}

/// The lines of users as numbers. A line without tokens is none.
fn encode<'a>(
    users: impl Iterator<Item = &'a Vec<String>>,
    tokens: Tokens,
    vocabulary: &Vocabulary,
    line_length: usize,
) -> Corpus {
    let mut corpus = Corpus::default();
    let mut ids = Vec::new();
    for texts in users {
        for line in texts.iter().flat_map(|text| text.lines()) {
            ids.clear();
            let line = tokens.prepare(line);
            ids.extend(tokens.split(&line).take(line_length).map(|token| vocabulary.id(token)));
            if ids.is_empty() {
                continue;
            }
            if ids.len() < line_length {
                ids.push(END);
            }
            corpus.push_line(&ids);
        }
        corpus.finish_user();
    }
    corpus.shrink();
    corpus
}

/// Everything that a run depends on. Lengths go first, so no two texts give the same bytes.
fn fingerprint(data: &TextData, tokens: Tokens, line_length: usize) -> String {
    let mut sum = Sha256::new();
    sum.update(format!("antiphon text 1\n{} {tokens} {line_length}\n", data.unit));
    data.vocabulary.add_to(&mut sum);
    for corpus in [&data.train, &data.validation, &data.test] {
        corpus.add_to(&mut sum);
    }
    hexadecimal(&sum.finalize())
}
