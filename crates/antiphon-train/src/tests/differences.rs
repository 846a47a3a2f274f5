//! Every layer's gradients against central differences in double precision: for a direction v of length one,
//! (f(x + hv) − f(x − hv))/2h = ⟨gradient, v⟩ up to h² and rounding, if no maximum changes its place in between.

use super::normals;
use crate::layers::Image;
use crate::layers::activation::Activation;
use crate::layers::conv::Conv;
use crate::layers::dense::Dense;
use crate::layers::pool::Pool;
use crate::layers::softmax::cross_entropy;
use crate::models;
use crate::network::Network;
use crate::pass::{Pass, Weights};

const H: f64 = 1e-5;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Compares the slope of f at x with a gradient, along that gradient and along random directions.
fn check(name: &str, x: &[f64], gradient: &[f64], f: impl Fn(&[f64]) -> f64) {
    assert_eq!(x.len(), gradient.len());
    let norm = |v: &[f64]| dot(v, v).sqrt();
    let size = norm(gradient);
    for v in [gradient.to_vec(), normals(100, x.len()), normals(101, x.len()), normals(102, x.len())] {
        let length = norm(&v);
        let v: Vec<f64> = v.iter().map(|x| x / length).collect();
        let moved = |h: f64| f(&x.iter().zip(&v).map(|(x, v)| x + h * v).collect::<Vec<_>>());
        let (slope, expected) = ((moved(H) - moved(-H)) / (2.0 * H), dot(gradient, &v));
        assert!((slope - expected).abs() < 1e-8 * size + 1e-9, "{name}: {slope} against {expected}");
    }
}

/// An image inside its border, and one taken out of it.
fn bordered(image: Image, values: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; image.stored()];
    image.take(values, &mut out, |x| *x);
    out
}

fn planes(image: Image, stored: &[f64]) -> Vec<f64> {
    let pixel = |i: usize| image.at(i / image.width, i % image.width);
    (0..image.channels)
        .flat_map(|c| (0..image.height * image.width).map(move |i| stored[pixel(i) + c]))
        .collect()
}

#[test]
fn convolutions() {
    for (image, channels) in [(Image::new(5, 4, 3), 7), (Image::new(1, 3, 2), 18), (Image::new(9, 8, 8), 2)] {
        let conv = Conv { input: image, channels };
        let (x, d) =
            (normals(1, image.values()), bordered(conv.output(), &normals(2, conv.output().values())));
        let (w, b) = (normals(3, conv.weights()), normals(4, channels));
        let value = |x: &[f64], w: &[f64], b: &[f64]| {
            let mut out = vec![0.0; conv.output().stored()];
            conv.forward(w, Some(b), &bordered(image, x), &mut out);
            dot(&out, &d)
        };
        let mut back = vec![0.0; image.stored()];
        conv.back().forward(&conv.turn(&w), None, &d, &mut back);
        check("input", &x, &planes(image, &back), |x| value(x, &w, &b));
        let mut gradient = vec![0.0; conv.weights() + channels];
        conv.weight_gradient(&bordered(image, &x), &d, &mut gradient);
        let (dw, db) = gradient.split_at(conv.weights());
        check("weights", &w, dw, |w| value(&x, w, &b));
        check("biases", &b, db, |b| value(&x, &w, b));
        let kept = bordered(image, &vec![1.0; image.values()]);
        assert!(back.iter().zip(kept).all(|(x, kept)| kept == 1.0 || *x == 0.0), "the border is not zero");
    }
}

#[test]
fn pooling() {
    // Two blocks of channels, and odd sizes.
    for image in [Image::new(4, 6, 40), Image::new(5, 7, 3)] {
        let pool = Pool { input: image };
        let (x, d) =
            (normals(1, image.values()), bordered(pool.output(), &normals(2, pool.output().values())));
        let mut out = vec![0.0; pool.output().stored()];
        let input = bordered(image, &x);
        pool.forward(&input, &mut out);
        let mut back = vec![0.0; image.stored()];
        pool.backward(&input, &out, &d, &mut back);
        check("pool", &x, &planes(image, &back), |x| {
            let mut out = vec![0.0; pool.output().stored()];
            pool.forward(&bordered(image, x), &mut out);
            dot(&out, &d)
        });
    }
}

#[test]
fn activations() {
    for activation in [Activation::Identity, Activation::Tanh, Activation::Relu] {
        let (x, d) = (normals::<f64>(1, 50), normals::<f64>(2, 50));
        let (mut y, mut back) = (x.clone(), d.clone());
        activation.forward(&mut y);
        activation.backward(&y, &mut back);
        check("activation", &x, &back, |x| {
            let mut y = x.to_vec();
            activation.forward(&mut y);
            dot(&y, &d)
        });
    }
}

#[test]
fn dense() {
    let (layer, examples) = (Dense { inputs: 9, outputs: 21 }, 5);
    let (x, d) = (normals(1, examples * 9), normals(2, examples * 21));
    let (w, b) = (normals(3, 9 * 21), normals(4, 21));
    let value = |x: &[f64]| {
        let mut out = vec![0.0; examples * 21];
        layer.forward(&w, Some(&b), x, &mut out);
        dot(&out, &d)
    };
    let mut back = vec![0.0; x.len()];
    layer.input_gradient(&layer.turn(&w), &d, &mut back);
    check("dense", &x, &back, value);
}

#[test]
fn softmax() {
    let x: Vec<f64> = normals(1, 10);
    for label in [0, 9] {
        let mut gradient = vec![0.0; 10];
        cross_entropy(&x, label, &mut gradient);
        check("softmax", &x, &gradient, |x| cross_entropy(x, label, &mut [0.0; 10]).loss);
    }
}

/// Loss and gradient of one example.
pub fn gradient(network: &Network, parameters: &[f64], input: &[f64], label: u8) -> (f64, Vec<f64>) {
    let mut pass = Pass::new(network, 1, true);
    network.input.take(input, &mut pass.values[0], |x| *x);
    let weights = Weights::new(network, parameters, true);
    pass.forward(network, parameters, &weights, 1);
    let loss = pass.losses([label].into_iter())[0].loss;
    pass.backward(network, &weights, 1);
    (loss, pass.gradient(network, 0))
}

#[test]
fn networks() {
    let cases = [
        ("small", models::small(8, 8, 10)),
        ("linear", models::linear(Image::new(3, 4, 2), 5)),
        ("cifar10", models::cifar10()),
    ];
    for (name, network) in cases {
        let parameters: Vec<f64> = normals::<f64>(1, network.parameters()).iter().map(|x| 0.05 * x).collect();
        let input: Vec<f64> = normals(2, network.inputs());
        let (_, back) = gradient(&network, &parameters, &input, 3);
        check(name, &parameters, &back, |p| gradient(&network, p, &input, 3).0);
    }
}
