//! `antiphon reproduce cifar10` and `fashion-mnist`: the paper's central experiment, the accuracy of models at the same ε.
//!
//! The paper's protocol (section 5.1 and its appendix): prefix-sum mechanisms, momentum and cooldown as post-processing, learning rates
//! and momentum from a grid. Where a grid is given here, the choice is made on a tenth of the training examples that are held
//! out, not on the test images. With `--output` every finished run is a line in a file there, an unfinished one has
//! checkpoints beside it, and the same command goes on with both.

use super::{GAP, Pictures, factorization};
use crate::chart::{Lines, Picture, Series};
use crate::compare::table;
use crate::output::{answer, print_json, quoted, short_bound};
use crate::progress::busy;
use crate::train::{self, Finished, Job, Place, TrainingArgs};
use antiphon::atomic;
use antiphon::error::{Error, Result};
use antiphon::make;
use antiphon::mechanism::NoisingMatrix;
use antiphon::mechanism::factorization::noising_matrix;
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use antiphon_train::data::{self, Name};
use antiphon_train::design::{Budget, Design, Kind, STAMPS};
use antiphon_train::summary::Summary;
use antiphon_train::task::{Model, Task};
use antiphon_train::trainer::{Description, Settings};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// δ of the paper's experiment.
const DELTA: f64 = 1e-5;

#[derive(Args)]
pub struct Accuracy {
    /// Several ε, separated by commas (default: 8 for cifar10, 4 for fashion-mnist)
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true)]
    epsilon: Vec<f64>,
    /// Mechanisms, as `antiphon train` has them (default: optimal,dp-sgd; for fashion-mnist optimal,tree,identity)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    mechanisms: Vec<String>,
    /// Runs of each mechanism at each ε, with paired seeds
    #[arg(long, value_name = "R", default_value_t = 1)]
    repeats: usize,
    /// The seed of the first
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Learning rates to choose from, on held-out examples; the paper's are 0.01,0.02,0.05,0.1,0.2,0.5
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true)]
    learning_rates: Vec<f64>,
    /// Values of momentum to choose from; the paper's are 0,0.85,0.9,0.95
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true)]
    momentums: Vec<f64>,
    /// One of the paper's two ablations instead of --mechanisms
    #[arg(long, value_enum, conflicts_with = "mechanisms")]
    ablation: Option<Ablation>,
    /// Passes over the data instead of the protocol's, for a quick look
    #[arg(long, value_name = "K")]
    epochs: Option<usize>,
    /// Where the files of the data sets are
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Ablation {
    /// The online tree with 1, 2, 5, 10 and 20 stamps
    Stamps,
    /// Optima for 1, 2, 5, 10 and 20 epochs, repeated until the end
    Epochs,
}

/// A mechanism of the experiment.
#[derive(Clone, Copy)]
enum Entry {
    Kind(Kind, Option<usize>),
    /// The optimum for so many epochs, repeated.
    OptimumFor(usize),
}

/// A finished run, as it is kept.
#[derive(Serialize, Deserialize, Clone)]
struct Record {
    run: String,
    seed: u64,
    held_out: bool,
    target_epsilon: f64,
    mechanism: String,
    settings: Settings,
    accuracy: f64,
    epsilon: f64,
    delta: f64,
    valid: bool,
    noise_multiplier: f64,
    steps: usize,
    seconds: f64,
    /// Step and test accuracy of every epoch.
    curve: Vec<(usize, f64)>,
    command: String,
    version: String,
}

/// One row of the result.
#[derive(Serialize)]
struct Row {
    mechanism: String,
    target_epsilon: f64,
    accuracy: f64,
    interval: Option<[f64; 2]>,
    settings: Settings,
    runs: Vec<Record>,
}

impl Accuracy {
    pub fn run(&self, name: Name, pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
        let what = name.as_str();
        pictures.check(&[what])?;
        self.check()?;
        let folder = match &self.data {
            Some(folder) => folder.clone(),
            None => data::default_folder()?,
        };
        let task = Task::new(data::load(name, &folder)?, Model::usual(name))?;
        let kept = Kept::open(pictures.output.as_deref(), what)?;
        let mut held_out = None;
        let mut rows = Vec::new();
        for entry in self.entries(name)? {
            for epsilon in self.epsilons(name) {
                let mut grid = self.grid(name, entry);
                let mut choice = grid[0];
                if grid.len() > 1 {
                    let part = match &held_out {
                        Some(part) => part,
                        None => {
                            let whole = Task::new(data::load(name, &folder)?, Model::usual(name))?;
                            held_out.insert(whole.with_held_out(0, task.train.len() / 10)?)
                        }
                    };
                    let design = design(entry, part, &grid[0])?;
                    let mut best = f64::NEG_INFINITY;
                    for settings in grid.drain(..) {
                        let job = job(&design, settings, epsilon)?;
                        let record = kept.run(&job, part, self.seed, epsilon, true)?;
                        if record.accuracy > best {
                            (best, choice) = (record.accuracy, settings);
                        }
                    }
                }
                let design = design(entry, &task, &choice)?;
                let job = job(&design, choice, epsilon)?;
                let seeds = (0..self.repeats as u64).map(|i| self.seed.wrapping_add(i));
                let runs = seeds
                    .map(|seed| kept.run(&job, &task, seed, epsilon, false))
                    .collect::<Result<Vec<Record>>>()?;
                let figures: Vec<f64> = runs.iter().map(|run| run.accuracy).collect();
                let Summary { mean, interval } = Summary::of(&figures);
                rows.push(Row {
                    mechanism: design.name,
                    target_epsilon: epsilon,
                    accuracy: mean,
                    interval,
                    settings: choice,
                    runs,
                });
            }
        }
        let files = pictures.draw(what, &Picture::Lines(picture(name, &rows)))?;
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
        for name in &self.mechanisms {
            name.parse::<Kind>()?;
        }
        Ok(())
    }

    fn epsilons(&self, name: Name) -> Vec<f64> {
        match (self.epsilon.is_empty(), name) {
            (false, _) => self.epsilon.clone(),
            (true, Name::Cifar10) => vec![8.0],
            (true, _) => vec![4.0],
        }
    }

    fn entries(&self, name: Name) -> Result<Vec<Entry>> {
        let names: Vec<&str> = match (self.mechanisms.is_empty(), name) {
            (false, _) => self.mechanisms.iter().map(String::as_str).collect(),
            (true, Name::Cifar10) => vec!["optimal", "dp-sgd"],
            (true, _) => vec!["optimal", "tree", "identity"],
        };
        match self.ablation {
            Some(Ablation::Stamps) => {
                let tree: Kind = "tree".parse()?;
                Ok(STAMPS.map(|stamps| Entry::Kind(tree, Some(stamps))).to_vec())
            }
            Some(Ablation::Epochs) => {
                let epochs = self.protocol(name, None).epochs;
                let divisors = STAMPS.into_iter().filter(|k| epochs.is_multiple_of(*k));
                Ok(divisors.map(Entry::OptimumFor).collect())
            }
            None => names.into_iter().map(|name| Ok(Entry::Kind(name.parse()?, None))).collect(),
        }
    }

    /// The protocol, with the usual learning rate.
    fn protocol(&self, name: Name, kind: Option<Kind>) -> Settings {
        let settings = TrainingArgs::default().settings(name, kind, 1.0, false);
        Settings { epochs: self.epochs.unwrap_or(settings.epochs), ..settings }
    }

    /// All settings that are tried: one, if no grid is given.
    fn grid(&self, name: Name, entry: Entry) -> Vec<Settings> {
        let kind = match entry {
            Entry::Kind(kind, _) => Some(kind),
            Entry::OptimumFor(_) => None,
        };
        let usual = self.protocol(name, kind);
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

fn job(design: &Design, settings: Settings, epsilon: f64) -> Result<Job> {
    let privacy = busy("accounting", || design.privacy(Budget::Epsilon(epsilon), DELTA))?;
    Ok(Job { design: design.clone(), settings, privacy })
}

fn design(entry: Entry, task: &Task, settings: &Settings) -> Result<Design> {
    match entry {
        Entry::Kind(kind, stamps) => train::design(kind, stamps, task, settings),
        Entry::OptimumFor(epochs) => busy("making the mechanism", || {
            let schema = Schema::epochs(settings.epochs, settings.steps_per_epoch(task.train.len()))?;
            let workload = Workload::prefix_sum(schema.steps());
            let stamped = factorization("optimal", settings.epochs / epochs, &schema, &workload)?;
            let noising = NoisingMatrix::new(noising_matrix(&stamped))?;
            let mechanism = make::dense(noising, &schema, &workload, GAP, &|_| true)?;
            Design::of(format!("optimal for {epochs} epochs"), mechanism)
        }),
    }
}

/// Where runs are kept, if anywhere.
struct Kept {
    folder: Option<PathBuf>,
    file: PathBuf,
    records: Vec<Record>,
}

impl Kept {
    fn open(folder: Option<&Path>, what: &str) -> Result<Kept> {
        let Some(folder) = folder else {
            return Ok(Kept { folder: None, file: PathBuf::new(), records: Vec::new() });
        };
        let file = folder.join(format!("{what}.jsonl"));
        let io = |source| Error::Io { path: file.clone(), source };
        let mut text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(io)?,
        };
        // Killed while it wrote a line: its run is still in its folder, and gives the line again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            text.truncate(whole);
            atomic::write(&file, true, |file| file.write_all(text.as_bytes()))?;
        }
        let records = text
            .lines()
            .enumerate()
            .map(|(i, line)| {
                serde_json::from_str(line).map_err(|error| Error::File {
                    path: file.clone(),
                    reason: format!("line {} is not a run: {error}", i + 1),
                })
            })
            .collect::<Result<Vec<Record>>>()?;
        Ok(Kept { folder: Some(folder.into()), file, records })
    }

    /// A run: the one that is there, or a new one, which is there from then on.
    fn run(&self, job: &Job, task: &Task, seed: u64, epsilon: f64, held_out: bool) -> Result<Record> {
        let id = Description::new(task, &job.design, &job.settings, &job.privacy).id();
        if let Some(record) = self.records.iter().find(|record| record.run == id && record.seed == seed) {
            return Ok(record.clone());
        }
        let place = self.folder.as_ref().map(|folder| folder.join(format!("run-{}-{seed}", &id[..16])));
        let kept = place.as_ref().map(|folder| Place {
            folder,
            every: Some(25),
            resume: folder.join("run.json").exists(),
        });
        let finished = job.run(task, Some(seed), kept.as_ref(), None, false)?;
        let record = record(&finished, id, seed, epsilon, held_out);
        if let Some(folder) = place {
            let io = |source| Error::Io { path: self.file.clone(), source };
            let line = serde_json::to_string(&record).expect("plain fields");
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(&self.file).map_err(io)?;
            writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(io)?;
            std::fs::remove_dir_all(&folder).map_err(|source| Error::Io { path: folder, source })?;
        }
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

fn print(name: Name, rows: &[Row]) {
    say!("{name}, δ = {DELTA:e}; seeded runs, which are not private against anyone who knows the seed");
    let heads = ["  mechanism", "ε", "test accuracy", "runs", "learning rate", "momentum", "seconds"];
    let cells = |row: &Row| {
        let interval = row
            .interval
            .map_or(String::new(), |[low, high]| format!(" [{:.2}, {:.2}]", 100.0 * low, 100.0 * high));
        let valid = if row.runs[0].valid { "" } else { " *" };
        let seconds = row.runs.iter().map(|run| run.seconds).sum::<f64>() / row.runs.len() as f64;
        [
            format!("  {}", row.mechanism),
            format!("{}{valid}", short_bound(row.runs[0].epsilon, true)),
            format!("{:.2}%{interval}", 100.0 * row.accuracy),
            row.runs.len().to_string(),
            row.settings.learning_rate.to_string(),
            row.settings.momentum.to_string(),
            format!("{seconds:.0}"),
        ]
    };
    table(&heads.map(String::from), &rows.iter().map(cells).collect::<Vec<_>>());
    if rows.iter().any(|row| !row.runs[0].valid) {
        say!("  * not a valid guarantee");
    }
}

/// Accuracy by ε where there are several, by step where there is one.
fn picture(name: Name, rows: &[Row]) -> Lines {
    let several = rows.iter().any(|row| row.target_epsilon != rows[0].target_epsilon);
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let points = if several {
            vec![(row.target_epsilon, 100.0 * row.accuracy)]
        } else {
            let mean =
                |i: usize| row.runs.iter().map(|run| run.curve[i].1).sum::<f64>() / row.runs.len() as f64;
            (0..row.runs[0].curve.len()).map(|i| (row.runs[0].curve[i].0 as f64, 100.0 * mean(i))).collect()
        };
        match series.iter_mut().find(|series| series.name == row.mechanism) {
            Some(series) => series.points.extend(points),
            None => series.push(Series { name: row.mechanism.clone(), points, marker: true }),
        }
    }
    let title = match (rows.first(), several) {
        (Some(row), false) => format!("{name}, ε = {}, δ = {DELTA:e}", row.target_epsilon),
        _ => format!("{name}, δ = {DELTA:e}"),
    };
    let x_label = if several { "ε" } else { "step" };
    Lines { title, x_label: x_label.into(), y_label: "test accuracy, %".into(), series, ..Lines::default() }
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
}
