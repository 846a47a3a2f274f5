//! One run from its first step to its last, or from the checkpoint on.

use super::statement;
use crate::output::short_bound;
use crate::progress;
use antiphon::error::{Error, Result};
use antiphon::noise::{Cipher, Key};
use antiphon::schema::Schema;
use antiphon_train::checkpoint::{self, Folder};
use antiphon_train::design::{Design, Kind, Privacy};
use antiphon_train::secrets::Secrets;
use antiphon_train::task::Task;
use antiphon_train::trainer::{Description, Epoch, Settings, State, Trainer};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Memory for rows of noise that are made together.
const MEMORY: usize = 256 << 20;

/// What is to be trained, with its noise.
pub struct Job {
    pub design: Design,
    pub settings: Settings,
    pub privacy: Privacy,
}

/// Where a run is kept.
pub struct Place<'a> {
    pub folder: &'a Path,
    /// Steps between checkpoints; an epoch where nothing is said.
    pub every: Option<usize>,
    pub resume: bool,
}

/// A run that is over.
pub struct Finished {
    pub mechanism: String,
    pub privacy: Privacy,
    pub settings: Settings,
    pub description: Description,
    pub seed: Option<u64>,
    pub seconds: f64,
    pub state: State,
    pub statement: Vec<String>,
    folder: Option<Folder>,
}

impl Finished {
    /// Ends the run, when all that was asked for is written: its key is removed, and nothing can be asked for any more.
    pub fn close(&self) -> Result<()> {
        self.folder.as_ref().map_or(Ok(()), Folder::finish)
    }

    /// At the end.
    pub fn accuracy(&self) -> f64 {
        self.state.epochs.last().map_or(0.0, |epoch| epoch.test.accuracy)
    }
}

/// The design of a kind for a task, with a bar for the optimizer.
pub fn design(kind: Kind, stamps: Option<usize>, task: &Task, settings: &Settings) -> Result<Design> {
    let examples = task.train.len();
    let schema = Schema::epochs(settings.epochs, settings.steps_per_epoch(examples))?;
    let workload = settings.workload(schema.steps())?;
    let rate = settings.batch_size as f64 / examples as f64;
    progress::busy("making the mechanism", || Design::new(kind, stamps, &schema, &workload, rate, &|_| true))
}

impl Job {
    /// Trains, with a bar; `table` prints a line for every epoch.
    pub fn run(
        &self,
        task: &Task,
        seed: Option<u64>,
        place: Option<&Place<'_>>,
        mut log: Option<&mut Log>,
        table: bool,
    ) -> Result<Finished> {
        let start = Instant::now();
        let Job { design, settings, privacy } = self;
        let description = Description::new(task, design, settings, privacy);
        let (folder, secrets) = match place {
            Some(Place { folder, resume: true, .. }) => kept(Folder::open(folder, &description, seed)?),
            Some(Place { folder, .. }) => kept(Folder::create(folder, &description, seed)?),
            None => (
                None,
                match seed {
                    Some(seed) => Secrets::from_seed(seed, &description.id()),
                    None => Secrets::from_key(&Key::from_os(Cipher::fastest())?),
                },
            ),
        };
        let mut trainer = Trainer::new(task, design, settings, privacy, &secrets, MEMORY)?;
        let mut before = 0.0;
        if let Some(folder) = &folder
            && let Some((state, seconds)) = folder.load(trainer.noise_id())?
        {
            trainer.resume(state)?;
            before = seconds;
        }
        let seconds = || before + start.elapsed().as_secs_f64();
        let steps = trainer.steps();
        let every = place.and_then(|place| place.every).unwrap_or(settings.steps_per_epoch(task.train.len()));
        let bar =
            progress::counter(steps as u64, "{bar:30} {msg} step {pos} of {len} [{elapsed}, {eta} left]");
        bar.set_position(trainer.state().step as u64);
        bar.reset_eta();
        let bar_message = |epoch: Option<&Epoch>| {
            let figures = epoch.map_or(String::new(), |epoch| {
                format!(", loss {:.3}, accuracy {:.1}%", epoch.train_loss, 100.0 * epoch.test.accuracy)
            });
            let valid = if privacy.valid { "" } else { " (not valid)" };
            let epsilon = short_bound(privacy.epsilon, true);
            bar.set_message(format!("{}{figures}, ε = {epsilon}{valid},", design.name));
        };
        bar_message(trainer.state().epochs.last());
        if table {
            bar.suspend(|| {
                say!(
                    "  {:>5} {:>7} {:>11} {:>8} {:>14}",
                    "epoch",
                    "step",
                    "train loss",
                    "clipped",
                    "test accuracy"
                );
                trainer.state().epochs.iter().for_each(line);
            });
        }
        while !trainer.finished() {
            let epoch = trainer.step()?;
            bar.inc(1);
            let step = trainer.state().step;
            if let Some(epoch) = epoch {
                bar_message(Some(&epoch));
                if table {
                    bar.suspend(|| line(&epoch));
                }
                // Before the checkpoint: what a kill in between writes again is recognized, what it lost would be missing.
                if let Some(log) = &mut log {
                    log.epoch(&description, seed, &epoch, seconds())?;
                }
            }
            if let Some(folder) = &folder
                && (step.is_multiple_of(every) || step == steps)
            {
                folder.save(trainer.state(), trainer.noise_id(), seconds())?;
            }
        }
        bar.finish_and_clear();
        Ok(Finished {
            mechanism: design.name.clone(),
            privacy: *privacy,
            settings: *settings,
            seed,
            seconds: seconds(),
            state: trainer.state().clone(),
            statement: statement::of(design, settings, privacy, task, seed.is_some()),
            description,
            folder,
        })
    }
}

fn kept((folder, secrets): (Folder, Secrets)) -> (Option<Folder>, Secrets) {
    (Some(folder), secrets)
}

fn line(epoch: &Epoch) {
    say!(
        "  {:>5} {:>7} {:>11.4} {:>7.1}% {:>13.2}%",
        epoch.epoch,
        epoch.step,
        epoch.train_loss,
        100.0 * epoch.clipped,
        100.0 * epoch.test.accuracy
    );
}

/// Lines of JSON, one for every epoch of every run.
pub struct Log {
    file: File,
    path: PathBuf,
    /// What is there already, where a run goes on: run, seed and epoch.
    there: Vec<serde_json::Value>,
}

impl Log {
    /// A new file, or the end of the one that is there where a run goes on.
    pub fn open(path: &Path, resume: bool, force: bool) -> Result<Log> {
        if !resume {
            antiphon::atomic::check(path, force)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).append(resume).write(true).truncate(!resume);
        let io = |source| Error::Io { path: path.into(), source };
        let mut file = options.open(path).map_err(io)?;
        let text = if resume { std::fs::read_to_string(path).map_err(io)? } else { String::new() };
        let there = text.lines().filter_map(|line| serde_json::from_str(line).ok().map(|line| place(&line)));
        let there = there.collect();
        // A line that was cut off stays alone.
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file).map_err(io)?;
        }
        Ok(Log { file, path: path.into(), there })
    }

    fn epoch(&mut self, run: &Description, seed: Option<u64>, epoch: &Epoch, seconds: f64) -> Result<()> {
        let line = serde_json::json!({
            "run": run.id(),
            "mechanism": run.mechanism.0,
            "seed": seed,
            "epoch": epoch.epoch,
            "step": epoch.step,
            "train_loss": epoch.train_loss,
            "clipped": epoch.clipped,
            "test_accuracy": epoch.test.accuracy,
            "test_loss": epoch.test.loss,
            "epsilon": run.privacy.epsilon,
            "delta": run.privacy.delta,
            "valid": run.privacy.valid,
            "seconds": seconds,
        });
        if self.there.contains(&place(&line)) {
            return Ok(());
        }
        writeln!(self.file, "{line}").map_err(|source| Error::Io { path: self.path.clone(), source })
    }
}

/// What a line of a log is about.
fn place(line: &serde_json::Value) -> serde_json::Value {
    serde_json::json!([line["run"], line["seed"], line["epoch"]])
}

/// Keeps the parameters with what is known about them. The file is to be released, so the hash of the data is left out: who knows all
/// examples but one could test guesses of that one by it.
pub fn write_model(path: &Path, finished: &Finished, force: bool) -> Result<()> {
    let mut description = finished.description.clone();
    description.dataset.1.clear();
    let about = [
        ("description", serde_json::to_string(&description).expect("plain fields")),
        ("statement", finished.statement.join(" ")),
        ("accuracy", finished.accuracy().to_string()),
    ];
    checkpoint::write_parameters(path, &finished.state.parameters, &about, force)
}
