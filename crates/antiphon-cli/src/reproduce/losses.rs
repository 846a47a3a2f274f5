//! `antiphon reproduce losses`: the paper's prefix-sum loss table.

use crate::compare::table;
use crate::output::{answer, print_json};
use antiphon::mechanism::evaluate;
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Deserialize)]
struct Table {
    source: String,
    epochs: usize,
    steps_per_epoch: usize,
    rows: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    mechanism: String,
    name: String,
    stamps: usize,
    loss: String,
    sensitivity: Used,
}

/// Which sensitivity the paper used for a row.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Used {
    Exact,
    Spectral,
}

#[derive(Serialize)]
struct Row {
    mechanism: String,
    name: String,
    stamps: usize,
    paper: String,
    /// With the sensitivity that the paper used.
    loss: f64,
    sensitivity: Used,
    /// With the exact sensitivity.
    loss_exact: f64,
    matches: bool,
}

pub fn run(json: bool) -> anyhow::Result<ExitCode> {
    let expected: Table = serde_json::from_str(include_str!("../../../../repro/losses.json"))?;
    let schema = Schema::epochs(expected.epochs, expected.steps_per_epoch)?;
    let workload = Workload::prefix_sum(schema.steps());
    let bar = super::bar(expected.rows.len());
    let mut rows = Vec::new();
    for row in expected.rows {
        bar.set_message(row.mechanism.clone());
        let evaluation =
            evaluate(&super::factorization(&row.name, row.stamps, &schema, &workload)?, &schema, &workload)?;
        let loss_exact = evaluation.loss();
        let loss = match row.sensitivity {
            Used::Exact => loss_exact,
            Used::Spectral => evaluation.spectral_loss().unwrap_or(f64::NAN),
        };
        rows.push(Row {
            matches: super::rounds_to(loss, &row.loss),
            mechanism: row.mechanism,
            name: row.name,
            stamps: row.stamps,
            paper: row.loss,
            loss,
            sensitivity: row.sensitivity,
            loss_exact,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let agree = rows.iter().filter(|row| row.matches).count();
    let ok = agree == rows.len();
    if json {
        print_json(&serde_json::json!({ "ok": ok, "source": expected.source, "rows": rows }))?;
    } else {
        say!("{}", expected.source);
        let header = ["mechanism", "paper", "ours", "exact", ""].map(String::from);
        let cells = |row: &Row| {
            let verdict = if row.matches { "ok" } else { "DIFFERS" };
            let [ours, exact] = [row.loss, row.loss_exact].map(|loss| format!("{loss:.3e}"));
            [row.mechanism.clone(), row.paper.clone(), ours, exact, verdict.into()]
        };
        table(&header, &rows.iter().map(cells).collect::<Vec<_>>());
        say!(
            "\"ours\" uses the paper's spectral bound on the sensitivity for the FFT rows, as the paper does;"
        );
        say!("\"exact\" uses the exact sensitivity everywhere.");
        say!("{agree} of {} rows round to the digits that the paper prints.", rows.len());
    }
    Ok(answer(ok))
}
