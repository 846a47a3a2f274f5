//! `antiphon make`.

use crate::args::{SchemaArgs, WorkloadArgs, family_parser, whole};
use crate::keep::Keep;
use crate::output::{answer, figures_json, percent, print_figures, print_json};
use crate::progress::Watch;
use crate::verify::is_numpy;
use antiphon::error::{Error, Result};
use antiphon::families;
use antiphon::linalg::dense::Matrix;
use antiphon::make::{self, Made};
use antiphon::mechanism::family::{Needs, Run};
use antiphon::mechanism::{Family, Noise, Structured, Which, stamp};
use antiphon::text::counted;
use antiphon::{file, npy};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Make a mechanism other than the optimum, with a proof of how far from the optimum it is
///
/// The optimum that `antiphon optimize` finds is a dense matrix: the noise of step t is computed from
/// the random numbers of all steps up to t. Most mechanisms here come from formulas. They exist for
/// runs of any length, and their noise is cheaper to compute: it needs one row of memory (identity),
/// a few rows (tree-online, comb-blt, blt), or a fast transform before training. single-epoch,
/// per-epoch and from are dense matrices, one for each stamp.
///
/// comb-blt and blt come near the optimum in a handful of rows, for runs of any length. Their noise
/// is made from buffers: a buffer is one row of d numbers, one for each parameter of the model, that
/// is kept from step to step, multiplied by a factor below one and added to in every step. With D
/// buffers, training keeps D + 1 rows (buffers in double precision). comb-blt takes as few buffers as
/// it needs to be within --over-optimum of the best possible, blt as many as lower its loss;
/// --buffers D asks for exactly D. comb-blt is for fixed epoch
/// order: it also draws again, from the key, the random numbers of the same position in earlier
/// epochs, which takes time and no memory. blt draws nothing again, and may be used for
/// --min-separation.
///
/// --stamps S cuts the run into S equal parts and restarts the mechanism in each. An example then
/// takes part less often within one part, which lowers the sensitivity, but noise is not correlated
/// across parts. `antiphon compare` finds the best number of stamps.
///
/// `make from FILE` takes the encoder of a file, a mechanism or a matrix C as .npy, whatever it was
/// made for, and evaluates it for this run, with its optimal decoder. With S stamps it is repeated S
/// times; without --stamps, as often as it fits into the run.
///
/// Every file says how far from the best possible the mechanism is, at most, as far as that is known.
/// Under --min-separation the bound is that of a fixed order, whose patterns are among those allowed.
/// The sensitivity is exact or an upper bound, and the output says which.
///
/// Examples:
///   antiphon make tree-online --stamps 20 --epochs 20 --steps-per-epoch 100
///   antiphon make fft-optimal --epochs 4 --steps-per-epoch 512 --output m.safetensors
///   antiphon make single-epoch --epochs 4 --steps-per-epoch 512
///   antiphon make comb-blt --epochs 20 --steps-per-epoch 100
///   antiphon make comb-blt --buffers 4 --epochs 10 --steps-per-epoch 1e5 --momentum 0.9
///   antiphon make tree-online --steps 2052 --min-separation 342 --max-participations 6
///   antiphon make per-epoch --epochs 20 --steps-per-epoch 100 --reshuffled
///   antiphon make from C.npy --stamps 2 --epochs 20 --steps-per-epoch 100
///
/// Exit status 1: the gap was not reached.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Make {
    /// Which mechanism
    #[arg(value_name = "FAMILY", value_parser = family_parser())]
    family: Family,
    /// For `from`: a mechanism file, or an encoder C as .npy or .npz
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Number of stamps: equal parts of the run, for each of which the mechanism is repeated (default: 1; for `from` as many as fit)
    #[arg(long, value_name = "S", value_parser = whole, allow_negative_numbers = true)]
    stamps: Option<usize>,
    /// For comb-blt and blt: number of buffers, rows that are kept between steps, in 1..=16 (default: comb-blt as few as --over-optimum needs, blt
    /// as many as lower its loss)
    #[arg(long, value_name = "D", value_parser = whole, allow_negative_numbers = true)]
    buffers: Option<usize>,
    /// For comb-blt: how far above the best possible the loss may be, in (0, 1] (default: 0.015, that is 1.5%). If it cannot be
    /// reached, the mechanism is made all the same, and says how far it is
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    over_optimum: Option<f64>,
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
    /// Do not compute the best possible loss, which takes most of the time for long runs; the file then says nothing about the distance to it.
    /// comb-blt, per-epoch under reshuffling and optimal compute it in any case
    #[arg(long, conflicts_with = "gap", help_heading = "Optimization")]
    no_bound: bool,
    #[command(flatten)]
    keep: Keep,
}

impl Make {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let schema = self.schema.schema(None)?;
        let workload = self.workload.workload(schema.steps())?;
        self.keep.check()?;
        let encoder = self.encoder()?;
        self.check_over_optimum()?;
        let start = Instant::now();
        let watch = Watch::start(self.gap)?;
        let observer = |progress: &_| watch.observe(progress);
        let plain = Run::new(&schema, &workload, &observer);
        let over_optimum = self.over_optimum.unwrap_or(plain.over_optimum);
        let run =
            Run { gap: self.gap, buffers: self.buffers, over_optimum, without_bound: self.no_bound, ..plain };
        let made = match &encoder {
            Some(encoder) => make::from_encoder(encoder, self.stamps, &run),
            None => {
                let run = Run { stamps: self.stamps.unwrap_or(1), ..run };
                make::checked_design(self.family, &run).and_then(|designed| make::finish(designed, &run))
            }
        };
        watch.finish();
        let Made { mechanism, sensitivity, cost } = made?;
        if watch.stopped() {
            return Err(Error::Interrupted.into());
        }
        self.keep.write(&mechanism)?;
        let seconds = start.elapsed().as_secs_f64();
        let structured = match mechanism.noise() {
            Noise::Structured(structured) => Some(structured),
            _ => None,
        };
        let stamps = structured.map_or(1, |structured| structured.stamps);
        let buffers = structured.and_then(Structured::buffers);
        let rows = cost.map(|cost| cost.stream_memory_rows);
        let gap = mechanism.claims().lower_bound.map(|_| mechanism.claims().gap());
        let aims =
            self.over_optimum.is_some() || (self.family == families::COMB_BLT && self.buffers.is_none());
        if let (true, Some(gap)) = (aims, gap.filter(|gap| *gap > over_optimum)) {
            eprintln!(
                "antiphon: note: the loss is at most {} above the best possible; the {} of --over-optimum was not reached",
                percent(gap),
                percent(over_optimum)
            );
        }
        if json {
            let mut value = figures_json(&mechanism, sensitivity.as_ref());
            value["name"] = self.family.name().into();
            value["stamps"] = stamps.into();
            value["buffers"] = buffers.into();
            value["over_optimum"] = gap.into();
            value["stream_memory_rows"] = rows.into();
            value["seconds"] = seconds.into();
            self.keep.add_to(&mut value, &mechanism);
            print_json(&value)?;
        } else {
            match structured.filter(|_| buffers.is_some()) {
                Some(structured) => {
                    let distance = gap.map_or(String::new(), |gap| {
                        format!(", at most {} above the best possible", percent(gap))
                    });
                    let rows = counted(rows.unwrap_or_default(), "row");
                    say!("{}: {rows} of memory while training{distance}", structured.describe());
                }
                None => {
                    let title = stamp::title(self.family.name(), stamps);
                    say!("{title}: a {} mechanism", mechanism.noise().kind());
                }
            }
            print_figures(&mechanism, sensitivity.as_ref());
            say!("  time          {seconds:.2} s");
            self.keep.print(&mechanism);
        }
        Ok(answer(true))
    }

    /// Refuses a distance for families that do not look for one.
    fn check_over_optimum(&self) -> Result<()> {
        match self.over_optimum {
            Some(over) if !self.family.has_buffers() => {
                let allowed = format!("left out for {}, which has no buffers to choose", self.family);
                Err(Error::argument("over_optimum", allowed, over))
            }
            _ => Ok(()),
        }
    }

    /// The encoder that `from` asks for; none for other families.
    fn encoder(&self) -> Result<Option<Matrix>> {
        match (self.family.needs(), &self.file) {
            (Needs::Matrix, Some(path)) => encoder_of(path).map(Some),
            (Needs::Matrix, None) => {
                Err(Error::argument("FILE", "a mechanism file or an encoder as .npy", "nothing"))
            }
            (_, Some(path)) => {
                let allowed = format!("left out: {} is made from schema and workload", self.family);
                Err(Error::argument("FILE", allowed, path.display()))
            }
            (_, None) => Ok(None),
        }
    }
}

/// C of a mechanism file or a NumPy file.
fn encoder_of(path: &Path) -> Result<Matrix> {
    match is_numpy(path) {
        true => npy::read(path),
        false => file::read(path)?.matrix(Which::C),
    }
}
