//! Convolutions by tiles against convolutions as they are defined.

use super::{distance, normals};
use crate::layers::Image;
use crate::layers::conv::Conv;
use crate::layers::tiles::Scratch;
use crate::real::Real;

/// So many images of normals, each inside its border.
fn bordered<T: Real>(seed: u64, image: Image, count: usize) -> Vec<T> {
    let mut out = vec![T::default(); count * image.stored()];
    for (i, place) in out.chunks_exact_mut(image.stored()).enumerate() {
        image.take(&normals::<T>(seed + i as u64, image.values()), place, |x| *x);
    }
    out
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

/// Both ways, with memory that other sizes used before.
fn compare<T: Real>(conv: Conv, images: usize, close: f64, scratch: &mut Scratch<T>) {
    let (from, to) = (conv.input, conv.output());
    let tiles = conv.tiles().unwrap_or_else(|| panic!("{conv:?} has no tiles"));
    let (x, d) = (bordered::<T>(1, from, images), bordered::<T>(100, to, images));
    let (w, b) = (normals::<T>(200, conv.weights()), normals::<T>(201, conv.channels));
    for bias in [None, Some(&b[..])] {
        let (mut fast, mut slow) = (vec![T::default(); d.len()], vec![T::default(); d.len()]);
        tiles.forward(&tiles.spread(&w), bias, &x, &mut fast, scratch);
        let outputs = slow.chunks_exact_mut(to.stored());
        x.chunks_exact(from.stored()).zip(outputs).for_each(|(x, slow)| conv.forward(&w, bias, x, slow));
        assert!(distance(&wide(&fast), &wide(&slow)) < close, "{conv:?}");
        let border = |i: usize| {
            let (y, x) = (i % to.stored() / to.row(), i % to.row() / to.channels);
            y == 0 || x == 0 || y > to.height || x > to.width
        };
        assert!(
            fast.iter().enumerate().all(|(i, x)| !border(i) || *x == T::default()),
            "a border is written to"
        );
    }
    for (x, d) in x.chunks_exact(from.stored()).zip(d.chunks_exact(to.stored())) {
        let size = conv.weights() + conv.channels;
        let (mut fast, mut slow) = (vec![T::ONE; size], vec![T::ONE; size]);
        tiles.weight_gradient(x, d, &mut fast, scratch);
        conv.weight_gradient(x, d, &mut slow);
        assert!(distance(&wide(&fast), &wide(&slow)) < close, "{conv:?}");
    }
}

#[test]
fn tiles_are_the_convolution() {
    let (mut single, mut double) = (Scratch::default(), Scratch::default());
    // One tile; strips of several images; several strips, the last one shorter; blocks of weights, the last one smaller.
    let cases = [
        ((2, 2, 32), 32, 3),
        ((4, 6, 48), 32, 4),
        ((18, 18, 32), 64, 2),
        ((8, 8, 112), 128, 5),
        ((6, 140, 32), 48, 1),
        ((32, 32, 32), 32, 1),
    ];
    for ((height, width, inputs), channels, images) in cases {
        let conv = Conv { input: Image::new(height, width, inputs), channels };
        // Rounding: a few units in the last place of the largest entry.
        compare::<f64>(conv, images, 1e-14, &mut double);
        compare::<f32>(conv, images, 5e-6, &mut single);
    }
}

#[test]
fn other_convolutions_have_no_tiles() {
    let has = |height, width, inputs, channels| {
        Conv { input: Image::new(height, width, inputs), channels }.tiles().is_some()
    };
    assert!(has(8, 8, 32, 64));
    assert!(!has(7, 8, 32, 64) && !has(8, 7, 32, 64) && !has(8, 8, 40, 64) && !has(8, 8, 64, 40));
    assert!(!has(8, 8, 3, 32) && !has(8, 8, 32, 16));
}
