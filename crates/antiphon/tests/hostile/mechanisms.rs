//! Mechanism files that were changed: read or refused, written again, and verified only where every claim is true.

use super::forger::Forgery;
use super::testing::{Seeded, mutate_bytes};
use super::{bodies, genuine, truth};
use antiphon::file;
use antiphon::mechanism::Mechanism;
use antiphon::verify;

/// The oracle goes through all patterns.
const LARGEST: usize = 12;

#[derive(Debug, Default)]
struct Counts {
    mutations: usize,
    read: usize,
    examined: usize,
    verified: usize,
    /// Of these, such as are none of the genuine ones.
    verified_changed: usize,
    /// Of these, such as the oracle cannot say anything about.
    undecided: usize,
}

/// What is read can be written, and what verifies is true.
fn judge(bytes: &[u8], genuine: &[Mechanism], counts: &mut Counts) {
    counts.mutations += 1;
    let Some(mechanism) = bodies::mechanism(bytes) else { return };
    counts.read += 1;
    if mechanism.steps() > LARGEST {
        return;
    }
    let Ok(report) = verify::mechanism(&mechanism) else { return };
    counts.examined += 1;
    if report.ok() {
        counts.verified += 1;
        counts.verified_changed += usize::from(!genuine.contains(&mechanism));
        counts.undecided += usize::from(truth::check(&mechanism).is_none());
    }
}

fn mutations(rounds: usize, seed: u64) -> Counts {
    let genuine = genuine::all();
    let files: Vec<Vec<u8>> = genuine.iter().map(|one| file::to_bytes(one).unwrap()).collect();
    let (seeded, mut counts) = (&mut Seeded(seed), Counts::default());
    for round in 0..rounds {
        let bytes = &files[seeded.below(files.len())];
        let other = Forgery::of(&files[seeded.below(files.len())]).unwrap();
        let changed = if round % 3 == 0 {
            let mut bytes = bytes.clone();
            mutate_bytes(&mut bytes, seeded);
            bytes
        } else {
            let mut forgery = Forgery::of(bytes).unwrap();
            (0..=seeded.below(3)).for_each(|_| forgery.mutate(&other, seeded));
            forgery.bytes()
        };
        let fitting = seeded.chance(0.5).then(|| Forgery::of(&changed)).flatten().map(Forgery::fitting);
        judge(&fitting.unwrap_or(changed), &genuine, &mut counts);
    }
    counts
}

#[test]
fn genuine_files_are_what_the_oracle_says() {
    for mechanism in genuine::all() {
        let report = verify::mechanism(&mechanism).unwrap();
        assert!(report.ok(), "{:?}", report.checks);
        let found = truth::check(&mechanism).unwrap();
        // The oracle is no weaker than what is claimed, but for bounds that are not exact.
        let slack = if mechanism.schema().is_listed() { 1.0 - 1e-6 } else { 0.8 };
        assert!(found.sensitivity >= mechanism.claims().sensitivity * slack, "{mechanism:?}");
        let loss = (mechanism.claims().sensitivity * found.error).powi(2);
        assert!(loss >= mechanism.claims().loss * (1.0 - 1e-6), "{mechanism:?}");
        // The forger's id and checksum are those of the format: nothing changed, everything fits.
        let bytes = file::to_bytes(&mechanism).unwrap();
        assert_eq!(file::from_bytes(&Forgery::of(&bytes).unwrap().fitting()).unwrap(), mechanism);
    }
}

/// Better claims than the truth, in files that are genuine otherwise.
#[test]
fn better_claims_never_verify() {
    for mechanism in genuine::all() {
        let found = truth::check(&mechanism).unwrap();
        let report = verify::mechanism(&mechanism).unwrap();
        let forged = |name: &str, value: f64| -> Mechanism {
            let mut forgery = Forgery::of(&file::to_bytes(&mechanism).unwrap()).unwrap();
            forgery.set(name, format!("{value:?}"));
            file::from_bytes(&forgery.fitting()).unwrap()
        };
        let fails = |mechanism: Mechanism, check: &str| {
            let report = verify::mechanism(&mechanism).unwrap();
            let check = report.checks.iter().find(|found| found.name == check).unwrap();
            assert!(!check.passed && !report.ok(), "{check:?}");
            assert!(verify::verify(mechanism).is_err());
        };
        for less in [1e-8, 1e-5, 1e-2, 0.5, 0.999] {
            // No more than contributions reach, and less than what was derived.
            fails(forged("sensitivity", found.sensitivity * (1.0 - less)), "sensitivity");
            fails(forged("sensitivity", report.sensitivity.upper * (1.0 - less)), "sensitivity");
        }
        for less in [3e-6, 1e-4, 1e-2] {
            let parts = mechanism.clone().into_parts();
            let claims = antiphon::mechanism::Claims { loss: report.loss * (1.0 - less), ..parts.claims };
            // A lower bound must not be above the loss in a file: here it is of no interest.
            let claims = antiphon::mechanism::Claims { lower_bound: None, ..claims };
            fails(
                antiphon::mechanism::Parts { claims, certificate: parts.certificate.clone(), ..parts }.into(),
                "loss",
            );
        }
        let Some(bound) = report.lower_bound else { continue };
        for more in [3e-6, 1e-4, 1e-2] {
            let parts = mechanism.clone().into_parts();
            let claims =
                antiphon::mechanism::Claims { lower_bound: Some(bound * (1.0 + more)), ..parts.claims };
            fails(antiphon::mechanism::Parts { claims, ..parts }.into(), "lower_bound");
        }
    }
}

#[test]
fn mutations_verify_only_where_they_are_true() {
    let counts = mutations(100_000, 1);
    println!("{counts:?}");
    // Most of what fits is read; some of it is true: larger claims, smaller matrices, other certificates.
    assert!(counts.read > 10_000 && counts.examined > 5_000 && counts.verified_changed > 1_000, "{counts:?}");
    assert!(counts.undecided * 10 < counts.verified, "{counts:?}");
}

/// The same for longer: `cargo test -p antiphon --test hostile many -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn many_mutations_verify_only_where_they_are_true() {
    for seed in 2..12 {
        println!("{:?}", mutations(100_000, seed));
    }
}
