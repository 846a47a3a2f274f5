//! `antiphon audit`: what privacy a run really had, from the log of who took part when.

use crate::account::{Relation, Unit};
use crate::args::{only, whole};
use crate::output::{answer, bound, print_json, short_bound, text_width, wrapped};
use crate::progress::counter;
use crate::verify::Examined;
use antiphon::accounting::{self, Adjacency, Event, Params};
use antiphon::error::{Error, Result};
use antiphon::file;
use antiphon::run::audit::{self, ALPHA, Counts, SampledAudit, Sampling, Violation, Worst};
use antiphon::run::log::{Limits, Line, Reader};
use antiphon::schema::{MAX_STEPS, Schema};
use antiphon::text::counted;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
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
    #[arg(long, value_enum, default_value_t = Unit::Example, help_heading = "Privacy unit")]
    unit: Unit,
}

/// How many violations are shown to people.
const SHOWN: usize = 10;

const SECRET: &str = "WARNING: KEEP THIS LOG AS SECRET AS THE KEY OF THE NOISE. IT TELLS WHO WAS SAMPLED WHEN: AGAINST ANYONE WHO \
                      HAS SEEN IT, THE STATED ε DOES NOT HOLD.";

/// The JSON object. Figures that do not exist for a kind of run are null.
#[derive(Serialize)]
struct Found<'a, V> {
    ok: bool,
    violations: &'a V,
    violation_count: usize,
    /// For people.
    #[serde(skip)]
    first: Vec<Violation>,
    #[serde(flatten)]
    counts: Named,
    planned_steps: usize,
    sensitivity_stated: Option<f64>,
    sensitivity_realised: Option<f64>,
    worst: Option<&'a Worst>,
    distinct_patterns: Option<usize>,
    noise_multiplier: f64,
    noise_multiplier_realised: Option<f64>,
    epsilon_stated: f64,
    epsilon_realised: Option<f64>,
    delta: f64,
    adjacency: Adjacency,
    unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    mechanism: Option<About<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<&'a [audit::Check]>,
    warnings: Vec<String>,
    statement: Vec<String>,
}

/// Which mechanism.
#[derive(Serialize)]
struct About<'a> {
    id: Option<&'a str>,
    kind: &'a str,
    schema: &'a Schema,
}

/// What the log contains, by the names of the JSON object.
#[derive(Serialize)]
struct Named {
    steps: usize,
    missing_steps: usize,
    last_step: usize,
    units: usize,
    participations: usize,
    max_participations_realised: usize,
}

impl From<Counts> for Named {
    fn from(counts: Counts) -> Named {
        let Counts { steps, missing_steps, last_step, units, participations, max_participations } = counts;
        let max_participations_realised = max_participations;
        Named { steps, missing_steps, last_step, units, participations, max_participations_realised }
    }
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
        let (lines, bar) = self.open(mechanism.schema.steps())?;
        let examined = Examined::mechanism(&mechanism)?;
        if !examined.report.ok() {
            examined.show(path, json)?;
            eprintln!("antiphon: the mechanism file fails verification: no privacy figure");
            return Ok(answer(false));
        }
        let (z, delta) = (self.noise_multiplier, self.delta);
        let found = audit::audit(&mechanism, &examined.report, lines, z, delta, adjacency);
        bar.finish_and_clear();
        let found = found?;
        let shown = Found {
            ok: found.ok(),
            violations: &found.violations,
            violation_count: found.violations.len(),
            first: found.violations.iter().take(SHOWN).collect(),
            counts: found.counts.into(),
            planned_steps: examined.schema.steps(),
            sensitivity_stated: Some(examined.report.sensitivity.upper),
            sensitivity_realised: Some(found.sensitivity.upper),
            worst: found.worst.as_ref(),
            distinct_patterns: Some(found.patterns),
            noise_multiplier: self.noise_multiplier,
            noise_multiplier_realised: found.noise_multiplier,
            epsilon_stated: found.epsilon_stated,
            epsilon_realised: Some(found.epsilon_realised),
            delta: self.delta,
            adjacency,
            unit: self.unit,
            mechanism: Some(About {
                id: examined.id.as_deref(),
                kind: examined.kind,
                schema: &examined.schema,
            }),
            checks: None,
            warnings: remarks(&found.counts, examined.schema.steps()),
            statement: self.statement(&found),
        };
        self.show(&shown, json, || examined.print_about(path))
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
            unit: self.unit,
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

    fn statement(&self, found: &audit::Audit) -> Vec<String> {
        let [stated, realised] =
            [found.epsilon_stated, found.epsilon_realised].map(|epsilon| short_bound(epsilon, true));
        let mut sentences = vec![match found.violations.len() {
            0 => format!(
                "Every participation in the log is one that the participation schema allows. Nothing in the log contradicts \
                 the stated guarantee, ε = {stated} and δ = {:e} with noise multiplier {}.",
                self.delta, self.noise_multiplier
            ),
            count => format!(
                "{} of the participation schema. The stated guarantee, ε = {stated} and δ = {:e} with noise multiplier {}, is \
                 for runs that follow the schema: it does NOT cover this run.",
                counted(count, "violation"),
                self.delta,
                self.noise_multiplier
            ),
        }];
        sentences.push(format!(
            "For the participations in this log the run is (ε, δ)-differentially private with ε = {realised} and δ = {:e}. \
             This ε holds only for the participations in this log, taken as fixed, and only if the log is true and complete.",
            self.delta
        ));
        if found.ok() && found.epsilon_realised < found.epsilon_stated {
            sentences.push(
                "It is smaller than the stated ε because less took part than the schema allows. The stated ε is the one that \
                 does not depend on this log."
                    .into(),
            );
        }
        sentences.extend([self.relation(), NOT_CHECKED.into(), computed_by()]);
        sentences
    }

    fn sampled_statement(&self, found: &SampledAudit) -> Vec<String> {
        let stated = short_bound(found.epsilon_stated, true);
        let verdict = match found.ok() {
            true => format!(
                "The log may be one of Poisson samples: true ones fail the checks with a probability of at most {ALPHA:e}. \
                 That the checks pass is no proof."
            ),
            false => format!(
                "The log is not one of Poisson samples as stated, or lists a unit twice in a step: the stated ε does NOT hold \
                 for this run. True Poisson samples fail the checks with a probability of at most {ALPHA:e}."
            ),
        };
        vec![
            SECRET.into(),
            format!("Stated: ε = {stated} and δ = {:e}, for Poisson samples that nobody knows.", self.delta),
            verdict,
            "No realised ε is given: a log of samples takes away the amplification that the stated ε rests on."
                .into(),
            self.relation(),
            NOT_CHECKED.into(),
            computed_by(),
        ]
    }

    fn relation(&self) -> String {
        let unit = self.unit.name();
        match (self.adjacency, self.mechanism.is_some()) {
            (Relation::ZeroOut, true) => format!(
                "A unit of the log is one {unit}. Neighbouring data sets differ in one {unit}, whose contributions are set to \
                 zero (zero-out)."
            ),
            (Relation::ZeroOut, false) => format!(
                "A unit of the log is one {unit}. Neighbouring data sets differ in one {unit}, which is in one of them and \
                 not in the other."
            ),
            (Relation::ReplaceOne, _) => format!(
                "A unit of the log is one {unit}. Neighbouring data sets differ in one {unit}, which is replaced by another \
                 (replace-one): half of the noise multiplier was used for the figures."
            ),
        }
    }

    fn show<V: Serialize>(
        &self,
        found: &Found<'_, V>,
        json: bool,
        about: impl FnOnce(),
    ) -> anyhow::Result<ExitCode> {
        found.warnings.iter().for_each(|warning| eprintln!("antiphon: {warning}"));
        if json {
            print_json(found)?;
        } else {
            about();
            self.print(found);
        }
        Ok(answer(found.ok))
    }

    fn print<V>(&self, found: &Found<'_, V>) {
        let counts = &found.counts;
        say!("{}", self.log.display());
        say!("  steps         {} of {}", counts.steps, found.planned_steps);
        let most = counted(counts.max_participations_realised, "participation");
        say!("  units         {}, each with at most {most}", counts.units);
        if let Some((stated, realised)) = found.sensitivity_stated.zip(found.sensitivity_realised) {
            let worst =
                found.worst.map_or(String::new(), |worst| format!(", reached by unit {}", worst.unit));
            say!("  sensitivity   {} realised{worst}; {} stated", bound(realised, true), bound(stated, true));
        }
        for check in found.checks.unwrap_or_default() {
            let verdict = match check.p_value {
                Some(p) if check.passed() => format!("ok, p-value at most {p:.1e}"),
                Some(p) => format!("FAILED, p-value at most {p:.1e}"),
                None => "not examined: too few participations are expected".into(),
            };
            say!("  {}: {:.4}, expected {:.4}: {verdict}", check.name, check.observed, check.expected);
        }
        let realised = found.epsilon_realised.map_or(String::new(), |epsilon| {
            format!("{} realised, for this log only; ", short_bound(epsilon, true))
        });
        say!("  epsilon       {realised}{} stated (upper bounds)", short_bound(found.epsilon_stated, true));
        say!("  delta         {:e}", found.delta);
        say!("  violations    {}", found.violation_count);
        found.first.iter().for_each(|violation| say!("    {}", named(violation)));
        if let Some(more @ 1..) = found.violation_count.checked_sub(SHOWN) {
            say!("    and {} (--json lists all)", counted(more, "more violation"));
        }
        say!("");
        say!("Privacy statement");
        for sentence in &found.statement {
            wrapped(sentence, text_width() - 2).iter().for_each(|line| say!("  {line}"));
        }
    }
}

const NOT_CHECKED: &str = "Not checked here: that gradients were clipped, that the noise was drawn as stated, and that the log is true.";

fn computed_by() -> String {
    format!("Computed by antiphon {}.", env!("CARGO_PKG_VERSION"))
}

fn named(violation: &Violation) -> String {
    match (violation.step, violation.unit) {
        (Some(step), Some(unit)) => format!("step {step}, unit {unit}: {}", violation.reason),
        _ => violation.reason.clone(),
    }
}

/// What a log lacks.
fn remarks(counts: &Counts, planned: usize) -> Vec<String> {
    let mut remarks = Vec::new();
    if counts.missing_steps > 0 {
        remarks.push(format!(
            "the log has no line for {} before step {}: as far as it says, nobody took part in them",
            counted(counts.missing_steps, "step"),
            counts.last_step
        ));
    }
    if counts.last_step + 1 < planned {
        remarks.push(format!(
            "the log ends with step {} of 0..={}: the run was stopped early, or the log is not complete",
            counts.last_step,
            planned - 1
        ));
    }
    remarks
}
