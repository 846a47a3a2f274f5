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
