//! `antiphon reproduce fft-mse`: how near the FFT mechanism is to the best possible under a single participation.

use super::Pictures;
use crate::chart::{Lines, Picture, Series};
use crate::compare::table;
use crate::output::{answer, print_json};
use antiphon::families::fft::{Fft, lower_bound_of_huu, mean_squared_error, mean_squared_error_in_the_paper};
use antiphon::mechanism::evaluate;
use antiphon::schema::Schema;
use antiphon::verify;
use antiphon::workload::Workload;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Deserialize)]
struct Figure {
    source: String,
    rho: f64,
    steps: Vec<usize>,
    optimum_up_to: usize,
    statements: Vec<Statement>,
}

#[derive(Deserialize, Serialize)]
struct Statement {
    says: String,
    ratio: String,
    at: usize,
    value: f64,
    tolerance: f64,
    #[serde(skip_deserializing)]
    ours: f64,
    #[serde(skip_deserializing)]
    matches: bool,
}

#[derive(Serialize)]
struct Row {
    steps: usize,
    /// Henzinger, Upadhyay, Upadhyay: no factorization is better.
    lower_bound: f64,
    /// Ours: no factorization is better.
    certified_lower_bound: Option<f64>,
    fft_optimal: f64,
    fft: f64,
    corollary: f64,
}

pub fn run(pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
    let mut figure: Figure = serde_json::from_str(include_str!("../../../../repro/fft-mse.json"))?;
    pictures.check(&["fft-mse"])?;
    let bar = super::bar(figure.steps.len());
    let rho = figure.rho;
    let mut rows = Vec::new();
    for &steps in &figure.steps {
        bar.set_message(format!("n = {steps}"));
        let (schema, workload) = (Schema::single(steps)?, Workload::prefix_sum(steps));
        // At ρ-zCDP the noise has variance sens²/2ρ, so the mean squared error is loss/(2ρn).
        let mean = |loss: f64| loss / (2.0 * rho * steps as f64);
        let certified = match steps <= figure.optimum_up_to {
            true => Some(mean(verify::optimum(&schema, &workload, 1e-4, &|_| true)?.value)),
            false => None,
        };
        rows.push(Row {
            steps,
            lower_bound: lower_bound_of_huu(steps, rho),
            certified_lower_bound: certified,
            fft_optimal: mean(evaluate(&Fft::with_optimal_decoder(steps)?, &schema, &workload)?.loss()),
            fft: mean_squared_error(steps, rho, 1.0),
            corollary: mean_squared_error_in_the_paper(steps, rho, 1.0),
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    for statement in &mut figure.statements {
        let row = rows.iter().find(|row| row.steps == statement.at);
        statement.ours = row.map_or(f64::NAN, |row| match statement.ratio.as_str() {
            "corollary" => row.corollary / row.lower_bound,
            _ => (row.fft / row.lower_bound).sqrt(),
        });
        statement.matches = (statement.ours - statement.value).abs() <= statement.tolerance;
    }
    let ok = figure.statements.iter().all(|statement| statement.matches);
    let files = pictures.draw("fft-mse", &picture(&rows, rho))?;
    if json {
        print_json(&serde_json::json!({
            "ok": ok, "source": figure.source, "rho": rho, "rows": rows, "statements": figure.statements, "files": files,
        }))?;
        return Ok(answer(ok));
    }
    say!("{}", figure.source);
    say!("Mean squared error of prefix sums under one participation at ρ = {rho} zCDP");
    let header =
        ["n", "lower bound", "certified", "FFT optimal", "FFT", "corollary", "FFT/bound", "its root"];
    let cells = |row: &Row| {
        let ratio = row.fft / row.lower_bound;
        [
            row.steps.to_string(),
            format!("{:.4}", row.lower_bound),
            row.certified_lower_bound.map_or("-".into(), |x| format!("{x:.4}")),
            format!("{:.4}", row.fft_optimal),
            format!("{:.4}", row.fft),
            format!("{:.4}", row.corollary),
            format!("{ratio:.3}"),
            format!("{:.3}", ratio.sqrt()),
        ]
    };
    table(&header.map(String::from), &rows.iter().map(cells).collect::<Vec<_>>());
    say!(
        "\"lower bound\": Henzinger, Upadhyay, Upadhyay, theorem 2. \"certified\": ours, for any mechanism. The paper's"
    );
    say!("corollary is four times the error of its mechanism, which adds only the real part of the noise.");
    for statement in &figure.statements {
        let verdict = if statement.matches { "ok" } else { "DIFFERS" };
        say!("{verdict}: {}: {:.3} at n = {}", statement.says, statement.ours, statement.at);
    }
    super::say_files(&files, "fft-mse");
    Ok(answer(ok))
}

fn picture(rows: &[Row], rho: f64) -> Picture {
    let series = |name: &str, f: &dyn Fn(&Row) -> Option<f64>| Series {
        name: name.into(),
        points: rows.iter().filter_map(|row| Some((row.steps as f64, f(row)?))).collect(),
        marker: true,
        ..Series::default()
    };
    Picture::Lines(Lines {
        title: format!("FFT mechanism, single participation, ρ = {rho}"),
        x_label: "steps n".into(),
        y_label: "mean squared error".into(),
        log_x: true,
        log_y: true,
        x_places: Vec::new(),
        series: vec![
            series("corollary of the paper", &|row| Some(row.corollary)),
            series("FFT mechanism", &|row| Some(row.fft)),
            series("FFT, optimal decoder", &|row| Some(row.fft_optimal)),
            series("certified lower bound (ours)", &|row| row.certified_lower_bound),
            series("lower bound of Henzinger et al.", &|row| Some(row.lower_bound)),
        ],
    })
}
