//! What `make` makes, `verify` accepts: every family, workload and number of stamps; and nothing that claims more.

mod common;

use antiphon::families;
use antiphon::make;
use antiphon::mechanism::family::Run;
use antiphon::mechanism::{
    Certificate, Claims, Family, Mechanism, Noise, Parts, Structured, Which, sensitivity_of,
};
use antiphon::schema::Schema;
use antiphon::sensitivity::sensitivity_of_encoder;
use antiphon::verify::{self, Report};
use antiphon::workload::Workload;
use common::workload;
use proptest::prelude::*;

fn single_epoch(
    stamps: usize,
    schema: &Schema,
    workload: &Workload,
    gap: f64,
) -> antiphon::Result<Mechanism> {
    make::make(families::SINGLE_EPOCH, &Run { stamps, gap, ..Run::new(schema, workload, &|_| true) })
}

fn structured(family: Family, stamps: usize, schema: &Schema, workload: &Workload) -> Mechanism {
    make::structured(Structured::formula(family, stamps), schema, workload, 1e-2, &|_| true).unwrap()
}

fn passed(report: &Report, name: &str) -> bool {
    report.checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name}")).passed
}

fn accept(mechanism: &Mechanism) -> Report {
    let report = verify::mechanism(mechanism).unwrap();
    assert!(report.ok(), "{:?} {:?}", mechanism.noise().kind(), report.checks);
    report
}

fn refuse(mechanism: &Mechanism, change: impl FnOnce(&mut Parts)) -> Report {
    let mut changed = mechanism.clone().into_parts();
    change(&mut changed);
    let report = verify::mechanism(&changed.into()).unwrap();
    assert!(!report.ok(), "{:?}", report.checks);
    report
}

#[test]
fn every_family_workload_and_number_of_stamps_is_accepted() {
    let schema = Schema::fixed_order(45, 9).unwrap();
    for kind in 0..4 {
        let workload = workload(kind, 45);
        for stamps in [1, 2, 4, 5, 45] {
            for family in families::formulas() {
                let made = structured(family, stamps, &schema, &workload);
                let report = accept(&made);
                let (claimed, derived) = (made.claims().sensitivity, report.sensitivity.upper);
                assert!(claimed < derived * (1.0 + 2.1e-8), "{family:?}: {claimed} {derived}");
                assert!((made.claims().loss / report.loss - 1.0).abs() < 1e-7, "{family:?} {stamps}");
            }
            let made = single_epoch(stamps, &schema, &workload, 1e-2).unwrap();
            accept(&made);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The claim leaves room for what the checker derives in its own way; most of the allowance stays unused.
    #[test]
    fn the_allowance_is_enough(
        family in prop::sample::select(families::formulas().collect::<Vec<_>>()),
        n in 1usize..90, b in 1usize..30, k in 1usize..90, stamps in 1usize..6,
    ) {
        let b = b.min(n);
        let schema = Schema::fixed_order_at_most(n, b, k.min(n.div_ceil(b))).unwrap();
        let structured = Structured::formula(family, stamps.min(n));
        let fast = sensitivity_of(&structured.factorization(n).unwrap(), &schema).unwrap();
        let slow = verify::definitions::explicit(&structured, n).unwrap();
        let slow = sensitivity_of_encoder(&slow.encoder, &schema).unwrap();
        prop_assert!(slow.upper <= fast.upper * (1.0 + 2e-9), "{slow:?} {fast:?}");
        prop_assert!(slow.lower <= fast.upper && fast.lower <= slow.upper, "{slow:?} {fast:?}");
    }
}

#[test]
fn lists_of_patterns_are_accepted() {
    let patterns = vec![vec![0, 3, 9, 11], vec![1, 2, 4, 5], vec![0, 6, 7, 8, 10]];
    let schema = Schema::patterns(12, patterns).unwrap();
    for family in families::formulas() {
        accept(&structured(family, 2, &schema, &Workload::prefix_sum(12)));
    }
}

/// Both ways of the checker, on either side of its limit.
#[test]
fn long_runs_are_derived_from_the_formulas() {
    for (b, family, way) in [
        (500, families::FFT_OPTIMAL, "from the explicit matrices"),
        (501, families::FFT, "from the structured formulas"),
    ] {
        let schema = Schema::epochs(4, b).unwrap();
        let made = structured(family, 3, &schema, &workload(2, 4 * b));
        let report = accept(&made);
        assert!(report.checks[0].detail.ends_with(way), "{}", report.checks[0].detail);
        println!("{}: loss {:+.1e}", report.checks[0].detail, report.loss / made.claims().loss - 1.0);
    }
}

#[test]
fn false_claims_are_rejected() {
    let schema = Schema::epochs(4, 8).unwrap();
    for family in families::formulas() {
        let made = structured(family, 3, &schema, &workload(1, 32));
        let report = refuse(&made, |m| m.claims.sensitivity *= 1.0 - 3e-8);
        assert!(!passed(&report, "sensitivity"));
        let report = refuse(&made, |m| m.claims.loss *= 1.0 - 3e-6);
        assert!(!passed(&report, "loss"));
        let report = refuse(&made, |m| m.claims.lower_bound = report.lower_bound.map(|bound| 1.001 * bound));
        assert!(!passed(&report, "lower_bound"));
        // Another number of stamps has another sensitivity or another loss; for the identity it is the same mechanism.
        if family != families::IDENTITY {
            for stamps in [1, 2, 4, 32] {
                refuse(&made, |m| m.noise = Noise::Structured(Structured::formula(family, stamps)));
            }
        }
        for stamps in [0, 33, usize::MAX] {
            let noise = Noise::Structured(Structured::formula(family, stamps));
            let message = verify::mechanism(&Parts { noise, ..made.clone().into_parts() }.into())
                .unwrap_err()
                .to_string();
            assert_eq!(message, format!("stamps must be in 1..=32, got {stamps}"));
        }
        // A better decoder under a worse one's claims is no lie.
        let better = |other: Family| {
            [(families::TREE_ONLINE, families::TREE_OPTIMAL), (families::FFT, families::FFT_OPTIMAL)]
                .contains(&(family, other))
        };
        for other in families::formulas().filter(|other| *other != family && !better(*other)) {
            refuse(&made, |m| m.noise = Noise::Structured(Structured::formula(other, 3)));
        }
    }
}

#[test]
fn the_single_epoch_optimum_is_repeated() {
    let workload = workload(1, 17);
    let made = single_epoch(3, &Schema::single(17).unwrap(), &workload, 1e-3).unwrap();
    let Noise::Structured(stored) = made.noise() else { panic!("a name and its matrices") };
    let stamped = stored.factorization(17).unwrap();
    assert_eq!(stamped.parts().map(|part| part.steps()).collect::<Vec<_>>(), [6, 6, 5]);
    let whole = made.matrix(Which::Cinv).unwrap();
    let long = families::single_epoch::optimum(6, &workload, 1e-3, &|_| true).unwrap();
    let short = families::single_epoch::optimum(5, &workload, 1e-3, &|_| true).unwrap();
    for (first, part) in [(0, &long), (6, &long), (12, &short)] {
        for i in 0..17 {
            for j in first..first + part.steps() {
                let inside = (first..first + part.steps()).contains(&i);
                let expected = if inside { part.matrix()[(i - first, j - first)] } else { 0.0 };
                assert_eq!(whole[(i, j)], expected, "({i}, {j})");
            }
        }
    }
    // Under the schema that it was made for it is the optimum.
    let made = single_epoch(1, &Schema::single(17).unwrap(), &workload, 1e-3).unwrap();
    assert!(made.claims().gap() < 2.1e-3);
    accept(&made);
}

#[test]
fn what_cannot_be_made_is_refused_with_a_reason() {
    let prefix = Workload::prefix_sum(12);
    let made = |stamps, schema: &Schema, workload: &Workload, gap| {
        let tree = Structured::formula(families::TREE_ONLINE, stamps);
        let one = make::structured(tree, schema, workload, gap, &|_| true).unwrap_err().to_string();
        let two = single_epoch(stamps, schema, workload, gap).unwrap_err().to_string();
        assert_eq!(one, two);
        one
    };
    let epochs = Schema::epochs(3, 4).unwrap();
    assert_eq!(made(0, &epochs, &prefix, 1e-3), "stamps must be in 1..=12, got 0");
    assert_eq!(made(13, &epochs, &prefix, 1e-3), "stamps must be in 1..=12, got 13");
    assert_eq!(made(1, &epochs, &prefix, 1e-7), "gap must be in [1e-6, 1], got 0.0000001");
    assert!(
        made(1, &epochs, &Workload::prefix_sum(11), 1e-3).starts_with("the workload must be for 12 steps")
    );
    let long = Schema::fixed_order_at_most(12_001, 6_000, 2).unwrap();
    let tree = Structured::formula(families::TREE_ONLINE, 1);
    let sum = Workload::prefix_sum(12_001);
    let message = make::structured(tree, &long, &sum, 1e-3, &|_| true).unwrap_err().to_string();
    assert!(message.starts_with("12001 steps are too many for a certificate of this kind"), "{message}");
    let message = single_epoch(1, &long, &sum, 1e-3).unwrap_err().to_string();
    assert!(message.starts_with("12001 steps are too many for a single-epoch mechanism"), "{message}");
}

/// A small file may name a huge matrix; it must not be formed.
#[test]
fn a_certificate_that_would_need_a_huge_matrix_is_refused() {
    let schema = Schema::fixed_order_at_most(30_000, 10_000, 2).unwrap();
    let patterns = schema.listed().unwrap().len();
    let mechanism = Parts {
        workload: Workload::prefix_sum(30_000),
        noise: Noise::Structured(Structured::formula(families::IDENTITY, 1)),
        certificate: Some(Certificate::new(vec![vec![1.0, 0.0, 0.0, 1.0]; patterns])),
        claims: Claims { loss: 2.0, lower_bound: Some(1.0), sensitivity: 2.0 },
        schema,
    };
    let error = verify::mechanism(&mechanism.into()).unwrap_err().to_string();
    assert!(error.contains("too large for singular values (30000 steps, 40000 columns)"), "{error}");
}
