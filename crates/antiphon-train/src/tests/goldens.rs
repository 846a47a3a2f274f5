//! Layers and per-example gradients of networks against PyTorch in double precision. `tests/goldens/make.py` made the numbers.

use super::differences::gradient;
use super::distance;
use crate::layers::Image;
use crate::layers::activation::Activation;
use crate::layers::conv::Conv;
use crate::layers::dense::Dense;
use crate::layers::pool::Pool;
use crate::layers::softmax::cross_entropy;
use crate::network::Network;
use serde::Deserialize;

const CLOSE: f64 = 1e-13;

#[derive(Deserialize)]
struct Layer {
    shape: Vec<usize>,
    output_shape: Vec<usize>,
    input: Vec<f64>,
    parameters: Vec<Vec<f64>>,
    output: Vec<f64>,
    output_gradient: Vec<f64>,
    input_gradient: Vec<f64>,
    parameter_gradients: Vec<Vec<f64>>,
    #[serde(default)]
    label: usize,
}

#[derive(Deserialize)]
struct Net {
    name: String,
    shape: [usize; 3],
    stages: Vec<(String, usize)>,
    input: Vec<f64>,
    labels: Vec<u8>,
    parameters: Vec<Vec<f64>>,
    parameter_shapes: Vec<Vec<usize>>,
    losses: Vec<f64>,
    gradients: Vec<Vec<Vec<f64>>>,
}

#[derive(Deserialize)]
struct Goldens {
    conv: Vec<Layer>,
    pool: Vec<Layer>,
    tanh: Layer,
    relu: Layer,
    dense: Layer,
    softmax: Vec<Layer>,
    networks: Vec<Net>,
}

/// PyTorch's weights of a stage to ours.
type Turn = Box<dyn Fn(&[f64]) -> Vec<f64>>;

fn goldens() -> Goldens {
    serde_json::from_str(include_str!("../../tests/goldens/goldens.json")).expect("goldens.json")
}

fn image(shape: &[usize]) -> Image {
    let [.., channels, height, width] = *shape else { panic!("{shape:?} is no image") };
    Image::new(height, width, channels)
}

fn stored(shape: &[usize], values: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; image(shape).stored()];
    image(shape).take(values, &mut out, |x| *x);
    out
}

/// PyTorch's [output, input, row, column] as [row, column, input, output].
fn turn_conv(weights: &[f64], inputs: usize, outputs: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(weights.len());
    for tap in 0..9 {
        for c in 0..inputs {
            out.extend((0..outputs).map(|o| weights[(o * inputs + c) * 9 + tap]));
        }
    }
    out
}

/// PyTorch's [output, input] as [input, output], where the input is an image in the order channel, pixel, and ours is
/// pixel, channel.
fn turn_dense(weights: &[f64], pixels: usize, channels: usize) -> Vec<f64> {
    let inputs = pixels * channels;
    let mut out = Vec::with_capacity(weights.len());
    for i in 0..inputs {
        let theirs = (i % channels) * pixels + i / channels;
        out.extend((0..weights.len() / inputs).map(|o| weights[o * inputs + theirs]));
    }
    out
}

#[test]
fn convolutions() {
    for case in goldens().conv {
        let conv = Conv { input: image(&case.shape), channels: case.output_shape[1] };
        let turned = |w: &[f64]| turn_conv(w, conv.input.channels, conv.channels);
        let weights = turned(&case.parameters[0]);
        let (x, d) = (stored(&case.shape, &case.input), stored(&case.output_shape, &case.output_gradient));
        let mut out = vec![0.0; conv.output().stored()];
        conv.forward(&weights, Some(&case.parameters[1]), &x, &mut out);
        assert!(distance(&out, &stored(&case.output_shape, &case.output)) < CLOSE);
        let mut back = vec![0.0; conv.input.stored()];
        conv.back().forward(&conv.turn(&weights), None, &d, &mut back);
        assert!(distance(&back, &stored(&case.shape, &case.input_gradient)) < CLOSE);
        let mut gradient = vec![0.0; conv.weights() + conv.channels];
        conv.weight_gradient(&x, &d, &mut gradient);
        assert!(distance(&gradient[..conv.weights()], &turned(&case.parameter_gradients[0])) < CLOSE);
        assert!(distance(&gradient[conv.weights()..], &case.parameter_gradients[1]) < CLOSE);
    }
}

#[test]
fn pooling() {
    for case in goldens().pool {
        let pool = Pool { input: image(&case.shape) };
        let (x, d) = (stored(&case.shape, &case.input), stored(&case.output_shape, &case.output_gradient));
        let mut out = vec![0.0; pool.output().stored()];
        pool.forward(&x, &mut out);
        assert_eq!(out, stored(&case.output_shape, &case.output));
        let mut back = vec![0.0; pool.input.stored()];
        pool.backward(&x, &out, &d, &mut back);
        assert_eq!(back, stored(&case.shape, &case.input_gradient));
    }
}

#[test]
fn activations() {
    let goldens = goldens();
    for (activation, case) in [(Activation::Tanh, goldens.tanh), (Activation::Relu, goldens.relu)] {
        let (mut y, mut back) = (case.input.clone(), case.output_gradient.clone());
        activation.forward(&mut y);
        activation.backward(&y, &mut back);
        assert!(distance(&y, &case.output) < CLOSE, "{activation:?}");
        assert!(distance(&back, &case.input_gradient) < CLOSE, "{activation:?}");
        let mut single: Vec<f32> = case.input.iter().map(|x| *x as f32).collect();
        activation.forward(&mut single);
        let single: Vec<f64> = single.into_iter().map(f64::from).collect();
        assert!(distance(&single, &case.output) < 2e-7, "{activation:?}");
    }
}

#[test]
fn dense() {
    let case = goldens().dense;
    let layer = Dense { inputs: case.shape[1], outputs: case.output_shape[1] };
    let weights = turn_dense(&case.parameters[0], 1, layer.inputs);
    let mut out = vec![0.0; case.output.len()];
    layer.forward(&weights, Some(&case.parameters[1]), &case.input, &mut out);
    assert!(distance(&out, &case.output) < CLOSE);
    let mut back = vec![0.0; case.input.len()];
    layer.input_gradient(&layer.turn(&weights), &case.output_gradient, &mut back);
    assert!(distance(&back, &case.input_gradient) < CLOSE);
}

#[test]
fn softmax() {
    for case in goldens().softmax {
        let mut back = vec![0.0; case.input.len()];
        let outcome = cross_entropy(&case.input, case.label, &mut back);
        assert!(distance(&[outcome.loss], &case.output) < CLOSE);
        // PyTorch's gradient is for another factor of the loss.
        back.iter_mut().for_each(|x| *x *= case.output_gradient[0]);
        assert!(distance(&back, &case.input_gradient) < CLOSE);
    }
}

#[test]
fn networks() {
    for case in goldens().networks {
        let mut network = Network::new(image(&case.shape));
        let mut here = image(&case.shape);
        // How the parameters of each stage have to be turned, in the order of the stages.
        let mut turns: Vec<Turn> = Vec::new();
        for (kind, size) in &case.stages {
            let (size, before) = (*size, here);
            network = match kind.as_str() {
                "conv" => {
                    here.channels = size;
                    turns.push(Box::new(move |w| turn_conv(w, before.channels, size)));
                    network.conv(size)
                }
                "dense" => {
                    here = Image::new(1, 1, size);
                    turns.push(Box::new(move |w| {
                        turn_dense(w, before.height * before.width, before.channels)
                    }));
                    network.dense(size)
                }
                "pool" => {
                    here = Pool { input: here }.output();
                    network.pool()
                }
                "tanh" => network.then(Activation::Tanh),
                "relu" => network.then(Activation::Relu),
                other => panic!("{other}"),
            };
        }
        let flat = |tensors: &[Vec<f64>]| -> Vec<f64> {
            let pairs = tensors.chunks_exact(2).zip(&turns);
            pairs.flat_map(|(pair, turn)| [turn(&pair[0]), pair[1].clone()].concat()).collect()
        };
        let parameters = flat(&case.parameters);
        assert_eq!(case.parameter_shapes.len(), 2 * turns.len());
        let examples = case.input.chunks_exact(network.inputs()).zip(&case.labels);
        for (i, (input, label)) in examples.enumerate() {
            let (loss, ours) = gradient(&network, &parameters, input, *label);
            assert!((loss - case.losses[i]).abs() < CLOSE, "{}: {loss}", case.name);
            assert!(distance(&ours, &flat(&case.gradients[i])) < CLOSE, "{}, example {i}", case.name);
        }
    }
}
