//! Box and Muller's transform (1958): random words to pairs of normals, with the same bits everywhere.
//!
//! A lane has a radius word R and an angle word A of 64 bits each. They mean a number u in (0, 1) and an angle; the pair is
//! √(−2 ln u)·(cos, sin). Only integer operations and additions, multiplications, fused multiply-adds, square roots
//! and conversions of IEEE 754 are used, in a fixed order, each of which has one right answer. So the machine, the
//! width of its vectors and the number of threads change nothing. There are no branches: the compiler makes vectors of
//! the loops over lanes.
//!
//! # Radius
//!
//! The top bit of R says which half of (0, 1) has u; the other 63 bits W make v = (W + ½)/2⁶⁴, which is in (0, ½).
//!
//! ```text
//! top bit 0   u = v         −ln u = k·ln 2 − ln(1 − y)   with v = 2⁻ᵏ·(1 − y), y in (0, ½]
//! top bit 1   u = 1 − v     −ln u =        − ln(1 − y)   with y = v
//! ```
//!
//! Nothing cancels: v has all its digits where it is small, far out as well as next to the origin. The largest radius is
//! √(2·65·ln 2) = 9.49, the smallest 2⁻³².
//!
//! # Angle
//!
//! ```text
//! bit 63 of A   the sign of the cosine
//! bit 62        the sign of the sine
//! bit 61        whether they change places
//! the rest M    the angle π/4·x, with x = (M + ½)/2⁶¹ in (0, 1)
//! ```
//!
//! For `f32` the upper 29 of these 61 bits do: x = (M + ½)/2²⁹.

use super::polynomials::{COS_F32, COS_F64, LOG_F32, LOG_F64, SIN_F32, SIN_F64};

/// Pairs of normals in a group, one per lane.
pub const LANES: usize = 8;
/// Normals in a group: first the cosines of all lanes, then the sines.
pub const GROUP: usize = 2 * LANES;
/// The random bytes of a group: four rows of one `u32` per lane, little-endian.
pub type Bytes = [u8; 4 * ROW];
const ROW: usize = 4 * LANES;

/// Groups whose lanes are put side by side: long loops over plain arrays are what compilers make vectors of.
pub const BATCH: usize = 4;
const WIDTH: usize = BATCH * LANES;

/// No normal is larger: the largest radius is 9.49, and rounding adds a few units in the last place.
pub const LARGEST: f64 = 9.5;

/// Row `NUMBER` of all groups side by side.
#[inline(always)]
fn side_by_side<const NUMBER: usize>(bytes: &[Bytes; BATCH], all: &mut [u32; WIDTH]) {
    for (row, bytes) in all.as_chunks_mut::<LANES>().0.iter_mut().zip(bytes) {
        let bytes = bytes[NUMBER * ROW..][..ROW].as_chunks::<4>().0;
        for l in 0..LANES {
            row[l] = u32::from_le_bytes(bytes[l]);
        }
    }
}

/// The normals of a batch.
#[inline(always)]
pub fn batch_f32(bytes: &[Bytes; BATCH], out: &mut [[f32; GROUP]; BATCH]) {
    let (mut high, mut low) = ([0; WIDTH], [0; WIDTH]);
    side_by_side::<0>(bytes, &mut high);
    side_by_side::<1>(bytes, &mut low);
    let mut first = [0.0; WIDTH];
    let mut second = [0.0; WIDTH];
    for i in 0..WIDTH {
        first[i] = radius_f32(high[i], low[i]);
    }
    side_by_side::<2>(bytes, &mut high);
    for i in 0..WIDTH {
        let (cosine, sine) = direction_f32(high[i]);
        let radius = first[i];
        first[i] = radius * cosine;
        second[i] = radius * sine;
    }
    apart(&first, &second, out);
}

/// The normals of a batch.
#[inline(always)]
pub fn batch_f64(bytes: &[Bytes; BATCH], out: &mut [[f64; GROUP]; BATCH]) {
    let (mut high, mut low) = ([0; WIDTH], [0; WIDTH]);
    side_by_side::<0>(bytes, &mut high);
    side_by_side::<1>(bytes, &mut low);
    let mut first = [0.0; WIDTH];
    let mut second = [0.0; WIDTH];
    for i in 0..WIDTH {
        first[i] = radius_f64(high[i], low[i]);
    }
    side_by_side::<2>(bytes, &mut high);
    side_by_side::<3>(bytes, &mut low);
    for i in 0..WIDTH {
        let (cosine, sine) = direction_f64(high[i], low[i]);
        let radius = first[i];
        first[i] = radius * cosine;
        second[i] = radius * sine;
    }
    apart(&first, &second, out);
}

/// Each group's lanes to their places.
#[inline(always)]
fn apart<T: Copy>(first: &[T; WIDTH], second: &[T; WIDTH], out: &mut [[T; GROUP]; BATCH]) {
    let (first, second) = (first.as_chunks::<LANES>().0, second.as_chunks::<LANES>().0);
    for (g, out) in out.iter_mut().enumerate() {
        let (cosines, sines) = out.split_at_mut(LANES);
        cosines.copy_from_slice(&first[g]);
        sines.copy_from_slice(&second[g]);
    }
}

/// √(−2 ln u) from the two halves of a radius word.
#[inline(always)]
fn radius_f32(high: u32, low: u32) -> f32 {
    const TWO_LN_2: f32 = 2.0 * std::f32::consts::LN_2;
    let upper_half = (high as i32) < 0;
    // 2⁶⁴v = 2³²·(high + carry) + (low − 2³²·carry) + ½: both are signed numbers of 32 bits, which every vector unit
    // converts, but for 2³¹, the one that comes out negative. Where the sum is small there is no carry, and all is exact.
    let carried = ((high & 0x7fff_ffff) + (low >> 31)) as i32;
    let scaled = (carried as f32).abs().mul_add(4294967296.0, low as i32 as f32 + 0.5);
    // scaled = 2^(exponent − 126)·mantissa, mantissa in [½, 1), and v = 2⁻⁶⁴·scaled.
    let bits = scaled.to_bits();
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f00_0000);
    let k = (190 - (bits >> 23) as i32) as f32;
    let y = if upper_half { scaled * (1.0 / 18446744073709551616.0) } else { 1.0 - mantissa };
    let k = if upper_half { 0.0 } else { k };
    // −2 ln(1 − y) = 2y + y²·q(y), where q is summed by pairs and fours (Estrin): a chain of multiply-adds would keep the
    // processor waiting.
    let [_, c1, c2, c3, c4, c5, c6, c7, c8] = LOG_F32;
    let (y2, two) = (y * y, |high: f32, low: f32| high.mul_add(y, low));
    let (y4, four) = (y2 * y2, |high: f32, low: f32| high.mul_add(y2, low));
    let q = four(two(c8, c7), two(c6, c5)).mul_add(y4, four(two(c4, c3), two(c2, c1)));
    k.mul_add(TWO_LN_2, q.mul_add(y2, y + y)).sqrt()
}

/// Cosine and sine from the upper half of an angle word.
#[inline(always)]
fn direction_f32(angle: u32) -> (f32, f32) {
    const STEP: f32 = 1.0 / (1 << 29) as f32;
    let x = ((angle & 0x1fff_ffff) as i32 as f32).mul_add(STEP, 0.5 * STEP);
    let s = x * x;
    let [c0, c1, c2, c3] = SIN_F32;
    let sine = x * c3.mul_add(s, c2).mul_add(s, c1).mul_add(s, c0);
    let [c0, c1, c2, c3, c4] = COS_F32;
    let cosine = c4.mul_add(s, c3).mul_add(s, c2).mul_add(s, c1).mul_add(s, c0);
    let swap = ((angle << 2) as i32) < 0;
    let (first, second) = if swap { (sine, cosine) } else { (cosine, sine) };
    let signed = |x: f32, sign: u32| f32::from_bits(x.to_bits() ^ sign & 0x8000_0000);
    (signed(first, angle), signed(second, angle << 1))
}

/// A double at 2⁵² counts by ones: its low 32 bits, set, are a number that a subtraction sets free.
const AT_2_52: u64 = 0x4330_0000_0000_0000;
const TWO_52: f64 = (1u64 << 52) as f64;

/// `number` + `half`, exactly, where `half` is 0 or ½. (Vector units convert signed numbers.)
#[inline(always)]
fn exact(number: u32, half: f64) -> f64 {
    f64::from_bits(u64::from(number) | AT_2_52) - (TWO_52 - half)
}

/// √(−2 ln u) from the two halves of a radius word.
#[inline(always)]
fn radius_f64(high: u32, low: u32) -> f64 {
    const TWO_LN_2: f64 = 2.0 * std::f64::consts::LN_2;
    let upper_half = (high as i32) < 0;
    let scaled = exact(high & 0x7fff_ffff, 0.0).mul_add(4294967296.0, exact(low, 0.5));
    // scaled = 2^(exponent − 1022)·mantissa, mantissa in [½, 1), and v = 2⁻⁶⁴·scaled.
    let bits = scaled.to_bits();
    let mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000);
    let k = (TWO_52 + 1086.0) - f64::from_bits(bits >> 52 | AT_2_52);
    let y = if upper_half { scaled * (1.0 / 18446744073709551616.0) } else { 1.0 - mantissa };
    let k = if upper_half { 0.0 } else { k };
    let [_, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20] =
        LOG_F64;
    let (y2, two) = (y * y, |high: f64, low: f64| high.mul_add(y, low));
    let (y4, four) = (y2 * y2, |high: f64, low: f64| high.mul_add(y2, low));
    let q = four(two(c20, c19), two(c18, c17))
        .mul_add(y4, four(two(c16, c15), two(c14, c13)))
        .mul_add(y4, four(two(c12, c11), two(c10, c9)))
        .mul_add(y4, four(two(c8, c7), two(c6, c5)))
        .mul_add(y4, four(two(c4, c3), two(c2, c1)));
    k.mul_add(TWO_LN_2, q.mul_add(y2, y + y)).sqrt()
}

/// Cosine and sine from the two halves of an angle word.
#[inline(always)]
fn direction_f64(high: u32, low: u32) -> (f64, f64) {
    const HIGH: f64 = 1.0 / (1u64 << 29) as f64;
    const LOW: f64 = 1.0 / (1u64 << 61) as f64;
    let x = exact(high & 0x1fff_ffff, 0.0).mul_add(HIGH, exact(low, 0.5) * LOW);
    let s = x * x;
    let (s2, two) = (s * s, |high: f64, low: f64| high.mul_add(s, low));
    let [c0, c1, c2, c3, c4, c5, c6] = SIN_F64;
    let q = two(c6, c5).mul_add(s2, two(c4, c3)).mul_add(s2, two(c2, c1));
    let sine = x * q.mul_add(s, c0);
    let [c0, c1, c2, c3, c4, c5, c6, c7] = COS_F64;
    let q = c7.mul_add(s2, two(c6, c5)).mul_add(s2, two(c4, c3)).mul_add(s2, two(c2, c1));
    let cosine = q.mul_add(s, c0);
    let swap = ((high << 2) as i32) < 0;
    let (first, second) = if swap { (sine, cosine) } else { (cosine, sine) };
    let signed = |x: f64, sign: u32| f64::from_bits(x.to_bits() ^ u64::from(sign & 0x8000_0000) << 32);
    (signed(first, high), signed(second, high << 1))
}
