//! The tokens that numbers stand for.

use super::{BEGIN, END, FIRST_WORD, TextName, TextOptions, Tokens, UNKNOWN, Unit};
use crate::data::checked::Checked;
use antiphon::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a vocabulary is to come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VocabularyChoice {
    /// A public list that is compiled in, where there is one for the text; otherwise the training text.
    Usual,
    /// The training text.
    FromData,
    /// A public list of the user's: a file with one token on each line, the most important first.
    File(PathBuf),
}

/// Where a vocabulary came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A list that does not depend on the users of the text; what list.
    Public(String),
    /// A file that was named. Whether it is public cannot be known.
    Named(String),
    /// Counted in the training text. It depends on the users, and ε does not cover that.
    Data,
}

/// Tokens and their numbers.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    words: Vec<String>,
    ids: HashMap<String, u32>,
    source: Source,
}

impl Vocabulary {
    /// The first of these that fit into a size; a word that comes again is left out.
    fn new(words: impl IntoIterator<Item = String>, size: usize, source: Source) -> Self {
        let mut vocabulary = Vocabulary { words: Vec::new(), ids: HashMap::new(), source };
        for word in words {
            if vocabulary.len() == size {
                break;
            }
            let id = vocabulary.len() as u32;
            if !vocabulary.ids.contains_key(&word) {
                vocabulary.ids.insert(word.clone(), id);
                vocabulary.words.push(word);
            }
        }
        vocabulary
    }

    /// How many tokens there are, [`BEGIN`], [`END`] and [`UNKNOWN`] included.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        FIRST_WORD as usize + self.words.len()
    }

    /// The number of a word; [`UNKNOWN`] if it is not in the vocabulary.
    pub fn id(&self, word: &str) -> u32 {
        self.ids.get(word).copied().unwrap_or(UNKNOWN)
    }

    /// The word with a number below [`len`](Vocabulary::len); `<begin>`, `<end>` and `<unknown>` for the special ones.
    pub fn word(&self, id: u32) -> &str {
        match id {
            BEGIN => "<begin>",
            END => "<end>",
            UNKNOWN => "<unknown>",
            id => &self.words[(id - FIRST_WORD) as usize],
        }
    }

    /// Whether a token is a mark or a space; false for the special ones.
    pub fn is_punctuation(&self, id: u32) -> bool {
        id >= FIRST_WORD && !self.word(id).chars().any(char::is_alphanumeric)
    }

    /// Where the words came from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Adds source and words to a sum, lengths first.
    pub(super) fn add_to(&self, sum: &mut Sha256) {
        sum.update([matches!(self.source, Source::Data) as u8]);
        sum.update((self.words.len() as u64).to_le_bytes());
        for word in &self.words {
            sum.update((word.len() as u64).to_le_bytes());
            sum.update(word);
        }
    }
}

/// The vocabulary for a text; `place` is where the text came from.
pub(super) fn choose(
    name: &TextName,
    options: &TextOptions,
    tokens: Tokens,
    place: &Path,
    train: &[&Unit],
) -> Result<Vocabulary> {
    let size = options.vocabulary_size;
    let (vocabulary, found) = match (&options.vocabulary, shipped(name, tokens)) {
        (VocabularyChoice::File(path), _) => (from_file(path, tokens, size)?, path.display().to_string()),
        (VocabularyChoice::Usual, Some((list, words))) => {
            let words = words.lines().map(String::from);
            (Vocabulary::new(words, size, Source::Public(list.into())), list.into())
        }
        (VocabularyChoice::Usual | VocabularyChoice::FromData, _) => {
            let found = format!("the text to train on in {}", place.display());
            (Vocabulary::new(by_frequency(tokens, train), size, Source::Data), found)
        }
    };
    match vocabulary.words.is_empty() {
        false => Ok(vocabulary),
        true => Err(Error::argument(
            "vocabulary",
            format!("at least one token ({tokens})"),
            format!("none from {found}"),
        )),
    }
}

/// Characters of books of the Ming and the Qing; `lists/README.md` says which, and under which licence.
pub(in crate::data) const CHARACTERS: &str = include_str!("lists/characters.txt");
/// Words of film subtitles; `lists/README.md` says from where, and under which licence.
pub(in crate::data) const WORDS: &str = include_str!("lists/words.txt");

/// What the list for a text is called, and the list, if one is compiled in. None for files of the user: their language is not known.
fn shipped(name: &TextName, tokens: Tokens) -> Option<(&'static str, &'static str)> {
    match (name, tokens) {
        (TextName::Poets | TextName::Poetry, _) => {
            Some(("frequent Chinese characters of books of the Ming and the Qing", CHARACTERS))
        }
        (TextName::Chitchat, Tokens::Words) => Some(("frequent English words of film subtitles", WORDS)),
        (TextName::Chitchat, Tokens::Characters) | (TextName::File(_), _) => None,
    }
}

/// The tokens of units, the most frequent first, and among equals in the order of the characters.
fn by_frequency(tokens: Tokens, units: &[&Unit]) -> impl Iterator<Item = String> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for line in units.iter().flat_map(|unit| &unit.texts).flat_map(|text| text.lines()) {
        for token in tokens.split(&tokens.prepare(line)) {
            match counts.get_mut(token) {
                Some(count) => *count += 1,
                None => drop(counts.insert(token.into(), 1)),
            }
        }
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts.into_iter().map(|(token, _)| token)
}

/// The list in a file.
fn from_file(path: &Path, tokens: Tokens, size: usize) -> Result<Vocabulary> {
    let bytes = fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let words = parse(&bytes, tokens).map_err(|reason| Error::File { path: path.into(), reason })?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(Vocabulary::new(words, size, Source::Named(name.into())))
}

/// A token from each line that is not empty, as the tokens of a text are.
fn parse(bytes: &[u8], tokens: Tokens) -> Checked<Vec<String>> {
    let text =
        str::from_utf8(bytes).map_err(|error| format!("expected UTF-8, found something else: {error}"))?;
    let mut words = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let prepared = tokens.prepare(line);
        let mut split = tokens.split(&prepared);
        match (split.next(), split.next()) {
            (Some(word), None) => words.push(word.into()),
            _ => return Err(format!("line {}: expected one token ({tokens}), found \"{line}\"", i + 1)),
        }
    }
    Ok(words)
}
