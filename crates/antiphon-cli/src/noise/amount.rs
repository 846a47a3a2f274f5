//! How much noise: one of three ways to say it.

use crate::args::only;
use antiphon::accounting::calibrate::{self, Run};
use antiphon::accounting::{Adjacency, NoiseMultiplier, Params};
use antiphon::error::{Error, Result};
use antiphon::noise::Stddev;
use antiphon::noise::file::Amount;
use antiphon::verify::Verified;
use clap::Args;

/// The flags.
#[derive(Args)]
#[command(
    next_help_heading = "How much (exactly one of --noise-multiplier; --epsilon and --delta; --stddev)"
)]
pub struct AmountArgs {
    /// Noise standard deviation divided by sensitivity
    #[arg(long, value_name = "Z", allow_negative_numbers = true)]
    noise_multiplier: Option<f64>,
    /// The ε of (ε, δ)-differential privacy, for which the smallest noise multiplier is found
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    epsilon: Option<f64>,
    /// The δ of (ε, δ)-differential privacy, in (0, 1): choose it well below one over the number of examples
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    delta: Option<f64>,
    /// The norm to which each example's gradient is clipped; not with --stddev (default: 1)
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    clip_norm: Option<f64>,
    /// The standard deviation of Z itself. No privacy is claimed
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    stddev: Option<f64>,
}

/// What the flags ask for.
#[derive(Clone, Copy)]
pub enum Asked {
    /// A standard deviation for which no privacy is claimed.
    Stddev(f64),
    /// A noise multiplier, and a clip norm.
    Multiplier(NoiseMultiplier, f64),
}

impl AmountArgs {
    /// What is wrong with the flags, and the noise multiplier if that can be known before the work on the file.
    pub fn check(&self) -> Result<Asked> {
        let Some(multiplier) = self.multiplier()? else {
            let stddev = self.stddev.unwrap_or(f64::NAN);
            positive("--stddev", stddev)?;
            return Ok(Asked::Stddev(stddev));
        };
        let clip_norm = self.clip_norm.unwrap_or(1.0);
        positive("--clip-norm", clip_norm)?;
        Ok(Asked::Multiplier(multiplier, clip_norm))
    }

    /// The standard deviation, and the figures that it follows from.
    pub fn find(&self, asked: Asked, mechanism: &Verified) -> Result<(Stddev, Amount)> {
        match asked {
            Asked::Stddev(stddev) => {
                let (noise_multiplier, clip_norm, sensitivity, epsilon, delta) =
                    (None, None, None, None, None);
                let amount = Amount { stddev, noise_multiplier, clip_norm, sensitivity, epsilon, delta };
                Ok((Stddev::without_privacy(stddev)?, amount))
            }
            Asked::Multiplier(multiplier, clip_norm) => {
                let stddev = Stddev::of(mechanism, multiplier, clip_norm)?;
                let amount = Amount {
                    stddev: stddev.value(),
                    noise_multiplier: Some(multiplier.value()),
                    clip_norm: Some(clip_norm),
                    sensitivity: Some(mechanism.sensitivity()),
                    epsilon: self.epsilon,
                    delta: self.delta,
                };
                Ok((stddev, amount))
            }
        }
    }

    /// The noise multiplier, given or found; nothing where the standard deviation is given instead.
    fn multiplier(&self) -> Result<Option<NoiseMultiplier>> {
        let others = [("--epsilon", self.epsilon), ("--delta", self.delta), ("--stddev", self.stddev)];
        if let Some(multiplier) = self.noise_multiplier {
            only("--noise-multiplier", &others)?;
            positive("--noise-multiplier", multiplier)?;
            return Ok(Some(NoiseMultiplier::new(multiplier)?));
        }
        if self.stddev.is_some() {
            only("--stddev", &others[..2])?;
            only("--stddev", &[("--clip-norm", self.clip_norm)])?;
            return Ok(None);
        }
        match (self.epsilon, self.delta) {
            (Some(epsilon), Some(delta)) => {
                let found = calibrate::noise_multiplier(Run::Matrix, epsilon, delta, Adjacency::ZeroOut, &Params::default())?;
                Ok(Some(found.noise_multiplier))
            }
            (Some(_), None) => {
                let allowed = "given together with --epsilon: in (0, 1), well below one over the number of examples";
                Err(Error::argument("--delta", allowed, "nothing"))
            }
            (None, Some(_)) => Err(Error::argument("--epsilon", "given together with --delta", "nothing")),
            (None, None) => Err(Error::Unsupported(
                "the amount of noise is missing: give --noise-multiplier Z, or --epsilon E --delta D, or --stddev SIGMA (no privacy \
                 is claimed then)"
                    .into(),
            )),
        }
    }

    /// An error about a standard deviation that was not given as such.
    pub fn explain(&self, error: Error) -> Error {
        match error {
            Error::Argument { argument, allowed, value } if argument == "stddev" && self.stddev.is_none() => {
                let argument = "the stddev, noise multiplier · clip norm · sensitivity,".into();
                Error::Argument { argument, allowed, value }
            }
            other => other,
        }
    }
}

fn positive(flag: &str, x: f64) -> Result<()> {
    let fine = x > 0.0 && x.is_finite();
    if fine { Ok(()) } else { Err(Error::argument(flag, "positive and finite", x)) }
}
