//! The figures of the runs.

use super::row::Row;
use super::runs::Results;
use crate::chart::{Grid, Lines, Picture, Series};
use crate::train::labelled;

/// Their names, in the order of [`all`].
pub const NAMES: [&str; 3] = ["federated-loss", "federated-accuracy", "federated-zeroed"];

/// Loss and accuracy by ε, zeroed updates by round.
pub fn all(results: &Results) -> [Picture; 3] {
    let loss = |row: &Row| row.loss.as_ref().map_or(f64::NAN, |loss| loss.mean);
    let accuracy = |row: &Row| 100.0 * row.accuracy.mean;
    [
        Picture::Lines(Lines { log_y: wide(results), ..by_epsilon(results, "test loss", loss) }),
        Picture::Lines(by_epsilon(results, "test accuracy, %", accuracy)),
        Picture::Grid(zeroed(results)),
    ]
}

/// The name of an algorithm in pictures.
fn name(row: &Row) -> String {
    match row.private {
        true => labelled(row.name, row.valid),
        false => format!("{} (not private)", row.name),
    }
}

/// A figure by ε, the mean over the runs. What has no noise has the same at every ε: a line without marks.
fn by_epsilon(results: &Results, label: &str, figure: impl Fn(&Row) -> f64) -> Lines {
    let mut series: Vec<Series> = Vec::new();
    for row in &results.rows {
        let (name, point) = (name(row), (row.target_epsilon, figure(row)));
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => {
                series.push(Series { name, points: vec![point], marker: row.private, ..Series::default() })
            }
        }
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // A single point without a mark would not be seen.
        series.marker |= series.points.len() == 1;
    }
    Lines {
        title: format!("{}, user-level privacy, δ = {:e}", short(&results.dataset), results.delta),
        x_label: "ε".into(),
        y_label: label.into(),
        series,
        ..Lines::default()
    }
}

/// Whether losses are so far apart that those of what nearly diverged would hide the others.
fn wide(results: &Results) -> bool {
    let losses = || results.rows.iter().filter_map(|row| row.loss.as_ref()).map(|loss| loss.mean);
    losses().fold(0.0, f64::max) > 8.0 * losses().fold(f64::INFINITY, f64::min)
}

/// A panel for every ε, with the algorithms that had any zeroed update there; one line of zeros where none had.
fn zeroed(results: &Results) -> Grid {
    let mut epsilons: Vec<f64> = results.rows.iter().map(|row| row.target_epsilon).collect();
    epsilons.dedup();
    let panel = |epsilon: &f64| {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.target_epsilon == *epsilon).collect();
        let line = |name: String, row: &Row| {
            let points = row.zeroed_by_round().into_iter().enumerate().map(|(t, x)| (t as f64, x)).collect();
            Series { name, points, marker: true, ..Series::default() }
        };
        let mut series: Vec<Series> =
            rows.iter().filter(|row| row.zeroed > 0).map(|row| line(name(row), row)).collect();
        if series.is_empty() {
            series.extend(rows.first().map(|row| line("no update was zeroed".into(), row)));
            // A point that is not seen: the axis ends at one instead of nothing.
            series.push(Series {
                name: String::new(),
                points: vec![(0.0, 1.0)],
                marker: false,
                ..Series::default()
            });
        }
        Lines {
            title: format!("ε = {epsilon}"),
            x_label: "round".into(),
            y_label: "zeroed updates, mean over the runs".into(),
            series,
            ..Lines::default()
        }
    };
    Grid { panels: epsilons.iter().map(panel).collect(), columns: epsilons.len().min(3) }
}

/// A data set's name in a title: of a file its last part.
pub fn short(dataset: &str) -> &str {
    dataset.rsplit('/').next().unwrap_or(dataset)
}
