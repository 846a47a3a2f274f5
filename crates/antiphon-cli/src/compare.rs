//! `antiphon compare`.

mod picture;

use crate::args::{SchemaArgs, WorkloadArgs, whole};
use crate::output::{answer, figure, print_json};
use crate::progress::Watch;
use crate::table::table_without;
use antiphon::families;
use antiphon::mechanism::Family;
use antiphon::plan::{Candidate, CompareParams, Comparison, LeftOut, compare};
use antiphon::schema::Schema;
use antiphon::sensitivity::Kind;
use antiphon::text::counted;
use antiphon::workload::Workload;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

pub use crate::table::table;
pub use antiphon::text::plural;

/// Compare all mechanisms for one training run: error, distance to the best possible, cost
///
/// The candidates are the mechanisms that suit the participation schema, under the same schema and
/// workload, each with the number of stamps (repetitions) that gives it the least loss, or with as
/// many buffers as `antiphon make` gives it:
///   {candidates}
///
/// Columns:
///   loss          total squared error of all iterates at noise multiplier 1, clip norm 1
///   error         its root mean square, per iterate
///   over best     upper bound on how far the loss is above the least possible loss
///   sensitivity   of the encoder: exact, or an upper bound where marked (≤)
///   spectral      the paper's upper bound on the sensitivity
///   max variance  largest variance of an iterate
///   memory        rows of noise that are kept while training, one number per parameter each;
///                 dense mechanisms compute earlier rows again, transforms keep a whole stamp,
///                 comb-blt and blt keep their buffers and one row more
///   flops         operations per step and parameter while training
///   time          to make, search and evaluate it
///
/// On a narrow terminal some columns are left out; --json has all.
///
/// Examples:
///   antiphon compare --epochs 20 --steps-per-epoch 100
///   antiphon compare --epochs 6 --steps-per-epoch 342 --momentum 0.95 --cooldown 0.25:0.05
///   antiphon compare --steps 2000 --min-separation 100 --max-participations 20 --stamps 5
///   antiphon compare --epochs 20 --steps-per-epoch 500 --without single-epoch,optimal
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Compare {
    #[command(flatten)]
    pub run: RunArgs,
    /// Draw loss against rows of memory and against random numbers drawn: NAME.svg and NAME.png. Mechanisms with buffers are made with 1 to 5
    /// of them, which takes a while
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    picture: Option<PathBuf>,
    /// Replace existing pictures
    #[arg(long, requires = "picture", help_heading = "Output")]
    force: bool,
}

/// The run, and how to compare; shared with `plan`.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub schema: SchemaArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Use this number of stamps for every mechanism that can be stamped, instead of the best one for each
    #[arg(long, value_name = "S", value_parser = whole, allow_negative_numbers = true, help_heading = "Comparison")]
    pub stamps: Option<usize>,
    /// Leave out these candidates, separated by commas. comb-blt, single-epoch and optimal take the longest; without comb-blt and optimal
    /// there is no lower bound on the loss
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = families::named,
        help_heading = "Comparison"
    )]
    pub without: Vec<Family>,
    /// Relative accuracy of the optima: their proven distance to the best possible
    #[arg(
        long,
        default_value_t = 1e-3,
        value_name = "GAP",
        allow_negative_numbers = true,
        help_heading = "Comparison"
    )]
    pub gap: f64,
}

impl RunArgs {
    /// Compares, with a progress bar.
    pub fn compare(&self, watch: &Watch) -> anyhow::Result<(Schema, Workload, Comparison)> {
        let schema = self.schema.schema(None)?;
        let workload = self.workload.workload(schema.steps())?;
        let params = CompareParams { gap: self.gap, stamps: self.stamps, without: self.without.clone() };
        let comparison =
            compare(&schema, &workload, &params, &|comparing| watch.observe_comparison(comparing));
        if comparison.is_err() {
            watch.finish();
        }
        Ok((schema, workload, comparison?))
    }
}

impl Compare {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        if let Some(name) = &self.picture {
            picture::check(name, self.force)?;
        }
        let watch = Watch::start(self.run.gap)?;
        let (schema, workload, comparison) = self.run.compare(&watch)?;
        let pictures = match &self.picture {
            Some(name) => picture::draw(name, self.force, (&schema, &workload), &comparison, &watch)?,
            None => Vec::new(),
        };
        watch.finish();
        if json {
            let mut found = as_json(&schema, &workload, &comparison, start);
            found["pictures"] = serde_json::json!(pictures);
            print_json(&found)?;
        } else {
            print(&schema, &workload, &comparison, None);
            pictures.iter().for_each(|file| say!("Written to {}.", file.display()));
            say!("{:.1} s in all.", start.elapsed().as_secs_f64());
        }
        Ok(answer(true))
    }
}

/// Why a mechanism was not compared.
fn reason(left: &LeftOut) -> &str {
    left.failure.as_deref().unwrap_or("as asked (--without)")
}

/// A comparison as a JSON object.
pub fn as_json(
    schema: &Schema,
    workload: &Workload,
    comparison: &Comparison,
    start: Instant,
) -> serde_json::Value {
    let left_out = |left: &LeftOut| serde_json::json!({ "name": left.family.name(), "reason": reason(left) });
    serde_json::json!({
        "steps": schema.steps(),
        "schema": schema,
        "workload": workload.describe(),
        "lower_bound": comparison.lower_bound,
        "fixed_order_loss": comparison.fixed_order_loss,
        "mechanisms": comparison.candidates,
        "left_out": comparison.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "seconds": start.elapsed().as_secs_f64(),
    })
}

/// A comparison as a table; with the size of a model, memory in bytes.
pub fn print(schema: &Schema, workload: &Workload, comparison: &Comparison, params: Option<u64>) {
    say!("{}; {}", schema.describe(), workload.describe());
    match comparison.lower_bound {
        Some(bound) => say!("No mechanism has a loss below {} (numerically certified).", figure(bound)),
        None if comparison.left_out.iter().any(|left| left.family == families::OPTIMAL) => {
            say!("No lower bound on the loss was computed.");
        }
        None => say!("No lower bound on the loss is known for this participation schema."),
    }
    say!("");
    let header = [
        "mechanism",
        "loss",
        "error",
        "over best",
        "sensitivity",
        "spectral",
        "max variance",
        "memory",
        "flops",
        "time",
    ];
    let rows = comparison.candidates.iter().map(|candidate| row(candidate, params));
    // On a narrow terminal first go: spectral, flops, time, max variance, sensitivity, loss.
    table_without(&header.map(String::from), &rows.collect::<Vec<_>>(), &[5, 8, 9, 6, 4, 1]);
    if let (Some(fixed), Some(best)) = (comparison.fixed_order_loss, comparison.candidates.first()) {
        say!(
            "In a fixed order the optimum has a loss of {}: {} here has {:.2} times its error. Shuffle once and keep the order.",
            figure(fixed),
            best.title(),
            (best.loss / fixed).sqrt()
        );
    }
    for left in &comparison.left_out {
        say!("Not compared: {}, {}.", left.family, reason(left));
    }
    say!("");
}

fn row(candidate: &Candidate, params: Option<u64>) -> [String; 10] {
    let cost = candidate.cost;
    let memory = match (cost, params) {
        (None, _) => "-".into(),
        (Some(cost), None) => counted(cost.stream_memory_rows, "row"),
        (Some(_), Some(params)) => candidate.stream_bytes(params).map_or("-".into(), crate::output::size),
    };
    [
        candidate.title(),
        format!("{:.4e}", candidate.loss),
        format!("{:.5}", candidate.rmse),
        candidate.over_optimum.map_or("-".into(), over),
        format!(
            "{:.5}{}",
            candidate.sensitivity,
            if candidate.sensitivity_kind == Kind::Exact { "" } else { " (≤)" }
        ),
        candidate.sensitivity_spectral.map_or("-".into(), |bound| format!("{bound:.5}")),
        candidate.max_variance.map_or("-".into(), |v| format!("{v:.4e}")),
        memory,
        cost.map_or("-".into(), |cost| format!("{:.0}", cost.stream_flops_per_step)),
        format!("{:.2} s", candidate.seconds),
    ]
}

/// loss / bound − 1 for people: a percentage while it is one.
fn over(x: f64) -> String {
    if x < 1.0 { crate::output::percent(x) } else { format!("×{:.2}", 1.0 + x) }
}
