//! `antiphon train`.

mod bar;
mod federated;
mod loaded;
mod sampling;
mod show;
mod stop;

pub use bar::{Bar, design};
pub use federated::TokensName;
pub use loaded::Source;
pub use show::labelled;
pub use stop::Stop;

use crate::args::only;
use crate::output::{answer, program, quoted};
use antiphon::accounting::NoiseMultiplier;
use antiphon::error::{Error, Result};
use antiphon::run::Budget;
use antiphon::statement::large_delta;
use antiphon::workload::Cooldown;
use antiphon::{atomic, families, file};
use antiphon_train::checkpoint::{Folder, Outline};
use antiphon_train::classification::Model;
use antiphon_train::design::{self, Design};
use antiphon_train::job::{EpochLog, Finished, Job, Logs, Place};
use antiphon_train::kind::Kind;
use antiphon_train::network::Initial;
use antiphon_train::settings::Settings;
use clap::{Args, ValueEnum};
use federated::FederatedArgs;
use loaded::Loaded;
use sampling::SamplingArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Train a model with differential privacy, using correlated noise
///
/// Without arguments: a linear model on handwritten digits that are compiled in, once with the
/// optimal mechanism and once with independent noise, at the same ε, twenty times each.
///
/// Each example's gradient is clipped, and the sum of a step gets one row of the mechanism's noise.
/// Momentum and cooldown are applied after the noise. With --in-workload the mechanism is made for
/// them.
///
/// With --federated users are protected instead of examples: in every round (a step) some users
/// train the model on their own text and send one update, which is clipped as a whole. Without more
/// arguments: short poems of thousands of poets, compiled in, optimal against independent noise.
///
/// Which examples, or users, are in which step (--sampling):
///   fixed                 shuffled once; every epoch has the same batches in the same order. Here
///                         correlated noise gains most, and the optimum is known
///   reshuffled            a new order in every epoch (shuffle=True), each example once in each
///   min-separation        a new order in every epoch, but two participations of an example are at
///                         least --min-separation steps apart. Users are drawn in every round from
///                         those who have rested so long, at most --max-participations times each
///   poisson               each example in each step with the same probability: only for dp-sgd
///
/// Mechanisms (--mechanism, or several with --compare):
///   {candidates}
///   dp-sgd                Independent noise, Poisson samples, amplification by sampling (with
///                         --federated: DP-FedAvg)
///   dp-sgd-shuffled       As dp-sgd, but with shuffled batches: NOT a valid guarantee
///   FILE                  A mechanism file for as many steps, not an implicit one, whose schema
///                         allows what --sampling does. It is verified first. For a file named like
///                         one of these write ./optimal
///
/// Without --mechanism: in fixed order optimal, and comb-blt for more than 4,000 steps, where the
/// optimum draws thousands of random numbers for each number of noise; per-epoch for reshuffled,
/// single-epoch for min-separation, dp-sgd for poisson. optimal and comb-blt are only for fixed
/// order.
///
/// Ctrl-C stops after the current step and, with --checkpoints, writes a checkpoint first; Ctrl-C
/// again stops at once. After a kill at any moment the same command with --resume continues the run;
/// if the run had not started yet, repeat the command without --resume.
///
/// Examples:
///   antiphon train
///   antiphon train --mechanism optimal --epsilon 2 --picture accuracy
///   antiphon train --sampling reshuffled --epsilon 2
///   antiphon train --dataset fashion-mnist --compare optimal,tree-online,identity --repeats 5
///   antiphon train --federated
///   antiphon train --federated --dataset chat.jsonl --epsilon 2 --participation-log who.jsonl
///   antiphon train --dataset cifar10 --checkpoints run --log run.jsonl
///   antiphon train --dataset cifar10 --checkpoints run --log run.jsonl --resume
///
/// Exit status: 0 done, 1 a mechanism file fails verification or the training diverged, 2 bad input,
/// 130 stopped.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Train {
    /// digits (compiled in), fashion-mnist or cifar10 (`antiphon data fetch`); with --federated poets (compiled in), poetry,
    /// chitchat (`antiphon data fetch`), or a file of lines {"user": …, "text": …}
    #[arg(long, value_name = "NAME", help_heading = "Task")]
    dataset: Option<String>,
    /// Folder of the data sets' files (default: the one that `antiphon data list` shows)
    #[arg(long, value_name = "DIR", help_heading = "Task")]
    data: Option<PathBuf>,
    /// The network (default: linear for digits, small for fashion-mnist, cifar10 for cifar10)
    #[arg(long, value_enum, help_heading = "Task")]
    model: Option<ModelName>,
    /// Hold out this many training examples and test on them instead of the test images: for choosing learning rates. ε does not
    /// cover that choice
    #[arg(long, value_name = "N", help_heading = "Task")]
    held_out: Option<usize>,
    // The help is that of the table of families.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "compare",
        help_heading = "Noise",
        help = format!("{}, or a mechanism file; --help explains them", Kind::names())
    )]
    mechanism: Option<String>,
    /// Several mechanisms, separated by commas: each is trained at the same ε, or with the same --noise-multiplier
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Noise")]
    compare: Vec<String>,
    /// Use the mechanism S times in a row, each time for an equal part of the steps (default: the best of 1, 2, 5, 10, 20).
    /// Only for mechanisms that can be repeated
    #[arg(long, value_name = "S", help_heading = "Noise")]
    stamps: Option<usize>,
    /// Make the mechanism for this momentum and cooldown instead of plain sums of gradients
    #[arg(long, help_heading = "Noise")]
    in_workload: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// The ε of (ε, δ)-differential privacy (default: 1 for digits, 4 for fashion-mnist, 8 for cifar10 and --federated)
    #[arg(long, value_name = "E", allow_negative_numbers = true, help_heading = "Privacy")]
    epsilon: Option<f64>,
    /// The noise multiplier, instead of --epsilon
    #[arg(
        long,
        value_name = "Z",
        allow_negative_numbers = true,
        conflicts_with = "epsilon",
        help_heading = "Privacy"
    )]
    noise_multiplier: Option<f64>,
    /// The δ, which should be well below 1/N for N training examples or users (default: 1e-4 for digits, else the paper's 1e-5, or
    /// less for more than 50,000 users)
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = "Privacy")]
    delta: Option<f64>,
    /// The norm to which each example's gradient, or each user's update, is clipped
    #[arg(
        long,
        value_name = "NORM",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Privacy"
    )]
    clip_norm: f64,
    #[command(flatten)]
    training: TrainingArgs,
    #[command(flatten)]
    federated: FederatedArgs,
    /// Train each mechanism this many times (default: 1; 20 for the comparison on digits that runs without arguments)
    #[arg(long, value_name = "R", help_heading = "Runs")]
    repeats: Option<usize>,
    /// Derive keys, order of the examples and initial parameters from this number (plus one for each repetition) instead of
    /// the operating system's random numbers. Not private: whoever knows or guesses the seed can compute the noise
    #[arg(long, value_name = "S", help_heading = "Runs")]
    seed: Option<u64>,
    /// Keep the run in this folder, so that --resume can continue it after a crash or Ctrl-C. The folder also
    /// contains the run's secret key until the run is finished: keep it private
    #[arg(long, value_name = "DIR", help_heading = "Runs")]
    checkpoints: Option<PathBuf>,
    /// Steps between checkpoints (default: an epoch)
    #[arg(long, value_name = "N", requires = "checkpoints", help_heading = "Runs")]
    checkpoint_every: Option<usize>,
    /// Continue the run in --checkpoints. All settings that the run depends on must be unchanged; --threads, outputs and
    /// --checkpoint-every may differ
    #[arg(long, requires = "checkpoints", help_heading = "Runs")]
    resume: bool,
    /// Write a line of JSON for every epoch. It contains the training loss, which ε does not cover: do not publish it
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    log: Option<PathBuf>,
    /// Write a line of JSON for every step: who took part in it, for `antiphon audit`. Give it again with --resume, or lines will be
    /// missing. Keep it as private as the data; that of dp-sgd must stay as secret as the key
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    participation_log: Option<PathBuf>,
    /// Draw the accuracy by step, or with --federated the test loss by round: NAME.svg and NAME.png
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    picture: Option<PathBuf>,
    /// Write the trained parameters to this file (.safetensors), with settings and privacy statement
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

/// How the model is trained.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Training")]
pub struct TrainingArgs {
    /// Passes over the data (default: 20; 10 for fashion-mnist, 6 for --federated)
    #[arg(long, value_name = "K")]
    epochs: Option<usize>,
    /// Examples in a batch, for dp-sgd on average (default: 60 for digits, else 500)
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Learning rate; gradients are summed and divided by the batch size. Default: digits 0.03, with identity 0.1;
    /// fashion-mnist 0.2, with identity and dp-sgd 0.1; cifar10 0.1, with identity 0.2. With --federated it is the server's:
    /// 0.25, with dp-sgd 0.125, with identity 0.0625
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    learning_rate: Option<f64>,
    /// Momentum in [0, 1). Default: 0.9, with identity on digits and cifar10 0; 0.95 for --federated
    #[arg(long, value_name = "BETA", allow_negative_numbers = true)]
    momentum: Option<f64>,
    /// Over the last FRACTION of the steps the learning rate falls linearly to END times its value; 0:1 turns this off
    #[arg(long, value_name = "FRACTION:END", default_value = "0.25:0.05", value_parser = falls)]
    cooldown: Cooldown,
    /// How the weights of a network begin (default: uniform)
    #[arg(long, value_enum)]
    initial: Option<InitialName>,
}

/// How the weights of a network begin.
#[derive(Clone, Copy, ValueEnum)]
pub enum InitialName {
    /// Variance 2/(inputs + outputs) (Glorot and Bengio 2010)
    Uniform,
    /// Variance 1/inputs in convolutions, else as uniform: as Kairouz et al. 2021 train the network for cifar10
    Normal,
}

impl InitialName {
    pub fn initial(self) -> Initial {
        match self {
            InitialName::Uniform => Initial::Uniform,
            InitialName::Normal => Initial::Normal,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ModelName {
    /// One dense layer
    Linear,
    /// Two convolutions and a hidden layer, for grey images
    Small,
    /// The network of Kairouz et al. 2021, six convolutions
    Cifar10,
}

impl ModelName {
    fn model(self) -> Model {
        match self {
            ModelName::Linear => Model::Linear,
            ModelName::Small => Model::Small,
            ModelName::Cifar10 => Model::Cifar10,
        }
    }
}

impl TrainingArgs {
    /// The settings in fixed order: the usual ones, where nothing is said.
    fn settings(&self, usual: Settings, in_workload: bool) -> Settings {
        Settings {
            epochs: self.epochs.unwrap_or(usual.epochs),
            batch_size: self.batch_size.unwrap_or(usual.batch_size),
            learning_rate: self.learning_rate.unwrap_or(usual.learning_rate),
            momentum: self.momentum.unwrap_or(usual.momentum),
            cooldown: (self.cooldown.fraction > 0.0).then_some(self.cooldown),
            in_workload: in_workload || usual.in_workload,
            initial: self.initial.map_or(usual.initial, InitialName::initial),
            ..usual
        }
    }
}

impl Train {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let stop = Stop::start()?;
        self.train(json, &stop).inspect_err(|error| {
            if let Some(Error::Interrupted) = error.downcast_ref() {
                self.say_how_to_continue();
            }
        })
    }

    fn train(&self, json: bool, stop: &Stop) -> anyhow::Result<ExitCode> {
        let mut names = self.mechanisms();
        // Several mechanisms that nobody named are those of the demonstration.
        let demonstration = names.len() > 1 && self.compare.is_empty();
        let digits = demonstration && !self.federated.asked();
        let repeats = self.repeats.unwrap_or(if digits { 20 } else { 1 });
        self.check(&names, repeats)?;
        let loaded = self.load()?;
        let task = &*loaded.task;
        if let Some(condition) = task.condition() {
            eprintln!("antiphon: warning: {condition}");
        }
        if self.names_nothing() {
            self.choose(&mut names, &loaded)?;
        }
        let trained_on = format!("training {}", task.unit().name());
        if let Some(warning) = large_delta(self.delta(&loaded), task.units(), &trained_on) {
            eprintln!("antiphon: warning: {warning}");
        }
        if let Some(folder) = self.checkpoints.as_ref().filter(|_| self.resume) {
            self.check_resumable(folder, &loaded, &names[0])?;
        }
        let mut jobs = Vec::new();
        for name in &names {
            let job = self.job(&loaded, name, stop)?;
            if jobs.iter().any(|other: &Job| other.design.name() == job.design.name()) {
                return Err(Error::argument("--compare", "mechanisms of different names", name).into());
            }
            jobs.push(job);
        }
        let mut log =
            self.log.as_deref().map(|path| EpochLog::new(path, self.resume, self.force)).transpose()?;
        let mut finished: Vec<Finished> = Vec::new();
        for repeat in 0..repeats {
            for job in &jobs {
                let seed = self.seed.map(|seed| seed.wrapping_add(repeat as u64));
                let place = self.checkpoints.as_deref().map(|folder| Place {
                    folder,
                    every: self.checkpoint_every,
                    resume: self.resume,
                });
                let table = !json && jobs.len() * repeats == 1;
                let logs = Logs {
                    epochs: log.as_mut(),
                    participation: self.participation_log.as_deref(),
                    replace: self.force,
                };
                let mut bar = Bar::new(stop, place.as_ref(), table);
                finished.push(job.run(task, seed, place.as_ref(), logs, &mut bar)?);
            }
        }
        if let Some(path) = &self.output {
            finished[0].write_model(path, self.replace())?;
        }
        let pictures = match &self.picture {
            Some(name) => show::picture(name, task, &finished, self.replace())?,
            None => Vec::new(),
        };
        finished.iter().try_for_each(Finished::close)?;
        let all = show::All { task, finished: &finished, seeded: self.seed.is_some(), pictures };
        all.show(json)?;
        if let Some(path) = self.output.as_ref().filter(|_| !json) {
            say!("Parameters written to {}.", path.display());
        }
        Ok(answer(true))
    }

    /// The command that continues a run that was stopped.
    fn say_how_to_continue(&self) {
        match &self.checkpoints {
            Some(folder) if folder.join("run.json").exists() => {
                let words =
                    std::env::args_os().skip(1).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
                let resume = if self.resume { "" } else { " --resume" };
                eprintln!("antiphon: to continue: {} {words}{resume}", program());
            }
            Some(_) => eprintln!("antiphon: the run had not started; the same command starts it"),
            None => eprintln!("antiphon: nothing was saved; with --checkpoints a run can be continued"),
        }
    }

    fn budget(&self, loaded: &Loaded) -> Result<Budget> {
        let delta = self.delta(loaded);
        match self.noise_multiplier {
            Some(z) => Ok(Budget::Noise { noise_multiplier: NoiseMultiplier::new(z)?, delta }),
            None => {
                let epsilon = self.epsilon.unwrap_or(loaded.usual_privacy().epsilon);
                Ok(Budget::Target { epsilon, delta })
            }
        }
    }

    fn delta(&self, loaded: &Loaded) -> f64 {
        self.delta.unwrap_or(loaded.usual_privacy().delta)
    }

    /// Whether files may be replaced. Those of a run that is resumed are its own: it was killed after it had written them.
    fn replace(&self) -> bool {
        self.force || self.resume
    }

    fn mechanisms(&self) -> Vec<String> {
        match (&self.mechanism, self.sampling.mechanism()) {
            (Some(name), _) => vec![name.clone()],
            _ if !self.compare.is_empty() => self.compare.clone(),
            (None, Some(name)) => vec![name.into()],
            (None, None) if self.is_small() && self.checkpoints.is_none() => {
                vec!["optimal".into(), "identity".into()]
            }
            (None, None) => vec!["optimal".into()],
        }
    }

    /// Whether the data are those that are compiled in, on which two runs take no time.
    fn is_small(&self) -> bool {
        self.dataset.as_deref().is_none_or(|name| ["digits", "poets"].contains(&name))
    }

    /// Whether nobody said which noise, in fixed order.
    fn names_nothing(&self) -> bool {
        self.mechanism.is_none() && self.compare.is_empty() && self.sampling.mechanism().is_none()
    }

    /// The usual mechanism of so many steps, in place of the optimum: how many there are is known once the data are.
    fn choose(&self, names: &mut [String], loaded: &Loaded) -> Result<()> {
        let (_, settings) = self.settings(loaded, &names[0])?;
        names[0] = Kind::usual(settings.steps(loaded.task.units())).name().into();
        Ok(())
    }

    /// What can be known to be wrong before any work.
    fn check(&self, names: &[String], repeats: usize) -> Result<()> {
        if !(1..=10_000).contains(&repeats) {
            return Err(Error::argument("--repeats", "in 1..=10000", repeats));
        }
        let several = names.len() * repeats > 1;
        if several {
            let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
            only(
                "more than one run",
                &[
                    ("--checkpoints", path(&self.checkpoints)),
                    ("--output", path(&self.output)),
                    ("--participation-log", path(&self.participation_log)),
                ],
            )?;
        }
        if self.checkpoint_every == Some(0) {
            return Err(Error::argument("--checkpoint-every", "at least 1", 0));
        }
        if let Some(folder) = self.checkpoints.as_ref().filter(|_| !self.resume) {
            Folder::check_new(folder)?;
        }
        for path in self.output.iter().chain(&self.log).chain(&self.participation_log) {
            atomic::check(path, self.replace())?;
        }
        self.sampling.check()?;
        for name in names {
            self.sampling.check_for(kind(name)?)?;
        }
        self.check_different()?;
        if let Some(name) = &self.picture {
            for ending in ["svg", "png"] {
                atomic::check(&name.with_extension(ending), self.replace())?;
            }
        }
        Ok(())
    }

    /// Refuses one file for two purposes.
    fn check_different(&self) -> Result<()> {
        let files = [
            ("--output", &self.output),
            ("--log", &self.log),
            ("--participation-log", &self.participation_log),
        ];
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        for (i, (flag, path)) in files.iter().enumerate() {
            let Some(path) = path else { continue };
            let same = |(_, other): &&(&str, &Option<PathBuf>)| {
                other.as_ref().is_some_and(|other| absolute(other) == absolute(path))
            };
            if let Some((other, _)) = files[..i].iter().find(same) {
                return Err(Error::argument(*flag, format!("another file than {other}"), path.display()));
            }
        }
        Ok(())
    }

    /// What is learnt: images, or the text of users.
    fn load(&self) -> Result<Loaded> {
        let source = Source::new(self.dataset.as_deref(), self.federated.asked())?;
        let folder = source.folder(self.data.as_deref())?;
        match source {
            Source::Images(name) => {
                let model = self.model.map_or(Model::usual(name), ModelName::model);
                loaded::images(name, &folder, model, self.held_out)
            }
            Source::Text(name) => {
                let model = self.model.map(|model| model.model().name());
                let initial = self.training.initial.map(|initial| initial.initial().name());
                only("--federated", &[("--model", model), ("--initial", initial)])?;
                only(
                    "--federated",
                    &[("--held-out", self.held_out), ("--batch-size", self.training.batch_size)],
                )?;
                self.federated.load(name, &folder, self.clip_norm)
            }
        }
    }

    /// Refuses at once, before a mechanism is made, what is not the run in the folder or cannot be resumed.
    fn check_resumable(&self, folder: &Path, loaded: &Loaded, name: &str) -> Result<()> {
        let (kind, settings) = self.settings(loaded, name)?;
        let task = &*loaded.task;
        let examples = task.units();
        let (rate, steps, budget) =
            (settings.sampling_rate(examples), settings.steps(examples), self.budget(loaded)?);
        let figures = || design::figures(kind, rate, steps, budget);
        let privacy = crate::progress::busy("accounting", figures)?;
        let mechanism = match (kind, self.stamps) {
            (Some(kind), Some(stamps)) => kind.with_stamps(stamps),
            (Some(kind), None) => kind.name().into(),
            (None, _) => file_name(name),
        };
        let outline = Outline { task, settings: &settings, mechanism: &mechanism, privacy, seed: self.seed };
        Folder::check_resumable(folder, &outline)
    }

    fn settings(&self, loaded: &Loaded, name: &str) -> Result<(Option<Kind>, Settings)> {
        let kind = kind(name)?;
        let examples = loaded.task.units();
        let usual = loaded.usual_settings(kind, self.clip_norm);
        let fixed = self.federated.settings(self.training.settings(usual, self.in_workload), examples)?;
        fixed.check(examples)?;
        let order = self.sampling.order(&fixed, examples, self.federated.asked());
        let settings = Settings { order, ..fixed };
        settings.check(examples)?;
        if kind == Some(Kind::Family(families::OPTIMAL)) && !settings.schema(examples)?.is_listed() {
            let allowed = format!(
                "left out, or another one, for --sampling {} (the optimum is known for fixed order and listed patterns \
                 only; without --mechanism {} is used)",
                order.name(),
                self.sampling.mechanism().unwrap_or("optimal")
            );
            return Err(Error::argument("--mechanism", allowed, name));
        }
        Ok((kind, settings))
    }

    fn job(&self, loaded: &Loaded, name: &str, stop: &Stop) -> Result<Job> {
        let (kind, settings) = self.settings(loaded, name)?;
        let task = &*loaded.task;
        let design = match kind {
            Some(kind) => bar::design(kind, self.stamps, task, &settings, stop)?,
            None => {
                only("a mechanism file", &[("--stamps", self.stamps)])?;
                let mechanism = file::read(Path::new(name))?;
                crate::progress::busy("verifying", || Design::of(file_name(name), mechanism))?
            }
        };
        let budget = self.budget(loaded)?;
        let privacy = crate::progress::busy("accounting", || design.privacy(budget))?;
        match stop.asked() {
            true => Err(Error::Interrupted),
            false => Ok(Job { design, settings, privacy }),
        }
    }
}

/// A cooldown, or one that does not happen.
fn falls(text: &str) -> Result<Cooldown> {
    match text.trim() {
        "0:1" => Ok(Cooldown { fraction: 0.0, end: 1.0 }),
        text => text.parse(),
    }
}

/// What a mechanism from a file is called.
fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy().into_owned())
}

/// The kind of mechanism that has this name; nothing for a file. A file with such a name needs its folder before it: ./optimal.
fn kind(name: &str) -> Result<Option<Kind>> {
    match name.parse::<Kind>() {
        Err(_) if Path::new(name).is_file() => Ok(None),
        parsed => parsed.map(Some),
    }
}
