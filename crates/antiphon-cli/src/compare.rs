//! `antiphon compare`.

use crate::args::{SchemaArgs, WorkloadArgs};
use crate::output::{answer, figure, print_json};
use crate::progress::Watch;
use antiphon::plan::{Candidate, CompareParams, Comparison, compare};
use antiphon::schema::Schema;
use antiphon::sensitivity::Kind;
use antiphon::workload::Workload;
use clap::Args;
use std::process::ExitCode;
use std::time::Instant;

/// Compare all mechanisms for one training run: error, distance to the best possible, cost
///
/// Independent noise, binary trees, the FFT mechanisms, the single-epoch optimum and the optimum for this run, each with
/// the number of stamps (repetitions) that suits it best, under the same participation and workload.
///
/// Columns:
///   loss          total squared error of all iterates at noise multiplier 1, clip norm 1
///   error         its root mean square, per iterate
///   over best     how far the loss can be above that of any mechanism, at most
///   sensitivity   of the encoder, exact unless marked (≤); spectral: the paper's bound on it
///   max variance  of an iterate
///   memory        rows of noise that are kept while training, one number per parameter each;
///                 dense mechanisms draw earlier rows again from the key, transforms work
///                 ahead by a whole stamp
///   flops         operations per step and parameter while training
///   time          to make, search and evaluate it
///
/// Examples:
///   antiphon compare --epochs 20 --steps-per-epoch 100
///   antiphon compare --epochs 6 --steps-per-epoch 342 --momentum 0.95 --cooldown 0.25:0.05
///   antiphon compare --steps 2000 --min-separation 100 --max-participations 20 --stamps 5
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Compare {
    #[command(flatten)]
    pub run: RunArgs,
}

/// The run, and how to compare; shared with `plan`.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub schema: SchemaArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Use this number of stamps for every mechanism that can be stamped, instead of the best one for each
    #[arg(long, value_name = "S", help_heading = "Comparison")]
    pub stamps: Option<usize>,
    /// How exactly to find the optima: the proven relative distance to the best possible
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
    pub fn compare(&self) -> anyhow::Result<(Schema, Workload, Comparison)> {
        let schema = self.schema.schema(None)?;
        let workload = self.workload.workload(schema.steps())?;
        let watch = Watch::start(self.gap)?;
        let params = CompareParams { gap: self.gap, stamps: self.stamps };
        let comparison =
            compare(&schema, &workload, &params, &|comparing| watch.observe_comparison(comparing));
        watch.finish();
        Ok((schema, workload, comparison?))
    }
}

impl Compare {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        let (schema, workload, comparison) = self.run.compare()?;
        if json {
            print_json(&as_json(&schema, &workload, &comparison, start))?;
        } else {
            print(&schema, &workload, &comparison, None);
            say!("{:.1} s in all.", start.elapsed().as_secs_f64());
        }
        Ok(answer(true))
    }
}

/// A comparison as a JSON object.
pub fn as_json(
    schema: &Schema,
    workload: &Workload,
    comparison: &Comparison,
    start: Instant,
) -> serde_json::Value {
    let left_out = |(choice, reason): &(antiphon::plan::Choice, String)| serde_json::json!({ "name": choice.name(), "reason": reason });
    serde_json::json!({
        "steps": schema.steps(),
        "schema": schema,
        "workload": workload.describe(),
        "lower_bound": comparison.lower_bound,
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
        None => say!("No lower bound on the loss is known for this participation."),
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
    table(&header.map(String::from), &rows.collect::<Vec<_>>());
    for (choice, reason) in &comparison.left_out {
        say!("{} is left out: {reason}.", choice.name());
    }
    say!("");
}

fn row(candidate: &Candidate, params: Option<u64>) -> [String; 10] {
    let cost = candidate.cost;
    let memory = match (cost, params) {
        (None, _) => "-".into(),
        (Some(cost), None) => format!("{} row{}", cost.stream_memory_rows, plural(cost.stream_memory_rows)),
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

pub fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// loss / bound − 1 for people: a percentage while it is one.
fn over(x: f64) -> String {
    if x < 1.0 { crate::output::percent(x) } else { format!("×{:.2}", 1.0 + x) }
}

/// Columns as wide as they need to be: the first one to the left, the others to the right.
pub fn table<const N: usize>(header: &[String; N], rows: &[[String; N]]) {
    let width = |i: usize| {
        let cells = rows.iter().map(|row| row[i].chars().count());
        cells.chain([header[i].chars().count()]).max().unwrap_or(0)
    };
    for row in std::iter::once(header).chain(rows) {
        let cells: Vec<String> = (0..N)
            .map(|i| match i {
                0 => format!("{:<width$}", row[i], width = width(i)),
                _ => format!("{:>width$}", row[i], width = width(i)),
            })
            .collect();
        say!("{}", cells.join("  "));
    }
}
