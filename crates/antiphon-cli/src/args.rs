//! The flags that commands share: which schema, which workload.

use crate::output::quoted;
use antiphon::error::{Error, Result};
use antiphon::families;
use antiphon::mechanism::Family;
use antiphon::npy;
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// In which steps one example may take part.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Participation schema (in which steps one example may take part)")]
pub struct SchemaArgs {
    /// Number of epochs: passes over the data, in the same order each time (see --reshuffled)
    #[arg(long, value_name = "K", value_parser = whole, allow_negative_numbers = true)]
    pub epochs: Option<usize>,
    /// Steps (batches) per epoch; an example returns after exactly this many steps. With `--steps N` the last epoch may be
    /// incomplete; `--steps N --steps-per-epoch N` is a single epoch, `--steps-per-epoch 1` full batch
    #[arg(long, value_name = "B", value_parser = whole, allow_negative_numbers = true)]
    pub steps_per_epoch: Option<usize>,
    /// The data are shuffled again in every epoch: an example takes part at most once in each, in any of its steps. With --epochs
    /// and --steps-per-epoch
    #[arg(long)]
    pub reshuffled: bool,
    /// Total number of steps, instead of --epochs
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub steps: Option<usize>,
    /// Minimum separation: two participations of an example are at least this many steps apart, in any order
    #[arg(long, value_name = "B", value_parser = whole, allow_negative_numbers = true)]
    pub min_separation: Option<usize>,
    /// Maximum number of participations of one example
    #[arg(long, value_name = "K", value_parser = whole, allow_negative_numbers = true)]
    pub max_participations: Option<usize>,
    /// Participation patterns: a JSON list of lists of the steps (from 0) in which one example may take part; lists may
    /// overlap
    #[arg(long, value_name = "FILE")]
    pub patterns: Option<PathBuf>,
}

/// What the model does with the gradients.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Workload (how the gradients are used; plain SGD by default)")]
pub struct WorkloadArgs {
    /// Momentum in [0, 1)
    #[arg(long, value_name = "BETA", allow_negative_numbers = true)]
    pub momentum: Option<f64>,
    /// The learning rate falls linearly to END times its value over the last FRACTION of the steps
    #[arg(long, value_name = "FRACTION:END")]
    pub cooldown: Option<Cooldown>,
    /// One positive learning rate per step: a JSON list, or numbers separated by white space
    #[arg(long, value_name = "FILE", conflicts_with = "cooldown")]
    pub learning_rates: Option<PathBuf>,
    /// The workload matrix A itself, lower triangular, as .npy
    #[arg(long, value_name = "FILE", conflicts_with_all = ["momentum", "cooldown", "learning_rates"])]
    pub workload: Option<PathBuf>,
}

impl SchemaArgs {
    /// Whether any of the flags was given.
    pub fn any(&self) -> bool {
        let SchemaArgs {
            epochs,
            steps_per_epoch,
            reshuffled,
            steps,
            min_separation,
            max_participations,
            patterns,
        } = self;
        let numbers = [epochs, steps_per_epoch, steps, min_separation, max_participations];
        *reshuffled || numbers.iter().any(|x| x.is_some()) || patterns.is_some()
    }

    /// The flags again, as they would be typed.
    pub fn words(&self) -> Vec<String> {
        let numbers = [
            ("--epochs", self.epochs),
            ("--steps-per-epoch", self.steps_per_epoch),
            ("--steps", self.steps),
            ("--min-separation", self.min_separation),
            ("--max-participations", self.max_participations),
        ];
        let mut words: Vec<String> =
            numbers.iter().filter_map(|(flag, value)| Some(format!("{flag} {}", (*value)?))).collect();
        words.extend(self.reshuffled.then(|| "--reshuffled".into()));
        words.extend(self.patterns.iter().map(|path| file_flag("--patterns", path)));
        words
    }

    /// The schema, or what is missing. `columns` is the size of a matrix at hand, which must then fit.
    pub fn schema(&self, columns: Option<usize>) -> Result<Schema> {
        let schema = self.build(columns)?;
        match columns {
            Some(n) if n != schema.steps() => Err(Error::argument(
                "the number of steps",
                format!("{n}, as many as the matrix has columns"),
                schema.steps(),
            )),
            _ => Ok(schema),
        }
    }

    fn build(&self, columns: Option<usize>) -> Result<Schema> {
        if self.reshuffled {
            return self.build_reshuffled();
        }
        let steps = self.steps.or(columns.filter(|_| self.epochs.is_none()));
        if let Some(path) = &self.patterns {
            only(
                "--patterns",
                &[
                    ("--epochs", self.epochs),
                    ("--steps-per-epoch", self.steps_per_epoch),
                    ("--min-separation", self.min_separation),
                    ("--max-participations", self.max_participations),
                ],
            )?;
            let patterns: Vec<Vec<usize>> =
                serde_json::from_str(&read_text(path)?).map_err(|error| Error::File {
                    path: path.clone(),
                    reason: format!("must be a JSON list of lists of step numbers: {error}"),
                })?;
            let last = patterns.iter().flatten().max().map_or(1, |last| last.saturating_add(1));
            return Schema::patterns(steps.unwrap_or(last), patterns);
        }
        if let Some(separation) = self.min_separation {
            only(
                "--min-separation",
                &[("--epochs", self.epochs), ("--steps-per-epoch", self.steps_per_epoch)],
            )?;
            let steps = steps.ok_or_else(|| missing("--steps", "--min-separation"))?;
            let most = steps.div_ceil(separation.max(1));
            return Schema::min_separation(steps, separation, self.max_participations.unwrap_or(most));
        }
        match (self.epochs, steps, self.steps_per_epoch, self.max_participations) {
            (Some(_), Some(steps), _, _) => Err(Error::argument(
                "--steps",
                "left out where --epochs is given (steps = epochs · steps-per-epoch)",
                steps,
            )),
            (Some(_), None, _, Some(k)) => {
                Err(Error::argument("--max-participations", "left out where --epochs is given", k))
            }
            (Some(epochs), None, Some(b), None) => Schema::epochs(epochs, b),
            (None, Some(steps), Some(b), None) => Schema::fixed_order(steps, b),
            (None, Some(steps), Some(b), Some(k)) => Schema::fixed_order_at_most(steps, b, k),
            _ => Err(Error::Unsupported(
                "the participation schema is missing or incomplete: give --epochs K --steps-per-epoch B, or --steps N \
                 --steps-per-epoch B, or --epochs K --steps-per-epoch B --reshuffled, or --steps N --min-separation B --max-participations K, or --patterns FILE"
                    .into(),
            )),
        }
    }

    fn build_reshuffled(&self) -> Result<Schema> {
        let flag = "--reshuffled";
        let numbers = [
            ("--steps", self.steps),
            ("--min-separation", self.min_separation),
            ("--max-participations", self.max_participations),
        ];
        only(flag, &numbers)?;
        only(flag, &[("--patterns", self.patterns.as_ref().map(|path| path.display()))])?;
        let epochs = self.epochs.ok_or_else(|| missing("--epochs", flag))?;
        let per_epoch = self.steps_per_epoch.ok_or_else(|| missing("--steps-per-epoch", flag))?;
        Schema::reshuffled(epochs, per_epoch)
    }
}

/// Refuses all other flags where this one is given.
pub fn only<T: Display>(flag: &str, others: &[(&str, Option<T>)]) -> Result<()> {
    match others.iter().find_map(|(name, value)| Some((name, value.as_ref()?))) {
        Some((name, value)) => Err(Error::argument(*name, format!("left out where {flag} is given"), value)),
        None => Ok(()),
    }
}

/// A family of mechanisms by its name.
pub fn family_parser() -> impl clap::builder::TypedValueParser<Value = Family> {
    let value = |family: Family| {
        PossibleValue::new(family.name()).aliases(family.aliases().iter().copied()).help(family.about())
    };
    PossibleValuesParser::new(families::all().map(value)).try_map(|name| families::named(&name))
}

fn missing(flag: &str, other: &str) -> Error {
    Error::argument(flag, format!("given together with {other}"), "nothing")
}

impl WorkloadArgs {
    /// Whether any of the flags was given.
    pub fn any(&self) -> bool {
        self.momentum.is_some()
            || self.cooldown.is_some()
            || self.learning_rates.is_some()
            || self.workload.is_some()
    }

    /// The flags again, as they would be typed.
    pub fn words(&self) -> Vec<String> {
        let momentum = self.momentum.map(|beta| format!("--momentum {beta}"));
        let cooldown = self.cooldown.map(|c| format!("--cooldown {}:{}", c.fraction, c.end));
        let rates = self.learning_rates.as_ref().map(|path| file_flag("--learning-rates", path));
        let workload = self.workload.as_ref().map(|path| file_flag("--workload", path));
        [momentum, cooldown, rates, workload].into_iter().flatten().collect()
    }

    /// The workload over so many steps.
    pub fn workload(&self, steps: usize) -> Result<Workload> {
        if let Some(path) = &self.workload {
            let workload = Workload::dense(npy::read(path)?)?;
            if workload.steps() != steps {
                let value = format!("{0}×{0}", workload.steps());
                return Err(Error::argument("--workload", format!("a {steps}×{steps} matrix"), value));
            }
            return Ok(workload);
        }
        let rates = match (&self.cooldown, &self.learning_rates) {
            (Some(cooldown), _) => Some(cooldown.rates(steps)?),
            (None, Some(path)) => Some(read_rates(path)?),
            (None, None) => None,
        };
        Workload::training(steps, self.momentum.unwrap_or(0.0), rates)
    }
}

fn file_flag(flag: &str, path: &Path) -> String {
    format!("{flag} {}", quoted(path.as_os_str()))
}

fn read_rates(path: &Path) -> Result<Vec<f64>> {
    let text = read_text(path)?;
    let numbers = match serde_json::from_str::<Vec<f64>>(&text) {
        Ok(numbers) => Ok(numbers),
        Err(_) => text.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>(),
    };
    numbers.map_err(|error| Error::File {
        path: path.into(),
        reason: format!("must be a JSON list of numbers, or numbers separated by white space: {error}"),
    })
}

/// A whole text file.
pub fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })
}

/// A positive whole number, also in the form 1e6.
pub fn count(text: &str) -> Result<u64> {
    let bad = || Error::argument("D", "a whole number in 1..=1e15, such as 1e6", text);
    parsed(text).filter(|number| *number > 0).ok_or_else(bad)
}

/// A whole number, also in the form 1e2. Its range is checked where its meaning is known.
pub fn whole(text: &str) -> Result<usize> {
    let bad = || Error::argument("the value", "a whole number in 0..=1e15, such as 100 or 1e2", text);
    parsed(text).and_then(|number| usize::try_from(number).ok()).ok_or_else(bad)
}

fn parsed(text: &str) -> Option<u64> {
    let number: f64 = text.replace('_', "").parse().ok()?;
    ((0.0..=1e15).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// A number of bytes with or without a unit.
pub fn bytes(text: &str) -> Result<u64> {
    let bad = || Error::argument("BYTES", "a number of bytes in 1..=1e18, such as 8GiB, 800MB or 4e9", text);
    let units = [
        ("KiB", 1024.0),
        ("MiB", 1024f64.powi(2)),
        ("GiB", 1024f64.powi(3)),
        ("TiB", 1024f64.powi(4)),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    let lower = text.to_ascii_lowercase();
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((lower.strip_suffix(&name.to_ascii_lowercase())?, *unit)))
        .unwrap_or((&lower, 1.0));
    let number: f64 = number.trim().parse().map_err(|_| bad())?;
    let bytes = (number * unit).floor();
    if (1.0..=1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_and_exponents() {
        assert_eq!(count("1e6").unwrap(), 1_000_000);
        assert_eq!(count("1_234").unwrap(), 1234);
        assert_eq!(
            (bytes("8GiB").unwrap(), bytes("1.5kb").unwrap(), bytes("4096").unwrap()),
            (8 << 30, 1500, 4096)
        );
        for wrong in ["", "0", "-1", "1.5", "nan", "1e99", "six"] {
            let message = count(wrong).unwrap_err().to_string();
            assert_eq!(message, format!("D must be a whole number in 1..=1e15, such as 1e6, got {wrong}"));
        }
        assert_eq!((whole("1e2").unwrap(), whole("0").unwrap(), whole("2_000").unwrap()), (100, 0, 2000));
        for wrong in ["", "-1", "1.5", "nan", "1e99", "six"] {
            assert!(whole(wrong).unwrap_err().to_string().ends_with(&format!("or 1e2, got {wrong}")));
        }
        for wrong in ["", "0", "GiB", "-1MB", "inf", "8 parsecs"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
