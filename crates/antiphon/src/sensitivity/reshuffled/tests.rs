//! Reshuffled epochs against all patterns, one by one.

use super::*;
use crate::sensitivity::testing::{Noise, random_gram, random_matrix};
use crate::sensitivity::{Entries, sensitivity_of_encoder, sensitivity_of_entries, sensitivity_of_gram};

/// The truth by enumeration: bounds on the square over all patterns.
fn truth(x: &Matrix, k: usize, b: usize) -> (f64, f64) {
    all_patterns(k, b)
        .iter()
        .map(|pattern| exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, 0.0))
        .fold((0.0, 0.0), |(low, high), one| (one.lower.max(low), one.upper.max(high)))
}

const SHAPES: [(usize, usize); 9] = [(2, 2), (2, 6), (3, 2), (3, 4), (4, 2), (4, 3), (5, 2), (6, 2), (3, 3)];
const KINDS: [&str; 8] =
    ["triangular", "few rows", "smooth", "non-negative", "constant", "toeplitz", "falling", "block diagonal"];

fn lower_triangle(n: usize, entry: impl Fn(usize, usize) -> f64) -> Matrix {
    dense::from_fn(n, n, |i, j| if i >= j { entry(i, j) } else { 0.0 })
}

/// A gram matrix that is hard in one way or another.
fn matrix(kind: &str, noise: &mut Noise, k: usize, b: usize) -> Matrix {
    let n = k * b;
    let rough = random_matrix(noise, n, n + 4);
    match kind {
        "triangular" => dense::gram(&lower_triangle(n, |i, j| rough[(i, j)])),
        "few rows" => {
            let rows = noise.between(1, 3);
            random_gram(noise, rows, n)
        }
        "smooth" => dense::gram(&dense::from_fn(n, n, |i, j| (0..4).map(|d| rough[(i, j + d)]).sum())),
        "non-negative" => dense::gram(&dense::from_fn(n, n, |i, j| rough[(i, j)].abs().powi(3))),
        "constant" => constant(noise, k, b),
        "toeplitz" => dense::gram(&lower_triangle(n, |i, j| rough[(i - j, 0)])),
        "falling" => {
            let rate = noise.uniform();
            let coefficients: Vec<f64> = (0..n)
                .scan(1.0, |c, t| {
                    let now = *c;
                    *c *= 1.0 - rate / (t + 1) as f64;
                    Some(now)
                })
                .collect();
            dense::gram(&lower_triangle(n, |i, j| coefficients[i - j]))
        }
        _ => dense::gram(&lower_triangle(n, |i, j| if i / b == j / b { rough[(i, j)] } else { 0.0 })),
    }
}

/// Constant between any two epochs, with any signs.
fn constant(noise: &mut Noise, k: usize, b: usize) -> Matrix {
    let between = random_gram(noise, 3, k);
    let within = random_gram(noise, b, b);
    dense::from_fn(k * b, k * b, |i, j| match i / b == j / b {
        true => within[(i % b, j % b)] + between[(i / b, j / b)],
        false => between[(i / b, j / b)],
    })
}

/// Widths of brackets, relatively.
#[derive(Default)]
struct Widths(Vec<f64>);

impl Widths {
    fn describe(&mut self) -> String {
        self.0.sort_by(f64::total_cmp);
        let at = |part: f64| 100.0 * self.0[(part * (self.0.len() - 1) as f64) as usize];
        let exact = self.0.iter().filter(|width| **width <= EXACT_TO).count();
        let (median, most, largest) = (at(0.5), at(0.9), at(1.0));
        format!(
            "exact {exact} of {}, median {median:.2} %, 90 % {most:.2} %, largest {largest:.2} %",
            self.0.len()
        )
    }
}

#[test]
fn brackets_hold_the_truth_of_all_patterns() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        let one = |case: u64| {
            let mut noise = Noise(1000 * number as u64 + case);
            let (k, b) = SHAPES[case as usize % SHAPES.len()];
            let x = matrix(kind, &mut noise, k, b);
            let (low, high) = truth(&x, k, b);
            let context = format!("{kind} {case}: {k} epochs of {b} steps, {low}");
            // Without the enumeration that settles all of these.
            let (bounds, _) = bracket(&x, k, b, &heaviest(k, b, |i| x[(i, i)]));
            assert!(bounds.lower <= high && low <= bounds.upper, "{context}: {bounds:?}");
            assert!(bounds.lower > 0.97 * low, "{context}: {bounds:?}");
            if meet(bounds) {
                assert!((bounds.upper / low - 1.0).abs() < 2e-8, "{context}: {bounds:?}");
            }
            assert!(kind != "constant" || meet(bounds), "{context}: {bounds:?}");
            let found = squared(&x, &Schema::reshuffled(k, b).unwrap());
            assert!(found.bounds.lower <= high && low <= found.bounds.upper, "{context}: {:?}", found.bounds);
            assert!(meet(found.bounds), "{context}: {:?}", found.bounds);
            assert_eq!(found.bounds.method == Method::EpochMaxima, kind == "block diagonal");
            let worst = exact::pattern_above(&dense::principal(&x, &found.worst), TOLERANCE, 0.0);
            assert!((worst.lower / found.bounds.lower - 1.0).abs() < 1e-12, "{context}");
            (bounds.upper / low - 1.0, 1.0 - bounds.lower / high)
        };
        let cases: Vec<(f64, f64)> = (0..900).into_par_iter().map(one).collect();
        let (upper, lower): (Vec<f64>, Vec<f64>) = cases.into_iter().unzip();
        println!("{kind:14} above the truth: {}", Widths(upper).describe());
        println!("{:14} below the truth: {}", "", Widths(lower).describe());
    }
}

#[test]
fn any_shares_give_a_bound() {
    let mut noise = Noise(75);
    for case in 0..200 {
        let (k, b) = SHAPES[case % SHAPES.len()];
        let x = matrix(KINDS[case % KINDS.len()], &mut noise, k, b);
        let shares = Shares::from_fn(&x, k, b, |_| noise.normal());
        assert!(shares.bound() >= truth(&x, k, b).0, "{case}");
    }
}

#[test]
fn no_shares_are_exact_where_blocks_are_constant() {
    let mut noise = Noise(76);
    for (k, b) in [(3, 40), (8, 12), (30, 7)] {
        let x = constant(&mut noise, k, b);
        let heaviest = heaviest(k, b, |i| x[(i, i)]);
        // Entries between epochs do not depend on the steps, so the heaviest ones are the worst.
        let expected = exact::pattern_above(&dense::principal(&x, &heaviest), TOLERANCE, 0.0);
        assert!(expected.method == Method::Elliptope || k < 4, "the signs are too easy");
        let bound = Shares::none(&x, k, b).bound();
        assert!(bound >= expected.lower && bound < expected.upper * (1.0 + 1e-8), "{bound} {expected:?}");
        let found = sensitivity_of_gram(&x, &Schema::reshuffled(k, b).unwrap()).unwrap();
        assert_eq!((found.kind(), found.method), (Kind::Exact, Method::EpochPairs));
    }
}

#[test]
fn zero_between_epochs_is_exact_from_every_source() {
    let mut noise = Noise(77);
    for (k, b) in [(2, 3), (7, 5), (20, 10)] {
        let n = k * b;
        let schema = Schema::reshuffled(k, b).unwrap();
        let rough = random_matrix(&mut noise, n, n);
        let c = lower_triangle(n, |i, j| if i / b == j / b { rough[(i, j)] } else { 0.0 });
        let x = dense::gram(&c);
        let largest = |e: usize| (e * b..(e + 1) * b).map(|i| x[(i, i)]).fold(0.0, f64::max);
        let expected = (0..k).map(largest).sum::<f64>().sqrt();
        let entry = |i: usize, j: usize| x[(i, j)];
        let block = |i: usize| i / b * b;
        for blocks in [None, Some(&block as &(dyn Fn(usize) -> usize + Sync))] {
            let entries = Entries { entry: &entry, error: 1e-14, blocks };
            let found = [
                sensitivity_of_encoder(&c, &schema).unwrap(),
                sensitivity_of_gram(&x, &schema).unwrap(),
                sensitivity_of_entries(entries, &schema).unwrap(),
            ];
            for found in found {
                assert_eq!((found.kind(), found.method), (Kind::Exact, Method::EpochMaxima));
                assert!(found.lower <= expected && expected <= found.upper, "{found:?} {expected}");
                assert!(found.upper < expected * (1.0 + 1e-12));
            }
        }
    }
}

#[test]
fn a_million_steps_where_blocks_are_known_to_lie_in_epochs() {
    let (k, b) = (1000, 1000);
    let schema = Schema::reshuffled(k, b).unwrap();
    // Two blocks of 500 steps in every epoch; the largest diagonal entry of epoch e is e + 1.
    let entry = |i: usize, j: usize| match i / 500 == j / 500 {
        true => (i / b + 1) as f64 * if i == j && i % b == 700 { 1.0 } else { 0.5 },
        false => 0.0,
    };
    let found = |length: usize, error: f64| {
        let block = move |i: usize| i / length * length;
        sensitivity_of_entries(Entries { entry: &entry, error, blocks: Some(&block) }, &schema)
    };
    let expected = 500_500f64.sqrt();
    let sensitivity = found(500, 0.0).unwrap();
    assert_eq!((sensitivity.kind(), sensitivity.method), (Kind::Exact, Method::EpochMaxima));
    assert!(sensitivity.lower <= expected && expected <= sensitivity.upper);
    // An error of the entries is an error of k of them.
    let squared = found(500, 0.5).unwrap().upper.powi(2);
    assert!((squared - (500_500.0 + 500.0)).abs() < 1e-6, "{squared}");
    // A block of 1500 steps reaches into another epoch.
    let message = found(1500, 0.0).unwrap_err().to_string();
    assert!(
        message.contains("needs the whole gram matrix, which is too large for 1000000 steps"),
        "{message}"
    );
    // One step per epoch, where the only pattern has a million steps.
    let diagonal = |i: usize, j: usize| f64::from(i == j);
    let entries = Entries { entry: &diagonal, error: 0.0, blocks: Some(&|i| i) };
    let found = sensitivity_of_entries(entries, &Schema::reshuffled(1_000_000, 1).unwrap()).unwrap();
    assert!(found.lower <= 1000.0 && 1000.0 <= found.upper && found.kind() == Kind::Exact);
}

#[test]
fn the_rounding_of_products_and_entries_is_in_the_bracket() {
    let mut noise = Noise(78);
    for (k, b) in [(3, 5), (5, 10)] {
        let schema = Schema::reshuffled(k, b).unwrap();
        let c = random_matrix(&mut noise, 50, k * b);
        let x = dense::gram(&c);
        let gram = sensitivity_of_gram(&x, &schema).unwrap();
        let encoder = sensitivity_of_encoder(&c, &schema).unwrap();
        assert!(encoder.lower < gram.lower && gram.upper < encoder.upper, "{gram:?} {encoder:?}");
        assert!(encoder.upper < gram.upper * (1.0 + 1e-11), "{gram:?} {encoder:?}");
        let entry = |i: usize, j: usize| x[(i, j)];
        let wide =
            sensitivity_of_entries(Entries { entry: &entry, error: 0.1, blocks: None }, &schema).unwrap();
        let more = wide.upper.powi(2) - gram.upper.powi(2);
        assert!((more - 0.1 * (k * k) as f64).abs() < 1e-6, "{more}");
    }
}

#[test]
fn fixed_order_is_never_worse_and_the_number_of_threads_changes_nothing() {
    let mut noise = Noise(79);
    for (k, b) in [(6, 8), (9, 9)] {
        let schema = Schema::reshuffled(k, b).unwrap();
        for kind in KINDS {
            let x = matrix(kind, &mut noise, k, b);
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| squared(&x, &schema))
            };
            let (found, again) = (with(1), with(3));
            assert_eq!((found.bounds, &found.worst), (again.bounds, &again.worst));
            assert!(found.worst.iter().enumerate().all(|(e, step)| step / b == e), "{:?}", found.worst);
            let fixed = sensitivity_of_gram(&x, &Schema::epochs(k, b).unwrap()).unwrap();
            assert!(fixed.lower.powi(2) <= found.bounds.lower * (1.0 + 1e-8), "{kind}");
        }
    }
}

#[test]
fn every_method_holds_the_truth() {
    let mut noise = Noise(80);
    for kind in KINDS {
        let (k, b) = (4, 3);
        let x = matrix(kind, &mut noise, k, b);
        let (low, high) = truth(&x, k, b);
        let all = super::super::all_methods(&x, &Schema::reshuffled(k, b).unwrap()).unwrap();
        for Bound { value, kind, method } in &all {
            let square = value.powi(2);
            assert!(*kind == Kind::UpperBound || square <= high * (1.0 + 1e-8), "{method:?} {square} {high}");
            assert!(*kind == Kind::LowerBound || square >= low, "{method:?} {square} {low}");
        }
        let methods: Vec<Method> = all.iter().map(|bound| bound.method).collect();
        let diagonal = (kind == "block diagonal").then_some(Method::EpochMaxima);
        let others = [Method::EveryPattern, Method::Elliptope, Method::EpochPairs, Method::Spectral];
        assert_eq!(methods, diagonal.into_iter().chain(others).collect::<Vec<_>>());
    }
}
