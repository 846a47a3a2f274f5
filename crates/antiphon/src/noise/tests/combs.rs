//! Streams of random combs: the same bits however they are drawn, those of the definition, and through files of buffers.

use super::*;
use crate::families::comb::testing::{noise_of, random_comb, random_comb_of};
use crate::families::{COMB_BLT, TREE_ONLINE};
use crate::linalg::dense;
use crate::mechanism::family::Stamp;
use crate::mechanism::{Noise, Structured};
use crate::testing::Seeded;
use std::io::Read;
use std::path::Path;

const WIDTH: u64 = 300;
const STDDEV: f64 = 0.7;

fn key() -> Key {
    Key::from_seed(6, Cipher::Aes256Ctr)
}

fn stream(noise: &Noise, steps: usize, memory: usize) -> Rows {
    Rows::new(noise, steps, &key(), STDDEV, 0..WIDTH, memory).unwrap()
}

fn next(rows: &mut Rows) -> Vec<u32> {
    let mut row = vec![0.0; rows.coordinates()];
    rows.next_into(&mut row).unwrap();
    row.iter().map(|x| x.to_bits()).collect()
}

fn all(mut rows: Rows) -> Vec<Vec<u32>> {
    (rows.position()..rows.steps()).map(|_| next(&mut rows)).collect()
}

#[test]
fn the_rows_of_random_combs_have_the_same_bits_however_they_are_drawn() {
    let seeded = &mut Seeded(1);
    for number in 0..60 {
        let comb = random_comb(number, 50);
        let (noise, steps) = (noise_of(&comb), comb.steps);
        let whole = all(stream(&noise, steps, usize::MAX));
        assert_eq!(all(stream(&noise, steps, 0)), whole, "{number}: row by row");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1 + seeded.below(4)).build().unwrap();
        assert_eq!(pool.install(|| all(stream(&noise, steps, 20_000))), whole, "{number}: threads");
        // A shard.
        let (start, end) = (seeded.below(280), 281 + seeded.below(20));
        let shard = Rows::new(&noise, steps, &key(), STDDEV, start as u64..end as u64, 30_000).unwrap();
        let part: Vec<Vec<u32>> = whole.iter().map(|row| row[start..end].to_vec()).collect();
        assert_eq!(all(shard), part, "{number}: {start}..{end}");
        // Any order, in groups of any height.
        let mut rows = stream(&noise, steps, 4096 * seeded.below(12));
        for _ in 0..8 {
            let step = seeded.below(steps);
            rows.seek(step).unwrap();
            for row in whole.iter().skip(step).take(1 + seeded.below(5)) {
                assert_eq!(next(&mut rows), *row, "{number}: seek {step}");
            }
        }
        // Single numbers, and a table of some rows.
        let prepared = Prepared::new(&noise, steps, STDDEV).unwrap();
        let (step, coordinate) = (seeded.below(steps), seeded.below(WIDTH as usize));
        let one = prepared.number(&key(), step, coordinate as u64).unwrap();
        assert_eq!(one.to_bits(), whole[step][coordinate], "{number}");
        let table = Part { rows: step..steps, coordinates: start as u64..end as u64 };
        let table = prepared.table(&key(), table).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        table.pieces(start as u64, 0).for_each(|piece| table.write(piece, &file, 0).unwrap());
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let found: Vec<u32> = bytes.as_chunks().0.iter().map(|x| u32::from_le_bytes(*x)).collect();
        assert_eq!(found, part[step..].concat(), "{number}: table");
    }
}

#[test]
fn the_rows_of_random_combs_are_those_of_the_definition() {
    for number in 0..60 {
        let comb = random_comb(number, 50);
        let (n, parameters) = (comb.steps, comb.to_parameters());
        let one = Stamp { number: 0, steps: n, lengths: &[n], parameters: &parameters };
        let w = COMB_BLT.definition(&one).unwrap().noising;
        let drawn: Vec<Vec<f32>> = (0..n).map(|s| drawn(&key(), s as u64, 0, WIDTH as usize)).collect();
        let truth = &w * &dense::from_fn(n, WIDTH as usize, |i, j| f64::from(drawn[i][j]));
        let row_sum = |t: usize| (0..n).map(|s| w[(t, s)].abs()).sum::<f64>();
        for (t, row) in all(stream(&noise_of(&comb), n, 1 << 20)).iter().enumerate() {
            for (j, bits) in row.iter().enumerate() {
                let (fast, slow) = (f64::from(f32::from_bits(*bits)), STDDEV * truth[(t, j)]);
                // One rounding to single precision; sums are in double precision.
                let allowed = 2f64.powi(-24) * slow.abs() * 1.001 + 1e-12 * row_sum(t);
                assert!((fast - slow).abs() <= allowed, "{number} {t} {j}: {fast} {slow}");
            }
        }
        // What keeps numbers from overflowing: no row of W is larger than the bound says.
        let bound = COMB_BLT.kernel(&one, 1.0).unwrap().row_sum();
        let largest = (0..n).map(row_sum).fold(0.0, f64::max);
        assert!(largest <= bound && bound < 20.0 * largest, "{number}: {largest} {bound}");
    }
}

/// Killed at random steps, and gone on with what the last file had: by its buffers, or by all rows from the beginning.
#[test]
fn streams_go_on_from_files_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buffers");
    let seeded = &mut Seeded(2);
    let trees = [1, 3].map(|stamps| (40, Noise::Structured(Structured::formula(TREE_ONLINE, stamps))));
    let combs = (0..30).map(|number| {
        let comb = random_comb(number, 50);
        (comb.steps, noise_of(&comb))
    });
    for (number, (steps, noise)) in combs.chain(trees).enumerate() {
        let whole = all(stream(&noise, steps, usize::MAX));
        let memory = |seeded: &mut Seeded| 4096 * seeded.below(14);
        let mut rows = stream(&noise, steps, memory(seeded));
        let mut step = 0;
        while step < steps {
            rows.save(&path).unwrap();
            for row in whole.iter().skip(step).take(seeded.below(7)) {
                assert_eq!(next(&mut rows), *row, "{number} {step}");
            }
            // Another process, which may have other memory; the rows after the file are lost, or were published.
            rows = stream(&noise, steps, memory(seeded));
            rows.restore(&path).unwrap();
            assert_eq!((rows.position(), rows.seek_cost(step)), (step, 0), "{number}");
            let published = (step + seeded.below(9)).min(steps);
            rows.seek(published).unwrap();
            assert!(rows.seek_cost(published) <= published - step);
            let take = 1 + seeded.below(6);
            let mut replayed = stream(&noise, steps, 0);
            replayed.seek(published).unwrap();
            for row in whole.iter().skip(published).take(take) {
                assert_eq!(next(&mut rows), *row, "{number} {published}");
                assert_eq!(next(&mut replayed), *row, "{number} {published}, from the beginning");
            }
            step = (published + take).min(steps);
        }
        rows.save(&path).unwrap();
        rows.restore(&path).unwrap();
        assert!(rows.next_into(&mut [0.0; WIDTH as usize]).is_err(), "the end");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside it");
}

#[test]
fn seeks_say_what_they_cost() {
    let noise = noise_of(&random_comb_of(40, 10, 1));
    let mut rows = stream(&noise, 40, 0);
    assert_eq!([0, 1, 25, 39, 40].map(|step| rows.seek_cost(step)), [0, 1, 25, 39, 0]);
    (0..20).for_each(|_| drop(next(&mut rows)));
    // Forward from here, or from the beginning; the row that was made last is still there.
    assert_eq!([20, 22, 19, 18, 0].map(|step| rows.seek_cost(step)), [0, 2, 0, 18, 0]);
    let stamped = Noise::Structured(Structured::formula(TREE_ONLINE, 4));
    assert_eq!(stream(&stamped, 40, 0).seek_cost(25), 5, "from the beginning of the stamp");
    let independent = Noise::Structured(Structured::formula(crate::families::IDENTITY, 1));
    assert_eq!(stream(&independent, 40, 0).seek_cost(25), 0);
}

#[test]
fn buffers_that_do_not_belong_or_were_changed_are_refused_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buffers");
    let comb = random_comb_of(40, 10, 1);
    let noise = noise_of(&comb);
    let whole = all(stream(&noise, 40, 1 << 20));
    let mut rows = stream(&noise, 40, 40_000);
    (0..17).for_each(|_| drop(next(&mut rows)));
    rows.save(&path).unwrap();
    let kept = std::fs::read(&path).unwrap();
    let refused = |rows: &mut Rows, path: &Path, reason: &str| {
        let position = rows.position();
        let message = rows.restore(path).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
        assert_eq!(rows.position(), position);
    };
    let another = random_comb_of(40, 10, 2);
    refused(&mut stream(&noise_of(&another), 40, 0), &path, "of another run");
    let mut other_key =
        Rows::new(&noise, 40, &Key::from_seed(7, Cipher::Aes256Ctr), STDDEV, 0..WIDTH, 0).unwrap();
    refused(&mut other_key, &path, "of another run");
    let mut larger = Rows::new(&noise, 40, &key(), 0.8, 0..WIDTH, 0).unwrap();
    refused(&mut larger, &path, "of another run");
    let mut shard = Rows::new(&noise, 40, &key(), STDDEV, 1..WIDTH, 0).unwrap();
    refused(&mut shard, &path, "of other coordinates");
    refused(&mut stream(&noise, 40, 0), &folder.path().join("none"), "none");
    // Any byte: in the line, in the numbers, in the seal; and any length.
    let seeded = &mut Seeded(3);
    let line = kept.iter().position(|byte| *byte == b'\n').unwrap();
    let text = String::from_utf8(kept[..line].to_vec()).unwrap();
    assert!(text.contains("\"position\":17"), "{text}");
    let mut rows = stream(&noise, 40, 0);
    for number in 0..300 {
        let mut changed = kept.clone();
        match number % 6 {
            0 => changed[seeded.below(line)] ^= 1 << seeded.below(7),
            1 => changed[kept.len() - 1 - seeded.below(64)] ^= 1 << seeded.below(7),
            2 => changed.truncate(seeded.below(kept.len())),
            3 => changed.push(0),
            4 => {
                let moved = text.replace("\"position\":17", "\"position\":3");
                changed.splice(..line, moved.into_bytes());
            }
            _ => changed[line + 1 + seeded.below(kept.len() - line - 1)] ^= 1 << seeded.below(8),
        }
        std::fs::write(&path, &changed).unwrap();
        refused(&mut rows, &path, "");
    }
    assert_eq!(next(&mut rows), whole[0]);
    std::fs::write(&path, &kept).unwrap();
    rows.restore(&path).unwrap();
    assert_eq!(next(&mut rows), whole[17]);
}
