//! `antiphon man`.

use crate::output::{answer, print_json};
use antiphon::atomic;
use antiphon::error::Error;
use clap::{Args, Command};
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// A page does not depend on the terminal on which it was made.
pub const COLUMNS: usize = 72;

/// Print the manual page of antiphon, or write the pages of all commands into a folder
///
/// Examples:
///   antiphon man | man -l -
///   antiphon man --output ~/.local/share/man/man1
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Pages {
    /// Write the pages of all commands into this folder
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, requires = "output")]
    force: bool,
}

impl Pages {
    /// For a command with all its subcommands.
    pub fn run(&self, command: Command, json: bool) -> anyhow::Result<ExitCode> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let Some(folder) = &self.output else {
            let page = String::from_utf8(rendered(command)?)?;
            match json {
                true => print_json(&serde_json::json!({ "page": page }))?,
                false => say!("{}", page.trim_end()),
            }
            return Ok(answer(true));
        };
        std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
        let mut files = Vec::new();
        for command in with_subcommands(command) {
            let path = folder.join(Man::new(command.clone()).get_filename());
            let page = rendered(command)?;
            atomic::write(&path, self.force, |file| file.write_all(&page))?;
            files.push(path);
        }
        match json {
            true => print_json(&serde_json::json!({ "files": files }))?,
            false => files.iter().for_each(|file| say!("Written to {}.", file.display())),
        }
        Ok(answer(true))
    }
}

fn rendered(command: Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}

/// A command and all below it.
fn with_subcommands(command: Command) -> Vec<Command> {
    let below: Vec<Command> = command.get_subcommands().cloned().flat_map(with_subcommands).collect();
    std::iter::once(command).chain(below).collect()
}
