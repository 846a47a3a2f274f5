//! Many-fold convolutions on a circle, by fast Fourier transforms, with a bound on their rounding errors.

use crate::error::{Error, Result};
use libm::exp;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// What comes out of [`circular_power`].
#[derive(Debug, Clone)]
pub struct Power {
    /// One per place of the circle.
    pub entries: Vec<f64>,
    /// How far each entry can be from what it would be without rounding.
    pub error: f64,
}

/// A unit of rounding: half of the distance between one and the next number.
const UNIT: f64 = 0.5 * f64::EPSILON;
/// High powers with a modulus below e^−`TINY` are set to zero, and that is counted as an error.
const TINY: f64 = 120.0;

/// The convolution of all vectors on a circle of `size` places, each taken as often as its count says: entry k is the sum
/// of all products whose places add up to k modulo `size`.
///
/// Each vector is given by the place of its first entry, which may be negative, its entries, which are not negative and
/// add up to about one, and its count, 10⁹ at most.
///
/// **The way back.** The spectrum X of a real vector is its own mirror image, so Re X + Im X is a real vector that holds all of
/// it. If F is the transform of that, Re F + Im F is the inverse transform of X (Hartley): one plan serves both ways.
///
/// **The error.** A value of the spectrum is a sum over paths through log₂ N butterflies, along each of which an entry is
/// multiplied by numbers of modulus one; an addition, a product and a rounded root of unity cost less than 16 units at
/// each. So it is off by η = 16·(log₂ N + 4) units at most. Its T-th power is then off by T·(|x| + η)^(T−1)·η, and by the
/// roundings of products, √5 units each, T + 64 times over. The way back adds all that up, divides by N, and costs 2η times
/// the mean modulus itself. Where a distribution is spread out its spectrum is small in the mean, so this is far less than
/// T·η.
pub fn circular_power(size: usize, factors: &[(i64, &[f64], u64)]) -> Result<Power> {
    thread_local! {
        static KEPT: RefCell<Workspace> = RefCell::default();
    }
    // One vector alone needs no transform.
    if let [(first, entries, 1)] = factors {
        let mut out = vec![0.0; size];
        wrap(*first, entries, &mut out);
        return Ok(Power { entries: out, error: 0.0 });
    }
    match size <= 1 << 19 {
        true => KEPT.with_borrow_mut(|workspace| workspace.power(size, factors)),
        false => Workspace::default().power(size, factors),
    }
}

/// Plans, which hold the roots of unity, and vectors. Common sizes are kept for the next time: making them takes as long as the
/// work.
#[derive(Default)]
struct Workspace {
    /// By size. Each comes from a planner of its own: one that has made others before may choose another way, and then the last bits
    /// of ε would depend on which thread did what.
    plans: HashMap<usize, Arc<dyn RealToComplex<f64>>>,
    vector: Vec<f64>,
    scratch: Vec<Complex<f64>>,
    spectrum: Vec<Complex<f64>>,
    product: Vec<Complex<f64>>,
    /// What each entry of the product can be off by.
    errors: Vec<f64>,
}

impl Workspace {
    fn power(&mut self, size: usize, factors: &[(i64, &[f64], u64)]) -> Result<Power> {
        let plan =
            self.plans.entry(size).or_insert_with(|| RealFftPlanner::new().plan_fft_forward(size)).clone();
        let Workspace { vector, scratch, spectrum, product, errors, .. } = self;
        vector.resize(size, 0.0);
        scratch.resize(plan.get_scratch_len(), Complex::default());
        spectrum.resize(plan.complex_len(), Complex::default());
        product.clear();
        product.resize(spectrum.len(), Complex::new(1.0, 0.0));
        errors.clear();
        errors.resize(spectrum.len(), 0.0);
        let mut transform = |from: &mut [f64], to: &mut [Complex<f64>]| {
            let failed = |error| Error::Numerical(format!("a Fourier transform failed: {error}"));
            plan.process_with_scratch(from, to, scratch).map_err(failed)
        };
        let eta = 16.0 * ((size as f64).log2() + 4.0) * UNIT;
        for (first, entries, count) in factors.iter().filter(|(_, _, count)| *count > 0) {
            vector.fill(0.0);
            wrap(*first, entries, vector);
            transform(vector, spectrum)?;
            let times = *count as f64;
            let negligible = if *count >= 100 { exp(-2.0 * TINY / times) } else { 0.0 };
            for ((x, product), error) in spectrum.iter().zip(product.iter_mut()).zip(errors.iter_mut()) {
                let (whole, own) = match x.norm_sqr() < negligible {
                    true => (Complex::default(), 2.0 * exp(-TINY)),
                    false => {
                        let all_but_one = power(*x, count - 1);
                        let whole = all_but_one * x;
                        let products = (times + 64.0) * 5f64.sqrt() * UNIT * modulus(whole);
                        (whole, times * (modulus(all_but_one) + eta) * eta + products)
                    }
                };
                *error = *error * (modulus(whole) + own) + modulus(*product) * own;
                *product *= whole;
            }
        }
        // Each value stands for itself and its mirror image. One part in fifty is for terms of second order and the sum
        // itself.
        let all: f64 =
            errors.iter().sum::<f64>() + 2.0 * eta * product.iter().map(|x| modulus(*x)).sum::<f64>();
        let error = 1.02 * 2.0 * all / size as f64;
        mirrored(product, vector);
        transform(vector, spectrum)?;
        let mut entries = vec![0.0; size];
        mirrored(spectrum, &mut entries);
        entries.iter_mut().for_each(|x| *x /= size as f64);
        Ok(Power { entries, error })
    }
}

/// Adds entries to the places of a circle, from one on.
fn wrap(first: i64, entries: &[f64], circle: &mut [f64]) {
    let mut place = first.rem_euclid(circle.len() as i64) as usize;
    for x in entries {
        circle[place] += x;
        place = if place + 1 == circle.len() { 0 } else { place + 1 };
    }
}

/// Re X + Im X of a spectrum of which one half is given, and which is its own mirror image.
fn mirrored(half: &[Complex<f64>], out: &mut [f64]) {
    let size = out.len();
    out[0] = half[0].re;
    for (k, x) in half.iter().enumerate().skip(1) {
        out[size - k] = x.re - x.im;
        out[k] = x.re + x.im;
    }
    // In the middle of an even size a value is its own mirror image, and real.
    if size.is_multiple_of(2) {
        out[size / 2] = half[size / 2].re;
    }
}

fn modulus(x: Complex<f64>) -> f64 {
    x.norm_sqr().sqrt()
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
    use libm::{lgamma, log};

    /// A planner that had made plans before chose other ones, for sizes of nine times a power of two: ε differed in its last bits
    /// from thread to thread.
    #[test]
    fn what_a_thread_did_before_changes_no_bit() {
        let entries: Vec<f64> = (0..300).map(|i| 1.0 / f64::from(i + 7).powi(2)).collect();
        // The last of some sizes, all by one thread that is new.
        let bits = |sizes: &[usize]| -> Vec<u64> {
            let of_last = || {
                let at = |size: &usize| circular_power(*size, &[(-5, &entries, 90)]).unwrap().entries;
                sizes.iter().map(at).fold(Vec::new(), |_, entries| entries)
            };
            let numbers = std::thread::scope(|scope| scope.spawn(of_last).join().unwrap());
            numbers.iter().map(|x| x.to_bits()).collect()
        };
        let sizes = [9 << 8, 9 << 9, 9 << 11, 9 << 12, 1 << 12, 3 << 10];
        for size in sizes {
            let alone = bits(&[size]);
            for before in sizes {
                assert!(bits(&[before, size]) == alone, "{before} before {size}");
            }
        }
    }

    #[test]
    fn powers_are_repeated_products() {
        let entries = [0.5, 0.25, 0.125, 0.125];
        let other = [0.75, 0.25];
        for size in [15, 16] {
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
            let fast = circular_power(size, &[(-2, &entries, 5), (7, &other, 3)]).unwrap();
            assert!(fast.error < 1e-12);
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= fast.error;
            assert!(fast.entries.iter().zip(&slow).all(close), "{fast:?} {slow:?}");
        }
        let alone = circular_power(4, &[(-3, &[0.5, 0.25, 0.125, 0.0625, 0.0625], 1)]).unwrap();
        assert_eq!(alone.entries, [0.0625, 0.5625, 0.25, 0.125]);
        let nothing = circular_power(4, &[(0, &[1.0], 0)]).unwrap();
        assert!(
            nothing.entries.iter().zip([1.0, 0.0, 0.0, 0.0]).all(|(a, b)| (a - b).abs() <= nothing.error)
        );
    }

    /// Coins: T tosses with probability q are binomial, which is known without sums.
    #[test]
    fn errors_of_high_powers_are_within_their_bound() {
        for (q, steps, size) in [
            (0.5, 64u64, 128),
            (0.5, 4096, 6144),
            (1e-3, 100_000, 1 << 11),
            (1e-6, 1_000_000, 64),
            (1e-9, 1_000_000_000, 96),
        ] {
            let fast = circular_power(size, &[(0, &[1.0 - q, q], steps)]).unwrap();
            let (t, mut worst) = (steps as f64, 0.0f64);
            for (k, found) in fast.entries.iter().enumerate().filter(|(k, _)| *k as u64 <= steps) {
                let k = k as f64;
                // ln C(T, k), by a product where that is exact enough.
                let choose = match k < 100.0 {
                    true => (0..k as u64).map(|i| log((t - i as f64) / (k - i as f64))).sum(),
                    false => lgamma(t + 1.0) - lgamma(k + 1.0) - lgamma(t - k + 1.0),
                };
                let truth = exp(choose + k * log(q) + (t - k) * libm::log1p(-q));
                // What the formula itself can be off by.
                let own = truth * 1e-15 * (t * q + choose + t.min(1e5));
                worst = worst.max(((found - truth).abs() - own) / fast.error);
            }
            println!("q = {q}, T = {steps}: error {:e}, used {worst:.3}", fast.error);
            assert!(worst < 1.0, "q = {q}, T = {steps}: {worst}");
            // Of use: the bound is not far above what such a power must lose.
            assert!(fast.error < 1e-14 * t + 1e-12, "{}", fast.error);
        }
    }
}
