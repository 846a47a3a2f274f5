//! `antiphon export`.

use crate::output::{answer, bound, print_json};
use antiphon::error::Error;
use antiphon::linalg::dense;
use antiphon::mechanism::Noise;
use antiphon::{file, npy};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a matrix of a dense mechanism as .npy
///
/// Example:
///   antiphon export mechanism.safetensors --matrix Cinv --output Cinv.npy
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Export {
    /// A dense mechanism file
    file: PathBuf,
    /// Which matrix: the encoder C, the decoder B = AC⁻¹, the Gram matrix X = CᵀC, or the noising matrix C⁻¹
    #[arg(long, value_enum)]
    matrix: Which,
    /// Where to
    #[arg(long, short, value_name = "M.npy")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Which {
    #[value(name = "C")]
    C,
    #[value(name = "B")]
    B,
    #[value(name = "X")]
    X,
    #[value(name = "Cinv")]
    Cinv,
}

impl Export {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let mechanism = file::read(&self.file)?;
        let Noise::Dense(noising) = &mechanism.noise else {
            return Err(Error::Unsupported(
                "an implicit mechanism has no matrix to export; optimize without --implicit".into(),
            )
            .into());
        };
        let matrix = match self.matrix {
            Which::C => noising.encoder()?,
            Which::B => mechanism.workload.apply(noising.matrix()),
            Which::X => dense::gram(&noising.encoder()?),
            Which::Cinv => noising.matrix().clone(),
        };
        let same = match (self.file.canonicalize(), self.output.canonicalize()) {
            (Ok(input), Ok(output)) => input == output,
            _ => false,
        };
        if same {
            return Err(
                Error::argument("--output", "another file than the input", self.output.display()).into()
            );
        }
        npy::write(&self.output, &matrix, self.force)?;
        let (rows, columns) = (matrix.nrows(), matrix.ncols());
        if json {
            print_json(&serde_json::json!({
                "matrix": format!("{:?}", self.matrix),
                "rows": rows,
                "columns": columns,
                "file": self.output.to_string_lossy(),
            }))?;
        } else {
            say!("Wrote {:?} ({rows}×{columns}) to {}.", self.matrix, self.output.display());
            say!(
                "The noise of step t is clip · noise_multiplier · sensitivity · (row t of C⁻¹Z), Z standard normal;"
            );
            say!(
                "the sensitivity of this mechanism is at most {}.",
                bound(mechanism.claims.sensitivity, true)
            );
        }
        Ok(answer(true))
    }
}
