//! The climb: monotone fixed-point steps, safeguarded Anderson acceleration, and when to stop.

use super::anderson::Anderson;
use super::blocks::BlockDual;
use super::resolvent::Resolvent;
use super::rounding::Attempts;
use super::{Observer, Params, Phase, Progress, Route, dense, finish};
use crate::error::{Error, Hint, Result};
use crate::linalg::dense::Matrix;
use crate::linalg::quadrature::Quadrature;
use crate::mechanism::Mechanism;
use crate::schema::Schema;
use crate::workload::Workload;

/// How many differences the acceleration remembers.
const MEMORY: usize = 6;
/// The same for implicit mechanisms, which cannot be rounded and need an iterate that is itself close to the optimum, in every residue.
const IMPLICIT_MEMORY: usize = 10;
/// For them plain steps come between accelerated ones, which smooth what the extrapolation roughens. With momentum and learning rates, steps that are all
/// accelerated can take hundreds of iterations (20 × 20 steps, momentum 0.95, warm-up and a drop of the rate: 48 iterations like this,
/// more than 100 with a memory of 6 or 10 and no plain steps).
const IMPLICIT_PERIOD: usize = 3;
/// No more numbers than this are remembered: half a gigabyte.
const MAX_REMEMBERED: usize = 1 << 26;

/// How X(U) is computed.
pub enum Engine {
    /// See [`Resolvent`].
    Structured(Box<Resolvent>),
    /// See [`dense`]; holds A.
    Dense(Matrix),
}

/// X(U) and what comes with it.
pub struct Evaluation {
    /// a = tr(UX), up to the error of the rule.
    pub a: f64,
    /// The blocks X_π.
    pub grams: Vec<Vec<f64>>,
    /// Where all of X(U) can be had.
    pub full: Full,
}

/// All of X(U): at once, or from a rule when somebody asks.
pub enum Full {
    /// X(U), and nothing more to do.
    Matrix(Matrix),
    /// The rule that gave the blocks, and the blocks of Σ w_jτ_j(V⁻¹ + τ_jU)⁻¹.
    Rule(Quadrature, Vec<Vec<f64>>),
}

impl Engine {
    /// The structured engine where it applies.
    pub fn new(schema: &Schema, workload: &Workload) -> Self {
        match Resolvent::new(schema, workload) {
            Some(resolvent) => Engine::Structured(Box::new(resolvent)),
            None => Engine::Dense(workload.matrix()),
        }
    }

    /// The structured engine where it applies and is the cheaper one: many epochs of few steps make few large blocks.
    fn cheapest(schema: &Schema, workload: &Workload, implicit: bool) -> Self {
        let n = schema.steps();
        let bandwidth = workload.inverse_bands().map_or(0, |bands| bands.bandwidth);
        let few_blocks = 5 * bandwidth * schema.max_participations() > n;
        if few_blocks && n <= 4000 && !implicit {
            return Engine::Dense(workload.matrix());
        }
        Engine::new(schema, workload)
    }

    /// X(U) with a relative error of about `error`.
    pub fn evaluate(&mut self, dual: &BlockDual, error: f64) -> Result<Evaluation> {
        match self {
            Engine::Structured(resolvent) => {
                let rule = resolvent.rule(dual, error)?;
                let (grams, weighted) = resolvent.blocks(dual, &rule);
                let a = dual.inner_product(&grams);
                Ok(Evaluation { a, grams, full: Full::Rule(rule, weighted) })
            }
            Engine::Dense(matrix) => {
                let (x, a) = dense::gram(matrix, &dense::factor_matrix(dual)?)?;
                let grams = dense::blocks_of(&x, &dual.patterns);
                Ok(Evaluation { a, grams, full: Full::Matrix(x) })
            }
        }
    }
}

/// One optimization under way.
pub struct Climb<'a> {
    pub(super) schema: &'a Schema,
    pub(super) workload: &'a Workload,
    pub(super) params: &'a Params,
    pub(super) observer: Observer<'a>,
    pub(super) engine: Engine,
    dual: BlockDual,
    /// Disjoint patterns: acceleration and rounding apply (docs/theory.md, sections 4 and 5).
    partition: bool,
}

impl<'a> Climb<'a> {
    /// Starts at U = I.
    pub fn new(
        schema: &'a Schema,
        workload: &'a Workload,
        params: &'a Params,
        observer: Observer<'a>,
    ) -> Result<Self> {
        let patterns =
            schema.listed().ok_or_else(|| Error::Unsupported("the schema has no list of patterns".into()))?;
        if params.implicit && Resolvent::new(schema, workload).is_none() {
            return Err(Error::Unsupported(
                "an implicit mechanism needs the linear-time route: a prefix-sum, momentum or learning-rate workload under fixed \
                 epoch order with at least 3 steps per epoch (6 with momentum; there, no learning rate may be more \
                 than 1,000 times an earlier one)"
                    .into(),
            ));
        }
        let engine = Engine::cheapest(schema, workload, params.implicit);
        Ok(Climb {
            schema,
            workload,
            params,
            observer,
            engine,
            dual: BlockDual::identity(patterns),
            partition: schema.is_partition(),
        })
    }

    /// Which route the problem takes.
    pub fn route(&self) -> Route {
        match self.engine {
            Engine::Structured(_) => Route::Structured,
            Engine::Dense(_) => Route::Dense,
        }
    }

    /// Climbs until a mechanism with the requested gap is made; returns it and the number of iterations.
    pub fn run(mut self) -> Result<(Mechanism, usize)> {
        let target = self.params.gap;
        // Of X(U); far below the gap, so that it neither hides nor feigns progress.
        let error = (0.05 * target).clamp(1e-12, 1e-4);
        let mut anderson = Anderson::new(self.memory());
        let mut attempts = Attempts::new(self.schema, self.workload, self.route());
        // The plain step from the last accepted iterate, to fall back on.
        let mut plain: Option<BlockDual> = None;
        let mut best = 0.0f64;
        // The smallest gap that was claimed for a mechanism, and how many since were no better.
        let (mut claimed, mut idle) = (f64::INFINITY, 0);
        let mut crude = f64::INFINITY;
        for iteration in 1..=self.params.max_iterations {
            let evaluation = match (self.engine.evaluate(&self.dual, error), plain.take()) {
                // An accelerated step into nowhere is taken back.
                (Err(Error::Numerical(_)), Some(previous)) => {
                    self.dual = previous;
                    anderson.clear();
                    continue;
                }
                (evaluation, previous) => {
                    plain = previous;
                    evaluation?
                }
            };
            let lower_bound = evaluation.a * evaluation.a / self.dual.total();
            if !lower_bound.is_finite() && plain.is_none() {
                return Err(self.stuck(claimed.min(crude), iteration));
            }
            // The plain step never lowers the dual; an accelerated one that does is taken back. (A NaN is no
            // improvement either. The slack is the error of a², twice.)
            let fell = lower_bound.is_nan() || lower_bound < best * (1.0 - 4.0 * error);
            if let Some(previous) = plain.take().filter(|_| fell) {
                self.dual = previous;
                anderson.clear();
                continue;
            }
            best = best.max(lower_bound);
            let loss = evaluation.a * self.crude_squared_sensitivity(&evaluation)?;
            crude = crude.min(loss / lower_bound - 1.0);
            let progress = Progress { phase: Phase::Iterating, iteration, loss, lower_bound };
            self.report(progress)?;

            let next = self.dual.update(&evaluation.grams);
            let mut made = None;
            if self.params.implicit {
                if self.implicit_loss(&evaluation, loss)? <= lower_bound * (1.0 + target) {
                    self.report(Progress { phase: Phase::Certifying, ..progress })?;
                    made = Some(finish::implicit(&mut self, target)?);
                }
            } else if attempts.due(&self.dual, &evaluation, loss, lower_bound, target, iteration) {
                made = match finish::dense(&mut self, evaluation, &next, progress) {
                    Err(Error::Numerical(_)) => None, // too ill-conditioned this time
                    other => other?,
                };
                attempts.failed(iteration);
            }
            if let Some(mechanism) = made {
                let gap = mechanism.claims.gap();
                if gap <= target {
                    return Ok((mechanism, iteration));
                }
                idle = if gap < 0.9 * claimed { 0 } else { idle + 1 };
                claimed = claimed.min(gap);
                // The iteration has long arrived, but rounding allowances keep the claims apart.
                if idle >= 20 && crude <= target {
                    return Err(self.stuck(claimed, iteration));
                }
            }

            self.dual = if self.partition {
                let x = anderson.step(self.dual.coordinates(), next.coordinates());
                if self.params.implicit && iteration % IMPLICIT_PERIOD != 0 {
                    next
                } else {
                    let accelerated = next.at_coordinates(&x);
                    plain = Some(next);
                    accelerated
                }
            } else {
                next
            };
        }
        Err(Error::NoConvergence {
            gap: if claimed.is_finite() { claimed } else { crude },
            target,
            iterations: self.params.max_iterations,
            hint: Hint::MoreIterations,
        })
    }

    /// U of the current iterate.
    pub fn dual(&self) -> &BlockDual {
        &self.dual
    }

    /// Whether the patterns are disjoint.
    pub fn is_partition(&self) -> bool {
        self.partition
    }

    /// Tells the observer, and stops if it says so.
    pub fn report(&self, progress: Progress) -> Result<()> {
        if (self.observer)(&progress) { Ok(()) } else { Err(Error::Interrupted) }
    }

    /// An upper bound on sens²(X(U)). For disjoint patterns the absolute sum is enough: near the optimum the blocks
    /// are almost diagonal.
    fn crude_squared_sensitivity(&self, evaluation: &Evaluation) -> Result<f64> {
        if self.partition {
            let sum = |x: &Vec<f64>| x.iter().map(|x| x.abs()).sum::<f64>();
            return Ok(evaluation.grams.iter().map(sum).fold(0.0, f64::max));
        }
        finish::squared_sensitivity(&evaluation.grams)
    }

    /// The loss of an implicit mechanism: with the exact sensitivity, where the quick bound says that it may be near.
    fn implicit_loss(&self, evaluation: &Evaluation, crude: f64) -> Result<f64> {
        let near = evaluation.a * evaluation.a / self.dual.total() * (1.0 + 4.0 * self.params.gap);
        match crude <= near {
            true => Ok(crude.min(evaluation.a * finish::squared_sensitivity(&evaluation.grams)?)),
            false => Ok(crude),
        }
    }

    /// Differences for the acceleration to remember.
    fn memory(&self) -> usize {
        let numbers: usize = self.dual.factors.iter().map(Vec::len).sum(); // of a difference and its image
        match self.params.implicit {
            true => (MAX_REMEMBERED / numbers).clamp(MEMORY, IMPLICIT_MEMORY),
            false => MEMORY,
        }
    }

    fn stuck(&self, gap: f64, iteration: usize) -> Error {
        Error::NoConvergence { gap, target: self.params.gap, iterations: iteration, hint: Hint::LargerGap }
    }
}
