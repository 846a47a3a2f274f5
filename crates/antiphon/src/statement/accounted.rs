//! ε, δ or the noise multiplier of a run, each from the other two, and what the figure means.

use super::{NO_AMPLIFICATION, Statement, order, relation, unit_of_privacy};
use crate::accounting::calibrate::{self, Run};
use crate::accounting::{self, Adjacency, Bracket, Event, NoiseMultiplier, Params};
use crate::error::{Error, Result};
use crate::noise::Stddev;
use crate::run::Unit;
use crate::text::{bound, counted, given, short_bound};
use crate::verify::Verified;

/// A δ above this is warned of.
const LARGE_DELTA: f64 = 1e-3;

/// Two of the three are given; the third is sought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Question {
    /// ε at δ.
    Epsilon {
        /// δ.
        delta: f64,
    },
    /// δ at ε.
    Delta {
        /// ε.
        epsilon: f64,
    },
    /// The smallest noise multiplier for both.
    NoiseMultiplier {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
}

/// What is accounted for.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// A run with so much noise, or with noise that is sought.
    Run(Run, Option<NoiseMultiplier>),
    /// Anything else.
    Event(Event),
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which figure is sought.
    pub question: Question,
    /// Of what.
    pub subject: Subject,
    /// What is protected as a whole.
    pub unit: Unit,
    /// Which data sets are neighbours.
    pub adjacency: Adjacency,
    /// How precisely.
    pub params: Params,
}

/// What was asked, and what was found.
#[derive(Debug, Clone)]
pub struct Accounted {
    /// Which figure was sought.
    pub question: Question,
    /// What is protected as a whole.
    pub unit: Unit,
    /// Which data sets are neighbours.
    pub adjacency: Adjacency,
    /// As it was stated, before the neighbouring relation.
    pub event: Event,
    /// The same number, where there is one.
    pub noise_multiplier: Option<NoiseMultiplier>,
    /// Of the one Gaussian that the run is under the neighbouring relation. `None` where something is sampled.
    pub gaussian: Option<f64>,
    /// Both ends are the same where it was given.
    pub epsilon: Bracket,
    /// Likewise.
    pub delta: Bracket,
}

impl Request {
    /// Refuses what cannot be accounted for, without searching for anything. Says whether something is sampled.
    pub fn check(&self) -> Result<bool> {
        let tried = match &self.subject {
            Subject::Run(run, multiplier) => run.event(multiplier.map_or(1.0, NoiseMultiplier::value)),
            Subject::Event(event) => event.clone(),
        };
        let gaussian = tried.as_gaussian()?;
        self.adjacency.apply(&tried)?;
        if let (Some(_), Some(h)) = (gaussian, self.params.interval) {
            return Err(Error::argument("interval", "left out where nothing is sampled: no grid is used", h));
        }
        Ok(gaussian.is_none())
    }

    /// The answer.
    pub fn answer(&self) -> Result<Accounted> {
        self.check()?;
        let Request { question, adjacency, params, .. } = self;
        let (event, noise_multiplier, seen) = match (&self.subject, *question) {
            (Subject::Event(event), _) => (event.clone(), None, None),
            (Subject::Run(run, Some(z)), _) => (run.event(z.value()), Some(*z), None),
            (Subject::Run(run, None), Question::NoiseMultiplier { epsilon, delta }) => {
                let found = calibrate::noise_multiplier(*run, epsilon, delta, *adjacency, params)?;
                let z = found.noise_multiplier;
                (run.event(z.value()), Some(z), Some(found.epsilon))
            }
            (Subject::Run(_, None), _) => {
                return Err(Error::argument("noise_multiplier", "given, or sought for ε and δ", "nothing"));
            }
        };
        let counted = adjacency.apply(&event)?;
        let given = |x: f64| Bracket { lower: x, upper: x };
        let (epsilon, delta) = match *question {
            Question::Epsilon { delta } | Question::NoiseMultiplier { delta, .. } => {
                let at = || accounting::epsilon(&counted, delta, params);
                (seen.map_or_else(at, Ok)?, given(delta))
            }
            Question::Delta { epsilon } => (given(epsilon), accounting::delta(&counted, epsilon, params)?),
        };
        let gaussian = counted.as_gaussian()?;
        let (question, unit, adjacency) = (*question, self.unit, *adjacency);
        Ok(Accounted { question, unit, adjacency, event, noise_multiplier, gaussian, epsilon, delta })
    }
}

impl Accounted {
    /// All of it; of a mechanism where there is one.
    pub fn statement(&self, mechanism: Option<&Verified>) -> Statement {
        let mut sentences = vec![self.guarantee()];
        sentences.extend(self.warning());
        sentences.push(unit_of_privacy(self.unit).into());
        sentences.push(relation(self.unit, self.adjacency, self.gaussian.is_none()));
        match mechanism {
            Some(mechanism) => sentences.extend(self.of_mechanism(mechanism)),
            None => sentences.extend(self.of_description()),
        }
        let signature = Some(format!("Computed by antiphon {}.", env!("CARGO_PKG_VERSION")));
        Statement { signature, ..Statement::new(sentences, "any other use of these data") }
    }

    /// Where δ is too large to mean anything.
    pub fn warning(&self) -> Option<String> {
        let delta = self.delta.upper;
        (delta > LARGE_DELTA).then(|| {
            format!(
                "WARNING: δ = {} is above {LARGE_DELTA:e}. A mechanism that publishes the whole data set with probability δ, and \
                 nothing otherwise, is (0, δ)-differentially private: choose δ well below one over the number of \
                 examples or users.",
                short_bound(delta, true)
            )
        })
    }

    /// The noise multiplier as it was given, or rounded up.
    pub fn printed_multiplier(&self) -> Option<String> {
        self.noise_multiplier.map(|z| match self.question {
            Question::NoiseMultiplier { .. } => short_bound(z.value(), true),
            _ => z.to_string(),
        })
    }

    /// Of every number in Z, in units of the clip norm.
    pub fn standard_deviation(&self, mechanism: &Verified) -> Option<f64> {
        let stddev = |z| Stddev::of(mechanism, z, 1.0).ok();
        self.noise_multiplier.and_then(stddev).map(Stddev::value)
    }

    /// The event, with a noise multiplier that was found in its printed digits.
    pub fn described_event(&self) -> String {
        let text = self.event.describe();
        match (self.noise_multiplier, self.printed_multiplier()) {
            (Some(z), Some(printed)) => {
                text.replace(&format!("noise multiplier {z}"), &format!("noise multiplier {printed}"))
            }
            _ => text,
        }
    }

    fn guarantee(&self) -> String {
        let Accounted { epsilon, delta, .. } = self;
        let upper_end = |name: &str, bracket: &Bracket| {
            format!(
                "This {name} is an upper bound: the exact value is between {} and {}.",
                short_bound(bracket.lower, false),
                short_bound(bracket.upper, true)
            )
        };
        let private = "(ε, δ)-differentially private";
        match self.question {
            Question::Epsilon { delta } => format!(
                "The run is {private} with ε = {} and δ = {delta:e}. {}",
                short_bound(epsilon.upper, true),
                upper_end("ε", epsilon)
            ),
            Question::Delta { epsilon } => format!(
                "The run is {private} with ε = {} and δ = {}. {}",
                given(epsilon),
                short_bound(delta.upper, true),
                upper_end("δ", delta)
            ),
            Question::NoiseMultiplier { epsilon: target, delta } => format!(
                "With a noise multiplier of {} or more the run is {private} with ε = {} and δ = {delta:e}. This is the \
                 smallest one, rounded up, for which the upper bound on ε is within the target; the lower bound on ε is {}.",
                self.printed_multiplier().unwrap_or_default(),
                given(target),
                short_bound(epsilon.lower, false)
            ),
        }
    }

    fn of_mechanism(&self, verified: &Verified) -> Vec<String> {
        let unit = self.unit.name();
        let (mechanism, schema) = (verified.mechanism(), verified.schema());
        let sensitivity = bound(verified.sensitivity(), true);
        let deviation = self.standard_deviation(verified).map_or(String::new(), |deviation| {
            format!(
                " Every number in Z has standard deviation {} times the clip norm.",
                short_bound(deviation, true)
            )
        });
        let mut sentences = vec![
            format!(
                "The run is one Gaussian mechanism with correlated noise ({} mechanism, id {}): {}; one {unit} takes \
                 part in at most {}.",
                mechanism.noise().kind(),
                verified.id(),
                schema.describe_for(unit),
                counted(schema.max_participations(), "step"),
            ),
            order(schema, self.unit),
            format!(
                "The noise multiplier is the standard deviation of the noise divided by the sensitivity of the whole run. \
                 The sensitivity was computed again from the file and is at most {sensitivity} for a clip norm of \
                 one.{deviation}"
            ),
        ];
        if mechanism.noise().kind() == "implicit" {
            sentences.push(
                "The sensitivity of an implicit mechanism is numerically certified: it rests on an estimate of rounding \
                 errors. No noise can be drawn from an implicit mechanism, so this statement is for planning only."
                    .into(),
            );
        }
        sentences.push(NO_AMPLIFICATION.into());
        sentences
    }

    fn of_description(&self) -> Vec<String> {
        let mut sentences = vec![format!(
            "The run is {}. This is the description that was given; none of it was checked.",
            self.described_event()
        )];
        let sampled = self.gaussian.is_none();
        if sampled {
            sentences.push(format!(
                "The data must be Poisson sampled: in every sampled step each {} takes part with the sampling rate as \
                 its probability, independently of all others and of all other steps. Batches of a fixed size and \
                 epochs over shuffled data are not Poisson samples, and this figure does not hold for them.",
                self.unit.name()
            ));
        }
        sentences.push(
            "The noise multiplier is the standard deviation of the noise divided by the sensitivity. The sensitivity is the \
             clip norm for a step of DP-SGD or DP-GD, and for a matrix mechanism the proven sensitivity of the whole run \
             times the clip norm."
                .into(),
        );
        // A matrix mechanism is one Gaussian; steps of DP-GD are several.
        if matches!(self.event, Event::Gaussian { .. }) {
            sentences.push(
                "The sensitivity of a matrix mechanism holds for its participation schema, with the same order in every \
                 epoch: data that are shuffled again between epochs are not covered."
                    .into(),
            );
        }
        if !sampled {
            sentences.push(NO_AMPLIFICATION.into());
        }
        sentences
    }
}
