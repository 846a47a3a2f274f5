//! What is learnt, as the loop sees it. Two things are: images with labels ([`crate::classification`]), whose units are examples, and
//! text on the devices of its writers ([`crate::federated`]), whose units are users.

use crate::description::Data;
use crate::engine::Totals;
use crate::federated::client::Settings as Client;
use crate::network::Initial;
use antiphon::Result;
use antiphon::noise::Key;
use antiphon::run::Unit;

/// A task. Units are numbered from 0; who takes part when, and the noise, is decided elsewhere.
pub trait Task: Sync {
    /// What is protected as a whole.
    fn unit(&self) -> Unit;

    /// How many units there are to train on.
    fn units(&self) -> usize;

    /// How many others the model is tested on.
    fn tested(&self) -> usize;

    /// How many parameters the model has.
    fn parameters(&self) -> usize;

    /// Parameters to start from, fixed by a key; networks have several ways.
    fn initial(&self, initial: Initial, key: &Key) -> Vec<f32>;

    /// The sum of the contributions of some units, each of norm at most `clip`. It is exact (antiphon::clip): every unit moves it by its own
    /// contribution and nothing else.
    fn clipped_sum(
        &self,
        turn: Turn<'_>,
        parameters: &[f32],
        units: &[usize],
        clip: f64,
        sum: &mut [f64],
    ) -> Result<Totals>;

    /// How good a model is, on data of others than the units.
    fn score(&self, parameters: &[f32]) -> Result<Score>;

    /// The name of the data.
    fn name(&self) -> String;

    /// The name of the model, with its sizes where they are free.
    fn model(&self) -> String;

    /// Which data a run is bound to: their name and fingerprint.
    fn identity(&self) -> Data;

    /// What clients do, where there are clients.
    fn client(&self) -> Option<Client> {
        None
    }

    /// What the data are called that a model is tested on: `test`, or something that was held out.
    fn tested_on(&self) -> &'static str {
        "test"
    }

    /// For the statement: what must be taken as public for ε to hold, where that is not only the number of units.
    fn condition(&self) -> Option<String> {
        None
    }

    /// A sentence for the statement: what was clipped, and how.
    fn clipped(&self, clip_norm: f64) -> String;

    /// For the statement: what is shown of a run that ε does not cover.
    fn shown(&self) -> String;
}

/// The step at which a sum is made, and a key for what units do by chance.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// From 0.
    pub step: usize,
    /// Fixes what is random inside of a unit.
    pub key: &'a Key,
}

/// How good a model is.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Score {
    /// The part that is classified as labelled. Of text: the part of the tokens that are predicted, without the ends of lines and what is
    /// not in the vocabulary.
    pub accuracy: f64,
    /// The mean loss.
    pub loss: f64,
    /// Of text: the accuracy with the ends of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy_with_end: Option<f64>,
    /// Of text: the accuracy without the ends of lines and without punctuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy_without_punctuation: Option<f64>,
}

impl Score {
    /// Accuracy and loss.
    pub fn new(accuracy: f64, loss: f64) -> Score {
        Score { accuracy, loss, accuracy_with_end: None, accuracy_without_punctuation: None }
    }
}
