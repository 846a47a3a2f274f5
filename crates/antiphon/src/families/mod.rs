//! The table of families: every kind of mechanism, one file each.
//!
//! The optimizer's commands, `make`, `plan`, the file format, training and Python read this table and have no list of their own. To add a
//! family, write its file and add its line to the table.
//!
//! | file | family |
//! |---|---|
//! | `identity` | independent noise |
//! | `tree` | binary trees, online and optimal decoder |
//! | `fft` | the FFT mechanism and its optimal decoder |
//! | `single_epoch` | the optimum for a single participation, repeated |
//! | `given` | an encoder that somebody has, repeated |
//! | `per_epoch` | the best that is independent between epochs |
//! | `blt` | a filter of a few buffers, and a factor for each step |
//! | `comb` | a filter of a few buffers, and normals of earlier epochs drawn again |
//! | `optimal` | the optimum for the run |
//! | `stored` | what `single_epoch`, `given` and `per_epoch` share: matrices that a file keeps |

pub mod blt;
pub mod comb;
pub mod fft;
pub mod given;
pub mod identity;
pub mod optimal;
pub mod per_epoch;
pub mod single_epoch;
mod stored;
pub mod tree;

pub use blt::BLT;
pub use comb::COMB_BLT;
pub use fft::{FFT, FFT_OPTIMAL};
pub use given::FROM;
pub use identity::IDENTITY;
pub use optimal::OPTIMAL;
pub use per_epoch::PER_EPOCH;
pub use single_epoch::SINGLE_EPOCH;
pub use tree::{TREE_ONLINE, TREE_OPTIMAL};

use crate::error::{Error, Result};
use crate::mechanism::Family;
use crate::mechanism::family::{Explicit, Needs};

/// The table, from the simplest to the best.
const TABLE: &[Family] = &[
    IDENTITY,
    TREE_ONLINE,
    TREE_OPTIMAL,
    FFT,
    FFT_OPTIMAL,
    FROM,
    SINGLE_EPOCH,
    PER_EPOCH,
    BLT,
    COMB_BLT,
    OPTIMAL,
    #[cfg(test)]
    tests::HALVES,
];

/// All families, from the simplest to the best.
pub fn all() -> impl DoubleEndedIterator<Item = Family> {
    TABLE.iter().copied()
}

/// Those that can be made from schema and workload alone.
pub fn candidates() -> impl DoubleEndedIterator<Item = Family> {
    all().filter(|family| family.needs() != Needs::Matrix)
}

/// Those whose mechanisms a name and a number of stamps describe: nothing else is stored.
pub fn formulas() -> impl DoubleEndedIterator<Item = Family> {
    all().filter(|family| family.parameters(1, 1, &|_| 0).is_some_and(|parameters| parameters.is_empty()))
}

/// The family of this name, of today or of a former version.
pub fn named(name: &str) -> Result<Family> {
    let called = |family: &Family| family.name() == name || family.aliases().contains(&name);
    all()
        .find(called)
        .ok_or_else(|| Error::argument("the mechanism", format!("one of {}", names(all())), name))
}

/// Their names, for messages.
pub fn names(families: impl Iterator<Item = Family>) -> String {
    families.map(|family| family.name()).collect::<Vec<_>>().join(", ")
}

/// Matrices without rounding errors.
fn exactly(encoder: crate::linalg::dense::Matrix, noising: crate::linalg::dense::Matrix) -> Explicit {
    Explicit { encoder, noising, column_error: 0.0 }
}

#[cfg(test)]
mod tests;
