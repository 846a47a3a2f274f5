//! Clients per second of a federated round with the window model: local training, norm, clipped sum.
//!
//! `cargo bench -p antiphon-train --bench client [-- seconds]`: V = 1000, D = 32, 64 positions per client in batches of 32, on one thread
//! and on all. `… --bench client -- update FOLDER J` reads `theta` (f32), `contexts` and `labels` (u32) there, little endian, and writes
//! `update`: for comparison with other software.

use antiphon::clip::Clip;
use antiphon::noise::{Cipher, Key};
use antiphon_train::federated::client as sent;
use antiphon_train::federated::window::{Local, Positions, Schedule, Window};
use std::fs;
use std::time::{Duration, Instant};

const VOCABULARY: usize = 1000;
const WIDTH: usize = 32;
const POSITIONS: usize = 64;
const SCHEDULE: Schedule = Schedule { rate: 1.0, batch: 32, epochs: 1, steps: None };

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "update") {
        return update(&arguments[at + 1], arguments[at + 2].parse().expect("J"));
    }
    let seconds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(2.0);
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    for context in [4, 7] {
        for threads in [1, all] {
            let rate = rate(context, threads, Duration::from_secs_f64(seconds));
            println!("J={context}: {rate:.0} clients/s on {threads} threads");
        }
    }
}

/// Clients per second: the best of short stretches, added up over threads, because other work on a machine comes and goes.
fn rate(context: usize, threads: usize, duration: Duration) -> f64 {
    let window = Window::new(VOCABULARY, WIDTH, context).expect("sizes");
    let theta = window.initial(&Key::from_seed(1, Cipher::ChaCha20));
    std::thread::scope(|scope| {
        let one = |seed: usize| one(window, &theta, seed as u64, duration);
        let handles: Vec<_> = (0..threads).map(|seed| scope.spawn(move || one(seed))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread")).sum()
    })
}

/// One thread with its own memory and sum.
fn one(window: Window, theta: &[f32], seed: u64, duration: Duration) -> f64 {
    const STRETCH: usize = 10;
    let clients: Vec<(Vec<u32>, Vec<u32>)> =
        (0..STRETCH).map(|i| client(window.context(), seed * STRETCH as u64 + i as u64)).collect();
    let clip = Clip::new(1.0, window.parameters()).expect("a norm");
    let (mut local, mut sum) = (Local::new(&window), vec![0f64; window.parameters()]);
    let (begin, mut best) = (Instant::now(), 0f64);
    while begin.elapsed() < duration {
        let start = Instant::now();
        for (contexts, labels) in &clients {
            local.train(theta, Positions { contexts, labels }, SCHEDULE);
            sent::add(clip, sent::ZERO_THRESHOLD, local.update(), &mut sum);
        }
        best = best.max(STRETCH as f64 / start.elapsed().as_secs_f64());
    }
    best
}

/// Windows over a line of random tokens, with the beginning of the line before it.
fn client(context: usize, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut normals = vec![0f64; POSITIONS];
    Key::from_seed(seed, Cipher::ChaCha20).fill_f64(0, 0, &mut normals);
    let labels: Vec<u32> =
        normals.iter().map(|x| 1 + (x.abs() * 1e6) as u32 % (VOCABULARY as u32 - 1)).collect();
    let line = [vec![0; context], labels.clone()].concat();
    (line.windows(context).take(POSITIONS).flatten().copied().collect(), labels)
}

/// The update of one client from files.
fn update(folder: &str, context: usize) {
    let read = |name: &str| -> Vec<[u8; 4]> {
        let bytes = fs::read(format!("{folder}/{name}")).expect(name);
        bytes.as_chunks::<4>().0.to_vec()
    };
    let numbers = |name: &str| -> Vec<u32> { read(name).into_iter().map(u32::from_le_bytes).collect() };
    let theta: Vec<f32> = read("theta").into_iter().map(f32::from_le_bytes).collect();
    let window = Window::new(VOCABULARY, WIDTH, context).expect("sizes");
    let mut local = Local::new(&window);
    let (contexts, labels) = (numbers("contexts"), numbers("labels"));
    local.train(&theta, Positions { contexts: &contexts, labels: &labels }, SCHEDULE);
    let bytes: Vec<u8> = local.update().iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(format!("{folder}/update"), bytes).expect("update");
}
