//! The lower bound of a certificate for reshuffled epochs: a law of patterns that picks the step of every epoch independently.
//!
//! It has a weight u_i ≥ 0 for every step, with Σ u_i ≤ 1 in every epoch, and a vector g_e with ‖g_e‖ ≤ 1 for every epoch. A unit that takes part in step i of epoch
//! e with probability u_i, independently for each epoch, and whose contributions have the inner products ⟨g_e, g_e'⟩ (and norm one), has on average
//!
//! ```text
//! U_ee = diag(u_e),   U_ee' = ⟨g_e, g_e'⟩·u_e u_e'ᵀ,   tr(XU) ≤ sens²(X),
//! ```
//!
//! so the loss of every mechanism is at least (tr(U^½VU^½)^½)² (docs/theory.md, section 10). Anything between 0 and U does as well. With D = diag(u_e), w = D^½1
//! and m = ‖w‖² = Σ u_i, F_e = D^½(I − t·wwᵀ) has F_e F_eᵀ = D − (2t − t²m)·u_e u_eᵀ, so U ⪰ F Fᵀ for F = [⊕ F_e | ⊕ u_e·G] as soon as
//! 2t − t²m ≥ ‖g_e‖². The bound is the square of the nuclear norm of A·F.

use crate::error::{Error, Result};
use crate::linalg::dense::Matrix;
use crate::mechanism::Certificate;

/// F for epochs of b steps, and a bound on the norm of its rounding errors.
pub fn factor(epochs: usize, b: usize, certificate: &Certificate) -> Result<(Matrix, f64)> {
    let n = epochs * b;
    let (weights, vectors) = certificate.factors.split_at(n);
    // Down, so that the sums of an epoch stay below one: b + 3 roundings.
    let largest = (0..epochs)
        .map(|e| weights[e * b..(e + 1) * b].iter().map(|u| u[0]).sum::<f64>())
        .fold(f64::MIN_POSITIVE, f64::max);
    let shrink = 1.0 - 4.0 * (b + 4) as f64 * f64::EPSILON;
    let u: Vec<f64> = weights.iter().map(|u| u[0] / largest * shrink).collect();
    let rows: Vec<&[f64]> = vectors[0].chunks(epochs).collect();
    let square = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
    let longest = rows.iter().map(|row| square(row)).fold(1.0, f64::max).sqrt();
    let scale = (1.0 - 4.0 * (epochs + 4) as f64 * f64::EPSILON) / longest; // down
    let mut f = Matrix::zeros(n, n + epochs);
    for e in 0..epochs {
        let steps = e * b..(e + 1) * b;
        let m: f64 = u[steps.clone()].iter().sum();
        let w: Vec<f64> = u[steps.clone()].iter().map(|u| u.sqrt()).collect();
        let t = shift(square(rows[e]) * scale * scale, m, epochs);
        for (i, step) in steps.clone().enumerate() {
            for (j, other) in steps.clone().enumerate() {
                f[(step, other)] = w[i] * (f64::from(i == j) - t * w[i] * w[j]);
            }
            (0..=e).for_each(|j| f[(step, n + j)] = u[step] * scale * rows[e][j]);
        }
    }
    if !(largest.is_finite() && longest.is_finite()) {
        return Err(Error::Numerical("the certificate has numbers whose squares are not finite".into()));
    }
    // Each entry is a sum of two products of at most five numbers: within 8ε of w_i·δ_ij + t·w_i²·w_j ≤ 2, or of u_i·‖g_e‖. As ‖w‖ ≤ 1 and t·m ≤ 1, the
    // rows of an epoch have errors of norm at most 8ε·3.
    Ok((f, 32.0 * f64::EPSILON * (epochs as f64).sqrt()))
}

/// t with 2t − t²m ≥ ρ, for ρ ≤ 1 and m ≤ 1: (1 − √(1 − ρm))/m, for a ρ that is larger by the rounding errors here. ρ itself is a sum of so many squares.
fn shift(rho: f64, m: f64, terms: usize) -> f64 {
    if m <= 0.0 {
        return 0.0; // the epoch has no weight
    }
    let rest = 1.0 - (rho * m * (1.0 + (terms + 8) as f64 * f64::EPSILON) + 32.0 * f64::EPSILON);
    (1.0 - rest.max(0.0).sqrt()) / m
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::lower_bound;
    use crate::schema::Schema;
    use crate::sensitivity::testing::{Noise, random_matrix};
    use crate::workload::Workload;

    /// Random certificates: F Fᵀ is at most U, which for every X has tr(XU) at most its squared sensitivity by brute force over patterns.
    #[test]
    fn random_certificates_prove_true_bounds() {
        let mut noise = Noise(91);
        for (epochs, b) in [(2, 3), (3, 2), (3, 3), (4, 2)] {
            let n = epochs * b;
            let schema = Schema::reshuffled(epochs, b).unwrap();
            for round in 0..40 {
                let scale = if round % 4 == 3 { 1e8 } else { 1.0 };
                let mut factors: Vec<Vec<f64>> = (0..n)
                    .map(|i| vec![if (round + i) % 7 == 0 { 0.0 } else { noise.uniform() * scale }])
                    .collect();
                let mut g = vec![0.0; epochs * epochs];
                for e in 0..epochs {
                    (0..=e).for_each(|j| {
                        g[e * epochs + j] = noise.normal() * if round % 3 == 0 { 3.0 } else { 0.5 }
                    });
                }
                factors.push(g);
                let certificate = Certificate::new(factors);
                let (f, _) = factor(epochs, b, &certificate).unwrap();
                let u = &f * f.transpose();
                for _ in 0..5 {
                    let c = random_matrix(&mut noise, n, n);
                    let x = c.transpose() * &c;
                    let trace: f64 = (0..n).map(|i| (0..n).map(|j| x[(i, j)] * u[(i, j)]).sum::<f64>()).sum();
                    let squared = crate::sensitivity::sensitivity_of_gram(&x, &schema).unwrap().upper.powi(2);
                    assert!(trace <= squared * (1.0 + 1e-9), "{trace} {squared}");
                }
                // Independent noise has the loss Σ_t (t + 1)·k.
                let bound = lower_bound(&schema, &Workload::prefix_sum(n), &certificate).unwrap().value;
                assert!(bound <= (epochs * n * (n + 1) / 2) as f64, "{bound}");
            }
        }
    }
}
