//! Noise of combs through `Rows`, as training reads it, and in a table: the time against that of drawing the normals alone, those of earlier epochs
//! drawn again included.
//!
//! Both are measured in turns, so that whatever else the machine does slows both. `-- EPOCHS STEPS-PER-EPOCH COORDINATES` asks for
//! another comb than those below. How much the process grows says what the stream keeps only for short runs: after the verification of a long
//! one there is freed memory that is used again.

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
    let mut row = vec![1.0f32; coordinates]; // it has its memory from here on
    let steps = epochs * period;
    let drawn = |rows: Range<usize>| rows.map(|t| t / period + 1).sum::<usize>();
    let mut compared = Compared::default();
    let turn = steps.div_ceil(TURNS);
    let before = resident();
    for first in (0..steps).step_by(turn) {
        let turn = first..(first + turn).min(steps);
        compared.turn(&key, drawn(turn.clone()) as f64 * coordinates as f64, || {
            turn.into_iter().try_for_each(|_| {
                rows.next_into(&mut row)?;
                black_box(&row);
                Ok(())
            })
        })?;
    }
    println!(
        "{epochs} epochs of {period} steps, {coordinates} coordinates, {}, {} threads: {compared}; the process grew by {:.1} rows of f32",
        key.cipher(),
        rayon::current_num_threads(),
        (resident() - before) / (4.0 * coordinates as f64),
    );
    // The same in a table, without a disk: some columns, piece by piece.
    let coordinates = coordinates.min(TABLE);
    let table = prepared.table(&key, Part { rows: 0..steps, coordinates: 0..coordinates as u64 })?;
    let nowhere = File::create("/dev/null").expect("a file that keeps nothing");
    let mut compared = Compared::default();
    for piece in table.pieces(0, MEMORY) {
        let normals = drawn(0..steps) as f64 * (piece.end - piece.start) as f64;
        compared.turn(&key, normals, || {
            table.write(piece, &nowhere, 0).expect("nothing is kept");
            Ok(())
        })?;
    }
    println!("    a table of {coordinates} of them: {compared}");
    Ok(())
}

/// Noise against drawing alone, both by the clock and in seconds that processors worked for it.
#[derive(Default)]
struct Compared {
    noise: [f64; 2],
    drawing: [f64; 2],
    normals: f64,
}

impl Compared {
    /// Some noise, then a quarter of the normals that it takes.
    fn turn(&mut self, key: &Key, normals: f64, noise: impl FnOnce() -> Result<()>) -> Result<()> {
        let (start, worked) = (Instant::now(), worked());
        noise()?;
        add(&mut self.noise, [start.elapsed().as_secs_f64(), self::worked() - worked]);
        let tasks = (normals as usize / 4).div_ceil(TASK).next_multiple_of(rayon::current_num_threads());
        let (start, worked) = (Instant::now(), self::worked());
        draw(key, tasks);
        let scale = normals / (tasks * TASK) as f64;
        add(&mut self.drawing, [scale * start.elapsed().as_secs_f64(), scale * (self::worked() - worked)]);
        self.normals += normals;
        Ok(())
    }
}

fn add(sums: &mut [f64; 2], seconds: [f64; 2]) {
    sums.iter_mut().zip(seconds).for_each(|(sum, x)| *sum += x);
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Compared { noise, drawing, normals } = self;
        write!(
            f,
            "{:.2} s, drawing alone {:.2} s ({:.0} million normals per second), ratio {:.2}; {:.2} s of processors, drawing alone {:.2} s, ratio {:.2}",
            noise[0],
            drawing[0],
            normals / drawing[0] / 1e6,
            noise[0] / drawing[0],
            noise[1],
            drawing[1],
            noise[1] / drawing[1],
        )
    }
}

/// Draws normals on all threads, none of which leave the second cache.
fn draw(key: &Key, tasks: usize) {
    (0..tasks).into_par_iter().for_each_init(
        || vec![0.0f32; TASK],
        |out, task| {
            key.fill_f32(1 << 40, (task * TASK) as u64, out);
            black_box(out);
        },
    );
}

/// Seconds that the threads of this process have worked, where the system tells: other processes do not count.
fn worked() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    1e-9 * nanoseconds.sum::<f64>()
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
