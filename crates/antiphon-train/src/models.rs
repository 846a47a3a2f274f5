//! The networks that training is shown on.

use crate::layers::Image;
use crate::layers::activation::Activation::Tanh;
use crate::network::Network;

/// The network of Kairouz et al. 2021 (Practical and Private (Deep) Learning without Sampling or Shuffling), Table 2 (b), for
/// images of 32×32 pixels in three colours: 550,570 parameters.
pub fn cifar10() -> Network {
    let mut network = Network::new(Image::new(32, 32, 3));
    for channels in [32, 64, 128] {
        network = network.conv(channels).then(Tanh).conv(channels).then(Tanh).pool();
    }
    network.dense(128).then(Tanh).dense(10)
}

/// A small convolutional network for grey images: two convolutions of 16 channels, each with tanh and pooling, and a hidden layer
/// of 32. For 28×28 pixels and ten classes it has 27,930 parameters.
///
/// # Panics
///
/// If the image has less than 4×4 pixels.
pub fn small(height: usize, width: usize, classes: usize) -> Network {
    let mut network = Network::new(Image::new(height, width, 1));
    for _ in 0..2 {
        network = network.conv(16).then(Tanh).pool();
    }
    network.dense(32).then(Tanh).dense(classes)
}

/// One dense layer: logistic regression with several classes.
pub fn linear(image: Image, classes: usize) -> Network {
    Network::new(image).dense(classes)
}
