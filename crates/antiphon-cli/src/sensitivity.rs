//! `antiphon sensitivity`.

use crate::args::SchemaArgs;
use crate::output::{answer, bound, print_json};
use crate::verify::is_numpy;
use antiphon::error::Error;
use antiphon::linalg::dense;
use antiphon::mechanism::factorization::gram_matrix;
use antiphon::mechanism::{Factorization, Noise, Which};
use antiphon::optimize::MAX_DENSE_STEPS;
use antiphon::schema::Schema;
use antiphon::sensitivity::{self, Bound, Kind, Sensitivity, WorstCase};
use antiphon::{file, npy};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compute the sensitivity of a matrix under a participation schema
///
/// The sensitivity is the largest change of C·G in the Frobenius norm when the contributions of one
/// example, vectors of norm at most one, are set to zero (zero-out). `exact` means that an upper and
/// a lower bound agree to 1e-8. Otherwise the lower bound is what the worst pattern of steps that was found
/// reaches; there may be worse ones, so only the upper bound is safe to use.
///
/// Examples:
///   antiphon sensitivity C.npy --epochs 3 --steps-per-epoch 20
///   antiphon sensitivity C.npy --epochs 3 --steps-per-epoch 20 --reshuffled
///   antiphon sensitivity X.npy --gram --min-separation 20 --max-participations 3
///   antiphon sensitivity mechanism.safetensors --min-separation 100
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct SensitivityCommand {
    /// An encoder matrix C as .npy or .npz, or a mechanism file
    file: PathBuf,
    #[command(flatten)]
    schema: SchemaArgs,
    /// The matrix is X = CᵀC, not C
    #[arg(long)]
    gram: bool,
    /// Also show what every method of the paper that applies gives, and whether it is exact or a bound
    #[arg(long)]
    all_methods: bool,
}

impl SensitivityCommand {
    pub fn run(&self, json: bool) -> anyhow::Result<ExitCode> {
        let (found, methods, schema) = self.compute()?;
        let WorstCase { sensitivity: found, pattern } = found;
        let Sensitivity { upper, lower, method } = found;
        if json {
            let mut value = serde_json::json!({
                "upper": upper,
                "lower": lower,
                "kind": found.kind(),
                "method": method,
                "schema": schema,
                "worst_pattern": pattern,
            });
            if let Some(methods) = methods {
                value["methods"] = serde_json::to_value(methods)?;
            }
            print_json(&value)?;
        } else {
            say!("{}", self.file.display());
            say!("  participation {}", schema.describe());
            match found.kind() {
                Kind::Exact => say!("  sensitivity   {} (exact)", bound(upper, true)),
                _ => say!(
                    "  sensitivity   between {} and {}; use the upper bound",
                    bound(lower, false),
                    bound(upper, true)
                ),
            }
            if let Some(pattern) = pattern {
                let what = if found.kind() == Kind::Exact { "it" } else { "the lower bound" };
                say!("  worst pattern {} (reaches {what})", shortened(&pattern));
            }
            say!("  method        {}", method.describe());
            for Bound { value, kind, method } in methods.iter().flatten() {
                let label = match kind {
                    Kind::Exact => "exact",
                    Kind::UpperBound => "upper bound",
                    Kind::LowerBound => "lower bound, no guarantee",
                };
                say!(
                    "    {:<16} {label:<26} {}",
                    bound(*value, *kind != Kind::LowerBound),
                    method.describe()
                );
            }
        }
        Ok(answer(true))
    }

    #[allow(clippy::type_complexity)]
    fn compute(&self) -> anyhow::Result<(WorstCase, Option<Vec<Bound>>, Schema)> {
        if is_numpy(&self.file) {
            let m = npy::read(&self.file)?;
            let schema = self.schema.schema(Some(m.ncols()))?;
            let found = if self.gram {
                sensitivity::worst_case_of_gram(&m, &schema)?
            } else {
                sensitivity::worst_case_of_encoder(&m, &schema)?
            };
            let all = |m| sensitivity::all_methods(m, &schema);
            let methods = match (self.all_methods, self.gram) {
                (false, _) => None,
                (true, true) => Some(all(&m)?),
                (true, false) => Some(all(&dense::gram(&m))?),
            };
            return Ok((found, methods, schema));
        }
        if self.gram {
            return Err(Error::Unsupported("--gram is for .npy and .npz files".into()).into());
        }
        let mechanism = file::read(&self.file)?;
        let steps = mechanism.schema().steps();
        let schema =
            if self.schema.any() { self.schema.schema(Some(steps))? } else { mechanism.schema().clone() };
        let found = mechanism.worst_case(&schema)?;
        let methods = match mechanism.noise() {
            _ if !self.all_methods => None,
            Noise::Structured(structured) => {
                Some(self.methods_of(&structured.factorization(steps)?, &schema)?)
            }
            Noise::Dense(noising) => {
                // The methods of the paper work on the computed C and know nothing of its error.
                let residual = noising.inverse()?.residual;
                if residual > 1e-8 {
                    return Err(Error::Unsupported(format!(
                        "--all-methods needs a noising matrix that can be inverted accurately, but ‖C·C⁻¹ − I‖ may be {residual:.1e}"
                    ))
                    .into());
                }
                Some(sensitivity::all_methods(&mechanism.matrix(Which::X)?, &schema)?)
            }
            Noise::Implicit { .. } => None,
        };
        Ok((found, methods, schema))
    }

    /// The methods of the paper for a mechanism from a formula.
    fn methods_of(&self, factorization: &dyn Factorization, schema: &Schema) -> antiphon::Result<Vec<Bound>> {
        let steps = factorization.steps();
        if steps > MAX_DENSE_STEPS {
            return Err(Error::Unsupported(format!(
                "--all-methods needs the whole gram matrix, which is too large for {steps} steps (at most {MAX_DENSE_STEPS})"
            )));
        }
        sensitivity::all_methods(&gram_matrix(factorization), schema)
    }
}

/// The steps of a pattern in words: all of a short one, the first and the last of a long one.
fn shortened(pattern: &[usize]) -> String {
    const SHOWN: usize = 8;
    let list = |steps: &[usize]| steps.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    match pattern {
        [step] => format!("step {step}"),
        _ if pattern.len() <= SHOWN => format!("steps {}", list(pattern)),
        _ => {
            let (first, last) = (&pattern[..SHOWN - 2], pattern[pattern.len() - 1]);
            format!("steps {}, …, {last}: {} participations", list(first), pattern.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_patterns_are_shortened_and_counted() {
        assert_eq!(shortened(&[7]), "step 7");
        assert_eq!(shortened(&[0, 5, 10]), "steps 0, 5, 10");
        let eight: Vec<usize> = (0..8).collect();
        assert_eq!(shortened(&eight), "steps 0, 1, 2, 3, 4, 5, 6, 7");
        let twenty: Vec<usize> = (0..20).map(|i| 105 * i).collect();
        assert_eq!(shortened(&twenty), "steps 0, 105, 210, 315, 420, 525, …, 1995: 20 participations");
    }
}
