//! Logs of Poisson-sampled runs: are they Poisson samples of the stated rate?
//!
//! Amplification by sampling holds only as long as nobody knows who was sampled. The log tells exactly that, so no ε follows from
//! it: it must be kept as secret as the key of the noise. What it can show is that the samples were none.
//!
//! Three checks, each at a third of [`ALPHA`]: the number of participations; how much the sizes of the batches vary (batches of a
//! fixed size do not); how much the participations per unit vary (in epochs over shuffled data they do not).

use super::Violation;
use super::participations::{Counts, Participations};
use super::violations::repeated;
use crate::accounting::{self, Adjacency, Event, Params};
use crate::error::{Error, Result};
use crate::run::log::Line;
use libm::{exp, log, log1p};
use serde::Serialize;

/// The probability that a log of true Poisson samples fails any of the checks, at most.
pub const ALPHA: f64 = 1e-6;
/// The dispersion of N counts of variance v is examined where v·√N is at least this. Its distribution is then near enough to the χ²
/// distribution with the same mean and variance: at five standard deviations the difference of their third cumulants
/// changes probabilities by a factor of about e at most, (14/v)/(2 + 1/v)^1.5/√N · 5³/6 ≈ 1, and Chernoff's bound is too large by a
/// factor of 12 there.
const ENOUGH: f64 = 100.0;

/// How a run was sampled.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    /// q, the probability of a unit to be in a sample.
    pub rate: f64,
    /// T, the number of steps that the run was planned for.
    pub steps: u64,
    /// N, the number of units: sampled or not.
    pub units: u64,
}

/// One check and what came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What was examined.
    pub name: &'static str,
    /// What was expected of Poisson samples.
    pub expected: f64,
    /// What the log has.
    pub observed: f64,
    /// A bound on the probability that Poisson samples are as far from what is expected; `None` where there was too little to
    /// examine.
    pub p_value: Option<f64>,
}

impl Check {
    /// Whether the log may be one of Poisson samples, as far as this check can tell.
    pub fn passed(&self) -> bool {
        self.p_value.is_none_or(|p| p >= ALPHA / 3.0)
    }
}

/// What was found in the log of a sampled run. There is no realised ε.
#[derive(Debug, Clone)]
pub struct SampledAudit {
    /// Units that were listed twice in a step, and checks that failed.
    pub violations: Vec<Violation>,
    /// What the log contains.
    pub counts: Counts,
    /// All checks.
    pub checks: Vec<Check>,
    /// ε of the run as it was stated, for Poisson samples that nobody knows. An upper bound.
    pub epsilon_stated: f64,
}

impl SampledAudit {
    /// Whether nothing was found.
    pub fn ok(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Audits a run of DP-SGD on Poisson samples: noise of standard deviation `noise_multiplier` times the clip norm in every step.
/// Units and steps must be in the range of the sampling, which [`Reader`](crate::run::log::Reader) checks.
pub fn audit_sampled(
    sampling: Sampling,
    lines: impl Iterator<Item = Result<Line>>,
    noise_multiplier: f64,
    delta: f64,
    adjacency: Adjacency,
) -> Result<SampledAudit> {
    if sampling.units == 0 {
        return Err(Error::argument("units", "at least 1", sampling.units));
    }
    let event = adjacency.apply(&Event::dp_sgd(sampling.rate, noise_multiplier, sampling.steps))?;
    let epsilon_stated = accounting::epsilon(&event, delta, &Params::default())?.upper;
    let all = Participations::collect(lines, sampling.steps as usize)?;
    let mut violations = twice(&all);
    let checks = checks(sampling, &all)?;
    violations.extend(checks.iter().filter(|check| !check.passed()).map(|check| Violation {
        step: None,
        unit: None,
        reason: format!(
            "not Poisson samples of rate {}: {} {}, expected {} (p-value at most {:.1e})",
            sampling.rate,
            check.name,
            Short(check.observed),
            Short(check.expected),
            check.p_value.unwrap_or(1.0)
        ),
    }));
    Ok(SampledAudit { violations, counts: all.counts(), checks, epsilon_stated })
}

/// A count as it is, anything else with a few digits.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.fract() == 0.0 { write!(f, "{}", self.0) } else { write!(f, "{:.4}", self.0) }
    }
}

fn twice(all: &Participations) -> Vec<Violation> {
    let mut found = Vec::new();
    for unit in all.units() {
        let steps: Vec<usize> = unit.iter().map(|pair| pair.1 as usize).collect();
        for same in steps.chunk_by(|a, b| a == b) {
            let violation = |reason| Violation { step: Some(same[0]), unit: Some(unit[0].0), reason };
            found.extend(repeated(same[0], same).map(violation));
        }
    }
    found.sort_unstable_by_key(|violation| (violation.step, violation.unit));
    found
}

fn checks(sampling: Sampling, all: &Participations) -> Result<Vec<Check>> {
    let Sampling { rate, units, .. } = sampling;
    let sizes = all.batch_sizes();
    let total: u64 = sizes.iter().sum();
    let counts: Vec<u64> = all.units().map(|unit| unit.chunk_by(|a, b| a == b).count() as u64).collect();
    let never = units.checked_sub(counts.len() as u64).ok_or_else(|| {
        Error::argument("the number of distinct units in the log", format!("at most {units}"), counts.len())
    })?;
    let steps = sizes.len() as f64;
    let tries = units as f64 * steps;
    Ok(vec![
        Check {
            name: "number of participations",
            expected: tries * rate,
            observed: total as f64,
            p_value: Some(binomial(tries, rate, total as f64)),
        },
        dispersion("variance of the batch sizes over its expectation", &sizes, 0, units as f64, rate),
        dispersion(
            "variance of the participations per unit over its expectation",
            &counts,
            never,
            steps,
            rate,
        ),
    ])
}

/// A bound on the probability that a binomial count is as far on either side of its mean: Chernoff's, e^{−n·KL(p‖q)} on each side.
fn binomial(tries: f64, rate: f64, count: f64) -> f64 {
    let p = count / tries;
    let taken = if p > 0.0 { p * log(p / rate) } else { 0.0 };
    // (1 − p)·ln((1 − p)/(1 − q)), without a difference of numbers near one: n may be large and q tiny.
    let left = if p < 1.0 { (1.0 - p) * log1p((rate - p) / (1.0 - rate)) } else { 0.0 };
    // Never negative, but for rounding.
    (2.0 * exp(-tries * (taken + left).max(0.0))).min(1.0)
}

/// Σ(x − μ)²/v over N counts, each binomial with so many tries, divided by N: near one for Poisson samples. `zeros` more counts are
/// zero.
fn dispersion(name: &'static str, counts: &[u64], zeros: u64, tries: f64, rate: f64) -> Check {
    let number = counts.len() as f64 + zeros as f64;
    let (mean, variance) = (tries * rate, tries * rate * (1.0 - rate));
    let squares: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum();
    let sum = (squares + zeros as f64 * mean * mean) / variance;
    // The exact mean and variance of the sum: N, and N·(2 + (1 − 6q(1 − q))/v).
    let spread = 2.0 + (1.0 - 6.0 * rate * (1.0 - rate)) / variance;
    let enough = variance * number.sqrt() >= ENOUGH;
    Check {
        name,
        expected: 1.0,
        observed: if variance > 0.0 { sum / number } else { 0.0 },
        p_value: enough.then(|| chi_squared(sum / number, 2.0 * number / spread)),
    }
}

/// A bound on the probability that a χ² variable with so many degrees of freedom, divided by them, is as far on either side of one:
/// Chernoff's, e^{−(f/2)(r − 1 − ln r)} on each side.
fn chi_squared(ratio: f64, degrees: f64) -> f64 {
    (2.0 * exp(-0.5 * degrees * (ratio - 1.0 - log(ratio)).max(0.0))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_not_below_the_true_probabilities() {
        // Binomial(20, 0.5): P(X ≥ 18) = 211/2²⁰, twice that for both sides.
        let bound = binomial(20.0, 0.5, 18.0);
        let exact = 2.0 * 211.0 / f64::from(1 << 20);
        assert!(bound >= exact && bound < 20.0 * exact, "{bound} {exact}");
        assert_eq!(binomial(100.0, 0.25, 25.0), 1.0);
        // As expected, of very many: rounding must not look like a deviation.
        assert!(binomial(1e20, 1e-12, 1e8) > 0.9 && binomial(1e20, 1e-12, 1.001e8) < 1e-20);
        assert_eq!((binomial(10.0, 1.0, 10.0), binomial(10.0, 1.0, 9.0)), (1.0, 0.0));
        assert!((binomial(10.0, 0.1, 0.0) - 2.0 * 0.9f64.powi(10)).abs() < 1e-12);
        // χ² with 10 degrees: quantiles of the tables, 29.588 for 1e-3 above and 1.479 for 1e-3 below.
        for quantile in [29.588, 1.479] {
            let bound = chi_squared(quantile / 10.0, 10.0);
            assert!((2e-3..4e-2).contains(&bound), "{quantile}: {bound}");
        }
        assert_eq!((chi_squared(1.0, 10.0), chi_squared(0.0, 10.0)), (1.0, 0.0));
    }
}
