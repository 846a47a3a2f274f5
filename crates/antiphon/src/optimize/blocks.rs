//! The dual variable U = ⊕_r v_r·L_r·L_rᵀ: one block per participation pattern.
//!
//! Each L_r is lower triangular with rows of norm one, so that L_r·L_rᵀ is a correlation matrix by
//! construction and c = Σ v_r. Everything here costs O(n·k²) and runs block by block.

use rayon::prelude::*;

/// U for disjoint patterns that cover all steps.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockDual {
    /// The steps of each block.
    pub patterns: Vec<Vec<usize>>,
    /// v_r.
    pub scales: Vec<f64>,
    /// L_r, row-major, k_r × k_r.
    pub factors: Vec<Vec<f64>>,
}

impl BlockDual {
    /// U = I.
    pub fn identity(patterns: Vec<Vec<usize>>) -> Self {
        let factors = patterns
            .iter()
            .map(|steps| {
                let k = steps.len();
                (0..k * k).map(|e| f64::from(e % (k + 1) == 0)).collect()
            })
            .collect();
        BlockDual { scales: vec![1.0; patterns.len()], factors, patterns }
    }

    /// c = Σ v_r.
    pub fn total(&self) -> f64 {
        self.scales.iter().sum()
    }

    /// √v_r·L_r: the factor of the block itself.
    pub fn scaled_factor(&self, r: usize) -> impl Iterator<Item = f64> + '_ {
        let root = self.scales[r].sqrt();
        self.factors[r].iter().map(move |x| root * x)
    }

    /// U_r = v_r·L_r·L_rᵀ.
    pub fn block(&self, r: usize) -> Vec<f64> {
        let l: Vec<f64> = self.scaled_factor(r).collect();
        let k = size_of_block(&l);
        let dot = |i: usize, j: usize| -> f64 { (0..=i.min(j)).map(|t| l[i * k + t] * l[j * k + t]).sum() };
        (0..k * k).map(|e| dot(e / k, e % k)).collect()
    }

    /// tr(U X) for a matrix X with the diagonal blocks `grams`.
    pub fn inner_product(&self, grams: &[Vec<f64>]) -> f64 {
        self.factors
            .par_iter()
            .zip(&self.scales)
            .zip(grams)
            .map(|((l, v), x)| {
                let k = size_of_block(l);
                let mut sum = 0.0;
                for j in 0..k {
                    for i in j..k {
                        let row: f64 = (j..k).map(|m| x[i * k + m] * l[m * k + j]).sum();
                        sum += l[i * k + j] * row;
                    }
                }
                v * sum
            })
            .collect::<Vec<f64>>()
            .iter()
            .sum()
    }

    /// The fixed-point update (docs/theory.md, section 5):
    /// E = X_r U_r X_r, s_i = √E_ii, v_r ← (Σ s_i)², U_r ← v_r·E_ij/(s_i s_j).
    ///
    /// With U_r = v·LLᵀ the rows of √v·X_r·L have the Gram matrix E, so its triangular factor comes from an LQ
    /// decomposition and E is never formed.
    pub fn update(&self, grams: &[Vec<f64>]) -> Self {
        let (factors, scales) = self
            .factors
            .par_iter()
            .zip(&self.scales)
            .zip(grams)
            .map(|((l, v), x)| {
                let k = size_of_block(l);
                let mut m = vec![0.0; k * k];
                for i in 0..k {
                    for t in 0..k {
                        let x = x[i * k + t];
                        for j in 0..=t {
                            m[i * k + j] += x * l[t * k + j];
                        }
                    }
                }
                lower_factor(&mut m, k);
                let norms = normalize_rows(&mut m, k);
                (m, v * norms * norms)
            })
            .unzip();
        BlockDual { patterns: self.patterns.clone(), factors, scales }
    }

    /// (√v_r·L_r)⁻¹, row-major, by forward substitution.
    pub fn inverse_factor(&self, r: usize) -> Vec<f64> {
        let l = &self.factors[r];
        let k = size_of_block(l);
        let scale = 1.0 / self.scales[r].sqrt();
        let mut inverse = vec![0.0; k * k];
        for j in 0..k {
            for i in j..k {
                let known: f64 = (j..i).map(|t| l[i * k + t] * inverse[t * k + j]).sum();
                let unit = if i == j { scale } else { 0.0 };
                inverse[i * k + j] = (unit - known) / l[i * k + i];
            }
        }
        inverse
    }

    /// Upper bounds on max ‖U_r‖₂ and max ‖U_r⁻¹‖₂: the trace v_r·k, and ‖L_r⁻¹‖²_F/v_r.
    pub fn norm_bounds(&self) -> (f64, f64) {
        let squares = |r| self.inverse_factor(r).iter().map(|x| x * x).sum::<f64>();
        let inverses: Vec<f64> = (0..self.factors.len()).into_par_iter().map(squares).collect();
        let traces = self.patterns.iter().zip(&self.scales).map(|(steps, v)| v * steps.len() as f64);
        (traces.fold(0.0, f64::max), inverses.into_iter().fold(0.0, f64::max))
    }

    /// Coordinates for extrapolation: ln v_r, and of each row of L_r the entries left of the diagonal and the
    /// logarithm of the diagonal one. Every vector of coordinates is a valid dual.
    pub fn coordinates(&self) -> Vec<f64> {
        let mut x = Vec::new();
        for (l, v) in self.factors.iter().zip(&self.scales) {
            let k = size_of_block(l);
            x.push(v.ln());
            for i in 0..k {
                x.extend_from_slice(&l[i * k..i * k + i]);
                x.push(l[i * k + i].ln());
            }
        }
        x
    }

    /// The dual with these coordinates; rows are normalised again.
    pub fn at_coordinates(&self, x: &[f64]) -> Self {
        let mut dual = self.clone();
        let mut x = x.iter().copied();
        let mut next = || x.next().unwrap_or(0.0);
        for (l, v) in dual.factors.iter_mut().zip(&mut dual.scales) {
            let k = size_of_block(l);
            *v = next().exp();
            for i in 0..k {
                for j in 0..i {
                    l[i * k + j] = next();
                }
                l[i * k + i] = next().exp();
            }
            normalize_rows(l, k);
        }
        dual
    }

    /// x ← (⊕ √v_r L_r)·x, or its transpose.
    pub fn apply_factor(&self, x: &mut [f64], transpose: bool) {
        for ((steps, l), v) in self.patterns.iter().zip(&self.factors).zip(&self.scales) {
            let k = steps.len();
            let part: Vec<f64> = steps.iter().map(|i| v.sqrt() * x[*i]).collect();
            for (i, step) in steps.iter().enumerate() {
                x[*step] = if transpose {
                    (i..k).map(|j| l[j * k + i] * part[j]).sum()
                } else {
                    (0..=i).map(|j| l[i * k + j] * part[j]).sum()
                };
            }
        }
    }
}

/// k for a k×k block stored as a slice.
pub fn size_of_block(block: &[f64]) -> usize {
    block.len().isqrt()
}

/// The product of two square blocks.
pub fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    let k = size_of_block(a);
    let mut c = vec![0.0; k * k];
    for i in 0..k {
        for t in 0..k {
            let a = a[i * k + t];
            let row = &b[t * k..(t + 1) * k];
            c[i * k..(i + 1) * k].iter_mut().zip(row).for_each(|(c, b)| *c += a * b);
        }
    }
    c
}

/// Replaces a square row-major m by the lower triangular L with LLᵀ = mmᵀ and a positive diagonal,
/// by Householder reflections of its rows from the right.
fn lower_factor(m: &mut [f64], k: usize) {
    let mut v = vec![0.0; k];
    for i in 0..k {
        let norm = m[i * k + i..(i + 1) * k].iter().map(|x| x * x).sum::<f64>().sqrt();
        let alpha = m[i * k + i];
        let sign = if alpha < 0.0 { -1.0 } else { 1.0 };
        v[i..k].copy_from_slice(&m[i * k + i..(i + 1) * k]);
        v[i] += sign * norm;
        let scale = norm * (norm + alpha.abs()); // vᵀv / 2
        m[i * k + i] = norm;
        m[i * k + i + 1..(i + 1) * k].fill(0.0);
        if scale == 0.0 {
            continue;
        }
        for row in m.chunks_exact_mut(k).skip(i + 1) {
            let dot: f64 = row[i..].iter().zip(&v[i..]).map(|(a, b)| a * b).sum();
            let factor = dot / scale;
            row[i..].iter_mut().zip(&v[i..]).for_each(|(a, b)| *a -= factor * b);
            row[i] *= -sign; // the sign that makes the diagonal positive
        }
    }
}

/// Scales every row of a lower triangular k×k block to norm one; returns the sum of the norms.
fn normalize_rows(l: &mut [f64], k: usize) -> f64 {
    let mut sum = 0.0;
    for i in 0..k {
        let row = &mut l[i * k..i * k + i + 1];
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
        sum += norm;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(k: usize, seed: f64) -> Vec<f64> {
        (0..k * k).map(|e| ((e as f64 + seed) * 1.7).sin() + 2.0 * f64::from(e % (k + 1) == 0)).collect()
    }

    #[test]
    fn the_lower_factor_has_the_same_gram_matrix() {
        for k in [1, 2, 5, 9] {
            let m = sample(k, 0.3);
            let mut l = m.clone();
            lower_factor(&mut l, k);
            for i in 0..k {
                assert!(l[i * k + i] > 0.0);
                for j in 0..k {
                    let dot = |a: &[f64]| -> f64 { (0..k).map(|t| a[i * k + t] * a[j * k + t]).sum() };
                    assert!((dot(&m) - dot(&l)).abs() < 1e-12);
                    assert!(j <= i || l[i * k + j] == 0.0);
                }
            }
        }
    }

    #[test]
    fn the_update_is_its_definition() {
        let k = 4;
        let mut dual = BlockDual::identity(vec![(0..k).collect()]);
        dual.factors[0] = sample(k, 0.1);
        lower_factor(&mut dual.factors[0], k);
        normalize_rows(&mut dual.factors[0], k);
        dual.scales[0] = 3.0;
        // A symmetric X.
        let s = sample(k, 0.9);
        let x: Vec<f64> = (0..k * k).map(|e| s[e] + s[(e % k) * k + e / k]).collect();
        let u = |dual: &BlockDual| -> Vec<f64> {
            let l = &dual.factors[0];
            let t: Vec<f64> = (0..k * k).map(|e| l[(e % k) * k + e / k]).collect();
            product(l, &t).iter().map(|x| x * dual.scales[0]).collect()
        };
        let e = product(&product(&x, &u(&dual)), &x);
        let roots: Vec<f64> = (0..k).map(|i| e[i * k + i].sqrt()).collect();
        let v = roots.iter().sum::<f64>().powi(2);
        let new = dual.update(std::slice::from_ref(&x));
        assert!((new.scales[0] - v).abs() < 1e-12 * v);
        for (index, value) in u(&new).iter().enumerate() {
            let expected = v * e[index] / (roots[index / k] * roots[index % k]);
            assert!((value - expected).abs() < 1e-11 * v);
        }
        let trace: f64 = (0..k).map(|i| product(&u(&dual), &x)[i * k + i]).sum();
        assert!((dual.inner_product(&[x]) - trace).abs() < 1e-12 * trace.abs());
    }

    #[test]
    fn coordinates_factors_and_inverses_fit() {
        let mut dual = BlockDual::identity(vec![vec![0, 2, 4], vec![1, 3]]);
        dual.factors[0] = vec![1.0, 0.0, 0.0, 0.6, 0.8, 0.0, 0.0, -0.6, 0.8];
        dual.scales = vec![2.0, 5.0];
        let back = dual.at_coordinates(&dual.coordinates());
        for (a, b) in back.factors.iter().flatten().zip(dual.factors.iter().flatten()) {
            assert!((a - b).abs() < 1e-15);
        }
        // L⁻¹·L = I, block by block.
        let mut x = [1.0, -2.0, 0.5, 3.0, 0.25];
        dual.apply_factor(&mut x, false);
        for (r, steps) in dual.patterns.iter().enumerate() {
            let (inverse, k) = (dual.inverse_factor(r), steps.len());
            for i in 0..k {
                let back: f64 = (0..k).map(|j| inverse[i * k + j] * x[steps[j]]).sum();
                assert!((back - [1.0, -2.0, 0.5, 3.0, 0.25][steps[i]]).abs() < 1e-14);
            }
        }
        // ⟨Lx, y⟩ = ⟨x, Lᵀy⟩
        let mut y = [0.3, 0.1, -1.0, 2.0, 0.7];
        let left: f64 = x.iter().zip(&y).map(|(a, b)| a * b).sum();
        dual.apply_factor(&mut y, true);
        let right: f64 = [1.0, -2.0, 0.5, 3.0, 0.25].iter().zip(&y).map(|(a, b)| a * b).sum();
        assert!((left - right).abs() < 1e-13);
    }
}
