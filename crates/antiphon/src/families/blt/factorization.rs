//! What a BLT does to vectors, its sensitivity, and the variances of its noise.

use super::rational::Rational;
use super::sensitivity::{CORRELATION_ROUNDING, Rule, correlation};
use crate::error::Result;
use crate::families::comb::Comb;
use crate::families::comb::factorization::Coefficients;
use crate::linalg::dense::Matrix;
use crate::mechanism::factorization::{Cost, Factorization, variances_by_columns};
use crate::schema::Schema;
use crate::sensitivity::{EXACT_TO, Method, PatternBounds, Sensitivity, WorstCase};
use crate::workload::{Training, Workload};

/// Most epochs of reshuffled epochs for which all pairs of them are looked at.
const MOST_PAIRS_OF: usize = 4_096;
/// Up to so many steps the gram matrix is quickly written out.
const SHORT: usize = 2_000;
/// So many powers are made by multiplication before they are computed anew.
const REFRESH: usize = 256;

/// C = T⁻¹·Diag(1/o).
pub struct Toeplitz {
    coefficients: Coefficients,
    rational: Rational,
    gram_error: f64,
}

impl Toeplitz {
    /// Of a comb that is a BLT.
    pub fn new(comb: Comb) -> Toeplitz {
        let rational = Rational::of(&comb.filter);
        let coefficients = Coefficients::new(comb);
        let least = coefficients.output.iter().copied().fold(f64::INFINITY, f64::min);
        // No entry is larger than the largest on the diagonal; 8ε for its two divisions and o.
        let largest = correlation(&rational, 0, coefficients.comb.steps) / (least * least);
        let gram_error = (CORRELATION_ROUNDING + 8.0 * f64::EPSILON) * largest;
        Toeplitz { coefficients, rational, gram_error }
    }

    /// D_i.
    fn scale(&self, step: usize) -> f64 {
        1.0 / self.coefficients.output[step]
    }

    /// max_{s≥t} D_s at the steps t = 0, b, 2b, …: the least profile above D that does not grow.
    fn envelope(&self, b: usize) -> Vec<f64> {
        let mut largest = 0.0f64;
        let mut at_pattern = Vec::new();
        for step in (0..self.steps()).rev() {
            largest = largest.max(self.scale(step));
            if step % b == 0 {
                at_pattern.push(largest);
            }
        }
        at_pattern.reverse();
        at_pattern
    }

    /// One participation: the largest norm of a column, whatever the profile.
    pub(super) fn single(&self) -> (PatternBounds, Vec<usize>) {
        let n = self.steps();
        let mut powers = Vec::new();
        // c_0² + … + c_s² is the square of column n − 1 − s of T⁻¹.
        let (mut sum, mut largest, mut worst) = (0.0, 0.0, 0);
        for s in 0..n {
            let c = match s {
                0 => 1.0,
                _ => {
                    if (s - 1) % REFRESH == 0 {
                        powers = self.rational.poles.iter().map(|p| p.pow(s - 1)).collect();
                    }
                    let c: f64 = powers.iter().zip(&self.rational.weights).map(|(p, w)| w * p).sum();
                    powers.iter_mut().zip(&self.rational.poles).for_each(|(x, p)| *x *= p.value());
                    c
                }
            };
            sum += c * c;
            let scale = self.scale(n - 1 - s);
            if sum * scale * scale > largest {
                (largest, worst) = (sum * scale * scale, n - 1 - s);
            }
        }
        // As of correlations, REFRESH products in a power, twice, and a sum of n squares.
        let rounding = CORRELATION_ROUNDING + (4 * REFRESH + n) as f64 * f64::EPSILON;
        (bracket(largest, largest, rounding, Method::NonNegative), vec![worst])
    }

    /// The Toeplitz rule with the envelope of D from above, and with D from below; the same where D does not grow.
    pub(super) fn separated(&self, b: usize, k: usize) -> (PatternBounds, Vec<usize>) {
        let rule = Rule::new(&self.rational, self.steps(), b, k);
        let above = self.envelope(b);
        let upper = rule.squared(|j| above[j]);
        let lower = rule.squared(|j| self.scale(j * b));
        let pattern = (0..rule.participations()).map(|j| j * b).collect();
        (bracket(lower, upper, rule.rounding(), Method::Toeplitz), pattern)
    }

    /// A new order in each epoch: participation j is in step jb at the earliest, and participations i < j are at least (j − i − 1)b + 1 apart. An entry
    /// of the gram matrix falls with both, so that all pairs together are bounded by their own.
    pub(super) fn reshuffled(&self, b: usize, k: usize) -> (PatternBounds, Vec<usize>) {
        let n = self.steps();
        let above = self.envelope(b);
        let mut sum = 0.0;
        for j in 0..k {
            let pair = |i: usize| match i == j {
                true => correlation(&self.rational, 0, n - j * b) * above[j],
                false => 2.0 * correlation(&self.rational, (j - i - 1) * b + 1, n - j * b) * above[i],
            };
            sum += above[j] * (0..=j).map(pair).sum::<f64>();
        }
        let rule = Rule::new(&self.rational, n, b, k);
        let lower = rule.squared(|j| self.scale(j * b));
        let pattern = (0..k).map(|j| j * b).collect();
        (bracket(lower, sum, rule.rounding(), Method::Toeplitz), pattern)
    }
}

/// Bounds on a square that is known to a relative error: 8ε more for D and for the last products.
fn bracket(lower: f64, upper: f64, rounding: f64, method: Method) -> PatternBounds {
    let rounding = rounding + 8.0 * f64::EPSILON;
    PatternBounds { lower: lower * (1.0 - rounding), upper: upper * (1.0 + rounding), method } // down, up
}

impl Factorization for Toeplitz {
    fn steps(&self) -> usize {
        self.coefficients.steps()
    }

    fn inputs(&self) -> usize {
        self.coefficients.inputs()
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        let own = correlation(&self.rational, i.abs_diff(j), self.steps() - i.max(j));
        own * self.scale(i) * self.scale(j)
    }

    fn gram_error(&self) -> f64 {
        self.gram_error
    }

    fn own_sensitivity(&self, schema: &Schema) -> Option<Result<WorstCase>> {
        let k = schema.max_participations();
        let (squared, pattern) = match schema {
            Schema::Patterns { .. } => return None,
            _ if k == 1 => self.single(),
            Schema::FixedOrder { steps_per_epoch: b, .. }
            | Schema::MinSeparation { min_separation: b, .. } => self.separated(*b, k),
            Schema::Reshuffled { .. } if k > MOST_PAIRS_OF => return None,
            Schema::Reshuffled { steps_per_epoch: b, .. } => self.reshuffled(*b, k),
        };
        let found = match Sensitivity::from_squared(squared, 1.0) {
            Ok(sensitivity) => sensitivity,
            Err(error) => return Some(Err(error)),
        };
        // Where the rule gives a mere bound, the gram matrix of a short run may give more.
        if found.upper > found.lower * (1.0 + EXACT_TO) && self.steps() <= SHORT {
            return None;
        }
        Some(Ok(WorstCase { sensitivity: found, pattern: Some(pattern) }))
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        self.coefficients.encode(x)
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        self.coefficients.noise(z)
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        self.coefficients.noise_transpose(u)
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match workload {
            Workload::Training(training) => {
                let mut moments = Moments::new(&self.rational, training);
                let output = self.coefficients.output.iter().enumerate();
                output.map(|(step, gain)| moments.step(step, *gain)).collect()
            }
            Workload::Dense(_) => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        self.coefficients.cost()
    }
}

/// Covariances of the buffers s, the momentum v and the iterate u, step by step: O(d²) each.
///
/// ```text
/// ξ = z − Σ ω̂_q s_q,    v ← βv + o·ξ,    u ← u + ηv,    s_q ← ẑ_q s_q + z
/// ```
struct Moments<'a> {
    training: &'a Training,
    weights: &'a [f64],
    zeros: Vec<f64>,
    /// E[s·sᵀ], row by row.
    ss: Vec<f64>,
    sv: Vec<f64>,
    su: Vec<f64>,
    vv: f64,
    uv: f64,
    uu: f64,
}

impl<'a> Moments<'a> {
    fn new(rational: &'a Rational, training: &'a Training) -> Moments<'a> {
        let d = rational.buffers();
        Moments {
            training,
            weights: &rational.inverse_weights,
            zeros: rational.zeros.iter().map(|z| z.value()).collect(),
            ss: vec![0.0; d * d],
            sv: vec![0.0; d],
            su: vec![0.0; d],
            vv: 0.0,
            uv: 0.0,
            uu: 0.0,
        }
    }

    /// One step; the variance of the iterate.
    fn step(&mut self, step: usize, gain: f64) -> f64 {
        let (beta, eta) = (self.training.momentum(), self.training.rate(step));
        let dot = |x: &[f64]| -> f64 { x.iter().zip(self.weights).map(|(x, w)| x * w).sum() };
        // −E[s·ξ], and E[ξ²], −E[vξ], −E[uξ].
        let s_xi: Vec<f64> = self.ss.chunks(self.zeros.len()).map(dot).collect();
        let (xi, v_xi, u_xi) = (1.0 + dot(&s_xi), dot(&self.sv), dot(&self.su));
        self.vv = beta * beta * self.vv - 2.0 * beta * gain * v_xi + gain * gain * xi;
        let uv = beta * self.uv - gain * u_xi;
        self.uu += eta * (2.0 * uv + eta * self.vv);
        self.uv = uv + eta * self.vv;
        for (q, zero) in self.zeros.iter().enumerate() {
            let sv = beta * self.sv[q] - gain * s_xi[q];
            self.su[q] = zero * (self.su[q] + eta * sv) + eta * gain;
            self.sv[q] = zero * sv + gain;
            let row = self.ss.iter_mut().skip(q * self.zeros.len()).zip(&self.zeros);
            row.for_each(|(x, other)| *x = zero * other * *x + 1.0);
        }
        self.uu
    }
}
