//! Combs as docs/FORMAT.md defines them: every entry of C and W, by products of the factors. Nothing is shared with the fast forms.

use super::shape::Comb;
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::family::Explicit;

/// W and C, written out.
pub fn explicit(comb: &Comb) -> Result<Explicit> {
    let n = comb.steps;
    let (poles, zeros) = (comb.filter.poles(), comb.filter.zeros());
    let mix = mixes(comb);
    let mut filter = toeplitz(&series(n, poles, zeros));
    scale(&mut filter, |i| comb.output_gain(i), |j| comb.input_gain(j));
    let noising = dense::lower_product(&filter, &mix);
    let mut inverse = toeplitz(&series(n, zeros, poles));
    scale(&mut inverse, |i| 1.0 / comb.input_gain(i), |j| 1.0 / comb.output_gain(j));
    let encoder = dense::lower_product(&dense::lower_inverse(&mix)?, &inverse);
    // With C̃W̃ = I + E, C̃ = (I + E)·C where W̃ is W. The bound on ‖E‖ has n·ε·‖|C̃||W̃|‖ in it, and the rounding of W̃ is of this
    // size too: twice for each of the two factors that it is made of, and once for E.
    let residual = 5.0 * dense::inverse_residual(&encoder, &noising)?;
    if residual >= 0.5 {
        return Err(Error::Numerical(format!(
            "the comb is too ill-conditioned: the relative error may be {residual:.1e}"
        )));
    }
    let largest = (0..n).map(|j| encoder.col(j).norm_l2()).fold(0.0, f64::max);
    let column_error = residual / (1.0 - residual) * largest; // up
    Ok(Explicit { encoder, noising, column_error })
}

/// ⊕_r L_r, at the steps of every residue.
fn mixes(comb: &Comb) -> Matrix {
    let mut all = Matrix::zeros(comb.steps, comb.steps);
    let mut row = Vec::new();
    for t in 0..comb.steps {
        let (epoch, residue) = (t / comb.period, t % comb.period);
        comb.mix_row(residue, epoch, &mut row);
        row.iter().enumerate().for_each(|(i, x)| all[(t, i * comb.period + residue)] = *x);
    }
    all
}

/// The first n coefficients of Π(1 − a_i x)/Π(1 − b_i x), factor by factor.
fn series(n: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut series = vec![0.0; n];
    series[0] = 1.0;
    for (a, b) in a.iter().zip(b) {
        let (mut before, mut after) = (0.0, 0.0);
        for x in &mut series {
            // y_m = x_m + (b − a)·x_(m−1) + b·(y_(m−1) − x_(m−1)): what is added to x decays by itself.
            let added = (b - a) * before + b * after;
            (before, after) = (*x, added);
            *x += added;
        }
    }
    series
}

fn toeplitz(series: &[f64]) -> Matrix {
    dense::from_fn(series.len(), series.len(), |i, j| if i >= j { series[i - j] } else { 0.0 })
}

fn scale(m: &mut Matrix, rows: impl Fn(usize) -> f64, columns: impl Fn(usize) -> f64) {
    let rows: Vec<f64> = (0..m.nrows()).map(rows).collect();
    for j in 0..m.ncols() {
        let column = columns(j);
        m.col_as_slice_mut(j).iter_mut().zip(&rows).for_each(|(x, row)| *x *= row * column);
    }
}
