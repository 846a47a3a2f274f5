//! Where the files are.

use super::{Name, checked, cifar10, fashion_mnist};
use antiphon::error::{Error, Hint, Result};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The user's folder for data: `$ANTIPHON_DATA`, or `antiphon` in `$XDG_DATA_HOME`, or in `~/.local/share`.
pub fn default_folder() -> Result<PathBuf> {
    from_environment(|name| std::env::var_os(name), std::env::home_dir())
}

pub(super) fn from_environment(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
) -> Result<PathBuf> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("ANTIPHON_DATA") {
        return Ok(folder);
    }
    // The XDG base directory specification: a relative path is to be ignored.
    let share = variable("XDG_DATA_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| home.filter(|home| home.is_absolute()).map(|home| home.join(".local/share")));
    share.map(|share| share.join("antiphon")).ok_or_else(|| {
        Error::Unsupported("no folder for data sets (HOME is not set)".into()).with(Hint::DataFolder)
    })
}

/// The folder with the files of a data set: one of its own in `data`, or `data` itself where a file of it lies there. Where there
/// is none of either, the one that a fetch makes.
pub fn locate(name: Name, data: &Path) -> PathBuf {
    let own = own_folder(name, data);
    // As the official archive unpacks.
    let unpacked = data.join("cifar-10-batches-bin");
    let has_some = |folder: &PathBuf| files(name).iter().any(|file| checked::find(folder, file).is_some());
    [own.clone(), unpacked, data.into()].into_iter().find(has_some).unwrap_or(own)
}

/// The folder that a fetch writes to.
pub fn own_folder(name: Name, data: &Path) -> PathBuf {
    data.join(name.as_str())
}

/// The files of a data set, by the names that they have when not compressed.
pub fn files(name: Name) -> Vec<&'static str> {
    match name {
        Name::Digits => Vec::new(),
        Name::FashionMnist => fashion_mnist::FILES.iter().map(|(file, ..)| *file).collect(),
        Name::Cifar10 => cifar10::FILES.iter().map(|(file, _)| *file).collect(),
    }
}

/// An error about a file, with the command that gets the right one.
pub(super) fn with_command(error: Error, name: impl Display, data: &Path) -> Error {
    match error {
        Error::File { path, reason } => {
            let reason = format!("{reason}; `{}` gets the right file", fetch_command(name, data));
            Error::File { path, reason }
        }
        error => error,
    }
}

/// The command that gets the files of a data set.
pub fn fetch_command(name: impl Display, data: &Path) -> String {
    let command = format!("antiphon data fetch {name}");
    if default_folder().is_ok_and(|folder| folder == data) {
        return command;
    }
    let data = data.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    match data.chars().all(plain) {
        true => format!("{command} --data {data}"),
        false => format!("{command} --data '{}'", data.replace('\'', "'\\''")),
    }
}
