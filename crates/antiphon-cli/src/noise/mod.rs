//! `antiphon noise`.

mod job;
mod show;

use crate::args::{bytes, count, only};
use crate::output::answer;
use crate::progress::{self, busy};
use crate::verify::Examined;
use antiphon::error::{Error, Result};
use antiphon::mechanism::Mechanism;
use antiphon::noise::{Cipher, Key, Table, key_file, self_test};
use antiphon::{atomic, file};
use clap::Args;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// Write the noise of a training run to a file, or test that it has the law that it should have
///
/// One row per step: what is to be added to the sum of the clipped gradients of that step, row t of
/// stddev·C⁻¹Z. The file holds single precision numbers, little-endian, row after row, nothing else:
///   numpy.memmap("noise.bin", "<f4", "r", shape=(rows, columns))
///
/// Every number is fixed by key, mechanism, stddev, step and coordinate. So --rows and --coords cut
/// the same noise into shards, which may be drawn on different machines with the same --key: row
/// shards one after another are the whole file, byte for byte, and so are coordinate shards side by
/// side. Killed midway, the same command goes on where it stopped.
///
/// How much noise: --noise-multiplier (and --clip-norm), for which the file is verified and its
/// sensitivity derived; or --stddev as it is, if you scale the rows yourself (then
/// stddev = noise multiplier · clip norm · sensitivity).
///
/// Examples:
///   antiphon noise mechanism.safetensors --params 1e6 --noise-multiplier 0.6 --output noise.bin
///   antiphon noise mechanism.safetensors --params 1e6 --seed 1 --rows 0:500 --output first.bin
///   antiphon noise mechanism.safetensors --self-test
///
/// Exit status: 0 done, 1 the self-test or the verification failed, 2 bad input.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Noise {
    /// A mechanism file that was not made with --implicit
    file: PathBuf,
    /// Parameters of the model, the length of a row (1e6 is a million). With --self-test: coordinates to test (default 32768)
    #[arg(long, value_name = "D", value_parser = count)]
    params: Option<u64>,
    /// Only these steps, counted from 0; HI is not among them
    #[arg(long, value_name = "LO:HI")]
    rows: Option<Span>,
    /// Only these coordinates
    #[arg(long, value_name = "LO:HI")]
    coords: Option<Span>,
    /// Noise standard deviation over sensitivity; the file is verified
    #[arg(long, value_name = "Z", allow_negative_numbers = true, help_heading = "How much")]
    noise_multiplier: Option<f64>,
    /// The norm to which each example's gradient is clipped
    #[arg(
        long,
        value_name = "NORM",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "How much"
    )]
    clip_norm: f64,
    /// The standard deviation of Z instead, as it is (default: 1)
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, help_heading = "How much")]
    stddev: Option<f64>,
    /// A file with the key: it is read, or made with fresh bits if it is not there. Default: OUTPUT.key, always made
    #[arg(long, value_name = "FILE", help_heading = "Key")]
    key: Option<PathBuf>,
    /// A key from a number, for experiments: who knows or guesses the seed has the noise
    #[arg(long, value_name = "S", help_heading = "Key")]
    seed: Option<u64>,
    /// What expands a new key: aes256-ctr or chacha20 (default: aes256-ctr for a seed, else the faster one here)
    #[arg(long, value_name = "NAME", value_parser = Cipher::from_name, help_heading = "Key")]
    cipher: Option<Cipher>,
    /// Where to
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace an existing file, or an unfinished one of another job
    #[arg(long, help_heading = "Output")]
    force: bool,
    /// Memory to work with
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256MiB", help_heading = "Output")]
    memory: u64,
    /// Test the noise of this mechanism, on this machine, with a fresh key (or --seed, or --key)
    #[arg(long, conflicts_with_all = ["output", "rows", "coords", "force", "stddev", "noise_multiplier"])]
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
        let Some(params) = self.params else {
            return Err(Error::argument(
                "--params",
                "given: the number of parameters of the model",
                "nothing",
            )
            .into());
        };
        let rows = Span::within(self.rows, "--rows", mechanism.schema.steps() as u64)?;
        let rows = rows.start as usize..rows.end as usize;
        let coords = Span::within(self.coords, "--coords", params)?;
        if let Some(path) = &self.output {
            atomic::check(path, self.force)?;
        }
        let Some(stddev) = self.stddev(&mechanism, json)? else {
            return Ok(answer(false));
        };
        // Before any key is made or replaced: the margin for rounded weights takes a while for long mechanisms, and some have no
        // stream at all. Nothing is drawn yet, so any key will do.
        let any = Key::from_seed(0, Cipher::ChaCha20);
        let table = busy("preparing", || Table::new(&mechanism, &any, stddev, rows.clone(), coords.clone()))?;
        let about = show::About { mechanism: &mechanism, stddev, rows: rows.clone(), coords: coords.clone() };
        let Some(output) = &self.output else {
            about.show_plan(&table, json)?;
            return Ok(answer(true));
        };
        let keys = self.key_for(output)?;
        let table = table.with_key(&keys.key);
        let job = job::Job { table: &table, keys: &keys, rows, coords, output, force: self.force };
        let done = job.run(self.memory as usize)?;
        about.show_done(&table, &keys, output, &done, json)?;
        Ok(answer(true))
    }

    /// σ, or nothing where the file does not hold what it claims.
    fn stddev(&self, mechanism: &Mechanism, json: bool) -> anyhow::Result<Option<f64>> {
        if !(self.clip_norm > 0.0 && self.clip_norm.is_finite()) {
            return Err(Error::argument("--clip-norm", "positive and finite", self.clip_norm).into());
        }
        let Some(multiplier) = self.noise_multiplier else {
            if self.clip_norm != 1.0 {
                return Err(Error::argument(
                    "--clip-norm",
                    "given together with --noise-multiplier only",
                    self.clip_norm,
                )
                .into());
            }
            let stddev = self.stddev.unwrap_or(1.0);
            if !(stddev > 0.0 && stddev.is_finite()) {
                return Err(Error::argument("--stddev", "positive and finite", stddev).into());
            }
            return Ok(Some(stddev));
        };
        only("--noise-multiplier", &[("--stddev", self.stddev)])?;
        if !(multiplier > 0.0 && multiplier.is_finite()) {
            return Err(Error::argument("--noise-multiplier", "positive and finite", multiplier).into());
        }
        let examined = Examined::mechanism(mechanism)?;
        if !examined.report.ok() {
            examined.show(&self.file, json)?;
            eprintln!(
                "antiphon: {} does not hold what it claims, so no noise is drawn for it: see antiphon verify",
                self.file.display()
            );
            return Ok(None);
        }
        // Up: three roundings of a product.
        let stddev = multiplier * self.clip_norm * examined.report.sensitivity.upper * (1.0 + 1e-15);
        if !(stddev > 0.0 && stddev.is_finite()) {
            let allowed = "such that its product with clip norm and sensitivity is positive and finite";
            return Err(Error::argument("--noise-multiplier", allowed, multiplier).into());
        }
        Ok(Some(stddev))
    }

    /// The key of a job that writes to this file.
    fn key_for(&self, output: &std::path::Path) -> Result<Keys> {
        only("--seed", &[("--key", self.seed.and(self.key.as_ref()).map(|path| path.display()))])?;
        if let Some(seed) = self.seed {
            let key = Key::from_seed(seed, self.cipher.unwrap_or(Cipher::Aes256Ctr));
            return Ok(Keys { key, seeded: true, path: None, own: false });
        }
        let sharded = self.rows.is_some() || self.coords.is_some();
        let (path, named) = match &self.key {
            Some(path) => (path.clone(), true),
            None => (job::beside(output, "key"), false),
        };
        if !named && sharded {
            return Err(Error::Unsupported(
                "--rows and --coords make one shard of a whole, so say which: the same --key FILE (or --seed) for all of them"
                    .into(),
            ));
        }
        // The note comes before the file, and stays until that has its name.
        let unfinished = job::beside(output, "partial.json").exists();
        let key = match path.exists() {
            true if named || unfinished => {
                let key = key_file::read(&path)?;
                if let Some(cipher) = self.cipher.filter(|cipher| *cipher != key.cipher()) {
                    return Err(Error::argument(
                        "--cipher",
                        format!("{}, as the key has it", key.cipher()),
                        cipher,
                    ));
                }
                key
            }
            true if !self.force => {
                return Err(Error::File {
                    path,
                    reason: "exists, with the key of other noise. The same noise must not serve two runs: remove it, or use \
                             --force for a new one; for noise of the same run, name it with --key"
                        .into(),
                });
            }
            there => {
                if there {
                    std::fs::remove_file(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
                }
                key_file::create(&path, self.cipher.unwrap_or_else(Cipher::fastest))?
            }
        };
        Ok(Keys { key, seeded: false, path: Some(path), own: !named })
    }

    fn test(&self, mechanism: &Mechanism, json: bool) -> anyhow::Result<ExitCode> {
        only("--seed", &[("--key", self.seed.and(self.key.as_ref()).map(|path| path.display()))])?;
        let key = match (self.seed, &self.key) {
            (Some(seed), _) => Key::from_seed(seed, self.cipher.unwrap_or(Cipher::Aes256Ctr)),
            (None, Some(path)) => key_file::read(path)?,
            (None, None) => Key::from_os(self.cipher.unwrap_or_else(Cipher::fastest))?,
        };
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

/// The key of a job and where it comes from.
pub struct Keys {
    pub key: Key,
    pub seeded: bool,
    /// The file that has it, if one does.
    pub path: Option<PathBuf>,
    /// Whether it was made for this job alone.
    pub own: bool,
}
