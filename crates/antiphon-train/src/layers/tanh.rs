//! The hyperbolic tangent in `f32`, as a loop without branches that compilers turn into vectors.
//!
//! With y = 2|x| = k·ln 2 + r, |r| ≤ ½ ln 2,
//!
//! ```text
//! m = exp(y) − 1 = 2ᵏ·(exp(r) − 1) + (2ᵏ − 1),    tanh|x| = m/(m + 2)
//! ```
//!
//! and exp(r) − 1 is a Taylor polynomial whose first omitted term is below 2⁻²⁵ of it. Nothing cancels, so the relative error
//! is a few units in the last place everywhere; the test compares every exponent with `f64`. Only operations whose result
//! IEEE 754 fixes are used: the same bits on every machine.

/// Beyond this, the nearest `f32` is 1, and the formula says so too.
const LIMIT: f32 = 10.0;
/// Numbers near it count by ones: adding it rounds to an integer, which is then in the low bits.
pub(super) const ROUND: f32 = 12582912.0;
/// ln 2, in two parts: k·HIGH is exact.
pub(super) const LN_2_HIGH: f32 = 0.693_359_4;
pub(super) const LN_2_LOW: f32 = -2.121_944_4e-4;

/// tanh(x); not a number where x is not.
#[inline(always)]
pub fn fast(x: f32) -> f32 {
    let size = x.abs();
    // Written such that what is not a number passes.
    let size = if size > LIMIT { LIMIT } else { size };
    let y = size + size;
    let rounded = y.mul_add(std::f32::consts::LOG2_E, ROUND);
    let k = rounded - ROUND;
    let r = k.mul_add(-LN_2_LOW, k.mul_add(-LN_2_HIGH, y));
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3f80_0000));
    let p = (1.0f32 / 5040.0)
        .mul_add(r, 1.0 / 720.0)
        .mul_add(r, 1.0 / 120.0)
        .mul_add(r, 1.0 / 24.0)
        .mul_add(r, 1.0 / 6.0)
        .mul_add(r, 0.5)
        .mul_add(r * r, r);
    let m = power.mul_add(p, power - 1.0);
    (m / (m + 2.0)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::fast;

    /// Relative error in units of 2⁻²⁴, against tanh in `f64`.
    fn error(x: f32) -> f64 {
        let exact = libm::tanh(f64::from(x));
        if exact == 0.0 {
            f64::from(fast(x))
        } else {
            (f64::from(fast(x)) / exact - 1.0).abs() * 2f64.powi(24)
        }
    }

    #[test]
    fn is_close_everywhere() {
        // Every 4,099th number from the smallest subnormal one to infinity: half a million.
        let worst = (0..0x7f80_0000u32).step_by(4099).map(|bits| error(f32::from_bits(bits)));
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 6.0, "{worst}");
    }

    #[test]
    fn special_values() {
        assert!(fast(f32::NAN).is_nan());
        assert_eq!(fast(f32::INFINITY), 1.0);
        assert_eq!(fast(f32::NEG_INFINITY), -1.0);
        assert_eq!(fast(0.0).to_bits(), 0);
        assert_eq!(fast(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(fast(-0.7), -fast(0.7));
        // Its slope times 1 − tanh² must never be of the wrong sign.
        assert!((0..0x7f80_0000u32).step_by(4099).all(|bits| fast(f32::from_bits(bits)) <= 1.0));
    }
}
