//! The flags that say which examples are in which step, and which noise goes with them.

use crate::args::whole;
use antiphon::error::{Error, Result};
use antiphon_train::kind::Kind;
use antiphon_train::order::Order;
use antiphon_train::settings::Settings;
use clap::{Args, ValueEnum};

/// Which examples are in which step.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Which examples are in which step; --help explains it (default: fixed; for dp-sgd poisson)
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    sampling: Option<Sampling>,
    /// For --sampling min-separation: two participations of an example are at least B steps apart (default: half of the steps of an epoch,
    /// at least 1)
    #[arg(long, value_name = "B", value_parser = whole, allow_negative_numbers = true)]
    min_separation: Option<usize>,
    /// For --sampling min-separation: an example takes part at most K times (default, and the least: the number of epochs; for users the
    /// number of turns that the rounds ask of each, which may be one more)
    #[arg(long, value_name = "K", value_parser = whole, allow_negative_numbers = true)]
    max_participations: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Sampling {
    Fixed,
    Reshuffled,
    MinSeparation,
    Poisson,
}

impl SamplingArgs {
    /// The mechanism of a run for which none is named; nothing in fixed order, where the number of steps decides.
    pub fn mechanism(&self) -> Option<&'static str> {
        match self.sampling {
            None | Some(Sampling::Fixed) => None,
            Some(Sampling::Reshuffled) => Some("per-epoch"),
            Some(Sampling::MinSeparation) => Some("single-epoch"),
            Some(Sampling::Poisson) => Some("dp-sgd"),
        }
    }

    /// Refuses flags of another sampling.
    pub fn check(&self) -> Result<()> {
        let flags =
            [("--min-separation", self.min_separation), ("--max-participations", self.max_participations)];
        match flags.iter().find_map(|(flag, value)| Some((flag, (*value)?))) {
            Some((flag, value)) if self.sampling != Some(Sampling::MinSeparation) => {
                Err(Error::argument(*flag, "left out without --sampling min-separation", value))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a sampling under which the privacy of a kind (none: of a mechanism file) is not accounted for.
    pub fn check_for(&self, kind: Option<Kind>) -> Result<()> {
        let Some(sampling) = self.sampling else {
            return Ok(());
        };
        let allowed = match (kind, sampling) {
            (Some(Kind::DpSgd), Sampling::Poisson) | (Some(Kind::ShuffledDpSgd), Sampling::Fixed) => {
                return Ok(());
            }
            (Some(Kind::DpSgd), _) => "poisson for dp-sgd, whose privacy is accounted for Poisson samples",
            (Some(Kind::ShuffledDpSgd), _) => "fixed for dp-sgd-shuffled, which shuffles once",
            (_, Sampling::Poisson) => {
                "fixed, reshuffled or min-separation for a matrix mechanism (its privacy is not accounted for under \
                 Poisson sampling)"
            }
            _ => return Ok(()),
        };
        Err(Error::argument("--sampling", allowed, sampling.name()))
    }

    /// The order of the examples; fixed for Poisson samples, which have none.
    pub fn order(&self, settings: &Settings, units: usize, federated: bool) -> Order {
        let (epochs, steps_per_epoch) = (settings.epochs, settings.steps_per_epoch(units));
        match self.sampling {
            None | Some(Sampling::Fixed | Sampling::Poisson) => Order::Fixed,
            Some(Sampling::Reshuffled) => Order::Reshuffled,
            Some(Sampling::MinSeparation) if federated => Order::Rested {
                min_separation: self.min_separation.unwrap_or((steps_per_epoch / 2).max(1)),
                // As many turns as the rounds ask for.
                max_participations: self
                    .max_participations
                    .unwrap_or((settings.steps(units) * settings.batch_size).div_ceil(units)),
            },
            Some(Sampling::MinSeparation) => {
                Order::separated(self.min_separation, self.max_participations, epochs, steps_per_epoch)
            }
        }
    }
}

impl Sampling {
    fn name(self) -> &'static str {
        match self {
            Sampling::Fixed => "fixed",
            Sampling::Reshuffled => "reshuffled",
            Sampling::MinSeparation => "min-separation",
            Sampling::Poisson => "poisson",
        }
    }
}
