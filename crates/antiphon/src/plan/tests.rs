use super::*;

fn candidates(schema: &Schema) -> usize {
    families::candidates().filter(|family| family.suits(schema)).count()
}

fn compared(schema: &Schema, workload: &Workload) -> Comparison {
    compare(schema, workload, &CompareParams::default(), &|_| true).unwrap()
}

#[test]
fn all_mechanisms_are_there_and_none_beats_the_bound() {
    let schema = Schema::epochs(4, 12).unwrap();
    for workload in [Workload::prefix_sum(48), Workload::training(48, 0.9, None).unwrap()] {
        let comparison = compared(&schema, &workload);
        assert_eq!(comparison.candidates.len(), candidates(&schema));
        assert_eq!(comparison.candidates[0].family, families::OPTIMAL);
        for candidate in &comparison.candidates {
            assert!(candidate.over_optimum.unwrap() >= 0.0, "{candidate:?}");
            assert_eq!(candidate.sensitivity_kind, Kind::Exact);
            assert!((candidate.variances.iter().sum::<f64>() / candidate.loss - 1.0).abs() < 1e-12);
        }
        assert!(comparison.candidates[0].over_optimum.unwrap() <= 1e-3);
    }
}

#[test]
fn the_best_stamps_are_the_best_of_those_tried() {
    let schema = Schema::epochs(6, 8).unwrap();
    let workload = Workload::prefix_sum(48);
    let best = compared(&schema, &workload);
    for stamps in stamp_counts(48) {
        let fixed = CompareParams { stamps: Some(stamps), ..CompareParams::default() };
        let fixed = compare(&schema, &workload, &fixed, &|_| true).unwrap();
        for candidate in &fixed.candidates {
            let found = best.candidates.iter().find(|c| c.family == candidate.family).unwrap();
            assert!(found.loss <= candidate.loss * (1.0 + 1e-6), "{stamps} {candidate:?}");
        }
    }
    assert_eq!(stamp_counts(13)[..4], [1, 2, 3, 4]);
    assert!(stamp_counts(13).contains(&13) && stamp_counts(1) == [1]);
}

#[test]
fn minimum_separation_has_a_bound_but_no_optimum() {
    let schema = Schema::min_separation(24, 8, 3).unwrap();
    let comparison = compared(&schema, &Workload::prefix_sum(24));
    assert_eq!(comparison.left_out.len(), 1);
    assert_eq!(comparison.left_out[0].family, families::OPTIMAL);
    assert!(comparison.candidates.iter().all(|candidate| candidate.over_optimum.unwrap() > 0.0));
}

#[test]
fn the_recommendation_follows_the_memory() {
    let comparison = compared(&Schema::epochs(4, 16).unwrap(), &Workload::prefix_sum(64));
    let plan = |memory| recommend(&comparison, &Needs { params: 1000, memory });
    let choice = |place: usize| comparison.candidates[place].family;
    let all = plan(None).unwrap();
    assert_eq!((choice(all.chosen), all.better), (families::OPTIMAL, None));
    // One row fits, the matrix of the optimum does not: 4,000 bytes for the row, 8·(64·65/2) for the matrix.
    assert_eq!(comparison.candidates[0].stream_bytes(1000), Some(4_000 + 16_640));
    let least = plan(Some(4_000)).unwrap();
    assert_eq!(choice(least.chosen), families::IDENTITY);
    assert_eq!(least.better.map(choice), Some(families::OPTIMAL));
    let error = plan(Some(3_999)).unwrap_err().to_string();
    assert!(
        error.starts_with("memory must be at least 4000 bytes") && error.ends_with("got 3999"),
        "{error}"
    );
}

#[test]
fn ties_go_to_the_simplest_and_huge_models_do_not_overflow() {
    let identity = Workload::dense(crate::linalg::dense::identity(6)).unwrap();
    let comparison = compared(&Schema::epochs(2, 3).unwrap(), &identity);
    assert_eq!(comparison.candidates[0].family, families::IDENTITY);
    assert!(comparison.candidates.iter().all(|c| c.stream_bytes(u64::MAX) == Some(u64::MAX)));
}

#[test]
fn one_number_of_stamps_that_fails_does_not_take_the_others_with_it() {
    // Rates that rise by twenty-four orders of magnitude: the single-epoch optimum of all 13 steps cannot be certified.
    let rates = (0..13).map(|i| 10f64.powi(2 * i - 12)).collect();
    let workload = Workload::training(13, 0.99, Some(rates)).unwrap();
    let alone = families::single_epoch::optimum(13, &workload, 1e-3, &|_| true);
    assert!(matches!(alone, Err(Error::NoConvergence { .. })));
    let comparison = compared(&Schema::fixed_order(13, 5).unwrap(), &workload);
    let single = comparison.candidates.iter().find(|candidate| candidate.family == families::SINGLE_EPOCH);
    assert!(single.unwrap().stamps > 1 && comparison.left_out.is_empty());
    // With no other choice it is left out, and all others are still there.
    let fixed = CompareParams { stamps: Some(1), ..CompareParams::default() };
    let comparison = compare(&Schema::fixed_order(13, 5).unwrap(), &workload, &fixed, &|_| true).unwrap();
    assert_eq!((comparison.left_out.len(), comparison.left_out[0].family), (1, families::SINGLE_EPOCH));
    assert_eq!(comparison.candidates.len(), candidates(&Schema::fixed_order(13, 5).unwrap()) - 1);
}

#[test]
fn no_rates_make_a_mechanism_better_than_the_best() {
    // Two columns of very different size once travelled as one complex column, and stamped FFT looked 3× too good.
    let workload = Workload::training(60, 0.9, Some(vec![1e20; 60])).unwrap();
    let comparison = compared(&Schema::epochs(6, 10).unwrap(), &workload);
    assert_eq!(comparison.candidates[0].family, families::OPTIMAL);
    assert!(comparison.candidates.iter().all(|candidate| candidate.over_optimum.unwrap() >= 0.0));
}

#[test]
fn what_is_not_wanted_is_not_computed() {
    let (schema, workload) = (Schema::epochs(4, 12).unwrap(), Workload::prefix_sum(48));
    let without = |without: Vec<Family>| CompareParams { without, ..CompareParams::default() };
    let seen = std::cell::RefCell::new(Vec::new());
    let observe = |comparing: &Comparing<'_>| {
        let (place, of) = comparing.tried;
        assert!(place < of && comparing.done.0 < comparing.done.1);
        seen.borrow_mut().push(comparing.family);
        true
    };
    let two = vec![families::SINGLE_EPOCH, families::FFT];
    let comparison = compare(&schema, &workload, &without(two.clone()), &observe).unwrap();
    assert!(seen.borrow().iter().all(|choice| !two.contains(choice)) && !seen.borrow().is_empty());
    assert_eq!(comparison.candidates.len(), candidates(&schema) - 2);
    assert!(comparison.lower_bound.is_some() && comparison.left_out.len() == 2);
    // Without those that need the optimum there is no optimization at all, and no bound.
    let slow = vec![families::OPTIMAL, families::SINGLE_EPOCH, families::COMB_BLT];
    let quick = |comparing: &Comparing<'_>| comparing.optimizing.is_none();
    let comparison = compare(&schema, &workload, &without(slow), &quick).unwrap();
    assert!(comparison.lower_bound.is_none() && comparison.candidates[0].over_optimum.is_none());
    let error = compare(&schema, &workload, &without(families::candidates().collect()), &|_| true)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("without must be a list that leaves at least one candidate, got "), "{error}");
    let error = families::named("wavelet").unwrap_err().to_string();
    assert!(error.starts_with("the mechanism must be one of identity, "), "{error}");
    assert!(families::all().all(|family| families::named(family.name()).unwrap() == family));
}

#[test]
fn an_observer_can_stop_it() {
    let schema = Schema::epochs(2, 8).unwrap();
    let stop = compare(&schema, &Workload::prefix_sum(16), &CompareParams::default(), &|_| false);
    assert!(matches!(stop, Err(Error::Interrupted)));
}
