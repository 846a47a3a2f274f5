//! `antiphon export`.

use crate::output::{answer, bound, print_json};
use crate::verify::examine;
use antiphon::error::Error;
use antiphon::mechanism::{Noise, Which};
use antiphon::{file, npy};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a matrix of a mechanism as .npy
///
/// For dense mechanisms, and for those from a formula (`antiphon make`) of at most 12,000 steps.
/// Of the latter, trees and FFT have an encoder C with more rows than columns, one for each row of
/// Z; Cinv is then the noising matrix W with W·C = I, and the decoder is B = AW.
///
/// After writing, the file is verified to give the sensitivity that scales the noise. If the
/// verification fails, the matrix is still written, but no sensitivity is given.
///
/// Example:
///   antiphon export mechanism.safetensors --matrix Cinv --output Cinv.npy
///
/// Exit status: 0 done, 1 the matrix was written but the file fails verification, 2 bad
/// input.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Export {
    /// A mechanism file that was not made with --implicit
    file: PathBuf,
    /// Which matrix: the encoder C, the decoder B = AC⁻¹, the Gram matrix X = CᵀC, or the noising matrix C⁻¹ (W where C
    /// is not square)
    #[arg(long, value_enum)]
    matrix: Names,
    /// The file to write
    #[arg(long, short, value_name = "M.npy")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Names {
    #[value(name = "C")]
    C,
    #[value(name = "B")]
    B,
    #[value(name = "X")]
    X,
    #[value(name = "Cinv")]
    Cinv,
}

impl Names {
    fn which(self) -> Which {
        match self {
            Names::C => Which::C,
            Names::B => Which::B,
            Names::X => Which::X,
            Names::Cinv => Which::Cinv,
        }
    }
}

impl Export {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let mechanism = file::read(&self.file)?;
        let matrix = mechanism.matrix(self.matrix.which())?;
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
        // Derived, not claimed: somebody scales noise with it.
        let name = if matches!(mechanism.noise(), Noise::Structured(_)) { "W" } else { "C⁻¹" };
        let sensitivity = match examine(mechanism) {
            Ok(examined) => examined.verified().ok().map(|verified| verified.sensitivity()),
            Err(error) => {
                eprintln!("antiphon: {error}");
                None
            }
        };
        if json {
            print_json(&serde_json::json!({
                "matrix": format!("{:?}", self.matrix),
                "rows": rows,
                "columns": columns,
                "file": self.output.to_string_lossy(),
                "verified": sensitivity.is_some(),
                "sensitivity": sensitivity,
            }))?;
        } else {
            say!("Wrote {:?} ({rows}×{columns}) to {}.", self.matrix, self.output.display());
            say!(
                "The noise of step t is clip · noise_multiplier · sensitivity · (row t of {name}·Z), Z standard normal;"
            );
            match sensitivity {
                Some(derived) => {
                    say!("the sensitivity of this mechanism is at most {}.", bound(derived, true))
                }
                None => say!("no sensitivity is given: {} FAILED verification.", self.file.display()),
            }
        }
        if sensitivity.is_none() {
            eprintln!(
                "antiphon: {} fails verification, so no sensitivity is given: see antiphon verify",
                self.file.display()
            );
        }
        Ok(answer(sensitivity.is_some()))
    }
}
