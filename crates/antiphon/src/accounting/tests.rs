use super::*;

#[test]
fn gaussians_compose_to_a_gaussian() {
    let found = epsilon(&Event::dp_gd(10.0, 100), 1e-6, &Params::default()).unwrap();
    let truth = gaussian::epsilon(1.0, 1e-6).unwrap();
    assert!((found.upper / truth - 1.0).abs() < 1e-9 && found.lower <= truth);
    let half = Adjacency::ReplaceOne.apply(&Event::gaussian(2.0)).unwrap();
    assert_eq!(half, Event::gaussian(1.0));
    let error = Adjacency::ReplaceOne.apply(&Event::dp_sgd(0.1, 1.0, 5)).unwrap_err();
    assert!(error.to_string().contains("replace-one is not accounted for with Poisson sampling"));
}

/// The losses of a Gaussian that is sampled with probability almost one, added up, against the formula.
#[test]
fn brackets_hold_the_truth_where_it_is_known() {
    let rate = 1.0 - 1e-13;
    for (z, steps) in [(1.0, 1u64), (10.0, 100), (0.5, 1), (0.05, 1), (30.0, 2000), (200.0, 10_000)] {
        for target in [1e-3, 1e-6, 1e-10, 1e-30, 1e-200] {
            let truth = gaussian::epsilon(z / (steps as f64).sqrt(), target).unwrap();
            let found = epsilon(&Event::dp_sgd(rate, z, steps), target, &Params::default()).unwrap();
            assert!(found.upper >= truth * (1.0 - 1e-9), "{z} {steps} {target:e}: {found:?} {truth}");
            assert!(found.lower <= truth, "{z} {steps} {target:e}: {found:?} {truth}");
            assert!(
                found.upper - found.lower <= 1.01e-3 * truth.max(1.0),
                "{z} {steps} {target:e}: {found:?} {truth}"
            );
            if truth > 0.0 {
                let again = delta(&Event::dp_sgd(rate, z, steps), truth, &Params::default()).unwrap();
                assert!(
                    again.lower <= target && target <= again.upper * (1.0 + 1e-6),
                    "{z} {steps}: {again:?} {target:e}"
                );
            }
        }
    }
}

/// Mixed compositions: two halves are the whole, and order does not matter.
#[test]
fn composition_is_associative() {
    let repeated = |event: Event, count| event::Repeated { event, count };
    let sampled = Event::PoissonSampled { sampling_rate: 0.02, noise_multiplier: 0.8 };
    let whole = Event::dp_sgd(0.02, 0.8, 300);
    let halves = Event::Composed {
        events: vec![repeated(sampled.clone(), 100), repeated(Event::dp_sgd(0.02, 0.8, 100), 2)],
    };
    let at = |event: &Event| epsilon(event, 1e-6, &Params::default()).unwrap();
    assert_eq!(at(&whole), at(&halves));
    // A Gaussian more costs more, but no more than both alone.
    let more =
        Event::Composed { events: vec![repeated(whole.clone(), 1), repeated(Event::gaussian(3.0), 1)] };
    let alone = epsilon(&Event::gaussian(3.0), 5e-7, &Params::default()).unwrap().upper
        + epsilon(&whole, 5e-7, &Params::default()).unwrap().upper;
    assert!(at(&more).lower > at(&whole).upper && at(&more).upper < alone);
    let text = serde_json::to_string(&more).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), more);
    assert!(text.starts_with(r#"{"kind":"composed","events":[{"event":{"kind":"composed""#), "{text}");
}

#[test]
fn calibration_reaches_its_target_from_the_safe_side() {
    use calibrate::{Run, noise_multiplier};
    let params = Params::default();
    for run in [
        Run::Matrix,
        Run::FullBatch { steps: 2052 },
        Run::Sampled { sampling_rate: 0.01, steps: 1000 },
        Run::Sampled { sampling_rate: 0.3, steps: 7 },
    ] {
        for target in [0.5, 4.0, 20.0] {
            let z = noise_multiplier(run, target, 1e-6, &params).unwrap();
            let found = epsilon(&run.event(z), 1e-6, &params).unwrap().upper;
            assert!(found <= target && found >= target * (1.0 - 2e-3), "{run:?} {target}: {z} {found}");
        }
    }
}

#[test]
fn an_event_says_what_it_is() {
    let sampled = Event::dp_sgd(0.01, 1.5, 2052);
    assert_eq!(sampled.as_gaussian().unwrap(), None);
    assert_eq!(
        sampled.describe(),
        "2052 times a Gaussian mechanism of noise multiplier 1.5 on a Poisson sample of rate 0.01"
    );
    // Four Gaussians are one with half the noise; a sample of everything is no sample.
    for event in [Event::dp_gd(3.0, 4), Event::dp_sgd(1.0, 3.0, 4)] {
        let z = event.as_gaussian().unwrap().unwrap();
        assert!(z <= 1.5 && z > 1.5 * (1.0 - 1e-14), "{z}");
    }
    let repeated = |event, count| event::Repeated { event, count };
    let both = Event::Composed { events: vec![repeated(Event::gaussian(0.5), 1), repeated(sampled, 2)] };
    assert!(
        both.describe().starts_with("a Gaussian mechanism of noise multiplier 0.5, and 2 times (2052 times")
    );
    assert!(Event::gaussian(-1.0).as_gaussian().is_err());
}

#[test]
fn bad_events_are_refused_by_name() {
    let at = |event: &Event, delta| epsilon(event, delta, &Params::default()).unwrap_err().to_string();
    assert_eq!(at(&Event::dp_sgd(0.0, 1.0, 10), 1e-6), "sampling_rate must be in (0, 1], got 0");
    assert_eq!(at(&Event::dp_sgd(0.1, 0.0, 10), 1e-6), "noise_multiplier must be in [1e-6, 1e12], got 0");
    assert_eq!(
        at(&Event::dp_sgd(0.1, 1.0, 0), 1e-6),
        "the count of an event must be in 1..=1000000000, got 0"
    );
    assert_eq!(at(&Event::gaussian(1.0), 0.0), "delta must be in (0, 1), got 0");
    assert!(
        at(&Event::dp_sgd(0.1, 1.0, 2), 1e-290).starts_with("delta must be in [1e-250, 1) with sampling")
    );
    assert!(at(&Event::Composed { events: vec![] }, 1e-6).contains("at least one event"));
    assert!(serde_json::from_str::<Event>(r#"{"kind":"gaussian","noise_multiplier":1,"x":2}"#).is_err());
}
