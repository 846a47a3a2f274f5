//! The optimizer against what is known of the optimum: the dual never falls, bounds never cross, published and closed
//! values are met, and what cannot be done is refused with a reason.

use antiphon::error::{Error, Hint};
use antiphon::linalg::Matrix;
use antiphon::linalg::dense::{from_fn, gram, lower_inverse, squared_norm};
use antiphon::mechanism::{Mechanism, Noise};
use antiphon::optimize::blocks::BlockDual;
use antiphon::optimize::resolvent::{Resolvent, rule_for};
use antiphon::optimize::{Optimized, Params, Phase, Route, dense, optimize};
use antiphon::schema::Schema;
use antiphon::workload::{Cooldown, Workload};
use std::cell::Cell;
use std::path::Path;

/// A 64-bit linear congruential generator (Knuth's MMIX constants), high bits only.
struct Random(u64);

impl Random {
    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn integer(&mut self, low: usize, high: usize) -> usize {
        low + (self.uniform() * (high - low + 1) as f64) as usize
    }
}

fn momentum(n: usize, momentum: f64) -> Workload {
    Workload::training(n, momentum, None).unwrap()
}

fn solve(schema: &Schema, workload: &Workload, gap: f64) -> Optimized {
    let params = Params { gap, ..Params::default() };
    let optimized = optimize(schema, workload, &params, &|_| true).unwrap();
    assert_sound(&optimized, gap);
    optimized
}

/// What holds of every result.
fn assert_sound(optimized: &Optimized, gap: f64) {
    let claims = optimized.mechanism.claims();
    assert!(claims.lower_bound.unwrap() > 0.0 && claims.lower_bound.unwrap() <= claims.loss, "{claims:?}");
    assert!(claims.gap() <= gap, "{claims:?}");
    assert!(claims.loss.is_finite() && claims.sensitivity.is_finite());
}

fn refusal(schema: &Schema, workload: &Workload, params: &Params) -> Error {
    optimize(schema, workload, params, &|_| true).unwrap_err()
}

/// √loss and √lower_bound enclose a published √optimum, up to the last digit printed.
fn assert_encloses(mechanism: &Mechanism, root: f64, digit: f64) {
    let claims = mechanism.claims();
    assert!((claims.loss.sqrt() - root).abs() < digit, "{} {root}", claims.loss.sqrt());
    assert!(
        claims.lower_bound.unwrap().sqrt() <= root + digit,
        "{} {root}",
        claims.lower_bound.unwrap().sqrt()
    );
}

/// The value a²/c at U and the plain step from U, by singular values.
fn plain_step(a: &Matrix, dual: &BlockDual) -> (f64, BlockDual) {
    let (x, sum) = dense::gram(a, &dense::factor_matrix(dual).unwrap()).unwrap();
    (sum * sum / dual.total(), dual.update(&dense::blocks_of(&x, &dual.patterns)))
}

/// Theorem 5 is exact; what a²/c may fall is the rounding error of a sum of singular values.
const ROUNDING: f64 = 1e-11;

fn assert_monotone(name: &str, a: &Matrix, mut dual: BlockDual, steps: usize) {
    let (first, _) = plain_step(a, &dual);
    let mut best = 0.0;
    for step in 0..steps {
        let (value, next) = plain_step(a, &dual);
        assert!(value >= best * (1.0 - ROUNDING), "{name}, step {step}: {best} then {value}");
        best = f64::max(best, value);
        dual = next;
    }
    assert!(best > first * (1.0 + 1e-6), "{name}: the iteration did not climb from {first}");
}

/// Identity factors with random scales: far from the optimum, and not symmetric in anything.
fn start(random: &mut Random, patterns: Vec<Vec<usize>>) -> BlockDual {
    let mut dual = BlockDual::identity(patterns);
    dual.scales.iter_mut().for_each(|v| *v = 10f64.powf(2.0 * random.uniform() - 1.0));
    dual
}

#[test]
fn the_plain_iteration_never_lowers_the_dual() {
    let mut random = Random(5);
    for case in 0..24 {
        let (b, k) = (random.integer(2, 9), random.integer(2, 6));
        let n = b * k - random.integer(0, b - 1);
        let schema = Schema::fixed_order(n, b).unwrap();
        let rates = Cooldown { fraction: 0.5, end: 0.05 }.rates(n).unwrap();
        let workload = match case % 4 {
            0 => Workload::prefix_sum(n),
            1 => momentum(n, 0.95),
            2 => Workload::training(n, 0.99, Some(rates)).unwrap(),
            // Any lower triangular matrix, with entries of both signs.
            _ => Workload::dense(Matrix::from_fn(n, n, |i, j| match i.cmp(&j) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 0.5 + random.uniform(),
                std::cmp::Ordering::Greater => 2.0 * random.uniform() - 1.0,
            }))
            .unwrap(),
        };
        let dual = start(&mut random, schema.listed().unwrap());
        assert_monotone(&format!("case {case}: n = {n}, b = {b}"), &workload.matrix(), dual, 25);
    }
}

#[test]
fn the_plain_iteration_never_lowers_the_dual_of_overlapping_patterns() {
    let mut random = Random(6);
    let triples = vec![vec![0, 1, 4], vec![1, 2, 3, 4], vec![0, 5], vec![5, 6], vec![3, 6]];
    let schemas = [
        Schema::patterns(3, vec![vec![0, 1], vec![0, 2], vec![1, 2]]).unwrap(),
        Schema::patterns(7, triples).unwrap(),
        Schema::fixed_order_at_most(13, 3, 2).unwrap(),
        Schema::fixed_order_at_most(20, 4, 3).unwrap(),
    ];
    for schema in schemas {
        let n = schema.steps();
        for beta in [0.0, 0.9] {
            let dual = start(&mut random, schema.listed().unwrap());
            assert_monotone(&schema.describe(), &momentum(n, beta).matrix(), dual, 40);
        }
    }
}

#[test]
fn the_plain_iteration_never_lowers_the_dual_on_the_structured_route() {
    let mut random = Random(8);
    for (n, b, beta) in [(200, 20, 0.0), (143, 13, 0.9), (120, 40, 0.99)] {
        let (schema, workload) = (Schema::fixed_order(n, b).unwrap(), momentum(n, beta));
        let resolvent = Resolvent::new(&schema, &workload).unwrap();
        let mut dual = start(&mut random, schema.listed().unwrap());
        let mut best = 0.0;
        for step in 0..20 {
            let (low, high) = resolvent.spectrum_bounds(&dual);
            let (blocks, _) = resolvent.blocks(&dual, &rule_for(low, high, 1e-13).unwrap());
            let a = dual.inner_product(&blocks);
            let value = a * a / dual.total();
            assert!(value >= best * (1.0 - ROUNDING), "n = {n}, step {step}: {best} then {value}");
            best = f64::max(best, value);
            dual = dual.update(&blocks);
        }
    }
}

#[test]
fn the_papers_table_for_vector_contributions() {
    // Paper, table of the appendix "Impact of non-negativity constraints" (n = 6, k = 3, b = 2), with more digits from
    // docs/theory.md, section 9: column (P), the optimum for vectors.
    let schema = Schema::epochs(3, 2).unwrap();
    for (beta, root) in [(0.0, 6.46088), (0.95, 16.13131)] {
        let optimized = solve(&schema, &momentum(6, beta), 1e-8);
        assert_eq!(optimized.route, Route::Dense);
        assert_encloses(&optimized.mechanism, root, 1e-5);
    }
}

#[test]
fn every_step_has_a_closed_form() {
    // docs/theory.md, section 4: for b = 1 the optimal loss is (Σ‖A·e_i‖)².
    for n in [1, 2, 17] {
        for beta in [0.0, 0.9] {
            let workload = momentum(n, beta);
            let a = workload.matrix();
            let closed = (0..n).map(|j| a.col(j).norm_l2()).sum::<f64>().powi(2);
            let claims = *solve(&Schema::every_step(n).unwrap(), &workload, 1e-8).mechanism.claims();
            // 1e-12: both ends are rounded away from the truth.
            assert!(claims.lower_bound.unwrap() <= closed * (1.0 + 1e-12), "n = {n}: {claims:?} {closed}");
            assert!(claims.loss >= closed * (1.0 - 1e-12), "n = {n}: {claims:?} {closed}");
        }
    }
}

#[test]
fn a_diagonal_workload_under_disjoint_patterns_has_a_closed_form() {
    // V is diagonal, so X is: per pattern (Σ d_i)² by Cauchy–Schwarz, and the patterns do not meet.
    let d = [1.0, 2.0, 0.5, 3.0, 0.1, 1.5, 4.0];
    let schema = Schema::patterns(7, vec![vec![0, 3, 4], vec![1], vec![2, 5, 6]]).unwrap();
    let a = Matrix::from_fn(7, 7, |i, j| if i == j { d[i] } else { 0.0 });
    let claims = *solve(&schema, &Workload::dense(a).unwrap(), 1e-8).mechanism.claims();
    let closed = 4.1f64.powi(2) + 4.0 + 6.0f64.powi(2);
    assert!((claims.loss / closed - 1.0).abs() < 2e-9, "{claims:?} {closed}");
}

#[test]
fn overlapping_pairs_reach_the_optimum() {
    // docs/theory.md, section 4, "Overlap matters": the optimum is 11.608, below the 12 of every orthogonal mechanism.
    let schema = Schema::patterns(3, vec![vec![0, 1], vec![0, 2], vec![1, 2]]).unwrap();
    let optimized = solve(&schema, &Workload::prefix_sum(3), 1e-4);
    assert!((optimized.mechanism.claims().loss - 11.608).abs() < 2e-3, "{:?}", optimized.mechanism.claims());
    assert_eq!(optimized.route, Route::Dense);
}

#[test]
fn twenty_epochs_of_twenty_steps_reach_the_default_gap() {
    let optimized = solve(&Schema::epochs(20, 20).unwrap(), &Workload::prefix_sum(400), 1e-3);
    assert_eq!(optimized.route, Route::Structured);
}

#[test]
fn an_implicit_mechanism_is_found_where_a_dense_one_is() {
    // The worst-conditioned schedule of docs/theory.md, section 6: rates from 1e-3 to 1 and momentum 0.99.
    let n = 60;
    let rates = (0..n).map(|i| 1e-3f64.powf(1.0 - i as f64 / (n - 1) as f64)).collect();
    let workload = Workload::training(n, 0.99, Some(rates)).unwrap();
    let schema = Schema::fixed_order(n, 12).unwrap();
    solve(&schema, &workload, 1e-3);
    let params = Params { implicit: true, ..Params::default() };
    assert_sound(&optimize(&schema, &workload, &params, &|_| true).unwrap(), 1e-3);
}

#[test]
fn bounds_never_cross_on_random_problems() {
    let mut random = Random(9);
    for case in 0..16 {
        let (b, k) = (random.integer(1, 12), random.integer(1, 6));
        let n = b * k - random.integer(0, b - 1).min(b * k - b);
        let schema = Schema::fixed_order(n, b).unwrap();
        let beta = [0.0, 0.5, 0.9, 0.95][case % 4];
        let rates = Cooldown { fraction: 0.4, end: 0.1 }.rates(n).unwrap();
        let workload = Workload::training(n, beta, (case % 3 == 0).then_some(rates)).unwrap();
        let gap = [1e-2, 1e-4, 1e-6][case % 3];
        let dense = *solve(&schema, &workload, gap).mechanism.claims();
        if Resolvent::new(&schema, &workload).is_some() {
            let params = Params { gap, implicit: true, ..Params::default() };
            let implicit = optimize(&schema, &workload, &params, &|_| true).unwrap();
            assert_sound(&implicit, gap);
            // Each one's bound holds for the other's mechanism.
            let implicit = implicit.mechanism.claims();
            assert!(
                implicit.lower_bound.unwrap() <= dense.loss && dense.lower_bound.unwrap() <= implicit.loss,
                "case {case}"
            );
        }
    }
}

/// One entry of the fixtures: schema, workload and the loss of the other package's encoder.
fn foreign(name: &str) -> (Schema, Workload, f64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/foreign.json");
    let entries: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let entry = entries.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
    let count = |key: &str| entry["schema"][key].as_u64().unwrap() as usize;
    let schema =
        Schema::fixed_order_at_most(count("steps"), count("steps_per_epoch"), count("max_participations"))
            .unwrap();
    let rates = entry["workload"]["learning_rates"]
        .as_array()
        .map(|rates| rates.iter().map(|rate| rate.as_f64().unwrap()).collect());
    let beta = entry["workload"]["momentum"].as_f64().unwrap_or(0.0);
    let workload = Workload::training(count("steps"), beta, rates).unwrap();
    (schema, workload, entry["loss"].as_f64().unwrap())
}

#[test]
fn no_worse_than_the_other_packages_optimum() {
    // jax-privacy 2.0.0, dense.optimize at its default settings; see tests/fixtures/README.md. Its optimum for several
    // epochs is over non-negative X, so ours may be better; for a single epoch the two problems are the same.
    let cases = [
        ("dense_single_epochs_60_1", true),
        ("dense_e3_epochs_20_3", false),
        ("dense_e5_momentum_epochs_12_5", false),
    ];
    for (name, same) in cases {
        let (schema, workload, loss) = foreign(name);
        for gap in [1e-3, 1e-4] {
            let claims = *solve(&schema, &workload, gap).mechanism.claims();
            assert!(claims.loss <= loss * (1.0 + gap), "{name}: {} above {loss}", claims.loss);
            // Its loss is one of a matrix mechanism, so no true bound is above it.
            assert!(
                claims.lower_bound.unwrap() <= loss,
                "{name}: {} above {loss}",
                claims.lower_bound.unwrap()
            );
            // Its default settings stop close to the optimum.
            assert!(!same || loss <= claims.loss * (1.0 + 1e-3), "{name}: {} {loss}", claims.loss);
        }
    }
}

#[test]
fn columns_that_one_example_can_share_are_orthogonal() {
    let rates = Cooldown { fraction: 0.5, end: 0.05 }.rates(60).unwrap();
    let cases = [
        (Schema::fixed_order(60, 12).unwrap(), Workload::prefix_sum(60)),
        (Schema::fixed_order(60, 13).unwrap(), Workload::training(60, 0.95, Some(rates)).unwrap()),
        (Schema::fixed_order(20, 2).unwrap(), momentum(20, 0.9)),
        (Schema::patterns(6, vec![vec![0, 1, 5], vec![2, 4], vec![3]]).unwrap(), momentum(6, 0.5)),
    ];
    for (schema, workload) in cases {
        let mechanism = solve(&schema, &workload, 1e-4).mechanism;
        let Noise::Dense(noising) = mechanism.noise() else { panic!("a dense mechanism was asked for") };
        let x = gram(&noising.encoder().unwrap());
        for pattern in schema.listed().unwrap() {
            let trace: f64 = pattern.iter().map(|i| x[(*i, *i)]).sum();
            // Exact but for the rounding of a Cholesky factor and two triangular inverses.
            assert!((trace - 1.0).abs() <= 1e-9, "{}: {trace}", schema.describe());
            for i in &pattern {
                for j in pattern.iter().filter(|j| *j != i) {
                    assert!(x[(*i, *j)].abs() <= 1e-9, "{}: {}", schema.describe(), x[(*i, *j)]);
                }
            }
        }
        assert!((mechanism.claims().sensitivity - 1.0).abs() < 1e-8, "{}", mechanism.claims().sensitivity);
        // The loss is that of this matrix: ‖A·C⁻¹‖²_F at sensitivity one, by another route.
        let c = noising.encoder().unwrap();
        let error = squared_norm(&(&workload.matrix() * &lower_inverse(&c).unwrap()));
        assert!((mechanism.claims().loss / error - 1.0).abs() < 1e-8, "{} {error}", mechanism.claims().loss);
    }
}

#[test]
fn what_cannot_be_optimized_is_refused_with_a_reason() {
    let prefix = Workload::prefix_sum;
    let params = Params::default();
    let implicit = Params { implicit: true, ..params };

    let schema = Schema::min_separation(12, 4, 3).unwrap();
    let error = refusal(&schema, &prefix(12), &params);
    assert!(matches!(error.parts(), (Error::Unsupported(_), Some(Hint::ListedSchema))));
    assert!(
        error.to_string().contains("minimum separation") && error.to_string().contains("fixed epoch order")
    );

    let schema = Schema::patterns(5, vec![vec![0, 2], vec![1, 4]]).unwrap();
    let error = refusal(&schema, &prefix(5), &params);
    assert!(matches!(error, Error::Unsupported(_)));
    assert!(error.to_string().starts_with("step 3 is in no participation pattern"), "{error}");

    let schema = Schema::epochs(10, 1201).unwrap();
    let error = refusal(&schema, &prefix(12_010), &params);
    assert!(matches!(error.parts(), (Error::Unsupported(_), Some(Hint::Implicit))));
    assert!(error.to_string().contains("12010 steps") && error.to_string().contains("implicit"), "{error}");

    for (schema, workload) in [
        (Schema::epochs(6, 2).unwrap(), prefix(12)),
        (Schema::epochs(3, 5).unwrap(), momentum(15, 0.9)),
        (Schema::fixed_order_at_most(12, 4, 2).unwrap(), prefix(12)),
        (Schema::epochs(3, 4).unwrap(), Workload::dense(prefix(12).matrix()).unwrap()),
    ] {
        let error = refusal(&schema, &workload, &implicit);
        assert!(matches!(error, Error::Unsupported(_)));
        assert!(
            error.to_string().starts_with("an implicit mechanism needs the linear-time route"),
            "{error}"
        );
    }

    let error = refusal(&Schema::epochs(3, 4).unwrap(), &prefix(11), &params).to_string();
    assert_eq!(error, "the workload must be for 12 steps, as the schema is, got 11 steps");
    for gap in [0.0, -1.0, 2.0, f64::NAN] {
        let error =
            refusal(&Schema::epochs(3, 4).unwrap(), &prefix(12), &Params { gap, ..params }).to_string();
        assert!(error.starts_with("gap must be in [1e-8, 1], got"), "{error}");
    }
    let none = Params { max_iterations: 0, ..params };
    let error = refusal(&Schema::epochs(3, 4).unwrap(), &prefix(12), &none).to_string();
    assert_eq!(error, "max_iterations must be at least 1, got 0");
}

#[test]
fn an_unreachable_gap_is_an_error_that_says_how_far_it_came() {
    let cases = [
        (Schema::epochs(6, 20).unwrap(), momentum(120, 0.95), true),
        (Schema::epochs(6, 20).unwrap(), momentum(120, 0.95), false),
        (Schema::epochs(6, 2).unwrap(), momentum(12, 0.95), false),
        (Schema::fixed_order_at_most(20, 4, 3).unwrap(), momentum(20, 0.9), false),
    ];
    for (schema, workload, implicit) in cases {
        let params = Params { gap: 1e-6, max_iterations: 2, implicit };
        match refusal(&schema, &workload, &params) {
            Error::NoConvergence { gap, target, iterations, .. } => {
                assert!(gap > target && gap.is_finite(), "{gap}");
                assert_eq!((target, iterations), (1e-6, 2));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn the_observer_can_stop_the_work_in_every_phase() {
    let (schema, workload) = (Schema::epochs(5, 12).unwrap(), Workload::prefix_sum(60));
    for implicit in [false, true] {
        for phase in [Phase::Iterating, Phase::Forming, Phase::Certifying] {
            if implicit && phase == Phase::Forming {
                continue; // nothing is formed
            }
            let params = Params { implicit, ..Params::default() };
            let calls = Cell::new(0);
            let stop = optimize(&schema, &workload, &params, &|progress| {
                assert!(progress.lower_bound <= progress.loss && progress.iteration >= 1);
                calls.set(calls.get() + usize::from(progress.phase == phase));
                progress.phase != phase
            });
            assert!(matches!(stop, Err(Error::Interrupted)), "{phase:?}: {stop:?}");
            // Asked once, and not again after it said no.
            assert_eq!(calls.get(), 1, "{phase:?}, implicit {implicit}");
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    // Few steps per epoch go the dense route, whose decompositions are shared among threads from about 256 steps on.
    for (steps, per_epoch, implicit, route) in [
        (144, 24, true, Route::Structured),
        (300, 30, false, Route::Structured),
        (270, 9, false, Route::Dense),
    ] {
        let workload = Workload::training(steps, 0.9, None).unwrap();
        let schema = Schema::fixed_order(steps, per_epoch).unwrap();
        let params = Params { implicit, ..Params::default() };
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let outcome = pool.install(|| optimize(&schema, &workload, &params, &|_| true)).unwrap();
            assert_eq!(outcome.route, route);
            outcome.mechanism
        };
        let one = run(1);
        for other in [run(2), run(3)] {
            assert_eq!(antiphon::file::id(&one), antiphon::file::id(&other), "{steps}");
            assert_eq!(one.claims().loss.to_bits(), other.claims().loss.to_bits());
            assert_eq!(
                one.claims().lower_bound.unwrap().to_bits(),
                other.claims().lower_bound.unwrap().to_bits()
            );
            assert_eq!(one.certificate(), other.certificate());
        }
    }
}

#[test]
fn steeply_rising_rates_are_left_to_the_dense_route() {
    // With momentum they cost the structured route more digits than its allowance covers. The claims of everything that
    // is made must hold for the checker, which takes singular values here; no result is an honest answer too.
    let mut schedules = Vec::new();
    for (position, rate) in [(0, 1e-7), (5, 1e-6), (7, 1e-10), (11, 1e-12)] {
        let mut rates = vec![1.0; 12];
        rates[position] = rate;
        schedules.push(rates);
    }
    // Up and down by less than a factor of a hundred each time, but by 1e8 in all.
    schedules.push(
        (0..12).map(|i| 10f64.powf([0.0, -1.9, -3.8, -5.7, -7.6, -5.8, -3.9, -2.0, -0.1][i % 9])).collect(),
    );
    for rates in schedules {
        let rise = (0..12)
            .flat_map(|j| (0..j).map(move |i| (i, j)))
            .map(|(i, j)| rates[j] / rates[i])
            .fold(1.0, f64::max);
        let schema = Schema::epochs(2, 6).unwrap();
        let workload = Workload::training(12, 0.9, Some(rates)).unwrap();
        for implicit in [false, true] {
            let params = Params { implicit, ..Params::default() };
            match optimize(&schema, &workload, &params, &|_| true) {
                Ok(found) => {
                    assert!(found.route == Route::Dense || rise < 1e3, "{workload:?}");
                    assert!(antiphon::verify::mechanism(&found.mechanism).unwrap().ok(), "{workload:?}");
                }
                Err(Error::Unsupported(_)) => assert!(implicit && rise > 1e3, "{workload:?}"),
                Err(error) => {
                    assert!(matches!(error, Error::Numerical(_) | Error::NoConvergence { .. }), "{error}")
                }
            }
        }
    }
}

#[test]
fn the_scale_of_the_workload_changes_the_loss_and_nothing_else() {
    let schema = Schema::fixed_order(24, 6).unwrap();
    let a = Workload::training(24, 0.9, None).unwrap().matrix();
    let solve =
        |workload: Workload| optimize(&schema, &workload, &Params::default(), &|_| true).unwrap().mechanism;
    let plain = solve(Workload::dense(a.clone()).unwrap());
    for exponent in [-332, -50, 50, 332] {
        let scale = 2f64.powi(exponent); // up to 1e±100
        let scaled = Workload::dense(from_fn(24, 24, |i, j| scale * a[(i, j)])).unwrap();
        let found = solve(scaled);
        let loss = found.claims().loss / scale / scale;
        assert!(
            (loss / plain.claims().loss - 1.0).abs() < 2e-3,
            "{exponent}: {loss} {}",
            plain.claims().loss
        );
        assert!(found.claims().gap() <= 1e-3);
        let report = antiphon::verify::mechanism(&found).unwrap();
        assert!(report.ok(), "{exponent}: {:?}", report.checks);
    }
    // Rates too, by either route.
    for rate in [1e-25, 1e25] {
        for implicit in [false, true] {
            let workload = Workload::training(24, 0.5, Some(vec![rate; 24])).unwrap();
            let params = Params { implicit, ..Params::default() };
            let found = optimize(&schema, &workload, &params, &|_| true).unwrap().mechanism;
            assert!(antiphon::verify::mechanism(&found).unwrap().ok(), "{rate:e}, {implicit}");
        }
    }
}
