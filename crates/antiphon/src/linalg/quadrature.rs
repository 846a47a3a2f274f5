//! Quadrature for the inverse square root: μ^{-1/2} ≈ r(μ) = Σ_j w_j / (μ + τ_j).
//!
//! The midpoint rule for (2/π)∫₀^∞ (μ + t²)⁻¹ dt in the Jacobi elliptic coordinate t = √m·sc(u)
//! (Hale, Higham, Trefethen 2008, "method 3") has a relative error that equioscillates on the interval
//! [m, M] it was made for and falls like exp(−2π²N / ln(16·M/m)).
//!
//! What is *proved* about a rule does not rest on that theory, but on its numbers τ_j, w_j as they are:
//! with s = ln μ, h(s) = r(μ)√μ is a positive sum of hyperbolic secants, whose derivatives it bounds itself, and a
//! branch-and-bound on an interval gives the supremum of h over all μ > 0 (docs/theory.md).

use crate::error::{Error, Result};

/// The nodes τ and weights w of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Quadrature {
    /// τ_j, increasing.
    pub nodes: Vec<f64>,
    /// w_j.
    pub weights: Vec<f64>,
}

/// How many nodes reach the relative error `error` on an interval with ratio `condition` = M/m.
pub fn nodes_for(condition: f64, error: f64) -> usize {
    use std::f64::consts::PI;
    let rate = 2.0 * PI * PI / (16.0 * condition.max(2.0)).ln();
    let count = ((4.0 / error).ln() / rate).ceil();
    // An infinite condition makes an interval that the rule itself refuses.
    count.clamp(1.0, 1e4) as usize + 1
}

impl Quadrature {
    /// The rule with `count` nodes for the interval [low, high].
    pub fn new(low: f64, high: f64, count: usize) -> Result<Self> {
        if !(low > 0.0 && low < high && high.is_finite() && count > 0) {
            return Err(Error::Numerical(format!("no quadrature on [{low:e}, {high:e}] with {count} nodes")));
        }
        // sc(u | 1 − q) = −i·sn(iu | q) for the small parameter q = low/high: the arithmetic-geometric
        // mean with hyperbolic instead of circular functions, which loses no digits as q → 0.
        let q = low / high;
        let (mut a, mut b) = (1.0f64, (1.0 - q).sqrt());
        let mut c = q / (2.0 * (a + b));
        let mut ratios = Vec::new();
        loop {
            (a, b) = (0.5 * (a + b), (a * b).sqrt());
            ratios.push(c / a);
            if c <= 1e-17 * a {
                break;
            }
            c = c * c / (2.0 * (a + b));
        }
        let period = std::f64::consts::FRAC_PI_2 / agm(1.0, q.sqrt()); // K'
        let step = period / count as f64;
        let scale = 2.0 * step / std::f64::consts::PI;
        let mut nodes = vec![0.0; count];
        let mut weights = vec![0.0; count];
        for j in 0..count.div_ceil(2) {
            let u = (j as f64 + 0.5) * step;
            let mut psi = u * a * 2f64.powi(ratios.len() as i32);
            for ratio in ratios.iter().rev() {
                psi = 0.5 * (psi + (ratio * psi.sinh()).asinh());
            }
            let sc = psi.sinh();
            nodes[j] = low * sc * sc;
            weights[j] = scale * low.sqrt() * psi.cosh() * (1.0 + q * sc * sc).sqrt();
            // sc(K' − u)·sc(u) = √(high/low): the rule is symmetric about √(low·high).
            let mirror = count - 1 - j;
            nodes[mirror] = low * (high / nodes[j]);
            weights[mirror] = weights[j] * (low.sqrt() * high.sqrt() / nodes[j]);
        }
        let rule = Quadrature { nodes, weights };
        rule.check()?;
        Ok(rule)
    }

    /// Checks a rule that was read from a file: positive, finite, increasing nodes.
    pub fn check(&self) -> Result<()> {
        // Far from where products of a node, a weight and a root would leave the range of numbers.
        let positive = |x: &f64| (1e-150..=1e150).contains(x);
        let sound = self.nodes.len() == self.weights.len()
            && !self.nodes.is_empty()
            && self.nodes.iter().all(positive)
            && self.weights.iter().all(positive)
            && self.nodes.windows(2).all(|pair| pair[0] < pair[1]);
        if sound {
            Ok(())
        } else {
            Err(Error::Numerical(
                "quadrature nodes and weights must be in [1e-150, 1e150], the nodes increasing".into(),
            ))
        }
    }

    /// h(s) = r(μ)√μ at μ = eˢ and its first two derivatives in s.
    fn h(&self, s: f64) -> [f64; 3] {
        let mu = s.exp();
        let root = mu.sqrt();
        let mut h = [0.0; 3];
        for (node, weight) in self.nodes.iter().zip(&self.weights) {
            let inverse = 1.0 / (mu + node);
            let (term, part) = (weight * root * inverse, mu * inverse);
            h[0] += term;
            h[1] += term * (0.5 - part);
            h[2] += term * ((0.5 - part) * (0.5 - part) - part * (1.0 - part));
        }
        h
    }

    /// An upper bound on sup r(μ)√μ over all μ > 0, tight to `tolerance`.
    pub fn supremum(&self, tolerance: f64) -> f64 {
        let (low, high) = self.range();
        supremum(low, high, tolerance, |s| self.h(s))
    }

    /// A lower bound on inf r(μ)√μ over μ in [low, high], tight to `tolerance`. Zero, which is always true, where
    /// that is no interval of positive numbers.
    pub fn infimum(&self, low: f64, high: f64, tolerance: f64) -> f64 {
        if !(low > 0.0 && low <= high && high.is_finite()) {
            return 0.0;
        }
        let (first, last) = self.range();
        let top = upper_bound(first, last, |s| self.h(s));
        -bound(low.ln(), high.ln(), top, tolerance, |s| self.h(s).map(|x| -x))
    }

    /// Where the supremum of h lies: left of all nodes every term of h rises, right of them every term falls.
    fn range(&self) -> (f64, f64) {
        (self.nodes[0].ln(), self.nodes[self.nodes.len() - 1].ln())
    }
}

/// An upper bound on the supremum over all s of a positive combination h of terms sech((s − t)/2), given with its first two derivatives, if the
/// supremum lies in [low, high]; tight to `tolerance` (docs/theory.md, section 6.3).
pub fn supremum(low: f64, high: f64, tolerance: f64, h: impl Fn(f64) -> [f64; 3]) -> f64 {
    bound(low, high, upper_bound(low, high, &h), tolerance, h)
}

/// An upper bound on h: as |h''| ≤ h/4, it exceeds its maximum over a grid of spacing ν at most by the factor 1/(1 − ν²/32).
fn upper_bound(low: f64, high: f64, h: impl Fn(f64) -> [f64; 3]) -> f64 {
    let cells = ((high - low) * 4.0).ceil() + 1.0;
    let spacing = (high - low) / cells;
    let top = (0..=cells as usize).map(|i| h(low + i as f64 * spacing)[0]).fold(0.0, f64::max);
    top / (1.0 - spacing * spacing / 32.0)
}

/// An upper bound on max f over [low, high] for f = ±h with h ≤ `top`, given with two derivatives, by bisection of the intervals that
/// may still hold the maximum: |h'''| ≤ 0.22·h bounds what Taylor's formula leaves out. Rounding errors of f (a short sum of positive terms) are far
/// below `tolerance`, which is added on top.
fn bound(low: f64, high: f64, top: f64, tolerance: f64, f: impl Fn(f64) -> [f64; 3]) -> f64 {
    let cells = ((high - low) * 4.0).ceil() as usize + 1;
    let half = 0.5 * (high - low) / cells as f64;
    let mut open: Vec<(f64, f64)> = (0..cells).map(|i| (low + (2 * i + 1) as f64 * half, half)).collect();
    let (mut best, mut closed) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    // Relative where h is large: rounding errors are.
    let tolerance = tolerance * top.max(1.0);
    while let Some((centre, half)) = open.pop() {
        let [value, slope, second] = f(centre);
        best = best.max(value);
        let rest = 0.5 * second.max(0.0) + 0.22 * top * half / 6.0;
        let above = value + (slope.abs() + rest * half) * half;
        if !above.is_finite() {
            return f64::INFINITY; // true of everything
        }
        // Below this width rounding decides, not the function; the interval is closed with its bound as it is.
        if above <= best + tolerance || half < 1e-9 {
            closed = f64::max(closed, above);
        } else {
            open.push((centre - 0.5 * half, 0.5 * half));
            open.push((centre + 0.5 * half, 0.5 * half));
        }
    }
    best.max(closed) + tolerance
}

fn agm(mut a: f64, mut b: f64) -> f64 {
    while (a - b).abs() > 1e-15 * a {
        (a, b) = (0.5 * (a + b), (a * b).sqrt());
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_follows_the_law_and_the_bounds_contain_it() {
        for condition in [1e2, 1e6, 1e12, 1e20] {
            for wanted in [1e-3, 1e-5, 1e-7] {
                let (low, high) = (0.3, 0.3 * condition);
                let rule = Quadrature::new(low, high, nodes_for(condition, wanted)).unwrap();
                let top = rule.supremum(1e-9);
                let bottom = rule.infimum(low, high, 1e-9);
                assert!(top - 1.0 < 1.1 * wanted + 1e-8, "{condition:e} {wanted:e} {top}");
                assert!(1.0 - bottom < 1.1 * wanted + 1e-8);
                let mut seen = 0.0f64;
                for i in 0..=4000 {
                    let s = low.ln() - 5.0 + (condition.ln() + 10.0) * i as f64 / 4000.0;
                    let [value, ..] = rule.h(s);
                    assert!(value <= top, "{value} {top}");
                    if s >= low.ln() && s <= high.ln() {
                        assert!(value >= bottom);
                    }
                    seen = seen.max(value);
                }
                // The bound is not only true, but sharp.
                assert!(top - seen < 0.05 * (top - 1.0).abs() + 1e-8);
            }
        }
    }

    #[test]
    fn extreme_rules_end_at_once() {
        let rule =
            |nodes: &[f64], weights: &[f64]| Quadrature { nodes: nodes.into(), weights: weights.into() };
        for bad in [rule(&[1.0], &[1e308]), rule(&[5e-324], &[1.0]), rule(&[1.0, f64::MAX], &[1.0, f64::MAX])]
        {
            assert!(bad.check().is_err());
            // Even unchecked they give bounds that hold, after finitely many steps.
            assert!(bad.supremum(1e-9) >= 1.0);
            assert!(bad.infimum(1e-3, 1e3, 1e-9) <= 1.0);
        }
        assert_eq!(rule(&[1.0], &[1.0]).infimum(f64::INFINITY, f64::NAN, 1e-9), 0.0);
    }

    #[test]
    fn bad_intervals_are_refused() {
        assert!(Quadrature::new(0.0, 1.0, 5).is_err());
        assert!(Quadrature::new(2.0, 1.0, 5).is_err());
        assert!(Quadrature::new(1.0, f64::NAN, 5).is_err());
    }
}
