//! What `make` makes, `verify` accepts: every family, workload and number of stamps; and nothing that claims more.

mod common;

use antiphon::families;
use antiphon::families::comb::Comb;
use antiphon::families::comb::filter::Filter;
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

/// Numbers in (−1, 1), by a seed.
fn numbers(mut seed: u64) -> impl FnMut() -> f64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A comb with these numbers of steps, steps per epoch and buffers, and two knots where there is room.
fn comb(steps: usize, period: usize, buffers: usize, seed: u64) -> Comb {
    let mut number = numbers(seed);
    let k = steps.div_ceil(period);
    let mut below = 1.0;
    let mut next = |number: &mut dyn FnMut() -> f64| {
        below *= 0.8 + 0.19 * number();
        below
    };
    let pairs: Vec<(f64, f64)> = (0..buffers).map(|_| (next(&mut number), next(&mut number))).collect();
    let (poles, zeros): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let knots: Vec<usize> = if period > 2 { vec![0, period - 1] } else { vec![0] };
    let packed = (0..k).flat_map(|row| (0..=row).map(move |column| row == column));
    let mix = knots.iter().flat_map(|_| packed.clone()).collect::<Vec<_>>();
    let mix = mix.into_iter().map(|diagonal| if diagonal { 1.0 + 0.3 * number() } else { 0.3 * number() });
    let mix = mix.collect();
    let mut gains = |count: usize| (0..count).map(|_| 1.0 + 0.5 * number()).collect::<Vec<_>>();
    Comb {
        steps,
        period,
        filter: Filter::new(&poles, &zeros).unwrap(),
        mix,
        input_gain: gains(knots.len() * k),
        output_gain: gains(knots.len() * k),
        residue_gain: gains(period),
        gain_knots: knots.clone(),
        mix_knots: knots,
    }
}

/// Whatever the numbers of a comb are and whoever takes part: the claim holds for the rule of the family and for the matrices.
#[test]
fn combs_of_any_numbers_are_accepted_under_any_schema() {
    let mut seed = 0;
    for (n, b) in [(12, 4), (13, 5), (9, 9), (7, 1), (20, 3)] {
        for schema in [
            Schema::fixed_order(n, b),
            Schema::fixed_order(n, 2),
            Schema::fixed_order_at_most(n, b, 1),
            Schema::min_separation(n, b, n.div_ceil(b)),
            Schema::reshuffled(1, n),
        ] {
            let schema = schema.unwrap();
            for (buffers, workload) in [(1, Workload::prefix_sum(n)), (4, workload(2, n))] {
                seed += 1;
                let comb = comb(n, b, buffers, seed);
                let described = Structured::new(families::COMB_BLT, 1, comb.to_parameters());
                let made = make::structured(described, &schema, &workload, 1e-2, &|_| true).unwrap();
                let report = accept(&made);
                assert!((made.claims().loss / report.loss - 1.0).abs() < 1e-6, "{n} {b} {schema:?}");
                assert_eq!(made.noise().kind(), "structured");
            }
        }
    }
}

/// Numbers whose matrices cannot be inverted accurately: what the matrices leave open is claimed, not only what the fast form finds.
#[test]
fn combs_that_are_hard_to_invert_claim_what_the_matrices_allow() {
    let mut hard = comb(12, 3, 2, 77);
    let k = 4;
    let diagonals: Vec<usize> = (1..=k).map(|row| row * (row + 1) / 2 - 1).collect();
    for (i, x) in hard.mix.iter_mut().enumerate() {
        *x *= if diagonals.contains(&(i % 10)) { 1.0 } else { 300.0 };
    }
    let (schema, workload) = (Schema::epochs(4, 3).unwrap(), Workload::prefix_sum(12));
    let described = Structured::new(families::COMB_BLT, 1, hard.to_parameters());
    let fast = sensitivity_of(&described.factorization(12).unwrap(), &schema).unwrap().upper;
    let made = make::structured(described, &schema, &workload, 1e-2, &|_| true).unwrap();
    let report = accept(&made);
    assert!(report.sensitivity.upper > fast * (1.0 + 1.1e-8), "{:?} {fast}", report.sensitivity);
}

#[test]
fn what_a_family_cannot_have_is_refused() {
    let (schema, workload) = (Schema::epochs(3, 5).unwrap(), Workload::prefix_sum(15));
    let plain = Run::new(&schema, &workload, &|_| true);
    assert_eq!((plain.buffers, plain.over_optimum), (None, 0.015));
    let refused = |family, run: Run<'_>| make::make(family, &run).unwrap_err().to_string();
    for family in families::candidates() {
        let buffers = refused(family, Run { buffers: Some(17), ..plain });
        match family.has_buffers() {
            true => assert_eq!(buffers, "buffers must be in 1..=16, got 17"),
            false => {
                let expected = format!("buffers must be left out for {family}, which has no buffers, got 17");
                assert_eq!(buffers, expected);
            }
        }
        for over_optimum in [0.0, -1.0, f64::NAN, 1.5] {
            let message = refused(family, Run { over_optimum, ..plain });
            assert_eq!(message, format!("over_optimum must be in (0, 1], got {over_optimum}"));
        }
        if family.has_buffers() {
            let message = refused(family, Run { stamps: 2, ..plain });
            assert!(message.starts_with(&format!("stamps must be 1 for {family}")), "{message}");
        }
        // What is a candidate for a schema is not refused for it.
        assert!(!family.suits(&schema) || family.refuses(&schema).is_none(), "{family}");
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
