//! A batch of T positions forward and back, with everything they need in memory that is used again.
//!
//! Two things keep it fast. The softmax is never normalised: with e = exp(logit − max) and s = Σ_v e, the gradient of the
//! logits is (e − s·onehot)/s, and 1/s goes into the small factors. And the parameters are changed in place, by products
//! that start from what is there.

use super::dots::Dots;
use super::parameters::Parameters;
use super::softmax::Softmax;
use super::tokens::Tokens;
use super::{Positions, Window};
use crate::aligned::Aligned;
use crate::product::{Level, Product, Start};
use crate::real::Real;
use pulp::{Arch, Simd, WithSimd};

/// What a batch needs, position by position.
#[derive(Default)]
pub(super) struct Batch<T> {
    /// The different tokens of the windows: their numbers, and then what is added to them.
    tokens: Tokens<T>,
    /// x, and a one for b.
    inputs: Aligned<T>,
    hidden: Aligned<T>,
    /// Logits, then e, then e − s·onehot.
    pub outputs: Aligned<T>,
    /// The label's logit minus the largest one.
    targets: Vec<T>,
    /// The first token with the largest logit, where it was looked for.
    pub guesses: Vec<u32>,
    /// s.
    sums: Vec<T>,
    /// −(rate/T)/s·(h, 1).
    factors: Aligned<T>,
    /// −(rate/T) times the gradient before tanh.
    slopes: Aligned<T>,
    /// −(rate/T) times the gradient of x.
    back: Aligned<T>,
    /// Wᵀ.
    turned: Aligned<T>,
}

impl<T: Real> Batch<T> {
    /// Room for this many positions.
    fn grow(&mut self, window: Window, stride: usize, count: usize) {
        if self.sums.len() >= count {
            return;
        }
        let (width, inputs) = (window.width, window.inputs());
        let zeros = |size: usize| Aligned::new(count * size);
        *self = Batch {
            tokens: Tokens::default(),
            inputs: zeros(inputs + 1),
            hidden: zeros(width),
            outputs: zeros(stride),
            targets: vec![T::default(); count],
            guesses: vec![0; count],
            sums: vec![T::default(); count],
            factors: zeros(width + 1),
            slopes: zeros(width),
            back: zeros(inputs),
            turned: Aligned::new(inputs * width),
        };
    }

    /// Logits.
    pub fn forward(&mut self, parameters: &Parameters<T>, positions: Positions<'_>) {
        let Window { width, context, .. } = parameters.window;
        let (inputs, count) = (parameters.window.inputs(), positions.labels.len());
        self.grow(parameters.window, parameters.stride, count);
        self.tokens.gather(positions.contexts, &parameters.table, parameters.stride, width);
        let windows = self.tokens.slots.chunks_exact(context);
        for (x, window) in self.inputs.chunks_exact_mut(inputs + 1).zip(windows) {
            for (x, slot) in x.chunks_exact_mut(width).zip(window) {
                x.copy_from_slice(&self.tokens.rows[slot * width..][..width]);
            }
            x[inputs] = T::ONE;
        }
        let (weights, biases) = parameters.weights();
        Product {
            rows: [Level::ONE, Level { count, a: inputs + 1, other: width }],
            terms: [Level::ONE, Level { count: inputs, a: 1, other: width }],
            columns: width,
            start: Start::Columns(biases),
            a: &self.inputs,
            b: weights,
            c: &mut self.hidden,
        }
        .run();
        let hidden = &mut self.hidden[..count * width];
        Arch::new().dispatch(|| hidden.iter_mut().for_each(|h| *h = h.tanh()));
        let (table, biases) = parameters.table();
        Product {
            rows: [Level::ONE, Level { count, a: width, other: parameters.stride }],
            terms: [Level::ONE, Level { count: width, a: 1, other: parameters.stride }],
            columns: parameters.columns,
            start: Start::Columns(biases),
            a: &self.hidden,
            b: table,
            c: &mut self.outputs,
        }
        .run();
    }

    /// Logits to e and s. Guesses are looked for at all positions, or only where the label may be it; `never` is none.
    pub fn softmax(&mut self, parameters: &Parameters<T>, labels: &[u32], all: bool, never: Option<u32>) {
        Softmax {
            labels,
            stride: parameters.stride,
            columns: parameters.columns,
            all,
            never,
            outputs: &mut self.outputs,
            targets: &mut self.targets,
            guesses: &mut self.guesses,
            sums: &mut self.sums,
        }
        .run();
    }

    /// −ln of the probability of the label: ln s − (its logit − max), where s is at least one.
    pub fn loss(&self, position: usize) -> f64 {
        libm::log(self.sums[position].to_f64()) - self.targets[position].to_f64()
    }

    /// A step against the gradient, after [`Batch::softmax`].
    pub fn step(&mut self, parameters: &mut Parameters<T>, labels: &[u32], rate: f64) {
        self.gradients(parameters, labels, rate);
        // Both want W and E before they are changed.
        self.input_gradients(parameters, labels.len());
        self.change(parameters, labels.len());
    }

    /// Factors and slopes.
    fn gradients(&mut self, parameters: &Parameters<T>, labels: &[u32], rate: f64) {
        let (width, stride, count) = (parameters.window.width, parameters.stride, labels.len());
        for (t, label) in labels.iter().enumerate() {
            let e = &mut self.outputs[t * stride + *label as usize];
            *e = *e - self.sums[t];
        }
        Dots {
            left: &self.outputs[..count * stride],
            right: parameters.table().0,
            stride,
            columns: parameters.columns,
            out: &mut self.slopes[..count * width],
        }
        .run();
        Arch::new().dispatch(Scale {
            rate: -rate / count as f64,
            width,
            sums: &self.sums[..count],
            hidden: &self.hidden,
            factors: &mut self.factors,
            slopes: &mut self.slopes,
        });
    }

    /// Back to x, and added up by token.
    fn input_gradients(&mut self, parameters: &Parameters<T>, count: usize) {
        let (width, inputs) = (parameters.window.width, parameters.window.inputs());
        turn(parameters.weights().0, width, &mut self.turned);
        Product {
            rows: [Level::ONE, Level { count, a: width, other: inputs }],
            terms: [Level::ONE, Level { count: width, a: 1, other: inputs }],
            columns: inputs,
            start: Start::Zero,
            a: &self.slopes,
            b: &self.turned,
            c: &mut self.back,
        }
        .run();
        self.tokens.clear(width);
        for (back, slot) in self.back.chunks_exact(width).zip(&self.tokens.slots) {
            let row = &mut self.tokens.rows[slot * width..][..width];
            row.iter_mut().zip(back).for_each(|(row, back)| *row += *back);
        }
    }

    /// The parameters, in place.
    fn change(&self, parameters: &mut Parameters<T>, count: usize) {
        let (width, inputs, stride) =
            (parameters.window.width, parameters.window.inputs(), parameters.stride);
        Product {
            rows: [Level::ONE, Level { count: width + 1, a: 1, other: stride }],
            terms: [Level::ONE, Level { count, a: width + 1, other: stride }],
            columns: parameters.columns,
            start: Start::There,
            a: &self.factors,
            b: &self.outputs,
            c: &mut parameters.table,
        }
        .run();
        Product {
            rows: [Level::ONE, Level { count: inputs + 1, a: 1, other: width }],
            terms: [Level::ONE, Level { count, a: inputs + 1, other: width }],
            columns: width,
            start: Start::There,
            a: &self.inputs,
            b: &self.slopes,
            c: &mut parameters.weights,
        }
        .run();
        self.tokens.scatter(&mut parameters.table, stride, width);
    }
}

/// Factors from s and h; slopes from inner products, s and h.
struct Scale<'a, T> {
    /// −rate/T.
    rate: f64,
    width: usize,
    sums: &'a [T],
    hidden: &'a [T],
    factors: &'a mut [T],
    slopes: &'a mut [T],
}

impl<T: Real> WithSimd for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows =
            self.factors.chunks_exact_mut(self.width + 1).zip(self.slopes.chunks_exact_mut(self.width));
        let inputs = self.sums.iter().zip(self.hidden.chunks_exact(self.width));
        for ((sum, hidden), (factors, slopes)) in inputs.zip(rows) {
            let scale = T::from_f64(self.rate / sum.to_f64());
            for ((h, factor), slope) in hidden.iter().zip(factors.iter_mut()).zip(slopes) {
                *factor = scale * *h;
                *slope = scale * *slope * (T::ONE - *h * *h);
            }
            factors[self.width] = scale;
        }
    }
}

/// The transpose of a matrix with rows of `width` numbers; a few rows at a time, which stay in the first cache.
fn turn<T: Real>(matrix: &[T], width: usize, turned: &mut [T]) {
    const ROWS: usize = 16;
    let rows = matrix.len() / width;
    for (block, some) in matrix.chunks(ROWS * width).enumerate() {
        for (i, turned) in turned.chunks_exact_mut(rows).enumerate() {
            let column = some.iter().skip(i).step_by(width);
            turned[block * ROWS..].iter_mut().zip(column).for_each(|(to, from)| *to = *from);
        }
    }
}
