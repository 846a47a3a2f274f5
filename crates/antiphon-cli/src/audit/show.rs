//! What was found, as JSON and for people, and what it means.

use super::Audit;
use crate::account::Relation;
use crate::output::{answer, bound, print_json, short_bound, text_width, wrapped};
use antiphon::accounting::Adjacency;
use antiphon::run::Unit;
use antiphon::run::audit::{self, ALPHA, Counts, SampledAudit, Violation, Worst};
use antiphon::schema::Schema;
use antiphon::text::counted;
use serde::Serialize;
use std::process::ExitCode;

/// How many violations are shown to people.
pub const SHOWN: usize = 10;

/// About logs of samples.
pub const SECRET: &str = "WARNING: KEEP THIS LOG AS SECRET AS THE KEY OF THE NOISE. IT TELLS WHO WAS SAMPLED WHEN: AGAINST ANYONE WHO \
                      HAS SEEN IT, THE STATED ε DOES NOT HOLD.";

/// The JSON object. Figures that do not exist for a kind of run are null.
#[derive(Serialize)]
pub struct Found<'a, V> {
    pub ok: bool,
    pub violations: &'a V,
    pub violation_count: usize,
    /// For people.
    #[serde(skip)]
    pub first: Vec<Violation>,
    #[serde(flatten)]
    pub counts: Named,
    pub planned_steps: usize,
    pub sensitivity_stated: Option<f64>,
    pub sensitivity_realised: Option<f64>,
    pub worst: Option<&'a Worst>,
    pub distinct_patterns: Option<usize>,
    pub noise_multiplier: f64,
    pub noise_multiplier_realised: Option<f64>,
    pub epsilon_stated: f64,
    pub epsilon_realised: Option<f64>,
    pub delta: f64,
    pub adjacency: Adjacency,
    pub unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<About<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<&'a [audit::Check]>,
    pub warnings: Vec<String>,
    pub statement: Vec<String>,
}

/// Which mechanism.
#[derive(Serialize)]
pub struct About<'a> {
    pub id: Option<&'a str>,
    pub kind: &'a str,
    pub schema: &'a Schema,
}

/// What the log contains, by the names of the JSON object.
#[derive(Serialize)]
pub struct Named {
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
    /// What the figures of a matrix mechanism mean.
    pub fn statement(&self, found: &audit::Audit, planned: usize) -> Vec<String> {
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
        sentences
            .extend(remarks(&found.counts, planned).into_iter().map(|remark| format!("CAUTION: {remark}.")));
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

    /// What the checks of a sampled run mean.
    pub fn sampled_statement(&self, found: &SampledAudit) -> Vec<String> {
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
        let unit = self.unit.unit().name();
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

    /// Prints everything, and says it with the exit status. `about` prints what the run is, for people.
    pub fn show<V: Serialize>(
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
pub fn remarks(counts: &Counts, planned: usize) -> Vec<String> {
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
