//! `antiphon make`.

use crate::args::{SchemaArgs, WorkloadArgs, whole};
use crate::keep::Keep;
use crate::output::{answer, figures_json, print_figures, print_json};
use crate::progress::Watch;
use antiphon::error::Error;
use antiphon::make;
use antiphon::mechanism::{Family, Structured};
use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::Instant;

/// Make a mechanism other than the optimum, with a proof of how far from the optimum it is
///
/// The optimum that `antiphon optimize` finds is a dense matrix: the noise of step t is computed from
/// the random numbers of all steps up to t. The mechanisms here come from formulas, except for
/// single-epoch. They exist for runs of any length, and their noise is cheaper to compute: it needs
/// one row of memory (identity), a few rows (tree-online), or a fast transform before training.
///
/// --stamps S cuts the run into S equal parts and restarts the mechanism in each. An example then
/// takes part less often within one part, which lowers the sensitivity, but noise is not correlated
/// across parts. `antiphon compare` finds the best number of stamps.
///
/// The participation schema is fixed epoch order or --patterns; there are no files for
/// --min-separation and --reshuffled.
///
/// Examples:
///   antiphon make tree-online --stamps 20 --epochs 20 --steps-per-epoch 100
///   antiphon make fft-optimal --epochs 4 --steps-per-epoch 512 --output m.safetensors
///   antiphon make single-epoch --epochs 4 --steps-per-epoch 512
///
/// Exit status 1: the gap was not reached.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Make {
    /// Which mechanism
    #[arg(value_enum, value_name = "FAMILY")]
    family: Families,
    /// Number of stamps: equal parts of the run, for each of which the mechanism is repeated
    #[arg(long, default_value_t = 1, value_name = "S", value_parser = whole, allow_negative_numbers = true)]
    stamps: usize,
    #[command(flatten)]
    schema: SchemaArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Relative accuracy of the optimum that the mechanism is compared with (0.001 is 0.1%; at least 1e-6)
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
    /// Independent noise in every step: DP-SGD without amplification by sampling
    Identity,
    /// Binary tree with Honaker's estimator from below, as in DP-FTRL: log n rows of memory
    TreeOnline,
    /// Binary tree with its optimal decoder; the noise is computed before training
    TreeOptimal,
    /// The paper's FFT mechanism; the noise is computed before training
    Fft,
    /// The FFT mechanism with its optimal decoder
    FftOptimal,
    /// The optimum for a single epoch, used for several: a dense matrix
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
            say!("{}{repeated}: a {} mechanism", self.family.name(), mechanism.noise().kind());
            print_figures(&mechanism);
            say!("  time          {seconds:.2} s");
            self.keep.print(&mechanism);
        }
        Ok(answer(true))
    }
}
