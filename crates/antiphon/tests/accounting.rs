//! The accountants against two other packages: dp-accounting and mpmath. `fixtures/make_accounting.py` made the figures and
//! says with which versions.

use antiphon::accounting::calibrate::Run;
use antiphon::accounting::{Event, Params, epsilon, gaussian, zcdp};
use antiphon::families;
use antiphon::make;
use antiphon::mechanism::Structured;
use antiphon::schema::Schema;
use antiphon::verify;
use antiphon::workload::Workload;
use serde_json::Value;

fn goldens(part: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("fixtures/accounting.json")).unwrap();
    all[part].as_array().unwrap().clone()
}

fn number(entry: &Value, name: &str) -> f64 {
    match &entry[name] {
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap_or_else(|| panic!("{name} in {entry}")),
    }
}

/// 300 random runs of sampled DP-SGD.
#[test]
fn sampled_runs_agree_with_dp_accounting() {
    let runs = goldens("sampled");
    assert_eq!(runs.len(), 300);
    let (mut widest, mut wide) = (0.0f64, 0);
    for run in &runs {
        let (q, z, steps) = (number(run, "q"), number(run, "z"), number(run, "T") as u64);
        let target = number(run, "delta");
        let found = epsilon(&Event::dp_sgd(q, z, steps), target, &Params::default())
            .unwrap_or_else(|error| panic!("{run}: {error}"));
        let (theirs, optimistic) = (number(run, "epsilon_pessimistic"), number(run, "epsilon_optimistic"));
        // At q = 1 ours is the formula, and theirs is not strictly pessimistic: up to 6e-7 below it.
        let slack = if q == 1.0 { 1e-6 * theirs } else { 0.0 };
        assert!(found.lower <= theirs + slack, "{run}: {found:?}");
        assert!(found.upper >= optimistic, "{run}: {found:?}");
        assert!(found.upper <= theirs * 1.001 + 0.001, "{run}: {found:?}");
        if q == 1.0 {
            let truth = gaussian::epsilon(z / (steps as f64).sqrt(), target).unwrap();
            assert!(found.upper >= truth * (1.0 - 1e-9) && found.lower <= truth, "{run}: {found:?} {truth}");
        }
        let width = (found.upper - found.lower) / found.lower.max(1.0);
        widest = widest.max(width);
        wide += usize::from(width > 1e-3);
    }
    println!("widest bracket {widest:e}, {wide} wider than asked for");
    assert_eq!(wide, 0);
}

/// ε̂ satisfies δ(ε̂) ≤ δ, and δ(ε̂·(1 − 1e-10) − 1e-12/z) > δ unless it is zero.
#[test]
fn the_gaussian_formula_agrees_with_mpmath() {
    let goldens = goldens("gaussian");
    assert!(goldens.len() >= 200);
    for golden in &goldens {
        let (z, delta, truth) = (number(golden, "z"), number(golden, "delta"), number(golden, "epsilon"));
        let found = gaussian::epsilon(z, delta).unwrap();
        // The golden's own rounding to f64 is half a unit.
        assert!(found >= truth * (1.0 - f64::EPSILON), "{golden}: {found}");
        assert!(found == 0.0 || found * (1.0 - 1e-10) - 1e-12 / z < truth, "{golden}: {found}");
    }
}

#[test]
fn zcdp_implies_what_mpmath_says() {
    for golden in goldens("zcdp") {
        let (rho, delta, truth) =
            (number(&golden, "rho"), number(&golden, "delta"), number(&golden, "epsilon"));
        let found = zcdp::epsilon(rho, delta).unwrap();
        assert!(
            found >= truth * (1.0 - f64::EPSILON) && found <= truth * (1.0 + 1e-12) + 1e-12,
            "{golden}: {found}"
        );
    }
}

/// Independent noise in every step is DP-GD where everybody takes part in every step. As a mechanism it is one Gaussian of
/// sensitivity √n, and the same noise gives the same ε.
#[test]
fn a_mechanism_is_one_gaussian_and_agrees_with_composition() {
    let (steps, z) = (9, 0.5);
    let schema = Schema::every_step(steps).unwrap();
    let identity = Structured::formula(families::IDENTITY, 1);
    let workload = Workload::prefix_sum(steps);
    let mechanism = make::structured(identity, &schema, &workload, 1e-3, &|_| true).unwrap();
    assert_eq!(Run::Matrix.event(z), Event::gaussian(z));
    let sensitivity = verify::mechanism(&mechanism).unwrap().sensitivity.upper;
    let at = |event: &Event| epsilon(event, 1e-6, &Params::default()).unwrap().upper;
    let (whole, composed) = (at(&Run::Matrix.event(z)), at(&Event::dp_gd(z * sensitivity, steps as u64)));
    assert!((whole / composed - 1.0).abs() < 1e-7, "{whole} {composed}");
}
