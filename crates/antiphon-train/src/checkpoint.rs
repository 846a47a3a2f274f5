//! A run that survives: a folder with what it is, its key, and how far it has come.
//!
//! ```text
//! run.json                  the description of the run, and its seed or the fingerprint of its key
//! key.json                  256 secret bits; removed when the run is over
//! checkpoint.safetensors    parameters, velocity, step, epochs; replaced as a whole
//! ```
//!
//! A key serves one run: the same noise under other gradients would cancel in the difference of the two, and with it all
//! privacy. So a folder that has a run takes no other, a new run never takes a key that is there already, and a run goes on only
//! if everything that it depends on is the same: data, order, settings, mechanism, version.

use crate::secrets::Secrets;
use crate::trainer::{Description, Epoch, State};
use antiphon::noise::Cipher;
use antiphon::noise::key_file::{self, Use};
use antiphon::{Error, Result, atomic};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

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
    /// Of this program. Another one may compute other last bits, and what a crash lost would have the same noise under other gradients.
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

    /// The SHA-256 of all of it, in hexadecimal. The description alone is not enough: another seed or key is another order of the
    /// examples and other noise, and no ε was computed for a run that changes them midway.
    fn id(&self) -> String {
        let text = serde_json::to_string(self).expect("plain fields");
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
    running: (usize, f64, usize),
}

impl Folder {
    /// Makes a folder for a new run, and its secrets: from a seed, or fresh ones that are kept there.
    pub fn create(path: &Path, description: &Description, seed: Option<u64>) -> Result<(Folder, Secrets)> {
        let io = |source| Error::Io { path: path.into(), source };
        let refuse = |reason: &str| Error::File { path: path.into(), reason: reason.into() };
        fs::create_dir_all(path).map_err(io)?;
        if path.join("run.json").exists() {
            return Err(refuse(
                "has a run already: use --resume to go on with it, or another folder for a new one",
            ));
        }
        if path.join("key.json").exists() {
            return Err(refuse(
                "has a key without a run: that of another run, which must not serve twice, or of one that was killed before its \
                 first step. Use another folder",
            ));
        }
        let mut run = Bound::new(description, seed, None);
        let secrets = match seed {
            Some(seed) => Secrets::from_seed(seed, &description.id()),
            None => {
                let key = key_file::create(&path.join("key.json"), Cipher::fastest(), Use::Train)?;
                run.key_fingerprint = Some(key.fingerprint());
                Secrets::from_key(&key)
            }
        };
        let text = serde_json::to_string_pretty(&run).expect("plain fields");
        // Last: a folder with this file has all the others.
        atomic::write(&path.join("run.json"), false, |file| file.write_all(text.as_bytes()))?;
        Ok((Folder { path: path.into(), run, _description: locked(path)? }, secrets))
    }

    /// Opens the folder of a run that is to go on. It must be the same run in everything.
    pub fn open(path: &Path, description: &Description, seed: Option<u64>) -> Result<(Folder, Secrets)> {
        let file = path.join("run.json");
        let refuse = |reason: String| Error::File { path: file.clone(), reason };
        if !file.exists() {
            return Err(refuse("is not there: there is no run to go on with".into()));
        }
        let stored = locked(path)?;
        let text =
            std::io::read_to_string(&stored).map_err(|source| Error::Io { path: file.clone(), source })?;
        let run: Bound = serde_json::from_str(&text)
            .map_err(|error| refuse(format!("is not the description of a run of this version: {error}")))?;
        let expected = Bound::new(description, seed, run.key_fingerprint.clone());
        if run != expected {
            let differing = differences(&run, &expected);
            return Err(refuse(format!("is another run, which cannot go on as this one: {differing}")));
        }
        let secrets = match seed {
            Some(seed) => Secrets::from_seed(seed, &description.id()),
            None => {
                let path = path.join("key.json");
                if !path.exists() {
                    return Err(refuse("is a run that is over: its key has served and was removed".into()));
                }
                let key = key_file::read(&path)?;
                if Some(key.fingerprint()) != run.key_fingerprint {
                    return Err(Error::File { path, reason: "is the key of another run".into() });
                }
                Secrets::from_key(&key)
            }
        };
        Ok((Folder { path: path.into(), run, _description: stored }, secrets))
    }

    /// The state to go on from, if there is one, and the seconds that it took.
    pub fn load(&self, noise_id: &str) -> Result<Option<(State, f64)>> {
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
        let numbers = |name: &str| -> Result<(&[u8], Vec<f32>)> {
            let tensor = tensors.tensor(name).map_err(|error| damaged(&error))?;
            let bytes = tensor.data();
            match tensor.dtype() {
                Dtype::F32 => {
                    Ok((bytes, bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect()))
                }
                _ => Err(damaged(&format!("{name} is not single precision"))),
            }
        };
        let ((a, parameters), (b, velocity)) = (numbers("parameters")?, numbers("velocity")?);
        if entry("sha256") != checksum(entry("progress"), a, b) {
            return Err(damaged(&"its checksum is another"));
        }
        if (entry("run"), entry("noise")) != (&self.run.id(), noise_id) {
            return Err(refuse("belongs to another run, or to another version of its mechanism".into()));
        }
        let Progress { step, seconds, epochs, running } =
            serde_json::from_str(entry("progress")).map_err(|error| damaged(&error))?;
        Ok(Some((State { step, parameters, velocity, epochs, running }, seconds)))
    }

    /// Keeps a state, as a whole or not at all.
    pub fn save(&self, state: &State, noise_id: &str, seconds: f64) -> Result<()> {
        let (parameters, velocity) = (bytes(&state.parameters), bytes(&state.velocity));
        let (step, epochs, running) = (state.step, state.epochs.clone(), state.running);
        let progress = Progress { step, seconds, epochs, running };
        let progress = serde_json::to_string(&progress).expect("plain fields");
        let sum = checksum(&progress, &parameters, &velocity);
        let about = [
            ("run", self.run.id()),
            ("noise", noise_id.to_string()),
            ("progress", progress),
            ("sha256", sum),
        ];
        let tensors = [("parameters", &parameters[..]), ("velocity", &velocity[..])];
        write(&self.path.join("checkpoint.safetensors"), &tensors, &about, true)
    }

    /// The run is over: its key has served.
    pub fn finish(&self) -> Result<()> {
        let path = self.path.join("key.json");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Io { path, source: error })
            }
            _ => Ok(()),
        }
    }
}

/// The description of the run in a folder, as long as it is worked on.
fn locked(folder: &Path) -> Result<fs::File> {
    let path = folder.join("run.json");
    // Some file systems want to write what they lock.
    let file = fs::OpenOptions::new().read(true).write(true).open(&path);
    let file = file.map_err(|source| Error::Io { path: path.clone(), source })?;
    atomic::lock(&file, &path)?;
    Ok(file)
}

/// Writes trained parameters, as one vector, with what is to be known about them.
pub fn write_parameters(
    path: &Path,
    parameters: &[f32],
    about: &[(&str, String)],
    force: bool,
) -> Result<()> {
    write(path, &[("parameters", &bytes(parameters))], about, force)
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Vectors of single precision in a file that appears as a whole.
fn write(path: &Path, tensors: &[(&str, &[u8])], about: &[(&str, String)], replace: bool) -> Result<()> {
    let refuse = |error: safetensors::SafeTensorError| Error::File {
        path: path.into(),
        reason: format!("cannot be written: {error}"),
    };
    let mut views = Vec::new();
    for (name, bytes) in tensors {
        views.push((*name, TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes).map_err(refuse)?));
    }
    let about: HashMap<String, String> =
        about.iter().map(|(name, text)| (name.to_string(), text.clone())).collect();
    let whole = serialize(views, Some(about)).map_err(refuse)?;
    atomic::write(path, replace, |file| file.write_all(&whole))
}

/// The names of what differs, with both values.
fn differences(found: &Bound, expected: &Bound) -> String {
    let [found, expected] = [found, expected].map(|run| serde_json::to_value(run).expect("plain fields"));
    let mut all = Vec::new();
    compare("", &found, &expected, &mut all);
    all.join("; ")
}

fn compare(name: &str, found: &serde_json::Value, expected: &serde_json::Value, all: &mut Vec<String>) {
    match (found, expected) {
        (serde_json::Value::Object(a), serde_json::Value::Object(b)) => {
            for (key, value) in a {
                compare(key, value, b.get(key).unwrap_or(&serde_json::Value::Null), all);
            }
        }
        _ if found != expected => all.push(format!("{name} was {found} and is {expected}")),
        _ => {}
    }
}

fn checksum(progress: &str, parameters: &[u8], velocity: &[u8]) -> String {
    let hash = Sha256::new().chain_update(progress).chain_update(parameters).chain_update(velocity);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
