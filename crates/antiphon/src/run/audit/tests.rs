//! Realised sensitivities against slow and obvious ones, and logs of samples that are some and that are none.

use super::*;
use crate::families;
use crate::linalg::dense::{self, Matrix};
use crate::make;
use crate::mechanism::{Family, Mechanism, Noise, Structured};
use crate::optimize::{self, optimize};
use crate::schema::Schema;
use crate::sensitivity::pattern_squared;
use crate::testing::Seeded;
use crate::verify::{self, definitions};
use crate::workload::Workload;

fn optimal(schema: &Schema) -> Mechanism {
    let workload = Workload::training(schema.steps(), 0.9, None).unwrap();
    optimize(schema, &workload, &optimize::Params::default(), &|_| true).unwrap().mechanism
}

fn structured(family: Family, stamps: usize, schema: &Schema) -> Mechanism {
    let workload = Workload::prefix_sum(schema.steps());
    make::structured(Structured::formula(family, stamps), schema, &workload, 1e-2, &|_| true).unwrap()
}

/// The log in which unit u has the steps `patterns[u]`.
fn log(patterns: &[Vec<usize>], n: usize) -> Vec<Result<Line>> {
    let units = |step: usize| {
        let of = |(unit, steps): (usize, &Vec<usize>)| {
            std::iter::repeat_n(unit as u64, steps.iter().filter(|s| **s == step).count())
        };
        patterns.iter().enumerate().flat_map(of).collect()
    };
    (0..n).map(|step| Ok(Line { step, units: units(step) })).collect()
}

fn z(z: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(z).unwrap()
}

fn audited(mechanism: &Mechanism, lines: Vec<Result<Line>>) -> Audit {
    let verified = verify::verify(mechanism.clone()).unwrap();
    audit(&verified, lines.into_iter(), z(1.0), 1e-5, Adjacency::ZeroOut).unwrap()
}

/// X = CᵀC by forward substitution and plain loops.
fn gram(mechanism: &Mechanism) -> Matrix {
    let n = mechanism.schema.steps();
    let c = match &mechanism.noise {
        Noise::Dense(noising) => {
            let w = noising.matrix();
            let mut c = Matrix::zeros(n, n);
            for j in 0..n {
                for i in j..n {
                    let sum: f64 = (j..i).map(|l| w[(i, l)] * c[(l, j)]).sum();
                    c[(i, j)] = (f64::from(i == j) - sum) / w[(i, i)];
                }
            }
            c
        }
        Noise::Structured(structured) => definitions::explicit(structured, n).unwrap().encoder,
        Noise::Implicit { .. } => panic!("no encoder"),
    };
    dense::from_fn(n, n, |i, j| (0..c.nrows()).map(|l| c[(l, i)] * c[(l, j)]).sum())
}

/// The sensitivity of one pattern: by plane vectors for up to three steps, which are enough there, else by the elliptope.
fn of_pattern(x: &Matrix, pattern: &[usize]) -> f64 {
    let block = dense::from_fn(pattern.len(), pattern.len(), |i, j| x[(pattern[i], pattern[j])]);
    let bounds = pattern_squared(&block, 1e-10).unwrap();
    if pattern.len() <= 3 {
        let plane = by_angles(&block);
        assert!((plane / bounds.upper - 1.0).abs() < 1e-8, "{plane} {bounds:?}");
        return plane.sqrt();
    }
    bounds.upper.sqrt()
}

/// max ‖Σ c_i g_i‖² over unit vectors g_i of the plane: a grid of angles, made finer around the best one. Optimal R of 3×3 have rank
/// two at most.
fn by_angles(x: &Matrix) -> f64 {
    let k = x.nrows();
    let value = |angles: &[f64]| -> f64 {
        (0..k).map(|i| (0..k).map(|j| x[(i, j)] * (angles[i] - angles[j]).cos()).sum::<f64>()).sum()
    };
    let mut best = (f64::NEG_INFINITY, [0.0; 3]);
    let mut width = std::f64::consts::PI;
    let mut centre = [0.0; 3];
    for _ in 0..12 {
        for a in -30..=30 {
            for b in -30..=30 {
                let angles =
                    [0.0, centre[1] + width * f64::from(a) / 30.0, centre[2] + width * f64::from(b) / 30.0];
                let found = value(&angles[..k]);
                if found > best.0 {
                    best = (found, angles);
                }
            }
        }
        centre = best.1;
        width /= 6.0;
    }
    best.0
}

fn mechanisms() -> Vec<Mechanism> {
    let listed = vec![vec![0, 3, 7], vec![1, 4, 7], vec![2, 5, 6, 8]];
    vec![
        optimal(&Schema::epochs(3, 4).unwrap()),
        optimal(&Schema::fixed_order(11, 4).unwrap()),
        optimal(&Schema::fixed_order_at_most(12, 3, 2).unwrap()),
        optimal(&Schema::patterns(9, listed).unwrap()),
        structured(families::TREE_ONLINE, 1, &Schema::epochs(4, 3).unwrap()),
        structured(families::FFT, 2, &Schema::epochs(3, 4).unwrap()),
        structured(families::IDENTITY, 1, &Schema::epochs(3, 4).unwrap()),
    ]
}

#[test]
fn realised_sensitivities_are_those_of_a_slow_computation() {
    let mut random = Seeded(1);
    for mechanism in mechanisms() {
        let (n, x) = (mechanism.schema.steps(), gram(&mechanism));
        for round in 0..30 {
            let most = if round % 2 == 0 { 3 } else { 7 };
            let patterns: Vec<Vec<usize>> = (0..1 + random.below(6))
                .map(|_| {
                    let mut steps: Vec<usize> =
                        (0..1 + random.below(most)).map(|_| random.below(n)).collect();
                    steps.sort_unstable();
                    steps
                })
                .collect();
            let found = audited(&mechanism, log(&patterns, n));
            let slow = patterns.iter().map(|pattern| of_pattern(&x, pattern)).fold(0.0, f64::max);
            // Without violations the stated figure may be reported, which differs by the width of brackets.
            assert!((found.sensitivity.upper / slow - 1.0).abs() < 1e-8, "{:?} {slow}", found.sensitivity);
            let worst = found.worst.unwrap();
            assert_eq!(worst.steps, patterns[worst.unit as usize]);
            assert!((of_pattern(&x, &worst.steps) / slow - 1.0).abs() < 1e-8);
        }
    }
}

#[test]
fn a_clean_log_has_exactly_the_stated_figures() {
    for mechanism in mechanisms() {
        let report = verify::mechanism(&mechanism).unwrap();
        let patterns = mechanism.schema.listed().unwrap();
        let found = audited(&mechanism, log(&patterns, mechanism.schema.steps()));
        assert!(found.ok());
        assert_eq!(found.sensitivity.upper, report.sensitivity.upper);
        assert_eq!((found.noise_multiplier, found.epsilon_realised), (Some(1.0), found.epsilon_stated));
        assert_eq!((found.counts.units, found.patterns), (patterns.len(), patterns.len()));
        // The figure itself, before it is compared with the stated one.
        let all = Participations::collect(
            log(&patterns, mechanism.schema.steps()).into_iter(),
            mechanism.schema.steps(),
        )
        .unwrap();
        let (alone, _) = realised::sensitivity(&mechanism, &all.grouped()).unwrap();
        assert_eq!(alone.upper, report.sensitivity.upper);
    }
}

#[test]
fn the_fast_form_of_a_long_run_has_exactly_the_stated_figure() {
    let mechanism = structured(families::TREE_ONLINE, 3, &Schema::epochs(3, 700).unwrap());
    let report = verify::mechanism(&mechanism).unwrap();
    let all =
        Participations::collect(log(&mechanism.schema.listed().unwrap(), 2100).into_iter(), 2100).unwrap();
    let (alone, _) = realised::sensitivity(&mechanism, &all.grouped()).unwrap();
    assert_eq!(alone.upper, report.sensitivity.upper);
}

#[test]
fn less_participation_has_a_smaller_epsilon_and_more_a_larger_one() {
    let mechanism = structured(families::IDENTITY, 1, &Schema::epochs(4, 3).unwrap());
    let less = audited(&mechanism, log(&[vec![0, 3], vec![1]], 12));
    // √2 in place of √4 steps.
    assert!(less.ok() && (less.noise_multiplier.unwrap() - 2f64.sqrt()).abs() < 1e-12);
    assert!(less.epsilon_realised < less.epsilon_stated);
    let more = audited(&mechanism, log(&[(0..12).collect()], 12));
    assert_eq!(more.violations.len(), 8);
    assert!((more.noise_multiplier.unwrap() - (4.0f64 / 12.0).sqrt()).abs() < 1e-12);
    assert!(
        more.noise_multiplier.unwrap() <= (4.0f64 / 12.0).sqrt()
            && more.epsilon_realised > more.epsilon_stated
    );
    // Twice in one step: as two contributions to it.
    let twice = audited(&mechanism, log(&[vec![2, 2], vec![1]], 12));
    assert!((twice.sensitivity.upper - 2.0).abs() < 1e-9 && twice.violations.len() == 1);
    assert_eq!(twice.worst.unwrap(), Worst { unit: 0, steps: vec![2, 2] });
    // Nobody at all.
    let nobody = audited(&mechanism, log(&[], 12));
    assert_eq!((nobody.sensitivity.upper, nobody.epsilon_realised, nobody.worst), (0.0, 0.0, None));
}

#[test]
fn violations_are_sorted_and_steps_without_a_line_are_counted() {
    let mechanism = structured(families::IDENTITY, 1, &Schema::epochs(3, 4).unwrap());
    let line = |step: usize, units: &[u64]| Ok(Line { step, units: units.to_vec() });
    let lines = vec![line(0, &[9, 4]), line(4, &[9]), line(5, &[4]), line(9, &[9, 4])];
    let found = audited(&mechanism, lines);
    let named: Vec<_> = found.violations.iter().map(|v| (v.step.unwrap(), v.unit.unwrap())).collect();
    // Unit 4 has two steps of residue 1 and one of residue 0.
    assert_eq!(named, [(0, 4), (9, 9)]);
    assert_eq!((found.counts.steps, found.counts.missing_steps, found.counts.last_step), (4, 6, 9));
    assert_eq!((found.counts.units, found.counts.participations, found.counts.max_participations), (2, 6, 3));
}

#[test]
fn what_cannot_be_audited_is_refused() {
    let schema = Schema::epochs(3, 4).unwrap();
    let mechanism = structured(families::IDENTITY, 1, &schema);
    let verified = verify::verify(mechanism).unwrap();
    let run = |multiplier: f64, relation, lines: Vec<Result<Line>>| {
        audit(&verified, lines.into_iter(), z(multiplier), 1e-5, relation).unwrap_err().to_string()
    };
    assert!(run(1.0, Adjacency::ZeroOut, vec![]).contains("the log has no lines"));
    // Within range before, not after.
    for (relation, lowest) in [(Adjacency::ZeroOut, 1e-6), (Adjacency::ReplaceOne, 2e-6)] {
        let message = run(lowest, relation, log(&[(0..12).collect()], 12));
        assert!(message.starts_with("the realised noise multiplier"), "{message}");
        assert!(message.contains(&format!("in [{lowest:e}, 1e12]")), "{message}");
    }
}

fn sampling(rate: f64, steps: u64, units: u64) -> Sampling {
    Sampling { rate, steps, units }
}

fn sampled(sampling: Sampling, samples: impl Iterator<Item = Vec<u64>>) -> SampledAudit {
    let lines = samples.enumerate().map(|(step, units)| Ok(Line { step, units }));
    audit_sampled(sampling, lines, 1.0, 1e-5, Adjacency::ZeroOut).unwrap()
}

fn poisson(random: &mut Seeded, rate: f64, units: u64) -> Vec<u64> {
    (0..units).filter(|_| random.chance(rate)).collect()
}

#[test]
fn poisson_samples_pass_and_the_bounds_are_no_certainty() {
    let mut random = Seeded(2);
    let of = sampling(0.05, 100, 1000);
    let mut smallest = 1.0f64;
    for _ in 0..100 {
        let found = sampled(
            of,
            (0..100).map(|_| poisson(&mut random, of.rate, of.units)).collect::<Vec<_>>().into_iter(),
        );
        assert!(found.ok(), "{:?}", found.checks);
        for check in &found.checks {
            assert!(check.p_value.unwrap() > 1e-4, "{check:?}");
            smallest = smallest.min(check.p_value.unwrap());
        }
    }
    // Of 300 bounds, some are small: they are not trivial.
    assert!(smallest < 0.2, "{smallest}");
}

#[test]
fn samples_that_are_none_fail_by_the_right_check() {
    let mut random = Seeded(3);
    let of = sampling(0.05, 200, 1000);
    let failed = |found: &SampledAudit| -> Vec<bool> { found.checks.iter().map(|c| !c.passed()).collect() };
    // A random subset of fixed size in every step.
    let fixed = sampled(
        of,
        (0..200)
            .map(|_| {
                let mut all: Vec<u64> = (0..1000).collect();
                (0..50).map(|_| all.swap_remove(random.below(all.len()))).collect()
            })
            .collect::<Vec<_>>()
            .into_iter(),
    );
    assert_eq!(failed(&fixed), [false, true, false]);
    assert!(fixed.violations[0].reason.contains("variance of the batch sizes"), "{:?}", fixed.violations);
    assert_eq!((fixed.violations.len(), fixed.violations[0].step, fixed.violations[0].unit), (1, None, None));
    // Epochs of 20 steps, in which every unit has one random step.
    let mut epochs = vec![Vec::new(); 200];
    for epoch in 0..10 {
        (0..1000).for_each(|unit| epochs[20 * epoch + random.below(20)].push(unit));
    }
    assert_eq!(failed(&sampled(of, epochs.into_iter())), [false, false, true]);
    // A higher rate.
    let more =
        sampled(of, (0..200).map(|_| poisson(&mut random, 0.06, 1000)).collect::<Vec<_>>().into_iter());
    assert!(failed(&more)[0]);
    // Too little to examine but the total.
    let few = sampled(sampling(0.01, 5, 10), (0..5).map(|_| vec![]));
    assert_eq!(few.checks.iter().map(|c| c.p_value.is_some()).collect::<Vec<_>>(), [true, false, false]);
    assert!(few.ok());
}

#[test]
fn a_sampled_log_with_a_unit_twice() {
    let found = sampled(sampling(0.5, 3, 4), [vec![0, 3, 3], vec![1], vec![2]].into_iter());
    assert_eq!((found.violations[0].step, found.violations[0].unit), (Some(0), Some(3)));
    assert_eq!(found.violations.len(), 1);
}
