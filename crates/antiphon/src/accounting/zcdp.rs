//! Zero-concentrated differential privacy and Rényi divergences, and the (ε, δ) that they imply.
//!
//! A mechanism is ρ-zCDP where its Rényi divergence of every order α > 1 is at most ρα (Bun and Steinke 2016). For a
//! Gaussian mechanism ρ = 1/(2z²), and it is μ-GDP with μ = 1/z (Dong, Roth and Su 2022).

use super::gaussian::{positive, probability};
use crate::error::Result;
use libm::{exp, log, log1p};

pub use super::gaussian::zcdp as rho;

/// μ of Gaussian differential privacy, rounded up: 1/z.
pub fn mu(noise_multiplier: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    Ok(noise_multiplier.recip().next_up()) // up
}

/// The Rényi divergence of order α of a Gaussian mechanism, rounded up: α/(2z²).
pub fn renyi(noise_multiplier: f64, order: f64) -> Result<f64> {
    positive("noise_multiplier", noise_multiplier)?;
    positive("order", order)?;
    Ok((rho(noise_multiplier)? * order).next_up()) // up
}

/// An ε for which every ρ-zCDP mechanism is (ε, δ)-private: the smallest that follows from one order α,
///
/// ```text
/// ε = ρα + ln(1/(αδ))/(α − 1) + ln(1 − 1/α),      minimised over α > 1
/// ```
///
/// (Canonne, Kamath and Steinke 2020, proposition 12). Any α is valid, so a poor minimum costs tightness only. A Gaussian
/// mechanism has a smaller ε than this: [`epsilon`](super::gaussian::epsilon).
pub fn epsilon(rho: f64, delta: f64) -> Result<f64> {
    positive("rho", rho)?;
    probability("delta", delta)?;
    let at = |log_excess: f64| {
        let excess = exp(log_excess); // α − 1
        let order = 1.0 + excess;
        rho * order - (log1p(excess) + log(delta)) / excess - log1p(1.0 / excess)
    };
    // A ternary search in ln(α − 1), after a look at a grid: the function has one minimum.
    let grid = (-400..=400).map(|i| 0.1 * f64::from(i));
    let start = grid.min_by(|a, b| at(*a).total_cmp(&at(*b))).unwrap_or(0.0);
    let (mut low, mut high) = (start - 0.2, start + 0.2);
    for _ in 0..100 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if at(a) < at(b) { high = b } else { low = a }
    }
    let excess = exp(0.5 * (low + high));
    let logs = (log1p(excess) + log(delta).abs()) / excess + log1p(1.0 / excess);
    let size = rho * (1.0 + excess) + logs + 1.0;
    // Up: a dozen roundings of terms of this size.
    Ok((at(0.5 * (low + high)) + 16.0 * f64::EPSILON * size).max(0.0))
}
