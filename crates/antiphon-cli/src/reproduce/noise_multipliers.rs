//! `antiphon reproduce noise-multipliers`: the paper's table of noise multipliers, from both sides.
//!
//! The paper's noise multipliers for DP-SGD and DP-GD are larger than its ε need. For DP-GD the ε that it prints are 0.103
//! above the exact ones, all three. That is what an accountant adds that rounds the loss of every step up to a grid of
//! interval 1e-4: 2052 times half an interval.

use crate::compare::table;
use crate::output::{answer, percent, print_json, short_bound};
use antiphon::accounting::calibrate::{Run, noise_multiplier};
use antiphon::accounting::{Adjacency, Params, epsilon};
use antiphon::error::Error;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// The paper's table.
#[derive(Deserialize)]
pub struct Table {
    source: String,
    pub delta: f64,
    pub steps: u64,
    pub users_per_step: u32,
    pub users: u32,
    runs: Vec<Expected>,
}

#[derive(Deserialize)]
pub struct Expected {
    name: String,
    #[serde(default)]
    tolerance: f64,
    #[serde(default)]
    relative_tolerance: f64,
    cells: Vec<Cell>,
}

/// As the paper prints them, and an ε from elsewhere at that noise multiplier.
#[derive(Deserialize)]
struct Cell {
    epsilon: String,
    noise_multiplier: String,
    reference: f64,
}

/// A figure of the paper, and ours.
#[derive(Serialize)]
pub struct Row {
    pub run: String,
    pub paper_epsilon: String,
    pub paper_noise_multiplier: String,
    /// Ours, at the paper's noise multiplier.
    epsilon_upper: f64,
    epsilon_lower: f64,
    reference: f64,
    /// The smallest for the ε that the paper prints.
    pub noise_multiplier: f64,
    /// By how much the paper's is larger, relatively.
    excess: f64,
    /// Whether that is more than rounding up to the printed digits explains.
    more_than_needed: bool,
    matches: bool,
}

/// What the paper says.
pub fn expected() -> anyhow::Result<Table> {
    Ok(serde_json::from_str(include_str!("../../../../repro/noise-multipliers.json"))?)
}

/// The rows of those runs of the table that are wanted.
pub fn rows(expected: &Table, wanted: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Row>> {
    let runs: Vec<&Expected> = expected.runs.iter().filter(|run| wanted(&run.name)).collect();
    let bar = super::bar(runs.iter().map(|run| run.cells.len()).sum());
    let mut rows = Vec::new();
    for run in runs {
        bar.set_message(run.name.clone());
        for cell in &run.cells {
            rows.push(row(expected, run, cell)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

pub fn run(json: bool) -> anyhow::Result<ExitCode> {
    let expected = expected()?;
    let rows = rows(&expected, |_| true)?;
    let agree = rows.iter().filter(|row| row.matches).count();
    let ok = agree == rows.len();
    if json {
        print_json(&serde_json::json!({
            "ok": ok, "source": expected.source, "delta": expected.delta, "rows": rows,
        }))?;
        return Ok(answer(ok));
    }
    say!("{}", expected.source);
    let header = ["run", "paper ε", "paper z", "our ε at its z", "our z for its ε", "paper's z above it", ""];
    let cells = |row: &Row| {
        [
            row.run.clone(),
            row.paper_epsilon.clone(),
            row.paper_noise_multiplier.clone(),
            format!("{} to {}", short_bound(row.epsilon_lower, false), short_bound(row.epsilon_upper, true)),
            short_bound(row.noise_multiplier, true),
            percent(row.excess),
            if row.matches { "ok" } else { "DIFFERS" }.into(),
        ]
    };
    table(&header.map(String::from), &rows.iter().map(cells).collect::<Vec<_>>());
    let cautious: Vec<&str> =
        expected.runs.iter().map(|run| run.name.as_str()).filter(|name| is_cautious(name, &rows)).collect();
    if !cautious.is_empty() {
        say!("The paper's noise multipliers for {} are larger than", cautious.join(" and "));
        say!(
            "its ε require, by more than rounding explains: its accountant rounds to a grid. The ε printed for"
        );
        say!(
            "DP-GD are 0.103 above the exact ones, which is 2052 times half of 1e-4, as if every step's loss was"
        );
        say!("rounded up to a grid of that interval.");
    }
    say!("{agree} of {} ε agree with their references and are not above what the paper prints.", rows.len());
    Ok(answer(ok))
}

fn is_cautious(name: &str, rows: &[Row]) -> bool {
    rows.iter().filter(|row| row.run == name).any(|row| row.more_than_needed)
}

fn row(table: &Table, expected: &Expected, cell: &Cell) -> anyhow::Result<Row> {
    let steps = table.steps;
    let run = match expected.name.as_str() {
        "MF" => Run::Matrix,
        "DP-GD" => Run::FullBatch { steps },
        "DP-SGD" => {
            let sampling_rate = f64::from(table.users_per_step) / f64::from(table.users);
            Run::Sampled { sampling_rate, steps }
        }
        other => return Err(Error::argument("the name of a run", "MF, DP-SGD or DP-GD", other).into()),
    };
    let (target, z): (f64, f64) = (cell.epsilon.parse()?, cell.noise_multiplier.parse()?);
    let params = Params::default();
    let found = epsilon(&run.event(z), table.delta, &params)?;
    let tolerance = expected.tolerance.max(expected.relative_tolerance * cell.reference);
    let needed =
        noise_multiplier(run, target, table.delta, Adjacency::ZeroOut, &params)?.noise_multiplier.value();
    Ok(Row {
        run: expected.name.clone(),
        paper_epsilon: cell.epsilon.clone(),
        paper_noise_multiplier: cell.noise_multiplier.clone(),
        epsilon_upper: found.upper,
        epsilon_lower: found.lower,
        reference: cell.reference,
        noise_multiplier: needed,
        excess: z / needed - 1.0,
        // The paper prints three decimals.
        more_than_needed: z > needed + 1e-3,
        matches: (found.upper - cell.reference).abs() <= tolerance && found.upper <= target,
    })
}
