//! `antiphon completions`.

use crate::output::{answer, print_json};
use clap::{Args, Command, ValueEnum};
use clap_complete::{generate, shells};
use std::process::ExitCode;

/// Print a completion script for a shell
///
/// Examples:
///   antiphon completions bash > ~/.local/share/bash-completion/completions/antiphon
///   antiphon completions zsh > _antiphon       # in a folder of $fpath
///   antiphon completions fish > ~/.config/fish/completions/antiphon.fish
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    /// For a command with all its subcommands.
    pub fn run(&self, mut command: Command, json: bool) -> anyhow::Result<ExitCode> {
        // Into memory: the generator panics where a reader goes away.
        let mut script = Vec::new();
        let name = "antiphon";
        match self.shell {
            Shell::Bash => generate(shells::Bash, &mut command, name, &mut script),
            Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut script),
            Shell::Fish => generate(shells::Fish, &mut command, name, &mut script),
        }
        let script = String::from_utf8(script)?;
        match json {
            true => print_json(&serde_json::json!({ "script": script }))?,
            false => say!("{}", script.trim_end()),
        }
        Ok(answer(true))
    }
}
