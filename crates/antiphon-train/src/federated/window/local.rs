//! A client's own training: a few steps of gradient descent on a copy of the parameters, and how far they went.
//!
//! A step takes a batch of T positions forward and back. Two things keep it fast. The softmax is never normalised: with
//! e = exp(logit − max) and s = Σ_v e, the gradient of the logits is (e − s·onehot)/s, and 1/s goes into the small factors. And
//! the parameters are changed in place, by products that start from what is there.

use super::aligned::Aligned;
use super::dots::{Dots, PARTS};
use super::softmax::Softmax;
use super::tokens::Tokens;
use super::{Positions, Schedule, Totals, Window};
use crate::product::{Level, Product, Start};
use crate::real::Real;
use pulp::Arch;

/// Positions that are evaluated together.
const EVALUATED: usize = 32;

/// The memory of one client's training, used again by the next one. Make one per thread.
pub struct Local<T: Real = f32> {
    window: Window,
    /// Numbers from one row of the table to the next: those behind the vocabulary are tokens of probability zero.
    stride: usize,
    /// Eᵀ and, as one more row, c.
    table: Aligned<T>,
    /// W and, as one more row, b.
    weights: Aligned<T>,
    update: Vec<T>,
    batch: Batch<T>,
}

/// What a batch needs, position by position.
#[derive(Default)]
struct Batch<T> {
    /// x, and a one for b.
    inputs: Aligned<T>,
    hidden: Aligned<T>,
    /// Logits, then e.
    outputs: Aligned<T>,
    /// The label's logit minus the largest one.
    targets: Vec<T>,
    /// The token of the largest logit, where it was looked for.
    guesses: Vec<u32>,
    /// s.
    sums: Vec<T>,
    /// −(rate/T)/s·(h, 1).
    factors: Aligned<T>,
    /// −(rate/T) times the gradient before tanh.
    slopes: Aligned<T>,
    /// −(rate/T) times the gradient of x.
    back: Aligned<T>,
    /// The different tokens of the windows: their numbers, and then what is added to them.
    tokens: Tokens<T>,
    /// Wᵀ.
    turned: Aligned<T>,
}

impl<T: Real> Local<T> {
    /// Memory for clients of this model.
    pub fn new(window: &Window) -> Self {
        let lines = window.vocabulary.div_ceil(PARTS);
        // An odd number of cache lines: a power of two would send a column to a few places of the cache.
        let stride = (lines | 1) * PARTS;
        let mut table = Aligned::new((window.width + 1) * stride);
        // exp of it is zero: these tokens have no part in anything.
        table[window.width * stride + window.vocabulary..].fill(T::from_f64(f64::NEG_INFINITY));
        Local {
            window: *window,
            stride,
            table,
            weights: Aligned::new((window.inputs() + 1) * window.width),
            update: vec![T::default(); window.parameters()],
            batch: Batch::default(),
        }
    }

    /// Gradient descent from `theta` over the positions, in their order: each step subtracts `rate` times the mean gradient of
    /// its batch. Then [`Local::update`] has what the client moved by.
    ///
    /// Parameters that are not finite, or grow so, give an update that is not finite.
    ///
    /// # Panics
    ///
    /// If `theta` or the contexts have the wrong length. Tokens must be below the vocabulary: others panic or give
    /// numbers without meaning.
    pub fn train(&mut self, theta: &[T], positions: Positions<'_>, schedule: Schedule) -> Totals {
        self.load(theta, positions);
        let batches = positions.batches(self.window.context, schedule.batch.max(1));
        let first = batches.clone().count();
        let steps = schedule.steps.unwrap_or(usize::MAX);
        let mut totals = Totals::default();
        let all = (0..schedule.epochs).flat_map(|_| batches.clone());
        for (step, batch) in all.take(steps).enumerate() {
            self.forward(batch);
            self.softmax(batch, false);
            if step < first {
                totals.positions += batch.labels.len();
                for (t, label) in batch.labels.iter().enumerate() {
                    let loss = self.batch.loss(t);
                    totals.loss += loss;
                    totals.hits += usize::from(self.batch.guesses[t] == *label && loss.is_finite());
                }
            }
            self.backward(batch, schedule.rate);
        }
        self.store(theta);
        totals
    }

    /// What the last client moved by: for every parameter `theta` − its value at the end, one subtraction in this type.
    /// Zero for a client without positions.
    pub fn update(&self) -> &[T] {
        &self.update
    }

    /// Calls `each` with the place of every position, its loss and the token of the largest logit (of equal ones the first), with
    /// these parameters. [`Local::update`] stays what it is. Panics as [`Local::train`] does.
    pub fn evaluate(&mut self, theta: &[T], positions: Positions<'_>, mut each: impl FnMut(usize, f64, u32)) {
        self.load(theta, positions);
        for (i, batch) in positions.batches(self.window.context, EVALUATED).enumerate() {
            self.forward(batch);
            self.softmax(batch, true);
            for t in 0..batch.labels.len() {
                each(i * EVALUATED + t, self.batch.loss(t), self.batch.guesses[t]);
            }
        }
    }

    /// Copies the parameters, each row of the table to its place.
    fn load(&mut self, theta: &[T], positions: Positions<'_>) {
        let Window { vocabulary, width, context } = self.window;
        assert_eq!(theta.len(), self.window.parameters(), "length of theta");
        assert_eq!(positions.contexts.len(), context * positions.labels.len(), "length of contexts");
        let tokens = positions.contexts.iter().chain(positions.labels);
        debug_assert!(tokens.into_iter().all(|token| (*token as usize) < vocabulary), "a token is too large");
        let (table, rest) = theta.split_at(width * vocabulary);
        let (weights, biases) = rest.split_at(self.weights.len());
        let rows = table.chunks_exact(vocabulary).chain([biases]);
        self.table
            .chunks_exact_mut(self.stride)
            .zip(rows)
            .for_each(|(to, from)| to[..vocabulary].copy_from_slice(from));
        self.weights.copy_from_slice(weights);
    }

    /// `theta` minus the parameters, into the update.
    fn store(&mut self, theta: &[T]) {
        let Window { vocabulary, width, .. } = self.window;
        let rows = self.table.chunks_exact(self.stride).map(|row| &row[..vocabulary]);
        let mut at = 0;
        for part in rows.clone().take(width).chain([&self.weights[..]]).chain(rows.skip(width)) {
            let range = at..at + part.len();
            let triples = self.update[range.clone()].iter_mut().zip(&theta[range]).zip(part);
            Arch::new()
                .dispatch(|| triples.for_each(|((update, before), after)| *update = *before - *after));
            at += part.len();
        }
    }

    /// Logits of a batch.
    fn forward(&mut self, positions: Positions<'_>) {
        let Window { vocabulary, width, .. } = self.window;
        let (stride, inputs, count) = (self.stride, self.window.inputs(), positions.labels.len());
        let b = &mut self.batch;
        b.grow(self.window, stride, count);
        b.tokens.gather(positions.contexts, &self.table, stride, width);
        let windows = b.tokens.slots.chunks_exact(self.window.context);
        for (x, window) in b.inputs.chunks_exact_mut(inputs + 1).zip(windows) {
            for (x, slot) in x.chunks_exact_mut(width).zip(window) {
                x.copy_from_slice(&b.tokens.rows[slot * width..][..width]);
            }
            x[inputs] = T::ONE;
        }
        let (weights, biases) = self.weights.split_at(inputs * width);
        Product {
            rows: [Level::ONE, Level { count, a: inputs + 1, other: width }],
            terms: [Level::ONE, Level { count: inputs, a: 1, other: width }],
            columns: width,
            start: Start::Columns(biases),
            a: &b.inputs,
            b: weights,
            c: &mut b.hidden,
        }
        .run();
        let hidden = &mut b.hidden[..count * width];
        Arch::new().dispatch(|| hidden.iter_mut().for_each(|h| *h = h.tanh()));
        let (table, biases) = self.table.split_at(width * stride);
        Product {
            rows: [Level::ONE, Level { count, a: width, other: stride }],
            terms: [Level::ONE, Level { count: width, a: 1, other: stride }],
            columns: vocabulary.next_multiple_of(PARTS),
            start: Start::Columns(biases),
            a: &b.hidden,
            b: table,
            c: &mut b.outputs,
        }
        .run();
    }

    /// Logits to e and their sums. The tokens of the largest logits are looked for at all positions, or only where it is the label's.
    fn softmax(&mut self, positions: Positions<'_>, all: bool) {
        let columns = self.window.vocabulary.next_multiple_of(PARTS);
        let b = &mut self.batch;
        Softmax {
            labels: positions.labels,
            stride: self.stride,
            columns,
            all,
            outputs: &mut b.outputs,
            targets: &mut b.targets,
            guesses: &mut b.guesses,
            sums: &mut b.sums,
        }
        .run();
    }

    /// A step against the gradient, after [`Local::softmax`].
    fn backward(&mut self, positions: Positions<'_>, rate: f64) {
        let Window { vocabulary, width, .. } = self.window;
        let (stride, inputs, count) = (self.stride, self.window.inputs(), positions.labels.len());
        let columns = vocabulary.next_multiple_of(PARTS);
        let b = &mut self.batch;
        for (t, label) in positions.labels.iter().enumerate() {
            b.outputs[t * stride + *label as usize] = b.outputs[t * stride + *label as usize] - b.sums[t];
        }
        let slopes = &mut b.slopes[..count * width];
        Dots {
            left: &b.outputs[..count * stride],
            right: &self.table[..width * stride],
            stride,
            columns,
            out: slopes,
        }
        .run();
        for t in 0..count {
            let scale = T::from_f64(-rate / count as f64 / b.sums[t].to_f64());
            let factors = &mut b.factors[t * (width + 1)..][..width + 1];
            for i in 0..width {
                let h = b.hidden[t * width + i];
                factors[i] = scale * h;
                let slope = &mut slopes[t * width + i];
                *slope = scale * *slope * (T::ONE - h * h);
            }
            factors[width] = scale;
        }
        turn(&self.weights[..inputs * width], width, &mut b.turned);
        Product {
            rows: [Level::ONE, Level { count, a: width, other: inputs }],
            terms: [Level::ONE, Level { count: width, a: 1, other: inputs }],
            columns: inputs,
            start: Start::Zero,
            a: slopes,
            b: &b.turned,
            c: &mut b.back,
        }
        .run();
        Product {
            rows: [Level::ONE, Level { count: width + 1, a: 1, other: stride }],
            terms: [Level::ONE, Level { count, a: width + 1, other: stride }],
            columns,
            start: Start::There,
            a: &b.factors,
            b: &b.outputs,
            c: &mut self.table,
        }
        .run();
        Product {
            rows: [Level::ONE, Level { count: inputs + 1, a: 1, other: width }],
            terms: [Level::ONE, Level { count, a: inputs + 1, other: width }],
            columns: width,
            start: Start::There,
            a: &b.inputs,
            b: slopes,
            c: &mut self.weights,
        }
        .run();
        b.tokens.clear(width);
        for (back, slot) in b.back.chunks_exact(width).zip(&b.tokens.slots) {
            let row = &mut b.tokens.rows[slot * width..][..width];
            row.iter_mut().zip(back).for_each(|(row, back)| *row += *back);
        }
        b.tokens.scatter(&mut self.table, stride, width);
    }
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
            inputs: zeros(inputs + 1),
            hidden: zeros(width),
            outputs: zeros(stride),
            targets: vec![T::default(); count],
            guesses: vec![0; count],
            sums: vec![T::default(); count],
            factors: zeros(width + 1),
            slopes: zeros(width),
            back: zeros(inputs),
            tokens: Tokens::default(),
            turned: Aligned::new(inputs * width),
        };
    }

    /// −ln of the probability of the label: ln s − (its logit − max), where s is at least one.
    fn loss(&self, position: usize) -> f64 {
        libm::log(self.sums[position].to_f64()) - self.targets[position].to_f64()
    }
}

/// The transpose of a matrix with rows of `width` numbers; a few rows at a time, which stay in the first cache.
fn turn<T: Real>(matrix: &[T], width: usize, turned: &mut [T]) {
    let rows = matrix.len() / width;
    for (block, some) in matrix.chunks(PARTS * width).enumerate() {
        for (i, turned) in turned.chunks_exact_mut(rows).enumerate() {
            let column = some.iter().skip(i).step_by(width);
            turned[block * PARTS..].iter_mut().zip(column).for_each(|(to, from)| *to = *from);
        }
    }
}
