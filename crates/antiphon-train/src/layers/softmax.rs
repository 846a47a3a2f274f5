//! The loss: cross-entropy of the softmax of the last layer's outputs.

use crate::real::Real;

/// What one example gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// −ln of the probability that the model gives to the label.
    pub loss: f64,
    /// Whether the label has the largest output; of equal ones the first counts.
    pub correct: bool,
}

/// The loss of one example, and its gradient with respect to the outputs. In `f64` inside: the outputs are few.
pub fn cross_entropy<T: Real>(outputs: &[T], label: usize, gradient: &mut [T]) -> Outcome {
    let mut best = 0;
    for (i, x) in outputs.iter().enumerate() {
        if *x > outputs[best] {
            best = i;
        }
    }
    // The largest output is taken off first, so nothing overflows and the sum is at least one.
    let relative = |x: &T| x.to_f64() - outputs[best].to_f64();
    let sum: f64 = outputs.iter().map(|x| libm::exp(relative(x))).sum();
    for (i, (g, x)) in gradient.iter_mut().zip(outputs).enumerate() {
        let probability = libm::exp(relative(x)) / sum;
        *g = T::from_f64(if i == label { probability - 1.0 } else { probability });
    }
    Outcome { loss: libm::log(sum) - relative(&outputs[label]), correct: best == label && sum.is_finite() }
}
