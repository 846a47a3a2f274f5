//! The field: any range, known answers, and whether it is normal.

use super::*;
use std::f64::consts::FRAC_1_SQRT_2;

/// Samples of the statistical tests.
const SAMPLES: usize = 1_000_000;

fn drawn(key: &Key, row: u64, first: u64, count: usize) -> Vec<f64> {
    let mut out = vec![f64::NAN; count];
    key.normals(row, first, &mut out);
    out
}

#[test]
fn every_range_agrees_with_the_whole() {
    let key = Key::from_seed(1);
    let whole = drawn(&key, 3, 0, 1000);
    for first in (0..40).chain([255, 256, 257, 511, 700]) {
        for count in (0..20).chain([100, 248, 249, 256, 257, 300]) {
            assert_eq!(drawn(&key, 3, first as u64, count), whole[first..first + count], "{first} {count}");
        }
    }
    // Far out, across the 2³² blocks where a narrower counter would begin again.
    let far = (8 << 32) - 500;
    let whole = drawn(&key, u64::MAX, far, 1000);
    assert_eq!(drawn(&key, u64::MAX, far + 499, 3), whole[499..502]);
    assert_ne!(drawn(&key, u64::MAX, 0, 500), whole[500..]);
    assert!(drawn(&key, 0, u64::MAX, 1)[0].is_finite());
}

#[test]
fn keys_and_rows_differ() {
    let here = drawn(&Key::from_seed(1), 0, 0, 100);
    let next_row = drawn(&Key::from_seed(1), 1, 0, 100);
    let next_key = drawn(&Key::from_seed(2), 0, 0, 100);
    let far_row = drawn(&Key::from_seed(1), 1 << 32, 0, 100);
    for i in 0..100 {
        assert!(here[i] != next_row[i] && here[i] != next_key[i] && here[i] != far_row[i]);
    }
    assert_ne!(Key::from_os().unwrap().0, Key::from_os().unwrap().0);
}

#[test]
fn the_key_is_not_printed() {
    assert_eq!(format!("{:?}", Key([0xab; 32])), "Key(..)");
}

/// RFC 8439, section 2.3.2. Its nonce has 96 bits, of which the first 32 are the upper half of our counter.
#[test]
fn chacha20_gives_the_block_of_rfc_8439() {
    let key = Key(std::array::from_fn(|i| i as u8));
    let mut block = [0; 64];
    key.words(0x4a00_0000, 0x0900_0000 << 32 | 1).fill_bytes(&mut block);
    let expected = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e\
                    d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e";
    let hex: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
    // And `normals` reads that block: the counter there is coordinate / 8.
    let word = |i: usize| u64::from_le_bytes(block[8 * i..8 * i + 8].try_into().unwrap());
    let first = (0x0900_0000 << 32 | 1) * 8;
    let pairs: Vec<f64> = (0..4).flat_map(|p| normal_pair(word(2 * p), word(2 * p + 1))).collect();
    assert_eq!(drawn(&key, 0x4a00_0000, first, 8), pairs);
}

/// A change of these is a change of every seeded run.
#[test]
fn values_stay() {
    let here = drawn(&Key::from_seed(42), 7, 1000, 4);
    assert_eq!(here, [-0.2479296982049731, 0.4940251242498901, 0.9347853980570933, 0.7991257740147847]);
}

#[test]
fn the_radius_is_finite_and_reaches_ten() {
    let last = radius(0, 0);
    assert!((last - (2.0 * 74.0 * 2f64.ln()).sqrt()).abs() < 1e-14, "{last}");
    assert!(last > 10.0);
    // The largest u rounds to one.
    assert_eq!(radius(u64::MAX, 511), 0.0);
    // Each bit below the word counts where it matters, and the radius falls as u grows.
    assert!(radius(0, 0) > radius(0, 1) && radius(0, 511) > radius(1, 0));
    for bit in 0..64 {
        let here = radius(1 << bit, 0);
        assert!(here.is_finite() && here <= radius((1 << bit) - 1, 511));
        assert!((here - (2.0 * f64::from(64 - bit) * 2f64.ln()).sqrt()).abs() < 2e-3);
    }
}

#[test]
fn the_direction_goes_round_the_circle() {
    for i in 0..4096u64 {
        let word = i << 52;
        let (sine, cosine) = direction(word);
        assert!((sine * sine + cosine * cosine - 1.0).abs() < 1e-15);
        // The quadrant, then the signed rest of it.
        let rest = ((i << 54) as i64 >> 54) as f64 / 1024.0;
        let angle = ((i >> 10) as f64 + rest) * FRAC_PI_2;
        assert!((sine - angle.sin()).abs() < 2e-15 && (cosine - angle.cos()).abs() < 2e-15);
    }
    for word in [0, u64::MAX, 1 << 61, (1 << 61) - 1, 1 << 63] {
        let [x, y] = normal_pair(0, word);
        assert!(x.is_finite() && y.is_finite() && x.hypot(y) > 9.41);
    }
}

/// Each at α = 10⁻³ two-sided: 3.29 standard errors.
#[test]
fn moments_are_those_of_a_normal() {
    let sample = drawn(&Key::from_seed(2024), 0, 0, SAMPLES);
    let root = (SAMPLES as f64).sqrt();
    let moment = |power: i32| sample.iter().map(|x| x.powi(power)).sum::<f64>() / SAMPLES as f64;
    // The variance of xᵏ is E x²ᵏ − (E xᵏ)²: 1, 2, 15, 96.
    for (power, mean, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0f64)] {
        let errors = (moment(power) - mean) * root / variance.sqrt();
        assert!(errors.abs() < 3.29, "moment {power}: {errors} standard errors");
    }
}

/// Each at α = 10⁻³ two-sided: normals of one pair, of neighbouring pairs and blocks, and their squares.
#[test]
fn neighbours_are_not_correlated() {
    let key = Key::from_seed(2025);
    let sample = drawn(&key, 0, 0, SAMPLES);
    let below = drawn(&key, 1, 0, SAMPLES);
    let root = (SAMPLES as f64).sqrt();
    let check = |name: &str, other: &[f64]| {
        let pairs = || sample.iter().zip(other);
        let count = pairs().count() as f64;
        let plain = pairs().map(|(x, y)| x * y).sum::<f64>() / count * root;
        let squares = pairs().map(|(x, y)| (x * x - 1.0) * (y * y - 1.0) / 2.0).sum::<f64>() / count * root;
        assert!(plain.abs() < 3.29 && squares.abs() < 3.29, "{name}: {plain}, {squares} standard errors");
    };
    for lag in [1, 2, 8, 32] {
        check(&format!("lag {lag}"), &sample[lag..]);
    }
    check("the next row", &below);
}

/// Kolmogorov and Smirnov: √n·sup|F_n − Φ| exceeds 1.95 with probability 10⁻³.
#[test]
fn the_distribution_is_normal() {
    let mut sample = drawn(&Key::from_seed(2026), 0, 0, SAMPLES);
    sample.sort_by(f64::total_cmp);
    let distance = sample.iter().enumerate().fold(0.0f64, |distance, (i, x)| {
        let normal = 0.5 * libm::erfc(-x * FRAC_1_SQRT_2);
        let (before, after) = (i as f64 / SAMPLES as f64, (i + 1) as f64 / SAMPLES as f64);
        distance.max(normal - before).max(after - normal)
    });
    let statistic = distance * (SAMPLES as f64).sqrt();
    assert!(statistic < 1.95, "{statistic}");
}
