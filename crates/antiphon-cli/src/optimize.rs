//! `antiphon optimize`.

use crate::args::{SchemaArgs, WorkloadArgs, whole};
use crate::keep::Keep;
use crate::output::{answer, figure, figures_json, percent, print_figures, print_json};
use crate::progress::Watch;
use antiphon::error::Error;
use antiphon::optimize::variants::{Constraint, optimize_variant};
use antiphon::optimize::{Optimized, Params, optimize};
use antiphon::text::counted;
use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::Instant;

/// Find the optimal mechanism for a training run, with a proof
///
/// The loss is the total squared error of all iterates at noise multiplier 1 and clip norm 1. The
/// mechanism comes with a lower bound on the loss of every mechanism: the relative distance between
/// the two is the gap, and the certificate in the file proves it.
///
/// Examples:
///   antiphon optimize --epochs 20 --steps-per-epoch 100
///   antiphon optimize --epochs 6 --steps-per-epoch 342 --momentum 0.95 \
///     --cooldown 0.25:0.05 --output m.safetensors
///   antiphon optimize --epochs 10 --steps-per-epoch 10000 --implicit
///
/// The mechanism is a dense matrix, for at most 12,000 steps. For longer runs, `antiphon make comb-blt`
/// makes a mechanism that is near the optimum, and --implicit computes how small the loss can be.
///
/// Exit status 1: the gap was not reached.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Optimize {
    #[command(flatten)]
    schema: SchemaArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Stop when the loss is proven to be within this relative distance of the optimum (0.001 is 0.1%; at least 1e-8, or
    /// 1e-6 with --implicit)
    #[arg(
        long,
        default_value_t = 1e-3,
        value_name = "GAP",
        allow_negative_numbers = true,
        help_heading = "Optimization"
    )]
    gap: f64,
    /// Maximum number of iterations
    #[arg(
        long,
        default_value_t = 1000,
        value_name = "N",
        value_parser = whole,
        allow_negative_numbers = true,
        help_heading = "Optimization"
    )]
    max_iterations: usize,
    /// Compute the best possible loss and its certificate only, no n×n matrix (needed beyond 12,000 steps): a bound to compare with. No noise
    /// can be drawn from an implicit mechanism; for training use `antiphon make comb-blt`
    #[arg(long, help_heading = "Optimization")]
    implicit: bool,
    /// The constraint on X = CᵀC. The last three are the paper's variants, for up to 24 steps and without a file
    #[arg(long, value_enum, default_value_t = Constraints::Vector, help_heading = "Optimization")]
    constraint: Constraints,
    #[command(flatten)]
    keep: Keep,
}

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Constraints {
    /// Sensitivity at most one for vector contributions: what training needs
    Vector,
    /// Scalar contributions ±1 only: NOT a sensitivity for vectors
    Corners,
    /// Non-negative where one example can take part twice
    SharedNonNegative,
    /// Non-negative everywhere
    NonNegative,
}

impl Optimize {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let schema = self.schema.schema(None)?;
        let workload = self.workload.workload(schema.steps())?;
        let constraint = match self.constraint {
            Constraints::Vector => None,
            Constraints::Corners => Some(Constraint::Corners),
            Constraints::SharedNonNegative => Some(Constraint::NonNegativeOnSharedPairs),
            Constraints::NonNegative => Some(Constraint::NonNegative),
        };
        if let Some(constraint) = constraint {
            return self.run_variant(&schema, &workload, constraint, json);
        }
        self.keep.check()?;
        let params = Params { gap: self.gap, max_iterations: self.max_iterations, implicit: self.implicit };
        let watch = Watch::start(self.gap)?;
        let optimized = optimize(&schema, &workload, &params, &|progress| watch.observe(progress));
        watch.finish();
        let optimized = optimized?;
        if watch.stopped() {
            return Err(Error::Interrupted.into());
        }
        self.keep.write(&optimized.mechanism)?;
        if json {
            self.print_json(&optimized)?
        } else {
            self.print(&optimized)
        }
        Ok(answer(true))
    }

    fn print_json(&self, optimized: &Optimized) -> anyhow::Result<()> {
        let mut value = figures_json(&optimized.mechanism, None);
        value["iterations"] = optimized.iterations.into();
        value["seconds"] = optimized.elapsed.as_secs_f64().into();
        value["route"] = serde_json::to_value(optimized.route)?;
        self.keep.add_to(&mut value, &optimized.mechanism);
        print_json(&value)
    }

    fn print(&self, optimized: &Optimized) {
        say!("Optimal {} mechanism", optimized.mechanism.noise().kind());
        print_figures(&optimized.mechanism, None);
        let route = match optimized.route {
            antiphon::optimize::Route::Structured => "linear-time",
            antiphon::optimize::Route::Dense => "dense",
        };
        say!(
            "  time          {:.2} s, {}, {route} algorithm",
            optimized.elapsed.as_secs_f64(),
            counted(optimized.iterations, "iteration")
        );
        self.keep.print(&optimized.mechanism);
    }

    fn run_variant(
        &self,
        schema: &antiphon::schema::Schema,
        workload: &antiphon::workload::Workload,
        constraint: Constraint,
        json: bool,
    ) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.keep.output {
            let allowed =
                "left out with --constraint: the paper's variants are for comparison and have no file";
            return Err(Error::argument("--output", allowed, path.display()).into());
        }
        let start = Instant::now();
        let found = optimize_variant(workload, schema, constraint, self.gap)?;
        let gap = found.loss / found.lower_bound - 1.0;
        if json {
            print_json(&serde_json::json!({
                "steps": schema.steps(),
                "schema": schema,
                "workload": workload.describe(),
                "loss": found.loss,
                "lower_bound": found.lower_bound,
                "gap": gap,
                "rmse": (found.loss / schema.steps() as f64).sqrt(),
                "min_entry": found.min_entry,
                "min_shared_entry": found.min_shared_entry,
                "iterations": found.iterations,
                "seconds": start.elapsed().as_secs_f64(),
                "route": "dense",
            }))?;
        } else {
            say!("Optimum under the constraint of the paper's comparison");
            say!("  workload      {}", workload.describe());
            say!("  participation {}", schema.describe());
            say!("  loss          {} (its root: {:.6})", figure(found.loss), found.loss.sqrt());
            say!("  gap           within {} of the best possible under this constraint", percent(gap));
            say!("  smallest X    {:.6}", found.min_entry);
            if constraint == Constraint::Corners {
                say!(
                    "For scalar contributions only: this is NOT a sensitivity for gradients, which are vectors."
                );
            }
        }
        Ok(answer(true))
    }
}
