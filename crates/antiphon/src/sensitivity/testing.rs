//! What the tests of this room share: random matrices from a fixed seed, and slow oracles.

use crate::linalg::dense::{self, Matrix};

/// A small generator with a fixed seed (SplitMix64), so that a failure repeats.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// Uniform on (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal, by Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    /// Uniform on low..=high.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.uniform() * (high - low + 1) as f64) as usize
    }
}

/// A matrix of standard normals.
pub(crate) fn random_matrix(noise: &mut Noise, rows: usize, columns: usize) -> Matrix {
    dense::from_fn(rows, columns, |_, _| noise.normal())
}

/// CᵀC for a random C with `rows` rows: k×k of rank min(rows, k), with mixed signs.
pub(crate) fn random_gram(noise: &mut Noise, rows: usize, k: usize) -> Matrix {
    dense::gram(&random_matrix(noise, rows, k))
}

/// The gram matrices that are hard in one way or another, of size k: which way depends on `number`.
pub(crate) fn hard_gram(noise: &mut Noise, number: usize, k: usize) -> Matrix {
    let mut x = match number % 8 {
        0 => random_gram(noise, k, k),
        1 => random_gram(noise, 2 * k, k),
        // Low rank.
        2 => random_gram(noise, 2, k),
        3 => random_gram(noise, k.div_ceil(3), k),
        // Nearly diagonal, by 1e-3 and by 1e-9.
        4 | 5 => {
            let tiny = if number % 8 == 4 { 1e-3 } else { 1e-9 };
            let e = random_gram(noise, k, k);
            dense::from_fn(k, k, |i, j| if i == j { 1.0 + i as f64 } else { tiny * e[(i, j)] })
        }
        // Nearly collinear columns: X close to a matrix of rank one with mixed signs.
        6 => {
            let direction: Vec<f64> = (0..k).map(|_| noise.normal()).collect();
            let c = dense::from_fn(k, k, |i, j| direction[i] + 1e-4 * noise.normal() - f64::from(j % 2 == 0));
            dense::gram(&c)
        }
        // The triangle's degeneracy: every correlation −1/(k−1), many optimal R.
        _ => {
            let wobble = 1e-7 * noise.normal();
            let off = -1.0 / (k as f64 - 1.0);
            dense::from_fn(k, k, |i, j| match i == j {
                true => 1.0,
                false => off + wobble * f64::from(i + j == 3),
            })
        }
    };
    let scale = [1.0, 1e-100, 1e100, 3.7][number / 8 % 4];
    for j in 0..k {
        for i in 0..k {
            x[(i, j)] *= scale;
        }
    }
    x
}

/// tr(X GGᵀ) for a random G with unit rows of dimension d.
pub(crate) fn random_contribution(noise: &mut Noise, x: &Matrix, d: usize) -> f64 {
    let mut g = random_matrix(noise, x.nrows(), d);
    for i in 0..g.nrows() {
        let norm = (0..d).map(|l| g[(i, l)] * g[(i, l)]).sum::<f64>().sqrt();
        (0..d).for_each(|l| g[(i, l)] /= norm);
    }
    let xg = x * &g;
    (0..d).map(|l| (0..g.nrows()).map(|i| g[(i, l)] * xg[(i, l)]).sum::<f64>()).sum()
}

/// All maximal-or-not patterns of minimum separation, the empty one excluded: exponentially many.
pub(crate) fn all_patterns(n: usize, b: usize, k: usize) -> Vec<Vec<usize>> {
    let mut found = Vec::new();
    let mut open: Vec<Vec<usize>> = (0..n).map(|i| vec![i]).collect();
    while let Some(pattern) = open.pop() {
        if pattern.len() < k {
            for next in pattern[pattern.len() - 1] + b..n {
                let mut longer = pattern.clone();
                longer.push(next);
                open.push(longer);
            }
        }
        found.push(pattern);
    }
    found
}
