use super::*;
use crate::linalg::dense;
use crate::sensitivity::testing::{Noise, random_gram, random_matrix};
use crate::sensitivity::{TOLERANCE, exact};

/// All patterns with one step of every epoch.
fn all_patterns(k: usize, b: usize) -> Vec<Vec<usize>> {
    let count = b.pow(k as u32);
    let digit = |number: usize, e: usize| number / b.pow(e as u32) % b;
    (0..count).map(|number| (0..k).map(|e| e * b + digit(number, e)).collect()).collect()
}

/// The truth by enumeration: bounds on the square over all patterns.
fn enumerated(x: &Matrix, k: usize, b: usize) -> (f64, f64) {
    all_patterns(k, b)
        .iter()
        .map(|pattern| exact::pattern_above(&dense::principal(x, pattern), TOLERANCE, 0.0))
        .fold((0.0, 0.0), |(low, high), one| (one.lower.max(low), one.upper.max(high)))
}

const KINDS: [&str; 8] =
    ["triangular", "few rows", "smooth", "non-negative", "constant", "toeplitz", "root", "oscillating"];

fn matrix(kind: &str, noise: &mut Noise, k: usize, b: usize) -> Matrix {
    let n = k * b;
    match kind {
        "triangular" => {
            let full = random_matrix(noise, n, n);
            dense::gram(&dense::from_fn(n, n, |i, j| if i >= j { full[(i, j)] } else { 0.0 }))
        }
        "few rows" => {
            let rows = noise.between(1, 3);
            random_gram(noise, rows, n)
        }
        "smooth" => {
            let rough = random_matrix(noise, n, n + 4);
            dense::gram(&dense::from_fn(n, n, |i, j| (0..4).map(|d| rough[(i, j + d)]).sum()))
        }
        "non-negative" => {
            let full = random_matrix(noise, n, n);
            dense::gram(&dense::from_fn(n, n, |i, j| full[(i, j)].abs().powi(3)))
        }
        "constant" => {
            let small = random_gram(noise, k, k);
            dense::from_fn(n, n, |i, j| match (i == j, i / b == j / b) {
                (true, _) => small[(i / b, i / b)] + (i % b) as f64,
                (_, true) => 0.0,
                _ => small[(i / b, j / b)],
            })
        }
        "toeplitz" => {
            let c: Vec<f64> = (0..n).map(|_| noise.normal()).collect();
            dense::gram(&dense::from_fn(n, n, |i, j| if i >= j { c[i - j] } else { 0.0 }))
        }
        "root" => {
            let lag = noise.uniform();
            let mut root = vec![1.0];
            (1..n).for_each(|t| root.push(root[t - 1] * (1.0 - lag / t as f64)));
            dense::gram(&dense::from_fn(n, n, |i, j| if i >= j { root[i - j] } else { 0.0 }))
        }
        _ => {
            let (f, d) = (noise.uniform() * 3.0, noise.uniform());
            dense::gram(&dense::from_fn(n, n, |i, j| {
                if i >= j { (f * (i - j) as f64).cos() * d.powi((i - j) as i32) } else { 0.0 }
            }))
        }
    }
}

#[test]
fn widths() {
    let mut noise = Noise(71);
    for kind in KINDS {
        for (k, b) in [(2, 6), (3, 4), (4, 3), (6, 2), (5, 4)] {
            let mut sums = [0.0; 4];
            let (mut best, mut low, mut ex, mut lowex) = (0.0, 0.0, 0, 0);
            let count = 40;
            for _ in 0..count {
                let x = matrix(kind, &mut noise, k, b);
                let (l, h) = enumerated(&x, k, b);
                let found = bracket(&x, k, b);
                let mut least = f64::INFINITY;
                for (s, u) in sums.iter_mut().zip(found.upper) {
                    assert!(u >= l, "{kind} {k} {b} {u} {l}");
                    *s += (u / l - 1.0) / count as f64 * 100.0;
                    least = least.min(u);
                }
                assert!(found.lower <= h);
                best += (least / l - 1.0) / count as f64 * 100.0;
                low += (1.0 - found.lower / h) / count as f64 * 100.0;
                ex += usize::from(least < l * (1.0 + 1e-8));
                lowex += usize::from(found.lower > h * (1.0 - 1e-8));
            }
            println!(
                "{kind:14} {k}x{b}: none {:.2}% abs {:.2}% around {:.2}% signed {:.2}%; best {best:.2}% exact {ex}/{count}; lower {low:.3}% exact {lowex}",
                sums[0], sums[1], sums[2], sums[3]
            );
        }
    }
}
