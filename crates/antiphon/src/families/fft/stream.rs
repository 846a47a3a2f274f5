//! Noise of the FFT mechanisms, for sixteen columns at a time.
//!
//! What the factorization does, with the same bits on every machine: coefficients are plain sums of cosines and sines, the
//! generator of X⁻¹ comes from the recursion of Levinson and Durbin, products are those of fourier.rs. With n steps:
//! O(n²) once, O(n log n) per column.

use super::fourier::{COLUMNS, Pairs, Toeplitz};
use crate::error::{Error, Result};
use crate::linalg::toeplitz::levinson;
use crate::mechanism::stream::{Access, Draw, Kernel, TILE, scaled};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::f64::consts::PI;
use std::ops::Range;

/// W as a product of Toeplitz matrices.
pub struct FftNoise {
    stddev: f64,
    /// The first column of the circulant F*·√v̂·F, of size 2n.
    root: Vec<f64>,
    /// Its n×2n corner, or that of its transpose.
    corner: Toeplitz,
    inverse: Option<Inverse>,
}

/// X⁻¹ = (L·Lᵀ − M·Mᵀ)/x_0 by the formula of Gohberg and Semencul, with x the first column of X⁻¹.
struct Inverse {
    column: Vec<f64>,
    /// L and Lᵀ, M and Mᵀ.
    factors: [[Toeplitz; 2]; 2],
}

impl FftNoise {
    /// For so many steps, with the decoder of the paper's Algorithm 1 or the optimal one.
    pub fn new(steps: usize, optimal: bool, stddev: f64) -> Result<FftNoise> {
        let size = 2 * steps as isize;
        let root = circulant(steps, (steps as f64).sqrt(), |theta| {
            // √(1 − i·cot θ) = e^{i(θ/2 − π/4)}/√sin θ.
            let length = 1.0 / libm::sin(theta).sqrt();
            let angle = theta / 2.0 - PI / 4.0;
            [length * libm::cos(angle), length * libm::sin(angle)]
        });
        let at = |place: isize| root[place.rem_euclid(size) as usize];
        let corner = match optimal {
            true => Toeplitz::new(steps, 2 * steps, |place| at(-place)),
            false => Toeplitz::new(steps, 2 * steps, at),
        };
        let inverse = if optimal { Some(Inverse::new(steps)?) } else { None };
        Ok(FftNoise { stddev, root, corner, inverse })
    }

    /// The noise of all steps from the 2n rows of Z.
    pub fn noise(&self, z: &mut Vec<Pairs>) {
        self.corner.apply(z);
        match &self.inverse {
            // W = X⁻¹Cᵀ.
            Some(inverse) => inverse.apply(z),
            // W = S⁻¹B: the differences of B·z.
            None => {
                for t in (1..z.len()).rev() {
                    z[t] = z[t].with(&z[t - 1], |now, before| now - before);
                }
            }
        }
    }
}

impl Kernel for FftNoise {
    fn inputs(&self) -> usize {
        self.root.len()
    }

    fn row_sum(&self) -> f64 {
        let bound = match &self.inverse {
            // W = X⁻¹Cᵀ, so a row has the squared norm (X⁻¹)_tt ≤ (L·Lᵀ)_tt/x_0 ≤ Σ x²/x_0, and it has 2n entries.
            Some(Inverse { column, .. }) => {
                let squares: f64 = column.iter().map(|x| x * x).sum();
                (self.root.len() as f64 * squares / column[0]).sqrt()
            }
            // The difference of two rows of the circulant.
            None => 2.0 * self.root.iter().map(|y| y.abs()).sum::<f64>(),
        };
        bound * (1.0 + 1e-6)
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        let mut z = vec![0.0; self.root.len() * TILE];
        z.chunks_mut(TILE).enumerate().for_each(|(input, row)| draw(input, row));
        for column in (0..TILE).step_by(COLUMNS) {
            let pairs = |row: &[f32]| Pairs::from_row(&row[column..column + COLUMNS]);
            let mut group: Vec<Pairs> = z.chunks(TILE).map(pairs).collect();
            self.noise(&mut group);
            for (t, out) in wanted.clone().zip(out.chunks_mut(TILE)) {
                scaled(self.stddev, (0..COLUMNS).map(|j| group[t].column(j)), &mut out[column..]);
            }
        }
    }

    fn access(&self) -> Access<'_> {
        Access::Whole
    }

    /// The coefficients.
    fn describe(&self, hash: &mut Sha256) {
        let inverse = self.inverse.iter().flat_map(|inverse| &inverse.column);
        self.root.iter().chain(inverse).for_each(|x| hash.update(x.to_le_bytes()));
    }
}

impl Inverse {
    fn new(steps: usize) -> Result<Inverse> {
        let mut gram = circulant(steps, steps as f64, |theta| [1.0 / libm::sin(theta), 0.0]);
        gram.truncate(steps);
        let column = levinson(&gram);
        let residual = (0..steps)
            .map(|i| (0..steps).map(|j| gram[i.abs_diff(j)] * column[j]).sum::<f64>() - f64::from(i == 0))
            .fold(0.0, |largest: f64, x| if x.abs() <= largest { largest } else { x.abs() });
        if !matches!(residual.partial_cmp(&1e-9), Some(std::cmp::Ordering::Less)) {
            return Err(Error::Numerical(format!(
                "the optimal decoder of {steps} steps was not found: the residual is {residual:.1e}"
            )));
        }
        let other = |i: usize| if i == 0 { 0.0 } else { column[steps - i] };
        let triangles = |generator: &dyn Fn(usize) -> f64| {
            let entry = |place: isize| if place >= 0 { generator(place as usize) } else { 0.0 };
            [Toeplitz::new(steps, steps, entry), Toeplitz::new(steps, steps, |place| entry(-place))]
        };
        let factors = [triangles(&|i| column[i]), triangles(&other)];
        Ok(Inverse { column, factors })
    }

    fn apply(&self, x: &mut [Pairs]) {
        let [first, second] = self.factors.each_ref().map(|[triangle, transpose]| {
            let mut x = x.to_vec();
            transpose.apply(&mut x);
            triangle.apply(&mut x);
            x
        });
        let scale = 1.0 / self.column[0];
        x.iter_mut().zip(first.iter().zip(&second)).for_each(|(x, (a, b))| {
            *x = a.with(b, |a, b| (a - b) * scale);
        });
    }
}

/// The first column of the real circulant of size 2n whose eigenvalue number k is `at_zero` for k = 0, zero for other even k, and
/// `at`(πk/2n) for odd k ≤ n; the others are conjugates of these.
fn circulant(steps: usize, at_zero: f64, at: impl Fn(f64) -> [f64; 2]) -> Vec<f64> {
    let size = 2 * steps;
    let values: Vec<(usize, [f64; 2])> =
        (1..=steps).step_by(2).map(|k| (k, at(PI * k as f64 / size as f64))).collect();
    let turn = |m: usize| {
        let angle = PI * m as f64 / steps as f64;
        [libm::cos(angle), libm::sin(angle)]
    };
    let turns: Vec<[f64; 2]> = (0..size).map(turn).collect();
    let entry = |j: usize| {
        let terms = values.iter().map(|(k, [re, im])| {
            let [cosine, sine] = turns[j * k % size];
            // The one at k = n is its own conjugate.
            if *k == steps { re * cosine } else { 2.0 * (re * cosine - im * sine) }
        });
        (at_zero + terms.sum::<f64>()) / size as f64
    };
    (0..size).into_par_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{FFT, FFT_OPTIMAL};
    use crate::linalg::dense;
    use crate::mechanism::{Factorization, Structured};
    use crate::noise::{Cipher, Key};

    #[test]
    fn it_is_the_noise_of_the_mechanism() {
        let key = Key::from_seed(3, Cipher::ChaCha20);
        for steps in [1, 2, 3, 5, 8, 31, 100] {
            let rows: Vec<[f32; COLUMNS]> = (0..2 * steps)
                .map(|s| {
                    let mut row = [0.0; COLUMNS];
                    key.fill_f32(s as u64, 0, &mut row);
                    row
                })
                .collect();
            let z = dense::from_fn(2 * steps, COLUMNS, |i, j| f64::from(rows[i][j]));
            for (family, optimal) in [(FFT, false), (FFT_OPTIMAL, true)] {
                let expected = Structured::formula(family, 1).factorization(steps).unwrap().noise(&z);
                let mut noise: Vec<Pairs> = rows.iter().map(|row| Pairs::from_row(row)).collect();
                FftNoise::new(steps, optimal, 1.0).unwrap().noise(&mut noise);
                for t in 0..steps {
                    for j in 0..COLUMNS {
                        let difference = (noise[t].column(j) - expected[(t, j)]).abs();
                        assert!(difference < 1e-11, "{steps} {family:?} {t} {j}: {difference}");
                    }
                }
            }
        }
    }
}
