//! `antiphon reproduce non-negativity`.

use crate::output::{answer, print_json};
use antiphon::optimize::variants::{Constraint, optimize_variant};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Deserialize)]
struct Table {
    source: String,
    steps_per_epoch: usize,
    epochs: usize,
    tolerance: f64,
    rows: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    workload: String,
    momentum: f64,
    constraint: String,
    min_entry: f64,
    min_shared_entry: f64,
    error: f64,
}

#[derive(Serialize)]
struct Row {
    workload: String,
    constraint: String,
    min_entry: f64,
    min_shared_entry: f64,
    error: f64,
    /// The square root of the dual bound: no X under this constraint has a smaller error.
    error_lower_bound: f64,
    paper: [f64; 3],
    matches: bool,
}

pub fn run(json: bool) -> anyhow::Result<ExitCode> {
    let table: Table = serde_json::from_str(include_str!("../../../../repro/non-negativity.json"))?;
    let schema = Schema::epochs(table.epochs, table.steps_per_epoch)?;
    let mut rows = Vec::new();
    for expected in table.rows {
        let workload = Workload::training(schema.steps(), expected.momentum, None)?;
        let constraint = match expected.constraint.as_str() {
            "corners" => Constraint::Corners,
            "shared-non-negative" => Constraint::NonNegativeOnSharedPairs,
            _ => Constraint::NonNegative,
        };
        let found = optimize_variant(&workload, &schema, constraint, 1e-9)?;
        let ours = [found.min_entry, found.min_shared_entry.unwrap_or(f64::NAN), found.loss.sqrt()];
        let paper = [expected.min_entry, expected.min_shared_entry, expected.error];
        let matches = ours.iter().zip(&paper).all(|(a, b)| (a - b).abs() <= table.tolerance);
        rows.push(Row {
            workload: expected.workload,
            constraint: expected.constraint,
            min_entry: ours[0],
            min_shared_entry: ours[1],
            error: ours[2],
            error_lower_bound: found.lower_bound.sqrt(),
            paper,
            matches,
        });
    }
    let ok = rows.iter().all(|row| row.matches);
    if json {
        print_json(&serde_json::json!({ "ok": ok, "source": table.source, "rows": rows }))?;
    } else {
        say!("{}; ours / paper", table.source);
        say!(
            "{:<11} {:<20} {:>17} {:>17} {:>17}  {:<12}",
            "workload",
            "constraint",
            "min X",
            "min shared X",
            "error",
            "dual bound"
        );
        for row in &rows {
            let pair = |i: usize, ours: f64| format!("{ours:.3} / {:.3}", row.paper[i]);
            say!(
                "{:<11} {:<20} {:>17} {:>17} {:>17}  ≥ {:.6}  {}",
                row.workload,
                row.constraint,
                pair(0, row.min_entry),
                pair(1, row.min_shared_entry),
                pair(2, row.error),
                row.error_lower_bound,
                if row.matches { "ok" } else { "DIFFERS" }
            );
        }
        say!("{}", if ok { "All 18 entries agree with the paper." } else { "NOT all entries agree." });
    }
    Ok(answer(ok))
}
