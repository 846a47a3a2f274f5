//! Noise: a field of independent standard normals z(row, coordinate), fixed by a [`Key`].
//!
//! A run draws the same rows of Z again and again, in pieces, on several threads and after a restart. So nothing here
//! has a state: each number is a pure function of key, row and coordinate, and any two ranges agree where they meet.
//!
//! # Layout
//!
//! The random words are ChaCha20 with a counter of 64 bits and a nonce of 64 bits (Bernstein's original form; RFC
//! 8439 moves 32 bits from the first to the second). The nonce is the row. One block of 64 bytes makes eight normals:
//!
//! ```text
//! block counter = coordinate / 8
//! bytes 16p .. 16p+8  of the block   radius word of the coordinates 8·block + 2p and + 2p+1
//! bytes 16p+8 .. 16p+16              angle word of the same two (little-endian, like the other)
//! ```
//!
//! Two bits of the angle word are the quadrant, 53 the angle in it, and the last 9 lengthen the radius word. Every
//! row and coordinate of 64 bits is allowed: the counter stays below 2⁶¹, so no word is used twice.
//!
//! # Limits
//!
//! The radius comes from 73 bits, so the field ends at √(2·74·ln 2) = 10.1 standard deviations; a normal pair is
//! further out with probability 2⁻⁷⁴. Numbers are `f64`, with the gaps between floating-point numbers; the privacy
//! theorems speak of real ones.
//!
//! Logarithm, sine and cosine are the `libm` crate's and all else is IEEE arithmetic, so every platform draws the
//! same bits.

use crate::error::{Error, Result};
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use std::f64::consts::FRAC_PI_2;

/// Bytes of a ChaCha block.
const BLOCK_BYTES: usize = 64;
/// Normals from a ChaCha block.
const BLOCK_NORMALS: usize = 8;
/// Blocks that are drawn at once: what fits the first cache.
const BATCH: usize = 32;

/// The secret that fixes all noise of a run: 256 bits.
///
/// Who knows the key knows the noise. It is not printed.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A fresh key from the operating system.
    pub fn from_os() -> Result<Key> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|reason| {
            Error::Unsupported(format!("the operating system has no random numbers for a key: {reason}"))
        })?;
        Ok(Key(bytes))
    }

    /// The key that belongs to a seed, for runs that are to be repeated.
    ///
    /// A seeded run is not private against anyone who knows the seed, or guesses it: 64 bits at most, and few where a
    /// person chose them.
    pub fn from_seed(seed: u64) -> Key {
        Key(Sha256::new()
            .chain_update(b"antiphon noise key v1")
            .chain_update(seed.to_le_bytes())
            .finalize()
            .into())
    }

    /// Writes z(row, first), z(row, first + 1), … to all of `out`.
    pub fn normals(&self, row: u64, first: u64, out: &mut [f64]) {
        let mut words = self.words(row, first / BLOCK_NORMALS as u64);
        let mut bytes = [0; BATCH * BLOCK_BYTES];
        let mut drawn = [0.0; BATCH * BLOCK_NORMALS];
        // A range may begin within a block: the normals before it are drawn and left out.
        let mut skip = (first % BLOCK_NORMALS as u64) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let blocks = (skip + rest.len()).div_ceil(BLOCK_NORMALS).min(BATCH);
            let bytes = &mut bytes[..blocks * BLOCK_BYTES];
            words.fill_bytes(bytes);
            for (pair, bytes) in drawn.as_chunks_mut::<2>().0.iter_mut().zip(bytes.as_chunks::<16>().0) {
                // The low half is the radius word: the bytes are little-endian.
                let word = u128::from_le_bytes(*bytes);
                *pair = normal_pair(word as u64, (word >> 64) as u64);
            }
            let count = (blocks * BLOCK_NORMALS - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&drawn[skip..skip + count]);
            rest = later;
            skip = 0;
        }
    }

    /// The random words of a row from a block on.
    fn words(&self, row: u64, block: u64) -> ChaCha20Rng {
        let mut words = ChaCha20Rng::from_seed(self.0);
        words.set_stream(row);
        words.set_block_pos(block);
        words
    }
}

impl std::fmt::Debug for Key {
    /// Without the key, so that no log has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Two independent normals from two random words (Box and Muller 1958).
fn normal_pair(radius_word: u64, angle_word: u64) -> [f64; 2] {
    let radius = radius(radius_word, angle_word & 0x1ff);
    let (sine, cosine) = direction(angle_word);
    [radius * cosine, radius * sine]
}

/// √(−2 ln u) with u in (0, 1] from the 64 bits of `word` and below them the 9 bits of `more`.
///
/// u = (512·word + more + ½)/2⁷³, rounded. It is the small u that reach far, and they keep all their digits.
fn radius(word: u64, more: u64) -> f64 {
    const WORD: f64 = 1.0 / (1u128 << 64) as f64;
    const MORE: f64 = 1.0 / (1u128 << 73) as f64;
    let u = word as f64 * WORD + (more as f64 + 0.5) * MORE;
    (-2.0 * libm::log(u)).sqrt()
}

/// Sine and cosine of an angle that is uniform on the circle, from the upper 55 bits.
///
/// The angle is a quadrant, by two bits, and t in (−π/4, π/4): there sine and cosine need no reduction.
fn direction(word: u64) -> (f64, f64) {
    const STEP: f64 = FRAC_PI_2 / (1u64 << 53) as f64;
    let signed = (word << 2) as i64 >> 11;
    // |signed| ≤ 2⁵², so the half is exact, and keeps the angles symmetric about zero.
    let (sine, cosine) = libm::sincos((signed as f64 + 0.5) * STEP);
    match word >> 62 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

#[cfg(test)]
mod tests;
