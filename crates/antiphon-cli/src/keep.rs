//! Where a mechanism that was made is kept: `--output` and `--force`.

use crate::output::{program, quoted};
use crate::verify::is_numpy_name;
use antiphon::error::{Error, Result};
use antiphon::mechanism::Mechanism;
use antiphon::{atomic, file};
use clap::Args;
use std::path::PathBuf;

/// The flags of every command that makes a mechanism.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub struct Keep {
    /// Keep the mechanism and its proof in this file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

impl Keep {
    /// What is wrong with the path: found out before the work, not after it.
    pub fn check(&self) -> Result<()> {
        let Some(path) = &self.output else {
            return Ok(());
        };
        if is_numpy_name(path) {
            let allowed = "a name that does not end in .npy or .npz: `antiphon export` writes those";
            return Err(Error::argument("--output", allowed, path.display()));
        }
        atomic::check(path, self.force)
    }

    /// Writes the file, if there is to be one.
    pub fn write(&self, mechanism: &Mechanism) -> Result<()> {
        match &self.output {
            Some(path) => file::write(path, mechanism, self.force),
            None => Ok(()),
        }
    }

    /// Adds `id` and `file` to a JSON object.
    pub fn add_to(&self, value: &mut serde_json::Value, mechanism: &Mechanism) {
        value["id"] = self.output.as_ref().map(|_| file::id(mechanism)).into();
        value["file"] = self.output.as_ref().map(|path| path.to_string_lossy()).into();
    }

    /// Says where the mechanism is and what to do next, or how to keep it.
    pub fn print(&self, mechanism: &Mechanism) {
        match &self.output {
            Some(path) => {
                say!("  id            {}", file::id(mechanism));
                say!("Written to {}.", path.display());
                say!("Next: {} verify {}", program(), quoted(path.as_os_str()));
            }
            None => {
                let line: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word)).collect();
                say!("Nothing was written. To keep mechanism and proof, and to have them checked:");
                say!("  {} {} --output mechanism.safetensors", program(), line.join(" "));
                say!("  {} verify mechanism.safetensors", program());
            }
        }
    }
}
