//! A run that survives: a folder with what it is, its key, and how far it has come.
//!
//! ```text
//! run.json                  the description of the run, and its seed or the fingerprint of its key
//! key.json                  256 secret bits; removed when the run is over
//! checkpoint.safetensors    parameters, velocity, step, epochs; replaced as a whole
//! buffers                   what the noise of later steps is made from, where that is kept; secret, and removed when the run is over
//! ```
//!
//! A key is used for one run only: the same noise added to different gradients cancels in the difference of the two runs, and then
//! nothing is protected. So a folder that has a run takes no other, a new run always makes a new key, and a run is resumed only
//! if everything that it depends on is the same: data, order, settings, mechanism, version.

use crate::description::{Description, Figures, Named};
use crate::kind::{current_name, former_name, kind_of};
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::task::Task;
use crate::trainer::{Epoch, Running, Saved, State};
use antiphon::error::Hint;
use antiphon::noise::key_file;
use antiphon::noise::{Cipher, Key};
use antiphon::{Error, Result, atomic, tensors};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Why a folder with a run takes no new one.
const HAS_A_RUN: &str = "has a run already";

/// The folder of a run.
pub struct Folder {
    path: PathBuf,
    run: Bound,
    /// Locked, so no other process works on the run.
    _description: fs::File,
}

/// What a folder is bound to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bound {
    /// Of this program. Another version may compute other last bits: the steps that a crash lost would then be repeated with the same
    /// noise and different gradients.
    version: String,
    description: Description,
    seed: Option<u64>,
    /// Of a key that is no seed's.
    key_fingerprint: Option<String>,
}

impl Bound {
    fn new(description: &Description, seed: Option<u64>, key_fingerprint: Option<String>) -> Bound {
        let version = env!("CARGO_PKG_VERSION").into();
        Bound { version, description: description.clone(), seed, key_fingerprint }
    }

    /// The same with another name for the mechanism.
    fn named(&self, name: impl Fn(&str) -> String) -> Bound {
        Bound { description: self.description.named(name), ..self.clone() }
    }

    /// The SHA-256 of all of it, in hexadecimal. The description alone is not enough: another seed or key is another order of the
    /// examples and other noise, and no ε was computed for a run that changes them midway.
    fn id(&self) -> String {
        let text = serde_json::to_string(&self.named(former_name)).expect("plain fields");
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What is beside the numbers of a checkpoint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    step: usize,
    /// That the run has taken so far.
    seconds: f64,
    epochs: Vec<Epoch>,
    running: Running,
    /// Updates that were zeroed, by step; none where nothing is zeroed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    zeroed: Vec<usize>,
    /// Whether a participation log belongs to it.
    logged: bool,
}

/// What of a run is known before its mechanism is made, which may take long.
#[derive(Clone, Copy)]
pub struct Outline<'a> {
    /// What is learnt.
    pub task: &'a dyn Task,
    /// How.
    pub settings: &'a Settings,
    /// The name of the mechanism, without stamps where their number is not known.
    pub mechanism: &'a str,
    /// What it costs.
    pub privacy: Figures,
    /// Of a seeded run.
    pub seed: Option<u64>,
}

impl Folder {
    /// Refuses a folder that has a run, before any work is done for a new one.
    pub fn check_new(path: &Path) -> Result<()> {
        match path.join("run.json").exists() {
            true => Err(Error::File { path: path.into(), reason: HAS_A_RUN.into() }.with(Hint::Resume)),
            false => Ok(()),
        }
    }

    /// Makes a folder for a new run, and its secrets: from a seed, or fresh ones that are kept there. A kill at any moment leaves a
    /// folder that takes the same run again, or one that has it.
    pub fn create(path: &Path, description: &Description, seed: Option<u64>) -> Result<(Folder, Secrets)> {
        Folder::check_new(path)?;
        fs::create_dir_all(path).map_err(|source| Error::Io { path: path.into(), source })?;
        let making = Making::start(path)?;
        Folder::check_new(path)?; // another process may have been faster
        remove_unused_key(path)?;
        let mut run = Bound::new(description, seed, None);
        let secrets = match seed {
            Some(seed) => Secrets::from_seed(seed, &description.id()),
            None => {
                let key = key_file::create_for_training(&path.join("key.json"), Cipher::fastest())?;
                run.key_fingerprint = Some(key.fingerprint());
                Secrets::from_key(key)
            }
        };
        let text = serde_json::to_string_pretty(&run).expect("plain fields");
        // Last: a folder with this file has all the others.
        atomic::write(&path.join("run.json"), false, |file| file.write_all(text.as_bytes()))?;
        let folder = Folder { path: path.into(), run, _description: locked(path)? };
        making.finish();
        Ok((folder, secrets))
    }

    /// Refuses at once what [`open`](Folder::open) would refuse after the mechanism is made: a folder without a run, with one that is
    /// finished, with one that is in use, or with another one as far as can be known.
    pub fn check_resumable(path: &Path, outline: &Outline<'_>) -> Result<()> {
        let (run, _lock) = read(path)?;
        let found = &run.description;
        let [name, wanted] = [&found.mechanism.name, outline.mechanism].map(current_name);
        let name = if kind_of(&name) == wanted { name } else { wanted };
        let expected = Description {
            antiphon_run: Description::VERSION,
            dataset: outline.task.identity(),
            model: outline.task.model(),
            settings: *outline.settings,
            mechanism: Named { name, id: found.mechanism.id.clone() },
            privacy: outline.privacy,
            stddev: found.stddev,
            client: outline.task.client(),
        };
        check_same(path, &run, &expected, outline.seed)?;
        match outline.seed {
            None => key_of(path, &run).map(|_| ()),
            Some(_) => Ok(()),
        }
    }

    /// Opens the folder of a run that is to be resumed. It must be the same run in everything.
    pub fn open(path: &Path, description: &Description, seed: Option<u64>) -> Result<(Folder, Secrets)> {
        let (run, lock) = read(path)?;
        check_same(path, &run, description, seed)?;
        let secrets = match seed {
            Some(seed) => Secrets::from_seed(seed, &description.id()),
            None => Secrets::from_key(key_of(path, &run)?),
        };
        Ok((Folder { path: path.into(), run, _description: lock }, secrets))
    }

    /// What to continue from, if there is something, and the seconds that it took.
    pub fn load(&self) -> Result<Option<(Saved, f64)>> {
        let path = self.path.join("checkpoint.safetensors");
        let refuse = |reason: String| Error::File { path: path.clone(), reason };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        let damaged = |what: &dyn std::fmt::Display| refuse(format!("is damaged: {what}"));
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(&error))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(&error))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let entry = |name: &str| metadata.get(name).map(String::as_str).unwrap_or_default();
        let numbers = |name: &str| -> Result<Vec<f32>> {
            let tensor = tensors.tensor(name).map_err(|error| damaged(&error))?;
            match tensor.dtype() {
                Dtype::F32 => {
                    Ok(tensor.data().as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect())
                }
                _ => Err(damaged(&format!("{name} is not single precision"))),
            }
        };
        let (parameters, velocity) = (numbers("parameters")?, numbers("velocity")?);
        if entry("sha256") != checksum([entry("progress"), entry("private_run")], &parameters, &velocity) {
            return Err(damaged(&"the checksum of its numbers is wrong"));
        }
        if entry("run") != self.run.id() {
            return Err(refuse("belongs to another run".into()));
        }
        if entry("private_run").is_empty() {
            return Err(refuse(
                "was written by an earlier version of this program, and cannot be continued".into(),
            ));
        }
        let Progress { step, seconds, epochs, running, zeroed, logged } =
            serde_json::from_str(entry("progress")).map_err(|error| damaged(&error))?;
        let run = serde_json::from_str(entry("private_run")).map_err(|error| damaged(&error))?;
        let model = State { step, parameters, velocity, epochs, running, zeroed };
        Ok(Some((Saved { model, run, logged }, seconds)))
    }

    /// Keeps a state, as a whole or not at all.
    pub fn save(&self, saved: &Saved, seconds: f64) -> Result<()> {
        let Saved { model, run, logged } = saved;
        let State { parameters, velocity, .. } = model;
        let (step, epochs, running) = (model.step, model.epochs.clone(), model.running);
        let zeroed = model.zeroed.clone();
        let progress = Progress { step, seconds, epochs, running, zeroed, logged: *logged };
        let progress = serde_json::to_string(&progress).expect("plain fields");
        let run = serde_json::to_string(run).expect("plain fields");
        let sum = checksum([&progress, &run], parameters, velocity);
        let about = [("run", self.run.id()), ("private_run", run), ("progress", progress), ("sha256", sum)];
        let vectors = [("parameters", &parameters[..]), ("velocity", &velocity[..])];
        write(&self.path.join("checkpoint.safetensors"), vectors, about, true)
    }

    /// Where a run keeps what its noise is made from beside the key. It is written after the checkpoint: older buffers are of use, newer
    /// ones are not.
    pub fn buffers(&self) -> PathBuf {
        self.path.join("buffers")
    }

    /// The run is finished: its key and its buffers are not needed any more, and are removed.
    pub fn finish(&self) -> Result<()> {
        remove_if_there(&self.buffers())?;
        // What kills left behind while buffers were written.
        let io = |source| Error::Io { path: self.path.clone(), source };
        for entry in fs::read_dir(&self.path).map_err(io)? {
            let entry = entry.map_err(io)?;
            if entry.file_name().to_string_lossy().starts_with(".buffers.") {
                remove_if_there(&entry.path())?;
            }
        }
        remove_if_there(&self.path.join("key.json"))
    }
}

/// The right to make a run in a folder, until there is one: of two processes that begin at once, one is refused.
struct Making {
    path: PathBuf,
    _lock: fs::File,
}

impl Making {
    fn start(folder: &Path) -> Result<Making> {
        let path = folder.join(".making");
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|source| Error::Io { path: path.clone(), source })?;
        atomic::lock(&file, &path)?;
        Ok(Making { path, _lock: file })
    }

    /// There is a run now, which has its own lock. Who waited for this one finds the run.
    fn finish(self) {
        let _ = fs::remove_file(&self.path); // an empty file that is left does no harm
    }
}

/// Removes a key that a kill left behind before its run began.
///
/// No noise was drawn from it: [`Folder::create`] gives a key to its caller only after run.json is written, and there is no run.json
/// (nor a checkpoint, which would say that one was lost). Even if that were wrong, no key would be used twice: this one is deleted and
/// the new run gets fresh bits, so at worst a run that somebody took apart cannot be resumed any more. A file that does not begin as a
/// key does is not ours, and stays.
fn remove_unused_key(folder: &Path) -> Result<()> {
    let refuse = |path: PathBuf, reason: &str| Err(Error::File { path, reason: reason.into() });
    let checkpoint = folder.join("checkpoint.safetensors");
    if checkpoint.exists() {
        return refuse(
            checkpoint,
            "is the checkpoint of a run whose run.json is missing: use another folder",
        );
    }
    let key = folder.join("key.json");
    let found = match fs::read(&key) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|source| Error::Io { path: key.clone(), source })?,
    };
    // A kill may have cut it off anywhere.
    let start = b"{\"antiphon_key\":";
    if !(start.starts_with(&found) || found.starts_with(start)) {
        return refuse(key, "is not a key of antiphon and is not replaced: use another folder");
    }
    remove_if_there(&key)
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::Io { path: path.into(), source: error })
        }
        _ => Ok(()),
    }
}

/// What a folder is bound to, and the lock on it.
fn read(folder: &Path) -> Result<(Bound, fs::File)> {
    let path = folder.join("run.json");
    let refuse = |reason: String| Error::File { path: path.clone(), reason };
    if !path.exists() {
        return Err(refuse("does not exist: there is no run to resume".into()));
    }
    let stored = locked(folder)?;
    let text = std::io::read_to_string(&stored).map_err(|source| Error::Io { path: path.clone(), source })?;
    let run = serde_json::from_str(&text)
        .map_err(|error| refuse(format!("is not the description of a run of this version: {error}")))?;
    Ok((run, stored))
}

/// Refuses to resume a run as another one. Former names of mechanisms are the same as today's.
fn check_same(folder: &Path, run: &Bound, description: &Description, seed: Option<u64>) -> Result<()> {
    let expected = Bound::new(description, seed, run.key_fingerprint.clone()).named(current_name);
    let found = run.named(current_name);
    if found == expected {
        return Ok(());
    }
    let reason = format!(
        "describes another run, which cannot be resumed as this one: {}",
        differences(&found, &expected)
    );
    Err(Error::File { path: folder.join("run.json"), reason })
}

/// The key of an unseeded run.
fn key_of(folder: &Path, run: &Bound) -> Result<Key> {
    let path = folder.join("key.json");
    if !path.exists() {
        let reason = "belongs to a run that is finished: its key was removed, so it cannot be resumed";
        return Err(Error::File { path: folder.join("run.json"), reason: reason.into() });
    }
    let key = key_file::read_for_training(&path)?;
    if Some(key.fingerprint()) != run.key_fingerprint {
        return Err(Error::File { path, reason: "is the key of another run".into() });
    }
    Ok(key)
}

/// The description of the run in a folder, locked as long as it is open.
fn locked(folder: &Path) -> Result<fs::File> {
    let path = folder.join("run.json");
    // Some file systems want to write what they lock.
    let file = fs::OpenOptions::new().read(true).write(true).open(&path);
    let file = file.map_err(|source| Error::Io { path: path.clone(), source })?;
    atomic::lock(&file, &path)?;
    Ok(file)
}

/// Writes trained parameters, as one vector, with what is to be known about them.
pub fn write_parameters<const N: usize>(
    path: &Path,
    parameters: &[f32],
    about: [(&str, String); N],
    force: bool,
) -> Result<()> {
    write(path, [("parameters", parameters)], about, force)
}

/// Vectors of single precision in a file that appears as a whole.
fn write<const M: usize, const N: usize>(
    path: &Path,
    vectors: [(&str, &[f32]); M],
    about: [(&str, String); N],
    replace: bool,
) -> Result<()> {
    let whole = tensors::single_precision(&BTreeMap::from(vectors), &BTreeMap::from(about));
    atomic::write(path, replace, |file| file.write_all(&whole))
}

/// The names of what differs, with both values.
fn differences(found: &Bound, expected: &Bound) -> String {
    let [found, expected] = [found, expected].map(|run| {
        let mut value = serde_json::to_value(run).expect("plain fields");
        // Where these are the usual ones, nothing is written.
        let settings = &mut value["description"]["settings"];
        settings["sampling"] = serde_json::json!(run.description.settings.order);
        settings["initial"] = serde_json::json!(run.description.settings.initial);
        value
    });
    let mut all = Vec::new();
    compare("", &found, &expected, &mut all);
    all.join("; ")
}

fn compare(name: &str, found: &serde_json::Value, expected: &serde_json::Value, all: &mut Vec<String>) {
    match (found, expected) {
        (serde_json::Value::Object(a), serde_json::Value::Object(b)) => {
            for (key, value) in a {
                // A client has a learning rate and a batch size of its own.
                let inner = if name == "client" { &format!("client {key}") } else { key };
                compare(inner, value, b.get(key).unwrap_or(&serde_json::Value::Null), all);
            }
        }
        _ if found != expected => all.push(format!("{name} was {found} and is {expected}")),
        _ => {}
    }
}

fn checksum(texts: [&str; 2], parameters: &[f32], velocity: &[f32]) -> String {
    let mut hash = Sha256::new().chain_update(texts[0]).chain_update(texts[1]);
    parameters.iter().chain(velocity).for_each(|x| hash.update(x.to_le_bytes()));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
