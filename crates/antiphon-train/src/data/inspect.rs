//! What is there of a data set.

use super::text::{self, TextName, TextSize, TextUnit};
use super::{DataName, Name, checked, folder, load};
use antiphon::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// What is there of a data set.
#[derive(Debug)]
pub struct Inspected {
    /// The data set.
    pub name: DataName,
    /// Where its files are, or would be; nowhere if it is compiled in.
    pub folder: Option<PathBuf>,
    /// The files that are there, with their sizes on the disk.
    pub files: Vec<(PathBuf, u64)>,
    /// Whether they will do.
    pub state: State,
}

/// Whether a data set can be used.
#[derive(Debug)]
pub enum State {
    /// Every file is what it has to be.
    Valid {
        /// Images to train on.
        train: usize,
        /// Images to test on.
        test: usize,
        /// Channels, height and width of an image.
        shape: (usize, usize, usize),
        /// How many classes there are.
        classes: usize,
    },
    /// The text is what it has to be.
    ValidText(TextSize),
    /// No file of it is there.
    Missing,
    /// Some file is missing or is not what it has to be.
    Damaged(Error),
}

/// Reads all files of a data set and says whether they will do.
pub fn inspect(name: Name, data: &Path) -> Inspected {
    let folder = (name != Name::Digits).then(|| folder::locate(name, data));
    let files: Vec<(PathBuf, u64)> = folder
        .iter()
        .flat_map(|folder| folder::files(name).into_iter().filter_map(|file| checked::find(folder, file)))
        .map(sized)
        .collect();
    let state = if folder.is_some() && files.is_empty() {
        State::Missing
    } else {
        match load(name, data) {
            Ok(set) => State::Valid {
                train: set.train.len(),
                test: set.test.len(),
                shape: set.shape,
                classes: set.classes,
            },
            Err(error) => State::Damaged(error),
        }
    };
    Inspected { name: name.into(), folder, files, state }
}

/// Reads a text and says whether it will do.
pub fn inspect_text(name: &TextName, data: &Path) -> Inspected {
    let expected = text::canonical::file(name);
    let folder = expected.map(|expected| text::canonical::locate(name, expected, data));
    let file = match (name, expected, &folder) {
        (TextName::File(path), ..) => Some(path.clone()).filter(|path| path.exists()),
        (_, Some(expected), Some(folder)) => checked::find(folder, expected.name),
        _ => None,
    };
    let state = match (name, &file) {
        (TextName::Poets, _) | (_, Some(_)) => match text::size(name, data, TextUnit::User) {
            Ok(size) => State::ValidText(size),
            Err(error) => State::Damaged(error),
        },
        _ => State::Missing,
    };
    Inspected { name: name.clone().into(), folder, files: file.into_iter().map(sized).collect(), state }
}

/// A file with its size on the disk.
fn sized(path: PathBuf) -> (PathBuf, u64) {
    let size = fs::metadata(&path).map_or(0, |file| file.len());
    (path, size)
}
