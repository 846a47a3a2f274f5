//! Noise of a dense mechanism of 2,000 steps, all rows, within 1 GiB for a million coordinates: the time per step and
//! coordinate, and what the multiply-adds alone would take at the speed of a chain-free loop of them on the same threads.
//!
//! Fewer coordinates than a million are drawn, with the rows per block that a million would have: time is proportional.
//! `-- STEPS COORDINATES` asks for other numbers of them.

use antiphon::mechanism::NoisingMatrix;
use antiphon::noise::{Cipher, Key, Rows, Stddev};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use antiphon::{make, verify};
use rayon::prelude::*;
use std::hint::black_box;
use std::time::Instant;

const STEPS: usize = 2_000;
const COORDINATES: usize = 16_384;
const MODEL: usize = 1_000_000;
/// Of 1 GiB: what is left is for the matrix.
const MEMORY: usize = 900 << 20;

fn main() {
    // Beside the numbers, cargo passes words of its own.
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (steps, coordinates) = match numbers[..] {
        [] => (STEPS, COORDINATES),
        [steps, coordinates] if steps > 0 && coordinates > 0 => (steps, coordinates),
        _ => panic!("no numbers, or two that are at least 1: STEPS COORDINATES; got {numbers:?}"),
    };
    let packed: Vec<f64> =
        (0..steps).flat_map(|i| (0..=i).map(move |j| if i == j { 1.0 } else { 1e-3 })).collect();
    let noising = NoisingMatrix::from_packed(steps, &packed).expect("a triangle");
    let memory = MEMORY / MODEL * coordinates;
    let key = Key::from_seed(1, Cipher::fastest());
    let (schema, workload) = (Schema::single(steps).expect("steps"), Workload::prefix_sum(steps));
    let mechanism = make::dense(noising, &schema, &workload, 1.0, &|_| true).and_then(verify::verify);
    let stddev = Stddev::without_privacy(1.0).expect("positive");
    let mechanism = mechanism.expect("a mechanism");
    let mut stream = Rows::of(&mechanism, &key, stddev, 0..coordinates as u64, memory).expect("a stream");
    let mut row = vec![0.0f32; coordinates];
    let start = Instant::now();
    for _ in 0..steps {
        stream.next_into(&mut row).expect("a row");
        black_box(&row);
    }
    let seconds = start.elapsed().as_secs_f64();
    let flops = (steps * steps) as f64 * coordinates as f64;
    let peak = peak();
    let bare = flops / peak;
    println!(
        "{steps} steps, {coordinates} coordinates, {}: {seconds:.2} s, {:.1} GFLOP/s",
        key.cipher(),
        flops / seconds / 1e9
    );
    println!(
        "multiply-adds alone at the peak of {:.1} GFLOP/s: {bare:.2} s; ratio {:.2}",
        peak / 1e9,
        seconds / bare
    );
    println!("for {MODEL} coordinates: {:.0} s", seconds * MODEL as f64 / coordinates as f64);
}

/// Multiply-adds per second, times two, of loops that keep all their numbers in registers, on all threads.
fn peak() -> f64 {
    const ROUNDS: usize = 4_000_000;
    let run = || {
        let start = Instant::now();
        let threads = rayon::current_num_threads();
        let flops: f64 =
            (0..threads).into_par_iter().map(|_| pulp::Arch::new().dispatch(|| chains(ROUNDS))).sum();
        flops / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| run()).fold(0.0, f64::max)
}

#[inline(always)]
fn chains(rounds: usize) -> f64 {
    let (a, b) = (black_box(0.999f32), black_box(1e-3f32));
    let mut sums = [[0.0f32; 8]; 12];
    for _ in 0..rounds {
        for sum in &mut sums {
            for x in sum {
                *x = x.mul_add(a, b);
            }
        }
    }
    black_box(sums);
    (2 * rounds * 96) as f64
}
