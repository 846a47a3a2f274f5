//! No contribution is longer than the clipping norm, in exact arithmetic: contributions are integers on their grid, so
//! their squares add up exactly.

use super::{Clip, squared_norm};
use crate::noise::{Cipher, Key};
use proptest::prelude::*;

/// Normals from a seed.
fn normals(seed: u64, count: usize) -> Vec<f64> {
    let mut out = vec![0f64; count];
    Key::from_seed(seed, Cipher::ChaCha20).fill_f64(0, 0, &mut out);
    out
}

/// ‖x‖² in units², exactly.
fn exact_square(x: &[f64], unit: f64) -> u128 {
    let on_grid = |x: &f64| {
        let steps = x / unit;
        assert!(steps == steps.round() && steps.abs() <= 2f64.powi(32), "{x} is not on the grid");
        (steps.abs() as u128).pow(2)
    };
    x.iter().map(on_grid).sum()
}

/// (clip/unit)², rounded down to an integer, which loses nothing: it is compared with one.
fn exact_limit(clip: f64, unit: f64) -> u128 {
    // clip = m·2⁻²¹ units with an integer m below 2⁵³.
    let m = (clip / unit * 2f64.powi(21)) as u128;
    (m * m) >> 42
}

/// The contribution of one gradient that is written down.
fn contribution(clip: f64, gradient: &[f32]) -> (Clip, Vec<f64>) {
    let rule = Clip::new(clip, gradient.len()).expect("a clipping norm");
    let mut sum = vec![0.0; gradient.len()];
    rule.add(&[rule.factor(squared_norm(gradient))], |_| gradient, &mut sum);
    (rule, sum)
}

fn check(clip: f64, gradient: &[f32]) -> Vec<f64> {
    let (rule, sum) = contribution(clip, gradient);
    assert!(exact_square(&sum, rule.unit()) <= exact_limit(clip, rule.unit()), "longer than {clip}");
    sum
}

#[test]
fn adversaries() {
    let shapes: [&dyn Fn(usize) -> f32; 8] = [
        &|_| f32::MAX,
        &|i| if i == 0 { f32::MAX } else { f32::from_bits(1) },
        &|_| f32::MIN_POSITIVE,
        &|i| f32::from_bits(1 + i as u32 % 7),
        &|_| 1.0,
        &|_| -0.1,
        // All of them half-way between two points of the grid, if the factor is one.
        &|i| (2 * i + 1) as f32 * 2f32.powi(-33),
        &|i| if i % 2 == 0 { 1e-20 } else { -1e20 },
    ];
    for clip in [1e-30, 1e-3, 0.1, 1.0, 1.0 + f64::EPSILON, 2.0 - f64::EPSILON, 3.7, 1e30] {
        for shape in shapes {
            for length in [1, 2, 15, 16, 17, 1000, 100_003] {
                check(clip, &(0..length).map(shape).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn norms_next_to_the_limit() {
    // Gradients whose norm is the clipping norm up to a few roundings, on both sides.
    for seed in 0..20 {
        let direction = normals(seed, 5000);
        let norm = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
        for steps in -4..=4 {
            let scale = (1.0 + f64::from(steps) * 1e-8) / norm;
            let gradient: Vec<f32> = direction.iter().map(|x| (x * scale) as f32).collect();
            check(1.0, &gradient);
        }
    }
}

proptest! {
    #[test]
    fn any_bits(bits in prop::collection::vec(any::<u32>(), 1..200), exponent in -30f64..30.0) {
        let gradient: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let sum = check(10f64.powf(exponent), &gradient);
        if gradient.iter().any(|x| !x.is_finite()) {
            prop_assert!(sum.iter().all(|x| *x == 0.0));
        }
    }

    #[test]
    fn outer_products(
        x in prop::collection::vec(-1e30f32..1e30, 1..20),
        g in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, 1..20),
        exponent in -30f64..30.0,
    ) {
        let clip = 10f64.powf(exponent);
        let rule = Clip::new(clip, (x.len() + 1) * g.len()).expect("a clipping norm");
        let mut sum = vec![0.0; (x.len() + 1) * g.len()];
        let factor = rule.factor((squared_norm(&x) + 1.0) * squared_norm(&g));
        rule.add_outer(&[factor], &x, &g, &mut sum);
        prop_assert!(exact_square(&sum, rule.unit()) <= exact_limit(clip, rule.unit()));
        // And they are what they should be, to half a unit.
        let outputs = g.len();
        for (i, x) in x.iter().map(|x| f64::from(*x)).chain([1.0]).enumerate() {
            for (o, g) in g.iter().enumerate() {
                let exact = factor * x * f64::from(*g);
                let off = (sum[i * outputs + o] - exact).abs();
                prop_assert!(off <= 0.5001 * rule.unit());
            }
        }
    }
}

#[test]
fn what_is_not_clipped_hardly_changes() {
    let gradient: Vec<f32> = normals(1, 1000).iter().map(|x| 0.01 * *x as f32).collect();
    let (rule, sum) = contribution(1.0, &gradient);
    for (sum, g) in sum.iter().zip(&gradient) {
        assert!((sum - f64::from(*g)).abs() <= 0.5 * rule.unit());
    }
    // What is clipped has the clipping norm, but for a millionth.
    let long: Vec<f32> = gradient.iter().map(|x| 1e9 * x).collect();
    let (_, sum) = contribution(1.0, &long);
    let norm = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(norm <= 1.0 && norm > 1.0 - 1e-6, "{norm}");
}

#[test]
fn refuses_norms_out_of_range() {
    for clip in [0.0, -1.0, 1e31, 1e-31, f64::NAN, f64::INFINITY] {
        assert!(Clip::new(clip, 10).is_err(), "{clip}");
    }
}

/// One example after the other, with each gradient in one piece.
fn one_by_one<T: Copy + Into<f64> + Default>(rule: Clip, parts: &[Vec<T>], examples: usize, sum: &mut [f64]) {
    for e in 0..examples {
        let row = |part: &Vec<T>| {
            let size = part.len() / examples;
            part[e * size..][..size].to_vec()
        };
        let norm = parts.iter().map(|part| squared_norm(&row(part))).sum();
        let whole: Vec<T> = parts.iter().flat_map(row).collect();
        rule.add(&[rule.factor(norm)], |_| &whole, sum);
    }
}

#[test]
fn a_batch_is_its_examples_one_by_one() {
    for (seed, examples, sizes) in
        [(1, 1, vec![1]), (2, 5, vec![3, 1, 70_000]), (3, 17, vec![40, 40_000, 2]), (4, 3, vec![0, 7])]
    {
        let count: usize = sizes.iter().sum();
        let rule = Clip::new(0.7, count).unwrap();
        let mut parts: Vec<Vec<f32>> = Vec::new();
        for (i, size) in sizes.iter().enumerate() {
            // Some are clipped and some are not.
            let scale = |e: usize| if e.is_multiple_of(2) { 1.0 } else { 1e-4 };
            let numbers = normals(100 * seed + i as u64, size * examples);
            parts.push(numbers.iter().enumerate().map(|(j, x)| (x * scale(j / size)) as f32).collect());
        }
        if examples > 2 {
            parts.last_mut().unwrap()[2] = f32::NAN;
        }
        let mut expected = vec![0.25; count];
        one_by_one(rule, &parts, examples, &mut expected);
        let mut found = vec![0.25; count];
        let slices: Vec<&[f32]> = parts.iter().map(Vec::as_slice).collect();
        rule.add_batch(&slices, examples, &mut found).unwrap();
        assert!(found == expected, "{seed}");
        // The same numbers in double precision are the same contributions.
        let wide: Vec<Vec<f64>> =
            parts.iter().map(|part| part.iter().map(|x| f64::from(*x)).collect()).collect();
        let slices: Vec<&[f64]> = wide.iter().map(Vec::as_slice).collect();
        let mut found = vec![0.25; count];
        rule.add_batch(&slices, examples, &mut found).unwrap();
        assert!(found == expected, "{seed}, f64");
    }
}

proptest! {
    #[test]
    fn any_bits_in_double_precision(bits in prop::collection::vec(any::<u64>(), 1..200), exponent in -30f64..30.0) {
        let gradient: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        let clip = 10f64.powf(exponent);
        let rule = Clip::new(clip, gradient.len()).expect("a clipping norm");
        let mut sum = vec![0.0; gradient.len()];
        rule.add_batch(&[&gradient], 1, &mut sum).unwrap();
        prop_assert!(exact_square(&sum, rule.unit()) <= exact_limit(clip, rule.unit()));
    }
}

#[test]
fn refuses_batches_of_other_sizes() {
    let rule = Clip::new(1.0, 4).unwrap();
    let message = |parts: &[&[f32]], examples, count| {
        rule.add_batch(parts, examples, &mut vec![0.0; count]).unwrap_err().to_string()
    };
    assert_eq!(
        message(&[&[0.0; 5]], 2, 4),
        "gradients of part 0 must be 2 times as many numbers as one has, got 5"
    );
    assert_eq!(message(&[&[0.0; 6]], 2, 4), "the sum must be 3 numbers long, got 4");
    assert_eq!(
        message(&[&[0.0; 10]], 2, 5),
        "the sum must be at most 4 numbers long, as the clipping rule was made for, got 5"
    );
    assert_eq!(message(&[&[0.0; 6]], 0, 4), "examples must be in 1..=2097152, got 0");
}
