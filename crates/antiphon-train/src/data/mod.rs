//! Images with labels, and text of users ([`text`]): where they come from, and what a training run gets.
//!
//! | name | images (training, test) | shape | where from |
//! |---|---|---|---|
//! | [`digits`] | 1,440 and 357 | 1×8×8 | compiled in |
//! | [`fashion_mnist`] | 60,000 and 10,000 | 1×28×28 | files of the user, or [`fetch`](mod@fetch) |
//! | [`cifar10`] | 50,000 and 10,000 | 3×32×32 | files of the user, or [`fetch`](mod@fetch) |
//!
//! Nothing is believed of a file: its format, its counts and a checksum of its content must be right, so a run that names a
//! data set has trained on that data set. [`images`] says how pixels become numbers: by a fixed formula that looks at no data,
//! because means and variances of private images are not free.
//!
//! ```
//! use antiphon_train::data::{Name, load};
//! # fn main() -> antiphon::Result<()> {
//! let digits = load(Name::Digits, "unused".as_ref())?;
//! assert_eq!((digits.train.len(), digits.test.len(), digits.shape), (1440, 357, (1, 8, 8)));
//! let mut pixels = [0.0; 64];
//! digits.train.fill(0, &mut pixels);
//! assert!(pixels.iter().all(|x| (-1.0..=1.0).contains(x)));
//! # Ok(())
//! # }
//! ```

pub mod cifar10;
pub mod digits;
pub mod fashion_mnist;
pub mod fetch;
pub mod folder;
pub mod images;
pub mod text;

mod checked;
mod idx;
mod inspect;
mod records;
#[cfg(test)]
mod tests;

pub use fetch::{fetch, fetch_text};
pub use folder::default_folder;
pub use images::Images;
pub use inspect::{Inspected, State, inspect, inspect_text};

use antiphon::error::{Error, Result};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use text::TextName;

/// The data sets that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// Handwritten digits, 8×8: small enough to be compiled in.
    Digits,
    /// Pictures of clothes, 28×28.
    FashionMnist,
    /// Coloured photographs, 32×32.
    Cifar10,
}

impl Name {
    /// All of them.
    pub const ALL: [Name; 3] = [Name::Digits, Name::FashionMnist, Name::Cifar10];

    /// The name as users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Digits => "digits",
            Name::FashionMnist => "fashion-mnist",
            Name::Cifar10 => "cifar10",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Name::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| {
            Error::argument("dataset", format!("one of {}", Name::ALL.map(Name::as_str).join(", ")), text)
        })
    }
}

/// The name of a data set: images or text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataName {
    /// Images.
    Images(Name),
    /// Text of users.
    Text(TextName),
}

impl DataName {
    /// All that are known: without files of the user.
    pub fn known() -> Vec<DataName> {
        Name::ALL.into_iter().map(DataName::from).chain(TextName::KNOWN.map(DataName::from)).collect()
    }
}

impl From<Name> for DataName {
    fn from(name: Name) -> Self {
        DataName::Images(name)
    }
}

impl From<TextName> for DataName {
    fn from(name: TextName) -> Self {
        DataName::Text(name)
    }
}

impl fmt::Display for DataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataName::Images(name) => name.fmt(f),
            DataName::Text(name) => name.fmt(f),
        }
    }
}

impl FromStr for DataName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = DataName::known();
        let names = || known.iter().map(DataName::to_string).collect::<Vec<_>>().join(", ");
        let found = known.iter().find(|name| name.to_string() == text).cloned();
        found.ok_or_else(|| Error::argument("dataset", format!("one of {}", names()), text))
    }
}

/// Images to train on and images to test on.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Which data set this is.
    pub name: Name,
    /// Channels, height and width of an image.
    pub shape: (usize, usize, usize),
    /// How many classes there are; labels are below that.
    pub classes: usize,
    /// The images to train on, in the order of the files.
    pub train: Images,
    /// The images to test on, in the order of the files.
    pub test: Images,
}

/// Reads a data set from the files in a folder (see [`folder::locate`]); the digits need none.
///
/// A file that is missing, cut off or altered is an error that says what was expected and found, and how to get the right one.
pub fn load(name: Name, data: &Path) -> Result<Dataset> {
    match name {
        Name::Digits => digits::load(),
        Name::FashionMnist => fashion_mnist::load(data),
        Name::Cifar10 => cifar10::load(data),
    }
}
