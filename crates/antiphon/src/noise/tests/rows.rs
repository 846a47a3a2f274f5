//! Streams: every mechanism, against the definition, and the same bits however they are drawn.

use super::*;
use crate::families;
use crate::families::comb::testing::{noise_of, random_comb_of};
use crate::linalg::dense;
use crate::mechanism::family::{Parameters, Stamp};
use crate::mechanism::{DenseFactorization, Factorization, Noise, NoisingMatrix, Structured};
use std::io::Read;
use std::ops::Range;

const STEPS: usize = 75;
const WIDTH: u64 = 600;
const STDDEV: f64 = 0.7;

fn key() -> Key {
    Key::from_seed(5, Cipher::Aes256Ctr)
}

fn dense_noise() -> Noise {
    let entry = |i: usize, j: usize| if i == j { 1.0 } else { ((i * 31 + j * 17) % 23) as f64 * 0.01 - 0.1 };
    let packed: Vec<f64> = (0..STEPS).flat_map(|i| (0..=i).map(move |j| entry(i, j))).collect();
    Noise::Dense(NoisingMatrix::from_packed(STEPS, &packed).unwrap())
}

/// All kinds, with one stamp and with several of different lengths.
fn mechanisms() -> Vec<(String, Noise)> {
    let mut all = vec![("dense".into(), dense_noise())];
    for family in families::formulas() {
        for stamps in [1, 4] {
            let structured = Structured::formula(family, stamps);
            all.push((structured.describe(), Noise::Structured(structured)));
        }
    }
    // One whose last epoch is not complete, and one of a single epoch.
    for period in [20, 75] {
        all.push((format!("comb-blt, period {period}"), noise_of(&random_comb_of(STEPS, period, 1))));
    }
    all
}

fn stream(noise: &Noise, columns: Range<u64>, memory: usize) -> Rows {
    Rows::new(noise, STEPS, &key(), STDDEV, columns, memory).unwrap()
}

/// The rows from the position on, as bits.
fn all(mut rows: Rows) -> Vec<Vec<u32>> {
    (rows.position()..rows.steps())
        .map(|_| {
            let mut row = vec![0.0; rows.coordinates()];
            rows.next_into(&mut row).unwrap();
            row.iter().map(|x| x.to_bits()).collect()
        })
        .collect()
}

fn columns_of(whole: &[Vec<u32>], columns: &Range<u64>) -> Vec<Vec<u32>> {
    whole.iter().map(|row| row[columns.start as usize..columns.end as usize].to_vec()).collect()
}

#[test]
fn rows_are_those_of_the_factorization() {
    for (name, noise) in mechanisms() {
        let factorization: Box<dyn Factorization> = match &noise {
            Noise::Dense(noising) => Box::new(DenseFactorization::new(noising.clone()).unwrap()),
            Noise::Structured(structured) => Box::new(structured.factorization(STEPS).unwrap()),
            Noise::Implicit { .. } => unreachable!(),
        };
        let drawn: Vec<Vec<f32>> =
            (0..factorization.inputs()).map(|s| drawn(&key(), s as u64, 0, WIDTH as usize)).collect();
        let z = dense::from_fn(factorization.inputs(), WIDTH as usize, |i, j| f64::from(drawn[i][j]));
        let slow = factorization.noise(&z);
        for (t, row) in all(stream(&noise, 0..WIDTH, 1 << 20)).iter().enumerate() {
            for (j, bits) in row.iter().enumerate() {
                let (fast, slow) = (f64::from(f32::from_bits(*bits)), STDDEV * slow[(t, j)]);
                // Single precision, and the margin of dense weights.
                assert!((fast - slow).abs() < 1e-5 * (1.0 + slow.abs()), "{name} {t} {j}: {fast} {slow}");
            }
        }
    }
}

#[test]
fn rows_are_the_same_for_any_memory_range_thread_and_start() {
    for (name, noise) in mechanisms() {
        let whole = all(stream(&noise, 0..WIDTH, usize::MAX));
        for memory in [0, 7 * 3072, 40 * 3072] {
            assert_eq!(all(stream(&noise, 0..WIDTH, memory)), whole, "{name} {memory}");
        }
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let rows = pool.install(|| all(stream(&noise, 0..WIDTH, 50_000)));
            assert_eq!(rows, whole, "{name}, {threads} threads");
        }
        for columns in [0..1, 13..200, 255..257, 256..512, 599..600] {
            let rows = all(stream(&noise, columns.clone(), 10_000));
            assert_eq!(rows, columns_of(&whole, &columns), "{name} {columns:?}");
        }
        let mut rows = stream(&noise, 0..WIDTH, 20 * 3072);
        for step in [74, 3, 18, 19, 20, 60, 61, 0, 0] {
            rows.seek(step).unwrap();
            for row in &whole[step..(step + 3).min(STEPS)] {
                let mut fast = vec![0.0; WIDTH as usize];
                rows.next_into(&mut fast).unwrap();
                let fast: Vec<u32> = fast.iter().map(|x| x.to_bits()).collect();
                assert_eq!(fast, *row, "{name} {step}");
            }
        }
    }
}

#[test]
fn tables_are_the_same_rows_in_any_pieces() {
    let numbers = |table: &Table, part: &Part, memory: usize, start: u64| -> Vec<u32> {
        let mut file = tempfile::tempfile().unwrap();
        let pieces = table.pieces(part.coordinates.start, memory);
        pieces.into_iter().for_each(|piece| table.write(piece, &file, start).unwrap());
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let bytes = &bytes[start as usize..];
        assert_eq!(Some(bytes.len() as u64), part.bytes());
        bytes.as_chunks().0.iter().map(|x| u32::from_le_bytes(*x)).collect()
    };
    for (name, noise) in mechanisms() {
        let whole = all(stream(&noise, 0..WIDTH, usize::MAX));
        let prepared = Prepared::new(&noise, STEPS, STDDEV).unwrap();
        for (step, coordinate) in [(0, 0), (74, 599), (20, 255), (33, 256), (51, 17)] {
            let number = prepared.number(&key(), step, coordinate).unwrap();
            assert_eq!(number.to_bits(), whole[step][coordinate as usize], "{name} {step} {coordinate}");
        }
        for (rows, columns, memory) in
            [(0..75, 0..600, 1 << 20), (0..75, 5..600, 0), (17..23, 300..513, 6200)]
        {
            let part = Part { rows: rows.clone(), coordinates: columns.clone() };
            let table = prepared.table(&key(), part.clone()).unwrap();
            let expected = columns_of(&whole[rows.clone()], &columns).concat();
            assert_eq!(numbers(&table, &part, memory, 0), expected, "{name} {rows:?} {columns:?}");
            assert_eq!(numbers(&table, &part, memory, 128), expected, "{name}, after a header");
            let covered: Vec<u64> = table.pieces(columns.start, memory).flatten().collect();
            assert_eq!(covered, columns.collect::<Vec<u64>>());
        }
    }
}

/// Literal values: a stream never changes silently. Made by this code when it was written; the field beneath it has its own
/// (known_values.rs), and `rows_are_those_of_the_factorization` says that they are right.
#[test]
fn values_are_stable() {
    let found: Vec<String> = mechanisms()
        .iter()
        .map(|(name, noise)| {
            let rows = all(stream(noise, 0..WIDTH, 1 << 20));
            let at = [(0, 0), (40, 300), (74, 599)].map(|(t, j)| format!("{:08x}", rows[t][j]));
            format!("{name}: {}", at.join(" "))
        })
        .collect();
    let expected = [
        "dense: be309187 3f1acdfb 3cae93e0",
        "identity: be309170 3c8bf2bb 3ec45247",
        "identity, 4 stamps: be309170 3c8bf2bb 3ec45247",
        "tree-online: be309170 3c8bf2bb bf5974da",
        "tree-online, 4 stamps: be309170 bf0e1404 bfbc4342",
        "tree-optimal: bd316376 3e75919e be2c1b41",
        "tree-optimal, 4 stamps: be8bf562 be8a3b14 bea6d695",
        "fft: bf85b3c0 3dc7a9a8 3fd0ee70",
        "fft, 4 stamps: bf1b971a bf3fa87d 3f9ae347",
        "fft-optimal: bf7c8551 3dd4cf06 3fdcbeb9",
        "fft-optimal, 4 stamps: be991d88 bf28ec9e 3f749083",
        "comb-blt, period 20: be385912 3d09971a 3ee12e55",
        "comb-blt, period 75: bde7b4a4 3ebb83a8 3f18d3ad",
    ];
    assert_eq!(found, expected);
}

#[test]
fn ids_tell_streams_apart() {
    let ids: Vec<String> =
        mechanisms().iter().map(|(_, noise)| stream(noise, 0..4, 0).id().to_owned()).collect();
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(id.len(), 64);
        // One stamp or four, independent noise is the same, but its name is not.
        assert!(!ids[..i].contains(id), "{i}");
    }
    let other = Rows::new(&dense_noise(), STEPS, &key(), 0.8, 0..4, 0).unwrap();
    assert_ne!(other.id(), ids[0]);
    assert_eq!(stream(&dense_noise(), 2..9, 1 << 20).id(), ids[0]);
}

/// The largest σ that a message allows gives finite numbers; the next larger ones are refused before anything is drawn.
#[test]
fn no_number_overflows() {
    for (name, noise) in mechanisms() {
        let refused = |stddev: f64| Prepared::new(&noise, STEPS, stddev).err().map(|e| e.to_string());
        let text = refused(1e38).unwrap_or_else(|| panic!("{name}"));
        assert!(text.contains("no number of this noise overflows") && text.ends_with("got 1e38"), "{text}");
        let limit: f64 = text["stddev must be at most ".len()..].split(',').next().unwrap().parse().unwrap();
        assert!(limit > 1e35, "{name} {limit}");
        let mut rows = Rows::new(&noise, STEPS, &key(), limit, 0..WIDTH, 1 << 20).unwrap();
        let mut row = [0.0; WIDTH as usize];
        for _ in 0..STEPS {
            rows.next_into(&mut row).unwrap();
            assert!(row.iter().all(|x| x.is_finite()), "{name}");
        }
        assert!(refused(limit * 1.02).is_some(), "{name} {limit}");
    }
}

/// What the limit rests on: no row of W has larger weights than the bound says.
#[test]
fn rows_of_w_are_within_their_bound() {
    for steps in [1, 2, 3, 5, 8, 31, 64, 100] {
        for family in families::formulas() {
            let factorization = Structured::formula(family, 1).factorization(steps).unwrap();
            let w = factorization.noise(&dense::identity(factorization.inputs()));
            let row = |t: usize| (0..w.ncols()).map(|s| w[(t, s)].abs()).sum::<f64>();
            let largest = (0..steps).map(row).fold(0.0, f64::max);
            let one = Stamp { number: 0, steps, lengths: &[steps], parameters: &Parameters::default() };
            let bound = family.kernel(&one, 1.0).unwrap().row_sum();
            assert!(largest <= bound && bound < 30.0 * largest, "{family:?} {steps}: {largest} {bound}");
        }
    }
}

#[test]
fn the_end_and_wrong_arguments_are_errors() {
    for (_, noise) in mechanisms() {
        let mut rows = stream(&noise, 4..8, 0);
        assert!(rows.next_into(&mut [0.0; 3]).unwrap_err().to_string().contains("4 numbers long, got 3"));
        rows.seek(STEPS - 1).unwrap();
        rows.next_into(&mut [0.0; 4]).unwrap();
        let end = rows.next_into(&mut [0.0; 4]).unwrap_err().to_string();
        assert_eq!(end, "the noise has ended: the mechanism has 75 steps");
        assert_eq!(rows.position(), STEPS);
        assert_eq!(rows.seek(76).unwrap_err().to_string(), "step must be in 0..=75, got 76");
        assert!(Rows::new(&noise, STEPS, &key(), f64::NAN, 0..1, 0).is_err());
        let empty = Rows::new(&noise, STEPS, &key(), 1.0, 5..5, 0).err().unwrap().to_string();
        assert!(empty.contains("not empty"), "{empty}");
        let prepared = Prepared::new(&noise, STEPS, STDDEV).unwrap();
        let outside = Part { rows: 70..76, coordinates: 0..1 };
        let outside = prepared.table(&key(), outside).err().unwrap().to_string();
        assert_eq!(outside, "the range of rows must be not empty, and within 0..75, got 70..76");
    }
}
