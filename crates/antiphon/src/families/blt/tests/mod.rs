//! BLTs against dense algebra, brute force, sums over all steps, another package, and the checker.

mod closed_forms;
mod designs;
mod package;
mod patterns;

use super::factorization::Toeplitz;
use crate::families::comb::Comb;
use crate::families::comb::filter::Filter;
use crate::sensitivity::testing::Noise as Random;
use crate::workload::{Cooldown, Workload};

/// Poles and zeros at random, with d buffers; sometimes next to one and to each other.
fn random_filter(random: &mut Random, buffers: usize) -> Filter {
    let nearness = random.between(1, 4) as i32;
    let mut all: Vec<f64> =
        (0..2 * buffers).map(|_| 1.0 - random.uniform().powi(nearness)).filter(|x| *x > 0.0).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    let pick = |first: usize| all.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
    Filter::new(&pick(0), &pick(1)).unwrap()
}

/// A BLT over n steps with these factors o, one for every step.
fn with_factors(filter: Filter, factors: Vec<f64>) -> Comb {
    let steps = factors.len();
    let comb = Comb {
        steps,
        period: steps,
        filter,
        mix_knots: vec![0],
        mix: vec![1.0],
        gain_knots: (0..steps).collect(),
        input_gain: vec![1.0; steps],
        output_gain: factors,
        residue_gain: Vec::new(),
    };
    comb.check().unwrap();
    comb
}

fn toeplitz(filter: &Filter, factors: &[f64]) -> Toeplitz {
    Toeplitz::new(with_factors(filter.clone(), factors.to_vec()))
}

fn workloads(n: usize) -> Vec<Workload> {
    let rates = Cooldown { fraction: 0.5, end: 0.05 }.rates(n).unwrap();
    vec![
        Workload::prefix_sum(n),
        Workload::training(n, 0.9, None).unwrap(),
        Workload::training(n, 0.0, Some(rates.clone())).unwrap(),
        Workload::training(n, 0.7, Some(rates)).unwrap(),
    ]
}

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs()
}
