//! The structured route against the dense one: for the same U they compute the same a, the same blocks X_r and the same
//! matrix X(U).
//!
//! The dense route is one singular value decomposition and no quadrature, the structured route is a sum of resolvents
//! and no singular value decomposition; they share no code below the workload. What is random here comes from a seeded
//! generator, so a failure names the case and can be run again.

use antiphon::linalg::Matrix;
use antiphon::linalg::dense::{identity, singular_values, squared_norm};
use antiphon::linalg::quadrature::Quadrature;
use antiphon::optimize::blocks::BlockDual;
use antiphon::optimize::dense;
use antiphon::optimize::resolvent::{Resolvent, rule_for};
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};

/// A 64-bit linear congruential generator (Knuth's MMIX constants), high bits only.
struct Random(u64);

impl Random {
    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    fn integer(&mut self, low: usize, high: usize) -> usize {
        low + (self.uniform() * (high - low + 1) as f64) as usize
    }
}

/// Rates that rise geometrically from 1e-3 to 1: the worst-conditioned schedule of docs/theory.md, section 6.
fn rising(n: usize) -> Vec<f64> {
    (0..n).map(|i| 1e-3f64.powf(1.0 - i as f64 / (n - 1).max(1) as f64)).collect()
}

fn workload(random: &mut Random, n: usize, kind: usize) -> (String, Workload) {
    let cooldown = |random: &mut Random| {
        let (fraction, end) = (random.between(0.1, 1.0), random.between(0.02, 1.0));
        Cooldown { fraction, end }.rates(n).unwrap()
    };
    let momentum = [0.5, 0.9, 0.95, 0.99][random.integer(0, 3)];
    let (momentum, rates) = match kind {
        0 => (0.0, None),
        1 => (momentum, None),
        2 => (0.0, Some(cooldown(random))),
        3 => (momentum, Some(cooldown(random))),
        4 => (0.0, Some(rising(n))),
        _ => (0.99, Some(rising(n))),
    };
    (format!("workload kind {kind} momentum {momentum}"), Workload::training(n, momentum, rates).unwrap())
}

/// A random dual: lower triangular factors with rows of norm one, and scales over `orders` orders of magnitude.
///
/// Each row leans toward the row before it; `distance` is what is new in it, so a small one makes nearly parallel rows
/// and a badly conditioned block.
fn dual(random: &mut Random, patterns: Vec<Vec<usize>>, distance: f64, orders: f64) -> BlockDual {
    let mut dual = BlockDual::identity(patterns);
    for (l, v) in dual.factors.iter_mut().zip(&mut dual.scales) {
        *v = 10f64.powf(random.between(-0.5 * orders, 0.5 * orders));
        let k = l.len().isqrt();
        for i in 1..k {
            let mut row: Vec<f64> =
                (0..i).map(|j| l[(i - 1) * k + j] + distance * random.between(-1.0, 1.0)).collect();
            row.push(distance * random.between(0.3, 1.0));
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut().for_each(|x| *x /= norm);
            l[i * k..i * k + i + 1].copy_from_slice(&row);
        }
    }
    dual
}

/// What one comparison found: the condition number of the pencil (V⁻¹, U), and relative differences.
struct Difference {
    condition: f64,
    a: f64,
    blocks: f64,
    full: f64,
}

/// The symmetric matrix with this lower triangle.
fn mirrored(lower: Matrix) -> Matrix {
    let n = lower.nrows();
    Matrix::from_fn(n, n, |i, j| lower[(i.max(j), i.min(j))])
}

/// A rule for an interval that certainly holds the spectrum, with an error far below what is compared.
fn generous_rule(resolvent: &Resolvent, dual: &BlockDual) -> Quadrature {
    let (low, high) = resolvent.spectrum_bounds(dual);
    rule_for(low, high, 1e-13).unwrap()
}

fn compare(schema: &Schema, workload: &Workload, dual: &BlockDual) -> Difference {
    let resolvent = Resolvent::new(schema, workload).expect("a case of the structured route");
    let rule = generous_rule(&resolvent, dual);
    let (blocks, _) = resolvent.blocks(dual, &rule);
    let reversed = mirrored(resolvent.lower_reversed(dual, &rule, |_, _| ()));

    let (a, l) = (workload.matrix(), dense::factor_matrix(dual).unwrap());
    let sigma = singular_values(&(&a * &l)).unwrap();
    let (x, sum) = dense::gram(&a, &l).unwrap();
    let n = schema.steps();
    let mut worst_block = 0.0f64;
    for (found, expected) in blocks.iter().zip(dense::blocks_of(&x, &dual.patterns)) {
        assert_eq!(found.len(), expected.len());
        let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
        let error = found.iter().zip(&expected).map(|(f, e)| (f - e).powi(2)).sum::<f64>().sqrt();
        worst_block = worst_block.max(error / norm);
    }
    let full = Matrix::from_fn(n, n, |i, j| reversed[(n - 1 - i, n - 1 - j)]);
    Difference {
        condition: (sigma[0] / sigma[n - 1]).powi(2),
        a: (dual.inner_product(&blocks) / sum - 1.0).abs(),
        blocks: worst_block,
        full: (squared_norm(&(&full - &x)) / squared_norm(&x)).sqrt(),
    }
}

/// Up to this condition number of the pencil the dense route itself is good to eight digits: its singular values carry
/// absolute errors of a few ε·σ_max, which is a few ε·√condition = 1e-10 of the smallest, and L⁻¹ amplifies that.
const WELL_CONDITIONED: f64 = 1e12;

fn assert_agree(case: &str, difference: &Difference) {
    let Difference { condition, a, blocks, full } = *difference;
    // The sum of all singular values is dominated by the large ones, so a is accurate at any condition number.
    // 1e-10 is what the optimizer allows for rounding in a (RESOLVENT_ROUNDING) when it claims a lower bound.
    assert!(a < 1e-10, "{case}: a differs by {a:e} at condition {condition:e}");
    if condition <= WELL_CONDITIONED {
        assert!(blocks < 1e-8, "{case}: a block differs by {blocks:e} at condition {condition:e}");
        assert!(full < 1e-8, "{case}: X differs by {full:e} at condition {condition:e}");
    }
}

/// How often and how far: printed with `--nocapture`, and used to see that both kinds of cases occurred.
#[derive(Default)]
struct Tally {
    well: usize,
    badly: usize,
    a: f64,
    a_badly: f64,
    blocks: f64,
    full: f64,
    condition: f64,
}

impl Tally {
    fn add(&mut self, difference: &Difference) {
        self.condition = self.condition.max(difference.condition);
        if difference.condition <= WELL_CONDITIONED {
            self.well += 1;
            self.a = self.a.max(difference.a);
            self.blocks = self.blocks.max(difference.blocks);
            self.full = self.full.max(difference.full);
        } else {
            self.badly += 1;
            self.a_badly = self.a_badly.max(difference.a);
        }
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: {} well-conditioned: a {:.1e}, blocks {:.1e}, X {:.1e}; {} others up to {:.1e}: a {:.1e}",
            self.well, self.a, self.blocks, self.full, self.badly, self.condition, self.a_badly
        );
    }
}

#[test]
fn random_problems_agree() {
    let mut random = Random(2023);
    let mut tally = Tally::default();
    for case in 0..96 {
        let kind = case % 6;
        let least = if kind == 0 || kind == 2 || kind == 4 { 3 } else { 6 };
        let b = random.integer(least, 17);
        let k = random.integer(1, 9);
        // The last epoch is complete in a third of the cases only.
        let n = if case % 3 == 0 { b * k } else { b * k - random.integer(0, b - 1).min(b * k - b) };
        let schema = Schema::fixed_order(n, b).unwrap();
        let (name, workload) = workload(&mut random, n, kind);
        // Half of the duals are harmless, half are badly conditioned in their factors and scales.
        let (worst, orders) = if case % 4 < 2 { (0.7, 2.0) } else { (5.0, 8.0) };
        let distance = 10f64.powf(-random.between(0.0, worst));
        let dual = dual(&mut random, schema.listed().unwrap(), distance, orders);
        let difference = compare(&schema, &workload, &dual);
        tally.add(&difference);
        assert_agree(&format!("case {case}: n = {n}, b = {b}, {name}, distance {distance:.1e}"), &difference);
    }
    tally.print("random");
    assert!(tally.well >= 30 && tally.badly >= 30, "{} and {}", tally.well, tally.badly);
}

#[test]
fn a_random_problem_of_several_hundred_steps_agrees() {
    let mut random = Random(7);
    let mut tally = Tally::default();
    for (n, b, kind) in [(300, 30, 0), (299, 23, 1), (320, 64, 3), (257, 17, 5)] {
        let schema = Schema::fixed_order(n, b).unwrap();
        let (name, workload) = workload(&mut random, n, kind);
        let dual = dual(&mut random, schema.listed().unwrap(), 1.0, 1.0);
        let difference = compare(&schema, &workload, &dual);
        tally.add(&difference);
        assert_agree(&format!("n = {n}, b = {b}, {name}"), &difference);
    }
    tally.print("large");
}

#[test]
fn every_small_period_agrees_or_is_left_to_the_dense_route() {
    let mut random = Random(11);
    let mut tally = Tally::default();
    for b in 2..=8 {
        for extra in [0, 1, b - 1] {
            for kind in [0, 1, 3, 4] {
                let n = 3 * b + extra;
                let schema = Schema::fixed_order(n, b).unwrap();
                let (name, workload) = workload(&mut random, n, kind);
                // ⌊b/p⌋ ≥ 3 groups, p the bandwidth of A⁻¹: 2 with momentum.
                let bandwidth = if kind == 1 || kind == 3 { 2 } else { 1 };
                let applies = b / bandwidth >= 3;
                assert_eq!(Resolvent::new(&schema, &workload).is_some(), applies, "b = {b}, {name}");
                if applies {
                    let dual = dual(&mut random, schema.listed().unwrap(), 0.5, 4.0);
                    let difference = compare(&schema, &workload, &dual);
                    tally.add(&difference);
                    assert_agree(&format!("n = {n}, b = {b}, {name}"), &difference);
                }
            }
        }
    }
    tally.print("small periods");
}

#[test]
fn one_participation_agrees() {
    let mut random = Random(13);
    let mut tally = Tally::default();
    for n in [3, 4, 6, 7, 40, 101] {
        for kind in [0, 1, 5] {
            let schema = Schema::single(n).unwrap();
            let (name, workload) = workload(&mut random, n, kind);
            if Resolvent::new(&schema, &workload).is_none() {
                assert!(n < 6 && kind > 0, "n = {n}, {name}");
                continue;
            }
            let dual = dual(&mut random, schema.listed().unwrap(), 1.0, 6.0);
            let difference = compare(&schema, &workload, &dual);
            tally.add(&difference);
            assert_agree(&format!("n = {n}, single, {name}"), &difference);
        }
    }
    tally.print("single");
}

#[test]
fn other_schemas_and_workloads_are_left_to_the_dense_route() {
    let prefix = Workload::prefix_sum(12);
    let overlapping = Schema::fixed_order_at_most(12, 4, 2).unwrap();
    assert!(Resolvent::new(&overlapping, &prefix).is_none());
    assert!(Resolvent::new(&Schema::min_separation(12, 4, 3).unwrap(), &prefix).is_none());
    let listed = Schema::patterns(12, Schema::fixed_order(12, 4).unwrap().listed().unwrap()).unwrap();
    assert!(Resolvent::new(&listed, &prefix).is_none());
    let schema = Schema::fixed_order(12, 4).unwrap();
    assert!(Resolvent::new(&schema, &Workload::dense(prefix.matrix()).unwrap()).is_none());
    assert!(Resolvent::new(&schema, &prefix).is_some());
}

/// The rule that the optimizer itself uses has its interval from a few power iterations. What it asks for (1e-5) it gets
/// along the iteration: in a, and in the blocks that make the next step.
fn assert_estimated_rule(cases: &[(usize, usize, usize)], blocks: f64) {
    let mut random = Random(17);
    let (mut worst_a, mut worst_block) = (0.0f64, 0.0f64);
    for (n, b, kind) in cases.iter().copied() {
        let schema = Schema::fixed_order(n, b).unwrap();
        let (name, workload) = workload(&mut random, n, kind);
        let a = workload.matrix();
        let mut resolvent = Resolvent::new(&schema, &workload).unwrap();
        let mut dual = BlockDual::identity(schema.listed().unwrap());
        for iteration in 0..12 {
            let case = format!("n = {n}, b = {b}, {name}, iteration {iteration}");
            let rule = resolvent.rule(&dual, 1e-5).unwrap();
            let (found, _) = resolvent.blocks(&dual, &rule);
            let a_found = dual.inner_product(&found);
            let (_, sum) = dense::gram(&a, &dense::factor_matrix(&dual).unwrap()).unwrap();
            worst_a = worst_a.max((a_found / sum - 1.0).abs());
            // 2e-5: the rule's own error, and as much again for what the interval misses.
            assert!((a_found / sum - 1.0).abs() < 2e-5, "{case}: {a_found} {sum}");
            // Corollary 8: one-sided whatever the spectrum. 1e-12 is rounding.
            assert!(a_found / rule.supremum(1e-9) <= sum * (1.0 + 1e-12), "{case}");
            let (exact, _) = resolvent.blocks(&dual, &generous_rule(&resolvent, &dual));
            for (found, exact) in found.iter().zip(&exact) {
                let norm = exact.iter().map(|x| x * x).sum::<f64>().sqrt();
                let error = found.iter().zip(exact).map(|(f, e)| (f - e).powi(2)).sum::<f64>().sqrt() / norm;
                worst_block = worst_block.max(error);
                assert!(error < blocks, "{case}: a block is off by {error:e}");
            }
            dual = dual.update(&exact);
        }
    }
    println!("estimated rule: a within {worst_a:.1e}, blocks within {worst_block:.1e}");
}

#[test]
fn the_estimated_rule_keeps_its_error_along_the_iteration() {
    assert_estimated_rule(&[(120, 12, 0), (119, 12, 1), (90, 9, 3), (100, 20, 4)], 2e-5);
}

#[test]
fn the_estimated_rule_keeps_its_error_on_badly_conditioned_workloads() {
    assert_estimated_rule(&[(60, 12, 5), (100, 20, 5), (300, 30, 5)], 2e-5);
}

/// Corollary 8 with rules that are wrong on purpose: made for another interval, with few nodes.
#[test]
fn a_rule_for_the_wrong_interval_gives_a_weak_value_never_a_large_one() {
    let mut random = Random(19);
    let schema = Schema::fixed_order(47, 8).unwrap();
    let mut weakest = 1.0f64;
    for kind in 0..6 {
        let (name, workload) = workload(&mut random, 47, kind);
        let dual = dual(&mut random, schema.listed().unwrap(), 0.2, 6.0);
        let resolvent = Resolvent::new(&schema, &workload).unwrap();
        let l = dense::factor_matrix(&dual).unwrap();
        let sum: f64 = singular_values(&(&workload.matrix() * &l)).unwrap().iter().sum();
        for (low, high, count) in [(1e-6, 1e-3, 3), (1.0, 10.0, 1), (1e2, 1e7, 9), (1e-9, 1e9, 5)] {
            let rule = Quadrature::new(low, high, count).unwrap();
            let found = dual.inner_product(&resolvent.blocks(&dual, &rule).0) / rule.supremum(1e-9);
            assert!(found <= sum * (1.0 + 1e-12), "{name}, [{low:e}, {high:e}]: {found} {sum}");
            weakest = weakest.min(found / sum);
        }
    }
    assert!(weakest < 0.5, "none of the rules was wrong: {weakest}");
}

/// X(U) is the positive definite solution of XUX = V, so Q = A⁻ᵀXL is orthogonal: no quadrature and no singular values.
#[test]
fn the_full_matrix_solves_its_equation() {
    let mut random = Random(23);
    for (n, b, kind) in [(36, 6, 0), (41, 7, 1), (50, 12, 2), (39, 13, 3)] {
        let schema = Schema::fixed_order(n, b).unwrap();
        let (name, workload) = workload(&mut random, n, kind);
        let dual = dual(&mut random, schema.listed().unwrap(), 0.5, 4.0);
        let resolvent = Resolvent::new(&schema, &workload).unwrap();
        let reversed =
            mirrored(resolvent.lower_reversed(&dual, &generous_rule(&resolvent, &dual), |_, _| ()));
        let mut q = &Matrix::from_fn(n, n, |i, j| reversed[(n - 1 - i, n - 1 - j)])
            * &dense::factor_matrix(&dual).unwrap();
        let bands = workload.inverse_bands().unwrap();
        for j in 0..n {
            bands.apply_transpose(q.col_as_slice_mut(j));
        }
        let error = squared_norm(&(&(q.transpose() * &q) - identity(n))).sqrt();
        // A⁻ᵀ and L multiply rounding errors of X by at most √condition, 1e6 here.
        assert!(error < 1e-8, "{name}: {error:e}");
    }
}
