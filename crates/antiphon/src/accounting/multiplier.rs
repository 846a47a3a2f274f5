//! The noise multiplier.

use super::event::check_multiplier;
use crate::error::Result;
use serde::Serialize;

/// Noise standard deviation over the sensitivity under zero-out, whatever the neighbouring relation: z. Checked to be in the range that
/// is accounted for.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct NoiseMultiplier(f64);

impl NoiseMultiplier {
    /// In [[`MIN_NOISE_MULTIPLIER`](super::event::MIN_NOISE_MULTIPLIER), [`MAX_NOISE_MULTIPLIER`](super::event::MAX_NOISE_MULTIPLIER)].
    pub fn new(z: f64) -> Result<NoiseMultiplier> {
        check_multiplier(z)?;
        Ok(NoiseMultiplier(z))
    }

    /// z.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl std::fmt::Display for NoiseMultiplier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
