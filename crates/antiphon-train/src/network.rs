//! A network: stages one after the other, and the flat vector of its parameters.
//!
//! # Parameters
//!
//! One vector of `f32`, stage by stage from the input on. A convolution has `weights[i, j, c, o]` (row and column of the tap,
//! channel in, channel out; the last index runs fastest) and then one bias per channel out; a dense layer has
//! `weights[i, o]` and then its biases. Images become flat pixel by pixel, so input i of the dense layer after them is
//! channel i mod channels of pixel i / channels.

use crate::layers::Image;
use crate::layers::activation::Activation;
use crate::layers::conv::Conv;
use crate::layers::dense::Dense;
use crate::layers::pool::Pool;
use antiphon::noise::Key;
use antiphon::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How the weights of a network are drawn before the first step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initial {
    /// Uniform, with variance 2/(inputs + outputs) (Glorot and Bengio 2010, equation 16).
    #[default]
    Uniform,
    /// Normal: convolutions with variance 1/inputs, dense layers with 2/(inputs + outputs), as in the program of Kairouz et al. 2021
    /// (google-research/DP-FTRL, `nn.py`).
    Normal,
}

impl Initial {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Initial::Uniform => "uniform",
            Initial::Normal => "normal",
        }
    }

    pub(crate) fn is_uniform(&self) -> bool {
        *self == Initial::Uniform
    }
}

/// What a stage does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Conv(Conv),
    Pool(Pool),
    /// Takes the image out of its border.
    Flatten(Image),
    Dense(Dense),
}

/// An operation, a function of each of its results, and where its parameters are.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub operation: Operation,
    pub activation: Activation,
    /// Its part of the vector of parameters: the weights, then one bias per output or channel.
    pub parameters: Range<usize>,
    pub biases: usize,
    /// Numbers that it makes per example, as they are stored.
    pub stored: usize,
}

impl Stage {
    /// Weights and biases.
    pub fn split<'a, T>(&self, parameters: &'a [T]) -> (&'a [T], &'a [T]) {
        let part = &parameters[self.parameters.clone()];
        part.split_at(part.len() - self.biases)
    }
}

/// What a stage makes.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Image(Image),
    Flat(usize),
}

/// A classifier of images. [`Network::new`] and the methods that return `Self` build one, stage by stage; the number
/// of outputs of the last stage is the number of classes.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) input: Image,
    pub(crate) stages: Vec<Stage>,
    shape: Shape,
    parameters: usize,
}

impl Network {
    /// A network without stages, for images of this size.
    pub fn new(input: Image) -> Self {
        Network { input, stages: Vec::new(), shape: Shape::Image(input), parameters: 0 }
    }

    fn push(mut self, operation: Operation, shape: Shape, weights: usize, biases: usize) -> Self {
        let parameters = self.parameters..self.parameters + weights + biases;
        let stored = match shape {
            Shape::Image(image) => image.stored(),
            Shape::Flat(size) => size,
        };
        (self.shape, self.parameters) = (shape, parameters.end);
        self.stages.push(Stage { operation, activation: Activation::Identity, parameters, biases, stored });
        self
    }

    /// Adds a 3×3 convolution.
    ///
    /// # Panics
    ///
    /// After the network has become flat. (All networks of this crate are in models.rs.)
    pub fn conv(self, channels: usize) -> Self {
        let Shape::Image(input) = self.shape else { panic!("a convolution needs an image") };
        let conv = Conv { input, channels };
        self.push(Operation::Conv(conv), Shape::Image(conv.output()), conv.weights(), channels)
    }

    /// Adds 2×2 maximum pooling.
    ///
    /// # Panics
    ///
    /// After the network has become flat, or where less than 2×2 pixels are left.
    pub fn pool(self) -> Self {
        let Shape::Image(input) = self.shape else { panic!("pooling needs an image") };
        assert!(
            input.height >= 2 && input.width >= 2,
            "pooling needs 2×2 pixels, not {}×{}",
            input.height,
            input.width
        );
        let pool = Pool { input };
        self.push(Operation::Pool(pool), Shape::Image(pool.output()), 0, 0)
    }

    /// Adds a dense layer; makes the network flat first.
    pub fn dense(self, outputs: usize) -> Self {
        let (flat, inputs) = match self.shape {
            Shape::Image(image) => {
                let size = image.values();
                (self.push(Operation::Flatten(image), Shape::Flat(size), 0, 0), size)
            }
            Shape::Flat(size) => (self, size),
        };
        let dense = Dense { inputs, outputs };
        flat.push(Operation::Dense(dense), Shape::Flat(outputs), inputs * outputs, outputs)
    }

    /// Adds a function of each result of the last stage.
    ///
    /// # Panics
    ///
    /// If there is no stage yet.
    pub fn then(mut self, activation: Activation) -> Self {
        self.stages.last_mut().expect("an activation follows a stage").activation = activation;
        self
    }

    /// How many parameters it has.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// How many numbers an example has.
    pub fn inputs(&self) -> usize {
        self.input.values()
    }

    /// How many classes it knows.
    pub fn classes(&self) -> usize {
        match self.shape {
            Shape::Image(image) => image.values(),
            Shape::Flat(size) => size,
        }
    }

    /// Parameters to start from: biases zero, weights as told. A function of the key alone: the normal of step 0 at a parameter's
    /// place, for uniform weights sent to (0, 1) by its distribution function.
    pub fn initial(&self, initial: Initial, key: &Key) -> Vec<f32> {
        let mut normals = vec![0f64; self.parameters];
        key.fill_parallel(0, 0, &mut normals);
        let mut parameters = vec![0f32; self.parameters];
        // One layer starts at zero: its loss is convex, and there is no symmetry to be broken.
        if self.stages.iter().filter(|stage| !stage.parameters.is_empty()).count() == 1 {
            return parameters;
        }
        for stage in &self.stages {
            // What one output sums over, and what one input goes to.
            let (inputs, outputs) = match stage.operation {
                Operation::Conv(conv) => (9 * conv.input.channels, 9 * conv.channels),
                Operation::Dense(dense) => (dense.inputs, dense.outputs),
                Operation::Pool(_) | Operation::Flatten(_) => continue,
            };
            let mean = (inputs + outputs) as f64 / 2.0;
            let weights = stage.parameters.start..stage.parameters.end - stage.biases;
            match initial {
                Initial::Uniform => {
                    let bound = (3.0 / mean).sqrt();
                    for i in weights {
                        let uniform = 0.5 * libm::erfc(-normals[i] * std::f64::consts::FRAC_1_SQRT_2);
                        parameters[i] = (bound * (2.0 * uniform - 1.0)) as f32;
                    }
                }
                Initial::Normal => {
                    let convolution = matches!(stage.operation, Operation::Conv(_));
                    let stddev = (1.0 / if convolution { inputs as f64 } else { mean }).sqrt();
                    weights.for_each(|i| parameters[i] = (stddev * normals[i]) as f32);
                }
            }
        }
        parameters
    }

    /// Refuses a vector that is not as long as the parameters.
    pub(crate) fn check_length(&self, argument: &str, length: usize) -> Result<()> {
        if length == self.parameters {
            return Ok(());
        }
        Err(Error::argument(format!("length of {argument}"), self.parameters.to_string(), length))
    }
}
