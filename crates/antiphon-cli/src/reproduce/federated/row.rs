//! What several runs of one algorithm at one ε come to.

use super::algorithm::Algorithm;
use super::noise::IterateNoise;
use crate::reproduce::kept::{FederatedRecord, Record};
use antiphon_train::settings::Settings;
use antiphon_train::summary::Summary;
use serde::Serialize;

/// An algorithm at an ε.
#[derive(Serialize)]
pub struct Row {
    pub algorithm: &'static str,
    pub name: &'static str,
    pub mechanism: String,
    /// Whether there is noise. Without it nothing is private.
    pub private: bool,
    /// Whether ε holds for what the runs do.
    pub valid: bool,
    /// That of the table; runs without noise have none of their own.
    pub target_epsilon: f64,
    pub epsilon: Option<f64>,
    pub noise_multiplier: Option<f64>,
    pub settings: Settings,
    /// In every parameter of the model; none without noise.
    pub iterate_noise: Option<IterateNoise>,
    pub rounds: usize,
    pub clients_per_round: usize,
    pub choice: Vec<Tried>,
    /// None if a run diverged.
    pub loss: Option<Statistics>,
    /// A run that diverged until its parameters were not finite counts as zero.
    pub accuracy: Statistics,
    pub accuracy_with_end: Statistics,
    pub accuracy_without_punctuation: Statistics,
    /// Runs that diverged.
    pub diverged: usize,
    /// Updates that were zeroed, in all runs together.
    pub zeroed: usize,
    /// Of a run, on average.
    pub seconds: f64,
    pub runs: Vec<Record>,
}

/// A learning rate that was tried on the validation users.
#[derive(Serialize, Clone)]
pub struct Tried {
    pub learning_rate: f64,
    /// None if the run diverged.
    pub loss: Option<f64>,
    pub diverged: Option<String>,
}

/// Figures of several runs.
#[derive(Serialize)]
pub struct Statistics {
    pub mean: f64,
    /// As in [`Summary`]; one run has none.
    pub interval: Option<[f64; 2]>,
    /// With Bessel's correction; one run has none.
    pub std: Option<f64>,
    pub min: f64,
    pub max: f64,
    pub count: usize,
}

impl Statistics {
    /// Of some figures, at least one.
    pub fn of(figures: &[f64]) -> Statistics {
        let Summary { mean, interval } = Summary::of(figures);
        let squares: f64 = figures.iter().map(|x| (x - mean) * (x - mean)).sum();
        let count = figures.len();
        Statistics {
            mean,
            interval,
            std: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            count,
        }
    }
}

/// The loss of a run; infinite if it diverged.
pub fn loss(record: &Record) -> f64 {
    record.federated.as_ref().and_then(|federated| federated.loss).unwrap_or(f64::INFINITY)
}

fn losses(runs: &[Record]) -> Option<Vec<f64>> {
    runs.iter().map(|run| Some(loss(run)).filter(|loss| loss.is_finite())).collect()
}

fn accuracies(runs: &[Record], which: impl Fn(&FederatedRecord) -> Option<f64>) -> Statistics {
    let of = |run: &Record| run.federated.as_ref().and_then(&which).unwrap_or(0.0);
    Statistics::of(&runs.iter().map(of).collect::<Vec<_>>())
}

impl Row {
    /// Of runs with the same settings, at least one.
    pub fn new(
        algorithm: &Algorithm,
        target_epsilon: f64,
        iterate_noise: Option<IterateNoise>,
        choice: Vec<Tried>,
        runs: Vec<Record>,
    ) -> Row {
        let first = &runs[0];
        let federated = || runs.iter().filter_map(|run| run.federated.as_ref());
        Row {
            algorithm: algorithm.name,
            name: algorithm.title,
            mechanism: first.mechanism.clone(),
            private: algorithm.noise.is_some(),
            valid: first.valid,
            target_epsilon,
            epsilon: first.epsilon,
            noise_multiplier: first.noise_multiplier,
            settings: first.settings,
            iterate_noise,
            rounds: runs.iter().map(|run| run.steps).max().unwrap_or(0),
            clients_per_round: first.settings.batch_size,
            choice,
            loss: losses(&runs).map(|losses| Statistics::of(&losses)),
            accuracy: Statistics::of(&runs.iter().map(|run| run.accuracy).collect::<Vec<_>>()),
            accuracy_with_end: accuracies(&runs, |run| run.accuracy_with_end),
            accuracy_without_punctuation: accuracies(&runs, |run| run.accuracy_without_punctuation),
            diverged: runs.iter().filter(|run| loss(run).is_infinite()).count(),
            zeroed: federated().flat_map(|run| &run.zeroed).sum(),
            seconds: runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len() as f64,
            runs,
        }
    }

    /// Zeroed updates of every round, the mean over the runs that did not diverge.
    pub fn zeroed_by_round(&self) -> Vec<f64> {
        let ended: Vec<&Vec<usize>> = self
            .runs
            .iter()
            .filter_map(|run| run.federated.as_ref())
            .map(|run| &run.zeroed)
            .filter(|zeroed| zeroed.len() == self.rounds)
            .collect();
        let mean = |round: usize| {
            ended.iter().map(|zeroed| zeroed[round]).sum::<usize>() as f64 / ended.len().max(1) as f64
        };
        (0..self.rounds).map(mean).collect()
    }
}

/// One algorithm minus another, seed by seed.
#[derive(Serialize)]
pub struct Difference {
    pub target_epsilon: f64,
    pub algorithm: &'static str,
    pub minus: &'static str,
    /// Whether both are private, and their ε hold for what the runs do.
    pub comparable: bool,
    /// None if a run diverged.
    pub loss: Option<Summary>,
    pub accuracy: Summary,
}

/// The pairs of the paper's claims: MF6 with all others, and MF1 with Honaker.
pub fn differences(rows: &[Row]) -> Vec<Difference> {
    let pair = |row: &Row, other: &Row| {
        let wanted = row.algorithm == "mf6" || (row.algorithm, other.algorithm) == ("mf1", "honaker");
        wanted && row.algorithm != other.algorithm && row.target_epsilon == other.target_epsilon
    };
    let mut all = Vec::new();
    for row in rows {
        for other in rows.iter().filter(|other| pair(row, other)) {
            let accuracies = |row: &Row| row.runs.iter().map(|run| run.accuracy).collect::<Vec<_>>();
            let pairs = losses(&row.runs).zip(losses(&other.runs));
            all.push(Difference {
                target_epsilon: row.target_epsilon,
                algorithm: row.algorithm,
                minus: other.algorithm,
                comparable: [row, other].iter().all(|row| row.private && row.valid),
                loss: pairs.map(|(ours, theirs)| Summary::of_differences(&ours, &theirs)),
                accuracy: Summary::of_differences(&accuracies(row), &accuracies(other)),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::{ALL, CLIP_NORM};
    use super::*;
    use antiphon_train::federated::client;

    /// A run; infinite losses are of runs that diverged.
    fn record(seed: u64, loss: f64, accuracy: f64, zeroed: &[usize]) -> Record {
        let value = serde_json::json!({
            "run": "id", "seed": seed, "held_out": false, "target_epsilon": 2.0, "mechanism": "optimal",
            "settings": Settings::federated(64, CLIP_NORM, None), "accuracy": accuracy, "epsilon": 2.0, "delta": 1e-5,
            "valid": true, "noise_multiplier": 1.0, "steps": zeroed.len(), "seconds": 1.0, "curve": [],
            "command": "antiphon", "version": "0", "algorithm": "mf6", "dataset": "poets", "users": 64,
            "clients_per_round": 1, "client": client::Settings::usual(CLIP_NORM), "loss": loss,
            "accuracy_with_end": accuracy, "accuracy_without_punctuation": accuracy, "zeroed": zeroed, "diverged": null,
        });
        serde_json::from_value(value).unwrap()
    }

    fn row(place: usize, runs: Vec<Record>) -> Row {
        Row::new(&ALL[place], 2.0, None, Vec::new(), runs)
    }

    #[test]
    fn statistics_are_those_of_samples() {
        let Statistics { mean, std, min, max, count, .. } = Statistics::of(&[1.0, 2.0, 6.0]);
        assert_eq!((mean, min, max, count), (3.0, 1.0, 6.0, 3));
        assert!((std.unwrap() - 7f64.sqrt()).abs() < 1e-12); // (4 + 1 + 9) / 2
        assert_eq!((Statistics::of(&[1.0]).std, Statistics::of(&[1.0]).interval), (None, None));
    }

    #[test]
    fn pairs_are_differences_seed_by_seed_and_divergence_has_none() {
        let mf6 = row(0, vec![record(1, 4.0, 0.3, &[0, 2]), record(2, 5.0, 0.2, &[1, 2])]);
        let mf1 = row(1, vec![record(1, 4.5, 0.25, &[0, 0]), record(2, 5.5, 0.15, &[0, 0])]);
        let honaker = row(3, vec![record(1, 6.0, 0.1, &[0, 0]), record(2, f64::INFINITY, 0.0, &[])]);
        assert_eq!((mf6.zeroed, mf6.zeroed_by_round()), (5, vec![0.5, 2.0]));
        assert_eq!((honaker.diverged, honaker.loss.is_none(), honaker.accuracy.mean), (1, true, 0.05));
        assert_eq!(honaker.zeroed_by_round(), [0.0, 0.0]);
        let all = differences(&[mf6, mf1, honaker]);
        let pairs: Vec<_> = all.iter().map(|one| (one.algorithm, one.minus)).collect();
        assert_eq!(pairs, [("mf6", "mf1"), ("mf6", "honaker"), ("mf1", "honaker")]);
        assert!((all[0].loss.unwrap().mean + 0.5).abs() < 1e-12 && all[1].loss.is_none());
        assert!((all[0].accuracy.mean - 0.05).abs() < 1e-12);
    }
}
