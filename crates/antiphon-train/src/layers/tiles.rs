//! A convolution with fewer multiplications: Winograd's F(2×2, 3×3) (Lavin and Gray 2016, Fast Algorithms for Convolutional Neural
//! Networks, section 4.1).
//!
//! An image is cut into tiles of 2×2 pixels. Such a tile of the output depends on 4×4 pixels of the input, and per pair of channels
//!
//! ```text
//! output = Aᵀ[(G·w·Gᵀ) ∘ (Bᵀ·input·B)]A
//! ```
//!
//! with 16 products instead of 36. Summed over the channels, each of the 16 places is a product of matrices: tiles × channels in, by channels
//! in × channels out. The gradient of the weights is the transpose of the same formula: Gᵀ[Σ_tiles (Bᵀ·input·B) ∘ (A·d·Aᵀ)]G for the gradient d of the
//! output.
//!
//! Every number is a fixed expression of sums and of chains of fused multiply-adds (product.rs): the same bits on every machine. They differ
//! from those of conv.rs in rounding.

use super::Image;
use super::conv::Conv;
use crate::aligned::Aligned;
use crate::product::{Level, Product, Start};
use crate::real::Real;
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// Places of a transformed tile.
const PLACES: usize = 16;
/// Channels must be a multiple of this, a whole number of vectors of every machine.
const PANEL: usize = 16;
/// Tiles that are transformed at a time: few enough to stay in the cache, enough to read every weight for.
const TILES: usize = 64;
/// Numbers at each place of the products of weights that are made before they are transformed back.
const BLOCK: usize = 2048;

/// How far apart the places of so many numbers are in memory. A cache line more than they need: at powers of two, all places
/// would be kept in the same few lines of the cache.
fn apart(numbers: usize) -> usize {
    numbers + PANEL
}

/// Columns of a packed panel of weights for so many channels out: two vectors of the widest machines, where that divides them.
fn panel(outputs: usize) -> usize {
    if outputs.is_multiple_of(2 * PANEL) { 2 * PANEL } else { PANEL }
}

/// A convolution by tiles.
#[derive(Clone, Copy, Debug)]
pub struct Tiles(Conv);

/// Memory for transformed tiles, used again.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    inputs: Aligned<T>,
    outputs: Aligned<T>,
    weights: Aligned<T>,
}

impl Conv {
    /// The same by tiles, where it can be and is faster.
    pub fn tiles(self) -> Option<Tiles> {
        let Image { height, width, channels } = self.input;
        let even = height % 2 == 0 && width % 2 == 0;
        let wide = |channels: usize| channels.is_multiple_of(PANEL) && channels >= 2 * PANEL;
        (even && wide(channels) && wide(self.channels)).then_some(Tiles(self))
    }
}

impl Tiles {
    /// G·w·Gᵀ for all pairs of channels, by place, panel of channels out, channel in.
    pub fn spread<T: Real>(self, weights: &[T]) -> Aligned<T> {
        let (inputs, outputs) = (self.0.input.channels, self.0.channels);
        let (half, panel) = (T::from_f64(0.5), panel(outputs));
        let three = |w: [T; 3]| {
            let (sum, middle) = (half * (w[0] + w[2]), half * w[1]);
            [w[0], sum + middle, sum - middle, w[2]]
        };
        let mut spread = Aligned::new(PLACES * inputs * outputs);
        for i in 0..inputs {
            for o in 0..outputs {
                let w = |row: usize, column: usize| weights[((row * 3 + column) * inputs + i) * outputs + o];
                let rows: [[T; 4]; 3] = std::array::from_fn(|row| three([w(row, 0), w(row, 1), w(row, 2)]));
                let at = (o / panel * inputs + i) * panel + o % panel;
                for column in 0..4 {
                    let four = three([rows[0][column], rows[1][column], rows[2][column]]);
                    for row in 0..4 {
                        spread[(row * 4 + column) * inputs * outputs + at] = four[row];
                    }
                }
            }
        }
        spread
    }

    /// Images one after the other through the layer, with spread weights.
    pub fn forward<T: Real>(
        self,
        spread: &[T],
        bias: Option<&[T]>,
        input: &[T],
        output: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let (from, to) = (self.0.input, self.0.output());
        let (inputs, outputs) = (from.channels, to.channels);
        let (images, panel) = (input.len() / from.stored(), panel(outputs));
        for strip in strips(images * (from.height / 2), from.width / 2) {
            let tiles = strip.len() * (from.width / 2);
            let v_apart = apart(tiles * inputs);
            let v = scratch.inputs.room(PLACES * v_apart);
            Arch::new().dispatch(Spread::<_, 4> {
                image: from,
                strip: strip.clone(),
                pixels: input,
                places: v,
            });
            let m_apart = apart(tiles * outputs);
            let m = scratch.outputs.room(PLACES * m_apart);
            for place in 0..PLACES {
                for first in (0..outputs).step_by(panel) {
                    Product {
                        rows: [Level::ONE, Level { count: tiles, a: inputs, other: outputs }],
                        terms: split(inputs, 1, panel),
                        columns: panel,
                        start: Start::Zero,
                        a: &v[place * v_apart..],
                        b: &spread[(place * outputs + first) * inputs..][..inputs * panel],
                        c: &mut m[place * m_apart + first..],
                    }
                    .run();
                }
            }
            Arch::new().dispatch(Gather { image: to, strip, places: m, bias, pixels: output });
        }
    }

    /// The gradient of the weights for one image, followed by that of the biases.
    pub fn weight_gradient<T: Real>(
        self,
        input: &[T],
        output: &[T],
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let (from, to) = (self.0.input, self.0.output());
        let (inputs, outputs) = (from.channels, to.channels);
        let (weights, biases) = gradient.split_at_mut(self.0.weights());
        let strips: Vec<_> = strips(from.height / 2, from.width / 2).collect();
        // Rows of weights that are made before they are transformed back: all, if later strips add to them.
        let rows = if strips.len() > 1 { inputs } else { (BLOCK / outputs).clamp(1, inputs) };
        let w_apart = apart(rows * outputs);
        let w = scratch.weights.room(PLACES * w_apart);
        for (number, strip) in strips.iter().enumerate() {
            let tiles = strip.len() * (from.width / 2);
            let v_apart = apart(tiles * inputs);
            let v = scratch.inputs.room(PLACES * v_apart);
            Arch::new().dispatch(Spread::<_, 4> {
                image: from,
                strip: strip.clone(),
                pixels: input,
                places: v,
            });
            let d_apart = apart(tiles * outputs);
            let d = scratch.outputs.room(PLACES * d_apart);
            Arch::new().dispatch(Spread::<_, 2> {
                image: to,
                strip: strip.clone(),
                pixels: output,
                places: d,
            });
            for first in (0..inputs).step_by(rows) {
                let count = rows.min(inputs - first);
                for place in 0..PLACES {
                    Product {
                        rows: [Level::ONE, Level { count, a: 1, other: outputs }],
                        terms: split(tiles, inputs, outputs),
                        columns: outputs,
                        start: if number == 0 { Start::Zero } else { Start::There },
                        a: &v[place * v_apart + first..],
                        b: &d[place * d_apart..][..tiles * outputs],
                        c: &mut w[place * w_apart..],
                    }
                    .run();
                }
                if number + 1 == strips.len() {
                    let to = first * outputs..(first + count) * outputs;
                    Arch::new().dispatch(GatherWeights { places: w, to, weights });
                }
            }
        }
        self.0.bias_gradient(output, biases);
    }
}

/// So many terms as two levels, the inner one as long as the kernel adds up at a time.
fn split(terms: usize, a: usize, other: usize) -> [Level; 2] {
    let inner = if terms.is_multiple_of(TILES) { TILES } else { terms };
    [Level { count: terms / inner, a: inner * a, other: inner * other }, Level { count: inner, a, other }]
}

/// Rows of tiles, a few at a time. The rows of several images are counted through.
fn strips(rows: usize, width: usize) -> impl Iterator<Item = Range<usize>> {
    let height = (TILES / width).max(1);
    (0..rows).step_by(height).map(move |first| first..rows.min(first + height))
}

/// Where a tile of a strip begins: its upper left pixel of 2×2, in images one after the other.
#[inline(always)]
fn place_of(image: Image, first_row: usize, tile: usize) -> usize {
    let (rows, width) = (image.height / 2, image.width / 2);
    let row = first_row + tile / width;
    row / rows * image.stored() + image.at(2 * (row % rows), 2 * (tile % width))
}

/// Bᵀ of four vectors, or A of two.
#[inline(always)]
fn inward<T: Real, S: Simd, const SEEN: usize>(simd: S, d: [T::Lanes<S>; SEEN]) -> [T::Lanes<S>; 4] {
    if SEEN == 4 {
        [
            T::minus(simd, d[0], d[2]),
            T::plus(simd, d[1], d[2]),
            T::minus(simd, d[2], d[1]),
            T::minus(simd, d[1], d[3]),
        ]
    } else {
        let zero = T::splat(simd, T::default());
        [d[0], T::plus(simd, d[0], d[1]), T::minus(simd, d[0], d[1]), T::minus(simd, zero, d[1])]
    }
}

/// Aᵀ of four vectors.
#[inline(always)]
fn outward<T: Real, S: Simd>(simd: S, m: [T::Lanes<S>; 4]) -> [T::Lanes<S>; 2] {
    let (sum, difference) = (T::plus(simd, m[1], m[2]), T::minus(simd, m[1], m[2]));
    [T::plus(simd, m[0], sum), T::minus(simd, difference, m[3])]
}

/// Gᵀ of four vectors.
#[inline(always)]
fn outward_weights<T: Real, S: Simd>(simd: S, m: [T::Lanes<S>; 4]) -> [T::Lanes<S>; 3] {
    let (half, zero) = (T::splat(simd, T::from_f64(0.5)), T::splat(simd, T::default()));
    let (sum, difference) = (T::plus(simd, m[1], m[2]), T::minus(simd, m[1], m[2]));
    let middle = T::mul_add(simd, half, difference, zero);
    [T::mul_add(simd, half, sum, m[0]), middle, T::mul_add(simd, half, sum, m[3])]
}

/// One vector from a place on. (Functions and loops, because closures are not always inlined, and then run without vectors.)
#[inline(always)]
fn load<T: Real, S: Simd>(x: &[T], at: usize) -> T::Lanes<S> {
    T::vectors::<S>(&x[at..at + T::lanes::<S>()])[0]
}

/// Several vectors, so far apart.
#[inline(always)]
fn several<T: Real, S: Simd, const N: usize>(simd: S, x: &[T], at: usize, apart: usize) -> [T::Lanes<S>; N] {
    let mut vectors = [T::splat(simd, T::default()); N];
    for i in 0..N {
        vectors[i] = load::<T, S>(x, at + i * apart);
    }
    vectors
}

#[inline(always)]
fn store<T: Real, S: Simd>(x: &mut [T], at: usize, value: T::Lanes<S>) {
    T::vectors_mut::<S>(&mut x[at..at + T::lanes::<S>()])[0] = value;
}

/// Of the tiles of a strip, Bᵀ·input·B of the four rows and columns that they see, or A·d·Aᵀ of their own two: for each place, tile
/// by tile.
struct Spread<'a, T, const SEEN: usize> {
    image: Image,
    strip: Range<usize>,
    pixels: &'a [T],
    places: &'a mut [T],
}

impl<T: Real, const SEEN: usize> WithSimd for Spread<'_, T, SEEN> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (row, n, lanes) = (self.image.row(), self.image.channels, T::lanes::<S>());
        let size = self.places.len() / PLACES;
        // Who sees four sees one more on every side.
        let before = if SEEN == 4 { row + n } else { 0 };
        for tile in 0..self.strip.len() * (self.image.width / 2) {
            let corner = place_of(self.image, self.strip.start, tile) - before;
            for vector in 0..n / lanes {
                let (at, to) = (corner + vector * lanes, tile * n + vector * lanes);
                let mut rows = [[T::splat(simd, T::default()); 4]; SEEN];
                for y in 0..SEEN {
                    rows[y] =
                        inward::<T, S, SEEN>(simd, several::<T, S, SEEN>(simd, self.pixels, at + y * row, n));
                }
                for x in 0..4 {
                    let mut column = [rows[0][x]; SEEN];
                    for y in 1..SEEN {
                        column[y] = rows[y][x];
                    }
                    let column = inward::<T, S, SEEN>(simd, column);
                    for y in 0..4 {
                        store::<T, S>(self.places, (4 * y + x) * size + to, column[y]);
                    }
                }
            }
        }
    }
}

/// Aᵀ·m·A of the tiles of a strip, and the bias.
struct Gather<'a, T> {
    image: Image,
    strip: Range<usize>,
    places: &'a [T],
    bias: Option<&'a [T]>,
    pixels: &'a mut [T],
}

impl<T: Real> WithSimd for Gather<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (row, n, lanes) = (self.image.row(), self.image.channels, T::lanes::<S>());
        let size = self.places.len() / PLACES;
        for tile in 0..self.strip.len() * (self.image.width / 2) {
            let corner = place_of(self.image, self.strip.start, tile);
            for vector in 0..n / lanes {
                let (from, at) = (tile * n + vector * lanes, corner + vector * lanes);
                let mut bias = T::splat(simd, T::default());
                if let Some(biases) = self.bias {
                    bias = load::<T, S>(biases, vector * lanes);
                }
                let mut rows = [[bias; 2]; 4];
                for y in 0..4 {
                    rows[y] = outward::<T, S>(
                        simd,
                        several::<T, S, 4>(simd, self.places, 4 * y * size + from, size),
                    );
                }
                for x in 0..2 {
                    let column = outward::<T, S>(simd, [rows[0][x], rows[1][x], rows[2][x], rows[3][x]]);
                    for y in 0..2 {
                        store::<T, S>(self.pixels, at + y * row + x * n, T::plus(simd, column[y], bias));
                    }
                }
            }
        }
    }
}

/// Gᵀ·m·G of some weights, to a range of each tap.
struct GatherWeights<'a, T> {
    places: &'a [T],
    to: Range<usize>,
    weights: &'a mut [T],
}

impl<T: Real> WithSimd for GatherWeights<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (tap, lanes) = (self.weights.len() / 9, T::lanes::<S>());
        let size = self.places.len() / PLACES;
        for vector in 0..self.to.len() / lanes {
            let from = vector * lanes;
            let mut rows = [[T::splat(simd, T::default()); 3]; 4];
            for y in 0..4 {
                let places = several::<T, S, 4>(simd, self.places, 4 * y * size + from, size);
                rows[y] = outward_weights::<T, S>(simd, places);
            }
            for x in 0..3 {
                let column = outward_weights::<T, S>(simd, [rows[0][x], rows[1][x], rows[2][x], rows[3][x]]);
                for y in 0..3 {
                    store::<T, S>(self.weights, (3 * y + x) * tap + self.to.start + from, column[y]);
                }
            }
        }
    }
}
