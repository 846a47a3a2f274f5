//! The FFT mechanism with its optimal decoder at n = 10,000, which took the paper 146 minutes on a V100: the time
//! until it is ready, and the time to draw noise for a thousand coordinates, over numbers of steps.

use antiphon::families;
use antiphon::linalg::dense::Matrix;
use antiphon::mechanism::{Factorization, Structured, evaluate};
use antiphon::noise::{Cipher, Key};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use rayon::prelude::*;
use std::time::Instant;

const COORDINATES: usize = 1_000;
/// Coordinates that are drawn at once.
const TILE: usize = 50;

fn main() {
    println!(
        "{:<12} {:>8} {:>10} {:>10} {:>22}",
        "mechanism", "n", "ready", "noise", "ns per step and coord."
    );
    for family in [
        families::IDENTITY,
        families::TREE_ONLINE,
        families::TREE_OPTIMAL,
        families::FFT,
        families::FFT_OPTIMAL,
    ] {
        for steps in [1_000, 10_000] {
            let start = Instant::now();
            let schema = Schema::epochs(10, steps / 10).expect("a schema");
            let workload = Workload::prefix_sum(steps);
            let mechanism = Structured::formula(family, 1).factorization(steps).expect("a mechanism");
            let found = evaluate(&mechanism, &schema, &workload).expect("an evaluation");
            assert!(found.loss() > 0.0);
            let ready = start.elapsed().as_secs_f64();

            let start = Instant::now();
            let key = Key::from_seed(1, Cipher::fastest());
            let mut sum = 0.0;
            for first in (0..COORDINATES).step_by(TILE) {
                let noise = mechanism.noise(&gaussians(&key, mechanism.inputs(), first));
                sum += noise[(steps - 1, 0)];
            }
            let seconds = start.elapsed().as_secs_f64();
            std::hint::black_box(sum);
            let each = 1e9 * seconds / (steps * COORDINATES) as f64;
            println!("{:<12} {steps:>8} {ready:>8.3} s {seconds:>8.3} s {each:>22.1}", family.name());
        }
    }
}

/// A tile of Z.
fn gaussians(key: &Key, rows: usize, first: usize) -> Matrix {
    let drawn: Vec<Vec<f64>> = (0..rows)
        .into_par_iter()
        .map(|row| {
            let mut numbers = vec![0.0; TILE];
            key.fill(row as u64, first as u64, &mut numbers);
            numbers
        })
        .collect();
    Matrix::from_fn(rows, TILE, |i, j| drawn[i][j])
}
