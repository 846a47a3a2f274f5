//! `antiphon reproduce losses`: the paper's prefix-sum loss table.

use crate::compare::table;
use crate::output::{answer, print_json};
use antiphon::error::{Error, Result};
use antiphon::make;
use antiphon::mechanism::{DenseFactorization, Family, Noise, Stamped, evaluate};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::sync::Arc;

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

/// The gap to which optima are found for the table: far below its digits.
const GAP: f64 = 1e-4;

pub fn run(json: bool) -> anyhow::Result<ExitCode> {
    let expected: Table = serde_json::from_str(include_str!("../../../../repro/losses.json"))?;
    let schema = Schema::epochs(expected.epochs, expected.steps_per_epoch)?;
    let workload = Workload::prefix_sum(schema.steps());
    let bar = super::bar(expected.rows.len());
    let mut rows = Vec::new();
    for row in expected.rows {
        bar.set_message(row.mechanism.clone());
        let evaluation = evaluate(&factorization(&row.name, row.stamps, &schema)?, &schema, &workload)?;
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

/// A mechanism of the table by its name: s stamps, made for the steps of one stamp.
pub fn factorization(name: &str, stamps: usize, schema: &Schema) -> Result<Stamped> {
    let steps = schema.steps();
    if let Some(family) = Family::ALL.into_iter().find(|family| family.name() == name) {
        return Stamped::new(steps, stamps, |length| family.factorization(length));
    }
    Stamped::new(steps, stamps, |length| {
        let workload = Workload::prefix_sum(length);
        let noising = match (name, schema) {
            ("single-epoch", _) => make::single_epoch_stamp(length, &workload, GAP, &|_| true)?,
            ("optimal", Schema::FixedOrder { steps_per_epoch, .. }) => {
                let part = Schema::fixed_order(length, length.min(*steps_per_epoch))?;
                let params = Params { gap: GAP, ..Params::default() };
                match optimize(&part, &workload, &params, &|_| true)?.mechanism.noise {
                    Noise::Dense(noising) => noising,
                    _ => return Err(Error::Unsupported("a dense mechanism was asked for".into())),
                }
            }
            _ => return Err(Error::argument("mechanism", "a name of the loss table", name)),
        };
        Ok(Arc::new(DenseFactorization::new(noising)?))
    })
}
