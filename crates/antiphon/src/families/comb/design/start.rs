//! Where a design begins, and how it goes on with more knots or longer epochs.

use super::objective::Objective;
use crate::families::comb::filter::Filter;
use crate::families::comb::shape::{Comb, packed_len};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::Certificate;
use crate::workload::Training;

/// The most knots: a fineness.
pub const MOST_FINE: usize = 2;
/// μ, times k².
const SOFTNESS: f64 = 1e-3;

/// A run with epochs of another length, like the one that is asked for.
pub struct Level {
    /// n.
    pub steps: usize,
    /// A.
    pub training: Training,
    period: usize,
    /// The length of the epochs that are asked for.
    full: usize,
}

impl Level {
    /// The run of so many steps with epochs of b' instead of b steps.
    pub fn new(steps: usize, full: usize, period: usize, training: &Training) -> Level {
        let (epochs, rest) = (steps / full, steps % full);
        let rest = if rest == 0 { 0 } else { (rest * period / full).clamp(1, period) };
        let short = epochs * period + rest;
        let place = |t: usize| (t / period * full + t % period * full / period).min(steps - 1);
        let training = match period == full {
            true => training.clone(),
            false => training.sampled((0..short).map(place)),
        };
        Level { steps: short, training, period, full }
    }

    fn epochs(&self) -> usize {
        self.steps.div_ceil(self.period)
    }

    /// The residue of the run that is asked for that is nearest to one here.
    fn residue(&self, residue: usize) -> usize {
        ((2 * residue + 1) * self.full / (2 * self.period)).min(self.full - 1)
    }

    /// Operations of one evaluation, about.
    pub fn cost(&self, buffers: usize) -> f64 {
        let (n, b, k, d) = (self.steps as f64, self.period as f64, self.epochs() as f64, buffers as f64);
        b * (3.0 * k * k * k + 8.0 * d * d * k * k)
            + n * (12.0 * k * (d + 2.0) + 20.0 * (d + 2.0) * (d + 2.0))
    }

    /// Where gains stand: more of them where there are few epochs, and at the end of the run what momentum needs.
    fn gain_knots(&self, fineness: usize) -> Vec<usize> {
        let count = (48 / self.epochs()).clamp(5, 24) << fineness;
        let mut knots = spread(self.period, count);
        let end = self.last_residue();
        if self.training.momentum() > 0.0 {
            let held = 1.0 / (1.0 - self.training.momentum());
            let before = [0.5, 1.5, 4.0].iter().take(1 + fineness).chain([&1.5]);
            knots.extend(before.filter_map(|times| end.checked_sub((held * times) as usize)));
        }
        self.with_edge(knots)
    }

    fn mix_knots(&self, fineness: usize) -> Vec<usize> {
        let count = match self.epochs() {
            1 => 1,
            2..=8 => 5 + 4 * fineness,
            _ => 3 + 2 * fineness,
        };
        match count {
            1 => vec![0],
            _ => self.with_edge(spread(self.period, count)),
        }
    }

    /// The residue of the last step.
    fn last_residue(&self) -> usize {
        (self.steps - 1) % self.period
    }

    /// Both sides of where the last epoch ends, if it is incomplete: residues beyond it come once less.
    fn with_edge(&self, mut knots: Vec<usize>) -> Vec<usize> {
        let end = self.last_residue();
        if end + 1 < self.period {
            knots.extend([end, end + 1]);
        }
        knots.sort_unstable();
        knots.dedup();
        knots
    }

    /// From the certificate: L_r is the triangular factor of U_r^½, its rows of norm one, because WWᵀ is the geometric mean of U and V⁻¹.
    pub fn start(&self, filter: Filter, certificate: &Certificate, fineness: usize) -> Comb {
        let k = self.epochs();
        let (mix_knots, gain_knots) = (self.mix_knots(fineness), self.gain_knots(fineness));
        let mix =
            mix_knots.iter().flat_map(|knot| root(&certificate.factors[self.residue(*knot)], k)).collect();
        let gains = vec![1.0; k * gain_knots.len()];
        Comb {
            steps: self.steps,
            period: self.period,
            filter,
            mix_knots,
            mix,
            input_gain: gains.clone(),
            output_gain: gains,
            gain_knots,
            residue_gain: Vec::new(),
        }
    }

    /// A comb for other epochs, or with other knots, at the same parts of the epoch.
    pub fn resampled(&self, comb: &Comb, filter: Filter, fineness: usize) -> Comb {
        let k = self.epochs();
        let (mix_knots, gain_knots) = (self.mix_knots(fineness), self.gain_knots(fineness));
        let scale = (comb.period.max(2) - 1) as f64 / (self.period.max(2) - 1) as f64;
        let at = |knots: &[usize], old: &[f64], width: usize, new: &[usize]| -> Vec<f64> {
            let one = |knot: &usize| between(knots, *knot as f64 * scale, old, width);
            new.iter().flat_map(one).collect()
        };
        let gains = |old: &[f64]| -> Vec<f64> {
            let epochs = old.chunks_exact(comb.gain_knots.len());
            epochs.flat_map(|epoch| at(&comb.gain_knots, epoch, 1, &gain_knots)).collect()
        };
        Comb {
            steps: self.steps,
            period: self.period,
            filter,
            mix: at(&comb.mix_knots, &comb.mix, packed_len(k), &mix_knots),
            input_gain: gains(&comb.input_gain),
            output_gain: gains(&comb.output_gain),
            mix_knots,
            gain_knots,
            residue_gain: Vec::new(),
        }
    }

    /// What is minimised from here, with the multipliers of the certificate, and gains such that the squared sensitivities are about one.
    pub fn objective(&self, comb: Comb, certificate: &Certificate) -> Objective<'_> {
        let k = comb.epochs();
        let multipliers =
            (0..self.period).flat_map(|r| correlations(&certificate.factors[self.residue(r)], k));
        let mut objective = Objective {
            training: &self.training,
            multipliers: multipliers.collect(),
            softness: SOFTNESS / (k * k) as f64,
            base: comb,
        };
        let gains = objective.value(&vec![0.0; objective.variables()]).comb.residue_gain;
        let mean = (gains.iter().map(|x| x * x).sum::<f64>() / gains.len() as f64).sqrt();
        objective.base.output_gain.iter_mut().for_each(|o| *o *= mean);
        objective
    }
}

/// So many places from 0 to b − 1, closer at both ends.
fn spread(period: usize, count: usize) -> Vec<usize> {
    let place = |i: usize| {
        let part = 0.5 - 0.5 * (std::f64::consts::PI * i as f64 / (count - 1) as f64).cos();
        (part * (period - 1) as f64).round() as usize
    };
    let mut knots: Vec<usize> = (0..count).map(place).collect();
    knots.dedup();
    knots
}

/// Vectors at knots, at a place between them.
fn between(knots: &[usize], at: f64, old: &[f64], width: usize) -> Vec<f64> {
    let after = knots.partition_point(|knot| *knot as f64 <= at).clamp(1, knots.len().max(2) - 1);
    let (a, b) = (after - 1, after.min(knots.len() - 1));
    let part = match b > a {
        true => ((at - knots[a] as f64) / (knots[b] - knots[a]) as f64).clamp(0.0, 1.0),
        false => 0.0,
    };
    (0..width).map(|i| (1.0 - part) * old[a * width + i] + part * old[b * width + i]).collect()
}

/// U = FFᵀ of a factor of the certificate, as many epochs as it has.
fn square(factor: &[f64]) -> Matrix {
    let m = factor.len().isqrt();
    let f = dense::from_fn(m, m, |i, j| factor[i * m + j]);
    &f * f.transpose()
}

/// R of a residue: correlations of U; independent where an epoch is missing.
fn correlations(factor: &[f64], k: usize) -> Vec<f64> {
    let u = square(factor);
    let entry = |i: usize, j: usize| match i.max(j) < u.nrows() {
        true => u[(i, j)] / (u[(i, i)] * u[(j, j)]).sqrt().max(f64::MIN_POSITIVE),
        false => 0.0,
    };
    (0..k * k).map(|at| if at / k == at % k { 1.0 } else { entry(at / k, at % k).clamp(-1.0, 1.0) }).collect()
}

/// The lower triangular factor of U^½, packed, with rows of norm one. The identity where there is none.
fn root(factor: &[f64], k: usize) -> Vec<f64> {
    let found = factor_of_root(&square(factor));
    let entry = |i: usize, j: usize| match &found {
        Some(l) if i < l.nrows() => l[(i, j)],
        _ => f64::from(i == j),
    };
    let row = |i: usize| {
        let norm = (0..=i).map(|j| entry(i, j) * entry(i, j)).sum::<f64>().sqrt();
        (0..=i).map(move |j| (i, j, norm))
    };
    (0..k).flat_map(row).map(|(i, j, norm)| entry(i, j) / norm).collect()
}

fn factor_of_root(u: &Matrix) -> Option<Matrix> {
    let (values, vectors) = dense::symmetric_eigen(u).ok()?;
    let largest = values.iter().copied().fold(0.0, f64::max);
    // Away from singular: a start only.
    let scaled = dense::from_fn(u.nrows(), u.nrows(), |i, j| {
        vectors[(i, j)] * values[j].max(1e-10 * largest).powf(0.25)
    });
    let mut l = &scaled * scaled.transpose();
    dense::small_cholesky_in_place(&mut l).ok()?;
    Some(l)
}
