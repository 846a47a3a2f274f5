//! Verification against forgery: what the optimizer makes is accepted, and whoever changes a number is found out,
//! unless what is left is still true.
//!
//! A certificate is not a signature. Any factors prove *some* bound, so a changed U is not wrong in itself; it must then
//! not prove the bound that is claimed.

use antiphon::linalg::Matrix;
use antiphon::linalg::dense::singular_values;
use antiphon::mechanism::{Mechanism, Noise, NoisingMatrix, Parts};
use antiphon::optimize::blocks::BlockDual;
use antiphon::optimize::resolvent::Resolvent;
use antiphon::optimize::{Params, Route, optimize};
use antiphon::schema::Schema;
use antiphon::verify::{self, Report};
use antiphon::workload::{Cooldown, Workload};
use std::sync::OnceLock;

/// What is found of a mechanism that was put together by hand.
fn checked(parts: &Parts) -> antiphon::Result<Report> {
    verify::mechanism(&parts.clone().into())
}

fn momentum(n: usize, momentum: f64) -> Workload {
    Workload::training(n, momentum, None).unwrap()
}

fn make(schema: Schema, workload: Workload, implicit: bool, gap: f64, route: Route) -> Mechanism {
    let params = Params { gap, implicit, ..Params::default() };
    let optimized = optimize(&schema, &workload, &params, &|_| true).unwrap();
    assert_eq!(optimized.route, route);
    optimized.mechanism
}

/// One mechanism of each kind: dense by either route, implicit, and one with overlapping patterns.
fn samples() -> &'static [(&'static str, Mechanism)] {
    static SAMPLES: OnceLock<Vec<(&'static str, Mechanism)>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let overlapping = Schema::fixed_order_at_most(12, 4, 2).unwrap();
        let rates = Cooldown { fraction: 0.5, end: 0.05 }.rates(60).unwrap();
        let cooldown = Workload::training(60, 0.95, Some(rates)).unwrap();
        let order = |n, b| Schema::fixed_order(n, b).unwrap();
        vec![
            ("structured", make(order(60, 12), momentum(60, 0.9), false, 1e-4, Route::Structured)),
            ("implicit", make(order(60, 12), momentum(60, 0.9), true, 1e-3, Route::Structured)),
            (
                "implicit, ragged",
                make(order(59, 11), Workload::prefix_sum(59), true, 1e-3, Route::Structured),
            ),
            ("cooldown", make(order(60, 10), cooldown, false, 1e-3, Route::Structured)),
            ("dense", make(order(24, 2), momentum(24, 0.9), false, 1e-4, Route::Dense)),
            ("overlapping", make(overlapping, Workload::prefix_sum(12), false, 2e-2, Route::Dense)),
        ]
    })
}

fn passed(report: &Report, name: &str) -> bool {
    report.checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name}")).passed
}

/// Refused outright or found false, by whichever check.
fn rejects(mechanism: &Mechanism) -> bool {
    verify::mechanism(mechanism).map_or(true, |report| !report.ok())
}

/// Claims and derived figures agree to this, relatively; a smaller lie is not found (the constant of the checker).
const AGREEMENT: f64 = 1e-6;

#[test]
fn what_the_optimizer_makes_is_accepted() {
    for (name, mechanism) in samples() {
        let report = verify::mechanism(mechanism).unwrap();
        assert!(report.ok(), "{name}: {:?}", report.checks);
        let claims = mechanism.claims();
        let bound = report.lower_bound.unwrap();
        assert!((report.loss / claims.loss - 1.0).abs() < AGREEMENT, "{name}: {} {claims:?}", report.loss);
        assert!((bound / claims.lower_bound.unwrap() - 1.0).abs() < AGREEMENT, "{name}: {bound} {claims:?}");
        assert!(report.sensitivity.upper <= claims.sensitivity * (1.0 + AGREEMENT), "{name}");
        println!(
            "{name}: loss {:+.1e}, lower bound {:+.1e}, sensitivity {:+.1e} (derived over claimed)",
            report.loss / claims.loss - 1.0,
            bound / claims.lower_bound.unwrap() - 1.0,
            report.sensitivity.upper / claims.sensitivity - 1.0
        );
    }
}

#[test]
fn inflated_claims_are_rejected() {
    for (name, mechanism) in samples() {
        let lie = |change: &dyn Fn(&mut Parts)| {
            let mut changed = mechanism.clone().into_parts();
            change(&mut changed);
            checked(&changed).unwrap()
        };
        assert!(!passed(&lie(&|m| m.claims.loss *= 0.99), "loss"), "{name}");
        assert!(
            !passed(
                &lie(&|m| m.claims.lower_bound = m.claims.lower_bound.map(|bound| bound * 1.01)),
                "lower_bound"
            ),
            "{name}"
        );
        assert!(!passed(&lie(&|m| m.claims.sensitivity *= 0.99), "sensitivity"), "{name}");
        // A lie just above what rounding explains is found too.
        assert!(!passed(&lie(&|m| m.claims.loss *= 1.0 - 3.0 * AGREEMENT), "loss"), "{name}");
        assert!(
            !passed(
                &lie(&|m| m.claims.lower_bound =
                    m.claims.lower_bound.map(|bound| bound * (1.0 + 3.0 * AGREEMENT))),
                "lower_bound"
            ),
            "{name}"
        );
        for change in [f64::NAN, f64::INFINITY] {
            assert!(!lie(&|m| m.claims.lower_bound = Some(change)).ok(), "{name}: lower_bound {change}");
        }
        assert!(!lie(&|m| m.claims.loss = f64::NAN).ok(), "{name}");
        assert!(!lie(&|m| m.claims.sensitivity = f64::NAN).ok(), "{name}");
    }
}

/// The bound that factors prove, written down without the library's checker: (Σσ(A·L))² / Σ max‖row‖².
fn bound_by_definition(mechanism: &Mechanism) -> f64 {
    let patterns = mechanism.schema().listed().unwrap();
    let (mut columns, mut c) = (Vec::new(), 0.0);
    for (steps, factor) in patterns.iter().zip(&mechanism.certificate().unwrap().factors) {
        let k = steps.len();
        c += factor.chunks(k).map(|row| row.iter().map(|x| x * x).sum::<f64>()).fold(0.0, f64::max);
        for j in 0..k {
            let mut column = vec![0.0; mechanism.schema().steps()];
            steps.iter().enumerate().for_each(|(i, step)| column[*step] = factor[i * k + j]);
            columns.push(column);
        }
    }
    let l = Matrix::from_fn(mechanism.schema().steps(), columns.len(), |i, j| columns[j][i]);
    singular_values(&(&mechanism.workload().matrix() * &l)).unwrap().iter().sum::<f64>().powi(2) / c
}

#[test]
fn a_tampered_dual_does_not_prove_the_claimed_bound() {
    for (name, mechanism) in samples() {
        let (mut weaker, mut rejected) = (0, 0);
        for r in 0..mechanism.certificate().unwrap().factors.len() {
            let k = mechanism.certificate().unwrap().factors[r].len().isqrt();
            for (entry, halve) in [(0, true), (k * k - 1, true), ((k - 1) * k, false), (k * k - 1, false)] {
                let mut changed = mechanism.clone().into_parts();
                let x = &mut changed.certificate.as_mut().unwrap().factors[r][entry];
                *x = if halve { 0.5 * *x } else { 1.7 };
                let bound = bound_by_definition(&changed.clone().into());
                let report = checked(&changed);
                if let Ok(report) = &report {
                    let derived = report.lower_bound.unwrap();
                    // Whatever U is, the derived bound is the one it proves, rounded down: never more, and no less
                    // than the checker's rounding and a stored rule made for another U explain.
                    assert!(derived <= bound * (1.0 + 1e-12), "{name}: factor {r}, {derived} {bound}");
                    if matches!(mechanism.noise(), Noise::Dense(_)) {
                        assert!(derived >= bound * (1.0 - 1e-9), "{name}: factor {r}, {derived} {bound}");
                    }
                }
                if bound < mechanism.claims().lower_bound.unwrap() * (1.0 - 2.0 * AGREEMENT) {
                    weaker += 1;
                    let found = report.map_or(true, |report| !passed(&report, "lower_bound"));
                    assert!(found, "{name}: factor {r} entry {entry}, {bound} {:?}", mechanism.claims());
                    rejected += 1;
                }
            }
        }
        assert!(weaker > 0 && weaker == rejected, "{name}: no change made the bound weaker");
    }
}

#[test]
fn malformed_certificates_are_refused() {
    for (name, mechanism) in samples() {
        let refused = |change: &dyn Fn(&mut Vec<Vec<f64>>)| {
            let mut changed = mechanism.clone().into_parts();
            change(&mut changed.certificate.as_mut().unwrap().factors);
            rejects(&changed.clone().into())
        };
        assert!(refused(&|factors| factors[0][0] = f64::NAN), "{name}: NaN");
        assert!(refused(&|factors| factors[0][0] = f64::INFINITY), "{name}: infinity");
        assert!(refused(&|factors| drop(factors.pop())), "{name}: a factor is missing");
        assert!(refused(&|factors| factors[0].push(0.0)), "{name}: a factor is not square");
        assert!(refused(&|factors| factors[0][1] = 1.0), "{name}: an entry above the diagonal");
        // U as a whole may be scaled: the bound does not change.
        let mut scaled = mechanism.clone().into_parts();
        scaled.certificate.as_mut().unwrap().factors.iter_mut().flatten().for_each(|x| *x *= 2.0);
        if matches!(mechanism.noise(), Noise::Dense(_)) {
            assert!(checked(&scaled).unwrap().ok(), "{name}: 4·U");
        }
    }
}

/// Finite numbers in a file that overflow or vanish when squared: an answer must come, and soon.
fn degenerate_certificates_are_rejected(implicit: bool) {
    for (name, mechanism) in samples() {
        if matches!(mechanism.noise(), Noise::Implicit { .. }) != implicit {
            continue;
        }
        for scale in [0.0, 1e-200, 1e200] {
            let mut changed = mechanism.clone().into_parts();
            changed.certificate.as_mut().unwrap().factors.iter_mut().flatten().for_each(|x| *x *= scale);
            assert!(rejects(&changed.clone().into()), "{name}: factors scaled by {scale:e}");
        }
    }
}

#[test]
fn degenerate_certificates_of_dense_mechanisms_are_rejected() {
    degenerate_certificates_are_rejected(false);
}

#[test]
fn degenerate_certificates_of_implicit_mechanisms_are_rejected() {
    degenerate_certificates_are_rejected(true);
}

#[test]
fn a_certificate_without_one_pattern_is_rejected() {
    for (name, mechanism) in samples() {
        let mut changed = mechanism.clone().into_parts();
        changed.certificate.as_mut().unwrap().factors[0].fill(0.0);
        assert!(rejects(&changed.clone().into()), "{name}: one factor is zero");
    }
}

/// The bounds on a stored rule are found by bisection; their work must not depend on the scale of its weights.
#[test]
fn rules_of_any_scale_are_judged_in_time() {
    for (name, mechanism) in samples() {
        let Noise::Implicit { rule, squared_sensitivity } = mechanism.noise() else { continue };
        for scale in [1e-150, 1e-10, 1e6, 1e12, 1e150] {
            let mut rule = rule.clone();
            rule.weights.iter_mut().for_each(|w| *w *= scale);
            let noise = Noise::Implicit { rule, squared_sensitivity: *squared_sensitivity };
            let changed = Parts { noise, ..mechanism.clone().into_parts() };
            // Larger weights have a larger X_N than s² says; smaller ones are the same mechanism, said in another way.
            assert!(scale < 1.0 || rejects(&changed.clone().into()), "{name}: weights scaled by {scale:e}");
        }
    }
}

#[test]
fn another_workload_is_rejected() {
    for (name, mechanism) in samples() {
        let n = mechanism.schema().steps();
        let training = mechanism.workload().as_training().unwrap();
        let rates = training.rates().map(<[f64]>::to_vec);
        for beta in [training.momentum() + 0.01, 0.99, 0.3] {
            let mut changed = mechanism.clone().into_parts();
            changed.workload = Workload::training(n, beta, rates.clone()).unwrap();
            assert!(rejects(&changed.clone().into()), "{name}: momentum {beta}");
        }
        let mut changed = mechanism.clone().into_parts();
        let mut other = rates.unwrap_or(vec![1.0; n]);
        other[n / 2] *= 1.1;
        changed.workload = Workload::training(n, training.momentum(), Some(other)).unwrap();
        assert!(rejects(&changed.clone().into()), "{name}: one learning rate");
        changed.workload = Workload::prefix_sum(n + 1);
        assert!(checked(&changed).is_err(), "{name}: another number of steps");
    }
}

#[test]
fn another_schema_is_rejected() {
    for (name, mechanism) in samples() {
        let n = mechanism.schema().steps();
        let others = [1, 3, 4, 6, 15, n].into_iter().filter_map(|b| Schema::fixed_order(n, b).ok());
        for other in others.filter(|other| other != mechanism.schema()) {
            let mut changed = mechanism.clone().into_parts();
            changed.schema = other;
            // The shapes of the factors do not fit.
            assert!(checked(&changed).is_err(), "{name}: {}", changed.schema.describe());
        }
        let mut changed = mechanism.clone().into_parts();
        changed.schema = Schema::min_separation(n, 4, 3).unwrap();
        assert!(checked(&changed).is_err(), "{name}: minimum separation");
    }
    // Where the shapes do fit, the figures do not: the same sizes over other steps.
    let (_, mechanism) = &samples()[4];
    let halves = vec![(0..12).collect(), (12..24).collect()];
    let mut changed = mechanism.clone().into_parts();
    changed.schema = Schema::patterns(24, halves).unwrap();
    let report = checked(&changed).unwrap();
    assert!(!passed(&report, "sensitivity"), "{:?}", report.checks);
}

#[test]
fn another_noising_matrix_is_rejected() {
    for (name, mechanism) in samples() {
        let Noise::Dense(noising) = mechanism.noise() else { continue };
        let n = noising.steps();
        let replaced = |f: &dyn Fn(usize, usize, f64) -> f64| {
            let w = noising.matrix();
            let w = Matrix::from_fn(n, n, |i, j| f(i, j, w[(i, j)]));
            let noise = Noise::Dense(NoisingMatrix::new(w).unwrap());
            Mechanism::from(Parts { noise, ..mechanism.clone().into_parts() })
        };
        // More noise: at the claimed sensitivity the loss is larger than claimed.
        let report = verify::mechanism(&replaced(&|_, _, x| 1.01 * x)).unwrap();
        assert!(passed(&report, "sensitivity") && !passed(&report, "loss"), "{name}: scaled up");
        // Less noise: the sensitivity of the inverse is larger than claimed.
        for factor in [0.5, 0.99, 1.0 - 1e-5] {
            let report = verify::mechanism(&replaced(&|_, _, x| factor * x)).unwrap();
            assert!(!passed(&report, "sensitivity"), "{name}: scaled by {factor}");
        }
        // One row scaled, one diagonal entry changed, noise without correlation.
        assert!(rejects(&replaced(&|i, _, x| if i == n / 2 { 0.9 * x } else { x })), "{name}: a row");
        assert!(
            rejects(&replaced(&|i, j, x| if i == 0 && j == 0 { 0.9 * x } else { x })),
            "{name}: an entry"
        );
        assert!(rejects(&replaced(&|i, j, _| f64::from(i == j))), "{name}: the identity");
    }
}

#[test]
fn a_changed_implicit_mechanism_is_rejected() {
    for (name, mechanism) in samples() {
        let Noise::Implicit { rule, squared_sensitivity } = mechanism.noise() else { continue };
        let replaced = |rule: &_, squared_sensitivity: f64| {
            let rule = Clone::clone(rule);
            let noise = Noise::Implicit { rule, squared_sensitivity };
            Mechanism::from(Parts { noise, ..mechanism.clone().into_parts() })
        };
        assert!(!rejects(&replaced(rule, *squared_sensitivity)), "{name}: nothing changed");
        for factor in [0.5, 0.99] {
            let report = verify::mechanism(&replaced(rule, factor * squared_sensitivity)).unwrap();
            assert!(!passed(&report, "sensitivity"), "{name}: s² scaled by {factor}");
        }
        let report = verify::mechanism(&replaced(rule, 1.01 * squared_sensitivity)).unwrap();
        assert!(passed(&report, "sensitivity") && !passed(&report, "loss"), "{name}: s² scaled up");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(rejects(&replaced(rule, bad)), "{name}: s² = {bad}");
        }
        let middle = rule.nodes.len() / 2;
        for factor in [0.5, 1.5] {
            let mut changed = rule.clone();
            changed.weights[middle] *= factor;
            assert!(rejects(&replaced(&changed, *squared_sensitivity)), "{name}: weight by {factor}");
        }
        let mut changed = rule.clone();
        changed.nodes[middle] = 0.5 * (rule.nodes[middle] + rule.nodes[middle + 1]);
        assert!(rejects(&replaced(&changed, *squared_sensitivity)), "{name}: a node");
        for (i, x) in [(0, -1.0), (0, 0.0), (1, f64::NAN), (middle, rule.nodes[middle + 1])] {
            let mut changed = rule.clone();
            changed.nodes[i] = x;
            assert!(
                verify::mechanism(&replaced(&changed, *squared_sensitivity)).is_err(),
                "{name}: node {x}"
            );
        }
        let mut changed = rule.clone();
        changed.weights.pop();
        assert!(
            verify::mechanism(&replaced(&changed, *squared_sensitivity)).is_err(),
            "{name}: a weight less"
        );
    }
}

#[test]
fn a_long_run_is_bounded_by_determinants() {
    // One step more than singular values are used for, see docs/theory.md, section 8.
    for workload in [Workload::prefix_sum(4004), momentum(4004, 0.9)] {
        let schema = Schema::epochs(2, 2002).unwrap();
        let mechanism = make(schema, workload, true, 1e-4, Route::Structured);
        let bound =
            verify::lower_bound(mechanism.schema(), mechanism.workload(), mechanism.certificate().unwrap())
                .unwrap();
        assert_eq!(bound.method, "determinants in square-root form");
        // Two implementations, two rules: resolvents by the optimizer's elimination, determinants by the checker's.
        let ratio = bound.value / bound_by_resolvents(&mechanism);
        assert!((ratio - 1.0).abs() < AGREEMENT, "{} {:?}", bound.value, mechanism.claims());
        println!("n = 4004, {}: {:+.1e} over the optimizer's", mechanism.workload().describe(), ratio - 1.0);
        assert!(verify::mechanism(&mechanism).unwrap().ok());
    }
}

/// a²/c with the optimizer's resolvents.
fn bound_by_resolvents(mechanism: &Mechanism) -> f64 {
    let factors = mechanism.certificate().unwrap().factors.clone();
    let patterns = mechanism.schema().listed().unwrap();
    let c: f64 = factors
        .iter()
        .zip(&patterns)
        .map(|(l, steps)| {
            l.chunks(steps.len()).map(|row| row.iter().map(|x| x * x).sum()).fold(0.0, f64::max)
        })
        .sum();
    let dual = BlockDual { scales: vec![1.0; patterns.len()], patterns, factors };
    let mut resolvent = Resolvent::new(mechanism.schema(), mechanism.workload()).unwrap();
    let rule = resolvent.rule(&dual, 1e-9).unwrap();
    let a = dual.inner_product(&resolvent.blocks(&dual, &rule).0) / rule.supremum(1e-9);
    a * a / c
}

#[test]
fn singular_values_and_determinants_prove_the_same_bound() {
    // An implicit mechanism's bound comes from determinants at any size, a bare certificate's from singular
    // values up to n = 4000: two ways to the same number.
    for (name, mechanism) in samples() {
        if matches!(mechanism.noise(), Noise::Dense(_)) {
            continue;
        }
        let stacked = verify::mechanism(mechanism).unwrap().lower_bound.unwrap();
        let singular =
            verify::lower_bound(mechanism.schema(), mechanism.workload(), mechanism.certificate().unwrap())
                .unwrap();
        assert_eq!(singular.method, "singular values");
        let truth = bound_by_definition(mechanism);
        // Rounded down, both of them; the determinants by the supremum of their rule, at most 1e-6 here.
        for value in [stacked, singular.value] {
            assert!(value <= truth && value >= truth * (1.0 - 3e-6), "{name}: {value} {truth}");
        }
    }
}

#[test]
fn the_bound_of_any_dual_is_one_for_every_mechanism() {
    // Theorem 3 for arbitrary factors: the identity of each pattern, on the structured and on overlapping schemas.
    for (name, mechanism) in samples() {
        let mut changed = mechanism.clone().into_parts();
        for factor in &mut changed.certificate.as_mut().unwrap().factors {
            let k = factor.len().isqrt();
            factor.iter_mut().enumerate().for_each(|(e, x)| *x = f64::from(e % (k + 1) == 0));
        }
        let bound =
            verify::lower_bound(&changed.schema, &changed.workload, changed.certificate.as_ref().unwrap())
                .unwrap();
        assert!(bound.value > 0.0 && bound.value <= mechanism.claims().loss, "{name}: {}", bound.value);
        let truth = bound_by_definition(&changed.clone().into());
        assert!(bound.value <= truth && bound.value >= truth * (1.0 - 1e-9), "{name}: {truth}");
    }
}
