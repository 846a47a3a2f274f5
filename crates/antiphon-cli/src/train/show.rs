//! The runs that were made, side by side.

use crate::chart::{self, Lines, Picture, Series};
use crate::compare::{plural, table};
use crate::output::{print_json, short_bound, wrapped};
use antiphon::statement::INVALID;
use antiphon_train::job::Finished;
use antiphon_train::summary::{INTERVALS, Summary};
use antiphon_train::task::{Score, Task};
use std::path::{Path, PathBuf};

/// Everything that was done.
pub struct All<'a> {
    pub task: &'a dyn Task,
    pub finished: &'a [Finished],
    pub seeded: bool,
    pub pictures: Vec<PathBuf>,
}

/// The name of a mechanism in pictures, which have no room for footnotes.
pub fn labelled(name: &str, valid: bool) -> String {
    if valid { name.into() } else { format!("{name} ({INVALID})") }
}

/// The runs of every mechanism, in the order of the first ones.
pub fn by_mechanism(finished: &[Finished]) -> Vec<(&str, Vec<&Finished>)> {
    let mut groups: Vec<(&str, Vec<&Finished>)> = Vec::new();
    for run in finished {
        match groups.iter_mut().find(|(name, _)| *name == run.mechanism) {
            Some((_, runs)) => runs.push(run),
            None => groups.push((&run.mechanism, vec![run])),
        }
    }
    groups
}

fn accuracies(runs: &[&Finished]) -> Vec<f64> {
    runs.iter().map(|run| run.accuracy()).collect()
}

impl All<'_> {
    pub fn show(&self, json: bool) -> anyhow::Result<()> {
        if self.seeded {
            eprintln!(
                "antiphon: a seeded run is not private: whoever knows or guesses the seed can compute its noise"
            );
        }
        if json { self.print_json() } else { self.print() }
    }

    fn print_json(&self) -> anyhow::Result<()> {
        let runs: Vec<serde_json::Value> = self.finished.iter().map(run_json).collect();
        let groups = by_mechanism(self.finished);
        let summaries: Vec<serde_json::Value> = groups
            .iter()
            .map(|(name, runs)| {
                let Summary { mean, interval } = Summary::of(&accuracies(runs));
                serde_json::json!({ "mechanism": name, "runs": runs.len(), "accuracy": mean, "interval": interval })
            })
            .collect();
        let unit = self.task.unit();
        let of = unit.name().replace(' ', "_") + "s";
        let mut all = serde_json::json!({
            "dataset": self.task.name(),
            "unit": unit.name().replace(' ', "-"),
            "tested_on": self.task.tested_on(),
            "model": self.task.model(),
            "parameters": self.task.parameters(),
            "runs": runs,
            "summary": summaries,
            "statement": self.statement().join(" "),
            "pictures": self.pictures,
        });
        all[format!("train_{of}")] = self.task.units().into();
        all[format!("test_{of}")] = self.task.tested().into();
        if let Some(client) = self.task.client() {
            all["client"] = serde_json::to_value(client)?;
        }
        print_json(&all)
    }

    fn print(&self) -> anyhow::Result<()> {
        let task = self.task;
        let (train, test) = (task.units(), task.tested());
        let unit = task.unit().name();
        say!(
            "{}: {} model, {} parameters; {train} training {unit}{}, {test} {} {unit}{}",
            task.name(),
            task.model(),
            task.parameters(),
            plural(train),
            task.tested_on(),
            plural(test)
        );
        let groups = by_mechanism(self.finished);
        let repeats = self.finished.len() / groups.len();
        let heads = [
            "  mechanism",
            &format!("{} accuracy", task.tested_on()),
            &format!("{} loss", task.tested_on()),
            "ε",
            "noise multiplier",
            "learning rate",
            "momentum",
            "seconds",
        ];
        let mut rows = Vec::new();
        for (name, runs) in &groups {
            let first = runs[0];
            let valid = if first.privacy.valid { "" } else { " *" };
            rows.push([
                format!("  {name}"),
                Summary::of(&accuracies(runs)).in_hundredths("%"),
                format!("{:.3}", runs.iter().map(|run| run.loss()).sum::<f64>() / runs.len() as f64),
                format!("{}{valid}", short_bound(first.privacy.epsilon, true)),
                short_bound(first.privacy.noise_multiplier, false),
                first.settings.learning_rate.to_string(),
                first.settings.momentum.to_string(),
                format!("{:.1}", runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len() as f64),
            ]);
        }
        table(&heads.map(String::from), &rows);
        if self.finished.iter().any(|run| !run.privacy.valid) {
            say!("  * {INVALID}");
        }
        if task.client().is_some() {
            say!(
                "  Accuracy of the next token, without ends of lines and unknown tokens; --json has it also with ends and without punctuation."
            );
        }
        if repeats > 1 {
            say!("  Means of {repeats} runs each, with {INTERVALS}.");
        }
        if let [(best, first), .., (last, others)] = groups.as_slice() {
            let gain = Summary::of_differences(&accuracies(first), &accuracies(others));
            // A budget is met from below, by a little more or less.
            let [a, b] = [first, others].map(|runs| runs[0].privacy);
            let same = a.valid && b.valid && (a.epsilon / b.epsilon - 1.0).abs() < 1e-2;
            if gain.mean > 0.0 && same {
                say!("  {best} gains {} over {last} at the same ε.", gain.in_hundredths(" points"));
            }
        }
        say!("");
        for sentence in self.statement() {
            for line in wrapped(&sentence, 100) {
                say!("{line}");
            }
        }
        for path in &self.pictures {
            say!("Wrote {}.", path.display());
        }
        Ok(())
    }

    /// That of the first mechanism, and what follows from there being several runs.
    fn statement(&self) -> Vec<String> {
        let mut sentences = self.finished[0].statement.sentences();
        if self.finished.len() > 1 {
            let others: Vec<String> = by_mechanism(self.finished)
                .iter()
                .skip(1)
                .map(|(name, runs)| {
                    let valid = if runs[0].privacy.valid { String::new() } else { format!(", {INVALID}") };
                    format!("{name}: ε = {}{valid}", short_bound(runs[0].privacy.epsilon, true))
                })
                .collect();
            let also = if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) };
            sentences.push(format!(
                "This holds for each run by itself{also}. {} runs were made on the same data: if more than one of them is released, \
                 ε is larger.",
                self.finished.len()
            ));
        }
        sentences
    }
}

/// One run as JSON.
pub fn run_json(run: &Finished) -> serde_json::Value {
    let mut value = serde_json::json!({
        "mechanism": run.mechanism,
        "sampling": run.sampling,
        "accuracy": run.accuracy(),
        "loss": run.loss(),
        "epsilon": run.privacy.epsilon,
        "delta": run.privacy.delta,
        "valid": run.privacy.valid,
        "noise_multiplier": run.privacy.noise_multiplier,
        "stddev": run.description.stddev,
        "steps": run.state.step,
        "seconds": run.seconds,
        "seed": run.seed,
        "settings": run.settings,
        "epochs": run.state.epochs,
    });
    if run.description.client.is_some() {
        value["zeroed"] = run.state.zeroed.iter().sum::<usize>().into();
        value["zeroed_by_round"] = run.state.zeroed.clone().into();
    }
    value
}

/// Accuracy by step, the mean of the runs of each mechanism; of text the loss, because its accuracy jumps with the few most frequent tokens.
pub fn picture(
    name: &Path,
    task: &dyn Task,
    finished: &[Finished],
    force: bool,
) -> anyhow::Result<Vec<PathBuf>> {
    let text = task.client().is_some();
    let series = by_mechanism(finished)
        .into_iter()
        .map(|(name, runs)| {
            let epochs = runs[0].state.epochs.len();
            let figure = |score: &Score| if text { score.loss } else { 100.0 * score.accuracy };
            let mean = |i: usize| {
                runs.iter().map(|run| figure(&run.state.epochs[i].test)).sum::<f64>() / runs.len() as f64
            };
            let points = (0..epochs).map(|i| (runs[0].state.epochs[i].step as f64, mean(i))).collect();
            Series { name: labelled(name, runs[0].privacy.valid), points, marker: true, ..Series::default() }
        })
        .collect();
    // The largest: mechanisms with the same noise multiplier have different ones.
    let epsilon = finished.iter().map(|run| run.privacy.epsilon).fold(0.0, f64::max);
    let (epsilon, delta) = (short_bound(epsilon, true), finished[0].privacy.delta);
    let lines = Lines {
        title: format!("{}, ε = {epsilon}, δ = {delta:e}", task.name()),
        x_label: if text { "round" } else { "step" }.into(),
        y_label: if text { "test loss" } else { "test accuracy, %" }.into(),
        series,
        ..Lines::default()
    };
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = name.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(chart::write(folder, &stem, &Picture::Lines(lines), force)?.to_vec())
}
