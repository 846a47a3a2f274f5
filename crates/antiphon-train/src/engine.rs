//! The engine: from parameters and examples to the exact sum of clipped gradients.
//!
//! [`PerExample`] is all that training needs to know of a model. [`Network`] is the one implementation: examples go through the
//! network in chunks of a few, which the threads take one after the other; each thread adds to a sum of its own. The chunks
//! are the same for any number of threads and the sums are exact (antiphon::clip), so neither the number of threads nor
//! what else the machine does changes a bit of the result. No gradients are kept beyond those of a chunk.

use crate::aligned::Aligned;
use crate::layers::softmax::Outcome;
use crate::network::{Network, Operation};
use crate::pass::{Pass, Weights};
use antiphon::clip::{Clip, MOST_EXAMPLES, squared_norm};
use antiphon::{Error, Result};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Examples that one thread works on at a time. More of them take more memory and no less time.
const CHUNK: usize = 4;
/// Numbers of the threads' sums that are put together at a time.
const PART: usize = 1 << 14;

/// Some examples of a data set, in any order; one may be there twice.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// All examples of the data set, one after the other. An image is plane by plane, each row by row.
    pub inputs: &'a [f32],
    /// Their labels, from 0 on.
    pub labels: &'a [u8],
    /// The numbers of those that are meant.
    pub examples: &'a [usize],
}

/// What became of the examples of a batch. These figures are about the data itself: nothing about them is private.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// How many there were.
    pub examples: usize,
    /// The sum of their losses, where these are finite.
    pub loss: f64,
    /// How many were classified as labelled.
    pub correct: usize,
    /// How many gradients were longer than the clipping norm, up to rounding.
    pub clipped: usize,
    /// How many losses or gradients were not finite. Such gradients count as zero.
    pub not_finite: usize,
    /// How many updates of clients were zeroed: not finite, or with an entry beyond the threshold.
    pub zeroed: usize,
    /// The sum of the gradients' norms before clipping, where these are finite.
    pub norms: f64,
}

impl Totals {
    fn count(&mut self, outcome: Outcome) {
        self.examples += 1;
        self.correct += usize::from(outcome.correct);
        if outcome.loss.is_finite() {
            self.loss += outcome.loss;
        }
    }

    fn add(&mut self, other: &Totals) {
        self.examples += other.examples;
        self.loss += other.loss;
        self.correct += other.correct;
        self.clipped += other.clipped;
        self.not_finite += other.not_finite;
        self.zeroed += other.zeroed;
        self.norms += other.norms;
    }
}

/// A model with a loss, as private training sees it.
pub trait PerExample: Sync {
    /// How many parameters it has.
    fn parameters(&self) -> usize;

    /// Σ gᵢ·min(1, clip/‖gᵢ‖) over the examples of a batch, into `sum`.
    ///
    /// Contributions have a norm of at most `clip`, whatever the parameters and the data are, and `sum` is exactly their sum:
    /// every rounding is within a contribution (antiphon::clip). It is `f64` for that reason; round it after the noise is in.
    fn clipped_sum(&self, parameters: &[f32], batch: Batch<'_>, clip: f64, sum: &mut [f64])
    -> Result<Totals>;

    /// Loss and hits without gradients.
    fn evaluate(&self, parameters: &[f32], batch: Batch<'_>) -> Result<Totals>;
}

impl PerExample for Network {
    fn parameters(&self) -> usize {
        Network::parameters(self)
    }

    fn clipped_sum(
        &self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip: f64,
        sum: &mut [f64],
    ) -> Result<Totals> {
        self.check(parameters, batch)?;
        self.check_length("sum", sum.len())?;
        let clip = Clip::new(clip, parameters.len())?;
        let weights = Weights::new(self, parameters, true);
        let (sums, totals) = in_chunks(
            batch.examples,
            CHUNK,
            || (Pass::new(self, CHUNK, true), Aligned::new(parameters.len())),
            |(pass, sum), examples| {
                let outcomes = self.forward(pass, parameters, &weights, batch, examples);
                pass.backward(self, &weights, examples.len());
                Arch::new().dispatch(AddClipped { network: self, pass, outcomes: &outcomes, clip, sum })
            },
        );
        add_up(sums.iter().map(|(_, sum)| &sum[..]), sum);
        Ok(totals)
    }

    fn evaluate(&self, parameters: &[f32], batch: Batch<'_>) -> Result<Totals> {
        self.check(parameters, batch)?;
        let weights = Weights::new(self, parameters, false);
        let (_, totals) = in_chunks(
            batch.examples,
            CHUNK,
            || Pass::new(self, CHUNK, false),
            |pass, examples| {
                let mut totals = Totals::default();
                for outcome in self.forward(pass, parameters, &weights, batch, examples) {
                    totals.count(outcome);
                    totals.not_finite += usize::from(!outcome.loss.is_finite());
                }
                totals
            },
        );
        Ok(totals)
    }
}

impl Network {
    /// Refuses what does not fit together.
    fn check(&self, parameters: &[f32], batch: Batch<'_>) -> Result<()> {
        self.check_length("parameters", parameters.len())?;
        let (count, classes) = (batch.labels.len(), self.classes());
        if batch.inputs.len() != count * self.inputs() {
            let allowed = format!("{count} examples of {} numbers", self.inputs());
            return Err(Error::argument("inputs", allowed, format!("{} numbers", batch.inputs.len())));
        }
        if batch.examples.len() > MOST_EXAMPLES {
            let allowed = format!("at most {MOST_EXAMPLES}");
            return Err(Error::argument("number of examples in a batch", allowed, batch.examples.len()));
        }
        for example in batch.examples {
            let Some(label) = batch.labels.get(*example) else {
                return Err(Error::argument("example", format!("below {count}"), example));
            };
            if usize::from(*label) >= classes {
                return Err(Error::argument(
                    format!("label of example {example}"),
                    format!("below {classes}"),
                    label,
                ));
            }
        }
        Ok(())
    }

    /// A chunk of examples through the network.
    fn forward(
        &self,
        pass: &mut Pass<f32>,
        parameters: &[f32],
        weights: &Weights<f32>,
        batch: Batch<'_>,
        examples: &[usize],
    ) -> Vec<Outcome> {
        let places = pass.values[0].chunks_exact_mut(self.input.stored());
        for (place, example) in places.zip(examples) {
            let input = &batch.inputs[example * self.inputs()..][..self.inputs()];
            self.input.take(input, place, |x| *x);
        }
        pass.forward(self, parameters, weights, examples.len());
        pass.losses(examples.iter().map(|example| batch.labels[*example]))
    }

    /// See [`AddClipped`].
    #[inline(always)]
    fn add_clipped(&self, pass: &Pass<f32>, outcomes: &[Outcome], clip: Clip, sum: &mut [f64]) -> Totals {
        let mut totals = Totals::default();
        let mut factors = [0.0; CHUNK];
        for (e, outcome) in outcomes.iter().enumerate() {
            let squared_norm = self.squared_norm(pass, e);
            factors[e] = clip.factor(squared_norm);
            totals.count(*outcome);
            totals.clipped += usize::from(factors[e] < 1.0 && factors[e] > 0.0);
            if squared_norm.is_finite() {
                totals.norms += squared_norm.sqrt();
            }
            totals.not_finite += usize::from(!squared_norm.is_finite() || !outcome.loss.is_finite());
        }
        let factors = &factors[..outcomes.len()];
        let mut written = 0;
        for (i, stage) in self.stages.iter().enumerate() {
            let (from, to) = (factors.len() * pass.sizes[i], factors.len() * pass.sizes[i + 1]);
            let sum = &mut sum[stage.parameters.clone()];
            match stage.operation {
                Operation::Conv(_) => {
                    let gradient =
                        |e| &pass.parameters[e * pass.written + written..][..stage.parameters.len()];
                    clip.add(factors, gradient, sum);
                    written += stage.parameters.len();
                }
                Operation::Dense(_) => {
                    clip.add_outer(factors, &pass.values[i][..from], &pass.gradients[i + 1][..to], sum);
                }
                Operation::Pool(_) | Operation::Flatten(_) => {}
            }
        }
        totals
    }

    /// The squared norm of an example's gradient with respect to all parameters.
    #[inline(always)]
    fn squared_norm(&self, pass: &Pass<f32>, example: usize) -> f64 {
        let written = &pass.parameters[example * pass.written..][..pass.written];
        let mut total = squared_norm(written);
        for (i, stage) in self.stages.iter().enumerate() {
            if let Operation::Dense(dense) = stage.operation {
                let x = &pass.values[i][example * dense.inputs..][..dense.inputs];
                let g = &pass.gradients[i + 1][example * dense.outputs..][..dense.outputs];
                // ‖x·gᵀ‖² + ‖g‖².
                total += (squared_norm(x) + 1.0) * squared_norm(g);
            }
        }
        total
    }
}

/// The sum of the threads' sums, which is exact.
pub(crate) fn add_up<'a>(sums: impl Iterator<Item = &'a [f64]> + Clone + Sync + Send, sum: &mut [f64]) {
    sum.par_chunks_mut(PART).enumerate().for_each(|(i, sum)| {
        sum.fill(0.0);
        for part in sums.clone() {
            sum.iter_mut().zip(&part[i * PART..]).for_each(|(sum, part)| *sum += part);
        }
    });
}

/// Calls `work` for all chunks of so many examples, on all threads of the pool, each thread with its own `state`. Totals are added
/// up in the order of the chunks.
pub(crate) fn in_chunks<W: Send>(
    examples: &[usize],
    chunk: usize,
    state: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &[usize]) -> Totals + Sync,
) -> (Vec<W>, Totals) {
    let next = AtomicUsize::new(0);
    let chunks = examples.len().div_ceil(chunk);
    let threads = rayon::current_num_threads().min(chunks);
    let parts: Vec<(W, Vec<(usize, Totals)>)> = (0..threads)
        .into_par_iter()
        .with_max_len(1)
        .map(|_| {
            let (mut state, mut totals) = (state(), Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(examples) = examples.chunks(chunk).nth(number) else { break };
                totals.push((number, work(&mut state, examples)));
            }
            (state, totals)
        })
        .collect();
    let (states, totals): (Vec<W>, Vec<_>) = parts.into_iter().unzip();
    let mut in_order = vec![Totals::default(); chunks];
    totals.into_iter().flatten().for_each(|(chunk, totals)| in_order[chunk] = totals);
    let mut total = Totals::default();
    in_order.iter().for_each(|totals| total.add(totals));
    (states, total)
}

/// Clips the gradients that are in a pass and adds them to a sum.
struct AddClipped<'a> {
    network: &'a Network,
    pass: &'a Pass<f32>,
    outcomes: &'a [Outcome],
    clip: Clip,
    sum: &'a mut [f64],
}

impl WithSimd for AddClipped<'_> {
    type Output = Totals;
    /// Compiled once for every kind of vector unit; none of them is named here.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Totals {
        self.network.add_clipped(self.pass, self.outcomes, self.clip, self.sum)
    }
}
