//! Convolution with 3×3 weights per pair of channels; the border of zeros keeps the size of the image.
//!
//! ```text
//! out[y, x, o] = bias[o] + Σ_{i, j, c} in[y + i − 1, x + j − 1, c]·weights[i, j, c, o]
//! ```
//!
//! Weights lie in memory as they are indexed here. For fixed i, the products over j and c run through 3·channels
//! neighbours of the image and as many rows of weights, so all three products below are single calls of the kernel. Where
//! there are many channels, tiles.rs does the same with fewer multiplications.

use super::Image;
use super::tiles::Scratch;
use crate::aligned::Aligned;
use crate::product::{Level, Product, Start};
use crate::real::Real;

/// A convolution of one image, with a given number of channels after it.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// What goes in.
    pub input: Image,
    /// Channels of what comes out.
    pub channels: usize,
}

impl Conv {
    /// What comes out.
    pub fn output(self) -> Image {
        Image { channels: self.channels, ..self.input }
    }

    /// How many weights there are, without the biases: one of those per channel.
    pub fn weights(self) -> usize {
        9 * self.input.channels * self.channels
    }

    /// One image through the layer.
    pub fn forward<T: Real>(self, weights: &[T], bias: Option<&[T]>, input: &[T], output: &mut [T]) {
        let (from, to) = (self.input, self.output());
        Product {
            rows: [
                Level { count: to.height, a: from.row(), other: to.row() },
                Level { count: to.width, a: from.channels, other: to.channels },
            ],
            terms: [
                Level { count: 3, a: from.row(), other: 3 * from.channels * to.channels },
                Level { count: 3 * from.channels, a: 1, other: to.channels },
            ],
            columns: to.channels,
            start: bias.into(),
            a: input,
            b: weights,
            c: &mut output[to.at(0, 0)..],
        }
        .run();
    }

    /// The weights for the way back: `turned[i, j, o, c] = weights[2 − i, 2 − j, c, o]`.
    pub fn turn<T: Real>(self, weights: &[T]) -> Vec<T> {
        let (inputs, outputs) = (self.input.channels, self.channels);
        let mut turned = vec![T::default(); weights.len()];
        let taps =
            turned.chunks_exact_mut(inputs * outputs).zip(weights.chunks_exact(inputs * outputs).rev());
        for (turned, weights) in taps {
            for (i, turned) in turned.iter_mut().enumerate() {
                *turned = weights[(i % inputs) * outputs + i / inputs];
            }
        }
        turned
    }

    /// The convolution that takes the gradient of the output to that of the input, with turned weights.
    pub fn back(self) -> Conv {
        Conv { input: self.output(), channels: self.input.channels }
    }

    /// Weights as [`Conv::images`] takes them.
    pub fn ready<T: Real>(self, weights: &[T]) -> Aligned<T> {
        self.tiles().map_or_else(|| Aligned::copy(weights), |tiles| tiles.spread(weights))
    }

    /// Images one after the other through the layer, in the way that is faster.
    pub fn images<T: Real>(
        self,
        ready: &[T],
        bias: Option<&[T]>,
        input: &[T],
        output: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        if let Some(tiles) = self.tiles() {
            return tiles.forward(ready, bias, input, output, scratch);
        }
        let outputs = output.chunks_exact_mut(self.output().stored());
        let images = input.chunks_exact(self.input.stored()).zip(outputs);
        images.for_each(|(input, output)| self.forward(ready, bias, input, output));
    }

    /// The gradient of the weights for one image, followed by that of the biases, in the way that is faster.
    pub fn image_gradient<T: Real>(
        self,
        input: &[T],
        output: &[T],
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        match self.tiles() {
            Some(tiles) => tiles.weight_gradient(input, output, gradient, scratch),
            None => self.weight_gradient(input, output, gradient),
        }
    }

    /// The gradient of the output to that of the weights, followed by that of the biases.
    pub fn weight_gradient<T: Real>(self, input: &[T], output: &[T], gradient: &mut [T]) {
        let (from, to) = (self.input, self.output());
        let (weights, biases) = gradient.split_at_mut(self.weights());
        Product {
            rows: [
                Level { count: 3, a: from.row(), other: 3 * from.channels * to.channels },
                Level { count: 3 * from.channels, a: 1, other: to.channels },
            ],
            terms: [
                Level { count: to.height, a: from.row(), other: to.row() },
                Level { count: to.width, a: from.channels, other: to.channels },
            ],
            columns: to.channels,
            start: Start::Zero,
            a: input,
            b: &output[to.at(0, 0)..],
            c: weights,
        }
        .run();
        self.bias_gradient(output, biases);
    }

    /// The gradient of the output to that of the biases.
    pub(super) fn bias_gradient<T: Real>(self, output: &[T], biases: &mut [T]) {
        biases.fill(T::default());
        // The border is zero, so the sum may run over all that is stored.
        for pixel in output.chunks_exact(self.channels) {
            for (bias, gradient) in biases.iter_mut().zip(pixel) {
                *bias += *gradient;
            }
        }
    }
}
