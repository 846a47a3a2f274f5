//! Noise: a field of independent standard normals z(step, coordinate), fixed by a [`Key`].
//!
//! A run draws the same rows of Z again and again, in pieces, on several threads and after a restart. So nothing here
//! has a state: each number is a pure function of key, step and coordinate, and any two ranges agree where they meet.
//!
//! # Layout
//!
//! Coordinates come in groups of sixteen. Group g = coordinate / 16 of a step uses the words 8g, …, 8g + 7 of that
//! step's key stream (stream.rs), 128 bits each. Their 128 bytes are four rows of eight little-endian `u32`:
//!
//! ```text
//! bytes  0 ..  32    high halves of the radius words R₀ … R₇
//! bytes 32 ..  64    low halves of them
//! bytes 64 ..  96    high halves of the angle words A₀ … A₇
//! bytes 96 .. 128    low halves of them (not used for f32)
//! ```
//!
//! R_l and A_l make two normals (transform.rs), eight coordinates apart, which is what vector units like:
//!
//! ```text
//! z(step, 16g + l)     = radius(R_l) · cosine(A_l)
//! z(step, 16g + 8 + l) = radius(R_l) · sine(A_l)           l = 0 … 7
//! ```
//!
//! Every step and coordinate of 64 bits is allowed. Word numbers stay below 2⁶³, so no word is used twice.
//!
//! # Limits
//!
//! The radius has 64 random bits, so the field ends at √(2·65·ln 2) = 9.49 standard deviations; a pair of normals belongs
//! further out with probability 2⁻⁶⁵. The numbers are floating-point numbers; the privacy theorems speak of real ones.
//!
//! Each normal is within 4 units in the last place of what its words say in exact arithmetic (tests/oracle.rs: at most 3.3
//! over 52,000 random and extreme words), and has the same bits on every machine: the transform uses only operations whose
//! results IEEE 754 fixes.
//! (It must be a machine with IEEE arithmetic, which x86 without SSE2 is not.)

pub(crate) mod buffers;
pub(crate) mod dense;
pub mod file;
mod fill;
mod key;
pub mod key_file;
pub mod polynomials;
mod prepared;
mod product;
mod rows;
pub(crate) mod seal;
pub mod self_test;
mod source;
mod stamps;
mod statistics;
pub(crate) mod stddev;
mod stream;
mod streams;
mod table;
mod transform;

pub use fill::Normal;
pub use key::{Cipher, Key, Origin, fresh_secret};
pub use prepared::Prepared;
pub use rows::Rows;
pub use statistics::Test;
pub use stddev::Stddev;
pub use table::{Part, Table};

#[cfg(test)]
mod tests;
