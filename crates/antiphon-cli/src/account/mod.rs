//! `antiphon account`: ε, δ or the noise multiplier of a run, each from the other two, and what the figure means.

mod show;

use crate::args::{only, read_text, whole};
use crate::output::{answer, print_json};
use crate::progress::busy;
use crate::verify::{self, examine};
use antiphon::accounting::calibrate::Run;
use antiphon::accounting::event::MAX_COUNT;
use antiphon::accounting::{Adjacency, Event, NoiseMultiplier, Params};
use antiphon::error::{Error, Result};
use antiphon::file;
use antiphon::run::Unit;
use antiphon::statement::{Accounted, Question, Request, Subject};
use clap::{Args, ValueEnum};
use show::Shown;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compute ε, δ or the noise multiplier of a run, with a privacy statement
///
/// Give two of --noise-multiplier (or --event), --epsilon and --delta; the third is computed. ε and δ
/// are computed as brackets, a lower and an upper bound: the upper bound is the privacy guarantee.
/// The noise multiplier is the smallest one for which the upper bound is within the target. All
/// figures are rounded so that they overstate the privacy loss and never understate it.
///
/// Three kinds of run:
///   matrix mechanism   one Gaussian mechanism for all steps together. This is the default. With a
///                      mechanism FILE, the file is verified first, and its sensitivity is computed
///                      again.
///   DP-GD              --compositions T: T steps, each on all data
///   DP-SGD             --sampling-rate Q --compositions T: T steps on Poisson samples. Each example
///                      is in a sample with probability Q, independently in every step. Batches of
///                      a fixed size and shuffled epochs are NOT Poisson samples.
///
/// The noise multiplier is the standard deviation of the noise divided by the sensitivity under
/// zero-out, also with --adjacency replace-one. Under replace-one the sensitivity is twice as large:
/// a given noise multiplier is halved before ε or δ is computed, and a computed noise multiplier is
/// twice as large. The `event` in the JSON output has the noise multiplier relative to zero-out.
///
/// Any other run is given as an event in JSON:
///   {"kind":"gaussian","noise_multiplier":0.6}
///   {"kind":"poisson-sampled","sampling_rate":0.01,"noise_multiplier":1.0}
///   {"kind":"composed","events":[{"event":{...},"count":2052},{"event":{...},"count":1}]}
///
/// Examples:
///   antiphon account --epsilon 8 --delta 1e-6
///   antiphon account mechanism.safetensors --noise-multiplier 0.6 --delta 1e-6
///   antiphon account --noise-multiplier 0.4 --sampling-rate 0.003 --compositions 2052 \
///     --delta 1e-6
///   antiphon account --event event.json --epsilon 2 --unit user
///
/// Exit status 1: the file fails verification; no privacy statement is given then.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Account {
    /// A mechanism file; it is verified first
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Standard deviation of the noise divided by the sensitivity, in [1e-6, 1e12]
    #[arg(long, value_name = "Z", allow_negative_numbers = true, help_heading = "Two of these")]
    noise_multiplier: Option<f64>,
    /// The ε of (ε, δ)-differential privacy
    #[arg(long, value_name = "E", allow_negative_numbers = true, help_heading = "Two of these")]
    epsilon: Option<f64>,
    /// The δ of (ε, δ)-differential privacy, in (0, 1); no default. Choose it well below one over the number of examples
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = "Two of these")]
    delta: Option<f64>,
    /// The run as an event in a JSON file, instead of a noise multiplier; - reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Two of these")]
    event: Option<PathBuf>,
    /// DP-SGD: the probability that an example is in a Poisson sample, in (0, 1]
    #[arg(long, value_name = "Q", allow_negative_numbers = true, help_heading = "Run")]
    sampling_rate: Option<f64>,
    /// Number of steps: of DP-SGD with --sampling-rate, of DP-GD without it (default: 1)
    #[arg(long, value_name = "T", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    compositions: Option<usize>,
    /// Which data sets are neighbouring
    #[arg(long, value_enum, default_value_t = Relation::ZeroOut, help_heading = "Privacy unit")]
    adjacency: Relation,
    /// The unit of privacy: the contribution of one unit to a step must be clipped as a whole
    #[arg(long, value_enum, default_value_t = UnitName::Example, help_heading = "Privacy unit")]
    unit: UnitName,
    /// Maximum width of the bracket of ε, relative to ε where ε is above one, absolute otherwise: in [1e-6, 1]
    #[arg(
        long,
        default_value_t = 1e-3,
        value_name = "W",
        allow_negative_numbers = true,
        help_heading = "Accuracy of sampled runs"
    )]
    width: f64,
    /// A fixed interval of the grid of privacy losses, for comparisons with other accountants: in [1e-8, 10]
    #[arg(long, value_name = "H", allow_negative_numbers = true, help_heading = "Accuracy of sampled runs")]
    interval: Option<f64>,
}

/// Which data sets are neighbouring.
#[derive(Clone, Copy, ValueEnum)]
pub enum Relation {
    /// The contributions of one unit are set to zero; with Poisson sampling: one unit is added or removed
    ZeroOut,
    /// One unit is replaced by another, which doubles the sensitivity; not with Poisson sampling
    ReplaceOne,
}

impl Relation {
    pub fn adjacency(self) -> Adjacency {
        match self {
            Relation::ZeroOut => Adjacency::ZeroOut,
            Relation::ReplaceOne => Adjacency::ReplaceOne,
        }
    }
}

/// What privacy protects.
#[derive(Clone, Copy, ValueEnum)]
pub enum UnitName {
    /// One record
    Example,
    /// All records of one person
    User,
    /// What one person wrote in one conversation: less than user-level privacy
    ConversationSide,
}

impl UnitName {
    pub fn unit(self) -> Unit {
        match self {
            UnitName::Example => Unit::Example,
            UnitName::User => Unit::User,
            UnitName::ConversationSide => Unit::ConversationSide,
        }
    }
}

impl Account {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let mechanism = self.file.as_deref().map(file::read).transpose()?;
        // Wrong figures are found out before the work on the file, not after it.
        let accounted = self.account()?;
        let examined = mechanism.map(examine).transpose()?;
        if let (Some(examined), Some(path)) = (&examined, self.file.as_deref())
            && !examined.report().ok()
        {
            verify::show(examined, path, json)?;
            eprintln!("antiphon: the file fails verification: no privacy statement");
            return Ok(answer(false));
        }
        if let Some(warning) = accounted.warning() {
            eprintln!("antiphon: {warning}");
        }
        let width = if self.interval.is_some() { f64::INFINITY } else { self.width };
        let shown = Shown::new(accounted, examined, width)?;
        match json {
            true => print_json(&shown.json()?)?,
            false => shown.print(self.file.as_deref())?,
        }
        Ok(answer(true))
    }

    fn account(&self) -> Result<Accounted> {
        let question = self.question()?;
        let run = self.described()?;
        let subject = match &self.event {
            Some(path) => Subject::Event(read_event(path)?),
            None => Subject::Run(run, self.noise_multiplier.map(NoiseMultiplier::new).transpose()?),
        };
        let (unit, adjacency) = (self.unit.unit(), self.adjacency.adjacency());
        let params = Params { width: self.width, interval: self.interval };
        let request = Request { question, subject, unit, adjacency, params };
        request.check().map_err(|error| self.in_event(error))?;
        busy("accounting", || request.answer())
    }

    /// Which of the three is sought.
    fn question(&self) -> Result<Question> {
        let noise = self.noise_multiplier.is_some() || self.event.is_some();
        match (noise, self.epsilon, self.delta) {
            (true, None, Some(delta)) => Ok(Question::Epsilon { delta }),
            (true, Some(epsilon), None) => Ok(Question::Delta { epsilon }),
            (false, Some(epsilon), Some(delta)) => Ok(Question::NoiseMultiplier { epsilon, delta }),
            _ => Err(self.needs_two()),
        }
    }

    fn needs_two(&self) -> Error {
        let given = [
            self.noise_multiplier.map(|z| format!("--noise-multiplier {z}")),
            self.event.as_ref().map(|path| format!("--event {}", path.display())),
            self.epsilon.map(|epsilon| format!("--epsilon {epsilon}")),
            self.delta.map(|delta| format!("--delta {delta:e}")),
        ];
        let given: Vec<String> = given.into_iter().flatten().collect();
        let given = if given.is_empty() { "none of them".into() } else { given.join(", ") };
        let no_default = match self.delta {
            Some(_) => "",
            None => {
                ". --delta has no default: choose it well below one over the number of examples or users, such as 1e-6"
            }
        };
        Error::Unsupported(format!(
            "give two of --noise-multiplier in [1e-6, 1e12] (or --event), --epsilon in (0, ∞) and --delta in (0, 1): \
             the third is computed; got {given}{no_default}"
        ))
    }

    /// The run without its noise, where no event says it all.
    fn described(&self) -> Result<Run> {
        let rate = ("--sampling-rate", self.sampling_rate.map(|q| q.to_string()));
        let compositions = ("--compositions", self.compositions.map(|t| t.to_string()));
        if self.event.is_some() {
            let path = ("FILE", self.file.as_ref().map(|path| path.display().to_string()));
            let noise = ("--noise-multiplier", self.noise_multiplier.map(|z| z.to_string()));
            only("--event", &[path, noise, rate, compositions])?;
        } else if self.file.is_some() {
            only(
                "a mechanism FILE (one Gaussian mechanism for all steps, without amplification)",
                &[rate, compositions],
            )?;
        }
        let compositions = self.compositions.map(|count| count as u64);
        if let Some(count) = compositions.filter(|count| !(1..=MAX_COUNT).contains(count)) {
            return Err(Error::argument("--compositions", format!("in 1..={MAX_COUNT}"), count));
        }
        Ok(match (self.sampling_rate, compositions) {
            (Some(sampling_rate), steps) => Run::Sampled { sampling_rate, steps: steps.unwrap_or(1) },
            (None, Some(steps)) => Run::FullBatch { steps },
            (None, None) => Run::Matrix,
        })
    }

    /// An argument of an event is not a flag.
    fn in_event(&self, error: Error) -> Error {
        match (&self.event, error) {
            (Some(path), Error::Argument { argument, allowed, value }) if argument != "interval" => {
                Error::Argument {
                    argument: format!("{argument} in --event {}", path.display()),
                    allowed,
                    value,
                }
            }
            (_, error) => error,
        }
    }
}

fn read_event(path: &Path) -> Result<Event> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|source| Error::Io { path: path.into(), source })?;
        text
    } else {
        read_text(path)?
    };
    serde_json::from_str(&text).map_err(|error| Error::File {
        path: path.into(),
        reason: format!(
            r#"--event must be an event as JSON, such as {{"kind":"gaussian","noise_multiplier":0.6}}: {error}"#
        ),
    })
}
