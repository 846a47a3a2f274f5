//! Noise of a dense mechanism: rows of W·Z, without Z in memory.
//!
//! Row t needs the rows 0, …, t of Z. Keeping those of a model takes n·d numbers; drawing them again for every step takes
//! n²/2·d. So m rows are made together, from rows of Z that are drawn again once for all of them, in tiles of columns that stay
//! in the cache: m·d numbers of memory, n²/(2m)·d that are drawn, and n²/2·d multiply-adds, which take most of the time.
//!
//! Each number is a chain of fused multiply-adds in single precision over s = 0, …, t (product.rs), with weights σ·W(t, s) that
//! are rounded once. So it does not depend on m, on the range of coordinates, or on the machine.
//!
//! # Rounded weights
//!
//! The sensitivity that is proved for W is that of the stored numbers, and the weights are others: W + Δ with
//! |Δ| ≤ 2⁻²⁴·|W|. Their encoder is (W + Δ)⁻¹ = (I + CΔ)⁻¹C, so its sensitivity is at most sens(C)/(1 − κ) where
//!
//! ```text
//! ‖CΔ‖₂ ≤ 2⁻²⁴·‖|C||W|‖₂ ≤ 2⁻²⁴·√(‖|C||W|‖₁·‖|C||W|‖_∞) = κ.
//! ```
//!
//! All weights are made larger by the factor 1 + margin, with the margin the power of two above κ/(1 − κ): a little more noise, and
//! no less privacy.

use super::Key;
use super::product::{PANEL, Product};
use super::source::{Source, TILE, check_overflow};
use crate::error::{Error, Result};
use crate::mechanism::stream::{Access, Draw};
use crate::mechanism::{Inverse, NoisingMatrix};
use pulp::Arch;
use sha2::{Digest, Sha256};
use std::ops::Range;

/// σ·W in single precision.
pub(crate) struct Dense {
    /// The rows one after another, each up to the diagonal.
    weights: Vec<f32>,
    steps: usize,
}

impl Dense {
    /// With the margin for rounding.
    pub fn new(noising: &NoisingMatrix, stddev: f64) -> Result<Dense> {
        let larger = 1.0 + margin(noising, stddev)?;
        check_overflow(stddev, larger * row_sum(noising))?;
        let scale = stddev * larger;
        let weights: Vec<f32> = noising.packed().iter().map(|w| (scale * w) as f32).collect();
        Ok(Dense { weights, steps: noising.steps() })
    }
}

/// At least Σ_s |W(t, s)| for every t, with room for the rounding of the weights and of a chain of multiply-adds: (1 + 2⁻²⁴)ⁿ⁺² and
/// the roundings here are below 1 + (n + 3)·2⁻²³.
pub(crate) fn row_sum(noising: &NoisingMatrix) -> f64 {
    let (steps, packed) = (noising.steps(), noising.packed());
    let row = |t: usize| packed[t * (t + 1) / 2..][..=t].iter().map(|w| w.abs()).sum::<f64>();
    (0..steps).map(row).fold(0.0, f64::max) * (1.0 + (steps + 3) as f64 * 2f64.powi(-23))
}

/// How much larger all weights have to be for their rounding: a power of two, or zero where nothing is rounded.
fn margin(noising: &NoisingMatrix, stddev: f64) -> Result<f64> {
    let w = noising.packed();
    let exact = |w: &f64| f64::from((stddev * w) as f32) == stddev * w && (*w == 0.0 || stddev * w != 0.0);
    if stddev == 0.0 || w.iter().all(exact) {
        return Ok(0.0);
    }
    let Inverse { residual, absolute_product, squared_norm } = noising.inverse()?;
    // The product σ·(1 + margin)·w is rounded too, and numbers below the normal ones by up to 2⁻¹⁵⁰.
    let relative = 2f64.powi(-24) + 2f64.powi(-50);
    let tiny = 2f64.powi(-150) / stddev * noising.steps() as f64 * squared_norm.sqrt();
    // The computed inverse is (I + E)·C, ‖E‖ ≤ residual.
    let kappa = (relative * absolute_product + tiny) * (1.0 + 1e-9) / (1.0 - residual);
    if kappa.is_nan() || kappa >= 0.5 {
        return Err(Error::Unsupported(format!(
            "the mechanism is too ill-conditioned for noise in single precision: rounding may change its sensitivity by {kappa:.1e}"
        )));
    }
    Ok(2f64.powi((kappa / (1.0 - kappa)).log2().ceil() as i32))
}

impl Dense {
    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.steps
    }

    /// Some rows of σ·W·Z for a tile of columns, one after another.
    pub(crate) fn sums(&self, rows: Range<usize>, draw: Draw<'_>, sums: &mut [f32]) {
        let arch = Arch::new();
        let mut z = vec![0.0; PANEL * TILE];
        sums.fill(0.0);
        for panel in (0..rows.end).step_by(PANEL) {
            let end = (panel + PANEL).min(rows.end);
            for (s, z) in (panel..end).zip(z.chunks_mut(TILE)) {
                draw(s, z);
            }
            // Rows before the panel have ended.
            let start = rows.start.max(panel);
            let of_row = |i: usize| {
                let row = start + i;
                &self.weights[row * (row + 1) / 2..][panel..end.min(row + 1)]
            };
            let sums = &mut sums[(start - rows.start) * TILE..];
            arch.dispatch(Product { weights: of_row, rows: rows.end - start, z: &z, sums });
        }
    }

    /// The weights.
    pub(crate) fn describe_to(&self, hash: &mut Sha256) {
        hash.update(b"dense");
        self.weights.iter().for_each(|weight| hash.update(weight.to_le_bytes()));
    }
}

impl Source for Dense {
    fn steps(&self) -> usize {
        self.steps
    }

    fn tile(&self, key: &Key, rows: Range<usize>, first: u64, out: &mut [f32]) {
        self.sums(rows, &|row, z: &mut [f32]| key.fill_f32(row as u64, first, z), out);
    }

    fn access(&self) -> Access<'_> {
        Access::Together
    }

    fn describe(&self, hash: &mut Sha256) {
        self.describe_to(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Noise;
    use crate::noise::{Cipher, Rows};
    use crate::schema::Schema;
    use pulp::WithSimd;

    fn noising(steps: usize) -> NoisingMatrix {
        let packed: Vec<f64> = (0..steps)
            .flat_map(|i| {
                (0..=i).map(move |j| if i == j { 1.0 } else { ((i * 31 + j * 17) % 23) as f64 * 1e-3 - 0.01 })
            })
            .collect();
        NoisingMatrix::from_packed(steps, &packed).unwrap()
    }

    #[test]
    fn every_number_is_one_chain_of_multiply_adds() {
        let (w, key) = (noising(150), Key::from_seed(5, Cipher::ChaCha20));
        let dense = Dense::new(&w, 0.7).unwrap();
        let mut rows = Rows::new(&Noise::Dense(w), 150, &key, 0.7, 0..300, 1 << 16).unwrap();
        let mut row = vec![0.0; 300];
        for step in 0..150usize {
            rows.next_into(&mut row).unwrap();
            for j in [0, 7, 255, 256, 299] {
                let slow = (0..=step).fold(0.0f32, |sum, s| {
                    let mut z = [0.0f32];
                    key.fill_f32(s as u64, j, &mut z);
                    dense.weights[step * (step + 1) / 2 + s].mul_add(z[0], sum)
                });
                assert_eq!(row[j as usize].to_bits(), slow.to_bits(), "{step} {j}");
            }
        }
    }

    #[test]
    fn vectors_change_nothing() {
        let z: Vec<f32> = (0..PANEL * TILE).map(|i| ((i * 7919) % 1000) as f32 * 1e-3 - 0.5).collect();
        let weights: Vec<f32> = (0..20 * PANEL).map(|i| ((i * 104_729) % 997) as f32 * 1e-3 - 0.5).collect();
        // Rows of different depth, as along the diagonal.
        let of_row = |i: usize| &weights[i * PANEL..][..PANEL.min(110 + i)];
        let mut fast = vec![0.25; 20 * TILE];
        let mut portable = fast.clone();
        Arch::new().dispatch(Product { weights: of_row, rows: 20, z: &z, sums: &mut fast });
        Product { weights: of_row, rows: 20, z: &z, sums: &mut portable }.with_simd(pulp::Scalar);
        assert_eq!(fast, portable);
        for (i, j) in [(0, 0), (5, 255), (12, 100), (13, 17), (19, 255)] {
            let truth =
                of_row(i).iter().enumerate().fold(0.25f32, |sum, (s, w)| w.mul_add(z[s * TILE + j], sum));
            assert_eq!(fast[i * TILE + j], truth);
        }
    }

    /// The matrix that is used, as it is rounded, has no larger sensitivity than the one that was proved.
    #[test]
    fn rounding_costs_no_privacy() {
        let schema = Schema::epochs(4, 10).unwrap();
        for (scale, stddev) in [(1.0, 0.7), (3.7, 1.0), (1e-30, 1e9)] {
            let packed: Vec<f64> = noising(40).packed().iter().map(|w| w * scale).collect();
            let w = NoisingMatrix::from_packed(40, &packed).unwrap();
            let margin = margin(&w, stddev).unwrap();
            assert!((2f64.powi(-24)..1e-5).contains(&margin), "{margin}");
            let dense = Dense::new(&w, stddev).unwrap();
            let used: Vec<f64> = dense.weights.iter().map(|w| f64::from(*w) / stddev).collect();
            let used = NoisingMatrix::from_packed(40, &used).unwrap();
            let [proved, used] = [w, used].map(|w| w.sensitivity(&schema).unwrap().sensitivity);
            assert!(used.upper <= proved.lower * (1.0 + 1e-9), "{used:?} {proved:?}");
            assert!(used.upper >= proved.lower * (1.0 - 2.0 * margin));
        }
        // Halves are what they are.
        let halves = NoisingMatrix::from_packed(2, &[1.0, -0.5, 1.0]).unwrap();
        assert_eq!(margin(&halves, 1.0).unwrap(), 0.0);
        assert!(Dense::new(&halves, 1e39).is_err());
        assert!(margin(&halves, 1e-45).is_err());
        // A product that vanishes is not exact.
        let tiny = NoisingMatrix::from_packed(1, &[1e-200]).unwrap();
        assert!(Dense::new(&tiny, 1e-200).is_err());
    }
}
