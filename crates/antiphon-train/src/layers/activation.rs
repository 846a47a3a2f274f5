//! What stands between two layers with weights: a function of each number, in place.

use crate::real::Real;
use pulp::Arch;

/// A function of one number whose slope is a function of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The number itself.
    Identity,
    /// The hyperbolic tangent.
    Tanh,
    /// The number if it is positive, otherwise zero; the slope at zero is zero.
    Relu,
}

impl Activation {
    /// Replaces every number by the function's value. Zero stays zero, so the border of an image does.
    pub fn forward<T: Real>(self, x: &mut [T]) {
        match self {
            Activation::Identity => {}
            Activation::Tanh => Arch::new().dispatch(|| x.iter_mut().for_each(|x| *x = x.tanh())),
            // Not a number stays what it is: only what is below zero goes.
            Activation::Relu => Arch::new().dispatch(|| {
                x.iter_mut().for_each(|x| *x = if *x < T::default() { T::default() } else { *x });
            }),
        }
    }

    /// From the values and the gradient with respect to them to the gradient with respect to what was there before.
    pub fn backward<T: Real>(self, values: &[T], gradient: &mut [T]) {
        let pairs = gradient.iter_mut().zip(values);
        match self {
            Activation::Identity => {}
            Activation::Tanh => {
                Arch::new().dispatch(|| pairs.for_each(|(g, y)| *g = *g * (T::ONE - *y * *y)));
            }
            Activation::Relu => Arch::new().dispatch(|| {
                pairs.for_each(|(g, y)| *g = if *y <= T::default() { T::default() } else { *g });
            }),
        }
    }
}
