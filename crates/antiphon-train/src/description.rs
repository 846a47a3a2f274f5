//! What a run is, written down.

use crate::design::Design;
use crate::federated::client::Settings as Client;
use crate::kind;
use crate::settings::Settings;
use crate::task::Task;
use antiphon::Result;
use antiphon::run::Privacy;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// All that a run is, but for its keys: two runs with the same description and the same secrets are the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The version of the loop.
    pub antiphon_run: u32,
    /// The data set.
    pub dataset: Data,
    /// The network.
    pub model: String,
    /// How it is trained.
    pub settings: Settings,
    /// The mechanism.
    pub mechanism: Named,
    /// What it costs.
    pub privacy: Figures,
    /// σ.
    pub stddev: f64,
    /// What clients do, where there are clients. Left out elsewhere: ids of runs are hashes of this form, and older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
}

/// A data set; in files a list of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct Data {
    /// Its name.
    pub name: String,
    /// The SHA-256 of what is in it.
    pub sha256: String,
}

impl From<(String, String)> for Data {
    fn from((name, sha256): (String, String)) -> Data {
        Data { name, sha256 }
    }
}

impl From<Data> for (String, String) {
    fn from(Data { name, sha256 }: Data) -> (String, String) {
        (name, sha256)
    }
}

/// A mechanism; in files a list of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "(String, Option<String>)", into = "(String, Option<String>)")]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The id of its file, if it has one.
    pub id: Option<String>,
}

impl From<(String, Option<String>)> for Named {
    fn from((name, id): (String, Option<String>)) -> Named {
        Named { name, id }
    }
}

impl From<Named> for (String, Option<String>) {
    fn from(Named { name, id }: Named) -> (String, Option<String>) {
        (name, id)
    }
}

/// The figures of a [`Privacy`] as they are written down. They are read to be shown or compared; a run is not made from them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// An upper bound on ε.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
    /// Noise standard deviation over sensitivity.
    pub noise_multiplier: f64,
    /// Whether ε holds for what the run does.
    pub valid: bool,
}

impl Figures {
    /// Of a run that is what was accounted for, or not.
    pub fn new(privacy: &Privacy, valid: bool) -> Figures {
        Figures {
            epsilon: privacy.epsilon(),
            delta: privacy.delta(),
            noise_multiplier: privacy.noise_multiplier().value(),
            valid,
        }
    }
}

impl Description {
    /// The version of the loop.
    pub const VERSION: u32 = 1;

    /// Of a run.
    pub fn new(
        task: &dyn Task,
        design: &Design,
        settings: &Settings,
        privacy: &Privacy,
    ) -> Result<Description> {
        Ok(Description {
            antiphon_run: Description::VERSION,
            dataset: task.identity(),
            model: task.model(),
            settings: *settings,
            mechanism: Named {
                name: design.name().into(),
                id: design.mechanism().map(antiphon::verify::Verified::id),
            },
            privacy: Figures::new(privacy, design.valid()),
            stddev: design.stddev(privacy, settings.clip_norm)?.value(),
            client: task.client(),
        })
    }

    /// The SHA-256 of all of it, in hexadecimal, with the former name of the mechanism.
    pub fn id(&self) -> String {
        let named = self.named(kind::former_name);
        let text = serde_json::to_string(&named).expect("plain fields");
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The same with another name for the mechanism.
    pub(crate) fn named(&self, name: impl Fn(&str) -> String) -> Description {
        let mechanism = Named { name: name(&self.mechanism.name), id: self.mechanism.id.clone() };
        Description { mechanism, ..self.clone() }
    }
}
