//! Tests of the bracket under minimum separation, against all patterns one by one.

use super::*;
use crate::sensitivity::testing::{Noise, all_patterns, random_gram, random_matrix};
use crate::sensitivity::{sensitivity_of_encoder, sensitivity_of_gram};

/// The truth by enumeration: bounds on the square over all patterns.
pub(super) fn enumerated(x: &Matrix, b: usize, k: usize) -> (f64, f64) {
    all_patterns(x.nrows(), b, k)
        .iter()
        .map(|pattern| exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, 0.0))
        .fold((0.0, 0.0), |(low, high), one| (one.lower.max(low), one.upper.max(high)))
}

fn schemas() -> impl Iterator<Item = (usize, usize, usize)> {
    [(1, 1, 1), (6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2), (12, 5, 3), (7, 7, 1)].into_iter()
}

#[test]
fn a_banded_encoder_is_exact() {
    let mut noise = Noise(11);
    for (n, b, k) in schemas() {
        let schema = Schema::min_separation(n, b, k).unwrap();
        let full = random_matrix(&mut noise, n, n);
        let inside = |i: usize, j: usize| i >= j && i - j < b;
        let c = dense::from_fn(n, n, |i, j| if inside(i, j) { full[(i, j)] } else { 0.0 });
        let (low, high) = enumerated(&dense::gram(&c), b, k);
        let found = sensitivity_of_encoder(&c, &schema).unwrap();
        assert_eq!(found.method, Method::BandedDynamicProgram);
        assert_eq!(found.kind(), Kind::Exact);
        assert!(found.lower.powi(2) <= high && low <= found.upper.powi(2));
    }
}

#[test]
fn one_entry_at_the_separation_itself_is_not_banded() {
    let entry = |distance: usize| {
        dense::from_fn(6, 6, |i, j| f64::from(i == j || (i.abs_diff(j) == distance && i + j < 6)))
    };
    assert!(is_banded(&entry(2), 3));
    assert!(!is_banded(&entry(3), 3));
    assert!(!is_banded(&entry(5), 3));
}

#[test]
fn the_bracket_holds_the_truth() {
    let mut noise = Noise(12);
    for (n, b, k) in schemas() {
        let schema = Schema::min_separation(n, b, k).unwrap();
        for rows in [3, n] {
            let x = random_gram(&mut noise, rows, n);
            let (low, high) = enumerated(&x, b, k);
            let found = squared(&x, &schema).bounds;
            assert!(found.lower <= high && low <= found.upper, "{n} {b} {k}: {found:?} {low}");
            assert!(low <= RowSums::new(&x, b, k).bound().0);
            assert!(low <= monotone_majorant(&x, b, k));
            assert!(low <= bounds::spectral(&x, k).unwrap());
            assert!(found.lower > 0.5 * low, "{n} {b} {k}: {found:?} {low}");
        }
    }
}

/// The largest Σ w_i(l) of the module text by enumeration, with chains by enumeration as well.
fn placed(x: &Matrix, b: usize, k: usize, share: f64) -> f64 {
    let n = x.nrows();
    let best = |i: usize, most: usize, allowed: &dyn Fn(usize) -> bool| {
        let sum = |pattern: &Vec<usize>| pattern.iter().map(|j| x[(i, *j)].abs()).sum::<f64>();
        let fits = |pattern: &Vec<usize>| pattern.len() <= most && pattern.iter().all(|j| allowed(*j));
        all_patterns(n, b, k).iter().filter(|pattern| fits(pattern)).map(sum).fold(0.0, f64::max)
    };
    let weights: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let weight = |l: usize| {
                let before = best(i, l, &|j| j + b <= i);
                x[(i, i)] + share * before + (2.0 - share) * best(i, k - 1 - l, &|j| j >= i + b)
            };
            (0..k).map(weight).collect()
        })
        .collect();
    let sum = |pattern: &Vec<usize>| pattern.iter().enumerate().map(|(l, i)| weights[*i][l]).sum::<f64>();
    all_patterns(n, b, k).iter().map(sum).fold(0.0, f64::max)
}

#[test]
fn the_chain_of_row_sums_keeps_what_its_text_says() {
    let mut noise = Noise(15);
    let mut better = 0;
    for (n, b, k) in [(1, 1, 1), (6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2)] {
        for _ in 0..6 {
            let x = random_gram(&mut noise, 3, n);
            let least = [0.0, 1.0, 2.0]
                .map(|share| placed(&x, b, k, share))
                .into_iter()
                .fold(f64::INFINITY, f64::min);
            let found = RowSums::new(&x, b, k).bound().0;
            assert!(enumerated(&x, b, k).0 <= found && least <= found, "{n} {b} {k}: {found} {least}");
            // Without places, every step may have the best split of its k − 1 others.
            let chains = RowSums::new(&x, b, k).chains;
            let split = |i: usize, c: usize| chains[i][0][c] + chains[i][1][k - 1 - c];
            let loose = |i: usize| x[(i, i)] + (0..k).map(|c| split(i, c)).fold(0.0, f64::max);
            let plain = best_chain(&(0..n).map(loose).collect::<Vec<_>>(), b, k).0;
            assert!(found <= plain * (1.0 + 2.0 * rounding(k)), "{n} {b} {k}: {found} {plain}");
            better += usize::from(found < 0.999 * plain);
        }
    }
    assert!(better > 5, "{better}");
}

#[test]
fn the_search_nearly_always_finds_the_worst_pattern() {
    let mut noise = Noise(14);
    let (mut found_it, mut fixed_is_it, mut count) = (0, 0, 0);
    for (n, b, k) in [(12, 1, 4), (16, 3, 5), (20, 5, 4), (30, 6, 4), (26, 4, 6)] {
        let schema = Schema::min_separation(n, b, k).unwrap();
        for number in 0..24 {
            let x = match number % 6 {
                // Few directions, so that vectors matter; many; and smooth columns, as those of mechanisms are.
                0 => random_gram(&mut noise, 2, n),
                1 => random_gram(&mut noise, 4, n),
                2 => random_gram(&mut noise, n, n),
                _ => smooth_gram(&mut noise, n),
            };
            let (low, high) = enumerated(&x, b, k);
            let found = squared(&x, &schema);
            assert!(found.bounds.lower <= high, "{n} {b} {k}: {:?} {high}", found.bounds);
            assert!(found.bounds.lower > 0.97 * low, "{n} {b} {k}: {:?} {low}", found.bounds);
            let again = exact::pattern_above(&dense::principal(&x, &found.worst), TOLERANCE, 0.0);
            assert_eq!(again.lower, found.bounds.lower);
            let fixed = Schema::FixedOrder { steps: n, steps_per_epoch: b, max_participations: k };
            let same = |value: f64| usize::from(value > low * (1.0 - 1e-8));
            fixed_is_it += same(worst_of(&x, fixed.listed().unwrap(), 0.0).0);
            found_it += same(found.bounds.lower);
            count += 1;
        }
    }
    println!(
        "the worst of all patterns: found {found_it} of {count} times, of fixed order {fixed_is_it} times"
    );
    assert!(100 * found_it >= 97 * count, "{found_it} of {count}");
    assert!(4 * fixed_is_it < count, "{fixed_is_it} of {count}: the matrices are too easy");
}

/// CᵀC for a C whose columns are moving sums of noise with changing signs: nearby steps resemble each other.
pub(super) fn smooth_gram(noise: &mut Noise, n: usize) -> Matrix {
    let rough = random_matrix(noise, n, n + 4);
    let (lag, pull) = (noise.between(2, 7), noise.normal());
    let entry = |i: usize, j: usize| (0..4).map(|d| rough[(i, j + d)]).sum::<f64>();
    let decay = |i: usize, j: usize| pull * (((i + n - j) % lag) as f64 - 1.0);
    dense::gram(&dense::from_fn(n, n, |i, j| entry(i, j) + decay(i, j)))
}

#[test]
fn falling_toeplitz_encoders_are_exact() {
    for (n, b, k) in schemas() {
        let schema = Schema::min_separation(n, b, k).unwrap();
        // The square root of the prefix sum: 1, 1/2, 3/8, …
        let mut root = vec![1.0];
        (1..n).for_each(|t| root.push(root[t - 1] * (1.0 - 0.5 / t as f64)));
        let c = dense::from_fn(n, n, |i, j| if i >= j { root[i - j] } else { 0.0 });
        let found = sensitivity_of_encoder(&c, &schema).unwrap();
        let (low, high) = enumerated(&dense::gram(&c), b, k);
        assert_eq!(found.kind(), Kind::Exact, "{n} {b} {k}: {found:?}");
        assert!(found.lower.powi(2) <= high && low <= found.upper.powi(2));
    }
}

#[test]
fn the_row_sums_beat_the_majorant_where_the_late_steps_are_heavy() {
    // Growing diagonal, one small entry far out: the majorant takes the largest for all.
    let n = 9;
    let x = dense::from_fn(n, n, |i, j| match i.abs_diff(j) {
        0 => 1.0 + i as f64,
        4 => 0.01,
        _ => 0.0,
    });
    let schema = Schema::min_separation(n, 3, 3).unwrap();
    let rows = RowSums::new(&x, 3, 3).bound().0;
    assert!(rows < monotone_majorant(&x, 3, 3));
    let found = sensitivity_of_gram(&x, &schema).unwrap();
    let (low, high) = enumerated(&x, 3, 3);
    assert!(rows < 1.01f64.powi(2) * low);
    assert!(found.lower.powi(2) <= high && low <= found.upper.powi(2));
    assert!(found.upper < 1.01 * found.lower);
}

#[test]
fn thousands_of_small_brackets_are_exact() {
    let mut noise = Noise(16);
    for number in 0..3000 {
        let (n, b, k) = (noise.between(1, 12), noise.between(1, 5), noise.between(1, 6));
        let (b, k) = (b.min(n), k.min(n.div_ceil(b.min(n))));
        let x = match number % 4 {
            0 => widths::triangular_gram(&mut noise, n),
            1 => smooth_gram(&mut noise, n),
            2 => {
                let rows = noise.between(1, 3);
                random_gram(&mut noise, rows, n)
            }
            _ => heavy_gram(&mut noise, n),
        };
        let (low, high) = enumerated(&x, b, k);
        let schema = Schema::min_separation(n, b, k).unwrap();
        let Found { bounds, worst, .. } = squared(&x, &schema);
        assert!(bounds.lower <= high && low <= bounds.upper, "{number}: {n} {b} {k}: {bounds:?} {low}");
        assert!(bounds.upper <= bounds.lower * (1.0 + EXACT_TO), "{number}: {n} {b} {k}: {bounds:?} {low}");
        assert!(worst.len() <= k && worst.windows(2).all(|pair| pair[1] - pair[0] >= b), "{worst:?}");
    }
}

/// A random gram matrix of which one step weighs more than several others.
fn heavy_gram(noise: &mut Noise, n: usize) -> Matrix {
    let (c, heavy) = (random_matrix(noise, n, n), noise.between(0, n - 1));
    dense::gram(&dense::from_fn(n, n, |i, j| if j == heavy { 5.0 * c[(i, j)] } else { c[(i, j)] }))
}

#[test]
fn a_pattern_with_fewer_steps_can_be_the_worst() {
    // Step 2 leaves no room for a second one, and weighs more than any two.
    let x = dense::from_fn(5, 5, |i, j| {
        if i == j { [1.0, 1.0, 9.0, 1.0, 1.0][i] } else { 0.3 - 0.5 * f64::from(i + j == 3) }
    });
    let found = squared(&x, &Schema::min_separation(5, 3, 2).unwrap());
    assert_eq!(found.worst, [2]);
    assert!((9.0..9.0 + 1e-6).contains(&found.bounds.upper), "{:?}", found.bounds);
}

#[test]
fn the_number_of_threads_changes_no_bit_of_the_bracket() {
    let mut noise = Noise(17);
    for (n, b, k) in [(12, 2, 4), (60, 6, 5), (150, 10, 8)] {
        let x = smooth_gram(&mut noise, n);
        let schema = Schema::min_separation(n, b, k).unwrap();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| squared(&x, &schema))
        };
        let (one, three) = (with(1), with(3));
        assert_eq!((one.bounds, one.worst), (three.bounds, three.worst));
    }
}
