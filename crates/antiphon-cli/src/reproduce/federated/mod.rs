//! `antiphon reproduce federated`: the paper's user-level experiment (section 5.3 and the appendix on StackOverflow), on text that is free.
//!
//! Three parts. [`runs`] trains and compares, [`mechanism`] makes the mechanism of the paper's own run, [`scale`] says what that run would
//! take here.

mod algorithm;
mod figures;
mod mechanism;
mod noise;
mod paper;
mod row;
mod runs;
mod scale;
mod show;

use super::{POSITIVE, Pictures, check_list};
use crate::args::whole;
use crate::output::{answer, print_json};
use crate::progress::busy;
use crate::train::{Source, Stop, TokensName};
use antiphon::error::{Error, Result};
use antiphon_train::data::text::{TextData, TextOptions, Tokens, load_text};
use antiphon_train::federated::{Federated, client};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// The model of this command: numbers per token, tokens in the window.
const MODEL: (usize, usize) = (32, 4);

#[derive(Args)]
pub struct FederatedArgs {
    /// One part (default: all three)
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// poetry, chitchat (`antiphon data fetch`), poets (compiled in), or a file of lines {"user": …, "text": …}
    #[arg(long, value_name = "NAME", default_value = "poetry")]
    dataset: String,
    /// Folder of the data sets' files (default: the one that `antiphon data list` shows)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What the text is split into (default: characters for poets and poetry, else words)
    #[arg(long, value_enum)]
    tokens: Option<TokensName>,
    /// Several ε, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "2,8.8,17.65",
        allow_negative_numbers = true
    )]
    epsilon: Vec<f64>,
    /// Of mf6, mf1, mf1-1e, honaker, honaker-best, dp-fedavg, dp-fedavg-assumed (not a valid guarantee), prefix, comb-blt, unnoised and
    /// unnoised-flat (both not private) (default: all)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    mechanisms: Vec<String>,
    /// Learning rates of the server to choose from, by one run each that is tested on the validation users; ε does not cover that
    /// choice. With one rate there is no choice
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0.125,0.25,0.5,1",
        allow_negative_numbers = true
    )]
    learning_rates: Vec<f64>,
    /// Runs of each mechanism at each ε, with paired seeds
    #[arg(long, value_name = "R", default_value_t = 5)]
    repeats: usize,
    /// Seed of the first run. Seeded runs are not private
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Passes over the users instead of six, for a quick test
    #[arg(long, value_name = "K", value_parser = whole)]
    epochs: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Part {
    /// Train and compare
    Runs,
    /// The mechanism of the paper's own run: loss, noise multipliers, variances
    Mechanism,
    /// How long the paper's own run would take here
    Scale,
}

impl FederatedArgs {
    pub fn run(&self, pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
        let wants = |part| self.part.is_none_or(|only| only == part);
        self.check()?;
        let names = [(Part::Runs, &figures::NAMES[..]), (Part::Mechanism, &[mechanism::FIGURE])];
        let names =
            names.iter().filter(|(part, _)| wants(*part)).flat_map(|(_, names)| names.iter().copied());
        pictures.check(&names.collect::<Vec<_>>())?;
        let stop = Stop::start()?;
        let data = match wants(Part::Runs) || wants(Part::Scale) {
            true => Some(self.load()?),
            false => None,
        };
        let mut all = serde_json::json!({ "ok": true });
        if let Some(data) = data.as_ref().filter(|_| wants(Part::Runs)) {
            all["runs"] = runs::run(self, data, pictures, &stop, json)?;
        }
        if wants(Part::Mechanism) {
            all["mechanism"] = mechanism::run(pictures, &stop, json)?;
            all["ok"] = all["mechanism"]["ok"].clone();
        }
        if let Some(data) = data.as_ref().filter(|_| wants(Part::Scale)) {
            all["scale"] = scale::run(data, &stop, json)?;
        }
        if json {
            print_json(&all)?;
        }
        Ok(answer(all["ok"] == true))
    }

    fn check(&self) -> Result<()> {
        if !(1..=1000).contains(&self.repeats) {
            return Err(Error::argument("--repeats", "in 1..=1000", self.repeats));
        }
        check_list("--epsilon", &self.epsilon, POSITIVE)?;
        check_list("--learning-rates", &self.learning_rates, POSITIVE)?;
        algorithm::chosen(&self.mechanisms).map(|_| ())
    }

    fn load(&self) -> Result<TextData> {
        let source = Source::new(Some(&self.dataset), true)?;
        let folder = source.folder(self.data.as_deref())?;
        let Source::Text(name) = source else {
            return Err(Error::argument("--dataset", "text of users", &self.dataset));
        };
        let options = TextOptions::usual(&name, self.tokens.map(Tokens::from));
        busy("reading the text", || load_text(&name, &folder, &options))
    }
}

/// The task of this command, tested on the test users or on the validation users.
fn task(data: &TextData, validation: bool) -> Result<Federated> {
    let client = client::Settings::usual(algorithm::CLIP_NORM);
    Federated::new(data.clone(), MODEL.0, MODEL.1, client, validation)
}
