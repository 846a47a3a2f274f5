//! The variance of the noise in every iterate, and its gradient, in linear time.
//!
//! Filter and workload together are a small linear system. With x_t the input at step t, s the buffers, p what momentum holds and u the
//! noise in the model,
//!
//! ```text
//! ξ = x_t − Σ ω̂_q s_q      s_q ← ẑ_q s_q + x_t      p ← β p + o_t ξ      u ← u + η_t p
//! ```
//!
//! The inputs of one residue are correlated, with covariance K_r = J_rJ_rᵀ, J_r = Diag(e_r)·L_r; those of different residues are not. So the
//! covariance of the state needs, at step t of epoch j, what the inputs of the same residue in earlier epochs have become: the state goes from
//! one epoch to the next by a map of 2d + 1 numbers, which is put together from the end of one epoch and the beginning of the next. docs/theory.md,
//! section 10.

use super::blocks::power;
use super::filter::{Filter, MAX_BUFFERS};
use crate::linalg::vectors::{add, dot};
use crate::workload::Training;
use rayon::prelude::*;

/// Filter, workload and gains of a run.
pub struct System<'a> {
    period: usize,
    training: &'a Training,
    output: &'a [f64],
    zeros: &'a [f64],
    /// ω̂.
    weights: Vec<f64>,
    /// ẑ_q^m for m = 0..=b, d numbers each.
    zero_powers: Vec<f64>,
    /// β^m for m = 0..=b.
    momentum_powers: Vec<f64>,
}

/// Maps of the state, one after another: s → ẑ^m s, p → β^m p − P·s, u → u + ε p − U·s. Each has 2d + 1 numbers: P, U, ε.
struct Maps {
    buffers: usize,
    numbers: Vec<f64>,
}

impl Maps {
    /// So many, all of them the identity.
    fn identities(count: usize, buffers: usize) -> Maps {
        Maps { buffers, numbers: vec![0.0; count * (2 * buffers + 1)] }
    }

    fn get(&self, i: usize) -> (&[f64], &[f64], f64) {
        let d = self.buffers;
        let map = &self.numbers[i * (2 * d + 1)..][..2 * d + 1];
        (&map[..d], &map[d..2 * d], map[2 * d])
    }

    fn get_mut(&mut self, i: usize) -> &mut [f64] {
        let size = 2 * self.buffers + 1;
        &mut self.numbers[i * size..][..size]
    }

    fn chunks_mut(&mut self, first: usize) -> std::slice::ChunksExactMut<'_, f64> {
        let size = 2 * self.buffers + 1;
        self.numbers[first * size..].chunks_exact_mut(size)
    }
}

/// From after step r of one epoch to after step r of the next.
struct Turn<'a> {
    /// ẑ^b.
    decay: &'a [f64],
    /// β^b.
    beta: f64,
    by_p: [f64; MAX_BUFFERS],
    by_u: [f64; MAX_BUFFERS],
    epsilon: f64,
}

impl Turn<'_> {
    fn apply(&self, state: &mut [f64]) {
        let (s, tail) = state.split_at_mut(self.decay.len());
        let (lost_p, lost_u) = (dot(&self.by_p, s), dot(&self.by_u, s));
        tail[1] += self.epsilon * tail[0] - lost_u;
        tail[0] = self.beta * tail[0] - lost_p;
        s.iter_mut().zip(self.decay).for_each(|(s, decay)| *s *= decay);
    }

    fn apply_transpose(&self, state: &mut [f64]) {
        let (s, tail) = state.split_at_mut(self.decay.len());
        for (q, s) in s.iter_mut().enumerate() {
            *s = self.decay[q] * *s - self.by_p[q] * tail[0] - self.by_u[q] * tail[1];
        }
        tail[0] = self.beta * tail[0] + self.epsilon * tail[1];
    }
}

/// What the gradient needs of the way forward, for every step.
struct Trace {
    /// The covariance of the state.
    covariances: Vec<f64>,
    /// Σ K_ij·(input i, as it has become), over the epochs i before.
    correlated: Vec<f64>,
    /// Of every epoch and every residue: the inputs of the epochs before, as they have become.
    inputs: Vec<Vec<f64>>,
}

/// The loss for unit sensitivity, and its derivatives.
pub struct Gradient {
    /// ‖A·W‖²_F.
    pub loss: f64,
    /// By o of every step.
    pub output: Vec<f64>,
    /// By K_r of every residue: b symmetric k×k matrices. dloss = Σ ⟨these, dK_r⟩.
    pub covariance: Vec<f64>,
}

impl<'a> System<'a> {
    /// For epochs of b steps and o of every step.
    pub fn new(period: usize, filter: &'a Filter, training: &'a Training, output: &'a [f64]) -> System<'a> {
        let powers = |m: usize| filter.zeros().iter().map(move |zero| power(*zero, m));
        System {
            period,
            training,
            output,
            zeros: filter.zeros(),
            weights: filter.inverse_weights(),
            zero_powers: (0..=period).flat_map(powers).collect(),
            momentum_powers: (0..=period).map(|m| power(training.momentum(), m)).collect(),
        }
    }

    fn steps(&self) -> usize {
        self.output.len()
    }

    fn epochs(&self) -> usize {
        self.steps().div_ceil(self.period)
    }

    /// The steps of one epoch: b, or fewer in the last.
    fn steps_of(&self, epoch: usize) -> usize {
        self.steps().saturating_sub(epoch * self.period).min(self.period)
    }

    fn buffers(&self) -> usize {
        self.zeros.len()
    }

    /// The numbers of a state: buffers, p, u.
    fn size(&self) -> usize {
        self.buffers() + 2
    }

    fn zero_powers(&self, m: usize) -> &[f64] {
        &self.zero_powers[m * self.buffers()..][..self.buffers()]
    }

    /// The state after a unit input at step t.
    fn impulse(&self, t: usize, state: &mut [f64]) {
        let d = self.buffers();
        state[..d].fill(1.0);
        state[d] = self.output[t];
        state[d + 1] = self.training.rate(t) * self.output[t];
    }

    /// One step without input.
    fn step(&self, t: usize, state: &mut [f64]) {
        let (s, tail) = state.split_at_mut(self.buffers());
        tail[0] = self.training.momentum() * tail[0] - self.output[t] * dot(s, &self.weights);
        tail[1] += self.training.rate(t) * tail[0];
        s.iter_mut().zip(self.zeros).for_each(|(s, zero)| *s *= zero);
    }

    /// The transpose of [`System::step`].
    fn step_transpose(&self, t: usize, state: &mut [f64]) {
        let (s, tail) = state.split_at_mut(self.buffers());
        tail[0] += self.training.rate(t) * tail[1];
        let held = self.output[t] * tail[0];
        for ((s, zero), weight) in s.iter_mut().zip(self.zeros).zip(&self.weights) {
            *s = zero * *s - weight * held;
        }
        tail[0] *= self.training.momentum();
    }

    /// For every r in 0..=b: from before step r of a whole epoch to its end.
    fn ends(&self, epoch: usize) -> Maps {
        let (b, d, beta) = (self.period, self.buffers(), self.training.momentum());
        let mut all = Maps::identities(b + 1, d);
        let mut held = vec![0.0; 2 * d + 1];
        for r in (0..b).rev() {
            let t = epoch * b + r;
            let rate = self.training.rate(t) + held[2 * d];
            let (o, left) = (self.output[t], self.momentum_powers[b - 1 - r]);
            for q in 0..d {
                held[q] = self.zeros[q] * held[q] + left * o * self.weights[q];
                held[d + q] = self.zeros[q] * held[d + q] + rate * o * self.weights[q];
            }
            held[2 * d] = beta * rate;
            all.get_mut(r).copy_from_slice(&held);
        }
        all
    }

    /// For every r in 0..=b, as far as the run goes: from the beginning of an epoch to before step r.
    fn begins(&self, epoch: usize) -> Maps {
        let (b, d, beta) = (self.period, self.buffers(), self.training.momentum());
        let steps = self.steps_of(epoch);
        let mut all = Maps::identities(steps + 1, d);
        let mut held = vec![0.0; 2 * d + 1];
        for r in 0..steps {
            let t = epoch * b + r;
            let (o, rate) = (self.output[t], self.training.rate(t));
            for (q, power) in self.zero_powers(r).iter().enumerate() {
                held[q] = beta * held[q] + o * self.weights[q] * power;
                held[d + q] += rate * held[q];
            }
            held[2 * d] += rate * self.momentum_powers[r + 1];
            all.get_mut(r + 1).copy_from_slice(&held);
        }
        all
    }

    /// From after step r of an epoch to after step r of the next: to the end of the one, and on from there.
    fn turn(&self, r: usize, ends: &Maps, begins: &Maps) -> Turn<'_> {
        let (end_p, end_u, end_epsilon) = ends.get(r + 1);
        let (begin_p, begin_u, begin_epsilon) = begins.get(r + 1);
        let left = self.period - 1 - r;
        let held = self.momentum_powers[r + 1];
        let (mut by_p, mut by_u) = ([0.0; MAX_BUFFERS], [0.0; MAX_BUFFERS]);
        for (q, power) in self.zero_powers(left).iter().enumerate() {
            by_p[q] = held * end_p[q] + power * begin_p[q];
            by_u[q] = end_u[q] + begin_epsilon * end_p[q] + power * begin_u[q];
        }
        Turn {
            decay: self.zero_powers(self.period),
            beta: self.momentum_powers[self.period],
            by_p,
            by_u,
            epsilon: end_epsilon + self.momentum_powers[left] * begin_epsilon,
        }
    }

    /// The variance of the noise in every iterate, for the covariances K_r of the inputs: b symmetric k×k matrices.
    pub fn variances(&self, covariances: &[f64]) -> Vec<f64> {
        let mut variances = Vec::with_capacity(self.steps());
        self.forward(covariances, |state| variances.push(state[state.len() - 1]), None);
        variances
    }

    /// Calls with the covariance of the state after every step.
    fn forward(&self, covariances: &[f64], mut seen: impl FnMut(&[f64]), mut trace: Option<&mut Trace>) {
        let (b, k, m) = (self.period, self.epochs(), self.size());
        // Of every residue: the inputs of the epochs so far, as they have become.
        let mut inputs = vec![0.0; b * k * m];
        let mut covariance = vec![0.0; m * m];
        let (mut impulse, mut column) = (vec![0.0; m], vec![0.0; m]);
        let mut ends = Maps::identities(0, self.buffers());
        for epoch in 0..k {
            let steps = self.steps_of(epoch);
            let mut correlated = vec![0.0; steps * m];
            if epoch > 0 {
                let begins = self.begins(epoch);
                let residues = correlated.par_chunks_mut(m).zip(inputs.par_chunks_mut(k * m)).enumerate();
                residues.for_each(|(r, (correlated, inputs))| {
                    let turn = self.turn(r, &ends, &begins);
                    let given = &covariances[r * k * k + epoch * k..][..epoch];
                    for (state, given) in inputs.chunks_exact_mut(m).zip(given) {
                        turn.apply(state);
                        add(correlated, *given, state);
                    }
                });
            }
            for r in 0..steps {
                let t = epoch * b + r;
                self.impulse(t, &mut impulse);
                inputs[(r * k + epoch) * m..][..m].copy_from_slice(&impulse);
                // Σ ← FΣFᵀ + cbᵀ + bcᵀ + K_jj·bbᵀ.
                for _ in 0..2 {
                    covariance.chunks_exact_mut(m).for_each(|row| self.step(t, row));
                    transpose(&mut covariance, m);
                }
                column.copy_from_slice(&correlated[r * m..][..m]);
                add(&mut column, 0.5 * covariances[r * k * k + epoch * (k + 1)], &impulse);
                for (i, row) in covariance.chunks_exact_mut(m).enumerate() {
                    add(row, column[i], &impulse);
                    add(row, impulse[i], &column);
                }
                seen(&covariance);
                if let Some(trace) = &mut trace {
                    trace.covariances.extend_from_slice(&covariance);
                }
            }
            if let Some(trace) = &mut trace {
                trace.correlated.extend_from_slice(&correlated);
                let before = inputs[..steps * k * m].chunks_exact(k * m);
                trace.inputs.push(before.flat_map(|inputs| &inputs[..epoch * m]).copied().collect());
            }
            if self.steps_of(epoch + 1) > 0 {
                ends = self.ends(epoch);
            }
        }
    }

    /// The loss and its derivatives.
    pub fn gradient(&self, covariances: &[f64]) -> Gradient {
        let (n, m) = (self.steps(), self.size());
        let mut trace = Trace {
            covariances: Vec::with_capacity(n * m * m),
            correlated: Vec::with_capacity(n * m),
            inputs: Vec::with_capacity(self.epochs()),
        };
        let mut loss = 0.0;
        self.forward(covariances, |state| loss += state[state.len() - 1], Some(&mut trace));
        let mut found = Gradient { loss, output: vec![0.0; n], covariance: vec![0.0; covariances.len()] };
        self.backward(covariances, &trace, &mut found);
        found
    }

    fn backward(&self, covariances: &[f64], trace: &Trace, found: &mut Gradient) {
        let (b, k, m, d) = (self.period, self.epochs(), self.size(), self.buffers());
        // The derivative by the covariance of the state after a step.
        let mut q = vec![0.0; m * m];
        let mut impulse = vec![0.0; m];
        // Of every residue: the derivatives by the inputs as they are in the epoch after this one.
        let mut by_inputs = vec![0.0; b * k * m];
        for epoch in (0..k).rev() {
            let (steps, after) = (self.steps_of(epoch), self.steps_of(epoch + 1));
            let mut by_correlated = vec![0.0; steps * m];
            for r in (0..steps).rev() {
                let t = epoch * b + r;
                q[m * m - 1] += 1.0;
                self.impulse(t, &mut impulse);
                let by_correlated = &mut by_correlated[r * m..][..m];
                by_correlated
                    .iter_mut()
                    .zip(q.chunks_exact(m))
                    .for_each(|(x, row)| *x = 2.0 * dot(row, &impulse));
                let own = covariances[r * k * k + epoch * (k + 1)];
                // By the impulse: in b·cᵀ and K·b·bᵀ here, and in the inputs of later epochs below.
                let correlated = &trace.correlated[t * m..][..m];
                let by_impulse = |i: usize| 2.0 * dot(&q[i * m..][..m], correlated) + own * by_correlated[i];
                found.output[t] += by_impulse(d) + self.training.rate(t) * by_impulse(d + 1);
                found.covariance[r * k * k + epoch * (k + 1)] += 0.5 * dot(by_correlated, &impulse);
                if t > 0 {
                    let before = &trace.covariances[(t - 1) * m * m..][..m * m];
                    found.output[t] += self.by_output_of_step(t, &q, before);
                }
                // Q ← FᵀQF.
                for _ in 0..2 {
                    q.chunks_exact_mut(m).for_each(|row| self.step_transpose(t, row));
                    transpose(&mut q, m);
                }
            }
            let mut by_ends = Maps::identities(b + 1, d);
            let mut by_begins = Maps::identities(b + 1, d);
            if after > 0 {
                let (ends, begins) = (self.ends(epoch), self.begins(epoch + 1));
                let maps = by_ends.chunks_mut(1).zip(by_begins.chunks_mut(1)).collect::<Vec<_>>();
                let earlier = trace.inputs[epoch].as_slice();
                let output = &mut found.output[epoch * b..][..after];
                let all = maps.into_par_iter().zip(by_inputs.par_chunks_mut(k * m)).zip(output).enumerate();
                all.take(after).for_each(|(r, (((by_end, by_begin), by_inputs), output))| {
                    let mut impulse = vec![0.0; m];
                    self.impulse(epoch * b + r, &mut impulse);
                    let earlier = &earlier[r * epoch * m..][..epoch * m];
                    let turn = self.turn(r, &ends, &begins);
                    let states = earlier.chunks_exact(m).chain(std::iter::once(&impulse[..]));
                    let mut by_map = vec![0.0; 2 * d];
                    for (by_state, state) in by_inputs.chunks_exact_mut(m).zip(states) {
                        add(&mut by_map[..d], -by_state[d], &state[..d]);
                        add(&mut by_map[d..], -by_state[d + 1], &state[..d]);
                        turn.apply_transpose(by_state);
                    }
                    let by_impulse = &mut by_inputs[epoch * m..][..m];
                    *output += by_impulse[d] + self.training.rate(epoch * b + r) * by_impulse[d + 1];
                    by_impulse.fill(0.0);
                    let (held, epsilon) = (self.momentum_powers[r + 1], begins.get(r + 1).2);
                    for (i, power) in self.zero_powers(b - 1 - r).iter().enumerate() {
                        by_end[i] = held * by_map[i] + epsilon * by_map[d + i];
                        by_end[d + i] = by_map[d + i];
                        by_begin[i] = power * by_map[i];
                        by_begin[d + i] = power * by_map[d + i];
                    }
                });
                self.by_outputs_of_ends(epoch, &ends, &mut by_ends, &mut found.output);
                self.by_outputs_of_begins(epoch + 1, &mut by_begins, &mut found.output);
            }
            if epoch > 0 {
                let residues = by_inputs.par_chunks_mut(k * m).zip(found.covariance.par_chunks_mut(k * k));
                residues.take(steps).enumerate().for_each(|(r, (by_inputs, by_given))| {
                    let by_correlated = &by_correlated[r * m..][..m];
                    let earlier = trace.inputs[epoch][r * epoch * m..].chunks_exact(m);
                    for (i, (by_state, state)) in
                        by_inputs.chunks_exact_mut(m).zip(earlier).enumerate().take(epoch)
                    {
                        // Both entries of the symmetric matrix have half of it.
                        let half = 0.5 * dot(by_correlated, state);
                        by_given[epoch * k + i] += half;
                        by_given[i * k + epoch] += half;
                        add(by_state, covariances[r * k * k + epoch * k + i], by_correlated);
                    }
                });
            }
        }
    }

    /// 2⟨Q·F·Σ, ∂F/∂o_t⟩: F has o_t in the rows of p and u, by the buffers.
    fn by_output_of_step(&self, t: usize, q: &[f64], covariance: &[f64]) -> f64 {
        let (m, d) = (self.size(), self.buffers());
        // (QFΣ)[p, ·] + η(QFΣ)[u, ·], on the buffers, against −ω̂. Σ is symmetric.
        let mut row = q[d * m..][..m].to_vec();
        add(&mut row, self.training.rate(t), &q[(d + 1) * m..][..m]);
        self.step_transpose(t, &mut row);
        let products = covariance.chunks_exact(m).map(|line| dot(line, &row));
        -2.0 * self.weights.iter().zip(products).map(|(w, product)| w * product).sum::<f64>()
    }

    /// The transpose of [`System::ends`].
    fn by_outputs_of_ends(&self, epoch: usize, ends: &Maps, by_ends: &mut Maps, by_output: &mut [f64]) {
        let (b, d) = (self.period, self.buffers());
        let mut held = vec![0.0; 2 * d];
        for r in 0..b {
            let t = epoch * b + r;
            add(&mut held, 1.0, &by_ends.get_mut(r)[..2 * d]);
            let rate = self.training.rate(t) + ends.get(r + 1).2;
            by_output[t] += self.momentum_powers[b - 1 - r] * dot(&self.weights, &held[..d])
                + rate * dot(&self.weights, &held[d..]);
            held.iter_mut().zip(self.zeros.iter().cycle()).for_each(|(x, zero)| *x *= zero);
        }
    }

    /// The transpose of [`System::begins`].
    fn by_outputs_of_begins(&self, epoch: usize, by_begins: &mut Maps, by_output: &mut [f64]) {
        let (b, d, beta) = (self.period, self.buffers(), self.training.momentum());
        let mut held = vec![0.0; 2 * d];
        for r in (0..self.steps_of(epoch)).rev() {
            let t = epoch * b + r;
            add(&mut held, 1.0, &by_begins.get_mut(r + 1)[..2 * d]);
            let powers = self.zero_powers(r);
            for i in 0..d {
                held[i] += self.training.rate(t) * held[d + i];
                by_output[t] += self.weights[i] * powers[i] * held[i];
                held[i] *= beta;
            }
        }
    }
}

fn transpose(m: &mut [f64], size: usize) {
    for i in 0..size {
        for j in 0..i {
            m.swap(i * size + j, j * size + i);
        }
    }
}
