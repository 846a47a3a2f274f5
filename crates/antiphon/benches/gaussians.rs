//! Normals per second: both types, both ciphers, one thread and all, into a buffer that fits the second cache and into one that
//! fits none. Each figure is the median of several runs over memory that has been touched before.

use antiphon::noise::{Cipher, Key, Normal};
use std::time::Instant;

/// Normals in the small buffer, which is filled over and over.
const SMALL: usize = 1 << 16;
/// Normals in the large buffer.
const LARGE: usize = 50_000_000;
const RUNS: usize = 7;

fn main() {
    println!(
        "{:<12} {:<5} {:>8} {:>17} {:>17}   millions of normals per second",
        "cipher", "type", "threads", "in cache", "in memory"
    );
    for cipher in Cipher::ALL {
        let key = Key::from_seed(1, cipher);
        let mut threads = vec![1, rayon::current_num_threads()];
        threads.dedup();
        for threads in threads {
            measure::<f32>(&key, "f32", threads);
            measure::<f64>(&key, "f64", threads);
        }
    }
}

fn measure<T: Normal>(key: &Key, name: &str, threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    // In cache: every thread has a small buffer of its own.
    let rounds = LARGE / SMALL;
    let small = rate(rounds * SMALL * threads, |run| {
        pool.broadcast(|thread| {
            let mut out = vec![T::default(); SMALL];
            for round in 0..rounds {
                key.fill(run, ((thread.index() * rounds + round) * SMALL) as u64, &mut out);
            }
            std::hint::black_box(&out);
        });
    });
    let mut out = vec![T::default(); LARGE];
    let large = rate(LARGE, |run| {
        pool.install(|| key.fill_parallel(run, 0, &mut out));
        std::hint::black_box(&out);
    });
    println!("{:<12} {name:<5} {threads:>8} {small:>17.0} {large:>17.0}", key.cipher().name());
}

/// Millions per second: the median after one run that does not count.
fn rate(count: usize, mut run: impl FnMut(u64)) -> f64 {
    let mut seconds: Vec<f64> = (0..=RUNS as u64)
        .map(|i| {
            let start = Instant::now();
            run(i);
            start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    seconds.sort_by(f64::total_cmp);
    1e-6 * count as f64 / seconds[RUNS / 2]
}
