//! `antiphon noise`.

mod about;
mod amount;
mod check;
mod job;
mod keys;
mod show;
mod space;
mod stream;

use crate::args::{bytes, count};
use crate::output::answer;
use crate::progress::{self, busy};
use about::{About, Description};
use amount::AmountArgs;
use antiphon::error::{Error, Result};
use antiphon::mechanism::Mechanism;
use antiphon::noise::{Part, Prepared, self_test};
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
/// For the first two the file is verified, and the sensitivity that the verification computes is
/// used.
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
        if self.self_test {
            return self.test(&mechanism, json);
        }
        if let Some(table) = &self.check {
            let verdict = check::run(&mechanism, table, &self.keys)?;
            check::show(table, &verdict, json)?;
            return Ok(answer(verdict.is_ok()));
        }
        let (params, part) = self.part(mechanism.schema.steps())?;
        let streamed = self.output.as_deref() == Some(Path::new("-"));
        self.check_output(streamed, json)?;
        // Standard output is for the numbers alone where they go there.
        let amount = self.amount.find(&mechanism, &self.file, |examined| match streamed {
            true => Ok(()),
            false => examined.show(&self.file, json),
        })?;
        let Some(amount) = amount else {
            return Ok(answer(false));
        };
        // Before any key is made or replaced: it takes a while for long mechanisms, and some have no stream at all.
        let prepared = busy("preparing", || Prepared::of(&mechanism, amount.stddev))
            .map_err(|error| self.amount.explain(error))?;
        let about = About::new(&mechanism, &prepared, amount, &part, params);
        match &self.output {
            None => show::plan(&about, json)?,
            Some(_) if streamed => {
                let keys = self.keys.of_name(about.intended())?;
                show::remark_on_seed(&keys);
                stream::run(&prepared, &about, &keys, &part, self.memory as usize)?;
            }
            Some(output) => self.write(output, &prepared, &about, &part, json)?,
        }
        Ok(answer(true))
    }

    fn write(
        &self,
        output: &Path,
        prepared: &Prepared,
        about: &About,
        part: &Part,
        json: bool,
    ) -> anyhow::Result<()> {
        space::check(&job::beside(output, "partial"), job::bytes(output, part)?)?;
        let keys = self.keys.of_output(output, self.force, about.intended())?;
        show::remark_on_seed(&keys);
        let description = Description::new(about, &keys, job::header(output, part).len() as u64);
        let table = prepared.table(&keys.key, part.clone())?;
        let job = job::Job {
            table: &table,
            part,
            keys: &keys,
            description: &description,
            output,
            force: self.force,
        };
        let done = job.run(self.memory as usize)?;
        show::done(&description, &keys, output, &done, json)
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

    fn test(&self, mechanism: &Mechanism, json: bool) -> anyhow::Result<ExitCode> {
        let key = self.keys.for_test()?;
        let coordinates = self.params.unwrap_or(32_768) as usize;
        let bar =
            progress::counter(mechanism.schema.steps() as u64, "{bar:30} row {pos} of {len} [{elapsed}]");
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
