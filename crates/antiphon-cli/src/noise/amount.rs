//! How much noise: one of three ways to say it.

use crate::args::only;
use crate::verify::Examined;
use antiphon::accounting::Params;
use antiphon::accounting::calibrate::{self, Run};
use antiphon::error::{Error, Result};
use antiphon::mechanism::Mechanism;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The flags.
#[derive(Args)]
#[command(
    next_help_heading = "How much (exactly one of --noise-multiplier; --epsilon and --delta; --stddev)"
)]
pub struct AmountArgs {
    /// Noise standard deviation divided by sensitivity; the file is verified first
    #[arg(long, value_name = "Z", allow_negative_numbers = true)]
    noise_multiplier: Option<f64>,
    /// The ε of (ε, δ)-differential privacy, for which the smallest noise multiplier is found; the file is verified first
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    epsilon: Option<f64>,
    /// The δ of (ε, δ)-differential privacy, in (0, 1): choose it well below one over the number of examples
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    delta: Option<f64>,
    /// The norm to which each example's gradient is clipped; not with --stddev (default: 1)
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    clip_norm: Option<f64>,
    /// The standard deviation of Z itself. The file is not verified, and no privacy is claimed
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    stddev: Option<f64>,
}

/// The standard deviation of Z and, where it follows from privacy, what it follows from.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    pub stddev: f64,
    pub noise_multiplier: Option<f64>,
    pub clip_norm: Option<f64>,
    /// As it was derived, not as it is claimed.
    pub sensitivity: Option<f64>,
    /// The target, where the noise multiplier was found for one. Neighbours differ by one example's contributions, set to zero.
    pub epsilon: Option<f64>,
    pub delta: Option<f64>,
}

impl AmountArgs {
    /// What was asked for, or nothing where the file does not hold what it claims. `show` prints the verdict on the file then.
    pub fn find(
        &self,
        mechanism: &Mechanism,
        path: &Path,
        show: impl FnOnce(&Examined) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Amount>> {
        // Wrong figures are found out before the work on the file, not after it.
        let Some(multiplier) = self.multiplier()? else {
            return Ok(Some(self.plain()?));
        };
        let clip_norm = self.clip_norm.unwrap_or(1.0);
        positive("--clip-norm", clip_norm)?;
        let examined = Examined::mechanism(mechanism)?;
        if !examined.report.ok() {
            show(&examined)?;
            eprintln!(
                "antiphon: {} fails verification, so no noise is drawn: see antiphon verify",
                path.display()
            );
            return Ok(None);
        }
        let sensitivity = examined.report.sensitivity.upper;
        // Up: three roundings of a product.
        let stddev = multiplier * clip_norm * sensitivity * (1.0 + 1e-15);
        if !(stddev > 0.0 && stddev.is_finite()) {
            let allowed =
                "such that its product with noise multiplier and sensitivity is positive and finite";
            return Err(Error::argument("--clip-norm", allowed, format!("{clip_norm:e}")).into());
        }
        Ok(Some(Amount {
            stddev,
            noise_multiplier: Some(multiplier),
            clip_norm: Some(clip_norm),
            sensitivity: Some(sensitivity),
            epsilon: self.epsilon,
            delta: self.delta,
        }))
    }

    /// The noise multiplier, given or found; nothing where the standard deviation is given instead.
    fn multiplier(&self) -> Result<Option<f64>> {
        let others = [("--epsilon", self.epsilon), ("--delta", self.delta), ("--stddev", self.stddev)];
        if let Some(multiplier) = self.noise_multiplier {
            only("--noise-multiplier", &others)?;
            positive("--noise-multiplier", multiplier)?;
            return Ok(Some(multiplier));
        }
        if self.stddev.is_some() {
            only("--stddev", &others[..2])?;
            only("--stddev", &[("--clip-norm", self.clip_norm)])?;
            return Ok(None);
        }
        match (self.epsilon, self.delta) {
            (Some(epsilon), Some(delta)) => {
                let found = calibrate::noise_multiplier(Run::Matrix, epsilon, delta, &Params::default())?;
                Ok(Some(found.noise_multiplier))
            }
            (Some(_), None) => {
                let allowed = "given together with --epsilon: in (0, 1), well below one over the number of examples";
                Err(Error::argument("--delta", allowed, "nothing"))
            }
            (None, Some(_)) => Err(Error::argument("--epsilon", "given together with --delta", "nothing")),
            (None, None) => Err(Error::Unsupported(
                "the amount of noise is missing: give --noise-multiplier Z, or --epsilon E --delta D, or --stddev SIGMA (the file \
                 is not verified then)"
                    .into(),
            )),
        }
    }

    fn plain(&self) -> Result<Amount> {
        let stddev = self.stddev.unwrap_or(f64::NAN);
        positive("--stddev", stddev)?;
        let (noise_multiplier, clip_norm, sensitivity, epsilon, delta) = (None, None, None, None, None);
        Ok(Amount { stddev, noise_multiplier, clip_norm, sensitivity, epsilon, delta })
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
