//! `antiphon audit`: what privacy a run really had, from the log of who took part when.

mod show;

use crate::account::{Relation, UnitName};
use crate::args::{only, whole};
use crate::output::answer;
use crate::progress::counter;
use crate::verify::{self, examine, print_about};
use antiphon::accounting::{self, Event, NoiseMultiplier, Params};
use antiphon::error::{Error, Result};
use antiphon::file;
use antiphon::run::audit::{self, Sampling};
use antiphon::run::log::{Limits, Line, Reader};
use antiphon::schema::MAX_STEPS;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use show::{About, Found, SECRET, SHOWN, remarks};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Check a log of who took part when: violations of the participation schema, and the realised ε
///
/// The log has one line of JSON per step: the step, counted from 0, and the units that took part in
/// it. A unit is what privacy protects, an example or a user, and is a whole number.
///   {"step":0,"units":[17,4,230]}
///   {"step":1,"units":[8,95]}
///
/// With --mechanism, every participation that the mechanism's schema does not allow is listed with
/// what was expected instead. The sensitivity is computed again for the participations as they
/// happened, and from it the realised ε. This ε holds only for the participations in the log, taken as
/// fixed, and only if the log is true and complete. The mechanism file is verified first.
///
/// With --sampling-rate, --compositions and --units, the log is that of DP-SGD on Poisson samples. It
/// is checked whether the samples can be Poisson samples of this rate. No realised ε is given: whoever
/// sees the log knows who was sampled, and amplification by sampling does not hold against them. Keep
/// such a log as secret as the key of the noise.
///
/// Examples:
///   antiphon audit participations.jsonl --mechanism m.safetensors --noise-multiplier 0.6 \
///     --delta 1e-6
///   antiphon audit participations.jsonl --sampling-rate 0.01 --compositions 2000 --units 50000 \
///     --noise-multiplier 1 --delta 1e-6
///
/// Exit status 1: the log violates the schema, or is not one of Poisson samples; or the mechanism file
/// fails verification, and no privacy figure is given then.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Audit {
    /// The participation log, one line of JSON per step
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// The mechanism file that the noise was drawn from; it is verified first
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    mechanism: Option<PathBuf>,
    /// Standard deviation of the noise divided by the sensitivity (and by the clip norm), as stated for the run
    #[arg(long, value_name = "Z", allow_negative_numbers = true, help_heading = "Run")]
    noise_multiplier: f64,
    /// The δ of (ε, δ)-differential privacy, in (0, 1)
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = "Run")]
    delta: f64,
    /// DP-SGD: the probability that a unit is in a Poisson sample, in (0, 1]
    #[arg(long, value_name = "Q", allow_negative_numbers = true, help_heading = "Run")]
    sampling_rate: Option<f64>,
    /// DP-SGD: the number of steps that the run was planned for
    #[arg(long, value_name = "T", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    compositions: Option<usize>,
    /// Number of units in the data, sampled or not: every unit in the log must be in 0..N
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    units: Option<usize>,
    /// Which data sets are neighbouring
    #[arg(long, value_enum, default_value_t = Relation::ZeroOut, help_heading = "Privacy unit")]
    adjacency: Relation,
    /// What a unit of the log is
    #[arg(long, value_enum, default_value_t = UnitName::Example, help_heading = "Privacy unit")]
    unit: UnitName,
}

impl Audit {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        if let Some(0) = self.units {
            return Err(Error::argument("--units", "in 1..=1e15", 0).into());
        }
        match &self.mechanism {
            Some(path) => {
                let compositions = self.compositions.map(|count| count.to_string());
                let rate = self.sampling_rate.map(|rate| rate.to_string());
                only("--mechanism", &[("--sampling-rate", rate), ("--compositions", compositions)])?;
                self.matrix(path, json)
            }
            None => self.sampled(json),
        }
    }

    fn matrix(&self, path: &Path, json: bool) -> anyhow::Result<ExitCode> {
        let mechanism = file::read(path)?;
        let adjacency = self.adjacency.adjacency();
        // A wrong figure or a missing log is found out before the work, not after it.
        let event = adjacency.apply(&Event::gaussian(self.noise_multiplier))?;
        accounting::epsilon(&event, self.delta, &Params::default())?;
        let (lines, bar) = self.open(mechanism.steps())?;
        let examined = examine(mechanism)?;
        let Ok(verified) = examined.verified() else {
            verify::show(&examined, path, json)?;
            eprintln!("antiphon: the mechanism file fails verification: no privacy figure");
            return Ok(answer(false));
        };
        let z = NoiseMultiplier::new(self.noise_multiplier)?;
        let found = audit::audit(&verified, lines, z, self.delta, adjacency);
        bar.finish_and_clear();
        let found = found?;
        let shown = Found {
            ok: found.ok(),
            violations: &found.violations,
            violation_count: found.violations.len(),
            first: found.violations.iter().take(SHOWN).collect(),
            counts: found.counts.into(),
            planned_steps: examined.schema.steps(),
            sensitivity_stated: Some(verified.sensitivity()),
            sensitivity_realised: Some(found.sensitivity.upper),
            worst: found.worst.as_ref(),
            distinct_patterns: Some(found.patterns),
            noise_multiplier: self.noise_multiplier,
            noise_multiplier_realised: found.noise_multiplier,
            epsilon_stated: found.epsilon_stated,
            epsilon_realised: Some(found.epsilon_realised),
            delta: self.delta,
            adjacency,
            unit: self.unit.unit(),
            mechanism: Some(About {
                id: examined.id.as_deref(),
                kind: examined.kind,
                schema: &examined.schema,
            }),
            checks: None,
            warnings: remarks(&found.counts, examined.schema.steps()),
            statement: self.statement(&found, examined.schema.steps()),
        };
        self.show(&shown, json, || print_about(&examined, path))
    }

    fn sampled(&self, json: bool) -> anyhow::Result<ExitCode> {
        let sampling = self.sampling()?;
        let planned = sampling.steps as usize;
        let adjacency = self.adjacency.adjacency();
        let event = Event::dp_sgd(sampling.rate, self.noise_multiplier, sampling.steps);
        adjacency.apply(&event)?;
        let (lines, bar) = self.open(planned)?;
        let found = audit::audit_sampled(sampling, lines, self.noise_multiplier, self.delta, adjacency);
        bar.finish_and_clear();
        let found = found?;
        let mut warnings = vec![SECRET.to_owned()];
        warnings.extend(remarks(&found.counts, planned));
        let shown = Found {
            ok: found.ok(),
            violations: &found.violations,
            violation_count: found.violations.len(),
            first: found.violations.iter().take(SHOWN).cloned().collect(),
            counts: found.counts.into(),
            planned_steps: planned,
            sensitivity_stated: None,
            sensitivity_realised: None,
            worst: None,
            distinct_patterns: None,
            noise_multiplier: self.noise_multiplier,
            noise_multiplier_realised: None,
            epsilon_stated: found.epsilon_stated,
            epsilon_realised: None,
            delta: self.delta,
            adjacency,
            unit: self.unit.unit(),
            mechanism: None,
            checks: Some(&found.checks),
            warnings,
            statement: self.sampled_statement(&found),
        };
        self.show(&shown, json, || say!("{}", event.describe()))
    }

    fn sampling(&self) -> Result<Sampling> {
        let given = (self.sampling_rate, self.compositions, self.units);
        let (Some(rate), Some(steps), Some(units)) = given else {
            return Err(Error::Unsupported(
                "give --mechanism FILE, or for a run on Poisson samples --sampling-rate in (0, 1], --compositions and \
                 --units"
                    .into(),
            ));
        };
        if !(1..=MAX_STEPS).contains(&steps) {
            return Err(Error::argument("--compositions", format!("in 1..={MAX_STEPS}"), steps));
        }
        Ok(Sampling { rate, steps: steps as u64, units: units as u64 })
    }

    /// Opens the log. Its lines come with a bar, which turns into a sign of life at their end.
    fn open(&self, steps: usize) -> Result<(impl Iterator<Item = Result<Line>>, ProgressBar)> {
        let io = |source| Error::Io { path: self.log.clone(), source };
        let file = File::open(&self.log).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let bar = counter(length, "{bar:30} reading {bytes} of {total_bytes} [{elapsed}]");
        let input = BufReader::with_capacity(1 << 20, bar.wrap_read(file));
        let limits = Limits { steps, units: self.units.map(|units| units as u64) };
        let reading = bar.clone();
        let end = std::iter::from_fn(move || {
            if let Ok(style) = ProgressStyle::with_template("{spinner} auditing [{elapsed}]") {
                reading.set_style(style);
                reading.enable_steady_tick(Duration::from_millis(100));
            }
            None
        });
        Ok((Reader::new(input, &self.log, limits).chain(end), bar))
    }
}
