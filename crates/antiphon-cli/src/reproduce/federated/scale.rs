//! What the paper's own run would take on this machine: 342,477 users, 1,000 of them in each of 2,052 rounds.
//!
//! Clients and noise are measured for a few seconds each, and multiplied. Real clients of the data set are measured, with the model
//! of this command and at most as many tokens as in its runs; the network of the StackOverflow benchmark is not implemented here, so
//! for its size only the noise is known.

use super::{mechanism, task};
use crate::compare::table;
use crate::output::{text_width, wrapped};
use crate::progress::busy;
use crate::reproduce::noise_multipliers;
use crate::train::Stop;
use antiphon::error::{Error, Result};
use antiphon::families;
use antiphon::noise::{Cipher, Key, Rows};
use antiphon::run::Budget;
use antiphon::schema::Schema;
use antiphon_train::data::text::TextData;
use antiphon_train::design::Design;
use antiphon_train::federated::Federated;
use antiphon_train::kind::Kind;
use antiphon_train::network::Initial;
use antiphon_train::task::{Task, Turn};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The parameters of the benchmark's LSTM (Reddi et al., Adaptive Federated Optimization, 2020).
const LSTM: usize = 4_050_748;
/// Of noise that is made together, as in a run.
const MEMORY: usize = 256 << 20;
/// Clients are trained for this long.
const MEASURED: Duration = Duration::from_secs(3);
/// Coordinates of the noise that is made, at most. Time is proportional to their number.
const COORDINATES: usize = 8192;

/// Noise of a mechanism.
#[derive(Serialize)]
struct Measured {
    mechanism: &'static str,
    parameters: usize,
    /// Of so many parameters each.
    rows_per_second: f64,
    /// For all rounds.
    seconds: f64,
}

pub fn run(data: &TextData, stop: &Stop, json: bool) -> anyhow::Result<serde_json::Value> {
    let paper = noise_multipliers::expected()?;
    let task = task(data, false)?;
    let clients_per_second =
        busy("measuring clients", || clients(&task, paper.users_per_step as usize, stop))?;
    let turns = f64::from(paper.users_per_step) * paper.steps as f64;
    let seconds = turns / clients_per_second;
    let schema = Schema::epochs(mechanism::EPOCHS, mechanism::ROUNDS)?;
    let workload = mechanism::workload(mechanism::FALLING[0])?;
    let budget = Budget::Target { epsilon: 17.648, delta: paper.delta };
    let mut noise = Vec::new();
    for family in [families::OPTIMAL, families::COMB_BLT] {
        let kind = Kind::Family(family);
        let design = busy("making the mechanism", || {
            Design::new(kind, None, &schema, &workload, 1.0, &|_| !stop.asked())
        })?;
        for parameters in [task.parameters(), LSTM] {
            noise.push(busy("measuring noise", || rows(kind.name(), &design, budget, parameters, stop))?);
        }
    }
    let client = task.client();
    let threads = rayon::current_num_threads();
    if !json {
        say!("");
        say!(
            "The paper's run here: {} users, {} in each of {} rounds; {threads} threads",
            paper.users,
            paper.users_per_step,
            paper.steps
        );
        let mut cells = vec![[
            "  clients".to_string(),
            task.parameters().to_string(),
            format!("{clients_per_second:.0} clients"),
            time(seconds),
        ]];
        let row = |noise: &Measured| {
            let rate = format!("{:.1} rows", noise.rows_per_second);
            [format!("  noise, {}", noise.mechanism), noise.parameters.to_string(), rate, time(noise.seconds)]
        };
        cells.extend(noise.iter().map(row));
        table(&["  work", "parameters", "per second", "in all"].map(String::from), &cells);
        let text = format!(
            "Measured for a few seconds each and multiplied. Clients: users of {}, {}, at most {} tokens in a round; a client of the \
             benchmark has more text and a larger network. {LSTM} parameters are those of the benchmark's LSTM (Reddi et al. 2020), whose \
             clients are not implemented here. Testing and the server's step are not counted.",
            super::figures::short(&task.identity().name),
            task.model(),
            client.map_or(0, |client| client.most_tokens)
        );
        wrapped(&text, text_width()).iter().for_each(|line| say!("{line}"));
    }
    Ok(serde_json::json!({
        "users": paper.users,
        "clients_per_round": paper.users_per_step,
        "rounds": paper.steps,
        "threads": threads,
        "dataset": task.identity().name,
        "model": task.model(),
        "parameters": task.parameters(),
        "client": client,
        "clients_per_second": clients_per_second,
        "client_seconds": seconds,
        "noise": noise,
        "not_implemented": "clients of the benchmark's LSTM of 4,050,748 parameters",
    }))
}

/// Clients per second on all threads: rounds of so many, or of all users where there are fewer.
fn clients(task: &Federated, round: usize, stop: &Stop) -> Result<f64> {
    let [start, local] = Key::from_seed(1, Cipher::Aes256Ctr).split(["start", "units"]);
    let parameters = task.initial(Initial::default(), &start);
    let mut sum = vec![0.0; parameters.len()];
    let users: Vec<usize> = (0..task.units()).collect();
    let (mut step, mut done) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < MEASURED {
        if stop.asked() {
            return Err(Error::Interrupted);
        }
        let rounds = users.chunks(round);
        let which = step % rounds.len();
        let chosen = users.chunks(round).nth(which).unwrap_or(&[]);
        task.clipped_sum(Turn { step, key: &local }, &parameters, chosen, 1.0, &mut sum)?;
        (step, done) = (step + 1, done + chosen.len());
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// The noise of all rounds for some coordinates, with the share of the memory that they would have in a whole run.
fn rows(
    mechanism: &'static str,
    design: &Design,
    budget: Budget,
    parameters: usize,
    stop: &Stop,
) -> Result<Measured> {
    let Some(verified) = design.mechanism() else {
        return Err(Error::Unsupported("a matrix mechanism was asked for".into()));
    };
    let coordinates = COORDINATES.min(parameters);
    let memory = (MEMORY as f64 * coordinates as f64 / parameters as f64) as usize;
    let stddev = design.stddev(&design.privacy(budget)?, 1.0)?;
    let key = Key::from_seed(1, Cipher::fastest());
    let mut stream = Rows::of(verified, &key, stddev, 0..coordinates as u64, memory)?;
    let mut row = vec![0.0; coordinates];
    let begin = Instant::now();
    for _ in 0..stream.steps() {
        if stop.asked() {
            return Err(Error::Interrupted);
        }
        stream.next_into(&mut row)?;
    }
    let seconds = begin.elapsed().as_secs_f64() * parameters as f64 / coordinates as f64;
    Ok(Measured { mechanism, parameters, rows_per_second: stream.steps() as f64 / seconds, seconds })
}

/// Seconds for people.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
