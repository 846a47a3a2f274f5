//! Oracles: finite differences, PyTorch, and slow obvious versions of what is fast.

mod differences;
mod engine;
mod federated;
mod goldens;
mod product;
mod tiles;
mod training;

use crate::real::Real;
use antiphon::noise::{Cipher, Key};

/// Normals from a seed.
fn normals<T: Real>(seed: u64, count: usize) -> Vec<T> {
    let mut out = vec![0f64; count];
    Key::from_seed(seed, Cipher::ChaCha20).fill_f64(0, 0, &mut out);
    out.into_iter().map(T::from_f64).collect()
}

/// The largest difference, relative to the largest entry.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0f64, |m, x| m.max(x.abs())).max(f64::MIN_POSITIVE);
    // Not a number is as far away as can be.
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / largest).fold(0.0, |m, x| if x <= m { m } else { x })
}
