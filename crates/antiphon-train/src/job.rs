//! One run from its first step to its last, or from its checkpoint on.

use crate::checkpoint::{self, Folder};
use crate::description::{Description, Figures};
use crate::design::Design;
use crate::kind::Kind;
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::task::Task;
use crate::trainer::{Epoch, State, Trainer};
use antiphon::noise::{Cipher, Key};
use antiphon::optimize::Progress;
use antiphon::run::Privacy;
use antiphon::run::log::Writer;
use antiphon::statement::Statement;
use antiphon::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Memory for rows of noise that are made together.
const MEMORY: usize = 256 << 20;

/// What is to be trained, with its noise.
#[derive(Debug, Clone)]
pub struct Job {
    /// The noise.
    pub design: Design,
    /// How.
    pub settings: Settings,
    /// What it costs.
    pub privacy: Privacy,
}

/// Where a run is kept.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its folder.
    pub folder: &'a Path,
    /// Steps between checkpoints; an epoch where nothing is said.
    pub every: Option<usize>,
    /// Whether there is a run already, which goes on.
    pub resume: bool,
}

/// What a job writes beside its folder.
#[derive(Default)]
pub struct Logs<'a> {
    /// A line for every epoch.
    pub epochs: Option<&'a mut EpochLog>,
    /// A line for every step: who took part.
    pub participation: Option<&'a Path>,
    /// Whether the participation log of another run may be replaced.
    pub replace: bool,
}

/// Who looks on, and may stop the work.
pub trait Watch {
    /// The run begins, or goes on from its checkpoint.
    fn begins(&mut self, _job: &Job, _trainer: &Trainer<'_>, _from: Beginning) {}
    /// A step is done, and an epoch with it if it was the last one of one.
    fn step(&mut self, _state: &State, _epoch: Option<&Epoch>) {}
    /// No step follows: all are done, or it was asked to stop.
    fn ends(&mut self, _state: &State) {}
    /// Something is not as it may be expected, and the run goes on.
    fn warns(&mut self, _text: &str) {}
    /// Whether to stop before the next step.
    fn stops(&self) -> bool {
        false
    }
}

/// Nobody.
impl Watch for () {}

/// Where a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// It is new.
    New,
    /// It is resumed, and has no checkpoint yet.
    NoCheckpoint,
    /// It is resumed from its checkpoint.
    Checkpoint,
}

/// A run that is finished.
pub struct Finished {
    /// The name of its design.
    pub mechanism: String,
    /// What it cost.
    pub privacy: Figures,
    /// How it was trained.
    pub settings: Settings,
    /// How examples came into batches: the name of the order, or `poisson`.
    pub sampling: &'static str,
    /// All that it is.
    pub description: Description,
    /// Of a seeded run.
    pub seed: Option<u64>,
    /// In all processes together.
    pub seconds: f64,
    /// The trained model.
    pub state: State,
    /// What ε means.
    pub statement: Statement,
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

    /// The loss on the test data, at the end.
    pub fn loss(&self) -> f64 {
        self.state.epochs.last().map_or(f64::NAN, |epoch| epoch.test.loss)
    }

    /// Writes the parameters with what is known about them. The file is meant to be released, so the hash of the data is left out:
    /// somebody who knows all examples but one could test guesses of that one with it.
    pub fn write_model(&self, path: &Path, force: bool) -> Result<()> {
        let mut description = self.description.clone();
        description.dataset.sha256.clear();
        // That on users of the same file is left out: ε does not protect those.
        let accuracy = if description.client.is_some() { String::new() } else { self.accuracy().to_string() };
        let about = [
            ("description", serde_json::to_string(&description).expect("plain fields")),
            ("statement", self.statement.to_string()),
            ("accuracy", accuracy),
        ];
        checkpoint::write_parameters(path, &self.state.parameters, about, force)
    }
}

/// The design of a kind for a task.
pub fn design(
    kind: Kind,
    stamps: Option<usize>,
    task: &dyn Task,
    settings: &Settings,
    observe: &dyn Fn(&Progress) -> bool,
) -> Result<Design> {
    let examples = task.units();
    let schema = settings.schema(examples)?;
    let workload = settings.workload(schema.steps())?;
    Design::new(kind, stamps, &schema, &workload, settings.sampling_rate(examples), observe)
}

impl Job {
    /// Trains. Where it is asked to stop, it writes a checkpoint if it has a folder, and ends with [`Error::Interrupted`].
    pub fn run(
        &self,
        task: &dyn Task,
        seed: Option<u64>,
        place: Option<&Place<'_>>,
        mut logs: Logs<'_>,
        watch: &mut dyn Watch,
    ) -> Result<Finished> {
        let start = Instant::now();
        let Job { design, settings, privacy } = self;
        // Before there is a folder: no run is left in it that cannot begin.
        settings.check(task.units())?;
        design.check(settings, task.units())?;
        let description = Description::new(task, design, settings, privacy)?;
        let (folder, secrets) = begin(&description, seed, place)?;
        // After the folder: a log that is there then belongs to its run, and a run that is resumed adds to it.
        if let Some(log) = &mut logs.epochs {
            log.begin()?;
        }
        let mut trainer = Trainer::new(task, design, settings, privacy, secrets, MEMORY)?;
        let resumed = folder.as_ref().filter(|_| place.is_some_and(|place| place.resume));
        let Resumed { from, seconds: before, logged } =
            resumed.map_or(Ok(Resumed::NEW), |folder| resume(&mut trainer, folder, watch))?;
        if logged && logs.participation.is_none() {
            watch.warns("the participation log of this run is not continued: the steps from here on will be missing in it");
        }
        if let Some(path) = logs.participation {
            let log = participation_log(path, &trainer, from, logs.replace)?;
            trainer.run_mut().log_with(log)?;
        }
        let seconds = || before + start.elapsed().as_secs_f64();
        let every = place.and_then(|place| place.every).unwrap_or(settings.steps_per_epoch(task.units()));
        watch.begins(self, &trainer, from);
        while !trainer.finished() {
            if watch.stops() {
                if let Some(folder) = &folder {
                    save(&trainer, folder, seconds())?;
                }
                watch.ends(trainer.state());
                return Err(Error::Interrupted);
            }
            let epoch = trainer.step()?;
            // Before the checkpoint: what a kill in between writes again is recognized, what it lost would be missing.
            if let (Some(log), Some(epoch)) = (&mut logs.epochs, &epoch) {
                log.epoch(&description, seed, epoch, seconds())?;
            }
            watch.step(trainer.state(), epoch.as_ref());
            if let Some(folder) = &folder
                && (trainer.state().step.is_multiple_of(every) || trainer.finished())
            {
                save(&trainer, folder, seconds())?;
            }
        }
        watch.ends(trainer.state());
        Ok(Finished {
            mechanism: design.name().into(),
            privacy: description.privacy,
            settings: *settings,
            sampling: if design.poisson() { "poisson" } else { settings.order.name() },
            seed,
            seconds: seconds(),
            state: trainer.state().clone(),
            statement: statement(&trainer, design, task),
            description,
            folder,
        })
    }
}

/// What ε means, and what of all that is shown it does not cover.
fn statement(trainer: &Trainer<'_>, design: &Design, task: &dyn Task) -> Statement {
    let clipped = task.clipped(trainer.run().clip_norm());
    let statement = trainer.run().statement_named(design.name()).with(clipped).not_covering(task.shown());
    match task.condition() {
        Some(condition) => statement.given(condition),
        None => statement,
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
        (None, None) => Ok((None, Secrets::from_key(Key::from_os(Cipher::fastest())?))),
    }
}

/// Where a run begins, and what it has behind it.
struct Resumed {
    from: Beginning,
    /// That it took to get there.
    seconds: f64,
    /// Whether a log says who took part.
    logged: bool,
}

impl Resumed {
    const NEW: Resumed = Resumed { from: Beginning::New, seconds: 0.0, logged: false };
}

/// Keeps how far a run has come, and what makes its noise go on at once.
fn save(trainer: &Trainer<'_>, folder: &Folder, seconds: f64) -> Result<()> {
    folder.save(&trainer.saved(), seconds)?;
    match trainer.run().keeps_buffers() && !trainer.finished() {
        true => trainer.run().save_buffers(&folder.buffers()),
        false => Ok(()),
    }
}

/// Continues from the checkpoint, if there is one.
fn resume(trainer: &mut Trainer<'_>, folder: &Folder, watch: &mut dyn Watch) -> Result<Resumed> {
    let Some((saved, seconds)) = folder.load()? else {
        return Ok(Resumed { from: Beginning::NoCheckpoint, ..Resumed::NEW });
    };
    let logged = saved.logged;
    trainer.resume(saved)?;
    // Without them the noise is the same, and takes longer.
    if let Err(error) = trainer.run_mut().restore_buffers(&folder.buffers()) {
        watch.warns(&format!("{error}. The noise of the steps before is drawn again"));
    }
    Ok(Resumed { from: Beginning::Checkpoint, seconds, logged })
}

/// A new log of who takes part, or that of a run that is resumed, up to where that stands. Every line of the latter must be one of this run,
/// also those of steps that will happen again.
fn participation_log(path: &Path, trainer: &Trainer<'_>, from: Beginning, replace: bool) -> Result<Writer> {
    let step = trainer.state().step;
    if from != Beginning::New && (step > 0 || path.exists()) {
        return Writer::resume(path, step, |line| match line {
            Some(line) if !trainer.takes_part(line) => {
                Err(Error::Unsupported("is the participation log of another run".into()))
            }
            _ => Ok(()),
        });
    }
    antiphon::atomic::check(path, replace)?;
    match path.exists() {
        true => Writer::replace(path),
        false => Writer::create(path),
    }
}

/// Lines of JSON, one for every epoch of every run.
pub struct EpochLog {
    path: PathBuf,
    resume: bool,
    /// From the first run on.
    file: Option<File>,
    /// What is there already, where a run is resumed: run, seed and epoch.
    there: Vec<serde_json::Value>,
}

impl EpochLog {
    /// A log that begins with its first run. Where a run is resumed it goes on; otherwise a file that is there is refused, or removed if
    /// `force` says so. It is removed now and not at the beginning of the run: whatever is found after a kill is the run's own.
    pub fn new(path: &Path, resume: bool, force: bool) -> Result<EpochLog> {
        let io = |source| Error::Io { path: path.into(), source };
        if !resume {
            antiphon::atomic::check(path, force)?;
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        Ok(EpochLog { path: path.into(), resume, file: None, there: Vec::new() })
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
        let there = text.lines().filter_map(|line| serde_json::from_str(line).ok().map(|line| about(&line)));
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
            "mechanism": run.mechanism.name,
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
            Some(file) if !self.there.contains(&about(&line)) => {
                writeln!(file, "{line}").map_err(|source| Error::Io { path: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

/// What a line of a log is about.
fn about(line: &serde_json::Value) -> serde_json::Value {
    serde_json::json!([line["run"], line["seed"], line["epoch"]])
}
