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
            let found = noise_multiplier(run, target, 1e-6, Adjacency::ZeroOut, &params).unwrap();
            let narrow = Params { width: 1e-3 * target.min(1.0), ..params };
            assert_eq!(
                epsilon(&run.event(found.noise_multiplier.value()), 1e-6, &narrow).unwrap(),
                found.epsilon
            );
            assert!(found.epsilon.upper <= target, "{run:?} {target}: {found:?}");
            assert!(found.epsilon.upper >= target * (1.0 - 1e-5), "{run:?} {target}: {found:?}");
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
    let five = vec![repeated(Event::gaussian(0.5), 1); 5];
    assert!(Event::Composed { events: five }.describe().ends_with("0.5, and 1 more event"));
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

/// Each of these was once refused, wrong or without end.
mod regressions {
    use super::*;
    use calibrate::{Run, noise_multiplier};

    fn repeated(event: Event, count: u64) -> event::Repeated {
        event::Repeated { event, count }
    }

    fn beside(one: Event, other: Event) -> Event {
        Event::Composed { events: vec![repeated(one, 1), repeated(other, 1)] }
    }

    /// A Gaussian with little noise beside a sampled event that changes next to nothing.
    #[test]
    fn a_gaussian_beside_a_sampled_event() {
        let params = Params::default();
        for z in [0.05, 0.3, 0.9, 1.0, 1.2, 5.0] {
            for target in [1e-3, 1e-6, 1e-20, 1e-200] {
                let truth = gaussian::epsilon(z, target).unwrap();
                let found =
                    epsilon(&beside(Event::dp_sgd(1e-9, 50.0, 1), Event::gaussian(z)), target, &params)
                        .unwrap();
                assert!(found.upper >= truth * (1.0 - 1e-9), "{z} {target:e}: {found:?} {truth}");
                assert!(
                    found.upper - found.lower <= 1.01e-3 * truth.max(1.0),
                    "{z} {target:e}: {found:?} {truth}"
                );
                assert!(found.lower <= truth * (1.0 + 1e-6) + 1e-9, "{z} {target:e}: {found:?} {truth}");
            }
        }
        // Almost always sampled, and two of them: also where losses are far below zero.
        let both = beside(Event::dp_sgd(1.0 - 1e-15, 0.3, 1), Event::dp_sgd(1.0 - 1e-15, 0.4, 1));
        let truth = gaussian::epsilon(0.24, 1e-6).unwrap();
        let found = epsilon(&both, 1e-6, &params).unwrap();
        assert!(found.upper >= truth * (1.0 - 1e-9) && found.lower <= truth, "{found:?} {truth}");
        assert!(found.upper <= truth * 1.001);
    }

    /// One step in closed form: δ = P(L > ε) − e^ε·Q(L > ε), with the place where the loss is ε.
    #[test]
    fn delta_of_one_step_far_out() {
        let normal = |x: f64| 0.5 * libm::erfc(x * std::f64::consts::FRAC_1_SQRT_2); // Φ(−x)
        for (q, z) in [(0.01, 1.0), (0.3, 0.5), (0.9, 2.0)] {
            for e in [0.01f64, 0.1, 1.0, 3.0] {
                let at = |e: f64| {
                    let x = (e.exp_m1() / q).ln_1p() * z + 0.5 / z;
                    (1.0 - q) * normal(x) + q * normal(x - 1.0 / z) - e.exp() * normal(x)
                };
                let removing = at(e);
                let found = delta(&Event::dp_sgd(q, z, 1), e, &Params::default()).unwrap();
                assert!(
                    found.upper >= removing * (1.0 - 1e-9) && found.upper < 1.0,
                    "{q} {z} {e}: {found:?} {removing:e}"
                );
                assert!(
                    found.upper <= at(e - 1e-3) && found.lower <= removing * (1.0 + 1e-9),
                    "{q} {z} {e}: {found:?} {removing:e}"
                );
            }
        }
        // Beyond what numbers hold, and where one side has no such losses.
        for e in [9.0, 100.0, 1e3, 1e4] {
            let found = delta(&Event::dp_sgd(0.01, 1.0, 1000), e, &Params::default()).unwrap();
            assert!(found.upper < 1e-20 && found.lower <= found.upper, "{e}: {found:?}");
        }
    }

    #[test]
    fn nearly_no_privacy_loss_is_nearly_none() {
        for event in [Event::dp_sgd(0.5, 1e12, 1_000_000_000), Event::dp_sgd(1e-6, 1e5, 1_000_000_000)] {
            let found = epsilon(&event, 1e-6, &Params::default()).unwrap();
            assert!(found.upper <= 1e-3, "{event:?} {found:?}");
        }
    }

    #[test]
    fn calibration_at_the_edges() {
        let params = Params::default();
        for (run, target, delta) in [
            (Run::Sampled { sampling_rate: 0.999_999, steps: 1 }, 1.0, 1e-6),
            (Run::Sampled { sampling_rate: 1.0 - 1e-9, steps: 1000 }, 1.0, 1e-6),
            (Run::Sampled { sampling_rate: 0.01, steps: 1000 }, 1e-10, 1e-9),
        ] {
            let found = noise_multiplier(run, target, delta, Adjacency::ZeroOut, &params).unwrap();
            assert!(found.epsilon.upper <= target, "{run:?}: {found:?}");
        }
        // The noise for small targets, from a Laplace transform: 96.9 and 770.5.
        let run = Run::Sampled { sampling_rate: 0.01, steps: 1000 };
        for (target, truth) in [(1e-2, 96.9), (1e-3, 770.5)] {
            let z = noise_multiplier(run, target, 1e-6, Adjacency::ZeroOut, &params)
                .unwrap()
                .noise_multiplier
                .value();
            assert!(z > truth * 0.994 && z < truth * 1.02, "{target}: {z}");
        }
        let once = Run::Sampled { sampling_rate: 1e-3, steps: 1 };
        let error = noise_multiplier(once, 1.0, 1e-2, Adjacency::ZeroOut, &params).unwrap_err();
        assert!(error.to_string().starts_with("delta must be below 1.000000e-3, the probability"), "{error}");
    }

    #[test]
    fn lower_ends_of_gaussians_are_not_above_the_truth() {
        // mpmath: just below δ(0), where ε has no digits.
        for (target, truth) in [(0.38292492254802, 2.00563e-14), (0.3829249221651011, 1.2410973e-9)] {
            assert!(epsilon(&Event::gaussian(1.0), target, &Params::default()).unwrap().lower <= truth);
        }
        let found = delta(&Event::dp_gd(1e-6, 1_000_000_000), 5e20, &Params::default()).unwrap();
        assert!(found.lower <= 0.50000057 && found.upper >= 0.50000057, "{found:?}");
        // The minimum of the formula with 50 digits, at a δ next to one.
        let found = zcdp::epsilon(35.0, 1.0 - 1e-14).unwrap();
        assert!((found - 2.76301).abs() < 1e-5, "{found}");
    }

    #[test]
    fn too_much_is_refused() {
        let refused = |event: &Event| epsilon(event, 1e-6, &Params::default()).unwrap_err().to_string();
        let many = Event::Composed {
            events: (0..50).map(|_| repeated(Event::dp_sgd(0.1, 1.0, 1_000_000_000), 1)).collect(),
        };
        assert!(refused(&many).starts_with("the count of an event must be in 1..=1000000000"));
        let kinds = (1..300).map(|i| repeated(Event::dp_sgd(i as f64 * 1e-3, 1.0, 1), 1)).collect();
        assert!(refused(&Event::Composed { events: kinds }).contains("at most 256 that differ"));
        let deep = (0..1000)
            .fold(Event::gaussian(1.0), |event, _| Event::Composed { events: vec![repeated(event, 1)] });
        assert!(refused(&deep).contains("nested at most 100 deep"));
    }
}
