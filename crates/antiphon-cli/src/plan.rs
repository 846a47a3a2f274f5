//! `antiphon plan`.

use crate::args::{bytes, count};
use crate::compare::{RunArgs, as_json, print};
use crate::output::{answer, bound, given, percent, print_json, program, size, width, wrapped};
use antiphon::accounting::gaussian;
use antiphon::families;
use antiphon::plan::{Candidate, Comparison, Needs, Recommendation, recommend};
use antiphon::text::counted;
use clap::Args;
use std::process::ExitCode;
use std::time::Instant;

/// Recommend a mechanism for one training run, and print the command that makes it
///
/// Compares all mechanisms as `antiphon compare` does, for a model with a given number of parameters
/// and a limit on memory. Recommends the mechanism with the least error whose noise fits into the
/// memory, gives the reason, and prints the command that makes it. With --epsilon and --delta also
/// the noise multiplier.
///
/// Examples:
///   antiphon plan --epochs 20 --steps-per-epoch 100 --params 1e6
///   antiphon plan --epochs 20 --steps-per-epoch 100 --params 1e9 --memory 8GiB \
///     --epsilon 8 --delta 1e-6
///   antiphon plan --epochs 20 --steps-per-epoch 500 --params 1e6 --without single-epoch
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Plan {
    #[command(flatten)]
    run: RunArgs,
    /// Number of parameters of the model (1e6 is a million)
    #[arg(long, value_name = "D", value_parser = count, help_heading = "Model and privacy")]
    params: u64,
    /// Memory for noise while training, in bytes or with a unit: 800MB, 8GiB (default: no limit)
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Model and privacy")]
    memory: Option<u64>,
    /// The ε of (ε, δ)-differential privacy
    #[arg(
        long,
        value_name = "EPSILON",
        requires = "delta",
        allow_negative_numbers = true,
        help_heading = "Model and privacy"
    )]
    epsilon: Option<f64>,
    /// The δ of (ε, δ)-differential privacy
    #[arg(
        long,
        value_name = "DELTA",
        requires = "epsilon",
        allow_negative_numbers = true,
        help_heading = "Model and privacy"
    )]
    delta: Option<f64>,
}

impl Plan {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        // Found out before the work, not after it.
        let multiplier = match (self.epsilon, self.delta) {
            (Some(epsilon), Some(delta)) => Some(gaussian::noise_multiplier(epsilon, delta)?),
            _ => None,
        };
        let (schema, workload, comparison) = self.run.compare()?;
        let needs = Needs { params: self.params, memory: self.memory };
        let recommendation = recommend(&comparison, &needs)?;
        let chosen = &comparison.candidates[recommendation.chosen];
        let command = self.command(chosen);
        let reason = self.reason(&comparison, recommendation);
        let noise = multiplier.map(|z| z * chosen.rmse);
        if json {
            let mut object = as_json(&schema, &workload, &comparison, start);
            object["recommended"] = serde_json::json!({
                "name": chosen.family.name(),
                "stamps": chosen.stamps,
                "buffers": chosen.buffers,
                "over_optimum": chosen.over_optimum,
                "reason": reason,
                "command": command,
                "stream_bytes": chosen.stream_bytes(self.params),
                "params": self.params,
                "memory": self.memory,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "noise_multiplier": multiplier,
                "rmse_at_noise_multiplier": noise,
            });
            print_json(&object)?;
            return Ok(answer(true));
        }
        print(&schema, &workload, &comparison, Some(self.params));
        wrapped(&reason, width().unwrap_or(usize::MAX)).iter().for_each(|line| say!("{line}"));
        if let (Some(epsilon), Some(delta), Some(z), Some(noise)) =
            (self.epsilon, self.delta, multiplier, noise)
        {
            say!(
                "For ε = {} at δ = {delta:e}: noise multiplier {}, error {noise:.4} per iterate and",
                given(epsilon),
                bound(z, true)
            );
            say!("parameter, in units of the clip norm (the sum of the clipped gradients, not their mean).");
        }
        say!("");
        say!("  {command}");
        Ok(answer(true))
    }

    /// One sentence.
    fn reason(&self, comparison: &Comparison, recommendation: Recommendation) -> String {
        let chosen = &comparison.candidates[recommendation.chosen];
        let distance = match chosen.over_optimum {
            Some(over) if over < 1.0 => format!(", at most {} above the least possible", percent(over)),
            Some(over) => format!(", at most {:.1} times the least possible", 1.05 + over), // up
            None => String::new(),
        };
        let identity = families::IDENTITY;
        let gain = match comparison.candidates.iter().find(|candidate| candidate.family == identity) {
            Some(other) if chosen.family != identity => {
                format!(", with {:.2} times the error of independent noise", chosen.rmse / other.rmse)
            }
            _ => String::new(),
        };
        let memory = |candidate: &Candidate| candidate.stream_bytes(self.params).map(size);
        let flops = chosen.cost.map_or(0.0, |cost| cost.stream_flops_per_step * self.params as f64);
        let takes = format!(
            "its noise takes {} and {flops:.1e} operations per step",
            memory(chosen).unwrap_or_default()
        );
        match recommendation.better.map(|place| &comparison.candidates[place]) {
            None => format!(
                "{} has the least loss of all that were compared{distance}{gain}; {takes}.",
                titled(chosen)
            ),
            Some(better) => format!(
                "{} has the least loss of those that fit{distance}{gain}; {takes}; {} ({:.2} times its error) {}.",
                titled(chosen),
                better.title(),
                better.rmse / chosen.rmse,
                memory(better)
                    .map_or("has no noise stream at this length".into(), |size| format!("would need {size}"))
            ),
        }
    }

    /// The command that makes a candidate.
    fn command(&self, chosen: &Candidate) -> String {
        let mut words = vec![program().to_string()];
        match chosen.family == families::OPTIMAL {
            true => words.push("optimize".into()),
            false => {
                words.push(format!("make {}", chosen.family));
                words.extend((chosen.stamps > 1).then(|| format!("--stamps {}", chosen.stamps)));
            }
        }
        words.extend(self.run.schema.words());
        words.extend(self.run.workload.words());
        words.push("--output mechanism.safetensors".into());
        words.join(" ")
    }
}

/// A candidate with what its noise keeps: "comb-blt (4 buffers, 5 rows)".
fn titled(candidate: &Candidate) -> String {
    match (candidate.buffers, candidate.cost) {
        (Some(buffers), Some(cost)) => {
            let (buffers, rows) = (counted(buffers, "buffer"), counted(cost.stream_memory_rows, "row"));
            format!("{} ({buffers}, {rows})", candidate.title())
        }
        _ => candidate.title(),
    }
}
