//! Every output is a weighted sum of all inputs and a bias.
//!
//! ```text
//! out[o] = bias[o] + Σ_i in[i]·weights[i, o]
//! ```
//!
//! The gradient of the weights is the outer product of the inputs and the gradient of the outputs, for each example another
//! one. It is never written down: its norm is a product of two norms, and clipping adds it to the sum straight from its factors.

use crate::product::{Level, Product};
use crate::real::Real;

/// A dense layer.
#[derive(Clone, Copy, Debug)]
pub struct Dense {
    /// Numbers that go in.
    pub inputs: usize,
    /// Numbers that come out.
    pub outputs: usize,
}

impl Dense {
    /// Several examples through the layer, which then reads its weights once for all of them.
    pub fn forward<T: Real>(self, weights: &[T], bias: Option<&[T]>, input: &[T], output: &mut [T]) {
        Product {
            rows: [
                Level::ONE,
                Level { count: output.len() / self.outputs, a: self.inputs, other: self.outputs },
            ],
            terms: [Level::ONE, Level { count: self.inputs, a: 1, other: self.outputs }],
            columns: self.outputs,
            start: bias.into(),
            a: input,
            b: weights,
            c: output,
        }
        .run();
    }

    /// The weights for the way back: `turned[o, i] = weights[i, o]`.
    pub fn turn<T: Real>(self, weights: &[T]) -> Vec<T> {
        (0..weights.len()).map(|k| weights[(k % self.inputs) * self.outputs + k / self.inputs]).collect()
    }

    /// The gradients of the outputs of several examples to those of their inputs.
    pub fn input_gradient<T: Real>(self, turned: &[T], output: &[T], input: &mut [T]) {
        Dense { inputs: self.outputs, outputs: self.inputs }.forward(turned, None, output, input);
    }
}
