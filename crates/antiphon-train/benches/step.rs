//! Examples per second of a private step of the CIFAR-10 network: per-example gradients, clipped and summed.
//!
//! `cargo bench -p antiphon-train --bench step [-- batch [steps]]`; the batch is 500 examples unless told otherwise. The first step is
//! not counted.

use antiphon::noise::{Cipher, Key};
use antiphon_train::engine::{Batch, PerExample};
use antiphon_train::models;
use antiphon_train::network::Initial;
use std::time::Instant;

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let (batch, steps) = (numbers.first().copied().unwrap_or(500), numbers.get(1).copied().unwrap_or(5));
    let network = models::cifar10();
    let parameters = network.initial(Initial::Uniform, &Key::from_seed(1, Cipher::ChaCha20));
    let mut inputs = vec![0f32; batch * network.inputs()];
    Key::from_seed(2, Cipher::ChaCha20).fill_parallel(0, 0, &mut inputs);
    let labels: Vec<u8> = (0..batch).map(|i| (i % 10) as u8).collect();
    let examples: Vec<usize> = (0..batch).collect();
    let batch_view = Batch { inputs: &inputs, labels: &labels, examples: &examples };
    let mut sum = vec![0f64; PerExample::parameters(&network)];
    let mut seconds: Vec<f64> = (0..=steps)
        .map(|_| {
            let start = Instant::now();
            network.clipped_sum(&parameters, batch_view, 1.0, &mut sum).expect("a step");
            start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    seconds.sort_by(f64::total_cmp);
    let rate = batch as f64 / seconds[seconds.len() / 2];
    let memory = peak_memory().map_or("?".into(), |mib| format!("{mib:.0}"));
    println!(
        "{rate:.1} examples/s at batch {batch} on {} threads, {memory} MiB",
        rayon::current_num_threads()
    );
}

/// The most memory this process has had, data included, where Linux tells it.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
