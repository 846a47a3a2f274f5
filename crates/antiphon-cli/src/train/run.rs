//! One run from its first step to its last, or from its checkpoint on.

use super::statement;
use super::stop::Stop;
use crate::compare::plural;
use crate::output::short_bound;
use crate::progress;
use antiphon::error::{Error, Result};
use antiphon::noise::{Cipher, Key};
use antiphon::schema::Schema;
use antiphon_train::checkpoint::{self, Folder};
use antiphon_train::design::{Design, Privacy};
use antiphon_train::kind::Kind;
use antiphon_train::secrets::Secrets;
use antiphon_train::task::Task;
use antiphon_train::trainer::{Description, Epoch, Settings, State, Trainer};
use indicatif::ProgressBar;
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

/// A run that is finished.
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
    /// Ends the run when all that was asked for is written: its key is removed, so it cannot be resumed any more.
    pub fn close(&self) -> Result<()> {
        self.folder.as_ref().map_or(Ok(()), Folder::finish)
    }

    /// At the end.
    pub fn accuracy(&self) -> f64 {
        self.state.epochs.last().map_or(0.0, |epoch| epoch.test.accuracy)
    }
}

/// The design of a kind for a task, with a sign of life while it is made.
pub fn design(
    kind: Kind,
    stamps: Option<usize>,
    task: &Task,
    settings: &Settings,
    stop: &Stop,
) -> Result<Design> {
    let examples = task.train.len();
    let schema = Schema::epochs(settings.epochs, settings.steps_per_epoch(examples))?;
    let workload = settings.workload(schema.steps())?;
    let rate = settings.batch_size as f64 / examples as f64;
    progress::busy("making the mechanism", || {
        Design::new(kind, stamps, &schema, &workload, rate, &|_| !stop.asked())
    })
}

impl Job {
    /// Trains, with a bar; `table` prints a line for every epoch. Where it is asked to stop, it writes a checkpoint and says so.
    pub fn run(
        &self,
        task: &Task,
        seed: Option<u64>,
        place: Option<&Place<'_>>,
        mut log: Option<&mut Log>,
        table: bool,
        stop: &Stop,
    ) -> Result<Finished> {
        let start = Instant::now();
        let Job { design, settings, privacy } = self;
        let description = Description::new(task, design, settings, privacy);
        let (folder, secrets) = begin(&description, seed, place)?;
        // After the folder: a log that is there then belongs to its run, and --resume adds to it.
        if let Some(log) = &mut log {
            log.begin()?;
        }
        let mut trainer = Trainer::new(task, design, settings, privacy, &secrets, MEMORY)?;
        let before = match (place, &folder) {
            (Some(place), Some(folder)) if place.resume => resume(&mut trainer, folder, place.folder)?,
            _ => 0.0,
        };
        let seconds = || before + start.elapsed().as_secs_f64();
        let steps = trainer.steps();
        let every = place.and_then(|place| place.every).unwrap_or(settings.steps_per_epoch(task.train.len()));
        let bar = self.bar(&trainer, table);
        while !trainer.finished() {
            if stop.asked() {
                bar.finish_and_clear();
                if let Some(folder) = &folder {
                    folder.save(trainer.state(), trainer.noise_id(), seconds())?;
                }
                say_stopped(&trainer, place);
                return Err(Error::Interrupted);
            }
            let epoch = trainer.step()?;
            bar.inc(1);
            let step = trainer.state().step;
            if let Some(epoch) = epoch {
                bar.set_message(self.message(Some(&epoch)));
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
            mechanism: design.name().into(),
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

    /// The bar, at the step where the run stands, and the head of the table with the epochs that are done.
    fn bar(&self, trainer: &Trainer<'_>, table: bool) -> ProgressBar {
        let template = "{bar:30} {msg} step {pos} of {len} [{elapsed}, {eta} left]";
        let bar = progress::counter(trainer.steps() as u64, template);
        let State { step, epochs, .. } = trainer.state();
        bar.set_position(*step as u64);
        bar.reset_eta();
        bar.set_message(self.message(epochs.last()));
        if table {
            let heads = ["epoch", "step", "train loss", "clipped", "test accuracy"];
            let [epoch, step, loss, clipped, accuracy] = heads;
            bar.suspend(|| {
                say!("  {epoch:>5} {step:>7} {loss:>11} {clipped:>8} {accuracy:>14}");
                epochs.iter().for_each(line);
            });
        }
        bar
    }

    fn message(&self, epoch: Option<&Epoch>) -> String {
        let figures = epoch.map_or(String::new(), |epoch| {
            format!(", loss {:.3}, accuracy {:.1}%", epoch.train_loss, 100.0 * epoch.test.accuracy)
        });
        let valid = if self.privacy.valid() { "" } else { " (not valid)" };
        let epsilon = short_bound(self.privacy.epsilon(), true);
        format!("{}{figures}, ε = {epsilon}{valid},", self.design.name())
    }
}

/// The folder of a run, if it has one, and its secrets.
fn begin(
    description: &Description,
    seed: Option<u64>,
    place: Option<&Place<'_>>,
) -> Result<(Option<Folder>, Secrets)> {
    let kept = |(folder, secrets)| (Some(folder), secrets);
    match (place, seed) {
        (Some(place), _) if place.resume => Folder::open(place.folder, description, seed).map(kept),
        (Some(place), _) => Folder::create(place.folder, description, seed).map(kept),
        (None, Some(seed)) => Ok((None, Secrets::from_seed(seed, &description.id()))),
        (None, None) => Ok((None, Secrets::from_key(&Key::from_os(Cipher::fastest())?))),
    }
}

/// Continues from the checkpoint, if there is one; gives the seconds that it took to get there.
fn resume(trainer: &mut Trainer<'_>, folder: &Folder, path: &Path) -> Result<f64> {
    let path = path.display();
    let Some((state, seconds)) = folder.load(trainer.noise_id())? else {
        eprintln!("antiphon: resuming {path} from the beginning: it has no checkpoint yet");
        return Ok(0.0);
    };
    trainer.resume(state)?;
    let (step, steps) = (trainer.state().step, trainer.steps());
    eprintln!("antiphon: resuming {path}: {step} of {steps} step{} done", plural(steps));
    Ok(seconds)
}

/// Where a run stands that was asked to stop, and whether it can be continued.
fn say_stopped(trainer: &Trainer<'_>, place: Option<&Place<'_>>) {
    let (step, steps) = (trainer.state().step, trainer.steps());
    let kept = match place {
        Some(place) => format!("; they are saved in {}", place.folder.display()),
        None => ", without a checkpoint".into(),
    };
    eprintln!("antiphon: stopped after {step} of {steps} step{}{kept}", plural(steps));
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
    path: PathBuf,
    resume: bool,
    /// From the first run on.
    file: Option<File>,
    /// What is there already, where a run is resumed: run, seed and epoch.
    there: Vec<serde_json::Value>,
}

impl Log {
    /// A log that begins with its first run. Where a run is resumed it goes on; otherwise a file that is there is refused, or removed if
    /// `force` says so. It is removed now and not at the beginning of the run: whatever is found after a kill is the run's own.
    pub fn new(path: &Path, resume: bool, force: bool) -> Result<Log> {
        let io = |source| Error::Io { path: path.into(), source };
        if !resume {
            antiphon::atomic::check(path, force)?;
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        Ok(Log { path: path.into(), resume, file: None, there: Vec::new() })
    }

    /// Opens the file, once.
    fn begin(&mut self) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let io = |source| Error::Io { path: self.path.clone(), source };
        let mut options = OpenOptions::new();
        // A file that appeared since it was looked for is another program's.
        options.append(true).create(true).create_new(!self.resume);
        let mut file = options.open(&self.path).map_err(io)?;
        let text = if self.resume { std::fs::read_to_string(&self.path).map_err(io)? } else { String::new() };
        let there = text.lines().filter_map(|line| serde_json::from_str(line).ok().map(|line| place(&line)));
        self.there = there.collect();
        // A line that was cut off stays alone.
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file).map_err(io)?;
        }
        self.file = Some(file);
        Ok(())
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
        match &mut self.file {
            Some(file) if !self.there.contains(&place(&line)) => {
                writeln!(file, "{line}").map_err(|source| Error::Io { path: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

/// What a line of a log is about.
fn place(line: &serde_json::Value) -> serde_json::Value {
    serde_json::json!([line["run"], line["seed"], line["epoch"]])
}

/// Writes the parameters with what is known about them. The file is meant to be released, so the hash of the data is left out: somebody
/// who knows all examples but one could test guesses of that one with it.
pub fn write_model(path: &Path, finished: &Finished, force: bool) -> Result<()> {
    let mut description = finished.description.clone();
    description.dataset.1.clear();
    let about = [
        ("description", serde_json::to_string(&description).expect("plain fields")),
        ("statement", finished.statement.join(" ")),
        ("accuracy", finished.accuracy().to_string()),
    ];
    checkpoint::write_parameters(path, &finished.state.parameters, about, force)
}
