//! The gradient against differences, and designs of small runs against what is promised.

use super::objective::Objective;
use super::start::Level;
use crate::families::COMB_BLT;
use crate::families::comb::testing::random_comb;
use crate::make::{finish, make};
use crate::mechanism::Noise;
use crate::mechanism::family::{Designed, Run};
use crate::schema::Schema;
use crate::testing::Seeded;
use crate::verify;
use crate::workload::{Cooldown, Workload};

fn training(steps: usize, momentum: f64, cools: bool) -> Workload {
    let cooldown = Cooldown { fraction: 0.25, end: 0.05 };
    Workload::training(steps, momentum, cools.then(|| cooldown.rates(steps).unwrap())).unwrap()
}

#[test]
fn the_gradient_is_that_of_differences() {
    for seed in 0..40 {
        let seeded = &mut Seeded(seed + 1);
        let comb = random_comb(seed, 30);
        let (steps, k) = (comb.steps, comb.epochs());
        let workload = training(steps, [0.0, 0.8][seed as usize % 2], seed % 3 == 0);
        let multipliers = (0..comb.period).flat_map(|_| {
            let mut all = vec![1.0; k * k];
            for (i, j) in (0..k * k).map(|at| (at / k, at % k)).filter(|(i, j)| i < j) {
                all[i * k + j] = 2.0 * seeded.uniform() - 1.0;
                all[j * k + i] = all[i * k + j];
            }
            all
        });
        let objective = Objective {
            training: workload.as_training().unwrap(),
            multipliers: multipliers.collect(),
            softness: 0.5,
            base: comb,
        };
        let y: Vec<f64> = (0..objective.variables()).map(|_| 0.2 * seeded.uniform() - 0.1).collect();
        let mut gradient = vec![0.0; y.len()];
        objective.evaluate(&y, &mut gradient);
        let mut unused = gradient.clone();
        let h = 1e-5;
        for i in 0..y.len() {
            let mut at = |by: f64| {
                let mut moved = y.clone();
                moved[i] += by;
                objective.evaluate(&moved, &mut unused)
            };
            let expected = (at(h) - at(-h)) / (2.0 * h);
            assert!((gradient[i] - expected).abs() < 1e-7, "{seed} {i} {} {expected}", gradient[i]);
        }
    }
}

#[test]
fn the_smoothed_sensitivity_is_never_above_the_absolute_values() {
    for seed in 0..40 {
        let comb = random_comb(seed, 30);
        let workload = training(comb.steps, 0.0, false);
        let multipliers = vec![0.3; comb.period * comb.epochs() * comb.epochs()];
        let training = workload.as_training().unwrap();
        let objective = Objective { training, multipliers, softness: 0.1, base: comb };
        let y = vec![0.0; objective.variables()];
        let smoothed = objective.evaluate(&y, &mut y.clone());
        assert!(smoothed <= objective.value(&y).loss.ln() + 1e-12, "{seed}");
    }
}

/// Epochs of equal length, incomplete ones, one epoch, epochs of one step, momentum and schedules: made, verified, and near the optimum.
#[test]
fn designs_of_small_runs_are_near_the_optimum_and_verify() {
    let cases = [
        (Schema::epochs(4, 6), 0.0, false, 0.015),
        (Schema::epochs(3, 40), 0.0, false, 0.01),
        (Schema::epochs(3, 40), 0.9, true, 0.04),
        (Schema::fixed_order(23, 5), 0.0, false, 0.02),
        (Schema::fixed_order(50, 20), 0.9, false, 0.04),
        (Schema::single(60), 0.0, false, 0.01),
        (Schema::every_step(6), 0.0, false, 0.02),
        (Schema::single(1), 0.0, false, 0.01),
        (Schema::epochs(2, 1), 0.5, false, 0.01),
    ];
    for (schema, momentum, cools, most) in cases {
        let schema = schema.unwrap();
        let workload = training(schema.steps(), momentum, cools);
        let made = make(COMB_BLT, &Run::new(&schema, &workload, &|_| true)).unwrap();
        let over = made.claims().gap();
        assert!(over <= most, "{schema:?} {momentum} {over}");
        let report = verify::mechanism(&made).unwrap();
        assert!(report.ok(), "{schema:?} {:?}", report.checks);
    }
}

#[test]
fn buffers_that_are_asked_for_are_there_and_more_of_them_are_not_worse() {
    let schema = Schema::epochs(3, 50).unwrap();
    let workload = training(150, 0.0, false);
    let run = Run::new(&schema, &workload, &|_| true);
    let loss = |buffers: usize| {
        let made = make(COMB_BLT, &Run { buffers: Some(buffers), ..run }).unwrap();
        let Noise::Structured(structured) = made.noise() else { panic!("a comb is structured") };
        assert_eq!(structured.parameters.get("poles").len(), buffers);
        made.claims().loss
    };
    let (one, two, three) = (loss(1), loss(2), loss(3));
    assert!(two < one * 0.97 && three < two, "{one} {two} {three}");
}

#[test]
fn the_user_can_stop_it() {
    let schema = Schema::epochs(3, 30).unwrap();
    let workload = training(90, 0.0, false);
    let asked = std::cell::Cell::new(0);
    let observer = |_: &crate::optimize::Progress| {
        asked.set(asked.get() + 1);
        asked.get() < 40
    };
    let error = COMB_BLT.design(&Run::new(&schema, &workload, &observer)).unwrap_err();
    assert!(matches!(error, crate::error::Error::Interrupted), "{error}");
}

#[test]
fn matrices_as_workloads_and_too_many_epochs_are_refused() {
    let schema = Schema::epochs(2, 3).unwrap();
    let dense = Workload::dense(crate::linalg::dense::identity(6)).unwrap();
    let error = make(COMB_BLT, &Run::new(&schema, &dense, &|_| true)).unwrap_err().to_string();
    assert!(error.contains("comb-blt is made for prefix sums"), "{error}");
    let schema = Schema::every_step(129).unwrap();
    let workload = Workload::prefix_sum(129);
    let error = make(COMB_BLT, &Run::new(&schema, &workload, &|_| true)).unwrap_err().to_string();
    assert!(error.contains("at most 128 epochs, got 129"), "{error}");
}

#[test]
fn more_knots_for_the_same_epochs_are_the_same_comb() {
    let schema = Schema::epochs(3, 40).unwrap();
    let workload = training(120, 0.0, false);
    let run = Run::new(&schema, &workload, &|_| true);
    let designed = COMB_BLT.design(&run).unwrap();
    let Designed::Proven(Noise::Structured(structured), ..) = &designed else { panic!("a proven comb") };
    let comb = crate::families::comb::Comb::from_parameters(120, &structured.parameters).unwrap();
    let level = Level::new(120, 40, 40, workload.as_training().unwrap());
    let finer = level.resampled(&comb, comb.filter.clone(), 1);
    assert!(finer.gain_knots.len() > comb.gain_knots.len());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for t in 0..120 {
        assert!((comb.input_gain(t) / finer.input_gain(t) - 1.0).abs() < 1e-12);
        comb.mix_row(t % 40, t / 40, &mut a);
        finer.mix_row(t % 40, t / 40, &mut b);
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12), "{t}");
    }
    assert!(finish(designed, &run).unwrap().mechanism.claims().gap() < 0.01);
}
