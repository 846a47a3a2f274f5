//! Privacy statements: what the figures mean, and what they do not cover. One sentence or two per matter, good enough for the
//! appendix of a paper.
//!
//! | file | statement of |
//! |---|---|
//! | `accounted` | figures for an event, or for a mechanism that is to be used |
//! | `run` | a run that is made, a [`PrivateRun`](crate::run::PrivateRun) |

mod accounted;
mod run;

pub use accounted::{Accounted, Question, Request, Subject};
pub use run::{CONTINUED, INVALID, SEEDED, large_delta};

use crate::accounting::Adjacency;
use crate::run::Unit;
use crate::schema::Schema;
use crate::text::counted;

/// What figures mean, and what they do not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    meaning: Vec<String>,
    not_covered: Vec<String>,
    /// Who says so.
    signature: Option<String>,
}

impl Statement {
    /// With what no statement covers.
    fn new(meaning: Vec<String>, other_uses: &str) -> Statement {
        let never = ["hyper-parameters that were tuned on the private data", other_uses];
        Statement { meaning, not_covered: never.map(String::from).to_vec(), signature: None }
    }

    /// One or two sentences per matter, in the order in which they are read.
    pub fn sentences(&self) -> Vec<String> {
        let not_covered =
            format!("Not covered: {}, and attacks on floating-point noise.", self.not_covered.join(", "));
        self.meaning.iter().cloned().chain([not_covered]).chain(self.signature.clone()).collect()
    }

    /// The statement with a condition under which alone it holds, right behind its first sentences.
    pub fn given(mut self, condition: impl Into<String>) -> Statement {
        self.meaning.insert(self.meaning.len().min(1), condition.into());
        self
    }

    /// The statement with what a program has to add.
    pub fn with(mut self, sentence: impl Into<String>) -> Statement {
        self.meaning.push(sentence.into());
        self
    }

    /// The statement with more that is not covered, for the list in its last sentence: "the training loss that is shown".
    pub fn not_covering(mut self, what: impl Into<String>) -> Statement {
        self.not_covered.push(what.into());
        self
    }
}

impl std::fmt::Display for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentences().join(" "))
    }
}

/// Which data sets are neighbours.
fn relation(unit: Unit, adjacency: Adjacency, sampled: bool) -> String {
    let unit = unit.name();
    match (adjacency, sampled) {
        (Adjacency::ZeroOut, false) => format!(
            "Neighbouring data sets differ in one {unit}, whose contributions are set to zero (zero-out). \
             Replacing it by another would double the sensitivity."
        ),
        (Adjacency::ZeroOut, true) => format!(
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

/// What a unit is, and that it must be clipped as a whole.
fn unit_of_privacy(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => {
            "The unit of privacy is one example, a single record: its gradient must be clipped before it is added to \
             the others."
        }
        Unit::User => {
            "The unit of privacy is one user, with all records of that user: the whole contribution of one user to a \
             step must be clipped to the clip norm."
        }
        Unit::ConversationSide => {
            "The unit of privacy is one conversation side, what one person wrote in one conversation: its whole contribution \
             to a step must be clipped to the clip norm. It is NOT the user: a person who took part in several \
             conversations is protected less."
        }
    }
}

/// What the participation schema asks of the data.
fn order(schema: &Schema, unit: Unit) -> String {
    let unit = unit.name();
    match schema {
        Schema::FixedOrder { max_participations: 1, .. } => {
            format!("No {unit} may take part in a second step.")
        }
        Schema::FixedOrder { steps_per_epoch: 1, .. } if schema.residues().is_some() => {
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
        Schema::Reshuffled { steps_per_epoch, .. } => format!(
            "The order of the data may change between epochs: one {unit} takes part at most once in every epoch of {}.",
            counted(*steps_per_epoch, "step")
        ),
        Schema::Patterns { .. } => format!(
            "The order of the data is fixed: all steps of one {unit} belong to one of the listed participation patterns."
        ),
    }
}

const NO_AMPLIFICATION: &str = "No amplification by sampling or shuffling is claimed.";
