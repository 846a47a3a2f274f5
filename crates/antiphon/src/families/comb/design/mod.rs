//! The design of a comb for a run: filter, mixes and gains with nearly the least loss.
//!
//! 1. The certificate of the optimum: it bounds the loss from below, and its U tells where to begin.
//! 2. The filter: the best BLT for one pass over all steps, with as few buffers as the distance to the optimum allows.
//! 3. Mixes and gains at a few knots, by BFGS on the exact gradient (`objective`). Long epochs begin with shorter ones, whose numbers are nearly
//!    the same at the same part of the epoch.
//!
//! Where the distance that is asked for is not reached, knots and then a buffer are added.

mod objective;
mod start;

use super::filter::Filter;
use super::shape::Comb;
use crate::error::{Error, Result};
use crate::families::blt;
use crate::linalg::minimize::{Curvature, Options, go_on};
use crate::mechanism::Certificate;
use crate::mechanism::family::{MAX_BUFFERS, Run};
use crate::optimize::{self, Phase, Progress};
use crate::workload::Training;
use objective::{Objective, Value};
use std::cell::Cell;

/// Most epochs: every row of noise draws the normals of all epochs before it again, and the mixes have k²/2 numbers at every knot.
pub const MAX_EPOCHS: usize = 128;
/// Of the distance to the optimum that is asked for, so much is left to the filter.
const FILTERS_PART: f64 = 0.3;
/// A round that lowers the excess by less than this part of it has hardly been worth it.
const CALM: f64 = 0.03;
/// Operations that are spent on getting nearer than was asked for.
const POLISH: f64 = 5e10;
/// Most rounds at one level.
const ROUNDS: usize = 40;
/// Up to so many steps an epoch is designed at once.
const SHORT: usize = 400;
/// Long runs are compared with an optimum that is known less well: a part of the distance that is asked for.
const LONG: usize = 200_000;

/// A comb for a run, the certificate, and the lower bound that it proves.
pub fn design(run: &Run<'_>) -> Result<(Comb, Certificate, f64)> {
    let training = run.workload.as_training().ok_or_else(|| {
        Error::Unsupported(
            "comb-blt is made for prefix sums, momentum and learning rates; for a workload that is a matrix use optimal".into(),
        )
    })?;
    let steps = run.schema.steps();
    let period = run.schema.residues().unwrap_or(steps);
    let epochs = steps.div_ceil(period);
    if epochs > MAX_EPOCHS {
        return Err(Error::Unsupported(format!(
            "comb-blt is made for at most {MAX_EPOCHS} epochs, got {epochs}: each row of noise draws the normals of all epochs before it again; \
             use optimal, or blt"
        )));
    }
    let gap = if steps > LONG { run.gap.max(run.over_optimum / 5.0) } else { run.gap };
    let (certificate, bound) = optimize::best_certificate(run.schema, run.workload, gap, run.observer)?;
    let job = Job {
        run,
        training,
        certificate: &certificate,
        bound,
        stopped: Cell::new(false),
        iterations: Cell::new(0),
    };
    let comb = job.run(steps, period)?;
    Ok((comb, certificate, bound))
}

struct Job<'a> {
    run: &'a Run<'a>,
    training: &'a Training,
    certificate: &'a Certificate,
    bound: f64,
    stopped: Cell<bool>,
    iterations: Cell<usize>,
}

/// How well one level has to be solved.
#[derive(Clone, Copy, PartialEq)]
enum Aim {
    /// As a start for the next one.
    Start,
    /// As the mechanism.
    Final,
}

impl Job<'_> {
    fn run(&self, steps: usize, period: usize) -> Result<Comb> {
        let mut buffers = match self.run.buffers {
            Some(buffers) => buffers,
            None => self.buffers(steps),
        };
        let epochs = steps.div_ceil(period);
        let mut fineness = 0;
        let mut comb: Option<Comb> = None;
        for level in levels(period) {
            let short = start::Level::new(steps, period, level, self.training);
            let filter = filter(short.steps, &short.training, buffers);
            let next = match &comb {
                None => short.start(filter, self.certificate, fineness),
                Some(before) => short.resampled(before, filter, fineness),
            };
            let aim = if level == period { Aim::Final } else { Aim::Start };
            let mut found = self.solve(&short, next, aim)?;
            while aim == Aim::Final && self.excess(found.loss) > self.run.over_optimum {
                // What helps next: knots, then a buffer.
                if fineness < start::MOST_FINE && epochs <= 40 {
                    fineness += 1;
                } else if self.run.buffers.is_none() && buffers < MAX_BUFFERS.min(8) {
                    buffers += 1;
                } else {
                    break;
                }
                let filter = self::filter(short.steps, &short.training, buffers);
                let again = self.solve(&short, short.resampled(&found.comb, filter, fineness), aim)?;
                let gained = 1.0 - again.loss / found.loss;
                if again.loss < found.loss {
                    found = again;
                }
                if gained < 1e-4 && fineness == start::MOST_FINE {
                    break;
                }
            }
            comb = Some(found.comb);
        }
        comb.ok_or_else(|| Error::Numerical("the design has no levels".into()))
    }

    fn excess(&self, loss: f64) -> f64 {
        loss / self.bound - 1.0
    }

    /// The fewest buffers whose filter alone is near enough to that of many.
    fn buffers(&self, steps: usize) -> usize {
        let loss = |buffers: usize| one_pass(steps, self.training, buffers).objective;
        let best = loss(7);
        let near = |buffers: &usize| loss(*buffers) - best <= FILTERS_PART * self.run.over_optimum;
        (1..7).find(near).unwrap_or(7)
    }

    /// Rounds of BFGS, with better multipliers after each.
    fn solve(&self, level: &start::Level, comb: Comb, aim: Aim) -> Result<Value> {
        let mut objective = level.objective(comb, self.certificate);
        let cost = level.cost(objective.base.filter.buffers());
        let iterations = if cost > 1e8 { 10 } else { 50 };
        let options = Options { iterations, gradient: 1e-8, decrease: 1e-9 };
        let mut y = vec![0.0; objective.variables()];
        let mut curvature = Curvature::new(y.len());
        let mut best = objective.value(&y);
        let mut spent = 0.0;
        for round in 0..ROUNDS {
            let before = best.loss;
            let found = go_on(
                &y,
                |y, gradient| self.evaluate(&objective, y, gradient, aim, before),
                &options,
                &mut curvature,
            );
            if self.stopped.get() {
                return Err(Error::Interrupted);
            }
            spent += cost * found.evaluations as f64;
            y = found.x;
            let value = objective.value(&y);
            objective.multipliers.clone_from(&value.multipliers);
            if value.loss < best.loss {
                best = value;
            }
            let excess = match aim {
                Aim::Final => self.excess(best.loss),
                Aim::Start => 0.05,
            };
            // The first rounds begin far away.
            let calm = round > 0 && 1.0 - best.loss / before <= CALM * excess;
            let polished = spent > POLISH;
            let enough =
                aim == Aim::Start && (polished || round >= 8) || excess <= self.run.over_optimum && polished;
            if calm || (aim == Aim::Final && enough) || (aim == Aim::Start && enough) {
                break;
            }
        }
        Ok(best)
    }

    fn evaluate(
        &self,
        objective: &Objective<'_>,
        y: &[f64],
        gradient: &mut [f64],
        aim: Aim,
        loss: f64,
    ) -> f64 {
        self.iterations.set(self.iterations.get() + 1);
        let loss = if aim == Aim::Final { loss } else { f64::NAN };
        let progress = Progress {
            phase: Phase::Iterating,
            iteration: self.iterations.get(),
            loss,
            lower_bound: self.bound,
        };
        if self.stopped.get() || !(self.run.observer)(&progress) {
            self.stopped.set(true);
            return f64::NAN;
        }
        objective.evaluate(y, gradient)
    }
}

/// Lengths of epochs, from the shortest to the one that is asked for.
fn levels(period: usize) -> Vec<usize> {
    let mut levels = vec![period];
    while levels[levels.len() - 1] > SHORT {
        levels.push(levels[levels.len() - 1].div_ceil(10).max(100));
    }
    levels.reverse();
    levels
}

/// The best BLT for one pass over so many steps.
fn one_pass(steps: usize, training: &Training, buffers: usize) -> blt::design::Found {
    let problem = blt::design::Problem {
        steps,
        separation: steps,
        participations: 1,
        momentum: training.momentum(),
        rates: training.rates(),
        profile: blt::design::Profile::Equal,
    };
    blt::design::design(&problem, Some(buffers))
}

fn filter(steps: usize, training: &Training, buffers: usize) -> Filter {
    one_pass(steps, training, buffers).filter
}
