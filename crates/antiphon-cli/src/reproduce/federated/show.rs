//! The runs as tables and as JSON.

use super::figures::short;
use super::noise;
use super::row::{Row, Statistics};
use super::runs::Results;
use crate::compare::table;
use crate::output::{text_width, wrapped};
use crate::reproduce::say_files;
use antiphon::statement::INVALID;
use antiphon_train::summary::{INTERVALS, Summary};
use std::path::PathBuf;

pub fn json(results: &Results, files: &[PathBuf]) -> serde_json::Value {
    let [train, validation, test] = results.users;
    serde_json::json!({
        "dataset": results.dataset,
        "train_users": train,
        "validation_users": validation,
        "test_users": test,
        "model": results.model,
        "parameters": results.parameters,
        "delta": results.delta,
        "unit": "user",
        "condition": results.condition,
        "private": "no: the runs are seeded, and learning rates were chosen on validation users",
        "rows": results.rows,
        "differences": results.differences,
        "zeroed_any": results.rows.iter().any(|row| row.zeroed > 0),
        "paper": results.paper,
        "files": files,
    })
}

pub fn print(results: &Results, files: &[PathBuf]) {
    let [train, validation, test] = results.users;
    say!(
        "{}: {}, {} parameters; {train} training users, {validation} validation users, {test} test users",
        short(&results.dataset),
        results.model,
        results.parameters
    );
    say!(
        "User-level privacy, δ = {:e}. Seeded runs: not private, whoever knows the seed can compute the noise",
        results.delta
    );
    let mut rest = &results.rows[..];
    while let Some(first) = rest.first() {
        let epsilon = first.target_epsilon;
        let (these, others) =
            rest.split_at(rest.iter().take_while(|row| row.target_epsilon == epsilon).count());
        rest = others;
        at(results, epsilon, these);
    }
    notes(results);
    say_files(files, "federated");
}

/// The table of one ε, and the differences.
fn at(results: &Results, epsilon: f64, rows: &[Row]) {
    say!("");
    say!("ε = {epsilon}");
    let heads = [
        "  algorithm",
        "rate",
        "test loss",
        "std",
        "min",
        "max",
        "runs",
        "accuracy",
        "std",
        "min",
        "max",
        "without punct.",
        "zeroed",
        "noise, rms",
        "last",
        "seconds",
        "paper",
    ];
    let cells = |row: &Row| {
        let mark = match (row.private, row.valid) {
            (true, true) => "",
            (true, false) => " *",
            (false, _) => " **",
        };
        let paper =
            results.paper.cell(row.algorithm, epsilon).map(|cell| format!("{:.2}%", 100.0 * cell.accuracy));
        let loss = |of: fn(&Statistics) -> Option<f64>| match &row.loss {
            Some(loss) => of(loss).map_or(String::new(), |x| format!("{x:.4}")),
            None => "∞".into(),
        };
        let part = |x: f64| format!("{:.2}%", 100.0 * x);
        [
            format!("  {}{mark}", row.name),
            row.settings.learning_rate.to_string(),
            loss(|loss| Some(loss.mean)),
            loss(|loss| loss.std),
            loss(|loss| Some(loss.min)),
            loss(|loss| Some(loss.max)),
            row.accuracy.count.to_string(),
            part(row.accuracy.mean),
            row.accuracy.std.map_or(String::new(), part),
            part(row.accuracy.min),
            part(row.accuracy.max),
            part(row.accuracy_without_punctuation.mean),
            row.zeroed.to_string(),
            row.iterate_noise.map_or(String::new(), |noise| format!("{:.3}", noise.rms)),
            row.iterate_noise.map_or(String::new(), |noise| format!("{:.3}", noise.last)),
            format!("{:.0}", row.seconds),
            paper.unwrap_or_default(),
        ]
    };
    table(&heads.map(String::from), &rows.iter().map(cells).collect::<Vec<_>>());
    for row in rows.iter().filter(|row| row.diverged > 0) {
        say!(
            "  {}: {} of {} runs diverged: infinite loss, and accuracy 0 where there is no model",
            row.name,
            row.diverged,
            row.accuracy.count
        );
    }
    for row in rows {
        for tried in row.choice.iter().filter(|tried| tried.loss.is_none()) {
            say!("  {}: diverged on the validation users with rate {}", row.name, tried.learning_rate);
        }
    }
    print_noise(rows);
    print_differences(results, epsilon);
}

/// What noise is left after the last round if the gradient answers to errors.
fn print_noise(rows: &[Row]) {
    let mut heads = vec!["  noise after the last round, slope".to_string()];
    heads.extend(noise::SLOPES.map(|slope| slope.to_string()));
    let cells = |row: &Row| {
        let by_slope = row.iterate_noise?.last_by_slope.map(|noise| format!("{noise:.3}"));
        let [a, b, c, d] = by_slope;
        Some([format!("  {}", row.name), a, b, c, d])
    };
    let cells: Vec<[String; 5]> = rows.iter().filter_map(cells).collect();
    if let (false, Ok(heads)) = (cells.is_empty(), <[String; 5]>::try_from(heads)) {
        table(&heads, &cells);
    }
}

fn print_differences(results: &Results, epsilon: f64) {
    let these = results.differences.iter().filter(|difference| difference.target_epsilon == epsilon);
    let loss = |summary: &Option<Summary>| match summary {
        Some(Summary { mean, interval: Some([low, high]) }) => format!("{mean:+.4} [{low:+.4}, {high:+.4}]"),
        Some(Summary { mean, interval: None }) => format!("{mean:+.4}"),
        None => "a run diverged".into(),
    };
    let rows: Vec<[String; 3]> = these
        .map(|difference| {
            let mark = match results.rows.iter().find(|row| row.algorithm == difference.minus) {
                Some(row) if !row.private => " **",
                Some(row) if !row.valid => " *",
                _ => "",
            };
            let pair = format!("  {} minus {}{mark}", difference.algorithm, difference.minus);
            [pair, loss(&difference.loss), difference.accuracy.in_hundredths("")]
        })
        .collect();
    if !rows.is_empty() {
        table(&["  difference", "test loss", "accuracy, points"].map(String::from), &rows);
    }
}

/// What holds for all tables.
fn notes(results: &Results) {
    let rows = &results.rows;
    let mut lines = vec![format!(
        "Column paper ({}): the best mean accuracy of its tables at this ε. Without noise it reports {:.2}%.",
        results.paper.note,
        100.0 * results.paper.unnoised
    )];
    if rows.iter().any(|row| row.private) {
        let text = "noise: standard deviation in every parameter of the model with this rate, root mean square over all rounds and after the last; by slope: if the gradient has that slope, so that errors fade.";
        lines.push(text.into());
    }
    if rows.iter().any(|row| row.private && !row.valid) {
        lines.push(format!(
            "* {INVALID}: the batches are shuffled, and accounted for as if they were Poisson samples."
        ));
    }
    if rows.iter().any(|row| !row.private) {
        lines.push("** NOT private: updates are clipped, and there is no noise. The same runs stand in the table of every ε.".into());
    }
    if rows.iter().any(|row| row.private) {
        let text = "ε is that of a single run. It covers neither the other runs on the same users nor the choice of the rate among them.";
        lines.push(text.into());
    }
    if rows.iter().any(|row| row.accuracy.interval.is_some()) {
        lines.push(format!("Differences are of runs with the same seed, with {INTERVALS}."));
    }
    lines.extend(results.condition.clone());
    if rows.iter().all(|row| row.zeroed == 0) {
        lines.push("No update was zeroed in any of these runs.".into());
    }
    say!("");
    for line in lines.iter().flat_map(|line| wrapped(line, text_width())) {
        say!("{line}");
    }
}
