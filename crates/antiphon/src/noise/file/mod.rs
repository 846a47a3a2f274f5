//! A table of noise in a file: what it is, how it is written through kills, and whether a file is one.
//!
//! | file | room |
//! |---|---|
//! | `keys` | the key of a table: where it comes from, and that it serves nothing else |
//! | `job` | writes a table so that a kill loses nothing |
//! | `check` | draws some numbers of a finished table again |

mod check;
mod job;
mod keys;

pub use check::{Verdict, check};
pub use job::{Done, Job, Progress, beside, bytes};
pub use keys::{Claimed, Keys};

use super::key_file::Use;
use super::{Origin, Part, Prepared};
use crate::error::{Error, Result};
use crate::verify::Verified;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The standard deviation of Z and, where it follows from privacy, what it follows from. Figures to show and to compare.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// σ.
    pub stddev: f64,
    /// z.
    pub noise_multiplier: Option<f64>,
    /// ζ.
    pub clip_norm: Option<f64>,
    /// As it was derived, not as it is claimed.
    pub sensitivity: Option<f64>,
    /// The target, where the noise multiplier was found for one. Neighbours differ by one example's contributions, set to zero.
    pub epsilon: Option<f64>,
    /// Likewise.
    pub delta: Option<f64>,
}

/// Noise before it has a key.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct About {
    /// Of the numbers: `<f4`.
    pub dtype: String,
    /// Rows and columns.
    pub shape: [u64; 2],
    /// The first step, and the one after the last.
    pub rows: [usize; 2],
    /// The first coordinate, and the one after the last.
    pub coordinates: [u64; 2],
    /// Parameters of the model, of which the coordinates are some.
    pub params: u64,
    /// How much noise.
    #[serde(flatten)]
    pub amount: Amount,
    /// Of the mechanism file.
    pub id: String,
    /// Of the mechanism's coefficients and the standard deviation: with the key it fixes every number.
    pub noise_id: String,
    /// Of the numbers.
    pub bytes: Option<u64>,
}

impl About {
    /// Of a part of a mechanism's noise.
    pub fn new(mechanism: &Verified, prepared: &Prepared, amount: Amount, part: &Part, params: u64) -> About {
        About {
            dtype: "<f4".into(),
            shape: [part.rows.len() as u64, part.width()],
            rows: [part.rows.start, part.rows.end],
            coordinates: [part.coordinates.start, part.coordinates.end],
            params,
            amount,
            id: mechanism.id(),
            noise_id: prepared.id().into(),
            bytes: part.bytes(),
        }
    }

    /// What a key is used for that draws it.
    pub fn intended(&self) -> Use {
        let (noise_id, stddev) = (self.noise_id.clone(), self.amount.stddev);
        Use::Noise { noise_id, stddev, params: self.params }
    }
}

/// The file beside a finished table: all that is known of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Description {
    /// The version of this form.
    antiphon_noise_table: u32,
    /// Which noise.
    #[serde(flatten)]
    pub about: About,
    /// Bytes before the first number.
    pub offset: u64,
    /// Of the key.
    pub cipher: String,
    /// Of the key.
    pub key_fingerprint: String,
    /// Whether the key comes from a seed.
    pub seeded: bool,
    /// Of the program.
    version: String,
}

impl Description {
    /// Of a table under a key.
    pub fn new(about: &About, keys: &Keys, offset: u64) -> Description {
        Description {
            antiphon_noise_table: 1,
            about: about.clone(),
            offset,
            cipher: keys.key.cipher().name().into(),
            key_fingerprint: keys.key.fingerprint(),
            seeded: keys.key.origin() == Origin::Seed,
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// The one in a file.
    pub fn read(path: &Path) -> Result<Description> {
        let refuse = |reason: String| Error::File { path: path.into(), reason };
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(format!("the description of the table cannot be read: {error}")))?;
        let found: Description = serde_json::from_str(&text)
            .map_err(|error| refuse(format!("is not the description of a table of noise: {error}")))?;
        match found.antiphon_noise_table {
            1 => Ok(found),
            other => Err(refuse(format!("has version {other}; this program reads version 1"))),
        }
    }

    /// The part of the noise that the table has, of so many steps.
    pub fn part(&self, steps: usize) -> Result<Part> {
        let About { rows: [start, end], coordinates: [first, last], shape, bytes, .. } = self.about;
        let part = Part { rows: start..end, coordinates: first..last };
        let fits = start < end && end <= steps && first < last && last <= self.about.params;
        let fits = fits && shape == [part.rows.len() as u64, part.width()] && bytes == part.bytes();
        if fits {
            Ok(part)
        } else {
            Err(Error::Unsupported("rows, coordinates, shape and bytes do not fit".into()))
        }
    }
}
