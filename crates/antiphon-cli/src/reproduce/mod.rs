//! `antiphon reproduce`: the paper's tables and figures, ours beside theirs. What is expected stands under `repro/`.

mod losses;
mod non_negativity;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;

/// Reproduce a table or a figure of the paper
#[derive(Args)]
pub struct Reproduce {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The table on non-negativity constraints: n = 6, k = 3, b = 2; 18 entries, with dual bounds for the errors
    NonNegativity,
    /// The table of prefix-sum losses: 20 epochs of 100 steps, 30 mechanisms
    Losses,
}

impl Reproduce {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        match self.what {
            What::NonNegativity => non_negativity::run(json),
            What::Losses => losses::run(json),
        }
    }
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
