//! Combs for tests.

use super::Comb;
use super::filter::Filter;
use super::shape::packed_len;
use crate::mechanism::{Noise, Structured};
use crate::testing::Seeded;

/// A comb of at most so many steps: any period, one too, and not always one that divides the steps.
pub fn random_comb(seed: u64, most_steps: usize) -> Comb {
    let seeded = &mut Seeded(seed.wrapping_mul(0x9e37_79b9) + 1);
    let steps = 1 + seeded.below(most_steps);
    let period = match seeded.below(4) {
        0 => steps,
        1 => 1 + seeded.below(steps.min(3)),
        _ => 1 + seeded.below(steps),
    };
    random_comb_of(steps, period, seeded.next())
}

/// A comb of so many steps with this period: one to three buffers, several knots.
pub fn random_comb_of(steps: usize, period: usize, seed: u64) -> Comb {
    let seeded = &mut Seeded(seed);
    let k = steps.div_ceil(period);
    let mut above = 1.0;
    let mut below = |seeded: &mut Seeded| {
        above *= 0.5 + 0.499 * seeded.uniform();
        above
    };
    let interlaced: Vec<f64> = (0..2 * (1 + seeded.below(3))).map(|_| below(seeded)).collect();
    let [poles, zeros] =
        [0, 1].map(|from| interlaced.iter().skip(from).step_by(2).copied().collect::<Vec<f64>>());
    let knots = |seeded: &mut Seeded| {
        let mut knots: Vec<usize> = (0..=seeded.below(3)).map(|_| seeded.below(period)).collect();
        knots.sort_unstable();
        knots.dedup();
        knots
    };
    let (mix_knots, gain_knots) = (knots(seeded), knots(seeded));
    let mut mix = Vec::with_capacity(mix_knots.len() * packed_len(k));
    for _ in &mix_knots {
        for row in 0..k {
            let scale = 0.8 / k as f64;
            mix.extend((0..row).map(|_| scale * (2.0 * seeded.uniform() - 1.0)));
            mix.push(0.5 + seeded.uniform());
        }
    }
    let mut gains = |count: usize| (0..count).map(|_| 0.5 + seeded.uniform()).collect::<Vec<f64>>();
    let (input_gain, output_gain) = (gains(k * gain_knots.len()), gains(k * gain_knots.len()));
    let residue_gain = if seed.is_multiple_of(2) { gains(period) } else { Vec::new() };
    let filter = Filter::new(&poles, &zeros).expect("interlaced");
    let comb =
        Comb { steps, period, filter, mix_knots, mix, gain_knots, input_gain, output_gain, residue_gain };
    comb.check().expect("a comb");
    comb
}

/// As a mechanism.
pub fn noise_of(comb: &Comb) -> Noise {
    Noise::Structured(Structured::new(super::COMB_BLT, 1, comb.to_parameters()))
}
