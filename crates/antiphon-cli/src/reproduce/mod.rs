//! `antiphon reproduce`: the paper's tables and figures, ours beside theirs. What is expected stands under `repro/`.

mod accuracy;
mod decoders;
mod federated;
mod fft_mse;
mod kept;
mod losses;
mod matrices;
mod noise_multipliers;
mod non_negativity;
mod variance;

use crate::chart::{self, Picture};
use crate::output::program;
use antiphon::atomic;
use antiphon::error::{Error, Result};
use antiphon::families;
use antiphon::mechanism::family::{Designed, Run};
use antiphon::mechanism::stamp::{self, Shared};
use antiphon::mechanism::{DenseFactorization, Noise, Stamped};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use antiphon_train::data::Name;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Reproduce a table or a figure of the paper
///
/// Examples:
///   antiphon reproduce losses
///   antiphon reproduce variance --output pictures
///   antiphon reproduce cifar10 --epsilon 8 --mechanisms optimal,dp-sgd --output results
///   antiphon reproduce federated --part runs --dataset poets --output results
///
/// Exit status: 0 the figures agree with the paper's, 1 they do not, 2 bad input. cifar10,
/// fashion-mnist and the runs of federated train models and compare nothing with the paper: 0 when
/// done. With --output they keep every run in that folder, and the same command continues after a
/// kill (with --force once the pictures are drawn).
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Reproduce {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    pictures: Pictures,
}

#[derive(Subcommand)]
enum What {
    /// The table on non-negativity constraints: n = 6, k = 3, b = 2; 18 entries, with dual bounds for the errors
    NonNegativity,
    /// The table of prefix-sum losses: 20 epochs of 100 steps, 30 mechanisms
    Losses,
    /// The table of noise multipliers for StackOverflow: ε of each, and the noise that each ε needs
    NoiseMultipliers,
    /// The figure on the FFT mechanism's near-optimality: its mean squared error against n, with lower bounds
    FftMse,
    /// The two figures of per-iterate variance
    Variance,
    /// The figure of A, X, B and C for 6 epochs of 342 steps, momentum 0.95 and cooldown
    Matrices,
    /// The figure that compares the optimal with the restarted decoder, by number of stamps
    Decoders,
    /// The figure of accuracy on CIFAR-10: 20 epochs, batches of 500. 7 to 27 minutes for each run on two cores, by the processor
    Cifar10(accuracy::Accuracy),
    /// The same on Fashion-MNIST, 10 epochs: about a minute for each run
    FashionMnist(accuracy::Accuracy),
    /// The user-level experiment, on poems instead of StackOverflow: six epochs of federated training, and the paper's own mechanism
    Federated(federated::FederatedArgs),
}

/// Where pictures go.
#[derive(Args)]
pub struct Pictures {
    /// Draw the figure into this folder, as SVG and PNG. cifar10, fashion-mnist and federated also keep finished and unfinished runs there
    #[arg(long, short, value_name = "FOLDER", global = true)]
    output: Option<PathBuf>,
    /// Replace existing pictures
    #[arg(long, global = true)]
    force: bool,
}

impl Pictures {
    fn wanted(&self) -> bool {
        self.output.is_some()
    }

    /// Makes the folder and finds out, before the work and not after it, whether pictures of these names can be written.
    fn check(&self, names: &[&str]) -> Result<()> {
        let Some(folder) = &self.output else {
            return Ok(());
        };
        std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
        for name in names {
            for kind in ["svg", "png"] {
                atomic::check(&folder.join(format!("{name}.{kind}")), self.force)?;
            }
        }
        Ok(())
    }

    /// Draws, where that is wanted; says which files came out.
    fn draw(&self, name: &str, picture: &Picture) -> anyhow::Result<Vec<PathBuf>> {
        match &self.output {
            Some(folder) => Ok(chart::write(folder, name, picture, self.force)?.to_vec()),
            None => Ok(Vec::new()),
        }
    }
}

/// What numbers of a list may be, in words and as a check.
type Allowed = (&'static str, fn(f64) -> bool);

const POSITIVE: Allowed = ("positive and finite numbers", |value| value > 0.0 && value.is_finite());

/// Refuses a list with a number that is not allowed, or with one twice: before anything is trained, not when its turn comes.
fn check_list(flag: &str, values: &[f64], (allowed, is_allowed): Allowed) -> Result<()> {
    if let Some(value) = values.iter().find(|value| !is_allowed(**value)) {
        return Err(Error::argument(flag, allowed, value));
    }
    match values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        Some((_, value)) => Err(Error::argument(flag, "each number once", value)),
        None => Ok(()),
    }
}

/// Says which pictures were drawn, or how to have them drawn.
fn say_files(files: &[PathBuf], what: &str) {
    if files.is_empty() {
        say!("Nothing was drawn. For the pictures: {} reproduce {what} --output pictures", program());
    }
    for file in files {
        say!("Written to {}.", file.display());
    }
}

impl Reproduce {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let no_picture = |name: &str| match &self.pictures.output {
            Some(folder) => {
                let allowed = format!("left out with {name}, which is a table");
                Err(Error::argument("--output", allowed, folder.display()))
            }
            None => Ok(()),
        };
        match &self.what {
            What::NonNegativity => {
                no_picture("non-negativity")?;
                non_negativity::run(json)
            }
            What::Losses => {
                no_picture("losses")?;
                losses::run(json)
            }
            What::NoiseMultipliers => {
                no_picture("noise-multipliers")?;
                noise_multipliers::run(json)
            }
            What::FftMse => fft_mse::run(&self.pictures, json),
            What::Variance => variance::run(&self.pictures, json),
            What::Matrices => matrices::run(&self.pictures, json),
            What::Decoders => decoders::run(&self.pictures, json),
            What::Cifar10(accuracy) => accuracy.run(Name::Cifar10, &self.pictures, json),
            What::FashionMnist(accuracy) => accuracy.run(Name::FashionMnist, &self.pictures, json),
            What::Federated(federated) => federated.run(&self.pictures, json),
        }
    }
}

/// The gap to which optima are found: far below the paper's digits.
const GAP: f64 = 1e-4;

/// A mechanism of the paper by its name: so many stamps, each made for the workload's first steps and, where it is an
/// optimum, for the epochs that one stamp sees.
fn factorization(name: &str, stamps: usize, schema: &Schema, workload: &Workload) -> Result<Stamped> {
    let steps = schema.steps();
    let family = families::named(name)?;
    if family != families::OPTIMAL {
        let run = Run { stamps, gap: GAP, ..Run::new(schema, workload, &|_| true) };
        return match family.design(&run)? {
            Designed::Noise(Noise::Structured(structured)) => structured.factorization(steps),
            _ => Err(Error::argument("mechanism", "a name of the paper's table", name)),
        };
    }
    let optimum = |length: usize| -> Result<Shared> {
        let (Schema::FixedOrder { steps_per_epoch, .. }, Workload::Training(training)) = (schema, workload)
        else {
            return Err(Error::Unsupported("the paper's table has epochs in a fixed order".into()));
        };
        let part = Schema::fixed_order(length, length.min(*steps_per_epoch))?;
        let workload = Workload::Training(training.part(0, length));
        let params = Params { gap: GAP, ..Params::default() };
        match optimize(&part, &workload, &params, &|_| true)?.mechanism.into_parts().noise {
            Noise::Dense(noising) => Ok(Arc::new(DenseFactorization::new(noising)?)),
            _ => Err(Error::Unsupported("a dense mechanism was asked for".into())),
        }
    };
    let mut made: BTreeMap<usize, Shared> = BTreeMap::new(); // at most two lengths
    for length in stamp::lengths(steps, stamps)? {
        if let Entry::Vacant(place) = made.entry(length) {
            place.insert(optimum(length)?);
        }
    }
    Ok(Stamped::of(stamp::lengths(steps, stamps)?.into_iter().map(|length| made[&length].clone())))
}

/// A progress bar on standard error, silent where that is not a terminal.
fn bar(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar
}

/// Whether a figure, rounded to as many digits as a printed one has ("1.37e6"), is the printed one.
fn rounds_to(x: f64, printed: &str) -> bool {
    let digits =
        printed.split('e').next().and_then(|m| m.split_once('.')).map_or(0, |(_, digits)| digits.len());
    format!("{x:.digits$e}") == printed
}

#[cfg(test)]
mod tests {
    use super::rounds_to;

    #[test]
    fn rounding_to_printed_digits() {
        assert!(rounds_to(1.3651e6, "1.37e6") && !rounds_to(1.364e6, "1.37e6"));
        assert!(rounds_to(653_308.0, "6.5e5") && !rounds_to(653_308.0, "6.6e5"));
        assert!(rounds_to(9.96e5, "1.0e6") && rounds_to(2.96e6, "3e6") && !rounds_to(f64::NAN, "3e6"));
    }
}
