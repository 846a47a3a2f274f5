//! Anderson acceleration of a fixed-point iteration x ← G(x).

use std::collections::VecDeque;

/// The differences of the last few iterates and residuals.
pub struct Anderson {
    memory: usize,
    last: Option<(Vec<f64>, Vec<f64>)>,
    /// (Δx, Δf), oldest first.
    differences: VecDeque<(Vec<f64>, Vec<f64>)>,
}

impl Anderson {
    /// Remembers `memory` differences.
    pub fn new(memory: usize) -> Self {
        Anderson { memory, last: None, differences: VecDeque::new() }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.last = None;
        self.differences.clear();
    }

    /// The next iterate, given x and G(x): x + f − (ΔX + ΔF)γ, where γ minimises ‖f − ΔF·γ‖ and f = G(x) − x.
    pub fn step(&mut self, x: Vec<f64>, image: Vec<f64>) -> Vec<f64> {
        let f: Vec<f64> = image.iter().zip(&x).map(|(g, x)| g - x).collect();
        if let Some((last_x, last_f)) = self.last.take() {
            // The oldest difference's memory is used again.
            let (mut dx, mut df) = (last_x, last_f);
            dx.iter_mut().zip(&x).for_each(|(d, x)| *d = x - *d);
            df.iter_mut().zip(&f).for_each(|(d, f)| *d = f - *d);
            if self.differences.len() == self.memory {
                self.differences.pop_front();
            }
            self.differences.push_back((dx, df));
        }
        let mut next = image;
        let gamma = self.coefficients(&f);
        for ((dx, df), gamma) in self.differences.iter().zip(&gamma) {
            for (next, (dx, df)) in next.iter_mut().zip(dx.iter().zip(df)) {
                *next -= gamma * (dx + df);
            }
        }
        self.last = Some((x, f));
        next
    }

    /// The least-squares coefficients, from normal equations with each column scaled to norm one and a ridge
    /// that keeps nearly dependent columns from blowing up.
    fn coefficients(&self, f: &[f64]) -> Vec<f64> {
        let m = self.differences.len();
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let columns: Vec<&[f64]> = self.differences.iter().map(|(_, df)| df.as_slice()).collect();
        let norms: Vec<f64> = columns.iter().map(|c| dot(c, c).sqrt().max(f64::MIN_POSITIVE)).collect();
        let mut system = vec![vec![0.0; m + 1]; m];
        for i in 0..m {
            for j in 0..=i {
                system[i][j] = dot(columns[i], columns[j]) / (norms[i] * norms[j]);
                system[j][i] = system[i][j];
            }
            system[i][i] += 1e-12;
            system[i][m] = dot(columns[i], f) / norms[i];
        }
        // Gaussian elimination; the matrix is symmetric positive definite, so no pivoting.
        for i in 0..m {
            for r in i + 1..m {
                let factor = system[r][i] / system[i][i];
                for c in i..=m {
                    system[r][c] -= factor * system[i][c];
                }
            }
        }
        let mut gamma = vec![0.0; m];
        for i in (0..m).rev() {
            let known: f64 = (i + 1..m).map(|c| system[i][c] * gamma[c]).sum();
            gamma[i] = (system[i][m] - known) / system[i][i];
        }
        gamma.iter().zip(&norms).map(|(g, norm)| g / norm).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_map_is_solved_in_as_many_steps_as_it_has_directions() {
        // G(x) = Mx + c with M = diag(0.9, 0.5, -0.7): plain iteration has the error 0.9^8 = 0.43 after 8 steps.
        let g = |x: &[f64]| vec![0.9 * x[0] + 1.0, 0.5 * x[1] - 2.0, -0.7 * x[2] + 3.0];
        let mut anderson = Anderson::new(5);
        let mut x = vec![0.0; 3];
        for _ in 0..8 {
            let image = g(&x);
            x = anderson.step(x, image);
        }
        for (x, expected) in x.iter().zip([10.0, -4.0, 3.0 / 1.7]) {
            assert!((x - expected).abs() < 1e-6, "{x} {expected}");
        }
    }
}
