//! The gram matrix of a comb between steps of the same residue, for all residues, in linear time.
//!
//! With G_s = L_s⁻¹·Diag(1/e_s) and H_s = G_sᵀG_s, the block of residue r is D_r·Z^r·D_r with D = 1/o and
//!
//! ```text
//! Z^r = Σ_s Y_s^rᵀ · H_s · Y_s^r,      Y_s^r[j, i] = c((j − i)·b + s − r),      c the coefficients of T⁻¹.
//! ```
//!
//! c is a sum of exponentials, so the sum over s is too: with M_q[j, i] = p_q^((j−i)b) for j ≥ i and N_q[j, i] = p_q^((j−i−1)b) for j > i,
//!
//! ```text
//! Y_s^r = Σ_q ω_q p_q^(s−r−1)·M_q       for s > r
//!       = Σ_q ω_q p_q^(b−1−(r−s))·N_q   for s < r
//!       = I + Σ_q ω_q p_q^(b−1)·N_q     for s = r,
//! ```
//!
//! and F_qq'(r) = Σ_{s>r} (p_q p_q')^(s−r−1) H_s follows from F_qq'(r + 1). docs/theory.md, section 10.

use super::filter::Filter;

/// Square matrices of one size, one after another, each row by row.
pub type Matrices = Vec<f64>;

/// The sums over s, for all r.
pub struct Sums<'a> {
    /// k.
    size: usize,
    /// b.
    period: usize,
    poles: &'a [f64],
    /// ω.
    weights: Vec<f64>,
    /// p_q^m for m = 0..=b, d numbers each.
    powers: Vec<f64>,
}

impl<'a> Sums<'a> {
    /// For k×k matrices and epochs of b steps.
    pub fn new(size: usize, period: usize, filter: &'a Filter) -> Sums<'a> {
        let powers = |m: usize| filter.poles().iter().map(move |pole| power(*pole, m));
        Sums {
            size,
            period,
            poles: filter.poles(),
            weights: filter.weights(),
            powers: (0..=period).flat_map(powers).collect(),
        }
    }

    fn powers(&self, m: usize) -> &[f64] {
        &self.powers[m * self.poles.len()..][..self.poles.len()]
    }

    /// Z^r for every r, from H_s for every s: b matrices each. All must be symmetric.
    pub fn grams(&self, h: &[f64]) -> Matrices {
        let (mut after, before) = rayon::join(|| self.after(h), || self.before(h));
        after.iter_mut().zip(&before).for_each(|(z, more)| *z += more);
        after
    }

    /// The transpose of [`Sums::grams`]: Σ_r Y_s^r·S^r·Y_s^rᵀ for every s. Steps in reverse order turn one into the other.
    pub fn transposed(&self, s: &[f64]) -> Matrices {
        let reversed = |m: &[f64]| m.iter().rev().copied().collect::<Vec<f64>>();
        reversed(&self.grams(&reversed(s)))
    }

    /// s ≥ r.
    fn after(&self, h: &[f64]) -> Matrices {
        let square = self.size * self.size;
        let mut own = vec![0.0; square];
        let last = self.powers(self.period - 1).iter().zip(&self.weights).map(|(p, w)| p * w);
        let last: Vec<f64> = last.collect();
        let mut work = Work::new(self, 0);
        let mut out = vec![0.0; h.len()];
        for r in (0..self.period).rev() {
            let (h, out) = (&h[r * square..][..square], &mut out[r * square..][..square]);
            work.add_squares(out, |_, _| 1.0);
            // (I + N)ᵀ·H·(I + N), N = Σ ω_q p_q^(b−1) N_q: in two steps, because H is symmetric.
            own.copy_from_slice(h);
            for (q, weight) in last.iter().enumerate() {
                work.rows(q, 1, *weight, h, &mut own);
            }
            work.turn(&own);
            let turned = std::mem::take(&mut work.turned);
            out.iter_mut().zip(&turned).for_each(|(z, x)| *z += x);
            for (q, weight) in last.iter().enumerate() {
                work.rows(q, 1, *weight, &turned, out);
            }
            work.turned = turned;
            work.advance(h);
        }
        out
    }

    /// s < r.
    fn before(&self, h: &[f64]) -> Matrices {
        let square = self.size * self.size;
        let mut work = Work::new(self, 1);
        let mut out = vec![0.0; h.len()];
        for r in 0..self.period {
            let (h, out) = (&h[r * square..][..square], &mut out[r * square..][..square]);
            let left = self.powers(self.period - 1 - r);
            if r > 0 {
                work.add_squares(out, |q, other| left[q] * left[other]);
            }
            work.accumulate(h, self.powers(r));
        }
        out
    }
}

/// p^m; zero where it is too small for a number.
pub(super) fn power(p: f64, m: usize) -> f64 {
    if m == 0 { 1.0 } else { p.powf(m as f64) }
}

/// Running sums F_qq' for all pairs q ≤ q'.
struct Work<'a> {
    sums: &'a Sums<'a>,
    /// 0 for M and 1 for N: by how many epochs the first entry is below the diagonal.
    shift: usize,
    f: Vec<f64>,
    half: Vec<f64>,
    turned: Vec<f64>,
    row: Vec<f64>,
}

impl<'a> Work<'a> {
    fn new(sums: &'a Sums<'a>, shift: usize) -> Work<'a> {
        let (d, square) = (sums.poles.len(), sums.size * sums.size);
        Work {
            sums,
            shift,
            f: vec![0.0; d * d * square],
            half: vec![0.0; square],
            turned: vec![0.0; square],
            row: vec![0.0; sums.size],
        }
    }

    fn pair(&self, q: usize, other: usize) -> std::ops::Range<usize> {
        let (d, square) = (self.sums.poles.len(), self.sums.size * self.sums.size);
        let first = (q.min(other) * d + q.max(other)) * square;
        first..first + square
    }

    /// F ← H + p_q p_q' F.
    fn advance(&mut self, h: &[f64]) {
        let poles = self.sums.poles;
        for q in 0..poles.len() {
            for other in q..poles.len() {
                let (rho, range) = (poles[q] * poles[other], self.pair(q, other));
                self.f[range].iter_mut().zip(h).for_each(|(f, h)| *f = h + rho * *f);
            }
        }
    }

    /// F ← F + (p_q p_q')^s H, for the powers p^s.
    fn accumulate(&mut self, h: &[f64], powers: &[f64]) {
        for q in 0..powers.len() {
            for other in q..powers.len() {
                let weight = powers[q] * powers[other];
                if weight > 0.0 {
                    let range = self.pair(q, other);
                    self.f[range].iter_mut().zip(h).for_each(|(f, h)| *f += weight * h);
                }
            }
        }
    }

    /// out += Σ ω_q ω_q' w_qq' M_qᵀ F_qq' M_q'.
    fn add_squares(&mut self, out: &mut [f64], scale: impl Fn(usize, usize) -> f64) {
        let d = self.sums.poles.len();
        for q in (0..d).filter(|q| scale(*q, 0) > 0.0) {
            let (mut half, f) = (std::mem::take(&mut self.half), std::mem::take(&mut self.f));
            half.fill(0.0);
            for other in 0..d {
                let weight = self.sums.weights[other] * scale(q, other);
                if weight > 0.0 {
                    self.rows(other, self.shift, weight, &f[self.pair(q, other)], &mut half);
                }
            }
            self.turn(&half);
            let turned = std::mem::take(&mut self.turned);
            self.rows(q, self.shift, self.sums.weights[q], &turned, out);
            (self.half, self.f, self.turned) = (half, f, turned);
        }
    }

    /// out += weight·M_qᵀ·m, or N_qᵀ: row i is row i + shift of m, plus p_q^b times the row after it.
    fn rows(&mut self, q: usize, shift: usize, weight: f64, m: &[f64], out: &mut [f64]) {
        let (k, decay) = (self.sums.size, self.sums.powers(self.sums.period)[q]);
        self.row.fill(0.0);
        for i in (0..k - shift).rev() {
            let source = &m[(i + shift) * k..][..k];
            for ((row, source), out) in self.row.iter_mut().zip(source).zip(&mut out[i * k..][..k]) {
                *row = source + decay * *row;
                *out += weight * *row;
            }
        }
    }

    /// The transpose.
    fn turn(&mut self, m: &[f64]) {
        let k = self.sums.size;
        self.turned.resize(k * k, 0.0);
        for i in 0..k {
            for j in 0..k {
                self.turned[j * k + i] = m[i * k + j];
            }
        }
    }
}
