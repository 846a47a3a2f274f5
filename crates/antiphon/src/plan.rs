//! Which mechanism for one training run: all of them side by side, and one that is recommended.
//!
//! Every mechanism is evaluated under the schema and the workload of the run, whatever it was made for, each with the
//! number of stamps that gives it the least loss, and compared with the certified lower bound on all losses.

use crate::error::{Error, Result};
use crate::make;
use crate::mechanism::{
    Cost, DenseFactorization, Evaluation, Factorization, Family, Noise, Stamped, evaluate,
};
use crate::optimize::{self, MAX_DENSE_STEPS, Params, Progress};
use crate::schema::Schema;
use crate::sensitivity::Kind;
use crate::text::counted;
use crate::verify;
use crate::workload::Workload;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Losses that agree to this are the same.
const TIE: f64 = 1e-9;

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Made from a formula.
    Structured(Family),
    /// The optimum for a single participation, used under another schema (the paper's MF with k = 1).
    SingleEpoch,
    /// The optimum for this schema.
    Optimal,
}

impl Choice {
    /// The one with this name.
    pub fn named(name: &str) -> Result<Choice> {
        let names = || Choice::all().into_iter().map(Choice::name).collect::<Vec<_>>().join(", ");
        let found = Choice::all().into_iter().find(|choice| choice.name() == name);
        found.ok_or_else(|| Error::argument("a candidate", format!("one of {}", names()), name))
    }

    /// All of them, from the simplest to the best.
    pub fn all() -> Vec<Choice> {
        let structured = Family::ALL.into_iter().map(Choice::Structured);
        structured.chain([Choice::SingleEpoch, Choice::Optimal]).collect()
    }

    /// The name, as the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Structured(family) => family.name(),
            Choice::SingleEpoch => "single-epoch",
            Choice::Optimal => "optimal",
        }
    }
}

impl Serialize for Choice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How to compare.
#[derive(Debug, Clone)]
pub struct CompareParams {
    /// The certified gap to which optima are found.
    pub gap: f64,
    /// This number of stamps for all mechanisms that can be stamped, or the best one for each.
    pub stamps: Option<usize>,
    /// These are left out. Without [`Choice::Optimal`] there is no lower bound either: it comes from the same work.
    pub without: Vec<Choice>,
}

impl Default for CompareParams {
    fn default() -> Self {
        CompareParams { gap: 1e-3, stamps: None, without: Vec::new() }
    }
}

/// One mechanism under the run's schema and workload.
#[derive(Debug, Clone, Serialize)]
pub struct Candidate {
    /// Which mechanism.
    #[serde(rename = "name")]
    pub choice: Choice,
    /// How often it is repeated.
    pub stamps: usize,
    /// sens²·‖B‖²_F.
    pub loss: f64,
    /// √(loss / n).
    pub rmse: f64,
    /// The sensitivity of C, the upper end of what is known.
    pub sensitivity: f64,
    /// Whether that is exact.
    pub sensitivity_kind: Kind,
    /// The paper's bound on the sensitivity from eigenvalues.
    pub sensitivity_spectral: Option<f64>,
    /// loss / lower bound − 1: how far it can be from the best possible, at most.
    pub over_optimum: Option<f64>,
    /// The largest variance of an iterate at noise multiplier 1.
    pub max_variance: Option<f64>,
    /// What it takes to draw the noise; `None` where no noise can be drawn.
    #[serde(flatten)]
    pub cost: Option<Cost>,
    /// Time to make, search and evaluate.
    pub seconds: f64,
    /// The variance of every iterate at noise multiplier 1; empty where it is not known.
    #[serde(skip)]
    pub variances: Vec<f64>,
}

impl Candidate {
    /// "fft-optimal ×5".
    pub fn title(&self) -> String {
        match self.stamps {
            1 => self.choice.name().into(),
            stamps => format!("{} ×{stamps}", self.choice.name()),
        }
    }

    fn new(choice: Choice, stamps: usize, evaluation: Evaluation, start: Instant) -> Self {
        Candidate {
            choice,
            stamps,
            loss: evaluation.loss(),
            rmse: evaluation.rmse(),
            sensitivity: evaluation.sensitivity.upper,
            sensitivity_kind: evaluation.sensitivity.kind(),
            sensitivity_spectral: evaluation.spectral_bound,
            over_optimum: None,
            max_variance: Some(evaluation.max_variance()),
            cost: Some(evaluation.cost),
            seconds: start.elapsed().as_secs_f64(),
            variances: evaluation.variances,
        }
    }

    /// Bytes that noise takes while training a model of so many parameters, stored as `f32`.
    pub fn stream_bytes(&self, params: u64) -> Option<u64> {
        let cost = self.cost?;
        let rows = (cost.stream_memory_rows as u64).saturating_mul(params.saturating_mul(4));
        Some(rows.saturating_add(cost.coefficient_bytes as u64))
    }
}

/// All mechanisms for one run.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// No mechanism has a smaller loss; `None` where no bound is known.
    pub lower_bound: Option<f64>,
    /// The mechanisms, the least loss first.
    pub candidates: Vec<Candidate>,
    /// What is not among them, and why.
    pub left_out: Vec<LeftOut>,
}

/// A mechanism that was not compared.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// Which one.
    pub choice: Choice,
    /// What went wrong with it; nothing where it was not wanted.
    pub failure: Option<String>,
}

/// Where a comparison stands.
#[derive(Debug, Clone, Copy)]
pub struct Comparing<'a> {
    /// What is being looked at.
    pub choice: Choice,
    /// With how many stamps.
    pub stamps: usize,
    /// How many mechanisms are done, of how many.
    pub done: (usize, usize),
    /// How many numbers of stamps are done for this one, of how many.
    pub tried: (usize, usize),
    /// The optimizer's own progress, while it runs.
    pub optimizing: Option<&'a Progress>,
}

/// Is told of progress; answers whether to go on.
pub type CompareObserver<'a> = &'a dyn Fn(&Comparing<'_>) -> bool;

/// Compares all mechanisms for one run.
pub fn compare(
    schema: &Schema,
    workload: &Workload,
    params: &CompareParams,
    observer: CompareObserver<'_>,
) -> Result<Comparison> {
    let n = schema.steps();
    if workload.steps() != n {
        let allowed = format!("for {}, as the schema is", counted(n, "step"));
        return Err(Error::argument("the workload", allowed, counted(workload.steps(), "step")));
    }
    let counts = match params.stamps {
        Some(stamps) if !(1..=n).contains(&stamps) => {
            return Err(Error::argument("stamps", format!("in 1..={n}"), stamps));
        }
        Some(stamps) => vec![stamps],
        None => stamp_counts(n),
    };
    let (unwanted, choices): (Vec<Choice>, Vec<Choice>) =
        Choice::all().into_iter().partition(|choice| params.without.contains(choice));
    if choices.is_empty() {
        let names: Vec<&str> = unwanted.into_iter().map(Choice::name).collect();
        let allowed = "a list that leaves at least one candidate";
        return Err(Error::argument("without", allowed, names.join(",")));
    }
    let left_out = unwanted.into_iter().map(|choice| LeftOut { choice, failure: None }).collect();
    let mut comparison = Comparison { lower_bound: None, candidates: Vec::new(), left_out };
    // The optimum first: the others are measured by it.
    for (done, choice) in choices.iter().rev().enumerate() {
        let search = Search {
            schema,
            workload,
            gap: params.gap,
            observer,
            choice: *choice,
            done: (done, choices.len()),
        };
        let found = match choice {
            Choice::Optimal => search.optimum().map(|(candidate, bound)| {
                comparison.lower_bound = Some(bound);
                candidate
            }),
            // Stamps of length one are all that independent noise is.
            Choice::Structured(Family::Identity) => search.best(&[1]),
            _ => search.best(&counts),
        };
        match found {
            Ok(candidate) => comparison.candidates.push(candidate),
            Err(error) if concerns_one(&error) => {
                comparison.left_out.push(LeftOut { choice: *choice, failure: Some(error.to_string()) });
            }
            Err(error) => return Err(error),
        }
        if *choice == Choice::Optimal && comparison.lower_bound.is_none() {
            let observe = |progress: &Progress| search.report(1, (0, 1), Some(progress));
            comparison.lower_bound = match verify::optimum(schema, workload, params.gap, &observe) {
                Ok(bound) => Some(bound.value),
                Err(error) if concerns_one(&error) => None,
                Err(error) => return Err(error),
            };
        }
    }
    for candidate in &mut comparison.candidates {
        candidate.over_optimum = comparison.lower_bound.map(|bound| candidate.loss / bound - 1.0);
    }
    // The simplest first where losses agree but for rounding.
    let simplicity = |candidate: &Candidate| choices.iter().position(|choice| *choice == candidate.choice);
    let rank = |candidate: &Candidate| ((candidate.loss.ln() / TIE).round() as i64, simplicity(candidate));
    comparison.candidates.sort_by_key(rank);
    Ok(comparison)
}

/// Whether an error is about one mechanism only, so that the others can still be compared.
fn concerns_one(error: &Error) -> bool {
    matches!(error.parts().0, Error::Unsupported(_) | Error::NoConvergence { .. } | Error::Numerical(_))
}

/// The numbers of stamps that are tried: all divisors of n, so that stamps are equally long; where there are few, some
/// others as well.
pub fn stamp_counts(steps: usize) -> Vec<usize> {
    let small = (1..).take_while(|d| d * d <= steps).filter(|d| steps.is_multiple_of(*d));
    let mut counts: Vec<usize> = small.flat_map(|d| [d, steps / d]).collect();
    if counts.len() < 10 {
        let ladder = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64];
        counts.extend(ladder.into_iter().filter(|stamps| *stamps <= steps));
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The search for one mechanism.
struct Search<'a> {
    schema: &'a Schema,
    workload: &'a Workload,
    gap: f64,
    observer: CompareObserver<'a>,
    choice: Choice,
    done: (usize, usize),
}

impl Search<'_> {
    fn report(&self, stamps: usize, tried: (usize, usize), optimizing: Option<&Progress>) -> bool {
        (self.observer)(&Comparing { choice: self.choice, stamps, done: self.done, tried, optimizing })
    }

    /// The number of stamps with the least loss.
    fn best(&self, counts: &[usize]) -> Result<Candidate> {
        let start = Instant::now();
        let n = self.schema.steps();
        let mut best: Option<(usize, Evaluation)> = None;
        let mut failed = too_long(n);
        let longest = |stamps: usize| n.div_ceil(stamps);
        let feasible =
            |stamps: &&usize| self.choice != Choice::SingleEpoch || longest(**stamps) <= MAX_DENSE_STEPS;
        let counts: Vec<&usize> = counts.iter().filter(feasible).collect();
        for (place, stamps) in counts.iter().enumerate() {
            let tried = (place, counts.len());
            if !self.report(**stamps, tried, None) {
                return Err(Error::Interrupted);
            }
            let stamped = self.stamped(**stamps, tried);
            let evaluation = match stamped.and_then(|stamped| evaluate(&stamped, self.schema, self.workload))
            {
                Ok(evaluation) => evaluation,
                Err(error) if concerns_one(&error) => {
                    failed = error; // other stamps may do
                    continue;
                }
                Err(error) => return Err(error),
            };
            if best.as_ref().is_none_or(|(_, best)| evaluation.loss() < best.loss() * (1.0 - TIE)) {
                best = Some((**stamps, evaluation));
            }
        }
        let (stamps, evaluation) = best.ok_or(failed)?;
        Ok(Candidate::new(self.choice, stamps, evaluation, start))
    }

    fn stamped(&self, stamps: usize, tried: (usize, usize)) -> Result<Stamped> {
        Stamped::new(self.schema.steps(), stamps, |length| match self.choice {
            Choice::Structured(family) => family.factorization(length),
            _ => {
                let observe = |progress: &Progress| self.report(stamps, tried, Some(progress));
                let noising = make::single_epoch_stamp(length, self.workload, self.gap, &observe)?;
                Ok(Arc::new(DenseFactorization::new(noising)?))
            }
        })
    }

    /// The optimum and its lower bound: with its matrix, or implicit where that would be too large.
    fn optimum(&self) -> Result<(Candidate, f64)> {
        let start = Instant::now();
        let params =
            Params { gap: self.gap, implicit: self.schema.steps() > MAX_DENSE_STEPS, ..Params::default() };
        let observe = |progress: &Progress| self.report(1, (0, 1), Some(progress));
        let mechanism = optimize::optimize(self.schema, self.workload, &params, &observe)?.mechanism;
        let claims = mechanism.claims;
        let candidate = match mechanism.noise {
            Noise::Dense(noising) => {
                let factorization: &dyn Factorization = &DenseFactorization::new(noising)?;
                let evaluation = evaluate(factorization, self.schema, self.workload)?;
                Candidate::new(self.choice, 1, evaluation, start)
            }
            _ => Candidate {
                choice: self.choice,
                stamps: 1,
                loss: claims.loss,
                rmse: claims.rmse(self.schema.steps()),
                sensitivity: claims.sensitivity,
                sensitivity_kind: Kind::UpperBound,
                sensitivity_spectral: None,
                over_optimum: None,
                max_variance: None,
                cost: None,
                seconds: start.elapsed().as_secs_f64(),
                variances: Vec::new(),
            },
        };
        Ok((candidate, claims.lower_bound))
    }
}

fn too_long(steps: usize) -> Error {
    Error::Unsupported(format!(
        "its matrix would be too large: a stamp may have {MAX_DENSE_STEPS} steps at most, the run has {steps}"
    ))
}

/// What a run can afford.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// d, the number of the model's parameters.
    pub params: u64,
    /// Bytes for noise while training; `None` for no limit.
    pub memory: Option<u64>,
}

/// Which mechanism to take, as places in [`Comparison::candidates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recommendation {
    /// The one with the least loss of those that fit.
    pub chosen: usize,
    /// The one with the least loss of all, where that is another one.
    pub better: Option<usize>,
}

/// The mechanism with the least loss of those that noise can be drawn from within the memory.
pub fn recommend(comparison: &Comparison, needs: &Needs) -> Result<Recommendation> {
    let candidates = &comparison.candidates;
    let bytes = |candidate: &Candidate| candidate.stream_bytes(needs.params);
    let most = needs.memory.unwrap_or(u64::MAX);
    match candidates.iter().position(|candidate| bytes(candidate).is_some_and(|bytes| bytes <= most)) {
        Some(chosen) => Ok(Recommendation { chosen, better: (chosen > 0).then_some(0) }),
        None => {
            let least = candidates.iter().filter_map(bytes).min().unwrap_or(u64::MAX);
            let parameters = counted(needs.params as usize, "parameter");
            let allowed = format!("at least {least} bytes: one row of noise for {parameters}");
            Err(Error::argument("memory", allowed, most))
        }
    }
}

#[cfg(test)]
mod tests;
