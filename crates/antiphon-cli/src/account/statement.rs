//! The privacy statement: what the figures mean, and what they do not cover. One sentence or two per matter, good enough
//! for the appendix of a paper.

use super::{Accounted, Question, Unit};
use crate::output::{bound, given, short_bound};
use crate::verify::Examined;
use antiphon::accounting::{Adjacency, Bracket, Event};
use antiphon::schema::Schema;
use antiphon::text::counted;

impl Accounted {
    /// All of it, in the order in which it is read.
    pub fn statement(&self, examined: Option<&Examined>) -> Vec<String> {
        let mut sentences = vec![self.guarantee()];
        sentences.extend(self.warning());
        sentences.extend([self.unit_of_privacy(), self.relation()]);
        match examined {
            Some(examined) => sentences.extend(self.of_file(examined)),
            None => sentences.extend(self.of_description()),
        }
        sentences.push(
            "Not covered: hyper-parameters that were tuned on the private data, any other use of these data, and attacks on \
             floating-point noise."
                .into(),
        );
        sentences.push(format!("Computed by antiphon {}.", env!("CARGO_PKG_VERSION")));
        sentences
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

    fn unit_of_privacy(&self) -> String {
        match self.unit {
            Unit::Example => {
                "The unit of privacy is one example, a single record: its gradient must be clipped before it is added to \
                 the others."
            }
            Unit::User => {
                "The unit of privacy is one user, with all records of that user: the whole contribution of one user to a \
                 step must be clipped to the clip norm."
            }
        }
        .into()
    }

    fn relation(&self) -> String {
        let unit = self.unit_name();
        match (self.adjacency, self.gaussian) {
            (Adjacency::ZeroOut, Some(_)) => format!(
                "Neighbouring data sets differ in one {unit}, whose contributions are set to zero (zero-out). \
                 Replacing it by another would double the sensitivity."
            ),
            (Adjacency::ZeroOut, None) => format!(
                "Neighbouring data sets differ in one {unit}, which is in one of them and not in the other: with Poisson \
                 sampling, zero-out is add-or-remove."
            ),
            (Adjacency::ReplaceOne, _) => format!(
                "Neighbouring data sets differ in one {unit}, which is replaced by another (replace-one). That doubles the \
                 sensitivity. The noise multiplier is stated relative to the sensitivity under zero-out; half of it was \
                 used for this figure."
            ),
        }
    }

    fn of_file(&self, examined: &Examined) -> Vec<String> {
        let unit = self.unit_name();
        let sensitivity = bound(examined.report.sensitivity.upper, true);
        let id = examined.id.as_deref().unwrap_or_default();
        let deviation = self.standard_deviation(examined).map_or(String::new(), |deviation| {
            format!(
                " Every number in Z has standard deviation {} times the clip norm.",
                short_bound(deviation, true)
            )
        });
        let mut sentences = vec![
            format!(
                "The run is one Gaussian mechanism with correlated noise ({} mechanism, id {id}): {}; one {unit} takes \
                 part in at most {}.",
                examined.kind,
                examined.schema.describe(),
                counted(examined.schema.max_participations(), "step"),
            ),
            self.order(&examined.schema),
            format!(
                "The noise multiplier is the standard deviation of the noise divided by the sensitivity of the whole run. \
                 The sensitivity was computed again from the file and is at most {sensitivity} for a clip norm of \
                 one.{deviation}"
            ),
        ];
        if examined.kind == "implicit" {
            sentences.push(
                "The sensitivity of an implicit mechanism is numerically certified: it rests on an estimate of rounding \
                 errors. No noise can be drawn from an implicit mechanism, so this statement is for planning only."
                    .into(),
            );
        }
        sentences.push(NO_AMPLIFICATION.into());
        sentences
    }

    /// What the participation schema asks of the data.
    fn order(&self, schema: &Schema) -> String {
        let unit = self.unit_name();
        match schema {
            Schema::FixedOrder { max_participations: 1, .. } => {
                format!("No {unit} may take part in a second step.")
            }
            Schema::FixedOrder { steps_per_epoch: 1, .. } => {
                format!("Every {unit} may take part in every step.")
            }
            Schema::FixedOrder { steps_per_epoch, .. } => format!(
                "The order of the data is fixed across epochs: one {unit} returns every {}. Data that are shuffled again \
                 between epochs are not covered.",
                counted(*steps_per_epoch, "step")
            ),
            Schema::MinSeparation { min_separation, .. } => {
                let apart = counted(*min_separation, "step");
                format!("Two participations of one {unit} are at least {apart} apart.")
            }
            Schema::Patterns { .. } => format!(
                "The order of the data is fixed: all steps of one {unit} belong to one of the listed participation patterns."
            ),
        }
    }

    fn of_description(&self) -> Vec<String> {
        let mut sentences = vec![format!(
            "The run is {}. This is the description that was given on the command line; none of it was checked.",
            self.described_event()
        )];
        let sampled = self.gaussian.is_none();
        if sampled {
            sentences.push(format!(
                "The data must be Poisson sampled: in every sampled step each {} takes part with the sampling rate as \
                 its probability, independently of all others and of all other steps. Batches of a fixed size and \
                 epochs over shuffled data are not Poisson samples, and this figure does not hold for them.",
                self.unit_name()
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

    fn unit_name(&self) -> &'static str {
        self.unit.name()
    }
}

/// A δ above this is warned of.
const LARGE_DELTA: f64 = 1e-3;

const NO_AMPLIFICATION: &str = "No amplification by sampling or shuffling is claimed.";
