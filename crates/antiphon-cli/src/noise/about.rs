//! What a table of noise is, in words, as JSON, and in the file beside it.

use super::amount::Amount;
use super::keys::Keys;
use crate::output::{bound, figure, size};
use antiphon::error::{Error, Result};
use antiphon::file;
use antiphon::mechanism::Mechanism;
use antiphon::noise::key_file::Use;
use antiphon::noise::{Part, Prepared};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Noise before it has a key.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct About {
    dtype: String,
    shape: [u64; 2],
    rows: [usize; 2],
    coordinates: [u64; 2],
    /// Parameters of the model, of which the coordinates are some.
    params: u64,
    #[serde(flatten)]
    pub amount: Amount,
    /// Of the mechanism file.
    pub id: String,
    /// Of the mechanism's coefficients and the standard deviation: with the key it fixes every number.
    pub noise_id: String,
    /// Of the numbers.
    bytes: Option<u64>,
}

impl About {
    pub fn new(
        mechanism: &Mechanism,
        prepared: &Prepared,
        amount: Amount,
        part: &Part,
        params: u64,
    ) -> About {
        About {
            dtype: "<f4".into(),
            shape: [part.rows.len() as u64, part.width()],
            rows: [part.rows.start, part.rows.end],
            coordinates: [part.coordinates.start, part.coordinates.end],
            params,
            amount,
            id: file::id(mechanism),
            noise_id: prepared.id().into(),
            bytes: part.bytes(),
        }
    }

    /// What a key is used for that draws it.
    pub fn intended(&self) -> Use {
        let (noise_id, stddev) = (self.noise_id.clone(), self.amount.stddev);
        Use::Noise { noise_id, stddev, params: self.params }
    }

    pub fn shape(&self) -> [u64; 2] {
        self.shape
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let ([rows, width], Amount { stddev, noise_multiplier, clip_norm, sensitivity, epsilon, delta }) =
            (self.shape, self.amount);
        let mut lines = vec![
            format!("  rows          {rows} (steps {}:{})", self.rows[0], self.rows[1]),
            format!("  columns       {width} (coordinates {}:{})", self.coordinates[0], self.coordinates[1]),
            format!("  stddev        {} of Z", figure(stddev)),
        ];
        if let (Some(multiplier), Some(clip_norm), Some(sensitivity)) =
            (noise_multiplier, clip_norm, sensitivity)
        {
            lines.push(format!("                = noise multiplier {multiplier} · clip norm {clip_norm}"));
            lines.push(format!("                · sensitivity {} (derived)", bound(sensitivity, true)));
        }
        if let (Some(epsilon), Some(delta)) = (epsilon, delta) {
            lines.push(format!(
                "  privacy       ε = {epsilon} at δ = {delta:e} for all steps together, under zero-out neighbours;"
            ));
            lines.push("                `antiphon account` states the conditions".into());
        }
        lines.push(format!("  size          {}", self.bytes.map_or("too much".into(), size)));
        lines
    }
}

/// The file beside a finished table: all that is known of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Description {
    /// The version of this form.
    antiphon_noise_table: u32,
    #[serde(flatten)]
    pub about: About,
    /// Bytes before the first number.
    pub offset: u64,
    pub cipher: String,
    pub key_fingerprint: String,
    pub seeded: bool,
    /// Of the program.
    version: String,
}

impl Description {
    pub fn new(about: &About, keys: &Keys, offset: u64) -> Description {
        Description {
            antiphon_noise_table: 1,
            about: about.clone(),
            offset,
            cipher: keys.key.cipher().name().into(),
            key_fingerprint: keys.key.fingerprint(),
            seeded: keys.seeded,
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

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
