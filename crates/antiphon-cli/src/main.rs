//! `antiphon`: one file per command. The library does the work; this crate reads arguments, shows progress and
//! prints results.

#[macro_use]
mod output;
mod account;
mod args;
mod chart;
mod compare;
mod data;
mod export;
mod keep;
mod make;
mod noise;
mod optimize;
mod plan;
mod progress;
mod reproduce;
mod sensitivity;
mod train;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Correlated noise for differentially private training: optimal mechanisms with a proof.
///
/// Say how the data come (--epochs, --steps-per-epoch) and what the model does with the gradients
/// (--momentum, --cooldown; plain SGD if nothing is said). `optimize` then finds the noise that
/// hurts the model least at a given privacy level, and proves how far from the best possible it is.
///
/// `compare` sets it beside all other mechanisms; `plan` recommends one for your model and memory;
/// `account` says how much noise a privacy level needs, or how private a run is; `noise` draws it.
/// `train` does all of this for a model: a small one on digits that are compiled in, larger ones on
/// Fashion-MNIST and CIFAR-10.
///
/// First steps:
///   antiphon train
///   antiphon compare --epochs 20 --steps-per-epoch 100
///   antiphon optimize --epochs 20 --steps-per-epoch 100
///   antiphon optimize --epochs 20 --steps-per-epoch 100 --output mechanism.safetensors
///   antiphon verify mechanism.safetensors
///   antiphon account mechanism.safetensors --epsilon 8 --delta 1e-6
#[derive(Parser)]
#[command(name = "antiphon", version, verbatim_doc_comment, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Use this many threads (default: all cores)
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object on standard output and nothing else there
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Optimize(optimize::Optimize),
    Make(make::Make),
    Compare(compare::Compare),
    Plan(plan::Plan),
    Verify(verify::Verify),
    Account(account::Account),
    Sensitivity(sensitivity::SensitivityCommand),
    Noise(noise::Noise),
    Export(export::Export),
    Data(data::Data),
    Reproduce(reproduce::Reproduce),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = set_threads(cli.threads).and_then(|()| match &cli.command {
        Command::Optimize(command) => command.run(cli.json),
        Command::Make(command) => command.run(cli.json),
        Command::Compare(command) => command.run(cli.json),
        Command::Plan(command) => command.run(cli.json),
        Command::Verify(command) => command.run(cli.json),
        Command::Account(command) => command.run(cli.json),
        Command::Sensitivity(command) => command.run(cli.json),
        Command::Noise(command) => command.run(cli.json),
        Command::Export(command) => command.run(cli.json),
        Command::Train(command) => command.run(cli.json),
        Command::Data(command) => command.run(cli.json),
        Command::Reproduce(command) => command.run(cli.json),
    });
    result.unwrap_or_else(|error| {
        eprintln!("antiphon: {}", output::explain(&error));
        output::exit_status(&error)
    })
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
