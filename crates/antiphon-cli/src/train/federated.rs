//! The flags of federated, user-level training.

use super::loaded::{Loaded, Source};
use crate::args::whole;
use antiphon::error::{Error, Result};
use antiphon_train::data::text::{TextName, TextOptions, TextUnit, Tokens, VocabularyChoice, load_text};
use antiphon_train::federated::Federated;
use antiphon_train::federated::client;
use antiphon_train::settings::Settings;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Federated, user-level training.
#[derive(Args, Clone)]
#[command(next_help_heading = "Federated")]
pub struct FederatedArgs {
    /// Protect users instead of examples: in every round some users train the model on their own text and send one update, which is
    /// clipped as a whole. Momentum and cooldown are part of the workload of the mechanism
    #[arg(long)]
    federated: bool,
    /// Users in a round (default: 1/64 of all). Sums are divided by this number, however many answer
    #[arg(long, value_name = "M", requires = "federated", value_parser = whole)]
    clients_per_round: Option<usize>,
    /// Make the mechanism for plain sums, and apply momentum and cooldown to its output
    #[arg(long, requires = "federated", conflicts_with = "in_workload")]
    post_processing: bool,
    /// Test on the validation users instead of the test users: for choosing settings. ε does not cover that choice
    #[arg(long, requires = "federated")]
    validation: bool,
    /// Learning rate of the clients
    #[arg(
        long,
        value_name = "RATE",
        requires = "federated",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    client_rate: f64,
    /// Passes of a client over the text that it uses in a round
    #[arg(long, value_name = "E", requires = "federated", default_value_t = 1, value_parser = whole)]
    client_epochs: usize,
    /// Most steps of a client in a round (default: no limit)
    #[arg(long, value_name = "N", requires = "federated", value_parser = whole)]
    client_steps: Option<usize>,
    /// Tokens in a batch of a client
    #[arg(long, value_name = "N", requires = "federated", default_value_t = 32, value_parser = whole)]
    client_batch_size: usize,
    /// Most tokens that a client uses in a round; who has more draws other lines in every round
    #[arg(long, value_name = "N", requires = "federated", default_value_t = 64, value_parser = whole)]
    client_tokens: usize,
    /// Count an update as zero if one of its entries is larger than this (default: 100 times --clip-norm)
    #[arg(long, value_name = "X", requires = "federated", allow_negative_numbers = true)]
    zero_threshold: Option<f64>,
    /// Part of the users who do not answer when it is their turn, to simulate that; their turn is used up
    #[arg(
        long,
        value_name = "P",
        requires = "federated",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    silent: f64,
    /// What the text is split into (default: characters for poets and poetry, else words)
    #[arg(long, value_enum, requires = "federated")]
    tokens: Option<TokensName>,
    /// What is protected as a whole; conversation-side (chitchat, or files whose lines have a "conversation") is less than
    /// user-level privacy
    #[arg(long, value_enum, requires = "federated", default_value_t = UnitName::User)]
    unit: UnitName,
    /// The words of the model: `data` counts them in the training text, which ε does not cover; or a file with one word per line,
    /// most frequent first (default: a public list for the data sets that have names, `data` for files)
    #[arg(long, value_name = "data|FILE", requires = "federated")]
    vocabulary: Option<PathBuf>,
    /// Most words, with the three special ones: begin, end, unknown (default: 1000 characters, 2000 words)
    #[arg(long, value_name = "V", requires = "federated", value_parser = whole)]
    vocabulary_size: Option<usize>,
    /// Lines are cut to so many tokens (default: 24 characters, 20 words)
    #[arg(long, value_name = "L", requires = "federated", value_parser = whole)]
    line_length: Option<usize>,
    /// Numbers that describe a token, and hidden units of the model
    #[arg(long, value_name = "D", requires = "federated", default_value_t = 32, value_parser = whole)]
    width: usize,
    /// Tokens before the next one that the model looks at
    #[arg(long, value_name = "J", requires = "federated", default_value_t = 4, value_parser = whole)]
    context: usize,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum TokensName {
    Words,
    Characters,
}

impl From<TokensName> for Tokens {
    fn from(name: TokensName) -> Tokens {
        match name {
            TokensName::Words => Tokens::Words,
            TokensName::Characters => Tokens::Characters,
        }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum UnitName {
    User,
    ConversationSide,
}

impl FederatedArgs {
    /// Whether users are trained on, and not images.
    pub fn asked(&self) -> bool {
        self.federated
    }

    /// Settings with what these flags say, for so many users.
    pub fn settings(&self, settings: Settings, users: usize) -> Result<Settings> {
        let batch_size = self.clients_per_round.unwrap_or(settings.batch_size);
        if self.federated && !(1..=users).contains(&batch_size) {
            return Err(Error::argument("clients_per_round", format!("in 1..={users}"), batch_size));
        }
        Ok(Settings { batch_size, in_workload: settings.in_workload && !self.post_processing, ..settings })
    }

    /// Reads the text and makes the task.
    pub fn load(&self, name: TextName, folder: &Path, clip_norm: f64) -> Result<Loaded> {
        let client = client::Settings {
            learning_rate: self.client_rate,
            epochs: self.client_epochs,
            steps: self.client_steps,
            batch_size: self.client_batch_size,
            most_tokens: self.client_tokens,
            zero_threshold: self.zero_threshold.unwrap_or(client::ZERO_THRESHOLD * clip_norm),
            silent: self.silent,
        };
        client.check()?;
        let data =
            crate::progress::busy("reading the text", || load_text(&name, folder, &self.options(&name)))?;
        let task = Federated::new(data, self.width, self.context, client, self.validation)?;
        Ok(Loaded { source: Source::Text(name), task: Box::new(task) })
    }

    fn options(&self, name: &TextName) -> TextOptions {
        let usual = TextOptions::usual(name, self.tokens.map(Tokens::from));
        TextOptions {
            unit: match self.unit {
                UnitName::User => TextUnit::User,
                UnitName::ConversationSide => TextUnit::ConversationSide,
            },
            vocabulary: match &self.vocabulary {
                None => VocabularyChoice::Usual,
                Some(path) if path.as_os_str() == "data" => VocabularyChoice::FromData,
                Some(path) => VocabularyChoice::File(path.clone()),
            },
            vocabulary_size: self.vocabulary_size.unwrap_or(usual.vocabulary_size),
            line_length: self.line_length.unwrap_or(usual.line_length),
            ..usual
        }
    }
}
