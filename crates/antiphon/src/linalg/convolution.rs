//! Many-fold convolutions on a circle, by fast Fourier transforms.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

/// The convolution of all vectors on a circle of `size` places, each taken as often as its count says: entry k is the sum
/// of all products whose places add up to k modulo `size`.
///
/// Each vector is given by the place of its first entry, which may be negative, and its entries.
pub fn circular_power(size: usize, factors: &[(i64, &[f64], u64)]) -> Vec<f64> {
    let mut planner = FftPlanner::new();
    let (forward, inverse) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
    let mut product = vec![Complex::new(1.0, 0.0); size];
    for (first, entries, count) in factors {
        let mut wrapped = vec![Complex::default(); size];
        for (i, x) in entries.iter().enumerate() {
            wrapped[(first + i as i64).rem_euclid(size as i64) as usize] += *x;
        }
        forward.process(&mut wrapped);
        // The spectrum of a real vector is its own mirror image: half of the powers are enough.
        for k in 0..=size / 2 {
            product[k] *= power(wrapped[k], *count);
        }
    }
    for k in size / 2 + 1..size {
        product[k] = product[size - k].conj();
    }
    inverse.process(&mut product);
    product.iter().map(|x| x.re / size as f64).collect()
}

/// xⁿ by squaring.
fn power(mut x: Complex<f64>, mut n: u64) -> Complex<f64> {
    let mut product = Complex::new(1.0, 0.0);
    while n > 0 {
        if n % 2 == 1 {
            product *= x;
        }
        x *= x;
        n /= 2;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_repeated_products() {
        let entries = [0.5, 0.25, 0.125, 0.125];
        let other = [0.75, 0.25];
        let size = 16;
        let mut slow = vec![0.0; size];
        slow[0] = 1.0;
        let by = |slow: &[f64], first: i64, entries: &[f64]| {
            let mut product = vec![0.0; size];
            for (i, x) in slow.iter().enumerate() {
                for (j, y) in entries.iter().enumerate() {
                    product[(i as i64 + first + j as i64).rem_euclid(size as i64) as usize] += x * y;
                }
            }
            product
        };
        for _ in 0..5 {
            slow = by(&slow, -2, &entries);
        }
        for _ in 0..3 {
            slow = by(&slow, 7, &other);
        }
        let fast = circular_power(size, &[(-2, &entries, 5), (7, &other, 3)]);
        assert!(fast.iter().zip(&slow).all(|(a, b)| (a - b).abs() < 1e-15), "{fast:?} {slow:?}");
        assert_eq!(circular_power(4, &[(0, &[1.0], 0)]), [1.0, 0.0, 0.0, 0.0]);
    }
}
