//! Finite differences, and a slow version of local training.

use super::{Local, Positions, Schedule, Totals, Window};
use antiphon::noise::{Cipher, Key};

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
    for (v, d, j) in
        [(4, 1, 1), (5, 2, 3), (16, 9, 2), (17, 3, 5), (37, 5, 4), (48, 8, 1), (64, 7, 2), (70, 9, 5)]
    {
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
