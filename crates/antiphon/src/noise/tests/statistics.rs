//! The field of a fixed key passes every test; α is one in a thousand for each.
//!
//! The keys are fixed, so a test that passes will go on passing. The long version, 10⁹ samples of each type and cipher, takes
//! about two minutes on two cores:
//!
//! ```text
//! cargo test --release -p antiphon --lib noise -- --ignored --nocapture
//! ```

use super::*;
use crate::noise::statistics::{CHUNK, OVERLAP, Sums};
use rayon::prelude::*;

fn check(name: &str, sums: &Sums) {
    for test in sums.tests() {
        println!("{name} {:<42} {:>7.3}   p = {:.4}", test.name, test.statistic, test.p_value);
        assert!(test.p_value > 1e-3, "{name}: {} has p = {}", test.name, test.p_value);
    }
}

/// Statistics of the first `chunks` chunks of a step.
fn examine<T: Normal + Into<f64>>(name: &str, key: &Key, chunks: usize) {
    let sums = (0..chunks)
        .into_par_iter()
        .map(|chunk| {
            // Beyond the chunk as far as the longest lag.
            let row = |step: u64| -> Vec<f64> {
                let drawn: Vec<T> = drawn(key, step, (chunk * CHUNK) as u64, CHUNK + OVERLAP);
                drawn.into_iter().map(Into::into).collect()
            };
            Sums::of(&row(1000), &row(1001))
        })
        .reduce(Sums::none, Sums::plus);
    check(&format!("{name} {}", key.cipher()), &sums);
}

#[test]
fn the_field_is_normal_and_independent() {
    let chunks = 10_000_000usize.div_ceil(CHUNK);
    for cipher in Cipher::ALL {
        examine::<f32>("f32", &Key::from_seed(2024, cipher), chunks);
        examine::<f64>("f64", &Key::from_seed(2025, cipher), chunks);
    }
}

#[test]
#[ignore = "10⁹ samples, for a release build"]
fn the_field_is_normal_and_independent_at_length() {
    let chunks = 1_000_000_000usize.div_ceil(CHUNK);
    for cipher in Cipher::ALL {
        examine::<f32>("f32", &Key::from_seed(2026, cipher), chunks);
        examine::<f64>("f64", &Key::from_seed(2027, cipher), chunks);
    }
}

/// The tests can fail: a field that ends at four standard deviations is noticed.
#[test]
#[should_panic(expected = "has p =")]
fn a_field_without_tails_is_noticed() {
    let clipped = |i: usize| {
        let x: Vec<f64> = drawn(&Key::from_seed(1, Cipher::ChaCha20), i as u64, 0, CHUNK + OVERLAP);
        x.into_iter().map(|x| x.clamp(-4.0, 4.0)).collect::<Vec<f64>>()
    };
    let sums = (0..100).map(|i| Sums::of(&clipped(i), &clipped(i + 1))).fold(Sums::none(), Sums::plus);
    check("clipped", &sums);
}
