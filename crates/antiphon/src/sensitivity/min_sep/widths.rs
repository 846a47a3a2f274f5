//! How wide the bracket is under minimum separation, on small random matrices whose patterns can all be tried.
//!
//! ```sh
//! cargo test -p antiphon --lib widths -- --ignored --nocapture
//! ```

use super::*;
use crate::sensitivity::testing::{Noise, random_gram, random_matrix};

/// CᵀC of a lower triangular C.
pub(super) fn triangular_gram(noise: &mut Noise, n: usize) -> Matrix {
    let full = random_matrix(noise, n, n);
    dense::gram(&dense::from_fn(n, n, |i, j| if i >= j { full[(i, j)] } else { 0.0 }))
}

/// CᵀC of a lower triangular C whose entries change slowly: sums of three exponentials in i − j, with factors of both signs,
/// and a factor per column.
fn slow_gram(noise: &mut Noise, n: usize) -> Matrix {
    let parts: Vec<(f64, f64)> = (0..3).map(|_| (noise.normal(), 0.3 + 0.7 * noise.uniform())).collect();
    let drift = 0.1 * noise.normal();
    let entry = |i: usize, j: usize| {
        let value: f64 = parts.iter().map(|(factor, base)| factor * base.powi((i - j) as i32)).sum();
        value * (drift * j as f64).exp()
    };
    dense::gram(&dense::from_fn(n, n, |i, j| if i >= j { entry(i, j) } else { 0.0 }))
}

/// Relative widths of brackets on the sensitivity, and how often their ends are the truth.
#[derive(Default)]
struct Widths {
    widths: Vec<f64>,
    lower_is_it: usize,
    upper_is_it: usize,
}

impl Widths {
    fn add(&mut self, x: &Matrix, b: usize, k: usize) {
        let schema = Schema::min_separation(x.nrows(), b, k).unwrap();
        let (low, high) = tests::enumerated(x, b, k);
        let found = squared(x, &schema).bounds;
        assert!(found.lower <= high && low <= found.upper, "{b} {k}: {found:?} {low} {high}");
        self.widths.push((found.upper / found.lower).sqrt() - 1.0);
        self.lower_is_it += usize::from(found.lower >= low * (1.0 - 1e-8));
        self.upper_is_it += usize::from(found.upper <= high * (1.0 + 1e-8));
    }

    fn print(mut self, name: &str) {
        self.widths.sort_by(f64::total_cmp);
        let count = self.widths.len();
        let mean = self.widths.iter().sum::<f64>() / count as f64;
        let at = |share: f64| self.widths[(share * (count - 1) as f64) as usize];
        println!(
            "{name:9} {count} matrices, upper/lower − 1: mean {mean:.2e}, median {:.2e}, 90 % {:.2e}, largest {:.2e}; \
             the lower end is the truth in {}, the upper end in {}",
            at(0.5),
            at(0.9),
            at(1.0),
            self.lower_is_it,
            self.upper_is_it
        );
    }
}

type Make = fn(&mut Noise, usize) -> Matrix;

#[test]
#[ignore = "prints figures"]
fn widths_of_small_brackets() {
    let kinds: [(&str, usize, Make); 4] = [
        ("Gaussian", 200, triangular_gram),
        ("smooth", 200, slow_gram),
        ("moving", 200, tests::smooth_gram),
        ("few rows", 50, |noise, n| {
            let rows = noise.between(1, 3);
            random_gram(noise, rows, n)
        }),
    ];
    for (name, count, make) in kinds {
        let mut noise = Noise(71);
        let mut widths = Widths::default();
        for _ in 0..count {
            let (n, b, k) = (noise.between(4, 12), noise.between(1, 4), noise.between(2, 6));
            widths.add(&make(&mut noise, n), b.min(n), k.min(n.div_ceil(b.min(n))));
        }
        widths.print(name);
    }
}

#[test]
#[ignore = "temporary"]
fn timing_scratch() {
    let raw = std::fs::read("/tmp/h2/target/scratch/X.bin").unwrap();
    let v: Vec<f64> = raw.chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect();
    let x = dense::from_fn(2000, 2000, |i, j| v[j * 2000 + i]);
    let mut noise = Noise(3);
    let go = |name: &str, x: &Matrix, b: usize, k: usize| {
        let t = std::time::Instant::now();
        let f = squared(x, &Schema::min_separation(x.nrows(), b, k).unwrap()).bounds;
        println!(
            "{name} n {} b {b} k {k}: {:.6}..{:.6} width {:.2e} {:?} {:.3} s",
            x.nrows(),
            f.lower.sqrt(),
            f.upper.sqrt(),
            (f.upper / f.lower).sqrt() - 1.0,
            f.method,
            t.elapsed().as_secs_f64()
        );
    };
    for (b, k) in [(100, 20), (100, 20), (50, 20), (100, 10), (95, 20), (10, 20), (300, 4), (1, 5)] {
        go("optimum", &x, b, k);
    }
    for (n, b, k) in
        [(15, 2, 5), (20, 1, 10), (20, 3, 6), (30, 4, 6), (40, 5, 8), (100, 10, 5), (200, 10, 10)]
    {
        go("gauss", &triangular_gram(&mut noise, n), b, k);
        go("slow", &slow_gram(&mut noise, n), b, k);
        go("moving", &tests::smooth_gram(&mut noise, n), b, k);
    }
    if std::env::var("LARGE").is_ok() {
        let n = 12_000;
        let x = dense::from_fn(n, n, |i, j| {
            1.0 / (1.0 + 0.01 * i.abs_diff(j) as f64) * (1.0 + 0.2 * ((i * j) as f64 * 1e-6).sin())
        });
        go("large", &x, 600, 20);
        go("large", &x, 600, 10);
        go("large", &x, 20, 20);
    }
}
