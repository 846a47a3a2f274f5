//! The mixing method: coordinate ascent on unit vectors, for max { tr(E R) : R ⪰ 0, diag R = 1 }.
//!
//! With R_ij = ⟨g_i, g_j⟩ the best g_i for fixed others is Σ_j E_ij g_j, normalised (Wang, Chang and Kolter,
//! "The mixing method", 2017). A sweep costs O(k²·√k). A few sweeps give a lower bound and nearly the
//! dual variables w_i = ‖Σ_j E_ij g_j‖; raised a little, w proves an upper bound: Diag(w) ⪰ E.

use super::interior::{self, column_sums};
use crate::linalg::dense::{self, Matrix};

/// How much deeper inside than needed the interior point method starts.
const LIFT: f64 = 4.0;

/// The mixing method: unit vectors g_i in few dimensions, R_ij = ⟨g_i, g_j⟩.
pub(super) struct Ascent {
    k: usize,
    /// Dimension of the vectors; above √(2k) there are generically no false maxima (Boumal, Voroninski and Bandeira).
    m: usize,
    /// E, row after row.
    e: Vec<f64>,
    /// g_0, g_1, …
    g: Vec<f64>,
    /// ‖Σ_j E_ij g_j‖, the dual variables at a maximum.
    w: Vec<f64>,
    absolute: f64,
    pull: Vec<f64>,
}

impl Ascent {
    pub(super) fn new(matrix: &Matrix) -> Self {
        let k = matrix.nrows();
        // At least √(2k) + 1, rounded up to whole vector registers; more dimensions do no harm.
        let m = ((2.0 * k as f64).sqrt().ceil() as usize + 1).min(k).next_multiple_of(4);
        let mut e = vec![0.0; k * k];
        for i in 0..k {
            for j in 0..k {
                e[i * k + j] = matrix[(i, j)];
            }
        }
        // A fixed start: the same matrix gives the same bracket on every machine.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut g = vec![0.0; k * m];
        for g in g.chunks_exact_mut(m) {
            for x in g.iter_mut() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *x = (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            }
            let norm = g.iter().map(|x| x * x).sum::<f64>().sqrt();
            g.iter_mut().for_each(|x| *x /= norm);
        }
        Ascent {
            k,
            m,
            absolute: column_sums(k, |i, j| e[i * k + j].abs()),
            e,
            g,
            w: vec![0.0; k],
            pull: vec![0.0; m],
        }
    }

    /// Σ_j E_ij g_j into `pull`, and its norm.
    fn pull(&mut self, i: usize) -> f64 {
        let (k, m) = (self.k, self.m);
        self.pull.fill(0.0);
        for (e, g) in self.e[i * k..(i + 1) * k].iter().zip(self.g.chunks_exact(m)) {
            for (p, g) in self.pull.iter_mut().zip(g) {
                *p += e * g;
            }
        }
        self.pull.iter().map(|p| p * p).sum::<f64>().sqrt()
    }

    /// g_i ← Σ_j E_ij g_j, normalised, for every i in turn: each is the exact maximum in g_i.
    pub(super) fn sweep(&mut self) {
        for i in 0..self.k {
            let norm = self.pull(i);
            // A row of zeros (or one so small that it does not matter) leaves g_i where it is.
            if norm > 1e-150 {
                let g = &mut self.g[i * self.m..(i + 1) * self.m];
                g.iter_mut().zip(&self.pull).for_each(|(g, p)| *g = p / norm);
            }
        }
    }

    /// tr(E GGᵀ), rounded down; leaves the dual variables in `w`.
    pub(super) fn evaluate(&mut self) -> f64 {
        let mut value = 0.0;
        for i in 0..self.k {
            self.w[i] = self.pull(i);
            let g = &self.g[i * self.m..(i + 1) * self.m];
            value += g.iter().zip(&self.pull).map(|(g, p)| g * p).sum::<f64>();
        }
        // Sums of k and of m terms, twice, and rows whose norm exceeds one by (m/2 + 2)u at most.
        value - (2 * self.k + 2 * self.m + 8) as f64 * f64::EPSILON * self.absolute
    }

    /// The upper bound Σ w'_i with w' a little above w, if that satisfies `enough` and Diag(w') ⪰ E.
    pub(super) fn upper_if(&self, e: &Matrix, enough: impl Fn(f64) -> bool) -> Option<f64> {
        let k = self.k as f64;
        let sum: f64 = self.w.iter().sum();
        let margin = (1.0 + interior::cholesky_margin(self.k)) * (1.0 + 2.0 * k * f64::EPSILON);
        // The bracket is monotone in the shift: take the largest power of two that is still enough.
        let upper = |shift: f64| sum * (1.0 + shift) * margin;
        let shift = (2..44).map(|p| 0.5f64.powi(p)).find(|shift| enough(upper(*shift)))?;
        interior::slack_factor(e, &self.lifted(shift)).map(|_| upper(shift))
    }

    /// w raised to (1 + shift)·Σw in sum: half in proportion to w, half uniform, so that a zero w_i rises as well.
    fn lifted(&self, shift: f64) -> Vec<f64> {
        let mean = self.w.iter().sum::<f64>() / self.k as f64;
        self.w.iter().map(|w| w + 0.5 * shift * (w + mean)).collect()
    }

    /// An interior point near the present one: w raised until it is feasible and four times as far again,
    /// and GGᵀ moved towards the identity by as much, so that the two sides are about equally deep inside.
    pub(super) fn start(&self, e: &Matrix) -> Option<(Vec<f64>, Matrix)> {
        let (k, m) = (self.k, self.m);
        let shift = (1..=20)
            .rev()
            .step_by(2)
            .map(|p| 0.5f64.powi(p))
            .find(|shift| interior::slack_factor(e, &self.lifted(*shift)).is_some())?;
        let depth = (LIFT * shift).min(0.5);
        let r = dense::from_fn(k, k, |i, j| {
            let (a, b) = (&self.g[i * m..(i + 1) * m], &self.g[j * m..(j + 1) * m]);
            let inner = || a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            if i == j { 1.0 } else { (1.0 - depth) * inner() }
        });
        Some((self.lifted(LIFT * shift), r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, random_gram};

    fn off_diagonal(k: usize) -> Matrix {
        let x = random_gram(&mut Noise(31), k, k);
        dense::from_fn(k, k, |i, j| if i == j { 0.0 } else { x[(i, j)] })
    }

    #[test]
    fn sweeps_never_descend_and_end_at_the_dual_value() {
        let e = off_diagonal(6);
        let mut ascent = Ascent::new(&e);
        let mut last = ascent.evaluate();
        for _ in 0..2000 {
            ascent.sweep();
            let value = ascent.evaluate();
            assert!(value >= last - 1e-12 * ascent.absolute);
            last = value;
        }
        let dual: f64 = ascent.w.iter().sum();
        assert!((dual - last).abs() < 1e-10 * last, "{dual} {last}");
        let upper = ascent.upper_if(&e, |upper| upper < last * (1.0 + 1e-8)).unwrap();
        assert!(last <= upper && upper < last * (1.0 + 1e-8));
    }

    #[test]
    fn an_upper_bound_is_not_claimed_before_it_is_feasible() {
        // After one sweep the dual variables sum to less than the maximum, so they cannot be feasible.
        let e = off_diagonal(6);
        let mut ascent = Ascent::new(&e);
        ascent.sweep();
        ascent.evaluate();
        let sum: f64 = ascent.w.iter().sum();
        assert_eq!(ascent.upper_if(&e, |upper| upper < sum * (1.0 + 1e-6)), None);
    }

    #[test]
    fn the_start_is_inside_on_both_sides() {
        let e = off_diagonal(9);
        let mut ascent = Ascent::new(&e);
        (0..30).for_each(|_| ascent.sweep());
        ascent.evaluate();
        let (w, mut r) = ascent.start(&e).unwrap();
        assert!(interior::slack_factor(&e, &w).is_some());
        assert!((0..9).all(|i| r[(i, i)] == 1.0));
        assert!(dense::small_cholesky_in_place(&mut r).is_ok());
    }
}
