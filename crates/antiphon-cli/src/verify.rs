//! `antiphon verify`.

use crate::args::{SchemaArgs, WorkloadArgs};
use crate::output::{answer, figure, percent, print_json};
use crate::progress::{Watch, busy};
use antiphon::error::Error;
use antiphon::mechanism::Mechanism;
use antiphon::verify::Examined;
use antiphon::{file, npy};
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Recompute every claim of a mechanism file, or evaluate an encoder matrix from another package
///
/// For a mechanism file (.safetensors), the sensitivity, the loss and the lower bound on the loss of
/// every mechanism are computed again from the stored matrix and the stored certificate, and compared
/// with the claims in the file. No stored figure is trusted.
///
/// The file of a mechanism from a formula (`antiphon make`) has no matrix; the mechanism is derived
/// from its definition, with explicit matrices up to 2,000 steps and with fast algorithms beyond.
///
/// An encoder matrix C (.npy or .npz) needs a participation schema and a workload:
///   antiphon verify C.npy --epochs 20 --steps-per-epoch 100
///
/// Exit status 1: a claim of the file does not hold, or the matrix is not usable as an encoder.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Verify {
    /// A mechanism file, or an encoder matrix C as .npy or .npz
    file: PathBuf,
    #[command(flatten)]
    schema: SchemaArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Relative accuracy of the lower bound that the loss of an encoder matrix is compared with
    #[arg(long, default_value_t = 1e-4, value_name = "GAP", allow_negative_numbers = true)]
    gap: f64,
}

impl Verify {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let examined = if is_numpy(&self.file) { self.foreign()? } else { self.own()? };
        show(&examined, &self.file, json)?;
        Ok(answer(examined.report().ok()))
    }

    fn own(&self) -> anyhow::Result<Examined> {
        if self.schema.any() || self.workload.any() {
            return Err(Error::Unsupported(
                "a mechanism file contains its participation schema and its workload: leave these flags out"
                    .into(),
            )
            .into());
        }
        Ok(examine(file::read(&self.file)?)?)
    }

    fn foreign(&self) -> anyhow::Result<Examined> {
        let c = npy::read(&self.file)?;
        let schema = self.schema.schema(Some(c.ncols()))?;
        let workload = self.workload.workload(schema.steps())?;
        let watch = Watch::start(self.gap)?;
        let examined =
            Examined::encoder(&c, schema, &workload, self.gap, &|progress| watch.observe(progress));
        watch.finish();
        Ok(examined?)
    }
}

/// Derives again everything that a mechanism claims, with a sign of life.
pub fn examine(mechanism: Mechanism) -> antiphon::Result<Examined> {
    busy("verifying", || Examined::mechanism(mechanism))
}

/// Prints the verdict on the file with this path.
pub fn show(examined: &Examined, path: &Path, json: bool) -> anyhow::Result<()> {
    let report = examined.report();
    if !json {
        print(examined, path);
        return Ok(());
    }
    print_json(&serde_json::json!({
        "ok": report.ok(),
        "kind": examined.kind,
        "id": examined.id,
        "schema": examined.schema,
        "workload": examined.workload,
        "checks": report.checks,
        "sensitivity_upper": finite(report.sensitivity.upper),
        "sensitivity_lower": report.sensitivity.lower,
        "loss": finite(report.loss),
        "lower_bound": report.lower_bound,
        "over_optimum": report.over_optimum().and_then(finite),
    }))
}

/// The first lines about a file: its path and what it is for.
pub fn print_about(examined: &Examined, path: &Path) {
    say!("{}", path.display());
    say!("  participation {}", examined.schema.describe());
    say!("  workload      {}", examined.workload);
    if let Some(id) = &examined.id {
        say!("  id            {id} ({})", examined.kind);
    }
}

fn print(examined: &Examined, path: &Path) {
    let report = examined.report();
    print_about(examined, path);
    for check in &report.checks {
        let mark = if check.passed { "ok    " } else { "FAILED" };
        say!("  {mark} {:<16} {}", check.name, check.detail);
    }
    say!("  loss          {}", figure(report.loss));
    if let (Some(bound), Some(over)) = (report.lower_bound, report.over_optimum().and_then(finite)) {
        say!(
            "  at most {} above the best possible (lower bound {}, numerically certified)",
            percent(over),
            figure(bound)
        );
    }
    say!(
        "{}",
        match (report.ok(), examined.id.is_some()) {
            (true, true) => "Verified: every claim of the file holds.",
            (true, false) => "Usable. For privacy use the upper bound on the sensitivity.",
            (false, true) => "NOT verified: a claim of the file does not hold.",
            (false, false) => "NOT usable.",
        }
    );
}

/// Whether a file is one of NumPy's, by its first bytes or, where it cannot be read, by its name.
pub fn is_numpy(path: &Path) -> bool {
    let mut first = [0; 6];
    match std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first)) {
        Ok(()) => &first == b"\x93NUMPY" || first.starts_with(b"PK\x03\x04") || is_numpy_name(path),
        Err(_) => is_numpy_name(path),
    }
}

/// Whether a path has the name of a NumPy file.
pub fn is_numpy_name(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy") || e.eq_ignore_ascii_case("npz"))
}

/// JSON has no infinity.
fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}
