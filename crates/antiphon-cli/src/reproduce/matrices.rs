//! `antiphon reproduce matrices`: A, X, B and C of an optimal factorization as heat maps.

use super::Pictures;
use crate::chart::{Compress, HeatMap, HeatMaps, Keep, Picture};
use crate::output::{answer, percent, print_json};
use antiphon::linalg::dense::{self, Matrix};
use antiphon::mechanism::Noise;
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};
use serde::Deserialize;
use std::process::ExitCode;

#[derive(Deserialize)]
struct Figure {
    source: String,
    epochs: usize,
    steps_per_epoch: usize,
    momentum: f64,
    cooldown: String,
    statement: String,
    largest_shared_entry: f64,
}

pub fn run(pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
    let figure: Figure = serde_json::from_str(include_str!("../../../../repro/matrices.json"))?;
    pictures.check(&["matrices"])?;
    let schema = Schema::epochs(figure.epochs, figure.steps_per_epoch)?;
    let n = schema.steps();
    let workload =
        Workload::training(n, figure.momentum, Some(figure.cooldown.parse::<Cooldown>()?.rates(n)?))?;
    let watch = crate::progress::Watch::start(1e-3)?;
    let optimized = optimize(&schema, &workload, &Params::default(), &|progress| watch.observe(progress));
    watch.finish();
    let mechanism = optimized?.mechanism;
    let Noise::Dense(noising) = mechanism.noise() else {
        anyhow::bail!("a dense mechanism was asked for");
    };
    let c = noising.encoder()?;
    let x = dense::gram(&c);
    // The largest entry of X for two different steps that one user can share, relative to the largest of all.
    let mut shared = 0.0f64;
    let mut largest = 0.0f64;
    for j in 0..n {
        for i in 0..n {
            largest = largest.max(x[(i, j)].abs());
            if i != j && i % figure.steps_per_epoch == j % figure.steps_per_epoch {
                shared = shared.max(x[(i, j)].abs());
            }
        }
    }
    let ok = shared <= figure.largest_shared_entry * largest;
    let gap = mechanism.claims().gap();
    let files = match pictures.wanted() {
        true => {
            let b = workload.apply(noising.matrix());
            let panel = |title: &str, m: &Matrix, keep, compress| HeatMap {
                title: title.into(),
                rows: n,
                columns: n,
                values: (0..n).flat_map(|i| (0..n).map(move |j| m[(i, j)])).collect(),
                keep,
                compress,
                period: Some(figure.steps_per_epoch),
            };
            let maps = HeatMaps {
                title: format!(
                    "Optimal factorization A = BC, {} epochs of {} steps, momentum {}, cooldown",
                    figure.epochs, figure.steps_per_epoch, figure.momentum
                ),
                panels: vec![
                    panel("A", &workload.matrix(), Keep::Largest, Compress::None),
                    panel("X = CᵀC", &x, Keep::Smallest, Compress::Log(4.0)),
                    panel("B", &b, Keep::Largest, Compress::Log(2.5)),
                    panel("C", &c, Keep::Largest, Compress::Log(3.0)),
                ],
                columns: 2,
            };
            pictures.draw("matrices", &Picture::HeatMaps(maps))?
        }
        false => Vec::new(),
    };
    if json {
        print_json(&serde_json::json!({
            "ok": ok,
            "source": figure.source,
            "statement": figure.statement,
            "largest_shared_entry": shared / largest,
            "loss": mechanism.claims().loss,
            "lower_bound": mechanism.claims().lower_bound,
            "gap": gap,
            "files": files,
        }))?;
        return Ok(answer(ok));
    }
    say!("{}", figure.source);
    say!("Optimal factorization of {} steps, within {} of the best possible.", n, percent(gap));
    say!("{}: {}", if ok { "ok" } else { "DIFFERS" }, figure.statement);
    say!("  the largest such entry of X is {:.1e} of the largest entry", shared / largest);
    super::say_files(&files, "matrices");
    Ok(answer(ok))
}
