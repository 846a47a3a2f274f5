//! σ, the standard deviation of the numbers in Z.

use crate::accounting::NoiseMultiplier;
use crate::error::{Error, Result};
use crate::verify::Verified;

/// σ. It follows from what privacy needs; a bare number is none.
///
/// ```compile_fail
/// let sigma = antiphon::noise::Stddev(0.5);
/// ```
///
/// ```compile_fail
/// let sigma: antiphon::noise::Stddev = 0.5.into();
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stddev(f64);

impl Stddev {
    /// Noise multiplier times clip norm times the sensitivity of a verified mechanism. The neighbouring relation is in the noise
    /// multiplier already.
    pub fn of(mechanism: &Verified, multiplier: NoiseMultiplier, clip_norm: f64) -> Result<Stddev> {
        Stddev::of_sensitivity(mechanism.sensitivity(), multiplier, clip_norm)
    }

    /// The only place where σ is computed.
    pub(crate) fn of_sensitivity(
        sensitivity: f64,
        multiplier: NoiseMultiplier,
        clip_norm: f64,
    ) -> Result<Stddev> {
        check_clip_norm(clip_norm)?;
        let stddev = multiplier.value() * clip_norm * sensitivity * (1.0 + 1e-15); // up: three roundings of a product
        match stddev > 0.0 && stddev.is_finite() {
            true => Ok(Stddev(stddev)),
            false => {
                let allowed =
                    "such that its product with noise multiplier and sensitivity is positive and finite";
                Err(Error::argument("clip_norm", allowed, format!("{clip_norm:e}")))
            }
        }
    }

    /// A standard deviation for which no privacy is claimed: for tests of the noise itself, and for what somebody else accounts for.
    pub fn without_privacy(stddev: f64) -> Result<Stddev> {
        match stddev > 0.0 && stddev.is_finite() {
            true => Ok(Stddev(stddev)),
            false => Err(Error::argument("stddev", "positive and finite", stddev)),
        }
    }

    /// σ.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// Refuses a clip norm that bounds nothing.
pub(crate) fn check_clip_norm(clip_norm: f64) -> Result<()> {
    match clip_norm > 0.0 && clip_norm.is_finite() {
        true => Ok(()),
        false => Err(Error::argument("clip_norm", "positive and finite", clip_norm)),
    }
}
