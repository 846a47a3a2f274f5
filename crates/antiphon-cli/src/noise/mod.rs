//! `antiphon noise`.

mod amount;
mod check;
mod keys;
mod show;
mod space;
mod stream;

use crate::args::{bytes, count};
use crate::output::answer;
use crate::progress::{self, busy};
use crate::verify::{self, examine};
use amount::AmountArgs;
use antiphon::error::{Error, Result};
use antiphon::mechanism::Mechanism;
use antiphon::noise::file::{self as file_of_noise, About, Job, Progress, beside, bytes as bytes_of};
use antiphon::noise::{Part, Prepared, self_test};
use antiphon::verify::Verified;
use antiphon::{atomic, file};
use clap::Args;
use keys::KeyArgs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// Write the noise of a training run to a file, check such a file, or test the distribution of the noise
///
/// One row per step: row t of stddev·C⁻¹Z, to be added to the sum of the clipped gradients of step
/// t. The file holds single-precision numbers, little-endian, row by row. A name that ends in .npy
/// makes it a NumPy file; any other file contains the numbers only, without a header. - is standard
/// output, also without a header.
///   numpy.load("noise.npy", mmap_mode="r")
///   numpy.memmap("noise.bin", "<f4", "r", shape=(rows, columns))
/// OUTPUT.json describes the finished table; OUTPUT.key contains its key. Keep both the table and
/// the key secret: anyone who has one of them can subtract the noise from what the run releases.
///
/// How much noise: exactly one of
///   --noise-multiplier Z       stddev = Z · clip norm · sensitivity
///   --epsilon E --delta D      the same, with the smallest Z for which all rows together, as one
///                              Gaussian mechanism, are (E, D)-differentially private (see
///                              `antiphon account`)
///   --stddev SIGMA             stddev itself, if you scale the rows yourself: no privacy is claimed
/// The file is verified first, and the sensitivity that the verification computes is used.
///
/// Every number is determined by key, mechanism, stddev, step and coordinate. So --rows and --coords
/// cut the same noise into shards, which may be drawn on different machines with the same --key: row
/// shards one after another are the whole file (without .npy headers), byte for byte, and so are
/// coordinate shards side by side. After a kill, the same command continues where it stopped.
///
/// A key is for one mechanism, stddev and number of parameters: the key file records them before the
/// first number is drawn, and drawing other noise with this key is refused. Use the noise in one
/// training run only: two runs with the same noise are NOT private, because it cancels in their
/// difference.
///
/// Examples:
///   antiphon noise m.safetensors --params 1e6 --epsilon 8 --delta 1e-6 --output noise.npy
///   antiphon noise m.safetensors --check noise.npy
///   antiphon noise m.safetensors --params 1e6 --noise-multiplier 0.6 --key run.key --rows 0:500 \
///       --output first.bin
///   antiphon noise m.safetensors --params 1e6 --noise-multiplier 0.6 --key run.key --output - | ./my-training
///   antiphon noise m.safetensors --self-test
///
/// Exit status: 0 done, 1 a check failed (verification, --check, --self-test), 2 bad input.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Noise {
    /// A mechanism file that was not made with --implicit
    file: PathBuf,
    /// Parameters of the model, the length of a row (1e6 is a million). With --self-test: coordinates to test (default 32768)
    #[arg(long, value_name = "D", value_parser = count)]
    params: Option<u64>,
    /// Only the steps LO, …, HI − 1, counted from 0
    #[arg(long, value_name = "LO:HI")]
    rows: Option<Span>,
    /// Only the coordinates LO, …, HI − 1, counted from 0
    #[arg(long, value_name = "LO:HI")]
    coords: Option<Span>,
    #[command(flatten)]
    amount: AmountArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// The file to write: .npy, or any other name for plain numbers; - for plain numbers on standard output (needs --key or --seed).
    /// Without this flag, only a summary is printed
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace an existing file, or an unfinished one of another job
    #[arg(long, help_heading = "Output")]
    force: bool,
    /// Memory that may be used, about
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256MiB", help_heading = "Output")]
    memory: u64,
    /// Check a finished table: draw 64 randomly chosen entries, the first and the last again from the key (FILE.key, or --key, or
    /// --seed), and compare every bit. Does not check that there is enough noise
    #[arg(long, value_name = "FILE", help_heading = "Instead of writing", conflicts_with_all = [
        "self_test", "params", "output", "rows", "coords", "force", "reuse_key", "stddev", "noise_multiplier", "epsilon", "delta",
        "clip_norm",
    ])]
    check: Option<PathBuf>,
    /// Run statistical tests of this mechanism's noise on this machine, with a fresh key (or --seed, or --key)
    #[arg(long, help_heading = "Instead of writing", conflicts_with_all = [
        "output", "rows", "coords", "force", "reuse_key", "stddev", "noise_multiplier", "epsilon", "delta", "clip_norm",
    ])]
    self_test: bool,
}

/// Whole numbers from the first up to, and without, the second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span(u64, u64);

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Span> {
        let ends = text.split_once(':').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        match ends {
            Some((low, high)) if low < high => Ok(Span(low, high)),
            _ => Err(Error::argument("LO:HI", "two whole numbers, the first one smaller", text)),
        }
    }
}

impl Span {
    /// The whole where nothing is said; an error where it does not fit.
    fn within(span: Option<Span>, flag: &str, length: u64) -> Result<Range<u64>> {
        match span {
            None => Ok(0..length),
            Some(Span(low, high)) if high <= length => Ok(low..high),
            Some(Span(low, high)) => {
                Err(Error::argument(flag, format!("within 0:{length}"), format!("{low}:{high}")))
            }
        }
    }
}

impl Noise {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let mechanism = file::read(&self.file)?;
        let streamed = self.output.as_deref() == Some(Path::new("-"));
        let (steps, mut wanted) = (mechanism.steps(), None);
        if !self.self_test && self.check.is_none() {
            // What is wrong with the flags is found out before the work on the file.
            wanted = Some((
                self.part(steps)?,
                self.check_output(streamed, json).and_then(|()| self.amount.check())?,
            ));
        }
        let Some(mechanism) = self.verified(mechanism, streamed, json)? else {
            return Ok(answer(false));
        };
        match (wanted, &self.check) {
            (Some(((params, part), asked)), _) => {
                let (stddev, amount) = self.amount.find(asked, &mechanism)?;
                // Before any key is made or replaced: it takes a while for long mechanisms, and some have no stream at all.
                let prepared = busy("preparing", || Prepared::of(&mechanism, stddev))
                    .map_err(|error| self.amount.explain(error))?;
                let about = About::new(&mechanism, &prepared, amount, &part, params);
                self.draw(&prepared, &about, &part, json)?;
                Ok(answer(true))
            }
            (None, Some(table)) => {
                let key = |cipher| self.keys.existing(table, cipher);
                let verdict = busy("drawing again", || file_of_noise::check(&mechanism, table, key))?;
                check::show(table, &verdict, json)?;
                Ok(answer(verdict.is_ok()))
            }
            (None, None) => self.test(&mechanism, json),
        }
    }

    /// The mechanism, or nothing where the file does not hold what it claims; that is said then.
    fn verified(&self, mechanism: Mechanism, streamed: bool, json: bool) -> anyhow::Result<Option<Verified>> {
        let examined = examine(mechanism)?;
        if let Ok(verified) = examined.verified() {
            return Ok(Some(verified));
        }
        // Standard output is for the numbers alone where they go there.
        if !streamed {
            verify::show(&examined, &self.file, json)?;
        }
        let path = self.file.display();
        eprintln!("antiphon: {path} fails verification, so no noise is drawn: see antiphon verify");
        Ok(None)
    }

    /// The noise, to where it is wanted.
    fn draw(&self, prepared: &Prepared, about: &About, part: &Part, json: bool) -> anyhow::Result<()> {
        match self.output.as_deref() {
            None => show::plan(about, json),
            Some(output) if output == Path::new("-") => {
                let keys = self.keys.of_name(about.intended())?;
                show::remark_on_seed(&keys);
                Ok(stream::run(prepared, about, &keys, part, self.memory as usize)?)
            }
            Some(output) => self.write(output, prepared, about, part, json),
        }
    }

    fn write(
        &self,
        output: &Path,
        prepared: &Prepared,
        about: &About,
        part: &Part,
        json: bool,
    ) -> anyhow::Result<()> {
        space::check(&beside(output, "partial"), bytes_of(output, part)?)?;
        let keys = self.keys.of_output(output, self.force, about.intended())?;
        show::remark_on_seed(&keys);
        let job = Job::new(prepared, about, part, &keys, output, self.force)?;
        let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec} [{elapsed}, {eta} left]";
        let bar = progress::counter(0, template);
        let done = job.run(self.memory as usize, &|progress| match progress {
            Progress::Claimed(claimed) => keys::remark(claimed, &keys),
            Progress::Written { bytes, of } => {
                let begins = bar.length() != Some(of);
                bar.set_length(of);
                bar.set_position(bytes);
                if begins {
                    bar.reset_eta();
                }
            }
        });
        bar.finish_and_clear();
        show::done(job.description(), &keys, output, &done?, json)
    }

    /// The number of parameters, and the part of the noise that is wanted.
    fn part(&self, steps: usize) -> Result<(u64, Part)> {
        let Some(params) = self.params else {
            let allowed = "given: the number of parameters of the model";
            return Err(Error::argument("--params", allowed, "nothing"));
        };
        let rows = Span::within(self.rows, "--rows", steps as u64)?;
        let rows = rows.start as usize..rows.end as usize;
        Ok((params, Part { rows, coordinates: Span::within(self.coords, "--coords", params)? }))
    }

    /// What is wrong with the output: found out before the work, not after it.
    fn check_output(&self, streamed: bool, json: bool) -> Result<()> {
        let Some(path) = &self.output else {
            return Ok(());
        };
        if streamed && json {
            return Err(Error::argument("--json", "left out where --output - is given", "both"));
        }
        if streamed && !self.keys.named() {
            let allowed = "given with --output - (or --seed): standard output keeps no key";
            return Err(Error::argument("--key", allowed, "nothing"));
        }
        if streamed {
            return Ok(());
        }
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz")) {
            return Err(Error::argument("--output", "a name that does not end in .npz", path.display()));
        }
        if !self.keys.named() && (self.rows.is_some() || self.coords.is_some()) {
            return Err(Error::Unsupported(
                "--rows and --coords write one shard: all shards need the same key, so give --key FILE (or --seed)"
                    .into(),
            ));
        }
        atomic::check(path, self.force)
    }

    fn test(&self, mechanism: &Verified, json: bool) -> anyhow::Result<ExitCode> {
        let key = self.keys.for_test()?;
        let coordinates = self.params.unwrap_or(32_768) as usize;
        let bar = progress::counter(mechanism.steps() as u64, "{bar:30} row {pos} of {len} [{elapsed}]");
        let observe = |row: usize| {
            bar.set_position(row as u64);
            true
        };
        let result = self_test::run(mechanism, &key, coordinates, self.memory as usize, &observe);
        bar.finish_and_clear();
        let result = result?;
        show::self_test(&self.file, &key, coordinates, &result, json)?;
        Ok(answer(result.passed()))
    }
}
