//! The paper's brute force: max sᵀXs over all signs s.
//!
//! Exact for scalar contributions. For vectors only a lower bound in general: the paper's own
//! counterexample has 1 by signs and 1.125 by vectors.

use super::interior::column_sums;
use crate::error::{Error, Result};
use crate::linalg::dense::Matrix;

/// Largest pattern for which all signs are tried: 2¹⁹ of them, the first sign being fixed by symmetry.
pub const LARGEST: usize = 20;
/// How many flips share one running value before it is computed afresh.
const REFRESH: usize = 64;

/// The best signs and what they reach.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalarMaximum {
    /// sᵀXs, rounded down.
    pub lower: f64,
    /// max sᵀXs over all signs, rounded up.
    pub upper: f64,
    /// s.
    pub signs: Vec<i8>,
}

/// The squared sensitivity of one pattern for *scalar* contributions, by trying all signs: O(k·2^k).
pub fn scalar_squared(x: &Matrix) -> Result<ScalarMaximum> {
    let k = x.nrows();
    if k == 0 || k > LARGEST || x.ncols() != k {
        return Err(Error::argument(
            "the size of a pattern for the brute force over signs",
            format!("in 1..={LARGEST}"),
            if x.ncols() == k { k.to_string() } else { format!("{}×{}", k, x.ncols()) },
        ));
    }
    let entry = |i: usize, j: usize| x[(i.max(j), i.min(j))];
    let rows: Vec<f64> = (0..k * k).map(|p| entry(p / k, p % k)).collect();
    let mut signs = vec![1.0; k];
    let mut fields = vec![0.0; k];
    let mut value = refresh(&rows, &signs, &mut fields);
    let (mut best, mut best_code) = (value, 0usize);
    // Gray code: step t flips the sign of the lowest set bit of t, so one sign changes at a time.
    for t in 1..1usize << (k - 1) {
        let i = t.trailing_zeros() as usize;
        let row = &rows[i * k..(i + 1) * k];
        // s_i ← −s_i changes sᵀXs by −4 s_i (Xs)_i + 4 X_ii.
        value += 4.0 * (row[i] - signs[i] * fields[i]);
        signs[i] = -signs[i];
        let change = 2.0 * signs[i];
        fields.iter_mut().zip(row).for_each(|(f, x)| *f += change * x);
        if t % REFRESH == 0 {
            value = refresh(&rows, &signs, &mut fields);
        }
        if value > best {
            (best, best_code) = (value, t ^ (t >> 1));
        }
    }
    let signs: Vec<f64> = (0..k).map(|i| if best_code >> i & 1 == 1 { -1.0 } else { 1.0 }).collect();
    let absolute = column_sums(k, |i, j| entry(i, j).abs());
    // T updates since the last refresh. After t of them Xs is off by (k + 2t)u of a row's absolute sum, the
    // next update adds four times that and 13u of its own: (4T² + 4kT + 17T)u in all, and 2k·u once.
    let drift = (REFRESH * (2 * REFRESH + 2 * k + 9) + k) as f64 * f64::EPSILON * absolute;
    let fresh = 2.0 * k as f64 * f64::EPSILON * absolute;
    let reached = refresh(&rows, &signs, &mut fields);
    Ok(ScalarMaximum {
        lower: (reached - fresh).max(0.0),
        upper: best.max(reached) + drift,
        signs: signs.iter().map(|s| *s as i8).collect(),
    })
}

/// fields ← Xs, and sᵀXs.
fn refresh(rows: &[f64], signs: &[f64], fields: &mut [f64]) -> f64 {
    let k = signs.len();
    for (field, row) in fields.iter_mut().zip(rows.chunks_exact(k)) {
        *field = row.iter().zip(signs).map(|(x, s)| x * s).sum();
    }
    fields.iter().zip(signs).map(|(f, s)| f * s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::sensitivity::testing::{Noise, random_gram};

    #[test]
    fn the_gray_code_agrees_with_plain_enumeration() {
        let mut noise = Noise(7);
        for k in 1..=11 {
            let x = random_gram(&mut noise, k, k);
            let mut expected = f64::NEG_INFINITY;
            for code in 0..1u32 << k {
                let sign = |i: usize| if code >> i & 1 == 1 { -1.0 } else { 1.0 };
                expected = expected.max(column_sums(k, |i, j| sign(i) * x[(i, j)] * sign(j)));
            }
            let found = scalar_squared(&x).unwrap();
            assert!(found.lower <= expected && expected <= found.upper, "{k}: {found:?} {expected}");
            assert!(found.upper - found.lower < 1e-10 * expected);
            let s: Vec<f64> = found.signs.iter().map(|s| f64::from(*s)).collect();
            let reached = column_sums(k, |i, j| s[i] * x[(i, j)] * s[j]);
            assert!((reached - expected).abs() < 1e-12 * expected);
        }
    }

    #[test]
    fn twenty_is_the_limit() {
        assert_eq!(
            scalar_squared(&dense::identity(21)).unwrap_err().to_string(),
            "the size of a pattern for the brute force over signs must be in 1..=20, got 21"
        );
        assert!((scalar_squared(&dense::identity(20)).unwrap().upper - 20.0).abs() < 1e-9);
    }
}
