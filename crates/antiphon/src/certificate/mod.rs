//! What a certificate proves: the lower bound a²/c on the loss of every mechanism.
//!
//! The checker's own code, which shares nothing with the optimizer's search beyond `linalg`: singular values for short runs
//! and dense workloads, determinants in linear time for long ones (`determinant`, `logarithms`, `stacked`). Either is a bound for every finite
//! certificate, forged ones included. The optimizer calls it once, at the end, so that it claims nothing that the checker cannot derive.

mod determinant;
mod logarithms;
mod product;
mod stacked;

pub use determinant::Determinants;
pub use stacked::Stacked;

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::Certificate;
use crate::schema::Schema;
use crate::workload::Workload;
use logarithms::Logarithms;
use rayon::prelude::*;

/// Up to this many steps a comes from singular values.
pub const MAX_SINGULAR_STEPS: usize = 4000;
/// Largest matrix of a certificate that is written out: 12,000 × 12,000.
const MAX_ENTRIES: u128 = 144_000_000;

/// Whether a certificate for reshuffled epochs can be evaluated: it takes singular values.
pub fn fits(schema: &Schema) -> bool {
    schema.steps() <= MAX_SINGULAR_STEPS
}

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
    let schema = certificate.schema(schema);
    if schema.steps() > MAX_SINGULAR_STEPS
        && let Some(bound) = lower_bound_in_linear_time(schema, workload, certificate)?
    {
        return Ok(bound);
    }
    if let (Schema::Reshuffled { epochs, steps_per_epoch }, false) = (schema, schema.is_listed()) {
        check_size(schema.steps(), schema.steps() + epochs)?;
        let (f, error) = product::factor(*epochs, *steps_per_epoch, certificate)?;
        let n = schema.steps() as f64;
        let norm = workload.product_norm(&dense::identity(schema.steps()));
        let a = nuclear_norm(workload, &f)? - n.sqrt() * norm * error; // down: ‖A·δ‖_* ≤ √n·‖A‖_F·‖δ‖_F
        return Ok(LowerBound { value: square_over_one(a, 1.0), method: "singular values" });
    }
    let a = nuclear_norm(workload, &factor(schema, certificate)?)?;
    Ok(LowerBound { value: square_over(a, certificate), method: "singular values" })
}

/// ‖A·L‖_*, rounded down.
fn nuclear_norm(workload: &Workload, l: &Matrix) -> Result<f64> {
    let product = workload.apply(l);
    let n = product.nrows() as f64;
    let sum: f64 = dense::singular_values(&product)?.iter().sum();
    // The computed product is within 3n·ε/2·‖|A||L|‖_F of AL, and, by backward stability, the computed values belong to
    // a matrix within a small multiple of n·ε‖AL‖_F of it. A nuclear norm changes by at most √n times that.
    Ok(sum - 8.0 * n.sqrt() * n * f64::EPSILON * workload.absolute_product_norm(l))
}

/// The same by determinants, for any number of steps; `None` where the structure does not apply.
pub fn lower_bound_in_linear_time(
    schema: &Schema,
    workload: &Workload,
    certificate: &Certificate,
) -> Result<Option<LowerBound>> {
    let stacked = Stacked::new(schema, workload, certificate);
    stacked.map(|stacked| from_determinants(&stacked, certificate)).transpose()
}

/// a from determinants: a bound whatever the certificate is (docs/theory.md, section 8).
pub fn from_determinants(stacked: &Stacked<'_>, certificate: &Certificate) -> Result<LowerBound> {
    let (low, high) = stacked.likely_spectrum();
    let rule = Logarithms::new(low, high)?;
    let determinants = Determinants::new(stacked);
    let terms: Vec<f64> = rule.nodes.par_iter().map(|node| determinants.logarithms(*node)).collect();
    let sum: f64 = terms.iter().zip(&rule.weights).map(|(term, weight)| term * weight).sum();
    // Down: Σ v_j ln(1 + τ_j/μ) ≤ μ^{-1/2}·supremum for every μ. 1e-12 is for the roundings of this sum and of √τ_j.
    let a = sum * (1.0 - 1e-12) / rule.supremum(1e-9);
    Ok(LowerBound { value: square_over(a, certificate), method: "determinants in square-root form" })
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
    square_over_one(a, c)
}

fn square_over_one(a: f64, c: f64) -> f64 {
    // Down. The root first: a² alone can overflow where a²/c does not. What is no number proves nothing.
    let root = a.max(0.0) / c.sqrt();
    let value = root * root * (1.0 - 16.0 * f64::EPSILON);
    if value.is_finite() { value } else { 0.0 }
}

/// A small file can name a large matrix.
fn check_size(steps: usize, columns: usize) -> Result<()> {
    if steps as u128 * columns as u128 <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "the certificate is too large for singular values ({steps} steps, {columns} columns), and the linear-time way needs \
         fixed epoch order and a prefix-sum, momentum or learning-rate workload"
    )))
}

/// All factors side by side: the n×(Σ k_π) matrix L with U = LLᵀ. For disjoint patterns it is square.
fn factor(schema: &Schema, certificate: &Certificate) -> Result<Matrix> {
    let patterns =
        schema.listed().ok_or_else(|| Error::Unsupported(format!("{} has no certificate", schema.name())))?;
    let columns = patterns.iter().map(Vec::len).sum();
    check_size(schema.steps(), columns)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_that_underflow_do_not_raise_the_bound() {
        // c = 1e-330 is below the smallest number; counted as zero it would make every loss impossible.
        let tiny = Certificate::new(vec![vec![1e-165]]);
        let value = square_over(1e-150, &tiny);
        assert!(value > 0.0 && value <= 1e30, "{value:e}"); // a²/c = 1e30 exactly
        // Where nothing underflows, nothing is lost: c = 1 + 4.
        let usual = Certificate::new(vec![vec![1.0], vec![2.0]]);
        let value = square_over(10.0, &usual);
        assert!(value <= 20.0 && value > 20.0 * (1.0 - 1e-13), "{value}"); // a dozen roundings of 2e-16
    }

    #[test]
    fn factors_of_any_size_prove_the_same_bound() {
        // a²/c does not depend on the scale of L, and for U = I it is (Σ singular values of A)²/n.
        let schema = Schema::single(100).unwrap();
        let workload = Workload::prefix_sum(100);
        let values = dense::singular_values(&workload.matrix()).unwrap();
        let exact = values.iter().sum::<f64>().powi(2) / 100.0;
        for exponent in [-170, -150, 0, 140, 152, 200, 300] {
            let certificate = Certificate::new(vec![vec![10f64.powi(exponent)]; 100]);
            for bound in [lower_bound, |s: &Schema, w: &Workload, c: &Certificate| {
                let linear = lower_bound_in_linear_time(s, w, c);
                Ok(linear.ok().flatten().unwrap_or(LowerBound { value: 0.0, method: "none" }))
            }] {
                let value = bound(&schema, &workload, &certificate).map_or(0.0, |bound| bound.value);
                assert!((0.0..=exact).contains(&value), "1e{exponent}: {value:e}, exact {exact:e}");
                assert!(exponent.abs() > 60 || value > 0.999 * exact, "1e{exponent}: {value:e}");
            }
        }
    }
}
