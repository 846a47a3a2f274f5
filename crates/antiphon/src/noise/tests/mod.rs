//! The field: any range, known answers, and the same bits with and without a vector unit.

mod ciphers;
mod combs;
mod known_values;
mod oracle;
mod rows;
mod statistics;

use super::*;

fn drawn<T: Normal>(key: &Key, step: u64, first: u64, count: usize) -> Vec<T> {
    let mut out = vec![T::default(); count];
    key.fill(step, first, &mut out);
    out
}

fn ranges_agree<T: Normal + PartialEq + std::fmt::Debug>(cipher: Cipher) {
    let key = Key::from_seed(1, cipher);
    let whole: Vec<T> = drawn(&key, 3, 0, 5000);
    for first in (0..40).chain([255, 256, 257, 1000, 1023, 1024, 2000]) {
        for count in (0..40).chain([100, 1023, 1024, 1025, 2100]) {
            let part: Vec<T> = drawn(&key, 3, first as u64, count);
            assert_eq!(part, whole[first..first + count], "{first} {count}");
        }
    }
    // On threads, with tasks of which the first begins within a group.
    let whole: Vec<T> = drawn(&key, 4, 5, 300_000);
    let mut parallel = vec![T::default(); whole.len()];
    key.fill_parallel(4, 5, &mut parallel);
    assert!(parallel == whole);
    key.fill_parallel(4, 5, &mut parallel[..7]);
    assert_eq!(parallel[..7], whole[..7]);
    // Far out, across the 2³² blocks where a narrower counter would begin again.
    let far = (16 << 32) - 500;
    let whole: Vec<T> = drawn(&key, u64::MAX, far, 1000);
    assert_eq!(drawn::<T>(&key, u64::MAX, far + 499, 3), whole[499..502]);
    assert_ne!(drawn::<T>(&key, u64::MAX, 0, 500), whole[500..]);
    let last: Vec<T> = drawn(&key, 0, u64::MAX - 30, 31);
    assert_eq!(drawn::<T>(&key, 0, u64::MAX - 1, 1), last[29..30]);
}

#[test]
fn every_range_agrees_with_the_whole() {
    for cipher in Cipher::ALL {
        ranges_agree::<f32>(cipher);
        ranges_agree::<f64>(cipher);
    }
}

#[test]
#[should_panic(expected = "beyond 2^64")]
fn ranges_end_at_the_last_coordinate() {
    drawn::<f32>(&Key::from_seed(1, Cipher::ChaCha20), 0, u64::MAX, 2);
}

#[test]
fn keys_ciphers_and_steps_differ() {
    for cipher in Cipher::ALL {
        let here: Vec<f64> = drawn(&Key::from_seed(1, cipher), 0, 0, 100);
        let others = [
            drawn(&Key::from_seed(2, cipher), 0, 0, 100),
            drawn(&Key::from_seed(1, cipher), 1, 0, 100),
            drawn(&Key::from_seed(1, cipher), 1 << 32, 0, 100),
            drawn(&Key::from_seed(1, cipher), 0, 100, 100),
        ];
        for other in &others {
            let other: &Vec<f64> = other;
            assert!(here.iter().zip(other).all(|(x, y)| x != y));
        }
        let fresh = || drawn::<f64>(&Key::from_os(cipher).unwrap(), 0, 0, 1);
        assert_ne!(fresh(), fresh());
    }
    let [aes, chacha] = Cipher::ALL.map(|cipher| drawn::<f64>(&Key::from_seed(1, cipher), 0, 0, 100));
    assert!(aes.iter().zip(&chacha).all(|(x, y)| x != y));
}

#[test]
fn words_are_the_stream_and_derived_keys_are_others() {
    for cipher in Cipher::ALL {
        let key = Key::from_seed(1, cipher);
        let mut words = vec![0; 5000];
        key.fill_words(3, &mut words);
        let mut bytes = vec![[0; 64]; 625];
        key.stream.words(3, 0, &mut bytes);
        let expected: Vec<u64> =
            bytes.as_flattened().as_chunks().0.iter().map(|x| u64::from_le_bytes(*x)).collect();
        assert_eq!(words, expected);
        key.fill_words(3, &mut words[..13]);
        assert_eq!(words, expected);
        let same = Key::from_seed(1, cipher);
        let ([a, b], [other]) = (same.split(["a", "b"]), Key::from_seed(2, cipher).split(["a"]));
        let keys = [a, b, other, key];
        for (i, key) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|other| other.fingerprint() != key.fingerprint()));
        }
        // Stable: seeded runs must be the same tomorrow.
        let mut word = [0];
        keys[0].fill_words(0, &mut word);
        let expected =
            if cipher == Cipher::Aes256Ctr { 10_595_784_018_037_335_395 } else { 4_220_101_905_551_348_171 };
        assert_eq!(word[0], expected, "{cipher}");
    }
}

/// The single precision field is the double precision one, but for rounding and the bits of the angle that it leaves out.
#[test]
fn both_types_are_one_field() {
    for cipher in Cipher::ALL {
        let key = Key::from_seed(5, cipher);
        let (single, double): (Vec<f32>, Vec<f64>) = (drawn(&key, 9, 3, 100_000), drawn(&key, 9, 3, 100_000));
        for (x, y) in single.iter().zip(&double) {
            assert!((f64::from(*x) - y).abs() < 4.0 * 2f64.powi(-24) * y.abs() + 1e-8, "{x} {y}");
        }
    }
}

#[test]
fn the_secret_is_not_printed() {
    let key = Key::from_bytes([0xab; 32], Cipher::Aes256Ctr);
    assert_eq!(format!("{key:?}"), "Key(aes256-ctr, ..)");
    assert_eq!(key.describe(), "gaussian field 1, aes256-ctr");
    assert_eq!(Key::from_seed(1, Cipher::ChaCha20).describe(), "gaussian field 1, chacha20");
    for cipher in Cipher::ALL {
        assert_eq!(Cipher::from_name(cipher.name()).unwrap(), cipher);
    }
    let refused = Cipher::from_name("rc4").unwrap_err().to_string();
    assert_eq!(refused, "cipher must be aes256-ctr or chacha20, got rc4");
}
