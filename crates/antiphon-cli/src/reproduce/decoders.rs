//! `antiphon reproduce decoders`: the optimal against the restarted decoder, over stamps.

use super::{Pictures, factorization};
use crate::chart::{Lines, Picture, Series};
use crate::compare::table;
use crate::output::{answer, print_json};
use antiphon::mechanism::evaluate;
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Deserialize)]
struct Figure {
    source: String,
    epochs: usize,
    steps_per_epoch: usize,
    stamps: Vec<usize>,
    pairs: Vec<Pair>,
    statement: String,
}

#[derive(Deserialize)]
struct Pair {
    restart: String,
    optimal: String,
}

#[derive(Serialize)]
struct Row {
    stamps: usize,
    restart: String,
    restart_loss: f64,
    optimal: String,
    optimal_loss: f64,
}

pub fn run(pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
    let figure: Figure = serde_json::from_str(include_str!("../../../../repro/decoders.json"))?;
    pictures.check(&["decoders"])?;
    let schema = Schema::epochs(figure.epochs, figure.steps_per_epoch)?;
    let workload = Workload::prefix_sum(schema.steps());
    let loss = |name: &str, stamps: usize| -> anyhow::Result<f64> {
        let factorization = factorization(name, stamps, &schema, &workload)?;
        Ok(evaluate(&factorization, &schema, &workload)?.loss())
    };
    let bar = super::bar(figure.stamps.len() * figure.pairs.len() + 1);
    bar.set_message("optimal");
    let optimum = loss("optimal", 1)?;
    let mut rows = Vec::new();
    for pair in &figure.pairs {
        for &stamps in &figure.stamps {
            bar.set_message(format!("{} ×{stamps}", pair.optimal));
            bar.inc(1);
            rows.push(Row {
                stamps,
                restart: pair.restart.clone(),
                restart_loss: loss(&pair.restart, stamps)?,
                optimal: pair.optimal.clone(),
                optimal_loss: loss(&pair.optimal, stamps)?,
            });
        }
    }
    bar.finish_and_clear();
    let ok = rows.iter().all(|row| optimum < row.optimal_loss && row.optimal_loss < row.restart_loss);
    let mut series = vec![Series {
        name: "optimal factorization".into(),
        points: figure.stamps.iter().map(|s| (*s as f64, optimum)).collect(),
        marker: false,
        ..Series::default()
    }];
    for pair in &figure.pairs {
        let of_pair = || rows.iter().filter(|row| row.restart == pair.restart);
        let restart = of_pair().map(|row| (row.stamps as f64, row.restart_loss)).collect();
        series.push(Series {
            name: format!("{} (restarted)", pair.restart),
            points: restart,
            marker: true,
            ..Series::default()
        });
        let optimal = of_pair().map(|row| (row.stamps as f64, row.optimal_loss)).collect();
        series.push(Series {
            name: pair.optimal.clone(),
            points: optimal,
            marker: true,
            ..Series::default()
        });
    }
    let chart = Lines {
        title: format!(
            "Prefix-sum loss over stamps, {} epochs of {} steps",
            figure.epochs, figure.steps_per_epoch
        ),
        x_label: "stamps".into(),
        y_label: "loss".into(),
        log_x: true,
        log_y: true,
        x_places: Vec::new(),
        series,
    };
    let files = pictures.draw("decoders", &Picture::Lines(chart))?;
    if json {
        print_json(&serde_json::json!({
            "ok": ok, "source": figure.source, "statement": figure.statement,
            "optimum": optimum, "rows": rows, "files": files,
        }))?;
        return Ok(answer(ok));
    }
    say!("{}", figure.source);
    let header = ["restarted", "stamps", "loss", "optimal decoder", "ratio"].map(String::from);
    let cells = |row: &Row| {
        let ratio = row.restart_loss / row.optimal_loss;
        let [restart, optimal] = [row.restart_loss, row.optimal_loss].map(|loss| format!("{loss:.3e}"));
        [row.restart.clone(), row.stamps.to_string(), restart, optimal, format!("{ratio:.2}")]
    };
    table(&header, &rows.iter().map(cells).collect::<Vec<_>>());
    say!("The optimal factorization has {optimum:.3e}.");
    say!("{}: {}", if ok { "ok" } else { "DIFFERS" }, figure.statement);
    super::say_files(&files, "decoders");
    Ok(answer(ok))
}
