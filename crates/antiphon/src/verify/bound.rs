//! The lower bound a²/c that a certificate proves, and the figures of an implicit mechanism.

use super::stacked::Stacked;
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::linalg::quadrature::{Quadrature, nodes_for};
use crate::mechanism::Certificate;
use crate::schema::Schema;
use crate::sensitivity::{self, Sensitivity};
use crate::workload::Workload;

/// Up to this many steps a comes from singular values.
const MAX_SINGULAR_STEPS: usize = 4000;
/// Largest matrix of a certificate that is written out: 12,000 × 12,000.
const MAX_ENTRIES: u128 = 144_000_000;
/// Relative rounding error allowed for a sum of resolvents in square-root form (an estimate).
const ROUNDING: f64 = 1e-9;

/// A lower bound on the loss of every mechanism.
#[derive(Debug, Clone, Copy)]
pub struct LowerBound {
    /// a²/c, rounded down.
    pub value: f64,
    /// How a was computed.
    pub method: &'static str,
}

/// The bound that a certificate proves for a workload under a schema.
pub fn lower_bound(schema: &Schema, workload: &Workload, certificate: &Certificate) -> Result<LowerBound> {
    certificate.check(schema)?;
    let long = schema.steps() > MAX_SINGULAR_STEPS;
    if let Some(stacked) = Stacked::new(schema, workload, certificate).filter(|_| long) {
        let (low, high) = stacked.spectrum();
        let rule = Quadrature::new(low, high, nodes_for(high / low, 1e-9))?;
        let a = stacked.trace(&stacked.blocks(&rule)?);
        return Ok(from_resolvents(a, &rule, certificate));
    }
    let l = factor(schema, certificate)?;
    let product = workload.apply(&l);
    let n = product.nrows() as f64;
    let sum: f64 = dense::singular_values(&product)?.iter().sum();
    // The computed product is within 3n·ε/2·‖|A||L|‖_F of AL, and, by backward stability, the computed values belong to
    // a matrix within a small multiple of n·ε‖AL‖_F of it. A nuclear norm changes by at most √n times that.
    let a = sum - 8.0 * n.sqrt() * n * f64::EPSILON * workload.absolute_product_norm(&l);
    Ok(LowerBound { value: square_over(a, certificate), method: "singular values" })
}

fn from_resolvents(a: f64, rule: &Quadrature, certificate: &Certificate) -> LowerBound {
    // a_N ≤ a·sup r(μ)√μ whatever the spectrum is (docs/theory.md, section 6).
    let a = a * (1.0 - ROUNDING) / rule.supremum(1e-9);
    LowerBound { value: square_over(a, certificate), method: "resolvents in square-root form" }
}

/// a²/c, rounded down, with c = Σ_π max_i ‖row i of L_π‖².
fn square_over(a: f64, certificate: &Certificate) -> f64 {
    let mut c = 0.0;
    for factor in &certificate.factors {
        let k = factor.len().isqrt();
        let largest = factor.chunks(k).map(|row| row.iter().map(|x| x * x).sum::<f64>()).fold(0.0, f64::max);
        // Up; squares that underflow lose less than k times the smallest normal number.
        c += largest * (1.0 + 2.0 * k as f64 * f64::EPSILON) + k as f64 * f64::MIN_POSITIVE;
    }
    c *= 1.0 + 2.0 * certificate.factors.len() as f64 * f64::EPSILON; // up
    (a.max(0.0) * a.max(0.0)) / c * (1.0 - 8.0 * f64::EPSILON) // down
}

/// All factors side by side: the n×(Σ k_π) matrix L with U = LLᵀ. For disjoint patterns it is square.
fn factor(schema: &Schema, certificate: &Certificate) -> Result<Matrix> {
    let patterns = schema
        .listed()
        .ok_or_else(|| Error::Unsupported("a minimum-separation schema has no certificate".into()))?;
    let columns = patterns.iter().map(Vec::len).sum();
    // A small file can name a large matrix.
    if schema.steps() as u128 * columns as u128 > MAX_ENTRIES {
        return Err(Error::Unsupported(format!(
            "the certificate is too large for singular values ({} steps, {columns} columns), and the linear-time way needs \
             fixed epoch order and a prefix-sum, momentum or learning-rate workload",
            schema.steps()
        )));
    }
    let mut l = Matrix::zeros(schema.steps(), columns);
    let mut offset = 0;
    for (steps, factor) in patterns.iter().zip(&certificate.factors) {
        let k = steps.len();
        for (i, step) in steps.iter().enumerate() {
            for j in 0..=i {
                l[(*step, offset + j)] = factor[i * k + j];
            }
        }
        offset += k;
    }
    Ok(l)
}

/// What follows from U and a quadrature rule alone.
pub struct Implicit {
    /// Of X_N(U).
    pub sensitivity: Sensitivity,
    /// tr(V·X_N⁻¹), rounded up.
    pub squared_error: f64,
    /// From U.
    pub lower_bound: LowerBound,
}

/// Derives the figures of X_N(U) = Σ w_j (V⁻¹ + τ_j U)⁻¹.
pub fn implicit(
    schema: &Schema,
    workload: &Workload,
    certificate: &Certificate,
    rule: &Quadrature,
) -> Result<Implicit> {
    rule.check()?;
    let stacked = Stacked::new(schema, workload, certificate).ok_or_else(|| {
        Error::Unsupported("an implicit mechanism needs a prefix-sum, momentum or learning-rate workload under fixed epoch order, with \
             momentum one whose rates rise at most a thousandfold: anything else cannot be verified"
                .into())
    })?;
    let blocks = stacked.blocks(rule)?;
    let a = stacked.trace(&blocks);
    // tr(V·X_N⁻¹) = Σ σ/h ≤ a/bottom and a ≤ a_N/bottom, if h ≥ bottom on the spectrum.
    let (low, high) = stacked.spectrum();
    let bottom = rule.infimum(low, high, 1e-9);
    let squared_error = if bottom > 0.0 { a * (1.0 + ROUNDING) / (bottom * bottom) } else { f64::INFINITY };
    let mut found = Sensitivity { upper: 0.0, lower: 0.0, method: sensitivity::Method::NonNegative };
    for block in &blocks {
        let mut block = block.clone();
        dense::symmetrize(&mut block);
        let bounds = sensitivity::pattern_squared(&block, 1e-9)?;
        if bounds.upper.sqrt() > found.upper {
            found.upper = bounds.upper.sqrt();
            found.method = bounds.method;
        }
        found.lower = found.lower.max(bounds.lower.sqrt());
    }
    found.upper *= 1.0 + ROUNDING; // up
    found.lower *= 1.0 - ROUNDING; // down
    Ok(Implicit { sensitivity: found, squared_error, lower_bound: from_resolvents(a, rule, certificate) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_that_underflow_do_not_raise_the_bound() {
        // c = 1e-330 is below the smallest number; counted as zero it would make every loss impossible.
        let tiny = Certificate { factors: vec![vec![1e-165]] };
        let value = square_over(1e-150, &tiny);
        assert!(value > 0.0 && value <= 1e30, "{value:e}"); // a²/c = 1e30 exactly
        // Where nothing underflows, nothing is lost: c = 1 + 4.
        let usual = Certificate { factors: vec![vec![1.0], vec![2.0]] };
        let value = square_over(10.0, &usual);
        assert!(value <= 20.0 && value > 20.0 * (1.0 - 1e-13), "{value}"); // a dozen roundings of 2e-16
    }
}
