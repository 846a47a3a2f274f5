//! Runs that are kept: a finished one is a line in a file, an unfinished one has checkpoints beside it.

use crate::output::quoted;
use crate::progress;
use crate::train::{Bar, Stop};
use antiphon::atomic;
use antiphon::error::{Error, Result};
use antiphon_train::description::{Description, Figures};
use antiphon_train::federated::client::Settings as Client;
use antiphon_train::job::{Finished, Job, Logs, Place};
use antiphon_train::kind::current_name;
use antiphon_train::settings::Settings;
use antiphon_train::task::Task;
use antiphon_train::trainer::State;
use antiphon_train::unnoised;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A finished run, as it is kept.
#[derive(Serialize, Deserialize, Clone)]
pub struct Record {
    pub run: String,
    pub seed: u64,
    pub held_out: bool,
    /// None without noise, as ε, δ and noise multiplier: not private.
    pub target_epsilon: Option<f64>,
    pub mechanism: String,
    pub settings: Settings,
    /// Zero if there is no model: its parameters were not finite.
    pub accuracy: f64,
    pub epsilon: Option<f64>,
    pub delta: Option<f64>,
    pub valid: bool,
    pub noise_multiplier: Option<f64>,
    /// Zero if there is no model.
    pub steps: usize,
    pub seconds: f64,
    /// Step and test accuracy of every epoch.
    pub curve: Vec<(usize, f64)>,
    pub command: String,
    pub version: String,
    /// Of the source of the program, if it was built with ANTIPHON_COMMIT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Of federated training.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub federated: Option<FederatedRecord>,
}

/// What a record of federated training has besides.
#[derive(Serialize, Deserialize, Clone)]
pub struct FederatedRecord {
    /// The name of the algorithm in the experiment.
    pub algorithm: String,
    pub dataset: String,
    pub users: usize,
    pub clients_per_round: usize,
    pub client: Client,
    /// On the test users, or the validation users where `held_out`; none if it is not finite.
    pub loss: Option<f64>,
    pub accuracy_with_end: Option<f64>,
    pub accuracy_without_punctuation: Option<f64>,
    /// Updates that were zeroed, by round.
    pub zeroed: Vec<usize>,
    /// Why there is no model, or none with a finite loss.
    pub diverged: Option<String>,
}

/// What a run is for.
#[derive(Clone, Copy)]
pub struct Purpose<'a> {
    pub seed: u64,
    /// None without noise.
    pub target_epsilon: Option<f64>,
    pub held_out: bool,
    /// In federated training, its algorithm.
    pub algorithm: Option<&'a str>,
}

/// Where runs are kept, if anywhere.
pub struct Kept {
    folder: Option<PathBuf>,
    file: PathBuf,
    records: Vec<Record>,
    stop: Stop,
}

impl Kept {
    /// Reads what is there. A line that was cut off is removed: its run is still in its folder, and gives the line again.
    pub fn open(folder: Option<&Path>, what: &str, stop: Stop) -> Result<Kept> {
        let (file, records) = match folder {
            Some(folder) => {
                let file = folder.join(format!("{what}.jsonl"));
                let (text, cut_off) = whole_lines(&file)?;
                if cut_off {
                    atomic::write(&file, true, |file| file.write_all(text.as_bytes()))?;
                }
                let records = records(&file, &text)?;
                (file, records)
            }
            None => (PathBuf::new(), Vec::new()),
        };
        Ok(Kept { folder: folder.map(Path::to_path_buf), file, records, stop })
    }

    /// From now on runs of another experiment in the same folder are found too. New ones are kept where they were.
    pub fn find_also_in(&mut self, what: &str) -> Result<()> {
        if let Some(folder) = &self.folder {
            self.records.extend(Kept::read(&folder.join(format!("{what}.jsonl")))?);
        }
        Ok(())
    }

    /// The finished runs of a file, to which another process may be adding one: it is left as it is.
    pub fn read(file: &Path) -> Result<Vec<Record>> {
        records(file, &whole_lines(file)?.0)
    }

    /// A run: the one that is there, or a new one, which is there from then on. Federated training may diverge, which is kept as well.
    pub fn run(&mut self, job: &Job, task: &dyn Task, purpose: Purpose<'_>) -> Result<Record> {
        let id = Description::new(task, &job.design, &job.settings, &job.privacy)?.id();
        let place =
            self.folder.as_ref().map(|folder| folder.join(format!("run-{}-{}", &id[..16], purpose.seed)));
        if let Some(record) = self.find(&id, job.design.name(), &job.settings, purpose) {
            // Killed before it was removed.
            if let Some(folder) = place.filter(|folder| folder.exists()) {
                std::fs::remove_dir_all(&folder).map_err(|source| Error::Io { path: folder, source })?;
            }
            return Ok(record);
        }
        let start = Instant::now();
        let kept = place.as_ref().map(|folder| Place {
            folder,
            every: Some(25),
            resume: folder.join("run.json").exists(),
        });
        let mut bar = Bar::new(&self.stop, kept.as_ref(), false);
        let made = match job.run(task, Some(purpose.seed), kept.as_ref(), Logs::default(), &mut bar) {
            Ok(Finished { state, seconds, .. }) => (Ok(state), seconds), // and with the rest goes the lock of the folder
            Err(error) => (Err(diverged(error, purpose)?), start.elapsed().as_secs_f64()),
        };
        let figures = Some(Figures::new(&job.privacy, job.design.valid()));
        let record = record(id, job.design.name(), &job.settings, figures, made, task, purpose);
        self.keep(&record)?;
        if let Some(folder) = place {
            std::fs::remove_dir_all(&folder).map_err(|source| Error::Io { path: folder, source })?;
        }
        Ok(record)
    }

    /// The same without noise, and without checkpoints, under a name.
    pub fn run_unnoised(
        &mut self,
        name: &str,
        settings: &Settings,
        task: &dyn Task,
        purpose: Purpose<'_>,
    ) -> Result<Record> {
        let id = unnoised::description(task, settings).id();
        if let Some(record) = self.find(&id, name, settings, purpose) {
            return Ok(record);
        }
        let start = Instant::now();
        let steps = settings.steps(task.units());
        let bar =
            progress::counter(steps as u64, "{bar:30} no noise, step {pos} of {len} [{elapsed}, {eta} left]");
        let trained = unnoised::train(task, settings, purpose.seed, |_, _| {
            bar.inc(1);
            !self.stop.asked()
        });
        bar.finish_and_clear();
        let made = match trained {
            Ok(state) => Ok(state),
            Err(error) => Err(diverged(error, purpose)?),
        };
        let made = (made, start.elapsed().as_secs_f64());
        let record = record(id, name, settings, None, made, task, purpose);
        self.keep(&record)?;
        Ok(record)
    }

    /// A run that is there, under the name that it is asked for: two algorithms may come to the same run. The id of a run depends on all
    /// bits of its mechanism, and those of a computed one on the processor: where data set and network are always the same, a run of the
    /// same name, settings, ε and seed will do.
    fn find(&self, id: &str, mechanism: &str, settings: &Settings, purpose: Purpose<'_>) -> Option<Record> {
        let same = |record: &&Record| record.run == id && record.seed == purpose.seed;
        let other_bits = |record: &&Record| {
            purpose.algorithm.is_none()
                && (record.mechanism == mechanism && record.settings == *settings)
                && (record.target_epsilon, record.held_out) == (purpose.target_epsilon, purpose.held_out)
                && record.seed == purpose.seed
        };
        let records = || self.records.iter();
        let mut record = records().find(same).or_else(|| records().find(other_bits))?.clone();
        if let Some(algorithm) = purpose.algorithm {
            // A line without what is known of such runs is made again.
            record.federated.as_mut()?.algorithm = algorithm.into();
        }
        Some(record)
    }

    /// Adds a line to the file, if there is one.
    fn keep(&mut self, record: &Record) -> Result<()> {
        if self.folder.is_some() {
            let io = |source| Error::Io { path: self.file.clone(), source };
            let line = serde_json::to_string(record).expect("plain fields") + "\n";
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(&self.file).map_err(io)?;
            file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        }
        self.records.push(record.clone());
        Ok(())
    }
}

/// The text of a file of runs without a last line that was cut off, and whether it has one or lacks its end. No file is an empty one.
fn whole_lines(file: &Path) -> Result<(String, bool)> {
    let mut text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|source| Error::Io { path: file.into(), source })?,
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let cut_off = whole < text.len();
    match serde_json::from_str::<Record>(&text[whole..]) {
        Ok(_) => text.push('\n'),
        Err(_) => text.truncate(whole),
    }
    Ok((text, cut_off))
}

/// The runs in a text. Those of version 0.1 have former names of mechanisms, which are shown as today's; they are found by their ids, which
/// did not change.
fn records(file: &Path, text: &str) -> Result<Vec<Record>> {
    let record = |(i, line)| {
        let refuse = |error| Error::File {
            path: file.into(),
            reason: format!("line {} is not a run: {error}", i + 1),
        };
        let record: Record = serde_json::from_str(line).map_err(refuse)?;
        Ok(Record { mechanism: current_name(&record.mechanism), ..record })
    };
    text.lines().enumerate().map(record).collect()
}

/// Why a run of federated training has no model; any other error ends the command.
fn diverged(error: Error, purpose: Purpose<'_>) -> Result<String> {
    match error {
        Error::Numerical(reason) if purpose.algorithm.is_some() => Ok(reason),
        other => Err(other),
    }
}

/// What came of a run, or why nothing did, and the seconds that it took.
type Made = (std::result::Result<State, String>, f64);

fn record(
    id: String,
    mechanism: &str,
    settings: &Settings,
    figures: Option<Figures>,
    (made, seconds): Made,
    task: &dyn Task,
    purpose: Purpose<'_>,
) -> Record {
    let epochs = made.as_ref().map_or(&[][..], |state| &state.epochs);
    let last = epochs.last().map(|epoch| epoch.test);
    let loss = last.map(|score| score.loss).filter(|loss| loss.is_finite());
    let no_loss = || loss.is_none().then(|| "the training diverged: the loss is not finite".to_string());
    let federated = |algorithm: &str, client: Client| FederatedRecord {
        algorithm: algorithm.into(),
        dataset: task.identity().name,
        users: task.units(),
        clients_per_round: settings.batch_size,
        client,
        loss,
        accuracy_with_end: last.and_then(|score| score.accuracy_with_end),
        accuracy_without_punctuation: last.and_then(|score| score.accuracy_without_punctuation),
        zeroed: made.as_ref().map_or(Vec::new(), |state| state.zeroed.clone()),
        diverged: made.as_ref().err().cloned().or_else(no_loss),
    };
    Record {
        run: id,
        seed: purpose.seed,
        held_out: purpose.held_out,
        target_epsilon: purpose.target_epsilon,
        mechanism: mechanism.into(),
        settings: *settings,
        accuracy: last.map_or(0.0, |score| score.accuracy),
        epsilon: figures.map(|figures| figures.epsilon),
        delta: figures.map(|figures| figures.delta),
        valid: figures.is_some_and(|figures| figures.valid),
        noise_multiplier: figures.map(|figures| figures.noise_multiplier),
        steps: made.as_ref().map_or(0, |state| state.step),
        seconds,
        curve: epochs.iter().map(|epoch| (epoch.step, epoch.test.accuracy)).collect(),
        command: command(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("ANTIPHON_COMMIT").map(String::from),
        federated: purpose.algorithm.zip(task.client()).map(|(name, client)| federated(name, client)),
    }
}

/// The command without its folders, which say nothing about the result.
fn command(words: impl IntoIterator<Item = std::ffi::OsString>) -> String {
    let folder = |word: &str| ["--data", "--output", "-o"].contains(&word);
    let with_folder = |word: &str| word.starts_with("--data=") || word.starts_with("--output=");
    let mut kept = vec!["antiphon".to_string()];
    let mut words = words.into_iter().skip(1).map(|word| quoted(&word));
    while let Some(word) = words.next() {
        if folder(&word) {
            words.next();
        } else if word == "--dataset" {
            // A file of the user's, without its folders.
            let name = words.next().unwrap_or_default();
            kept.extend([word, name.rsplit('/').next().unwrap_or_default().to_string()]);
        } else if !with_folder(&word) {
            kept.push(word);
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_kept_without_folders() {
        let words = "antiphon reproduce cifar10 --data /a --epsilon 2,8 --output=b --repeats 3 -o c --force";
        let kept = command(words.split(' ').map(Into::into));
        assert_eq!(kept, "antiphon reproduce cifar10 --epsilon 2,8 --repeats 3 --force");
        let words = "antiphon reproduce federated --dataset /home/me/chat.jsonl --repeats 3";
        let kept = command(words.split(' ').map(Into::into));
        assert_eq!(kept, "antiphon reproduce federated --dataset chat.jsonl --repeats 3");
    }

    #[test]
    fn a_line_that_was_cut_off_is_made_again() {
        let settings = Settings {
            epochs: 1,
            batch_size: 1,
            clip_norm: 1.0,
            learning_rate: 0.1,
            momentum: 0.0,
            cooldown: None,
            in_workload: false,
            order: antiphon_train::order::Order::Fixed,
            initial: antiphon_train::network::Initial::Normal,
        };
        let record = Record {
            run: "id".into(),
            seed: 1,
            held_out: false,
            target_epsilon: Some(1.0),
            mechanism: "identity".into(),
            settings,
            accuracy: 0.5,
            epsilon: Some(1.0),
            delta: Some(1e-5),
            valid: true,
            noise_multiplier: Some(1.0),
            steps: 1,
            seconds: 1.0,
            curve: vec![(1, 0.5)],
            command: "antiphon".into(),
            version: "0".into(),
            commit: None,
            federated: None,
        };
        let line = serde_json::to_string(&record).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.jsonl");
        let cut = [(String::new(), 0), (line[..20].into(), 0), (line.clone(), 1), (format!("{line}\n{{"), 1)];
        for (text, count) in cut {
            std::fs::write(&file, &text).unwrap();
            assert_eq!(Kept::read(&file).unwrap().len(), count);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "reading changes nothing");
            let opened = Kept::open(Some(folder.path()), "x", Stop::default()).unwrap();
            assert_eq!(opened.records.len(), count);
            let kept = std::fs::read_to_string(&file).unwrap();
            assert_eq!(kept, format!("{line}\n").repeat(count));
        }
        std::fs::write(&file, "{}\n").unwrap();
        let message = Kept::read(&file).err().unwrap().to_string();
        assert!(message.contains("line 1 is not a run"), "{message}");
    }

    #[test]
    fn a_run_is_found_on_another_processor() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro/results");
        let records = Kept::read(&folder.join("cifar10.jsonl")).unwrap();
        let first = records[0].clone();
        let kept = Kept { folder: None, file: PathBuf::new(), records, stop: Stop::default() };
        let purpose = Purpose {
            seed: first.seed,
            target_epsilon: first.target_epsilon,
            held_out: first.held_out,
            algorithm: None,
        };
        let found = |id: &str, settings: &Settings, purpose: Purpose<'_>| {
            kept.find(id, &first.mechanism, settings, purpose).map(|record| record.run)
        };
        let settings = first.settings;
        assert_eq!(found(&first.run, &settings, purpose), Some(first.run.clone()));
        assert_eq!(found("other bits", &settings, purpose), Some(first.run.clone()));
        assert_eq!(found("other bits", &Settings { learning_rate: 0.3, ..settings }, purpose), None);
        let others = [
            Purpose { seed: 99, ..purpose },
            Purpose { target_epsilon: Some(3.0), ..purpose },
            Purpose { held_out: true, ..purpose },
            Purpose { algorithm: Some("mf6"), ..purpose },
        ];
        others.into_iter().for_each(|other| assert_eq!(found("other bits", &settings, other), None));
        assert_eq!(kept.find("other bits", "identity", &settings, purpose).map(|record| record.run), None);
    }

    #[test]
    fn runs_of_another_experiment_are_found_and_left_where_they_are() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro/results");
        let folder = tempfile::tempdir().unwrap();
        let (main, own) = (folder.path().join("cifar10.jsonl"), folder.path().join("cifar10-stamps.jsonl"));
        std::fs::copy(results.join("cifar10.jsonl"), &main).unwrap();
        let before = std::fs::read(&main).unwrap();
        let first = Kept::read(&main).unwrap().remove(0);
        let purpose = Purpose {
            seed: first.seed,
            target_epsilon: first.target_epsilon,
            held_out: first.held_out,
            algorithm: None,
        };
        let mut kept = Kept::open(Some(folder.path()), "cifar10-stamps", Stop::default()).unwrap();
        let found = |kept: &Kept| kept.find(&first.run, &first.mechanism, &first.settings, purpose).is_some();
        assert!(!found(&kept));
        kept.find_also_in("cifar10").unwrap();
        assert!(found(&kept));
        kept.keep(&Record { seed: 99, ..first.clone() }).unwrap();
        assert_eq!(Kept::read(&own).unwrap().iter().map(|record| record.seed).collect::<Vec<_>>(), [99]);
        assert_eq!(std::fs::read(&main).unwrap(), before);
    }

    #[test]
    fn results_of_version_0_1_are_read_under_the_names_of_today() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro/results");
        for file in ["fashion-mnist.jsonl", "cifar10.jsonl"] {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let written = |name: &str| text.matches(&format!("\"mechanism\":\"{name}, 10 stamps\"")).count();
            let records = Kept::read(&folder.join(file)).unwrap();
            let named =
                |name: &str| records.iter().filter(|record| record.mechanism.starts_with(name)).count();
            assert_eq!(records.len(), text.lines().count());
            assert!(written("tree") > 0 && named("tree,") == 0, "{file}");
            assert_eq!(named("tree-online, 10 stamps"), written("tree") + written("tree-online"), "{file}");
        }
    }
}
