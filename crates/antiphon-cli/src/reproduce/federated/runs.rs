//! The runs: for every algorithm and ε the learning rate of the server is chosen on the validation users, then several runs with paired
//! seeds are tested on the test users.
//!
//! The work is in an order that leaves something useful wherever it is interrupted: one ε after the other, of each first all choices, then
//! one seed after the other for all algorithms.

use super::algorithm::{self, Algorithm};
use super::noise::IterateNoise;
use super::row::{self, Row, Tried, differences, loss};
use super::{FederatedArgs, figures, paper, show, task};
use crate::progress::busy;
use crate::reproduce::Pictures;
use crate::reproduce::kept::{Kept, Purpose, Record};
use crate::train::{self, Stop};
use antiphon::error::{Error, Result};
use antiphon::run::{Budget, Privacy};
use antiphon_train::data::text::TextData;
use antiphon_train::design::Design;
use antiphon_train::federated::Federated;
use antiphon_train::job::Job;
use antiphon_train::kind::Kind;
use antiphon_train::settings::{Settings, UsualPrivacy};
use antiphon_train::task::Task;
use std::collections::BTreeMap;

/// The whole experiment.
struct Sweep<'a> {
    args: &'a FederatedArgs,
    algorithms: Vec<Algorithm>,
    test: Federated,
    validation: Federated,
    delta: f64,
    kept: Kept,
    stop: &'a Stop,
    /// What was made, by the name of its algorithm: learning rates and ε change no mechanism.
    designs: BTreeMap<&'static str, Design>,
    /// What was accounted for, by algorithm and the place of ε in the list.
    accounted: BTreeMap<(&'static str, usize), Privacy>,
}

/// All about the runs.
pub struct Results {
    pub dataset: String,
    pub users: [usize; 3],
    pub model: String,
    pub parameters: usize,
    pub delta: f64,
    /// What must be taken as public for ε to hold.
    pub condition: Option<String>,
    pub rows: Vec<Row>,
    pub differences: Vec<row::Difference>,
    pub paper: paper::Paper,
}

pub fn run(
    args: &FederatedArgs,
    data: &TextData,
    pictures: &Pictures,
    stop: &Stop,
    json: bool,
) -> anyhow::Result<serde_json::Value> {
    let (test, validation) = (task(data, false)?, task(data, true)?);
    let delta = UsualPrivacy::federated(test.units()).delta;
    let kept = Kept::open(pictures.output.as_deref(), "federated", stop.clone())?;
    let algorithms = algorithm::chosen(&args.mechanisms)?;
    let (designs, accounted) = (BTreeMap::new(), BTreeMap::new());
    let mut sweep = Sweep { args, algorithms, test, validation, delta, kept, stop, designs, accounted };
    let mut rows = Vec::new();
    for place in 0..args.epsilon.len() {
        rows.extend(sweep.at(place)?);
    }
    let Sweep { test, validation, .. } = &sweep;
    let results = Results {
        dataset: Task::name(test),
        users: [test.units(), validation.tested(), test.tested()],
        model: test.model(),
        parameters: test.parameters(),
        delta,
        condition: test.condition(),
        differences: differences(&rows),
        rows,
        paper: paper::paper()?,
    };
    let mut files = Vec::new();
    for (name, picture) in figures::NAMES.iter().zip(figures::all(&results)) {
        files.extend(pictures.draw(name, &picture)?);
    }
    if !json {
        show::print(&results, &files);
    }
    Ok(show::json(&results, &files))
}

impl Sweep<'_> {
    /// All algorithms at one ε: their choices, then seed by seed.
    fn at(&mut self, place: usize) -> Result<Vec<Row>> {
        let algorithms = self.algorithms.clone();
        let mut chosen = Vec::new();
        for algorithm in &algorithms {
            chosen.push(self.choose(algorithm, place)?);
        }
        let mut runs: Vec<Vec<Record>> = vec![Vec::new(); algorithms.len()];
        for repeat in 0..self.args.repeats as u64 {
            let seed = self.args.seed.wrapping_add(repeat);
            for ((algorithm, (settings, _)), runs) in algorithms.iter().zip(&chosen).zip(&mut runs) {
                runs.push(self.record(algorithm, settings, place, seed, false)?);
            }
        }
        let target = self.args.epsilon[place];
        let mut rows = Vec::new();
        for ((algorithm, (settings, tried)), runs) in algorithms.iter().zip(chosen).zip(runs) {
            let noise = self.iterate_noise(algorithm, &settings, place)?;
            rows.push(Row::new(algorithm, target, noise, tried, runs));
        }
        Ok(rows)
    }

    /// The noise in the parameters, with this rate.
    fn iterate_noise(
        &self,
        algorithm: &Algorithm,
        settings: &Settings,
        place: usize,
    ) -> Result<Option<IterateNoise>> {
        let made = self.designs.get(algorithm.name).zip(self.accounted.get(&(algorithm.name, place)));
        made.map(|(design, privacy)| IterateNoise::of(design, privacy, settings)).transpose()
    }

    /// The settings with the learning rate whose loss on the validation users is least, and what was tried. Where all diverge, the smallest.
    fn choose(&mut self, algorithm: &Algorithm, place: usize) -> Result<(Settings, Vec<Tried>)> {
        let users = self.test.units();
        let settings = |rate: f64| algorithm.settings(users, self.args.epochs, rate);
        if let [rate] = self.args.learning_rates[..] {
            return Ok((settings(rate), Vec::new()));
        }
        let mut tried = Vec::new();
        for rate in self.args.learning_rates.clone() {
            let settings = algorithm.settings(users, self.args.epochs, rate);
            let record = self.record(algorithm, &settings, place, self.args.seed, true)?;
            let diverged = record.federated.as_ref().and_then(|federated| federated.diverged.clone());
            tried.push(Tried {
                learning_rate: rate,
                loss: Some(loss(&record)).filter(|loss| loss.is_finite()),
                diverged,
            });
        }
        Ok((algorithm.settings(users, self.args.epochs, best(&tried)), tried))
    }

    /// A run: the one that is kept, or a new one.
    fn record(
        &mut self,
        algorithm: &Algorithm,
        settings: &Settings,
        place: usize,
        seed: u64,
        held_out: bool,
    ) -> Result<Record> {
        let purpose = Purpose { seed, target_epsilon: None, held_out, algorithm: Some(algorithm.name) };
        let Some((kind, stamps)) = algorithm.noise else {
            let task = if held_out { &self.validation } else { &self.test };
            return self.kept.run_unnoised(antiphon_train::unnoised::NAME, settings, task, purpose);
        };
        let job = self.job(algorithm.name, kind, stamps, settings, place)?;
        let task = if held_out { &self.validation } else { &self.test };
        let target_epsilon = Some(self.args.epsilon[place]);
        self.kept.run(&job, task, Purpose { target_epsilon, ..purpose })
    }

    fn job(
        &mut self,
        name: &'static str,
        kind: Kind,
        stamps: Option<usize>,
        settings: &Settings,
        place: usize,
    ) -> Result<Job> {
        if !self.designs.contains_key(name) {
            let made = train::design(kind, stamps, &self.test, settings, self.stop)?;
            self.designs.insert(name, made);
        }
        let design = self.designs[name].clone();
        let privacy = match self.accounted.get(&(name, place)) {
            Some(privacy) => *privacy,
            None => {
                let budget = Budget::Target { epsilon: self.args.epsilon[place], delta: self.delta };
                let privacy = busy("accounting", || design.privacy(budget))?;
                *self.accounted.entry((name, place)).or_insert(privacy)
            }
        };
        match self.stop.asked() {
            true => Err(Error::Interrupted),
            false => Ok(Job { design, settings: *settings, privacy }),
        }
    }
}

/// The rate of least loss, of equal ones the first; of runs that all diverged the smallest.
fn best(tried: &[Tried]) -> f64 {
    let ended = tried.iter().filter_map(|tried| Some((tried.learning_rate, tried.loss?)));
    let least = ended.min_by(|a, b| a.1.total_cmp(&b.1));
    let smallest = || tried.iter().map(|tried| tried.learning_rate).fold(f64::INFINITY, f64::min);
    least.map_or_else(smallest, |(rate, _)| rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loss_is_chosen_and_divergence_is_the_worst() {
        let tried = |losses: &[(f64, Option<f64>)]| {
            let one = |(learning_rate, loss): &(f64, Option<f64>)| Tried {
                learning_rate: *learning_rate,
                loss: *loss,
                diverged: None,
            };
            best(&losses.iter().map(one).collect::<Vec<_>>())
        };
        assert_eq!(tried(&[(0.5, Some(3.0)), (1.0, Some(2.0)), (2.0, None)]), 1.0);
        assert_eq!(tried(&[(0.5, Some(2.0)), (1.0, Some(2.0))]), 0.5);
        assert_eq!(tried(&[(2.0, None), (0.5, None)]), 0.5);
    }
}
