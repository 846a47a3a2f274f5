//! Combs: noise from a few buffers and the normals of the same residue, for fixed epoch order.
//!
//! | file | room |
//! |---|---|
//! | `filter` | T, the inverse of a BLT: poles and zeros |
//! | `shape` | the numbers of a comb and what they mean |
//! | `definition` | C and W written out, for `verify` |
//! | `factorization` | what a comb does to vectors |
//! | `blocks` | its gram matrix between steps of one residue, in linear time |
//! | `sensitivity` | its sensitivity in fixed order |
//! | `loss` | the variance of the noise in every iterate, and its gradient |
//! | `design` | the numbers for a run |
//! | `stream` | its noise, row after row |
//! | `margin` | how much more of it makes up for rounded coefficients |
//! | `written_out` | its sensitivity under schemas that it was not made for |

mod blocks;
pub(in crate::families) mod definition;
mod design;
pub mod factorization;
pub mod filter;
mod loss;
mod margin;
mod sensitivity;
pub mod shape;
pub(in crate::families) mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod written_out;

pub use shape::Comb;

use crate::error::Result;
use crate::mechanism::Family;
use crate::mechanism::family::{Designed, Explicit, Needs, Parameters, Row, Run, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::Kernel;
use crate::mechanism::{Noise, Structured};
use crate::schema::Schema;
use factorization::Coefficients;
use shape::{name, packed_len};
use std::sync::Arc;

/// A comb whose filter is a BLT.
pub const COMB_BLT: Family = Family::of(&CombBlt);

struct CombBlt;

impl Row for CombBlt {
    fn name(&self) -> &'static str {
        "comb-blt"
    }

    fn about(&self) -> &'static str {
        "A few buffers and replayed normals: near the optimum in a handful of rows, for any number of steps; fixed epoch order"
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn buffers(&self, parameters: &Parameters) -> Option<usize> {
        Some(parameters.get(name::POLES).len())
    }

    fn refuses(&self, schema: &Schema) -> Option<String> {
        let instead = match schema {
            _ if self.suits(schema) => return None,
            Schema::FixedOrder { .. } => {
                "leave out the limit of participations, which lie below the number of epochs"
            }
            Schema::MinSeparation { .. } => "blt and single-epoch can be made for minimum separation",
            Schema::Reshuffled { .. } => "per-epoch is made for reshuffled epochs",
            Schema::Patterns { .. } => "optimal is made for a list of patterns",
        };
        Some(format!(
            "comb-blt mixes the normals of fixed positions of the epoch, so its sensitivity is small only where every example keeps its \
             position in all epochs (fixed epoch order); {instead}"
        ))
    }

    fn suits(&self, schema: &Schema) -> bool {
        schema.residues().is_some()
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        let (comb, certificate, bound) = design::design(run)?;
        let noise = Noise::Structured(Structured::new(COMB_BLT, 1, comb.to_parameters()));
        Ok(Designed::Proven(noise, certificate, bound))
    }

    fn parameters(
        &self,
        _steps: usize,
        _stamps: usize,
        length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        Some(parameters(length))
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        let comb = Comb::from_parameters(stamp.steps, stamp.parameters)?;
        comb.check_size()?;
        Ok(Arc::new(Coefficients::new(comb)))
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        definition::explicit(&Comb::from_parameters(stamp.steps, stamp.parameters)?)
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        let coefficients = Coefficients::new(Comb::from_parameters(stamp.steps, stamp.parameters)?);
        Ok(Arc::new(stream::Noise::new(coefficients, stddev)?))
    }
}

/// The parameters of a comb with so many buffers and knots; what is given of some says how long the others are.
pub(super) fn parameters(length: &dyn Fn(&str) -> usize) -> Vec<(&'static str, u128)> {
    let (d, knots, gains) = (length(name::POLES), length(name::MIX_KNOTS), length(name::GAIN_KNOTS));
    let k = length(name::INPUT_GAIN).checked_div(gains).unwrap_or(0);
    let mut all = vec![
        (name::PERIOD, 1),
        (name::POLES, d as u128),
        (name::ZEROS, d as u128),
        (name::MIX_KNOTS, knots as u128),
        (name::MIX, knots as u128 * packed_len(k) as u128),
        (name::GAIN_KNOTS, gains as u128),
        (name::INPUT_GAIN, gains as u128 * k as u128),
        (name::OUTPUT_GAIN, gains as u128 * k as u128),
    ];
    let residues = length(name::RESIDUE_GAIN);
    all.extend((residues > 0).then_some((name::RESIDUE_GAIN, residues as u128)));
    all
}

#[cfg(test)]
mod tests;
