//! `antiphon reproduce variance`: the variance of every iterate, at the same privacy.

use super::{Pictures, factorization};
use crate::chart::{Grid, Lines, Picture, Series};
use crate::compare::table;
use crate::output::{answer, print_json};
use antiphon::accounting::gaussian;
use antiphon::mechanism::{Evaluation, evaluate};
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::process::ExitCode;

#[derive(Deserialize)]
struct Expected {
    source: String,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    name: String,
    epochs: usize,
    steps_per_epoch: usize,
    momentum: f64,
    cooldown: Option<String>,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    epsilon: f64,
    delta: f64,
    curves: Vec<(String, usize)>,
}

#[derive(Serialize)]
struct Curve {
    figure: String,
    panel: String,
    name: String,
    stamps: usize,
    epsilon: f64,
    delta: f64,
    noise_multiplier: f64,
    total: f64,
    max: f64,
    last: f64,
    variances: Vec<f64>,
}

pub fn run(pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
    let expected: Expected = serde_json::from_str(include_str!("../../../../repro/variance.json"))?;
    pictures.check(&expected.figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>())?;
    let bar = super::bar(expected.figures.iter().flat_map(|f| &f.panels).map(|p| p.curves.len()).sum());
    let (mut curves, mut files) = (Vec::new(), Vec::new());
    for figure in &expected.figures {
        let schema = Schema::epochs(figure.epochs, figure.steps_per_epoch)?;
        let rates = match &figure.cooldown {
            Some(text) => Some(text.parse::<Cooldown>()?.rates(schema.steps())?),
            None => None,
        };
        let workload = Workload::training(schema.steps(), figure.momentum, rates)?;
        let mut known: HashMap<(&str, usize), Evaluation> = HashMap::new();
        let mut panels = Vec::new();
        for panel in &figure.panels {
            let noise_multiplier = gaussian::noise_multiplier(panel.epsilon, panel.delta)?;
            let mut series = Vec::new();
            for (name, stamps) in &panel.curves {
                bar.set_message(format!("{name} ×{stamps}"));
                let evaluation = match known.remove(&(name.as_str(), *stamps)) {
                    Some(evaluation) => evaluation,
                    None => evaluate(&factorization(name, *stamps, &schema, &workload)?, &schema, &workload)?,
                };
                let scale = noise_multiplier * noise_multiplier;
                let variances: Vec<f64> = evaluation.variances.iter().map(|v| scale * v).collect();
                known.insert((name, *stamps), evaluation);
                let title = if *stamps == 1 { name.clone() } else { format!("{name} ×{stamps}") };
                let points = variances.iter().enumerate().map(|(t, v)| (t as f64, *v)).collect();
                series.push(Series { name: title, points, marker: true, ..Series::default() });
                curves.push(Curve {
                    figure: figure.name.clone(),
                    panel: panel.title.clone(),
                    name: name.clone(),
                    stamps: *stamps,
                    epsilon: panel.epsilon,
                    delta: panel.delta,
                    noise_multiplier,
                    total: variances.iter().sum(),
                    max: variances.iter().copied().fold(0.0, f64::max),
                    last: variances.last().copied().unwrap_or(0.0),
                    variances,
                });
                bar.inc(1);
            }
            panels.push(Lines {
                title: format!("{}, ε = {}, δ = {:e}", panel.title, panel.epsilon, panel.delta),
                x_label: "step".into(),
                y_label: "variance".into(),
                series,
                ..Lines::default()
            });
        }
        files.extend(pictures.draw(&figure.name, &Picture::Grid(Grid { panels, columns: 2 }))?);
    }
    bar.finish_and_clear();
    if json {
        print_json(
            &serde_json::json!({ "ok": true, "source": expected.source, "curves": curves, "files": files }),
        )?;
        return Ok(answer(true));
    }
    say!("{}", expected.source);
    for (i, curve) in curves.iter().enumerate() {
        let new = i == 0 || (&curves[i - 1].figure, &curves[i - 1].panel) != (&curve.figure, &curve.panel);
        if new {
            say!("");
            say!(
                "{}: {} (ε = {}, δ = {:e}, noise multiplier {:.4})",
                curve.figure,
                curve.panel,
                curve.epsilon,
                curve.delta,
                curve.noise_multiplier
            );
            let same = curves.iter().filter(|c| (&c.figure, &c.panel) == (&curve.figure, &curve.panel));
            let cells = |c: &Curve| {
                let title = if c.stamps == 1 { c.name.clone() } else { format!("{} ×{}", c.name, c.stamps) };
                [title, format!("{:.4e}", c.total), format!("{:.2}", c.max), format!("{:.2}", c.last)]
            };
            let header = ["  mechanism", "total", "largest", "last"].map(String::from);
            table(
                &header,
                &same.map(cells).map(|[a, b, c, d]| [format!("  {a}"), b, c, d]).collect::<Vec<_>>(),
            );
        }
    }
    super::say_files(&files, "variance");
    Ok(answer(true))
}
