//! What is learnt, as the flags name it, and what is usual for it.

use antiphon::error::{Error, Result};
use antiphon_train::classification::{Classification, Model};
use antiphon_train::data::text::TextName;
use antiphon_train::data::{self, Name};
use antiphon_train::kind::Kind;
use antiphon_train::settings::{Settings, UsualPrivacy};
use antiphon_train::task::Task;
use std::path::{Path, PathBuf};

/// Which training examples are held out does not depend on the run.
const HELD_OUT_SEED: u64 = 0;

/// Where the data come from.
#[derive(Clone)]
pub enum Source {
    Images(Name),
    Text(TextName),
}

impl Source {
    /// What --dataset says, or what needs no download.
    pub fn new(dataset: Option<&str>, federated: bool) -> Result<Source> {
        match (dataset, federated) {
            (None, false) => Ok(Source::Images(Name::Digits)),
            (None, true) => Ok(Source::Text(TextName::Poets)),
            (Some(text), true) => text.parse().map(Source::Text),
            (Some(text), false) => {
                text.parse().map(Source::Images).map_err(|error| match text.parse::<TextName>() {
                    Ok(_) => {
                        let allowed =
                            format!("{}; or give --federated", Name::ALL.map(Name::as_str).join(", "));
                        Error::argument("dataset", allowed, text)
                    }
                    Err(_) => error,
                })
            }
        }
    }

    /// The folder of the data; what is compiled in, or a file of its own, needs none.
    pub fn folder(&self, data: Option<&Path>) -> Result<PathBuf> {
        let needs_none = match self {
            Source::Images(name) => *name == Name::Digits,
            Source::Text(name) => matches!(name, TextName::Poets | TextName::File(_)),
        };
        match data {
            Some(folder) => Ok(folder.into()),
            None if needs_none => Ok(PathBuf::new()),
            None => data::default_folder(),
        }
    }
}

/// A task, and where it is from.
pub struct Loaded {
    pub source: Source,
    pub task: Box<dyn Task>,
}

/// Images, with some of them held out for testing if asked for.
pub fn images(name: Name, folder: &Path, model: Model, held_out: Option<usize>) -> Result<Loaded> {
    let task = Classification::new(data::load(name, folder)?, model)?;
    let task = match held_out {
        Some(count) => task.with_held_out(HELD_OUT_SEED, count)?,
        None => task,
    };
    Ok(Loaded { source: Source::Images(name), task: Box::new(task) })
}

impl Loaded {
    /// What is usual for a kind of noise (`None` for a mechanism from a file).
    pub fn usual_settings(&self, kind: Option<Kind>, clip_norm: f64) -> Settings {
        match &self.source {
            Source::Images(name) => Settings { clip_norm, ..Settings::usual(*name, kind) },
            Source::Text(_) => Settings::federated(self.task.units(), clip_norm, kind),
        }
    }

    /// ε and δ that are usual.
    pub fn usual_privacy(&self) -> UsualPrivacy {
        match &self.source {
            Source::Images(name) => UsualPrivacy::of(*name),
            Source::Text(_) => UsualPrivacy::federated(self.task.units()),
        }
    }
}
