//! The exponential function in `f32` for the softmax, as a loop without branches that compilers turn into vectors.
//!
//! With x = k·ln 2 + r, |r| ≤ ½ ln 2, it is 2ᵏ·exp(r), and exp(r) is 1 + r and a polynomial of five more terms whose
//! largest relative error is least, by Remez's algorithm: 0.05 units of 2⁻²⁴. With all roundings it is less than two units of 2⁻²⁴; the test compares with `f64`. Only operations whose result
//! IEEE 754 fixes are used: the same bits on every machine.

use super::tanh::{LN_2_HIGH, LN_2_LOW, ROUND};

/// Below this the result is zero: nothing is ever subnormal, which would be slow.
const LOWEST: f32 = -87.0;

/// The coefficients of r² to r⁶.
const C2: f32 = 0.499_999_93;
const C3: f32 = 0.166_665_21;
const C4: f32 = 0.041_668_39;
const C5: f32 = 0.008_368_717;
const C6: f32 = 0.001_381_46;

/// exp(x) for x ≤ 0, and zero below −87; not a number where x is not. For positive x it is without meaning.
#[inline(always)]
pub fn fast(x: f32) -> f32 {
    let rounded = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let k = rounded - ROUND;
    let r = k.mul_add(-LN_2_LOW, k.mul_add(-LN_2_HIGH, x));
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3f80_0000));
    // In pairs, which wait for each other less than one term after the other.
    let square = r * r;
    let low = C3.mul_add(r, C2);
    let middle = C5.mul_add(r, C4);
    let p = C6.mul_add(square, middle).mul_add(square, low).mul_add(square, r);
    // Written such that what is not a number passes.
    if x < LOWEST { 0.0 } else { power.mul_add(p, power) }
}

#[cfg(test)]
mod tests {
    use super::fast;

    #[test]
    fn is_close_everywhere() {
        // Every 499th number from −87 to the smallest subnormal one below zero: two million.
        let error = |x: f32| (f64::from(fast(x)) / libm::exp(f64::from(x)) - 1.0).abs() * 2f64.powi(24);
        let largest = (-87f32).to_bits();
        let worst = (0x8000_0000..=largest).rev().step_by(499).map(|bits| error(f32::from_bits(bits)));
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 2.0, "{worst}");
    }

    #[test]
    fn special_values() {
        assert!(fast(f32::NAN).is_nan());
        assert_eq!(fast(0.0), 1.0);
        assert_eq!(fast(-0.0), 1.0);
        for x in [-87.001, -1e3, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(fast(x).to_bits(), 0, "{x}");
        }
        assert!(fast(-87.0) >= f32::MIN_POSITIVE);
    }
}
