//! Running other programs, and taking files out of archives.

use super::Tasks;
use antiphon::error::{Error, Result};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// How a program that was run ended.
pub enum Ran {
    /// Well, with this on its standard output.
    Well(Vec<u8>),
    /// Badly; the end of what it said.
    Badly(String),
    /// It is not there.
    NotFound,
}

/// Runs a program in a folder, with no input.
pub fn run(program: &str, arguments: &[&str], folder: &Path, tasks: &Tasks<'_>) -> Result<Ran> {
    let output = Command::new(program).args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    // Ctrl-C in a terminal reaches the other program as well, and makes it fail.
    tasks.go_on()?;
    match output {
        Ok(output) if output.status.success() => Ok(Ran::Well(output.stdout)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(4)..].join("\n  ");
            Ok(Ran::Badly(format!(
                "`{program} {}` failed, {}:\n  {last}",
                arguments.join(" "),
                output.status
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ran::NotFound),
        Err(source) => Err(Error::Io { path: program.into(), source }),
    }
}

/// Takes the files with these names out of a tar archive into a folder, and no others. Says which are not in it.
pub fn unpack<'a>(archive: impl Read, names: &[&'a str], folder: &Path) -> io::Result<Vec<&'a str>> {
    let mut missing = names.to_vec();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(place) = missing.iter().position(|&wanted| name.as_deref() == Some(wanted)) else {
            continue;
        };
        // Not `entry.unpack`: that would also make links.
        if entry.header().entry_type().is_file() {
            io::copy(&mut entry, &mut std::fs::File::create_new(folder.join(missing.swap_remove(place)))?)?;
        }
    }
    Ok(missing)
}
