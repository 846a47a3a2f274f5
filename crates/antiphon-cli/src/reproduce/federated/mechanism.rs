//! The mechanism of the paper's own run: 6 epochs of 342 rounds, momentum 0.95, a cooldown at the end, both in the workload.
//!
//! The paper says "the final 512 rounds" (section 5.3) and "the last 25% of rounds" (its appendix), which is 513. No figure that it prints
//! depends on which: noise multipliers do not depend on the workload, and it gives no loss. So the first is used, and the loss of the other
//! stands beside it.

use crate::chart::{Grid, Lines, Picture, Series};
use crate::compare::table;
use crate::output::{bound, figure, percent, short_bound, text_width, wrapped};
use crate::progress::busy;
use crate::reproduce::noise_multipliers::{self, Row};
use crate::reproduce::{Pictures, factorization, say_files};
use crate::train::Stop;
use antiphon::accounting::gaussian;
use antiphon::error::{Error, Result};
use antiphon::mechanism::{Claims, DenseFactorization, Evaluation, Noise, evaluate};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};
use serde::Serialize;

/// Its figure.
pub const FIGURE: &str = "federated-variance";

/// Of the paper's run.
pub const EPOCHS: usize = 6;
pub const ROUNDS: usize = 342;
pub const MOMENTUM: f64 = 0.95;
/// How close to the best possible it is made.
const GAP: f64 = 1e-3;
/// The mechanisms whose variances are shown, and their names in this repository.
const CURVES: [(&str, &str); 4] = [
    ("MF6", "optimal"),
    ("MF1", "single-epoch"),
    ("Honaker, 1 stamp", "tree-online"),
    ("independent noise", "identity"),
];

/// The workload with a cooldown over the last rounds.
pub fn workload(falling: usize) -> Result<Workload> {
    let steps = EPOCHS * ROUNDS;
    let cooldown = Cooldown { fraction: falling as f64 / steps as f64, end: 0.05 };
    Workload::training(steps, MOMENTUM, Some(cooldown.rates(steps)?))
}

/// The paper's "final 512 rounds", and its "last 25%".
pub const FALLING: [usize; 2] = [512, 513];

/// A mechanism at one ε.
#[derive(Serialize)]
struct Curve {
    mechanism: &'static str,
    target_epsilon: f64,
    noise_multiplier: f64,
    /// Of all rounds together.
    total: f64,
    largest: f64,
    last: f64,
    variances: Vec<f64>,
}

pub fn run(pictures: &Pictures, stop: &Stop, json: bool) -> anyhow::Result<serde_json::Value> {
    let schema = Schema::epochs(EPOCHS, ROUNDS)?;
    let workload = workload(FALLING[0])?;
    let (claims, optimal) = busy("making the mechanism", || optimum(&schema, &workload, stop))?;
    let (other, _) = busy("making the mechanism", || optimum(&schema, &self::workload(FALLING[1])?, stop))?;
    let mut evaluated = vec![optimal];
    for (_, name) in &CURVES[1..] {
        let found = busy("evaluating", || {
            evaluate(&factorization(name, 1, &schema, &workload)?, &schema, &workload)
        })?;
        evaluated.push(found);
        if stop.asked() {
            return Err(Error::Interrupted.into());
        }
    }
    let expected = noise_multipliers::expected()?;
    let rows = noise_multipliers::rows(&expected, |name| name != "DP-GD")?;
    let curves = curves(&evaluated, &rows, expected.delta)?;
    let compared: Vec<Compared> = rows.iter().map(|row| Compared { row, agrees: agrees(row) }).collect();
    let ok = compared.iter().all(|compared| compared.agrees);
    let files = pictures.draw(FIGURE, &Picture::Grid(picture(&curves, expected.delta)))?;
    if !json {
        print(&claims, &other, &evaluated, &compared);
        say!("{}", if ok { "ok: all noise multipliers agree." } else { "A noise multiplier DIFFERS." });
        say_files(&files, "federated");
    }
    let steps = schema.steps();
    Ok(serde_json::json!({
        "ok": ok,
        "epochs": EPOCHS,
        "rounds_per_epoch": ROUNDS,
        "steps": steps,
        "momentum": MOMENTUM,
        "cooldown_rounds": FALLING[0],
        "delta": expected.delta,
        "loss": claims.loss,
        "lower_bound": claims.lower_bound,
        "gap": claims.gap(),
        "rmse": claims.rmse(steps),
        "loss_with_cooldown_of_513_rounds": other.loss,
        "mechanisms": mechanisms(&evaluated),
        "noise_multipliers": compared,
        "curves": curves,
        "files": files,
    }))
}

/// The figures of every mechanism.
fn mechanisms(evaluated: &[Evaluation]) -> Vec<serde_json::Value> {
    let one = |((title, name), found): (&(&str, &str), &Evaluation)| {
        serde_json::json!({
            "mechanism": title,
            "family": name,
            "loss": found.loss(),
            "rmse": found.rmse(),
            "sensitivity": found.sensitivity.upper,
        })
    };
    CURVES.iter().zip(evaluated).map(one).collect()
}

/// A noise multiplier of the paper beside ours.
#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    row: &'a Row,
    agrees: bool,
}

/// The optimum: what is proved of it, and its variances.
fn optimum(schema: &Schema, workload: &Workload, stop: &Stop) -> Result<(Claims, Evaluation)> {
    let params = Params { gap: GAP, ..Params::default() };
    let mechanism = optimize(schema, workload, &params, &|_| !stop.asked())?.mechanism;
    let claims = *mechanism.claims();
    let Noise::Dense(noising) = mechanism.into_parts().noise else {
        return Err(Error::Unsupported("a dense mechanism was asked for".into()));
    };
    Ok((claims, evaluate(&DenseFactorization::new(noising)?, schema, workload)?))
}

/// Whether ours is the paper's. Of one Gaussian: rounded up to its digits, since less noise than ours would be too little. Of Poisson samples the
/// paper's accountant adds to ε, so its noise must suffice by our upper bounds, and not be more than 2 % above ours.
fn agrees(row: &Row) -> bool {
    let paper: f64 = row.paper_noise_multiplier.parse().unwrap_or(f64::NAN);
    let digits = row.paper_noise_multiplier.split_once('.').map_or(0, |(_, digits)| digits.len());
    let unit = 10f64.powi(digits as i32);
    match row.run.as_str() {
        "MF" => {
            format!("{:.digits$}", (row.noise_multiplier * unit).ceil() / unit) == row.paper_noise_multiplier
        }
        _ => (1.0..=1.02).contains(&(paper / row.noise_multiplier)),
    }
}

/// Every mechanism at the ε of the paper's table: the noise multiplier is the same for all, being one Gaussian each.
fn curves(evaluated: &[Evaluation], rows: &[Row], delta: f64) -> anyhow::Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for row in rows.iter().filter(|row| row.run == "MF") {
        let epsilon: f64 = row.paper_epsilon.parse()?;
        let noise_multiplier = gaussian::noise_multiplier(epsilon, delta)?;
        for ((title, _), found) in CURVES.iter().zip(evaluated) {
            let scale = noise_multiplier * noise_multiplier;
            curves.push(Curve {
                mechanism: title,
                target_epsilon: epsilon,
                noise_multiplier,
                total: scale * found.loss(),
                largest: scale * found.max_variance(),
                last: scale * found.variances.last().copied().unwrap_or(0.0),
                variances: found.variances.iter().map(|v| scale * v).collect(),
            });
        }
    }
    Ok(curves)
}

fn picture(curves: &[Curve], delta: f64) -> Grid {
    let panel = |these: &[Curve]| {
        let line = |curve: &Curve| Series {
            name: curve.mechanism.into(),
            points: curve.variances.iter().enumerate().map(|(t, v)| (t as f64, *v)).collect(),
            marker: true,
            ..Series::default()
        };
        Lines {
            title: format!("ε = {}, δ = {delta:e}", these[0].target_epsilon),
            x_label: "round".into(),
            y_label: "variance".into(),
            log_y: true,
            series: these.iter().map(line).collect(),
            ..Lines::default()
        }
    };
    Grid { panels: curves.chunks(CURVES.len()).map(panel).collect(), columns: 3 }
}

fn print(claims: &Claims, other: &Claims, evaluated: &[Evaluation], compared: &[Compared<'_>]) {
    say!("");
    say!(
        "The mechanism of the paper's run: {EPOCHS} epochs of {ROUNDS} rounds, momentum {MOMENTUM}, cooldown to 0.05 over the last {} rounds",
        FALLING[0]
    );
    let cells = |((title, _), found): (&(&str, &str), &Evaluation)| {
        let above = claims.lower_bound.map(|lower| percent(found.loss() / lower - 1.0));
        [
            format!("  {title}"),
            figure(found.loss()),
            figure(found.rmse()),
            above.unwrap_or_default(),
            bound(found.sensitivity.upper, true),
        ]
    };
    let heads = ["  mechanism", "loss", "rmse", "above the lower bound", "sensitivity"];
    table(&heads.map(String::from), &CURVES.iter().zip(evaluated).map(cells).collect::<Vec<_>>());
    let text = format!(
        "Loss: total squared error per coordinate at noise multiplier 1, clip norm 1; rmse: √(loss / rounds). With the cooldown over the last \
         25%, which are {} rounds, the loss of MF6 is {}; nothing that the paper prints depends on which is meant.",
        FALLING[1],
        figure(other.loss)
    );
    wrapped(&text, text_width()).iter().for_each(|line| say!("{line}"));
    let cells = |Compared { row, agrees }: &Compared<'_>| {
        let verdict = if *agrees { "ok" } else { "DIFFERS" };
        [
            format!("  {}", row.run),
            row.paper_epsilon.clone(),
            row.paper_noise_multiplier.clone(),
            short_bound(row.noise_multiplier, true),
            verdict.into(),
        ]
    };
    let heads = ["  noise multiplier of", "ε", "paper", "ours", ""];
    table(&heads.map(String::from), &compared.iter().map(cells).collect::<Vec<_>>());
    let text = "MF agrees if ours, rounded up to the paper's digits, is the paper's. DP-SGD agrees if the paper's is enough by our upper bounds on ε \
                and at most 2% more than that: its accountant rounds privacy losses up.";
    wrapped(text, text_width()).iter().for_each(|line| say!("{line}"));
}
