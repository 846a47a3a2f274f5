//! Finite differences, PyTorch, a slow version of local training, and the same bits from every vector unit.

use super::dots::Dots;
use super::softmax::Softmax;
use super::{Local, Positions, Schedule, Totals, Window};
use crate::real::Real;
use antiphon::noise::{Cipher, Key};
use pulp::{Scalar, Scalar128b, Scalar256b, Scalar512b, Simd};
use serde::Deserialize;

/// Parameters of size one half, and tokens, from a seed.
fn example(window: Window, count: usize, seed: u64) -> (Vec<f64>, Vec<u32>, Vec<u32>) {
    let mut theta = vec![0f64; window.parameters()];
    let key = Key::from_seed(seed, Cipher::ChaCha20);
    key.fill_f64(0, 0, &mut theta);
    theta.iter_mut().for_each(|x| *x *= 0.5);
    let mut normals = vec![0f64; count * (window.context + 1)];
    key.fill_f64(1, 0, &mut normals);
    let mut tokens = normals.iter().map(|x| (x.abs() * 1e6) as u32 % window.vocabulary as u32);
    let contexts = tokens.by_ref().take(count * window.context).collect();
    (theta, contexts, tokens.collect())
}

/// Loss, guess and gradient at one position, as the formulas say.
fn obvious(window: Window, theta: &[f64], context: &[u32], label: u32) -> (f64, u32, Vec<f64>) {
    let Window { vocabulary: v, width: d, .. } = window;
    let n = window.inputs();
    let (w, b) = (v * d, v * d + n * d);
    let c = b + d;
    let e = |i: usize, token: usize| theta[i * v + token];
    let x: Vec<f64> = context.iter().flat_map(|t| (0..d).map(|i| e(i, *t as usize))).collect();
    let h: Vec<f64> = (0..d)
        .map(|o| (theta[b + o] + (0..n).map(|k| x[k] * theta[w + k * d + o]).sum::<f64>()).tanh())
        .collect();
    let logits: Vec<f64> =
        (0..v).map(|t| theta[c + t] + (0..d).map(|i| h[i] * e(i, t)).sum::<f64>()).collect();
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - max).exp()).sum();
    let loss = max + sum.ln() - logits[label as usize];
    let p: Vec<f64> =
        (0..v).map(|t| (logits[t] - max).exp() / sum - if t == label as usize { 1.0 } else { 0.0 }).collect();
    let mut g = vec![0.0; theta.len()];
    for t in 0..v {
        (0..d).for_each(|i| g[i * v + t] += h[i] * p[t]);
        g[c + t] += p[t];
    }
    let da: Vec<f64> =
        (0..d).map(|i| (0..v).map(|t| p[t] * e(i, t)).sum::<f64>() * (1.0 - h[i] * h[i])).collect();
    for o in 0..d {
        g[b + o] += da[o];
        (0..n).for_each(|k| g[w + k * d + o] += x[k] * da[o]);
    }
    for k in 0..n {
        let dx: f64 = (0..d).map(|o| theta[w + k * d + o] * da[o]).sum();
        g[(k % d) * v + context[k / d] as usize] += dx;
    }
    (loss, logits.iter().position(|x| *x == max).unwrap() as u32, g)
}

/// Local training, as the formulas say.
fn slowly(
    window: Window,
    theta: &[f64],
    contexts: &[u32],
    labels: &[u32],
    schedule: Schedule,
) -> (Vec<f64>, Totals) {
    let (mut local, mut totals, mut step) = (theta.to_vec(), Totals::default(), 0);
    for epoch in 0..schedule.epochs {
        let batches = contexts.chunks(window.context * schedule.batch).zip(labels.chunks(schedule.batch));
        for (contexts, labels) in batches {
            if schedule.steps.is_some_and(|steps| step >= steps) {
                break;
            }
            let mut sum = vec![0.0; theta.len()];
            for (context, label) in contexts.chunks(window.context).zip(labels) {
                let (loss, guess, g) = obvious(window, &local, context, *label);
                sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g);
                if epoch == 0 {
                    totals.positions += 1;
                    totals.loss += loss;
                    totals.hits += usize::from(guess == *label);
                }
            }
            let scale = schedule.rate / labels.len() as f64;
            local.iter_mut().zip(&sum).for_each(|(x, g)| *x -= scale * g);
            step += 1;
        }
    }
    (theta.iter().zip(&local).map(|(a, b)| a - b).collect(), totals)
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied()).max(1e-300)
}

#[test]
fn training_is_what_the_formulas_say() {
    let mut case = 0u64;
    let small =
        [(4, 1, 1), (5, 2, 3), (16, 9, 2), (17, 3, 5), (37, 5, 4), (48, 8, 1), (64, 7, 2), (70, 9, 5)];
    for (v, d, j) in small.into_iter().chain([(1000, 32, 4), (1024, 33, 2)]) {
        for (batch, epochs, steps) in
            [(1, 1, None), (3, 2, Some(5)), (8, 3, None), (40, 1, None), (13, 2, Some(0)), (64, 2, Some(100))]
        {
            case += 1;
            let window = Window::new(v, d, j).unwrap();
            let count = (case as usize * 7) % 45;
            let (theta, contexts, labels) = example(window, count, case);
            let schedule = Schedule { rate: 0.3, batch, epochs, steps };
            let (expected, totals) = slowly(window, &theta, &contexts, &labels, schedule);
            let positions = Positions { contexts: &contexts, labels: &labels };
            let mut exact = Local::<f64>::new(&window);
            let seen = exact.train(&theta, positions, schedule);
            assert!(distance(exact.update(), &expected) < 1e-12, "{v} {d} {j} {schedule:?}");
            assert_eq!((seen.positions, seen.hits), (totals.positions, totals.hits));
            assert!((seen.loss - totals.loss).abs() <= 1e-12 * totals.loss);
            let mut single = Local::<f32>::new(&window);
            let theta: Vec<f32> = theta.iter().map(|x| *x as f32).collect();
            let seen = single.train(&theta, positions, schedule);
            let update: Vec<f64> = single.update().iter().map(|x| f64::from(*x)).collect();
            assert!(
                distance(&update, &expected) < 2e-5,
                "{v} {d} {j} {schedule:?}: {}",
                distance(&update, &expected)
            );
            assert!((seen.loss - totals.loss).abs() <= 1e-5 * totals.loss);
        }
    }
}

#[test]
fn one_step_goes_along_the_gradient() {
    // (f(x + hv) − f(x − hv))/2h = ⟨gradient, v⟩, where one step over all positions moves by the mean gradient.
    const H: f64 = 1e-5;
    for (case, (v, d, j)) in [(4, 1, 1), (9, 4, 2), (37, 5, 4), (65, 3, 3)].into_iter().enumerate() {
        let window = Window::new(v, d, j).unwrap();
        let (theta, contexts, labels) = example(window, 11, case as u64);
        let positions = Positions { contexts: &contexts, labels: &labels };
        let mut local = Local::<f64>::new(&window);
        let seen = local.train(&theta, positions, Schedule { rate: 1.0, batch: 11, epochs: 1, steps: None });
        let gradient = local.update().to_vec();
        let mut mean = |theta: &[f64]| {
            let mut sum = 0.0;
            local.evaluate(theta, positions, None, |_, loss, _| sum += loss);
            sum / 11.0
        };
        assert!((mean(&theta) - seen.loss / 11.0).abs() < 1e-14);
        let (direction, ..) = example(window, 0, 100 + case as u64);
        for v in [&gradient, &direction] {
            let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
            let mut moved =
                |h: f64| mean(&theta.iter().zip(v).map(|(x, v)| x + h * v / length).collect::<Vec<_>>());
            let slope = (moved(H) - moved(-H)) / (2.0 * H);
            let expected = gradient.iter().zip(v).map(|(g, v)| g * v / length).sum::<f64>();
            assert!((slope - expected).abs() < 1e-9, "{window:?}: {slope} against {expected}");
        }
    }
}

#[derive(Deserialize)]
struct Golden {
    sizes: [usize; 3],
    batch: usize,
    rate: f64,
    contexts: Vec<u32>,
    labels: Vec<u32>,
    parameters: Vec<f64>,
    logits: Vec<f64>,
    losses: Vec<f64>,
    update: Vec<f64>,
}

#[derive(Deserialize)]
struct Goldens {
    windows: Vec<Golden>,
}

#[test]
fn pytorch_agrees() {
    let goldens: Goldens =
        serde_json::from_str(include_str!("../../../tests/goldens/goldens.json")).expect("goldens.json");
    for golden in goldens.windows {
        let [v, d, j] = golden.sizes;
        let window = Window::new(v, d, j).unwrap();
        let positions = Positions { contexts: &golden.contexts, labels: &golden.labels };
        let mut local = Local::<f64>::new(&window);
        local.parameters.load(&golden.parameters);
        local.batch.forward(&local.parameters, positions);
        let rows = local.batch.outputs.chunks_exact(local.parameters.stride).take(golden.labels.len());
        let logits: Vec<f64> = rows.flat_map(|row| row[..v].to_vec()).collect();
        assert!(distance(&logits, &golden.logits) < 1e-14);
        let mut guesses = Vec::new();
        local.evaluate(&golden.parameters, positions, None, |t, loss, guess| {
            assert!((loss - golden.losses[t]).abs() < 1e-13);
            guesses.push(guess);
        });
        for (guess, logits) in guesses.iter().zip(golden.logits.chunks_exact(v)) {
            assert!(logits.iter().all(|x| *x <= logits[*guess as usize]));
        }
        let schedule = Schedule { rate: golden.rate, batch: golden.batch, epochs: 1, steps: Some(2) };
        local.train(&golden.parameters, positions, schedule);
        assert!(distance(local.update(), &golden.update) < 1e-13);
    }
}

/// A client of 50 positions, and what it moves by.
fn single(window: Window) -> (Vec<f32>, Vec<u32>, Vec<u32>) {
    let (theta, contexts, labels) = example(window, 50, 7);
    (theta.into_iter().map(|x| x as f32).collect(), contexts, labels)
}

const SCHEDULE: Schedule = Schedule { rate: 0.5, batch: 32, epochs: 2, steps: None };

#[test]
fn memory_used_again_changes_nothing() {
    let window = Window::new(37, 5, 4).unwrap();
    let (theta, contexts, labels) = single(window);
    let positions = Positions { contexts: &contexts, labels: &labels };
    let mut local = Local::<f32>::new(&window);
    let seen = local.train(&theta, positions, SCHEDULE);
    let update = local.update().to_vec();
    // A client that has overflowed, then a small one, then one without positions.
    local.train(&theta, positions, Schedule { rate: 1e38, ..SCHEDULE });
    assert!(local.update().iter().any(|x| !x.is_finite()));
    local.train(&theta, Positions { contexts: &contexts[..12], labels: &labels[..3] }, SCHEDULE);
    let none = local.train(&theta, Positions { contexts: &[], labels: &[] }, SCHEDULE);
    assert_eq!(none, Totals::default());
    assert!(local.update().iter().all(|x| *x == 0.0));
    assert_eq!(local.train(&theta, positions, SCHEDULE), seen);
    assert_eq!(local.update(), update);
    let mut losses = 0.0;
    local.evaluate(&theta, positions, None, |_, loss, _| losses += loss);
    assert!(losses.is_finite());
    assert_eq!(local.update(), update, "evaluating leaves the update alone");
}

#[test]
fn an_update_is_one_subtraction() {
    let window = Window::new(37, 5, 4).unwrap();
    let (theta, contexts, labels) = single(window);
    let mut local = Local::<f32>::new(&window);
    local.train(&theta, Positions { contexts: &contexts, labels: &labels }, SCHEDULE);
    let mut after: Vec<f32> = Vec::new();
    let own = &local.parameters;
    own.table.chunks_exact(own.stride).take(5).for_each(|row| after.extend(&row[..37]));
    after.extend(&own.weights[..]);
    after.extend(&own.table().1[..37]);
    assert_eq!(after.len(), theta.len());
    for i in 0..theta.len() {
        assert_eq!(local.update()[i].to_bits(), (theta[i] - after[i]).to_bits(), "{i}");
    }
}

#[test]
fn the_bits_of_an_update_stay() {
    let window = Window::new(37, 5, 4).unwrap();
    let (theta, contexts, labels) = single(window);
    let mut local = Local::<f32>::new(&window);
    local.train(&theta, Positions { contexts: &contexts, labels: &labels }, SCHEDULE);
    let fold = |hash: u64, x: &f32| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3);
    assert_eq!(local.update().iter().fold(0xcbf2_9ce4_8422_2325, fold), 63_363_909_637_901_535);
}

#[test]
fn what_is_not_finite_stays_so() {
    let window = Window::new(21, 3, 2).unwrap();
    let (theta, contexts, labels) = single(window);
    let positions = Positions { contexts: &contexts, labels: &labels };
    let mut local = Local::<f32>::new(&window);
    for place in 0..theta.len() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut theta = theta.clone();
            theta[place] = bad;
            local.train(&theta, positions, SCHEDULE);
            assert!(!local.update()[place].is_finite(), "{bad} at {place}");
            local.evaluate(&theta, positions, None, |_, _, guess| assert!(guess < 21));
        }
    }
}

#[test]
fn sizes_are_checked() {
    for (sizes, name) in [((3, 1, 1), "vocabulary"), ((4, 0, 1), "width"), ((4, 1, 0), "context")] {
        let message = Window::new(sizes.0, sizes.1, sizes.2).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("1048576"), "{message}");
    }
    let window = Window::new(10, 4, 25).unwrap();
    assert_eq!(window.parameters(), 40 + 400 + 4 + 10);
    let start = window.initial(&Key::from_seed(3, Cipher::ChaCha20));
    assert_eq!(start, window.initial(&Key::from_seed(3, Cipher::ChaCha20)));
    assert_ne!(start, window.initial(&Key::from_seed(4, Cipher::ChaCha20)));
    let deviation = |x: &[f32]| (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt();
    assert!((deviation(&start[..40]) - 0.1).abs() < 0.04);
    assert!((deviation(&start[40..440]) - 0.1).abs() < 0.02);
    assert!(start[440..].iter().all(|x| *x == 0.0));
}

/// Results of the two kernels with sums across a vector, with one kind of vector.
fn with<S: Simd, T: Real>(simd: S) -> Vec<T> {
    let (rows, others, stride, columns) = (8, 7, 80, 64);
    let (numbers, ..) = example(Window::new(100, 12, 1).unwrap(), 0, 5);
    let numbers: Vec<T> = numbers.into_iter().map(T::from_f64).collect();
    let (left, right) = (&numbers[..rows * stride], &numbers[640..][..others * stride]);
    let mut out = vec![T::default(); rows * others];
    simd.vectorize(Dots { left, right, stride, columns, out: &mut out });
    let (mut outputs, mut guesses) = (left.to_vec(), vec![0; rows]);
    let (mut targets, mut sums) = (vec![T::default(); rows], vec![T::default(); rows]);
    simd.vectorize(Softmax {
        labels: &[0, 1, 5, 63, 9, 9, 30, 2],
        stride,
        columns,
        all: true,
        never: Some(9),
        outputs: &mut outputs,
        targets: &mut targets,
        guesses: &mut guesses,
        sums: &mut sums,
    });
    guesses.iter().for_each(|guess| out.push(T::from_f64(f64::from(*guess))));
    [out, outputs, targets, sums].concat()
}

fn bits_of<T: Real>() {
    let expected: Vec<T> = with(Scalar);
    assert!(expected.iter().all(|x| x.to_f64().is_finite()));
    // Four, eight and sixteen lanes of `f32`; then what this machine has.
    assert_eq!(with::<_, T>(Scalar128b), expected);
    assert_eq!(with::<_, T>(Scalar256b), expected);
    assert_eq!(with::<_, T>(Scalar512b), expected);
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        assert_eq!(with::<_, T>(simd), expected);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        assert_eq!(with::<_, T>(simd), expected);
    }
}

#[test]
fn bits_do_not_depend_on_the_vector_unit() {
    bits_of::<f32>();
    bits_of::<f64>();
}
