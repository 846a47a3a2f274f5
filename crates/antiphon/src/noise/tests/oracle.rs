//! The transform against slow ones: Taylor series in twice the precision, and one with the functions of `libm`.

use super::super::fill::Groups;
use super::super::transform::{Bytes, GROUP, LANES};
use super::*;
use pulp::WithSimd;
use std::f64::consts::{FRAC_PI_4, LN_2};
use std::ops::{Add, Mul};

/// Pairs of normals with the functions of `libm`: obvious, and good to about 1e-14 unless u is next to one.
pub fn plain_pair(radius: u64, angle: u64) -> [f64; 2] {
    let u = (radius as f64 + 0.5) / 2f64.powi(64);
    // The upper half counts down from one.
    let u = if radius >> 63 == 0 { u } else { 1.0 - (u - 0.5) };
    let x = ((angle & ((1 << 61) - 1)) as f64 + 0.5) / 2f64.powi(61);
    let (sine, cosine) = libm::sincos(FRAC_PI_4 * x);
    let (first, second) = if angle >> 61 & 1 == 1 { (sine, cosine) } else { (cosine, sine) };
    let sign = |bit: u64| 1.0 - 2.0 * (angle >> bit & 1) as f64;
    let radius = (-2.0 * libm::log(u)).sqrt();
    [radius * sign(63) * first, radius * sign(62) * second]
}

/// A number as a sum of two (Dekker 1971): about 106 bits.
#[derive(Clone, Copy, Debug)]
struct Double(f64, f64);

impl Double {
    fn sum(a: f64, b: f64) -> Double {
        let s = a + b;
        let t = s - a;
        Double(s, (a - (s - t)) + (b - t))
    }
    /// By a power of two.
    fn scaled(self, by: f64) -> Double {
        Double(self.0 * by, self.1 * by)
    }
    fn over(self, by: f64) -> Double {
        let q = self.0 / by;
        let rest = (-q).mul_add(by, self.0) + self.1;
        Double::sum(q, rest / by)
    }
    fn sqrt(self) -> Double {
        let r = self.0.sqrt();
        Double::sum(r, ((-r).mul_add(r, self.0) + self.1) / (2.0 * r))
    }
}

impl Add for Double {
    type Output = Double;
    fn add(self, other: Double) -> Double {
        let (s, t) = (Double::sum(self.0, other.0), Double::sum(self.1, other.1));
        let s = Double::sum(s.0, s.1 + t.0);
        Double::sum(s.0, s.1 + t.1)
    }
}

impl Mul for Double {
    type Output = Double;
    fn mul(self, other: Double) -> Double {
        let p = self.0 * other.0;
        let rest = self.0.mul_add(other.0, -p) + (self.0 * other.1 + self.1 * other.0);
        Double::sum(p, rest)
    }
}

const LN_2_EXACT: Double = Double(LN_2, 2.319_046_813_846_299_6e-17);
const FRAC_PI_4_EXACT: Double = Double(FRAC_PI_4, 3.061_616_997_868_383e-17);

/// −ln(1 − y) = y + y²/2 + y³/3 + …, for y up to one half.
fn minus_log_1m(y: Double) -> Double {
    let (mut sum, mut power) = (Double(0.0, 0.0), y);
    for k in 1..120 {
        sum = sum + power.over(f64::from(k));
        power = power * y;
    }
    sum
}

/// √(−2 ln u) for a radius word.
fn exact_radius(word: u64) -> Double {
    let w = word & (u64::MAX >> 1);
    let scaled = Double::sum((w >> 32) as f64 * 2f64.powi(32), (w & 0xffff_ffff) as f64 + 0.5);
    let (mut m, mut k) = (scaled.scaled(2f64.powi(-64)), 0.0);
    if word >> 63 == 1 {
        return minus_log_1m(m).scaled(2.0).sqrt();
    }
    while m.0 < 0.5 {
        (m, k) = (m.scaled(2.0), k + 1.0);
    }
    let y = Double(1.0, 0.0) + m.scaled(-1.0);
    (LN_2_EXACT * Double(k, 0.0) + minus_log_1m(y)).scaled(2.0).sqrt()
}

/// Cosine and sine for an angle word of which the lowest `unused` bits are left out.
fn exact_direction(word: u64, unused: u32) -> [Double; 2] {
    let m = (word & ((1 << 61) - 1)) >> unused;
    let x = Double::sum((m >> 32) as f64 * 2f64.powi(32), (m & 0xffff_ffff) as f64 + 0.5);
    let angle = FRAC_PI_4_EXACT * x.scaled(2f64.powi(unused as i32 - 61));
    // cos + i·sin = Σ (i·angle)ᵏ/k!.
    let (mut sums, mut term) = ([Double(0.0, 0.0); 2], Double(1.0, 0.0));
    for k in 0..32u32 {
        let sign = if k % 4 < 2 { 1.0 } else { -1.0 };
        sums[k as usize % 2] = sums[k as usize % 2] + term.scaled(sign);
        term = (term * angle).over(f64::from(k + 1));
    }
    let [cosine, sine] = sums;
    let [first, second] = if word >> 61 & 1 == 1 { [sine, cosine] } else { [cosine, sine] };
    let sign = |bit: u64| 1.0 - 2.0 * (word >> bit & 1) as f64;
    [first.scaled(sign(63)), second.scaled(sign(62))]
}

/// Words to groups of bytes, as the layout has them.
fn groups(words: &[(u64, u64)]) -> Vec<Bytes> {
    words
        .chunks(LANES)
        .map(|lanes| {
            let mut bytes = [0; size_of::<Bytes>()];
            for (l, (radius, angle)) in lanes.iter().enumerate() {
                let rows = [radius >> 32, radius & 0xffff_ffff, angle >> 32, angle & 0xffff_ffff];
                for (row, number) in rows.into_iter().enumerate() {
                    bytes[32 * row + 4 * l..][..4].copy_from_slice(&(number as u32).to_le_bytes());
                }
            }
            bytes
        })
        .collect()
}

fn dispatched<T: Normal>(bytes: &[Bytes]) -> Vec<[T; GROUP]> {
    let mut out = vec![[T::default(); GROUP]; bytes.len()];
    pulp::Arch::new().dispatch(Groups { bytes, out: &mut out });
    out
}

/// What a machine without vector unit does: compiled for the least that the target has.
#[inline(never)]
fn portable<T: Normal>(bytes: &[Bytes]) -> Vec<[T; GROUP]> {
    let mut out = vec![[T::default(); GROUP]; bytes.len()];
    Groups { bytes, out: &mut out }.with_simd(pulp::Scalar);
    out
}

/// Numbers of 32 bits where something happens: both ends, and on both sides of every power of two.
fn corners() -> Vec<u64> {
    let mut all: Vec<u64> = (0..32).flat_map(|bit| [1u64 << bit, (1 << bit) - 1, (1 << bit) + 1]).collect();
    all.extend([0xffff_ffff, 0xffff_fffe, 0xaaaa_aaaa, 0x5555_5555, 0x3504_f334, 0xcafe_babe]);
    all.sort_unstable();
    all.dedup();
    all
}

/// Radius words at all corners of both halves, angle words at all corners of the upper half; and random ones.
fn words() -> Vec<(u64, u64)> {
    let corners = corners();
    let mut all = Vec::new();
    for (i, high) in corners.iter().enumerate() {
        for (j, low) in corners.iter().enumerate() {
            for half in 0..2 {
                // Angles go through their corners meanwhile, in another order.
                let angle = corners[(7 * i + 31 * j + half) % corners.len()];
                let octant = (i + 3 * j) as u64 % 8;
                let angle = (angle & 0x1fff_ffff | octant << 29) << 32 | corners[(i + 5 * j) % corners.len()];
                all.push(((*high ^ (half as u64) << 31) << 32 | low, angle));
            }
        }
    }
    let mut random = vec![[0; 64]; 1 << 13];
    Key::from_seed(11, Cipher::ChaCha20).stream.words(0, 0, &mut random);
    all.extend(random.as_flattened().as_chunks::<16>().0.iter().map(|bytes| {
        let word = u128::from_le_bytes(*bytes);
        (word as u64, (word >> 64) as u64)
    }));
    all
}

/// The largest error of pairs, in units of the last place.
fn worst<T: Normal + Into<f64>>(words: &[(u64, u64)], unused: u32, digits: i32) -> f64 {
    let out = dispatched::<T>(&groups(words));
    let mut worst = 0.0f64;
    for (i, (radius, angle)) in words.iter().enumerate() {
        let (group, l) = (&out[i / LANES], i % LANES);
        let r = exact_radius(*radius);
        for (found, direction) in
            [group[l], group[LANES + l]].into_iter().zip(exact_direction(*angle, unused))
        {
            let (found, exact): (f64, Double) = (found.into(), r * direction);
            let unit = 2f64.powi(libm::ilogb(exact.0) + 1 - digits);
            let error = ((found - exact.0) - exact.1).abs() / unit;
            assert!(error < 4.0, "{radius:016x} {angle:016x}: {found:e}, not {:e}; {error} units", exact.0);
            worst = worst.max(error);
        }
    }
    worst
}

#[test]
fn normals_are_within_a_few_units_of_the_exact_ones() {
    let words = words();
    let (single, double) = (worst::<f32>(&words, 32, 24), worst::<f64>(&words, 0, 53));
    println!("{} words: f32 within {single:.2}, f64 within {double:.2} units in the last place", words.len());
    assert!(single < 3.5 && double < 3.5, "{single} {double}");
}

#[test]
fn vectors_change_no_bit() {
    let bytes = groups(&words());
    for (x, y) in portable::<f32>(&bytes).as_flattened().iter().zip(dispatched::<f32>(&bytes).as_flattened())
    {
        assert_eq!(x.to_bits(), y.to_bits());
    }
    for (x, y) in portable::<f64>(&bytes).as_flattened().iter().zip(dispatched::<f64>(&bytes).as_flattened())
    {
        assert_eq!(x.to_bits(), y.to_bits());
    }
}

#[test]
fn the_plain_transform_agrees() {
    for (radius, angle) in words() {
        // Where u is next to one, a subtraction has lost the digits of the plain one.
        if radius >> 50 != 0x2000 {
            let [x, y] = plain_pair(radius, angle);
            let r = exact_radius(radius);
            let [cosine, sine] = exact_direction(angle, 0);
            assert!(
                (x - (r * cosine).0).abs() < 1e-11 && (y - (r * sine).0).abs() < 1e-11,
                "{radius:x} {angle:x}"
            );
        }
    }
}

#[test]
fn radii_reach_from_next_to_nothing_to_nine_and_a_half() {
    let ends = [(0, 0), (1 << 63, 0), (u64::MAX, 0), (u64::MAX >> 1, 0)];
    let (single, double) = (dispatched::<f32>(&groups(&ends))[0], dispatched::<f64>(&groups(&ends))[0]);
    let radius = |l: usize| double[l].hypot(double[LANES + l]);
    assert!((radius(0) - (130.0 * LN_2).sqrt()).abs() < 1e-14 && radius(0) > 9.49);
    assert!((radius(1) - 2f64.powi(-32)).abs() < 1e-24);
    // Both halves end at one half.
    assert!((radius(2) - (2.0 * LN_2).sqrt()).abs() < 1e-15 && radius(2) == radius(3));
    for l in 0..GROUP {
        assert!((f64::from(single[l]) - double[l]).abs() < 1e-6 * double[l].abs() + 1e-8);
    }
}
