//! Products with Toeplitz matrices that give the same bits on every machine, for sixteen columns at a time.
//!
//! The transforms of a library choose their order of operations by the processor, and its roots of unity come from the
//! system's sine. Noise must not depend on either. So this is the plain transform of Cooley and Tukey, radix two, on vectors of
//! columns, with roots from a sine of our own dependencies; every column sees the same additions and multiplications
//! however wide the vectors are. Two columns travel as real and imaginary part of one.

use pulp::Arch;
use std::f64::consts::PI;

/// Pairs of columns side by side.
const LANES: usize = 8;
/// Columns that are transformed together.
pub const COLUMNS: usize = 2 * LANES;

/// Sixteen numbers: the columns 0, …, 7 are the real parts, the others the imaginary parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pairs {
    re: [f64; LANES],
    im: [f64; LANES],
}

impl Pairs {
    /// From one row of sixteen columns.
    pub fn from_row(row: &[f32]) -> Pairs {
        let column = |j: usize| f64::from(row[j]);
        Pairs { re: std::array::from_fn(column), im: std::array::from_fn(|l| column(LANES + l)) }
    }

    /// Column j.
    pub fn column(&self, j: usize) -> f64 {
        if j < LANES { self.re[j] } else { self.im[j - LANES] }
    }

    /// Each with each.
    #[inline(always)]
    pub fn with(&self, other: &Pairs, f: impl Fn(f64, f64) -> f64) -> Pairs {
        Pairs {
            re: std::array::from_fn(|l| f(self.re[l], other.re[l])),
            im: std::array::from_fn(|l| f(self.im[l], other.im[l])),
        }
    }

    /// Times one complex number.
    #[inline(always)]
    fn times(&self, (re, im): (f64, f64)) -> Pairs {
        Pairs {
            re: std::array::from_fn(|l| self.re[l] * re - self.im[l] * im),
            im: std::array::from_fn(|l| self.re[l] * im + self.im[l] * re),
        }
    }
}

/// e^{−2πik/N} for k < N/2.
fn roots(size: usize) -> Vec<(f64, f64)> {
    let angle = |k: usize| 2.0 * PI * k as f64 / size as f64;
    (0..size / 2).map(|k| (libm::cos(angle(k)), -libm::sin(angle(k)))).collect()
}

/// The transform, in bit-reversed order (decimation in frequency).
#[inline(always)]
fn forward(x: &mut [Pairs], roots: &[(f64, f64)]) {
    let mut size = x.len();
    while size > 1 {
        let (half, stride) = (size / 2, x.len() / size);
        for part in x.chunks_exact_mut(size) {
            let (left, right) = part.split_at_mut(half);
            for (k, (a, b)) in left.iter_mut().zip(right).enumerate() {
                let difference = a.with(b, |a, b| a - b);
                *a = a.with(b, |a, b| a + b);
                *b = difference.times(roots[k * stride]);
            }
        }
        size = half;
    }
}

/// Back from bit-reversed order (decimation in time), times N.
#[inline(always)]
fn backward(x: &mut [Pairs], roots: &[(f64, f64)]) {
    let mut size = 2;
    while size <= x.len() {
        let (half, stride) = (size / 2, x.len() / size);
        for part in x.chunks_exact_mut(size) {
            let (left, right) = part.split_at_mut(half);
            for (k, (a, b)) in left.iter_mut().zip(right).enumerate() {
                let (re, im) = roots[k * stride];
                let turned = b.times((re, -im));
                *b = a.with(&turned, |a, b| a - b);
                *a = a.with(&turned, |a, b| a + b);
            }
        }
        size *= 2;
    }
}

/// A rectangular Toeplitz matrix, applied as the corner of a circulant whose size is a power of two.
pub struct Toeplitz {
    rows: usize,
    columns: usize,
    roots: Vec<(f64, f64)>,
    /// The eigenvalues of the circulant in bit-reversed order, divided by its size.
    spectrum: Vec<(f64, f64)>,
}

impl Toeplitz {
    /// The matrix with entry(i − j) at (i, j).
    pub fn new(rows: usize, columns: usize, entry: impl Fn(isize) -> f64) -> Toeplitz {
        let size = (rows + columns - 1).next_power_of_two();
        let mut first_column = vec![Pairs::default(); size];
        for place in 1 - columns as isize..rows as isize {
            first_column[place.rem_euclid(size as isize) as usize].re[0] = entry(place);
        }
        let roots = roots(size);
        forward(&mut first_column, &roots);
        let scale = 1.0 / size as f64; // exact
        let spectrum = first_column.iter().map(|x| (x.re[0] * scale, x.im[0] * scale)).collect();
        Toeplitz { rows, columns, roots, spectrum }
    }

    /// x ← Mx.
    pub fn apply(&self, x: &mut Vec<Pairs>) {
        Arch::new().dispatch(
            #[inline(always)]
            || self.apply_with_any_vectors(x),
        );
    }

    #[inline(always)]
    fn apply_with_any_vectors(&self, x: &mut Vec<Pairs>) {
        debug_assert_eq!(x.len(), self.columns);
        x.resize(self.spectrum.len(), Pairs::default());
        forward(x, &self.roots);
        x.iter_mut().zip(&self.spectrum).for_each(|(x, s)| *x = x.times(*s));
        backward(x, &self.roots);
        x.truncate(self.rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<Pairs> {
        let row =
            |i: usize| std::array::from_fn::<f32, COLUMNS, _>(|j| ((i * 31 + j * 17) % 101) as f32 - 50.0);
        (0..count).map(|i| Pairs::from_row(&row(i))).collect()
    }

    #[test]
    fn products_are_those_of_the_matrix_whatever_the_vectors() {
        for (rows, columns) in [(1, 1), (1, 5), (7, 3), (5, 10), (33, 64), (100, 200)] {
            let entry = |place: isize| 1.0 / (1.5 + place as f64).abs();
            let toeplitz = Toeplitz::new(rows, columns, entry);
            let x = numbers(columns);
            let (mut fast, mut portable) = (x.clone(), x.clone());
            toeplitz.apply(&mut fast);
            toeplitz.apply_with_any_vectors(&mut portable);
            assert_eq!(fast, portable);
            assert_eq!(fast.len(), rows);
            for (i, y) in fast.iter().enumerate() {
                for lane in 0..COLUMNS {
                    let truth: f64 =
                        (0..columns).map(|j| entry(i as isize - j as isize) * x[j].column(lane)).sum();
                    assert!((y.column(lane) - truth).abs() < 1e-11, "{i} {lane}");
                }
            }
        }
    }
}
