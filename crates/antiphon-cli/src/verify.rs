//! `antiphon verify`.

use crate::args::{SchemaArgs, WorkloadArgs};
use crate::output::{answer, figure, percent, print_json};
use crate::progress::Watch;
use antiphon::error::Error;
use antiphon::verify::Report;
use antiphon::{file, npy, verify};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Derive again everything that a mechanism file claims, or examine a foreign matrix
///
/// A mechanism file (.safetensors) is checked against its own numbers: the sensitivity of the stored matrix, its loss,
/// and the lower bound that the certificate proves. No stored figure is believed.
///
/// A foreign encoder C (.npy or .npz) needs to be told the participation and the workload:
///   antiphon verify C.npy --epochs 20 --steps-per-epoch 100
///
/// Exit status: 0 everything holds, 1 something does not, 2 bad input.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Verify {
    /// A mechanism file, or an encoder C as .npy or .npz
    file: PathBuf,
    #[command(flatten)]
    schema: SchemaArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How exactly to find the optimum that a foreign matrix is compared with
    #[arg(long, default_value_t = 1e-4, value_name = "GAP")]
    gap: f64,
}

impl Verify {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let report = if is_numpy(&self.file) { self.foreign()? } else { self.own()? };
        let over = report.over_optimum();
        if json {
            print_json(&serde_json::json!({
                "ok": report.ok(),
                "checks": report.checks,
                "sensitivity_upper": finite(report.sensitivity.upper),
                "sensitivity_lower": report.sensitivity.lower,
                "loss": finite(report.loss),
                "lower_bound": report.lower_bound,
                "over_optimum": over.and_then(finite),
            }))?;
        } else {
            print(&self.file, &report);
        }
        Ok(answer(report.ok()))
    }

    fn own(&self) -> anyhow::Result<Report> {
        if self.schema.any() || self.workload.any() {
            return Err(Error::Unsupported(
                "a mechanism file says itself which participation and workload it is for: leave those flags out".into(),
            )
            .into());
        }
        Ok(verify::mechanism(&file::read(&self.file)?)?)
    }

    fn foreign(&self) -> anyhow::Result<Report> {
        let c = npy::read(&self.file)?;
        let schema = self.schema.schema(Some(c.ncols()))?;
        let workload = self.workload.workload(schema.steps())?;
        let watch = Watch::start(self.gap)?;
        let report = verify::encoder(&c, &schema, &workload, self.gap, &|progress| watch.observe(progress));
        watch.finish();
        Ok(report?)
    }
}

/// Whether a path names a NumPy file.
pub fn is_numpy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy") || e.eq_ignore_ascii_case("npz"))
}

/// JSON has no infinity.
fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

fn print(path: &Path, report: &Report) {
    println!("{}", path.display());
    for check in &report.checks {
        let mark = if check.passed { "ok    " } else { "FAILED" };
        println!("  {mark} {:<16} {}", check.name, check.detail);
    }
    println!("  loss {}", figure(report.loss));
    if let (Some(bound), Some(over)) = (report.lower_bound, report.over_optimum()) {
        println!(
            "  at most {} above the best possible (lower bound {}, numerically certified)",
            percent(over),
            figure(bound)
        );
    }
    println!("{}", if report.ok() { "Verified." } else { "NOT verified." });
}
