//! `antiphon reproduce cifar10` and `fashion-mnist`: the paper's central experiment, the accuracy of models at the same ε.
//!
//! The paper's protocol (section 5.1 and its appendix): prefix-sum mechanisms, momentum and cooldown as post-processing, learning rates
//! and momentum from a grid. Where a grid is given here, the choice is made on a tenth of the training examples that are held
//! out, not on the test images. With `--output` every finished run is a line in a file there, an unfinished one has
//! checkpoints beside it, and the same command continues with both (with `--force` once there are pictures).

mod figure;

use super::kept::{Kept, Purpose, Record};
use super::{GAP, POSITIVE, Pictures, check_list, factorization};
use crate::chart::{Lines, Picture, Series};
use crate::compare::{plural, table};
use crate::output::{answer, print_json, short_bound};
use crate::progress::busy;
use crate::train::{self, InitialName, Stop};
use antiphon::error::{Error, Result};
use antiphon::families;
use antiphon::make;
use antiphon::mechanism::NoisingMatrix;
use antiphon::mechanism::factorization::noising_matrix;
use antiphon::run::Budget;
use antiphon::schema::Schema;
use antiphon::statement::INVALID;
use antiphon::workload::Workload;
use antiphon_train::classification::{Classification, Model};
use antiphon_train::data::{self, Name};
use antiphon_train::design::{Design, STAMPS};
use antiphon_train::job::Job;
use antiphon_train::kind::Kind;
use antiphon_train::settings::Settings;
use antiphon_train::summary::{INTERVALS, Summary};
use antiphon_train::task::Task;
use antiphon_train::unnoised;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// δ of the paper's experiment.
const DELTA: f64 = 1e-5;
/// Training without noise, and without noise and clipping: not private, the ceiling of the others.
const CEILINGS: [&str; 2] = [unnoised::NAME, "unclipped"];
/// The clip norm that stands for none: far beyond the gradients of these networks.
const UNCLIPPED: f64 = 1e3;

#[derive(Args)]
pub struct Accuracy {
    /// Several ε, separated by commas (default: 10 for cifar10, 4 for fashion-mnist; with --figure all that are kept)
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true)]
    epsilon: Vec<f64>,
    /// Mechanisms by their names in `antiphon train`, no files (default: optimal,dp-sgd; for fashion-mnist
    /// optimal,tree-online,identity). Not private, to compare with: unnoised (clipping without noise) and unclipped (neither)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    mechanisms: Vec<String>,
    /// Runs of each mechanism at each ε, with paired seeds
    #[arg(long, value_name = "R", default_value_t = 1)]
    repeats: usize,
    /// Seed of the first run. Seeded runs are not private
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Learning rates to choose from, by one run each on a tenth of the training examples that is held out; the paper's are
    /// 0.01,0.02,0.05,0.1,0.2,0.5
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true)]
    learning_rates: Vec<f64>,
    /// Values of momentum to choose from; the paper's are 0,0.85,0.9,0.95
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true)]
    momentums: Vec<f64>,
    /// How the weights begin (default: uniform; the paper's are normal)
    #[arg(long, value_enum)]
    initial: Option<InitialName>,
    /// One of the paper's two ablations instead of --mechanisms. With --output its new runs are kept in a file of their own,
    /// such as cifar10-stamps.jsonl
    #[arg(long, value_enum, conflicts_with = "mechanisms")]
    ablation: Option<Ablation>,
    /// Train nothing: draw accuracy against ε from the runs that --output has, with the paper's points, and print them
    #[arg(long, conflicts_with_all = ["mechanisms", "repeats", "learning_rates", "momentums", "initial", "ablation", "epochs"])]
    figure: bool,
    /// Passes over the data instead of the protocol's, for a quick test; such runs are no points of --figure
    #[arg(long, value_name = "K")]
    epochs: Option<usize>,
    /// Folder of the data sets' files (default: the one that `antiphon data list` shows)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Ablation {
    /// The online tree with 1, 2, 5, 10 and 20 stamps
    Stamps,
    /// Optima for 1, 2, 5, 10 and 20 epochs, where they divide those of the run, repeated until its end
    Epochs,
}

/// A mechanism of the experiment.
#[derive(Clone, Copy)]
enum Entry {
    Kind(Kind, Option<usize>),
    /// The optimum for so many epochs, repeated.
    OptimumFor(usize),
    /// One of [`CEILINGS`].
    Ceiling(&'static str),
}

/// One row of the result.
#[derive(Serialize)]
struct Row {
    mechanism: String,
    /// None without noise.
    target_epsilon: Option<f64>,
    accuracy: f64,
    interval: Option<[f64; 2]>,
    settings: Settings,
    runs: Vec<Record>,
}

impl Accuracy {
    pub fn run(&self, name: Name, pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
        if self.figure {
            return figure::run(name, &self.epsilon, pictures, json);
        }
        let what = name.as_str();
        let figure = match self.ablation {
            None => what.to_string(),
            Some(Ablation::Stamps) => format!("{what}-stamps"),
            Some(Ablation::Epochs) => format!("{what}-epochs"),
        };
        pictures.check(&[&figure])?;
        self.check()?;
        let folder = match &self.data {
            Some(folder) => folder.clone(),
            None => data::default_folder()?,
        };
        let task = Classification::new(data::load(name, &folder)?, Model::usual(name))?;
        let stop = Stop::start()?;
        // Runs of an ablation have a file of their own: they are no points of the figure against ε.
        let mut kept = Kept::open(pictures.output.as_deref(), &figure, stop.clone())?;
        if self.ablation.is_some() {
            kept.find_also_in(what)?;
        }
        let mut held_out = None;
        let mut rows = Vec::new();
        for entry in self.entries(name)? {
            for epsilon in self.epsilons(name, entry) {
                let mut grid = self.grid(name, entry);
                let mut choice = grid[0];
                if grid.len() > 1 {
                    let part = match &held_out {
                        Some(part) => part,
                        None => {
                            let whole = Classification::new(data::load(name, &folder)?, Model::usual(name))?;
                            held_out.insert(whole.with_held_out(0, task.units() / 10)?)
                        }
                    };
                    let design = design(entry, part, &grid[0], &stop)?;
                    let mut best = f64::NEG_INFINITY;
                    for settings in grid.drain(..) {
                        let run = Planned::new(entry, design.as_ref(), settings, epsilon)?;
                        let record = run.in_file(&mut kept, part, purpose(self.seed, epsilon, true))?;
                        if record.accuracy > best {
                            (best, choice) = (record.accuracy, settings);
                        }
                    }
                }
                let design = design(entry, &task, &choice, &stop)?;
                let run = Planned::new(entry, design.as_ref(), choice, epsilon)?;
                let seeds = (0..self.repeats as u64).map(|i| self.seed.wrapping_add(i));
                let runs = seeds
                    .map(|seed| run.in_file(&mut kept, &task, purpose(seed, epsilon, false)))
                    .collect::<Result<Vec<Record>>>()?;
                let Summary { mean, interval } = Summary::of(&accuracies(&runs));
                rows.push(Row {
                    mechanism: runs[0].mechanism.clone(),
                    target_epsilon: epsilon,
                    accuracy: mean,
                    interval,
                    settings: choice,
                    runs,
                });
            }
        }
        let files = pictures.draw(&figure, &Picture::Lines(picture(name, &rows)))?;
        if json {
            print_json(&serde_json::json!({ "ok": true, "dataset": what, "rows": rows, "files": files }))?;
            return Ok(answer(true));
        }
        print(name, &rows);
        super::say_files(&files, what);
        Ok(answer(true))
    }

    fn check(&self) -> Result<()> {
        if !(1..=1000).contains(&self.repeats) {
            return Err(Error::argument("--repeats", "in 1..=1000", self.repeats));
        }
        if self.epochs == Some(0) {
            return Err(Error::argument("--epochs", "at least 1", 0));
        }
        check_list("--epsilon", &self.epsilon, POSITIVE)?;
        check_list("--learning-rates", &self.learning_rates, POSITIVE)?;
        check_list(
            "--momentums",
            &self.momentums,
            ("numbers in [0, 1)", |value| (0.0..1.0).contains(&value)),
        )?;
        self.mechanisms.iter().try_for_each(|name| entry(name).map(drop))
    }

    /// None for training without noise: there is one run for all ε.
    fn epsilons(&self, name: Name, entry: Entry) -> Vec<Option<f64>> {
        let given = match (self.epsilon.is_empty(), name) {
            (false, _) => self.epsilon.clone(),
            (true, Name::Cifar10) => vec![10.0],
            (true, _) => vec![4.0],
        };
        match entry {
            Entry::Ceiling(_) => vec![None],
            _ => given.into_iter().map(Some).collect(),
        }
    }

    fn entries(&self, name: Name) -> Result<Vec<Entry>> {
        let names: Vec<&str> = match (self.mechanisms.is_empty(), name) {
            (false, _) => self.mechanisms.iter().map(String::as_str).collect(),
            (true, Name::Cifar10) => vec!["optimal", "dp-sgd"],
            (true, _) => vec!["optimal", "tree-online", "identity"],
        };
        match self.ablation {
            Some(Ablation::Stamps) => {
                let tree: Kind = "tree-online".parse()?;
                Ok(STAMPS.map(|stamps| Entry::Kind(tree, Some(stamps))).to_vec())
            }
            Some(Ablation::Epochs) => {
                let epochs = self.protocol(name, None).epochs;
                let divisors = STAMPS.into_iter().filter(|k| epochs.is_multiple_of(*k));
                Ok(divisors.map(Entry::OptimumFor).collect())
            }
            None => names.into_iter().map(entry).collect(),
        }
    }

    /// The protocol, with the usual learning rate.
    fn protocol(&self, name: Name, kind: Option<Kind>) -> Settings {
        let settings = Settings::usual(name, kind);
        let initial = self.initial.map_or(settings.initial, InitialName::initial);
        Settings { epochs: self.epochs.unwrap_or(settings.epochs), initial, ..settings }
    }

    /// All settings that are tried: one, if no grid is given.
    fn grid(&self, name: Name, entry: Entry) -> Vec<Settings> {
        let kind = match entry {
            Entry::Kind(kind, _) => Some(kind),
            Entry::OptimumFor(_) => Some(Kind::Family(families::OPTIMAL)),
            Entry::Ceiling(_) => None,
        };
        let mut usual = self.protocol(name, kind);
        if matches!(entry, Entry::Ceiling(name) if name == CEILINGS[1]) {
            usual.clip_norm = UNCLIPPED;
        }
        let or = |list: &[f64], usual: f64| if list.is_empty() { vec![usual] } else { list.to_vec() };
        let momentums = or(&self.momentums, usual.momentum);
        or(&self.learning_rates, usual.learning_rate)
            .into_iter()
            .flat_map(|learning_rate| {
                momentums.iter().map(move |momentum| Settings { learning_rate, momentum: *momentum, ..usual })
            })
            .collect()
    }
}

fn accuracies(runs: &[Record]) -> Vec<f64> {
    runs.iter().map(|run| run.accuracy).collect()
}

fn purpose(seed: u64, epsilon: Option<f64>, held_out: bool) -> Purpose<'static> {
    Purpose { seed, target_epsilon: epsilon, held_out, algorithm: None }
}

/// What a name of --mechanisms stands for.
fn entry(name: &str) -> Result<Entry> {
    if let Some(ceiling) = CEILINGS.into_iter().find(|ceiling| *ceiling == name) {
        return Ok(Entry::Ceiling(ceiling));
    }
    let unknown = |_| {
        let [unnoised, unclipped] = CEILINGS;
        Error::argument("--mechanisms", format!("of {}, {unnoised}, {unclipped}", Kind::names()), name)
    };
    Ok(Entry::Kind(name.parse().map_err(unknown)?, None))
}

/// A run that may be trained with any seed.
enum Planned {
    Private(Box<Job>),
    Ceiling(&'static str, Settings),
}

impl Planned {
    fn new(entry: Entry, design: Option<&Design>, settings: Settings, epsilon: Option<f64>) -> Result<Self> {
        match (entry, design, epsilon) {
            (Entry::Ceiling(name), ..) => Ok(Planned::Ceiling(name, settings)),
            (_, Some(design), Some(epsilon)) => {
                let budget = Budget::Target { epsilon, delta: DELTA };
                let privacy = busy("accounting", || design.privacy(budget))?;
                Ok(Planned::Private(Box::new(Job { design: design.clone(), settings, privacy })))
            }
            _ => unreachable!("all others have a design and an ε"),
        }
    }

    fn in_file(&self, kept: &mut Kept, task: &dyn Task, purpose: Purpose<'_>) -> Result<Record> {
        match self {
            Planned::Private(job) => kept.run(job, task, purpose),
            Planned::Ceiling(name, settings) => kept.run_unnoised(name, settings, task, purpose),
        }
    }
}

/// The noise of a run; none for training without.
fn design(entry: Entry, task: &dyn Task, settings: &Settings, stop: &Stop) -> Result<Option<Design>> {
    match entry {
        Entry::Ceiling(_) => Ok(None),
        Entry::Kind(kind, stamps) => train::design(kind, stamps, task, settings, stop).map(Some),
        Entry::OptimumFor(epochs) if epochs == settings.epochs => {
            train::design(Kind::Family(families::OPTIMAL), None, task, settings, stop).map(Some)
        }
        Entry::OptimumFor(epochs) => busy("making the mechanism", || {
            let schema = Schema::epochs(settings.epochs, settings.steps_per_epoch(task.units()))?;
            let workload = Workload::prefix_sum(schema.steps());
            let stamped = factorization("optimal", settings.epochs / epochs, &schema, &workload)?;
            let noising = NoisingMatrix::new(noising_matrix(&stamped))?;
            let mechanism = make::dense(noising, &schema, &workload, GAP, &|_| !stop.asked())?;
            Design::of(format!("optimal for {epochs} epoch{}", plural(epochs)), mechanism).map(Some)
        }),
    }
}

fn print(name: Name, rows: &[Row]) {
    say!("{name}, δ = {DELTA:e}; seeded runs: not private, whoever knows the seed can compute the noise");
    let heads = ["  mechanism", "ε", "test accuracy", "runs", "learning rate", "momentum", "seconds"];
    let cells = |row: &Row| {
        let epsilon = match row.runs[0].epsilon {
            None => "none".to_string(),
            Some(epsilon) if row.runs[0].valid => short_bound(epsilon, true),
            Some(epsilon) => format!("{} *", short_bound(epsilon, true)),
        };
        let seconds = row.runs.iter().map(|run| run.seconds).sum::<f64>() / row.runs.len() as f64;
        [
            format!("  {}", row.mechanism),
            epsilon,
            Summary { mean: row.accuracy, interval: row.interval }.in_hundredths("%"),
            row.runs.len().to_string(),
            row.settings.learning_rate.to_string(),
            row.settings.momentum.to_string(),
            format!("{seconds:.0}"),
        ]
    };
    table(&heads.map(String::from), &rows.iter().map(cells).collect::<Vec<_>>());
    if rows.iter().any(|row| !row.runs[0].valid && row.target_epsilon.is_some()) {
        say!("  * {INVALID}");
    }
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.runs.len() > 1) {
        for other in rows[i + 1..].iter().filter(|other| other.target_epsilon == row.target_epsilon) {
            let gain = Summary::of_differences(&accuracies(&row.runs), &accuracies(&other.runs));
            let (first, second) = (&row.mechanism, &other.mechanism);
            let at = row.target_epsilon.map_or(String::new(), |epsilon| format!(", ε = {epsilon}"));
            say!("  {first} minus {second}{at}: {}", gain.in_hundredths(" points"));
        }
    }
    if rows.iter().any(|row| row.interval.is_some()) {
        say!("  Means with {INTERVALS}; differences of runs with the same seed.");
    }
}

/// The name of a line: what is not private says so.
fn label(mechanism: &str, epsilon: Option<f64>, valid: bool) -> String {
    match epsilon {
        Some(_) => train::labelled(mechanism, valid),
        None => format!("{mechanism} (not private)"),
    }
}

/// A line of one accuracy, in percent, from the least to the greatest ε, for training without noise.
fn level(percent: f64, epsilons: impl Iterator<Item = f64> + Clone) -> Vec<(f64, f64)> {
    let ends = [epsilons.clone().reduce(f64::min), epsilons.reduce(f64::max)];
    ends.into_iter().flatten().map(|epsilon| (epsilon, percent)).collect()
}

/// Accuracy by ε where there are several, by step where there is one.
fn picture(name: Name, rows: &[Row]) -> Lines {
    let epsilons = || rows.iter().filter_map(|row| row.target_epsilon);
    let first = epsilons().next();
    let several = epsilons().any(|epsilon| Some(epsilon) != first);
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let points = match row.target_epsilon {
            Some(epsilon) if several => vec![(epsilon, 100.0 * row.accuracy)],
            None if several => level(100.0 * row.accuracy, epsilons()),
            _ => {
                let mean =
                    |i: usize| row.runs.iter().map(|run| run.curve[i].1).sum::<f64>() / row.runs.len() as f64;
                let curve = &row.runs[0].curve;
                (0..curve.len()).map(|i| (curve[i].0 as f64, 100.0 * mean(i))).collect()
            }
        };
        let name = label(&row.mechanism, row.target_epsilon, row.runs[0].valid);
        let marker = !several || row.target_epsilon.is_some();
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.extend(points),
            None => series.push(Series { name, points, marker, ..Series::default() }),
        }
    }
    let title = match first {
        Some(epsilon) if !several => format!("{name}, ε = {epsilon}, δ = {DELTA:e}"),
        _ => format!("{name}, δ = {DELTA:e}"),
    };
    let x_label = if several { "ε" } else { "step" };
    Lines { title, x_label: x_label.into(), y_label: "test accuracy, %".into(), series, ..Lines::default() }
}
