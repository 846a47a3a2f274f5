//! Which mechanism for one training run: all of them side by side, and one that is recommended.
//!
//! Every mechanism is evaluated under the schema and the workload of the run, whatever it was made for, each with the
//! number of stamps that gives it the least loss, and compared with the certified lower bound on all losses.

use crate::error::{Error, Result};
use crate::families::{self, OPTIMAL};
use crate::mechanism::family::{Designed, Needs as Wants, Run};
use crate::mechanism::{Cost, DenseFactorization, Evaluation, Family, Mechanism, Noise, evaluate, stamp};
use crate::optimize::{self, Progress};
use crate::schema::Schema;
use crate::sensitivity::Kind;
use crate::text::counted;
use crate::verify;
use crate::workload::Workload;
use serde::Serialize;
use std::cell::Cell;
use std::time::Instant;

/// Losses that agree to this are the same.
const TIE: f64 = 1e-9;

/// How to compare.
#[derive(Debug, Clone)]
pub struct CompareParams {
    /// The certified gap to which optima are found.
    pub gap: f64,
    /// This number of stamps for all mechanisms that can be stamped, or the best one for each.
    pub stamps: Option<usize>,
    /// These are left out. Without [`OPTIMAL`] there is no lower bound either: it comes from the same work.
    pub without: Vec<Family>,
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
    pub family: Family,
    /// How often it is repeated.
    pub stamps: usize,
    /// How many buffers its noise has; `None` where the family has none.
    pub buffers: Option<usize>,
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
            1 => self.family.name().into(),
            stamps => format!("{} ×{stamps}", self.family),
        }
    }

    fn new(
        family: Family,
        (stamps, buffers): (usize, Option<usize>),
        evaluation: Evaluation,
        start: Instant,
    ) -> Self {
        Candidate {
            family,
            stamps,
            buffers,
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

    /// An implicit mechanism: what it claims is all that is known.
    fn claimed(family: Family, mechanism: &Mechanism, start: Instant) -> Self {
        let claims = mechanism.claims;
        Candidate {
            family,
            stamps: 1,
            buffers: None,
            loss: claims.loss,
            rmse: claims.rmse(mechanism.steps()),
            sensitivity: claims.sensitivity,
            sensitivity_kind: Kind::UpperBound,
            sensitivity_spectral: None,
            over_optimum: None,
            max_variance: None,
            cost: None,
            seconds: start.elapsed().as_secs_f64(),
            variances: Vec::new(),
        }
    }

    /// Bytes that noise takes while training a model of so many parameters, stored as `f32`. Buffers are kept in double precision, and three rows are
    /// made at a time.
    pub fn stream_bytes(&self, params: u64) -> Option<u64> {
        let cost = self.cost?;
        let rows = self.buffers.map_or(cost.stream_memory_rows, |buffers| 2 * buffers + 3) as u64;
        let rows = rows.saturating_mul(params.saturating_mul(4));
        Some(rows.saturating_add(cost.coefficient_bytes as u64))
    }
}

/// All mechanisms for one run.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// No mechanism has a smaller loss; `None` where no bound is known.
    pub lower_bound: Option<f64>,
    /// The loss of the optimum if examples came in a fixed order, for schemas that allow more than that; `None` where there is nothing to gain, or
    /// nothing was optimized.
    pub fixed_order_loss: Option<f64>,
    /// The mechanisms, the least loss first.
    pub candidates: Vec<Candidate>,
    /// What is not among them, and why.
    pub left_out: Vec<LeftOut>,
}

/// A mechanism that was not compared.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// Which one.
    pub family: Family,
    /// What went wrong with it; nothing where it was not wanted.
    pub failure: Option<String>,
}

/// Where a comparison stands.
#[derive(Debug, Clone, Copy)]
pub struct Comparing<'a> {
    /// What is being looked at.
    pub family: Family,
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
        Some(stamps) => {
            stamp::check(n, stamps)?;
            vec![stamps]
        }
        None => stamp_counts(n),
    };
    let (unwanted, wanted): (Vec<Family>, Vec<Family>) = families::candidates()
        .filter(|family| family.suits(schema))
        .partition(|family| params.without.contains(family));
    if wanted.is_empty() {
        let allowed = "a list that leaves at least one candidate";
        return Err(Error::argument(
            "without",
            allowed,
            families::names(unwanted.into_iter()).replace(' ', ""),
        ));
    }
    let left_out = unwanted.into_iter().map(|family| LeftOut { family, failure: None }).collect();
    let mut comparison =
        Comparison { lower_bound: None, fixed_order_loss: None, candidates: Vec::new(), left_out };
    // The optimum first: the others are measured by it.
    for (done, family) in wanted.iter().rev().enumerate() {
        let search = Search {
            run: (schema, workload, params.gap),
            observer,
            family: *family,
            done: (done, wanted.len()),
        };
        let found = match family.needs() {
            Wants::Stamps => search.best(&counts),
            _ => search.best(&[1]),
        };
        match found {
            Ok(Found { candidate, lower_bound }) => {
                comparison.lower_bound = comparison.lower_bound.or(lower_bound);
                comparison.candidates.push(candidate);
            }
            Err(error) if error.concerns_one() => {
                comparison.left_out.push(LeftOut { family: *family, failure: Some(error.to_string()) });
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(fixed) = schema.listed_part().filter(|_| !schema.is_listed() && wanted.contains(&OPTIMAL)) {
        let last = Search {
            run: (schema, workload, params.gap),
            observer,
            family: OPTIMAL,
            done: (wanted.len() - 1, wanted.len()),
        };
        let observe = |progress: &Progress| last.report(1, (0, 1), Some(progress));
        comparison.fixed_order_loss = match optimize::without_matrix(&fixed, workload, params.gap, &observe) {
            Ok(mechanism) => Some(mechanism.claims.loss),
            Err(error) if error.concerns_one() => None,
            Err(error) => return Err(error),
        };
    }
    if comparison.lower_bound.is_none() && wanted.contains(&OPTIMAL) {
        let search = Search {
            run: (schema, workload, params.gap),
            observer,
            family: OPTIMAL,
            done: (wanted.len() - 1, wanted.len()),
        };
        let observe = |progress: &Progress| search.report(1, (0, 1), Some(progress));
        comparison.lower_bound = match verify::optimum(schema, workload, params.gap, &observe) {
            Ok(bound) => Some(bound.value),
            Err(error) if error.concerns_one() => None,
            Err(error) => return Err(error),
        };
    }
    for candidate in &mut comparison.candidates {
        candidate.over_optimum = comparison.lower_bound.map(|bound| candidate.loss / bound - 1.0);
    }
    // The simplest first where losses agree but for rounding.
    let simplicity = |candidate: &Candidate| wanted.iter().position(|family| *family == candidate.family);
    let rank = |candidate: &Candidate| ((candidate.loss.ln() / TIE).round() as i64, simplicity(candidate));
    comparison.candidates.sort_by_key(rank);
    Ok(comparison)
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

/// Of a mechanism with each of these numbers of stamps, the one with the least loss: how many, what was made, and what it is worth. `None` for the
/// value of an implicit mechanism, which nothing but its claims say. `tried` is told where the search stands, and answers whether to go on.
pub fn best_stamps(
    family: Family,
    counts: &[usize],
    run: &Run<'_>,
    tried: &dyn Fn(usize, (usize, usize)) -> bool,
) -> Result<(usize, Designed, Option<Evaluation>)> {
    let mut best: Option<(usize, Designed, Option<Evaluation>)> = None;
    let mut failed = None;
    for (place, stamps) in counts.iter().copied().enumerate() {
        if !tried(stamps, (place, counts.len())) {
            return Err(Error::Interrupted);
        }
        let run = Run { stamps, ..*run };
        let found = family.check(&run).and_then(|()| family.design(&run)).and_then(|designed| {
            let evaluation = worth(&designed, &run)?;
            Ok((stamps, designed, evaluation))
        });
        let loss = |found: &(usize, Designed, Option<Evaluation>)| {
            found.2.as_ref().map_or(f64::INFINITY, Evaluation::loss)
        };
        match found {
            Ok(found) if best.as_ref().is_none_or(|best| loss(&found) < loss(best) * (1.0 - TIE)) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(error) if error.concerns_one() => failed = failed.or(Some(error)), // other stamps may do
            Err(error) => return Err(error),
        }
    }
    best.ok_or_else(|| failed.unwrap_or_else(|| Error::argument("stamps", "a list of at least one", "[]")))
}

fn worth(designed: &Designed, run: &Run<'_>) -> Result<Option<Evaluation>> {
    Ok(match designed.noise() {
        Noise::Structured(structured) => {
            let factorization = structured.factorization(run.schema.steps())?;
            Some(evaluate(&factorization, run.schema, run.workload)?)
        }
        Noise::Dense(noising) => {
            Some(evaluate(&DenseFactorization::new(noising.clone())?, run.schema, run.workload)?)
        }
        Noise::Implicit { .. } => None,
    })
}

/// The search for one mechanism.
struct Search<'a> {
    run: (&'a Schema, &'a Workload, f64),
    observer: CompareObserver<'a>,
    family: Family,
    done: (usize, usize),
}

/// What it found.
struct Found {
    candidate: Candidate,
    lower_bound: Option<f64>,
}

impl Search<'_> {
    fn report(&self, stamps: usize, tried: (usize, usize), optimizing: Option<&Progress>) -> bool {
        (self.observer)(&Comparing { family: self.family, stamps, done: self.done, tried, optimizing })
    }

    /// The number of stamps with the least loss.
    fn best(&self, counts: &[usize]) -> Result<Found> {
        let start = Instant::now();
        let (schema, workload, gap) = self.run;
        let at = Cell::new((1, (0, counts.len())));
        let observe = |progress: &Progress| {
            let (stamps, tried) = at.get();
            self.report(stamps, tried, Some(progress))
        };
        let tried = |stamps: usize, tried: (usize, usize)| {
            at.set((stamps, tried));
            self.report(stamps, tried, None)
        };
        let run = Run { gap, may_be_implicit: true, ..Run::new(schema, workload, &observe) };
        let (stamps, designed, evaluation) = best_stamps(self.family, counts, &run, &tried)?;
        let buffers = match designed.noise() {
            Noise::Structured(structured) => structured.buffers(),
            _ => None,
        };
        let (mechanism, lower_bound) = match designed {
            Designed::Mechanism(mechanism) => {
                let bound = mechanism.claims.lower_bound;
                (Some(mechanism), bound)
            }
            Designed::Proven(_, _, bound) => (None, Some(bound)),
            Designed::Noise(_) => (None, None),
        };
        let candidate = match (evaluation, mechanism) {
            (Some(evaluation), _) => Candidate::new(self.family, (stamps, buffers), evaluation, start),
            (None, Some(mechanism)) => Candidate::claimed(self.family, &mechanism, start),
            (None, None) => return Err(Error::Unsupported("nothing is known of what was made".into())),
        };
        Ok(Found { candidate, lower_bound })
    }
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
