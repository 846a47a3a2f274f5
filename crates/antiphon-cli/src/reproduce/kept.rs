//! Runs that are kept: a finished one is a line in a file, an unfinished one has checkpoints beside it.

use crate::output::quoted;
use crate::train::{Bar, Stop};
use antiphon::atomic;
use antiphon::error::{Error, Result};
use antiphon_train::description::Description;
use antiphon_train::job::{Finished, Job, Logs, Place};
use antiphon_train::kind::current_name;
use antiphon_train::settings::Settings;
use antiphon_train::task::Task;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A finished run, as it is kept.
#[derive(Serialize, Deserialize, Clone)]
pub struct Record {
    pub run: String,
    pub seed: u64,
    pub held_out: bool,
    pub target_epsilon: f64,
    pub mechanism: String,
    pub settings: Settings,
    pub accuracy: f64,
    pub epsilon: f64,
    pub delta: f64,
    pub valid: bool,
    pub noise_multiplier: f64,
    pub steps: usize,
    pub seconds: f64,
    /// Step and test accuracy of every epoch.
    pub curve: Vec<(usize, f64)>,
    pub command: String,
    pub version: String,
}

/// Where runs are kept, if anywhere.
pub struct Kept {
    folder: Option<PathBuf>,
    file: PathBuf,
    records: Vec<Record>,
    stop: Stop,
}

impl Kept {
    /// Reads what is there.
    pub fn open(folder: Option<&Path>, what: &str, stop: Stop) -> Result<Kept> {
        let (file, records) = match folder {
            Some(folder) => {
                let file = folder.join(format!("{what}.jsonl"));
                let records = Kept::read(&file)?;
                (file, records)
            }
            None => (PathBuf::new(), Vec::new()),
        };
        Ok(Kept { folder: folder.map(Path::to_path_buf), file, records, stop })
    }

    /// The finished runs of a file. Those of version 0.1 have former names of mechanisms, which are shown as today's; they are found by
    /// their ids, which did not change.
    fn read(file: &Path) -> Result<Vec<Record>> {
        let io = |source| Error::Io { path: file.into(), source };
        let mut text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(io)?,
        };
        // Killed while it wrote a line: its run is still in its folder, and gives the line again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            match serde_json::from_str::<Record>(&text[whole..]) {
                Ok(_) => text.push('\n'),
                Err(_) => text.truncate(whole),
            }
            atomic::write(file, true, |file| file.write_all(text.as_bytes()))?;
        }
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

    /// A run: the one that is there, or a new one, which is there from then on.
    pub fn run(
        &mut self,
        job: &Job,
        task: &dyn Task,
        seed: u64,
        epsilon: f64,
        held_out: bool,
    ) -> Result<Record> {
        let id = Description::new(task, &job.design, &job.settings, &job.privacy)?.id();
        if let Some(record) = self.records.iter().find(|record| record.run == id && record.seed == seed) {
            return Ok(record.clone());
        }
        let place = self.folder.as_ref().map(|folder| folder.join(format!("run-{}-{seed}", &id[..16])));
        let kept = place.as_ref().map(|folder| Place {
            folder,
            every: Some(25),
            resume: folder.join("run.json").exists(),
        });
        let finished = job.run(
            task,
            Some(seed),
            kept.as_ref(),
            Logs::default(),
            &mut Bar::new(&self.stop, kept.as_ref(), false),
        )?;
        let record = record(&finished, id, seed, epsilon, held_out);
        drop(finished); // and with it the lock, before its folder is removed
        if let Some(folder) = place {
            let io = |source| Error::Io { path: self.file.clone(), source };
            let line = serde_json::to_string(&record).expect("plain fields") + "\n";
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(&self.file).map_err(io)?;
            file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
            std::fs::remove_dir_all(&folder).map_err(|source| Error::Io { path: folder, source })?;
        }
        self.records.push(record.clone());
        Ok(record)
    }
}

fn record(run: &Finished, id: String, seed: u64, target_epsilon: f64, held_out: bool) -> Record {
    Record {
        run: id,
        seed,
        held_out,
        target_epsilon,
        mechanism: run.mechanism.clone(),
        settings: run.settings,
        accuracy: run.accuracy(),
        epsilon: run.privacy.epsilon,
        delta: run.privacy.delta,
        valid: run.privacy.valid,
        noise_multiplier: run.privacy.noise_multiplier,
        steps: run.state.step,
        seconds: run.seconds,
        curve: run.state.epochs.iter().map(|epoch| (epoch.step, epoch.test.accuracy)).collect(),
        command: command(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").into(),
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
        };
        let record = Record {
            run: "id".into(),
            seed: 1,
            held_out: false,
            target_epsilon: 1.0,
            mechanism: "identity".into(),
            settings,
            accuracy: 0.5,
            epsilon: 1.0,
            delta: 1e-5,
            valid: true,
            noise_multiplier: 1.0,
            steps: 1,
            seconds: 1.0,
            curve: vec![(1, 0.5)],
            command: "antiphon".into(),
            version: "0".into(),
        };
        let line = serde_json::to_string(&record).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.jsonl");
        let cut = [(String::new(), 0), (line[..20].into(), 0), (line.clone(), 1), (format!("{line}\n{{"), 1)];
        for (text, count) in cut {
            std::fs::write(&file, text).unwrap();
            assert_eq!(Kept::read(&file).unwrap().len(), count);
            let kept = std::fs::read_to_string(&file).unwrap();
            assert_eq!(kept, format!("{line}\n").repeat(count));
        }
        std::fs::write(&file, "{}\n").unwrap();
        let message = Kept::read(&file).err().unwrap().to_string();
        assert!(message.contains("line 1 is not a run"), "{message}");
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
