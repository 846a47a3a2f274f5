//! Users with their text, and the model that they train together.

use super::client::{self, Settings};
use super::positions::Positions;
use super::window::{Local, Schedule, Window};
use crate::data::text::{Corpus, END, Source, TextData, TextName, TextUnit, UNKNOWN, Vocabulary};
use crate::description::Data;
use crate::engine::{Totals, add_up, in_chunks};
use crate::network::Initial;
use crate::task::{Score, Task, Turn};
use antiphon::clip::{Clip, MOST_EXAMPLES};
use antiphon::noise::{Cipher, Key};
use antiphon::run::Unit;
use antiphon::{Error, Result};
use rayon::prelude::*;

/// Tokens of a user that a model is tested on, at most: everybody counts about the same.
const TESTED: usize = 128;
/// Users that one thread tests at a time.
const TOGETHER: usize = 16;

/// Text of users, a model, and what clients do with both.
pub struct Federated {
    /// What the data are called.
    pub name: String,
    fingerprint: String,
    unit: TextUnit,
    vocabulary: Vocabulary,
    /// Private.
    pub train: Corpus,
    /// Whom the model is tested on: others.
    pub test: Corpus,
    /// Whether those are the validation users, for choosing settings.
    pub validation: bool,
    model: Window,
    client: Settings,
}

/// What a client's turn came to.
pub(crate) enum Answer {
    Silent,
    Trained(Totals),
    /// Somebody else's update in its place.
    #[cfg(test)]
    Sent(Vec<f32>),
}

/// What a thread has.
pub(crate) struct Worker {
    local: Local,
    positions: Positions,
    sum: Vec<f64>,
}

impl Federated {
    /// A model of so many numbers per token that looks at so many tokens. The score is that of the test users, or of the validation users.
    pub fn new(
        data: TextData,
        width: usize,
        context: usize,
        client: Settings,
        validation: bool,
    ) -> Result<Federated> {
        client.check()?;
        let model = Window::new(data.vocabulary.len(), width, context)?;
        let fingerprint = data.fingerprint().to_string();
        let TextData { name, unit, vocabulary, train, validation: chosen_on, test, .. } = data;
        let test = if validation { chosen_on } else { test };
        if test.all_tokens() == 0 {
            let part = if validation { "validation" } else { "test" };
            let reason =
                format!("expected text of the users to test on ({} {part} users), found none", test.users());
            return Err(Error::File { path: name.to_string().into(), reason });
        }
        Ok(Federated {
            name: shown(&name),
            fingerprint,
            unit,
            vocabulary,
            train,
            test,
            validation,
            model,
            client,
        })
    }

    /// Where the vocabulary is from.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// One turn of a client: it trains, from the server's parameters, and leaves its update in its worker.
    fn train(&self, worker: &mut Worker, parameters: &[f32], user: usize, lines: &Key, draw: u64) -> Totals {
        let Settings { learning_rate, epochs, steps, batch_size, most_tokens, .. } = self.client;
        worker.positions.take(&self.train, user, self.model.context(), most_tokens, lines, draw);
        let schedule = Schedule { rate: learning_rate, batch: batch_size, epochs, steps };
        let seen = worker.local.train(parameters, worker.positions.view(), schedule);
        // A client counts once, with its mean loss; one without text, or with a loss that is not finite, has none.
        match seen.loss / seen.positions as f64 {
            mean if mean.is_finite() => Totals { examples: 1, loss: mean, ..Totals::default() },
            _ => Totals::default(),
        }
    }

    /// The sum over what clients answer.
    pub(crate) fn collect(
        &self,
        parameters: usize,
        users: &[usize],
        clip: f64,
        sum: &mut [f64],
        answer: impl Fn(&mut Worker, usize) -> Answer + Sync,
    ) -> Result<Totals> {
        let d = self.model.parameters();
        for (name, length) in [("parameters", parameters), ("sum", sum.len())] {
            if length != d {
                return Err(Error::argument(name, format!("{d} numbers"), length));
            }
        }
        let most = self.train.users();
        if let Some(user) = users.iter().find(|user| **user >= most) {
            return Err(Error::argument("user", format!("below {most}"), user));
        }
        if users.len() > MOST_EXAMPLES {
            return Err(Error::argument("users in a round", format!("at most {MOST_EXAMPLES}"), users.len()));
        }
        let rule = Clip::new(clip, d)?;
        let worker =
            || Worker { local: Local::new(&self.model), positions: Positions::default(), sum: vec![0.0; d] };
        let (workers, totals) = in_chunks(users, 1, worker, |worker, users| {
            let answer = answer(worker, users[0]);
            let (mut totals, update) = match &answer {
                Answer::Silent => return Totals::default(),
                Answer::Trained(totals) => (*totals, worker.local.update()),
                #[cfg(test)]
                Answer::Sent(update) => (Totals { examples: 1, ..Totals::default() }, &update[..]),
            };
            let fate = client::add(rule, self.client.zero_threshold, update, &mut worker.sum);
            totals.zeroed += usize::from(fate.zeroed);
            totals.clipped += usize::from(fate.factor > 0.0 && fate.factor < 1.0);
            totals.not_finite += usize::from(!fate.norm.is_finite());
            totals.norms += if fate.norm.is_finite() { fate.norm } else { 0.0 };
            totals
        });
        add_up(workers.iter().map(|worker| &worker.sum[..]).collect::<Vec<_>>().iter().copied(), sum);
        Ok(totals)
    }
}

impl Task for Federated {
    fn unit(&self) -> Unit {
        match self.unit {
            TextUnit::User => Unit::User,
            TextUnit::ConversationSide => Unit::ConversationSide,
        }
    }

    fn units(&self) -> usize {
        self.train.users()
    }

    fn tested(&self) -> usize {
        self.test.users()
    }

    fn parameters(&self) -> usize {
        self.model.parameters()
    }

    fn initial(&self, _: Initial, key: &Key) -> Vec<f32> {
        self.model.initial(key)
    }

    fn clipped_sum(
        &self,
        turn: Turn<'_>,
        parameters: &[f32],
        units: &[usize],
        clip: f64,
        sum: &mut [f64],
    ) -> Result<Totals> {
        self.collect(parameters.len(), units, clip, sum, |worker, user| {
            // Two streams for every user in every round: which lines, and whether it answers.
            let draw = 2 * (turn.step * self.train.users() + user) as u64;
            if self.client.silent > 0.0 && uniform(turn.key, draw + 1) < self.client.silent {
                return Answer::Silent;
            }
            Answer::Trained(self.train(worker, parameters, user, turn.key, draw))
        })
    }

    fn score(&self, parameters: &[f32]) -> Result<Score> {
        // Always the same lines.
        let key = Key::from_seed(0, Cipher::ChaCha20);
        let users: Vec<usize> = (0..self.test.users()).collect();
        let parts: Vec<Hits> = users
            .par_chunks(TOGETHER)
            .map_init(
                || (Local::new(&self.model), Positions::default()),
                |(local, positions), users| {
                    let mut hits = Hits::default();
                    for user in users {
                        positions.take(&self.test, *user, self.model.context(), TESTED, &key, *user as u64);
                        let labels = positions.labels();
                        local.evaluate(parameters, positions.view(), Some(UNKNOWN), |i, loss, predicted| {
                            hits.count(&self.vocabulary, labels[i], loss, predicted);
                        });
                    }
                    hits
                },
            )
            .collect();
        let mut all = Hits::default();
        parts.iter().for_each(|part| all.add(part));
        Ok(all.score())
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn model(&self) -> String {
        let (v, d, j) = (self.model.vocabulary(), self.model.width(), self.model.context());
        format!("{v}×{d}×{j} window")
    }

    fn identity(&self) -> Data {
        let part = if self.validation { "validation" } else { "test" };
        Data { name: self.name.clone(), sha256: format!("{}-{part}", self.fingerprint) }
    }

    fn client(&self) -> Option<Settings> {
        Some(self.client)
    }

    fn tested_on(&self) -> &'static str {
        if self.validation { "validation" } else { "test" }
    }

    fn condition(&self) -> Option<String> {
        let counted = "This holds only if the vocabulary is taken as public: it was counted in the training text, depends on all \
                       users, and no ε covers it. A vocabulary from a public list has no such condition.";
        (*self.vocabulary.source() == Source::Data).then(|| counted.into())
    }

    fn clipped(&self, clip_norm: f64) -> String {
        let (unit, threshold) = (self.unit().name(), self.client.zero_threshold);
        let vocabulary = match self.vocabulary.source() {
            Source::Public(list) => format!(" The vocabulary is a public list: {list}."),
            Source::Named(file) => {
                format!(
                    " The vocabulary is from the file {file}, which is treated as public: ε does not cover how it was made."
                )
            }
            Source::Data => String::new(),
        };
        let whose = match self.unit {
            TextUnit::User => "A user is all text of one name in the data.",
            TextUnit::ConversationSide => {
                "A conversation side is what one person wrote in one conversation: this is NOT user-level privacy, a person \
                 with several conversations is protected less."
            }
        };
        format!(
            "{whose} The update of every {unit} was clipped to norm {clip_norm} as a whole; an update that was not finite or had an \
             entry beyond ±{threshold} counted as zero.{vocabulary}"
        )
    }

    fn shown(&self) -> String {
        let vocabulary = match self.vocabulary.source() {
            Source::Public(_) | Source::Named(_) => "",
            Source::Data => ", the vocabulary (its words were counted in the training text)",
        };
        format!(
            "the training loss and the numbers of clipped and zeroed updates that are shown here, accuracy and loss on the {} \
             users, whom ε does not protect{vocabulary}",
            self.tested_on()
        )
    }
}

/// A file without its folders: those of a machine belong into no model and no id.
fn shown(name: &TextName) -> String {
    match name {
        TextName::File(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        name => name.to_string(),
    }
}

/// A number in [0, 1).
fn uniform(key: &Key, stream: u64) -> f64 {
    let mut word = [0];
    key.fill_words(stream, &mut word);
    (word[0] >> 11) as f64 * 2f64.powi(-53)
}

/// What was predicted.
#[derive(Debug, Default)]
struct Hits {
    /// All tokens, the unknown ones too, and their losses.
    tokens: usize,
    loss: f64,
    /// Hits and tokens: all known ones, those that end no line, those of them that are no punctuation.
    known: [usize; 2],
    inside: [usize; 2],
    words: [usize; 2],
}

impl Hits {
    /// As in the StackOverflow benchmark (Reddi et al. 2020): tokens outside of the vocabulary are learnt and count for the loss, but not for the
    /// accuracy. "Unknown" is also never what is predicted: it is no suggestion, and in text where it is more frequent than any word it would be
    /// nearly the only one. (The benchmark, with few unknown words, counts such predictions as wrong.)
    fn count(&mut self, vocabulary: &Vocabulary, label: u32, loss: f64, predicted: u32) {
        let hit = usize::from(label == predicted);
        self.tokens += 1;
        self.loss += loss;
        let known = label != UNKNOWN;
        let inside = known && label != END;
        let word = inside && !vocabulary.is_punctuation(label);
        for (counts, counted) in
            [(&mut self.known, known), (&mut self.inside, inside), (&mut self.words, word)]
        {
            if counted {
                *counts = [counts[0] + hit, counts[1] + 1];
            }
        }
    }

    fn add(&mut self, other: &Hits) {
        self.tokens += other.tokens;
        self.loss += other.loss;
        for (all, part) in
            [(&mut self.known, other.known), (&mut self.inside, other.inside), (&mut self.words, other.words)]
        {
            *all = [all[0] + part[0], all[1] + part[1]];
        }
    }

    fn score(&self) -> Score {
        let part = |[hits, tokens]: [usize; 2]| if tokens == 0 { 0.0 } else { hits as f64 / tokens as f64 };
        Score {
            accuracy: part(self.inside),
            loss: self.loss / self.tokens.max(1) as f64,
            accuracy_with_end: Some(part(self.known)),
            accuracy_without_punctuation: Some(part(self.words)),
        }
    }
}
