//! `antiphon make`.

use crate::args::{SchemaArgs, WorkloadArgs};
use crate::keep::Keep;
use crate::output::{answer, figures_json, print_figures, print_json};
use crate::progress::Watch;
use antiphon::error::Error;
use antiphon::make;
use antiphon::mechanism::{Family, Structured};
use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::Instant;

/// Make one of the other mechanisms for a training run, with a proof of how far from the optimum it is
///
/// The optimum that `antiphon optimize` finds is a dense matrix: the noise of step t needs that
/// of all steps before it. The mechanisms here come from formulas, except for single-epoch. They
/// serve runs of any length, and noise is cheaper to draw from them: at once (identity), from a
/// few rows of memory (tree-online), or by fast transforms before training.
///
/// --stamps S cuts the run into S equal parts and starts the mechanism anew in each. An example
/// then meets itself less often within one stamp, which lowers the sensitivity, but the noise of
/// different stamps does not cancel. A few stamps are often better than one: try several numbers.
///
/// Examples:
///   antiphon make tree-online --stamps 20 --epochs 20 --steps-per-epoch 100
///   antiphon make fft-optimal --epochs 4 --steps-per-epoch 512 --momentum 0.9 --output m.safetensors
///   antiphon make single-epoch --epochs 4 --steps-per-epoch 512
///
/// Exit status: 0 done, 1 the gap was not reached, 2 bad input.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Make {
    /// Which mechanism
    #[arg(value_enum, value_name = "FAMILY")]
    family: Families,
    /// Repeat it this often, each time for an equal part of the steps
    #[arg(long, default_value_t = 1, value_name = "S")]
    stamps: usize,
    #[command(flatten)]
    schema: SchemaArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How exactly to find the optimum that the mechanism is compared with (0.001 is 0.1%; at least 1e-6)
    #[arg(
        long,
        default_value_t = 1e-3,
        value_name = "GAP",
        allow_negative_numbers = true,
        help_heading = "Optimization"
    )]
    gap: f64,
    #[command(flatten)]
    keep: Keep,
}

#[derive(Clone, Copy, ValueEnum)]
enum Families {
    /// Independent noise in every step, as DP-SGD has it (without amplification by sampling)
    Identity,
    /// Binary tree with Honaker's estimator from below, as DP-FTRL uses it: log n rows of memory
    TreeOnline,
    /// Binary tree with its best decoder; the noise must be drawn before training
    TreeOptimal,
    /// The paper's FFT mechanism; the noise must be drawn before training
    Fft,
    /// The same with its best decoder
    FftOptimal,
    /// The optimum for a single pass over the data, used for several: a dense matrix
    SingleEpoch,
}

impl Families {
    /// The formula, where there is one.
    fn formula(self) -> Option<Family> {
        match self {
            Families::Identity => Some(Family::Identity),
            Families::TreeOnline => Some(Family::TreeOnline),
            Families::TreeOptimal => Some(Family::TreeOptimal),
            Families::Fft => Some(Family::Fft),
            Families::FftOptimal => Some(Family::FftOptimal),
            Families::SingleEpoch => None,
        }
    }

    fn name(self) -> &'static str {
        self.formula().map_or("single-epoch", Family::name)
    }
}

impl Make {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let schema = self.schema.schema(None)?;
        let workload = self.workload.workload(schema.steps())?;
        self.keep.check()?;
        let start = Instant::now();
        let watch = Watch::start(self.gap)?;
        let observer = |progress: &_| watch.observe(progress);
        let stamps = self.stamps;
        let made = match self.family.formula() {
            Some(family) => {
                make::structured(Structured { family, stamps }, &schema, &workload, self.gap, &observer)
            }
            None => make::single_epoch(stamps, &schema, &workload, self.gap, &observer),
        };
        watch.finish();
        let mechanism = made?;
        if watch.stopped() {
            return Err(Error::Interrupted.into());
        }
        self.keep.write(&mechanism)?;
        let seconds = start.elapsed().as_secs_f64();
        if json {
            let mut value = figures_json(&mechanism);
            value["name"] = self.family.name().into();
            value["stamps"] = stamps.into();
            value["seconds"] = seconds.into();
            self.keep.add_to(&mut value, &mechanism);
            print_json(&value)?;
        } else {
            let repeated = if stamps == 1 { String::new() } else { format!(", {stamps} stamps") };
            say!("{}{repeated}: a {} mechanism", self.family.name(), mechanism.noise.kind());
            print_figures(&mechanism);
            say!("  time          {seconds:.2} s");
            self.keep.print(&mechanism);
        }
        Ok(answer(true))
    }
}
