//! The Gaussian mechanism: ε, δ and the noise multiplier, each from the other two.
//!
//! The noise multiplier z is the noise's standard deviation over the sensitivity, and μ = 1/z. Balle and Wang (2018,
//! "Improving the Gaussian Mechanism for Differential Privacy", theorem 8) have the exact curve,
//!
//! ```text
//! δ(ε) = Φ(−a) − e^ε·Φ(−b),     a = ε/μ − μ/2,     b = ε/μ + μ/2 = a + μ,
//! ```
//!
//! and since ε = μa + μ²/2, that is with the normal density φ
//!
//! ```text
//! δ = ½·exp(−a²/2)·(erfcx(a/√2) − erfcx(b/√2)) = ∫ φ(a + s)·(1 − exp(−μs)) ds over s > 0.
//! ```
//!
//! The first form has no large numbers, however large ε and small δ. The second says that δ falls with a and grows
//! with μ, so rounding a down and μ up is cautious.
//!
//! One function, `delta_above`, bounds δ from above. [`epsilon()`] and [`noise_multiplier`] search for an argument for
//! which that bound is low enough, so what they return is private whatever the search did. Another function,
//! [`delta_lower`], bounds δ from below in the same way, and [`epsilon_lower`] returns an argument for which that bound
//! is still at least δ. So lower ends hold whatever the search did, too.

use crate::error::{Error, Result};
use libm::{erfc, exp};
use puruspe::erfcx;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// What a value of erfc or erfcx may be wrong by, relatively: 1.3 units of 2⁻⁵² were seen, the argument and the
/// products are rounded as well.
const SLACK: f64 = 4.0 * f64::EPSILON;
/// Relative width at which a search ends.
const WIDTH: f64 = 1e-12;

/// The smallest δ for which the mechanism is (ε, δ)-private, rounded up.
///
/// Pessimistic by a relative 10⁻¹⁰ at most for noise multipliers from 0.01 to 1000, and by 10⁻⁷ for larger ones.
pub fn delta(noise_multiplier: f64, epsilon: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    positive("epsilon", epsilon)?;
    Ok(delta_above(noise_multiplier, epsilon))
}

/// The smallest ε for which the mechanism is (ε, δ)-private, rounded up: by a relative 10⁻¹², and as if δ were
/// smaller by what [`delta`] may be too large by.
///
/// It is zero where the mechanism is (0, δ)-private.
pub fn epsilon(noise_multiplier: f64, delta: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    probability("delta", delta)?;
    let private = |epsilon| delta_above(noise_multiplier, epsilon) <= delta;
    if private(0.0) {
        return Ok(0.0);
    }
    edge(private).map(|(_, above)| above).ok_or_else(|| no_epsilon(noise_multiplier))
}

/// A δ that is not above the smallest one for which the mechanism is (ε, δ)-private: [`delta`], rounded down.
pub fn delta_lower(noise_multiplier: f64, epsilon: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    positive("epsilon", epsilon)?;
    Ok(delta_below(noise_multiplier, epsilon))
}

/// An ε that is not above the smallest one for which the mechanism is (ε, δ)-private: [`epsilon()`], rounded down.
pub fn epsilon_lower(noise_multiplier: f64, delta: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    probability("delta", delta)?;
    // Where the lower bound on δ(ε) is less than δ, nothing is known; where it is not, the smallest ε is no less.
    let unknown = |epsilon| delta_below(noise_multiplier, epsilon) < delta;
    if unknown(0.0) {
        return Ok(0.0);
    }
    edge(unknown).map(|(below, _)| below).ok_or_else(|| no_epsilon(noise_multiplier))
}

fn no_epsilon(noise_multiplier: f64) -> Error {
    Error::argument("noise_multiplier", "large enough for a finite epsilon", noise_multiplier)
}

/// The smallest noise multiplier for which the mechanism is (ε, δ)-private, rounded up like [`epsilon()`].
///
/// With what comes out, [`delta`] is at most δ.
pub fn noise_multiplier(epsilon: f64, delta: f64) -> Result<f64> {
    positive("epsilon", epsilon)?;
    probability("delta", delta)?;
    edge(|noise_multiplier| delta_above(noise_multiplier, epsilon) <= delta)
        .map(|(_, above)| above)
        .ok_or_else(|| Error::argument("delta", "large enough for a finite noise multiplier", delta))
}

/// The ρ for which the mechanism is ρ-zero-concentrated private, rounded up: 1/(2z²) (Bun and Steinke 2016,
/// proposition 1.6).
pub fn zcdp(noise_multiplier: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    // Rounded up: two divisions cost less than 2⁻⁵² together, and the last step is for numbers next to zero.
    Ok((0.5 / noise_multiplier / noise_multiplier * (1.0 + 2.0 * f64::EPSILON)).next_up())
}

/// δ(ε) or more: each line rounds toward a larger δ.
fn delta_above(noise_multiplier: f64, epsilon: f64) -> f64 {
    // Up: the division is correctly rounded.
    let mu = noise_multiplier.recip().next_up();
    // Down: both terms and both differences lose at most half a unit of 2⁻⁵² each. The cap is against infinity.
    let (ratio, half) = ((epsilon * noise_multiplier).min(1e300), 0.5 / noise_multiplier);
    let a = ratio - half - 2.0 * f64::EPSILON * (ratio + half);
    // δ is one to all digits, and may not be more.
    if a < -40.0 {
        return 1.0;
    }
    // √(2/π), up.
    let root = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (1.0 + 2.0 * f64::EPSILON);
    // exp(−a²/2), up: a smaller exponent pays for the square, the step for the exponential and for zero.
    let bell = exp(-0.5 * a * a * (1.0 - 2.0 * f64::EPSILON)).next_up();
    // erfcx(b/√2), down, for it is subtracted.
    let far = erfcx((a + mu) * FRAC_1_SQRT_2) * (1.0 - SLACK);
    // Two bounds. `plain` is the formula, and loses digits where μ is small. `linear` has μs for 1 − exp(−μs), which
    // is more, but little more where μ is small; that integral is μ·(φ(a) − a·Φ(−a)).
    let (plain, linear) = if a > 0.0 {
        let near = erfcx(a * FRAC_1_SQRT_2);
        // Up: the first term up, the second down. The bell may be next to zero, and comes last.
        let plain = 0.5 * (near * (1.0 + SLACK) - far) * bell;
        let linear = 0.5 * mu * (root - a * (near * (1.0 - SLACK))) * bell;
        (plain, linear)
    } else {
        // Up, like `near` above.
        let tail = 0.5 * erfc(a * FRAC_1_SQRT_2) * (1.0 + SLACK);
        // Down, for it is subtracted.
        let bell_below = exp(-0.5 * a * a * (1.0 + 2.0 * f64::EPSILON)).next_down();
        (tail - 0.5 * bell_below * far, mu * (0.5 * bell * root - a * tail))
    };
    // Up: the slack is for the products, the step for numbers next to zero.
    (plain.min(linear) * (1.0 + SLACK)).next_up().min(1.0)
}

/// δ(ε) or less: each line rounds toward a smaller δ. Why the margins hold:
///
/// - With real numbers, δ as a function of a and μ falls with a and grows with μ, so a is rounded up and μ down.
/// - Relative errors of erfcx, of its argument and of the products are below [`SLACK`]: the relative change of erfcx is at
///   most that of its argument. All sums below but two add numbers of one sign; in these two each side has its margin.
/// - Next to one, 1 − δ is computed and has all its digits. The subtraction from one is correctly rounded, and
///   `next_down` is more than that.
/// - Next to zero a product may be rounded by half of the smallest number. Two are, at most, and `next_down` at the end
///   takes the smallest number off.
fn delta_below(noise_multiplier: f64, epsilon: f64) -> f64 {
    // Down: the division is correctly rounded.
    let mu = noise_multiplier.recip().next_down();
    // Up, as `delta_above` has it down. Here the cap is on the term that is subtracted.
    let (ratio, half) = (epsilon * noise_multiplier, (0.5 / noise_multiplier).min(1e300));
    let a = ratio - half + 2.0 * f64::EPSILON * (ratio + half);
    // δ is below all numbers but zero.
    if a > 40.0 {
        return 0.0;
    }
    // erfcx(b/√2), up, for it is subtracted.
    let far = erfcx((a + mu) * FRAC_1_SQRT_2) * (1.0 + SLACK);
    // exp(−a²/2), down.
    let bell = exp(-0.5 * a * a * (1.0 + 2.0 * f64::EPSILON)).next_down().max(0.0);
    // Two bounds. `plain` is the formula.
    let plain = if a > 0.0 {
        0.5 * (erfcx(a * FRAC_1_SQRT_2) * (1.0 - SLACK) - far) * bell
    } else {
        // 1 − δ = Φ(a) + e^ε·Φ(−b), up.
        let bell_above = exp(-0.5 * a * a * (1.0 - 2.0 * f64::EPSILON)).next_up();
        let near = erfcx(-a * FRAC_1_SQRT_2) * (1.0 + SLACK);
        (1.0 - (0.5 * (near + far) * bell_above * (1.0 + SLACK)).next_up()).next_down()
    };
    // `middle` is for small μ, where the formula loses digits. It has μs·exp(−μs/2) for 1 − exp(−μs), which is less, because
    // sinh(x) ≥ x; that integral is ½·exp(−a²/2)·μ·(√(2/π) − c·erfcx(c/√2)) with c = a + μ/2. It falls with c, which is up:
    // the sum of two numbers loses less than the slack of erfcx, and c is not negative.
    let c = (a + 0.5 * mu).max(0.0);
    let root = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (1.0 - 2.0 * f64::EPSILON); // √(2/π), down
    let middle = 0.5 * mu * (root - c * (erfcx(c * FRAC_1_SQRT_2) * (1.0 + 2.0 * SLACK))) * bell;
    if a > 0.0 || middle > plain {
        // Down: the slack is for the products, the step for numbers next to zero.
        return (plain.max(middle) * (1.0 - SLACK)).next_down().max(0.0);
    }
    plain.max(0.0)
}

/// Two numbers next to each other, to a relative [`WIDTH`]: one that was seen not to be `enough`, and the next one that was
/// seen to be. `None` where no finite number is enough. Zero must not be enough.
fn edge(enough: impl Fn(f64) -> bool) -> Option<(f64, f64)> {
    let mut above = 1.0;
    while !enough(above) {
        above *= 2.0;
        if above == f64::INFINITY {
            return None;
        }
    }
    let mut below = 0.5 * above;
    while enough(below) {
        above = below;
        below *= 0.5;
    }
    while above - below > WIDTH * above {
        let middle = below + 0.5 * (above - below);
        if middle <= below || middle >= above {
            break;
        }
        if enough(middle) { above = middle } else { below = middle }
    }
    Some((below, above))
}

pub(super) fn positive(name: &str, value: f64) -> Result<()> {
    if value > 0.0 && value < f64::INFINITY {
        Ok(())
    } else {
        Err(Error::argument(name, "in (0, ∞)", value))
    }
}

pub(super) fn probability(name: &str, value: f64) -> Result<()> {
    if value > 0.0 && value < 1.0 { Ok(()) } else { Err(Error::argument(name, "in (0, 1)", value)) }
}

#[cfg(test)]
mod tests;
