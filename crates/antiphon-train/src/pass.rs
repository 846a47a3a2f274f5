//! A few examples through a network and back, with everything they need in memory that is used again.
//!
//! Stages run one after the other, each for all examples of the chunk: weights are then read once per chunk. Only the gradient
//! of the weights is made example by example.

use crate::aligned::Aligned;
use crate::layers::Image;
use crate::layers::softmax::{Outcome, cross_entropy};
use crate::layers::tiles::Scratch;
use crate::network::{Network, Operation, Stage};
use crate::real::Real;

/// Weights as the stages take them, where these do not take them as they are; made once for all examples.
pub(crate) struct Weights<T> {
    forward: Vec<Aligned<T>>,
    /// Empty without a way back.
    back: Vec<Aligned<T>>,
}

impl<T: Real> Weights<T> {
    pub fn new(network: &Network, parameters: &[T], back: bool) -> Self {
        let forward = |stage: &Stage| match stage.operation {
            Operation::Conv(conv) => conv.ready(stage.split(parameters).0),
            _ => Aligned::default(),
        };
        let turn = |(i, stage): (usize, &Stage)| match stage.operation {
            // Nobody asks for the gradient of the data.
            Operation::Conv(conv) if i > 0 => conv.back().ready(&conv.turn(stage.split(parameters).0)),
            Operation::Dense(dense) if i > 0 => Aligned::copy(&dense.turn(stage.split(parameters).0)),
            _ => Aligned::default(),
        };
        let stages = || network.stages.iter();
        Weights {
            forward: stages().map(forward).collect(),
            back: if back { stages().enumerate().map(turn).collect() } else { Vec::new() },
        }
    }
}

/// The memory of one chunk of examples. Place i of `values` and `gradients` is what goes into stage i; the last one is what
/// comes out. Borders of images are zero from the start and stay so.
pub(crate) struct Pass<T> {
    /// Numbers per example at each place.
    pub sizes: Vec<usize>,
    /// Results, examples one after the other.
    pub values: Vec<Aligned<T>>,
    /// The loss's gradients with respect to them. [`Pass::backward`] takes them back through the activation. The
    /// place of the data is empty.
    pub gradients: Vec<Aligned<T>>,
    /// The gradients of the parameters of convolutions, `written` numbers per example. Those of dense layers are outer
    /// products of values and gradients, and not written down.
    pub parameters: Aligned<T>,
    /// See `parameters`.
    pub written: usize,
    scratch: Scratch<T>,
}

impl<T: Real> Pass<T> {
    /// Memory for this many examples; less of it if there is no way `back`.
    pub fn new(network: &Network, examples: usize, back: bool) -> Self {
        let mut sizes = vec![network.input.stored()];
        sizes.extend(network.stages.iter().map(|stage| stage.stored));
        let zeros = |size: usize| Aligned::new(examples * size);
        // The loss writes to the last one.
        let needed = |i: usize| if i + 1 == sizes.len() || back && i > 0 { sizes[i] } else { 0 };
        let conv = |stage: &&Stage| matches!(stage.operation, Operation::Conv(_));
        let written = network.stages.iter().filter(conv).map(|stage| stage.parameters.len()).sum();
        Pass {
            values: sizes.iter().map(|size| zeros(*size)).collect(),
            gradients: (0..sizes.len()).map(|i| zeros(needed(i))).collect(),
            parameters: if back { zeros(written) } else { Aligned::default() },
            sizes,
            written,
            scratch: Scratch::default(),
        }
    }

    /// The first `count` examples through all stages.
    pub fn forward(&mut self, network: &Network, parameters: &[T], ready: &Weights<T>, count: usize) {
        for (i, stage) in network.stages.iter().enumerate() {
            let (weights, biases) = stage.split(parameters);
            let (from, to) = (self.sizes[i], self.sizes[i + 1]);
            let (before, after) = self.values.split_at_mut(i + 1);
            let (input, output) = (&before[i][..count * from], &mut after[0][..count * to]);
            if let Operation::Conv(conv) = stage.operation {
                conv.images(&ready.forward[i], Some(biases), input, output, &mut self.scratch);
            }
            let examples = input.chunks_exact(from).zip(output.chunks_exact_mut(to));
            match stage.operation {
                Operation::Conv(_) => {}
                Operation::Pool(pool) => examples.for_each(|(input, output)| pool.forward(input, output)),
                Operation::Flatten(image) => examples.for_each(|(input, output)| {
                    rows(image)
                        .zip(output.chunks_exact_mut(image.width * image.channels))
                        .for_each(|(at, output)| output.copy_from_slice(&input[at..at + output.len()]));
                }),
                Operation::Dense(dense) => dense.forward(weights, Some(biases), input, output),
            }
            stage.activation.forward(output);
        }
    }

    /// The losses of the first examples, one per label, and their gradients with respect to the outputs.
    pub fn losses(&mut self, labels: impl Iterator<Item = u8>) -> Vec<Outcome> {
        let last = self.sizes.len() - 1;
        let classes = self.sizes[last];
        let outputs = self.values[last].chunks_exact(classes);
        let gradients = self.gradients[last].chunks_exact_mut(classes);
        let examples = outputs.zip(gradients).zip(labels);
        examples.map(|((output, gradient), label)| cross_entropy(output, label.into(), gradient)).collect()
    }

    /// The first `count` examples back through all stages.
    pub fn backward(&mut self, network: &Network, ready: &Weights<T>, count: usize) {
        let mut written = self.written;
        for (i, stage) in network.stages.iter().enumerate().rev() {
            let (from, to) = (self.sizes[i], self.sizes[i + 1]);
            let (before, after) = self.gradients.split_at_mut(i + 1);
            let gradient = &mut after[0][..count * to];
            let (input, output) = (&self.values[i][..count * from], &self.values[i + 1][..count * to]);
            stage.activation.backward(output, gradient);
            if let Operation::Conv(conv) = stage.operation {
                written -= stage.parameters.len();
                let all = self.parameters.chunks_exact_mut(self.written);
                let examples = input.chunks_exact(from).zip(gradient.chunks_exact(to)).zip(all);
                for ((input, gradient), all) in examples {
                    let all = &mut all[written..][..stage.parameters.len()];
                    conv.image_gradient(input, gradient, all, &mut self.scratch);
                }
            }
            if i == 0 {
                break;
            }
            let back = &mut before[i][..count * from];
            let turned = &ready.back[i];
            if let Operation::Conv(conv) = stage.operation {
                conv.back().images(turned, None, gradient, back, &mut self.scratch);
            }
            let examples = gradient.chunks_exact(to).zip(back.chunks_exact_mut(from));
            match stage.operation {
                Operation::Conv(_) => {}
                Operation::Pool(pool) => {
                    let values = input.chunks_exact(from).zip(output.chunks_exact(to));
                    examples.zip(values).for_each(|((gradient, back), (input, output))| {
                        pool.backward(input, output, gradient, back);
                    });
                }
                Operation::Flatten(image) => examples.for_each(|(gradient, back)| {
                    rows(image)
                        .zip(gradient.chunks_exact(image.width * image.channels))
                        .for_each(|(at, gradient)| back[at..at + gradient.len()].copy_from_slice(gradient));
                }),
                Operation::Dense(dense) => dense.input_gradient(turned, gradient, back),
            }
        }
    }

    /// The gradient of one example with respect to all parameters, written down. For tests.
    #[cfg(test)]
    pub fn gradient(&self, network: &Network, example: usize) -> Vec<T> {
        let mut all = Vec::with_capacity(network.parameters());
        let mut written = example * self.written;
        for (i, stage) in network.stages.iter().enumerate() {
            match stage.operation {
                Operation::Conv(_) => {
                    all.extend(&self.parameters[written..][..stage.parameters.len()]);
                    written += stage.parameters.len();
                }
                Operation::Dense(dense) => {
                    let input = &self.values[i][example * dense.inputs..][..dense.inputs];
                    let gradient = &self.gradients[i + 1][example * dense.outputs..][..dense.outputs];
                    input.iter().for_each(|x| all.extend(gradient.iter().map(|g| *x * *g)));
                    all.extend(gradient);
                }
                Operation::Pool(_) | Operation::Flatten(_) => {}
            }
        }
        all
    }
}

/// Where the rows of an image begin.
fn rows(image: Image) -> impl Iterator<Item = usize> {
    (0..image.height).map(move |y| image.at(y, 0))
}
