//! Noise of combs through `Rows`, as training reads it, and in a table: the time against that of drawing the normals alone, those of earlier epochs
//! drawn again included.
//!
//! Both are measured in turns, so that whatever else the machine does slows both. `-- EPOCHS STEPS-PER-EPOCH COORDINATES` asks for
//! another comb than those below.

use antiphon::Result;
use antiphon::families::COMB_BLT;
use antiphon::families::comb::{Comb, filter::Filter};
use antiphon::mechanism::{Claims, Noise, Parameters, Structured};
use antiphon::noise::{Cipher, Key, Part, Prepared, Stddev};
use antiphon::schema::Schema;
use antiphon::verify;
use antiphon::workload::Workload;
use rayon::prelude::*;
use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

/// Turns of noise and drawing.
const TURNS: usize = 50;
/// Normals that a thread draws at once: they stay in the second cache.
const TASK: usize = 1 << 16;
/// Columns of the table.
const TABLE: usize = 100_000;
/// Bytes that the stream may use for rows beside its buffers.
const MEMORY: usize = 256 << 20;

fn main() {
    // Beside the numbers, cargo passes words of its own.
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let all = match numbers[..] {
        [] => vec![[20, 100, 1_000_000], [10, 200, 10_000], [1, 200, 1_000_000], [3, 5, 1_000_000]],
        [k, b, d] if k > 0 && b > 0 && d > 0 => vec![[k, b, d]],
        _ => panic!("no numbers, or three that are at least 1: EPOCHS STEPS-PER-EPOCH COORDINATES"),
    };
    for [k, b, d] in all {
        if let Err(error) = measure(k, b, d) {
            println!("{k} epochs of {b} steps, {d} coordinates: {error}");
        }
    }
}

fn measure(epochs: usize, period: usize, coordinates: usize) -> Result<()> {
    let prepared = prepared(epochs, period)?;
    let key = Key::from_seed(1, Cipher::fastest());
    let mut rows = prepared.rows(&key, 0..coordinates as u64, MEMORY)?;
    let mut row = vec![0.0f32; coordinates];
    let (steps, mut noise, mut drawing, mut normals) = (epochs * period, 0.0, 0.0, 0.0);
    let drawn = |rows: Range<usize>, coordinates: usize| {
        rows.map(|t| t / period + 1).sum::<usize>() as f64 * coordinates as f64
    };
    let turn = steps.div_ceil(TURNS);
    row.fill(1.0); // it has its memory from here on
    let before = resident();
    for first in (0..steps).step_by(turn) {
        let last = (first + turn).min(steps);
        let start = Instant::now();
        for _ in first..last {
            rows.next_into(&mut row)?;
            black_box(&row);
        }
        noise += start.elapsed().as_secs_f64();
        let now = drawn(first..last, coordinates);
        drawing += now / speed(&key, now / 4.0);
        normals += now;
    }
    println!(
        "{epochs} epochs of {period} steps, {coordinates} coordinates, {}, {} threads: {noise:.2} s, {:.1} normals per number, \
         drawing alone {drawing:.2} s ({:.0} million per second), ratio {:.2}; memory of {:.1} rows of f32",
        key.cipher(),
        rayon::current_num_threads(),
        normals / (steps * coordinates) as f64,
        normals / drawing / 1e6,
        noise / drawing,
        (resident() - before) / (4.0 * coordinates as f64),
    );
    // The same in a table, without a disk: some columns, piece by piece.
    let coordinates = coordinates.min(TABLE);
    let table = prepared.table(&key, Part { rows: 0..steps, coordinates: 0..coordinates as u64 })?;
    let nowhere = File::create("/dev/null").expect("a file that keeps nothing");
    let normals = drawn(0..steps, coordinates);
    let (mut seconds, mut drawing) = (0.0, 0.0);
    for piece in table.pieces(0, MEMORY) {
        let part = (piece.end - piece.start) as f64 / coordinates as f64 * normals;
        let start = Instant::now();
        table.write(piece, &nowhere, 0).expect("nothing is kept");
        seconds += start.elapsed().as_secs_f64();
        drawing += part / speed(&key, part / 4.0);
    }
    println!(
        "    a table of {coordinates} of them: {seconds:.2} s, drawing alone {drawing:.2} s, ratio {:.2}",
        seconds / drawing
    );
    Ok(())
}

/// Normals per second on all threads, none of which leave the second cache.
fn speed(key: &Key, about: f64) -> f64 {
    let tasks = (about as usize).div_ceil(TASK).next_multiple_of(rayon::current_num_threads());
    let start = Instant::now();
    (0..tasks).into_par_iter().for_each_init(
        || vec![0.0f32; TASK],
        |out, task| {
            key.fill_f32(1 << 40, (task * TASK) as u64, out);
            black_box(out);
        },
    );
    (tasks * TASK) as f64 / start.elapsed().as_secs_f64()
}

/// A comb with four buffers and mixes that are nowhere zero.
fn comb(epochs: usize, period: usize) -> Comb {
    let filter = Filter::new(&[0.9999, 0.99, 0.9, 0.5], &[0.999, 0.95, 0.7, 0.2]).expect("interlaced");
    let entry = |row: usize, column: usize| if row == column { 1.0 } else { 0.3 / (1 + row - column) as f64 };
    let mix = (0..epochs).flat_map(|row| (0..=row).map(move |column| entry(row, column)));
    let mix_knots = if period > 1 { vec![0, period - 1] } else { vec![0] };
    Comb {
        steps: epochs * period,
        period,
        filter,
        mix: mix.collect::<Vec<f64>>().repeat(mix_knots.len()),
        mix_knots,
        gain_knots: vec![0],
        input_gain: vec![1.0; epochs],
        output_gain: vec![1.0; epochs],
        residue_gain: Vec::new(),
    }
}

fn prepared(epochs: usize, period: usize) -> Result<Prepared> {
    let schema = Schema::epochs(epochs, period)?;
    let parameters: Parameters = comb(epochs, period).to_parameters();
    let noise = Noise::Structured(Structured::new(COMB_BLT, 1, parameters));
    // Claims that hold for anything: figures are not what is measured here.
    let claims = Claims { loss: 1e100, lower_bound: None, sensitivity: 1e30 };
    let workload = Workload::prefix_sum(schema.steps());
    let mechanism = antiphon::mechanism::Parts { schema, workload, noise, certificate: None, claims };
    Prepared::of(&verify::verify(mechanism.into())?, Stddev::without_privacy(1.0)?)
}

/// Bytes of memory that the process has, where the system tells.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).map_or(0.0, |kilo: f64| 1024.0 * kilo)
}
