//! `antiphon`: one file per command. The library does the work; this crate reads arguments, shows progress and
//! prints results.

#[macro_use]
mod output;
mod account;
mod args;
mod audit;
mod chart;
mod compare;
mod completions;
mod data;
mod export;
mod failure;
mod help;
mod keep;
mod make;
mod man;
mod noise;
mod optimize;
mod plan;
mod progress;
mod reproduce;
mod sensitivity;
mod table;
mod train;
mod verify;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Correlated noise for differentially private training: optimal matrix mechanisms, with a proof
///
/// A run is described by its participation schema (--epochs, --steps-per-epoch) and its workload
/// (--momentum, --cooldown; plain SGD by default). `optimize` finds the mechanism whose noise causes
/// the least error at a given privacy level, and proves how far from the best possible it is.
///
/// `compare` evaluates all mechanisms for one run; `plan` recommends one for a model and a limit on
/// memory; `make` makes the mechanisms other than the optimum; `account` computes ε, δ or the noise
/// multiplier; `noise` writes the noise of every step; `audit` checks the log of who took part when.
/// `train` trains a model: a small one on digits that are compiled in, larger ones on Fashion-MNIST
/// and CIFAR-10, and with --federated a language model whose users are protected.
///
/// First steps:
///   antiphon train
///   antiphon compare --epochs 20 --steps-per-epoch 100
///   antiphon optimize --epochs 20 --steps-per-epoch 100
///   antiphon optimize --epochs 20 --steps-per-epoch 100 --output mechanism.safetensors
///   antiphon verify mechanism.safetensors
///   antiphon account mechanism.safetensors --epsilon 8 --delta 1e-6
#[derive(Parser)]
#[command(
    name = "antiphon",
    version,
    verbatim_doc_comment,
    propagate_version = true,
    after_long_help = failure::EXIT_STATUSES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Use this many threads (default: all cores)
    #[arg(long, global = true, value_name = "N", value_parser = args::whole, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print one JSON object on standard output, also for errors
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Train(Box<train::Train>),
    Optimize(optimize::Optimize),
    Make(make::Make),
    Compare(compare::Compare),
    Plan(plan::Plan),
    Verify(verify::Verify),
    Account(account::Account),
    Audit(audit::Audit),
    Sensitivity(sensitivity::SensitivityCommand),
    Noise(noise::Noise),
    Export(export::Export),
    Data(data::Data),
    Reproduce(reproduce::Reproduce),
    Completions(completions::Completions),
    Man(man::Pages),
}

fn main() -> ExitCode {
    // The parser may fail before it knows about --json.
    let json = std::env::args_os().any(|word| word == "--json");
    let parsed =
        command(help::columns()).try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => cli.run().unwrap_or_else(|error| failure::report(&error, cli.json)),
        Err(error) => failure::usage(&error, json),
    }
}

/// The whole command line, with help texts for so many columns.
fn command(columns: usize) -> clap::Command {
    help::laid_out(Cli::command(), columns)
}

impl Cli {
    fn run(&self) -> anyhow::Result<ExitCode> {
        set_threads(self.threads)?;
        let json = self.json;
        match &self.command {
            Command::Optimize(command) => command.run(json),
            Command::Make(command) => command.run(json),
            Command::Compare(command) => command.run(json),
            Command::Plan(command) => command.run(json),
            Command::Verify(command) => command.run(json),
            Command::Account(command) => command.run(json),
            Command::Audit(command) => command.run(json),
            Command::Sensitivity(command) => command.run(json),
            Command::Noise(command) => command.run(json),
            Command::Export(command) => command.run(json),
            Command::Train(command) => command.run(json),
            Command::Data(command) => command.run(json),
            Command::Reproduce(command) => command.run(json),
            Command::Completions(completions) => completions.run(command(help::WIDEST), json),
            Command::Man(pages) => pages.run(command(man::COLUMNS), json),
        }
    }
}

fn set_threads(threads: Option<usize>) -> anyhow::Result<()> {
    if let Some(threads) = threads {
        if !(1..=1024).contains(&threads) {
            return Err(antiphon::Error::argument("--threads", "in 1..=1024", threads).into());
        }
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    Ok(())
}
