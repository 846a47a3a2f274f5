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
//! section 11.

use super::filter::Filter;
use crate::workload::Training;

/// Filter, workload and gains of a run.
pub struct System<'a> {
    /// b.
    pub period: usize,
    /// T.
    pub filter: &'a Filter,
    /// A.
    pub training: &'a Training,
    /// o of every step.
    pub output: &'a [f64],
}

/// The state after a step: buffers, p, u.
type State = [f64];

/// From before some steps to after them: s → ẑ^m s, p → β^m p − P·s, u → u + ε p − U·s.
#[derive(Clone)]
struct Passage {
    p: Vec<f64>,
    u: Vec<f64>,
    epsilon: f64,
}

impl Passage {
    fn identity(d: usize) -> Passage {
        Passage { p: vec![0.0; d], u: vec![0.0; d], epsilon: 0.0 }
    }
}

/// From after step t to after step t + b.
struct Period {
    decay: Vec<f64>,
    beta: f64,
    passage: Passage,
}

impl Period {
    fn apply(&self, state: &mut State) {
        let d = self.decay.len();
        let (s, tail) = state.split_at_mut(d);
        let dot = |w: &[f64]| w.iter().zip(s.iter()).map(|(w, s)| w * s).sum::<f64>();
        let (lost_p, lost_u) = (dot(&self.passage.p), dot(&self.passage.u));
        tail[1] += self.passage.epsilon * tail[0] - lost_u;
        tail[0] = self.beta * tail[0] - lost_p;
        s.iter_mut().zip(&self.decay).for_each(|(s, decay)| *s *= decay);
    }

    fn apply_transpose(&self, state: &mut State) {
        let d = self.decay.len();
        let (s, tail) = state.split_at_mut(d);
        for (q, s) in s.iter_mut().enumerate() {
            *s = self.decay[q] * *s - self.passage.p[q] * tail[0] - self.passage.u[q] * tail[1];
        }
        tail[0] = self.beta * tail[0] + self.passage.epsilon * tail[1];
    }
}

/// Everything that the gradient needs of the way forward.
struct Trace {
    /// Of every step: the covariance of the state, row by row.
    covariances: Vec<f64>,
    /// Of every step: Σ K_ij·(input i, as it has become).
    correlated: Vec<f64>,
    /// Of every step jb + r and every i < j: input i, as it has become. At `offset(t)`.
    become_of: Vec<f64>,
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

impl System<'_> {
    fn steps(&self) -> usize {
        self.output.len()
    }

    fn epochs(&self) -> usize {
        self.steps().div_ceil(self.period)
    }

    fn size(&self) -> usize {
        self.filter.buffers() + 2
    }

    /// The state after a unit input at step t.
    fn impulse(&self, t: usize, state: &mut State) {
        let d = self.filter.buffers();
        state[..d].fill(1.0);
        state[d] = self.output[t];
        state[d + 1] = self.training.rate(t) * self.output[t];
    }

    /// One step without input.
    fn step(&self, t: usize, weights: &[f64], state: &mut State) {
        let (s, tail) = state.split_at_mut(self.filter.buffers());
        let out: f64 = s.iter().zip(weights).map(|(s, w)| s * w).sum();
        tail[0] = self.training.momentum() * tail[0] - self.output[t] * out;
        tail[1] += self.training.rate(t) * tail[0];
        s.iter_mut().zip(self.filter.zeros()).for_each(|(s, zero)| *s *= zero);
    }

    /// The transpose of [`System::step`].
    fn step_transpose(&self, t: usize, weights: &[f64], state: &mut State) {
        let (s, tail) = state.split_at_mut(self.filter.buffers());
        tail[0] += self.training.rate(t) * tail[1];
        for ((s, zero), weight) in s.iter_mut().zip(self.filter.zeros()).zip(weights) {
            *s = zero * *s - self.output[t] * weight * tail[0];
        }
        tail[0] *= self.training.momentum();
    }

    /// For every r in 0..=b: from before step r of an epoch to its end.
    fn suffixes(&self, epoch: usize) -> Vec<Passage> {
        let (b, d) = (self.period, self.filter.buffers());
        let (beta, weights) = (self.training.momentum(), self.filter.inverse_weights());
        let mut all = vec![Passage::identity(d); b + 1];
        let mut left = 1.0;
        for r in (0..b).rev() {
            let t = epoch * b + r;
            let (o, rate) = (self.output[t], self.training.rate(t));
            let next = &all[r + 1];
            let held = rate + next.epsilon;
            let passage = Passage {
                p: zip3(&next.p, self.filter.zeros(), &weights, |p, zero, w| zero * p + left * o * w),
                u: zip3(&next.u, self.filter.zeros(), &weights, |u, zero, w| zero * u + held * o * w),
                epsilon: beta * held,
            };
            all[r] = passage;
            left *= beta;
        }
        all
    }

    /// For every r in 0..=b, as far as the run goes: from the beginning of an epoch to before step r.
    fn prefixes(&self, epoch: usize) -> Vec<Passage> {
        let (b, d) = (self.period, self.filter.buffers());
        let (beta, weights) = (self.training.momentum(), self.filter.inverse_weights());
        let steps = b.min(self.steps() - epoch * b);
        let mut all = Vec::with_capacity(steps + 1);
        all.push(Passage::identity(d));
        let (mut powers, mut left) = (vec![1.0; d], beta);
        for r in 0..steps {
            let t = epoch * b + r;
            let (o, rate) = (self.output[t], self.training.rate(t));
            let last = &all[r];
            let p = zip3(&last.p, &powers, &weights, |p, power, w| beta * p + o * w * power);
            let u = last.u.iter().zip(&p).map(|(u, p)| u + rate * p).collect();
            let passage = Passage { p, u, epsilon: last.epsilon + rate * left };
            all.push(passage);
            powers.iter_mut().zip(self.filter.zeros()).for_each(|(power, zero)| *power *= zero);
            left *= beta;
        }
        all
    }

    /// From after step r of one epoch to after step r of the next.
    fn period(&self, r: usize, end: &Passage, begin: &Passage) -> Period {
        let zeros = self.filter.zeros();
        let (b, beta) = (self.period, self.training.momentum());
        let left: Vec<f64> = zeros.iter().map(|z| super::blocks::power(*z, b - 1 - r)).collect();
        let (held, kept) = (super::blocks::power(beta, r + 1), super::blocks::power(beta, b - 1 - r));
        let passage = Passage {
            p: zip3(&end.p, &begin.p, &left, |end, begin, left| held * end + left * begin),
            u: (0..zeros.len()).map(|q| end.u[q] + begin.epsilon * end.p[q] + left[q] * begin.u[q]).collect(),
            epsilon: end.epsilon + kept * begin.epsilon,
        };
        let decay = zeros.iter().map(|z| super::blocks::power(*z, b)).collect();
        Period { decay, beta: held * kept, passage }
    }

    /// Where the states of step t begin among those of all steps.
    fn offset(&self, t: usize) -> usize {
        let (epoch, r) = (t / self.period, t % self.period);
        (self.period * (epoch * epoch.saturating_sub(1) / 2) + r * epoch) * self.size()
    }

    /// The variance of the noise in every iterate, for the covariances K_r of the inputs: b symmetric k×k matrices.
    pub fn variances(&self, covariances: &[f64]) -> Vec<f64> {
        let (k, m, d) = (self.epochs(), self.size(), self.filter.buffers());
        let weights = self.filter.inverse_weights();
        let mut variances = Vec::with_capacity(self.steps());
        self.forward(&weights, covariances, k, m, |state| variances.push(state[(d + 1) * m + d + 1]), None);
        variances
    }

    fn forward(
        &self,
        weights: &[f64],
        covariances: &[f64],
        k: usize,
        m: usize,
        mut seen: impl FnMut(&[f64]),
        mut trace: Option<&mut Trace>,
    ) {
        let b = self.period;
        // Of every residue: the inputs of the epochs so far, as they have become.
        let mut states = vec![0.0; b * k * m];
        let mut covariance = vec![0.0; m * m];
        let (mut impulse, mut correlated, mut column) = (vec![0.0; m], vec![0.0; m], vec![0.0; m]);
        let mut ends: Vec<Passage> = Vec::new();
        for epoch in 0..k {
            let begins = if epoch > 0 { self.prefixes(epoch) } else { Vec::new() };
            for r in 0..b.min(self.steps() - epoch * b) {
                let t = epoch * b + r;
                let states = &mut states[r * k * m..][..k * m];
                let given = &covariances[r * k * k + epoch * k..][..k];
                correlated.fill(0.0);
                if epoch > 0 {
                    let period = self.period(r, &ends[r + 1], &begins[r + 1]);
                    for (state, given) in states.chunks_exact_mut(m).zip(given).take(epoch) {
                        period.apply(state);
                        correlated.iter_mut().zip(&*state).for_each(|(sum, x)| *sum += given * x);
                    }
                }
                self.impulse(t, &mut impulse);
                states[epoch * m..][..m].copy_from_slice(&impulse);
                // Σ ← FΣFᵀ + cbᵀ + bcᵀ + K_jj·bbᵀ.
                for _ in 0..2 {
                    for i in 0..m {
                        column.copy_from_slice(&covariance[i * m..][..m]);
                        self.step(t, weights, &mut column);
                        covariance[i * m..][..m].copy_from_slice(&column);
                    }
                    transpose(&mut covariance, m);
                }
                for i in 0..m {
                    for j in 0..m {
                        covariance[i * m + j] += correlated[i] * impulse[j]
                            + impulse[i] * correlated[j]
                            + given[epoch] * impulse[i] * impulse[j];
                    }
                }
                seen(&covariance);
                if let Some(trace) = &mut trace {
                    trace.covariances.extend_from_slice(&covariance);
                    trace.correlated.extend_from_slice(&correlated);
                    let offset = self.offset(t);
                    trace.become_of[offset..][..epoch * m].copy_from_slice(&states[..epoch * m]);
                }
            }
            if (epoch + 1) * b < self.steps() {
                ends = self.suffixes(epoch);
            }
        }
    }

    /// The loss and its derivatives.
    pub fn gradient(&self, covariances: &[f64]) -> Gradient {
        let (n, k, m, d) = (self.steps(), self.epochs(), self.size(), self.filter.buffers());
        let weights = self.filter.inverse_weights();
        let mut trace = Trace {
            covariances: Vec::with_capacity(n * m * m),
            correlated: Vec::with_capacity(n * m),
            become_of: vec![0.0; self.offset(n - 1) + (k - 1) * m + m],
        };
        let mut loss = 0.0;
        let last = (d + 1) * m + d + 1;
        self.forward(&weights, covariances, k, m, |state| loss += state[last], Some(&mut trace));
        let mut found = Gradient { loss, output: vec![0.0; n], covariance: vec![0.0; covariances.len()] };
        self.backward(&weights, covariances, &trace, &mut found);
        found
    }

    fn backward(&self, weights: &[f64], covariances: &[f64], trace: &Trace, found: &mut Gradient) {
        let (n, b, k, m, d) = (self.steps(), self.period, self.epochs(), self.size(), self.filter.buffers());
        // Q: the derivative by the covariance of the state after a step.
        let mut q = vec![0.0; m * m];
        let (mut impulse, mut by_correlated, mut by_impulse) = (vec![0.0; m], vec![0.0; m], vec![0.0; m]);
        // Of every residue: the derivatives by the inputs as they are in the epoch after this one.
        let mut by_states = vec![0.0; b * k * m];
        let mut begins: Vec<Passage> = Vec::new();
        for epoch in (0..k).rev() {
            let steps = b.min(n - epoch * b);
            let after = n.saturating_sub((epoch + 1) * b).min(b);
            let ends = if after > 0 { self.suffixes(epoch) } else { Vec::new() };
            let mut by_ends = vec![Passage::identity(d); b + 1];
            let mut by_begins = vec![Passage::identity(d); after + 1];
            for r in (0..steps).rev() {
                let t = epoch * b + r;
                q[m * m - 1] += 1.0;
                self.impulse(t, &mut impulse);
                let given = &covariances[r * k * k + epoch * k..][..k];
                let by_given = &mut found.covariance[r * k * k..][..k * k];
                let correlated = &trace.correlated[t * m..][..m];
                for i in 0..m {
                    let row = &q[i * m..][..m];
                    by_correlated[i] = 2.0 * dot(row, &impulse);
                    by_impulse[i] = 2.0 * dot(row, correlated) + given[epoch] * by_correlated[i];
                }
                by_given[epoch * k + epoch] += 0.5 * dot(&by_correlated, &impulse);
                let earlier = &trace.become_of[self.offset(t)..][..epoch * m];
                let by_states = &mut by_states[r * k * m..][..k * m];
                if r < after {
                    let period = self.period(r, &ends[r + 1], &begins[r + 1]);
                    let all = earlier.chunks_exact(m).chain(std::iter::once(&impulse[..]));
                    let (mut by_p, mut by_u) = (vec![0.0; d], vec![0.0; d]);
                    for (by_state, state) in by_states.chunks_exact_mut(m).zip(all) {
                        for i in 0..d {
                            by_p[i] -= by_state[d] * state[i];
                            by_u[i] -= by_state[d + 1] * state[i];
                        }
                        period.apply_transpose(by_state);
                    }
                    let begin = &begins[r + 1];
                    let held = super::blocks::power(self.training.momentum(), r + 1);
                    let (by_end, by_begin) = (&mut by_ends[r + 1], &mut by_begins[r + 1]);
                    for i in 0..d {
                        let left = super::blocks::power(self.filter.zeros()[i], b - 1 - r);
                        by_end.p[i] += held * by_p[i] + begin.epsilon * by_u[i];
                        by_end.u[i] += by_u[i];
                        by_begin.p[i] += left * by_p[i];
                        by_begin.u[i] += left * by_u[i];
                    }
                }
                let own = &mut by_states[epoch * m..][..m];
                by_impulse.iter_mut().zip(own.iter()).for_each(|(sum, x)| *sum += x);
                own.fill(0.0);
                for (i, (by_state, state)) in
                    by_states.chunks_exact_mut(m).zip(earlier.chunks_exact(m)).enumerate()
                {
                    // Both entries of the symmetric matrix have half of it.
                    let half = 0.5 * dot(&by_correlated, state);
                    by_given[epoch * k + i] += half;
                    by_given[i * k + epoch] += half;
                    by_state.iter_mut().zip(&by_correlated).for_each(|(sum, x)| *sum += given[i] * x);
                }
                let rate = self.training.rate(t);
                found.output[t] += by_impulse[d] + rate * by_impulse[d + 1];
                if t > 0 {
                    found.output[t] += self.by_output_of_step(t, weights, &q, &trace.covariances[(t - 1) * m * m..][..m * m]);
                }
                // Q ← FᵀQF.
                for _ in 0..2 {
                    for row in q.chunks_exact_mut(m) {
                        self.step_transpose(t, weights, row);
                    }
                    transpose(&mut q, m);
                }
            }
            if after > 0 {
                self.by_outputs_of_end(epoch, weights, &ends, &mut by_ends, &mut found.output);
                self.by_outputs_of_begin(epoch + 1, weights, &mut by_begins, &mut found.output);
            }
            begins = if epoch > 0 { self.prefixes(epoch) } else { Vec::new() };
        }
    }

    /// 2⟨Q·F·Σ, ∂F/∂o_t⟩: F has o_t in the rows of p and u, by the buffers.
    fn by_output_of_step(&self, t: usize, weights: &[f64], q: &[f64], covariance: &[f64]) -> f64 {
        let (m, d) = (self.size(), self.filter.buffers());
        // (QFΣ)[p, ·] + η(QFΣ)[u, ·], on the buffers, against −ω̂. Σ is symmetric.
        let rate = self.training.rate(t);
        let mut row: Vec<f64> = (0..m).map(|j| q[d * m + j] + rate * q[(d + 1) * m + j]).collect();
        self.step_transpose(t, weights, &mut row);
        let product = |i: usize| dot(&covariance[i * m..][..m], &row);
        -2.0 * weights.iter().enumerate().map(|(i, w)| w * product(i)).sum::<f64>()
    }

    fn by_outputs_of_end(
        &self,
        epoch: usize,
        weights: &[f64],
        ends: &[Passage],
        by_ends: &mut [Passage],
        by_output: &mut [f64],
    ) {
        let (b, zeros) = (self.period, self.filter.zeros());
        for r in 0..b {
            let t = epoch * b + r;
            let left = super::blocks::power(self.training.momentum(), b - 1 - r);
            let held = self.training.rate(t) + ends[r + 1].epsilon;
            for i in 0..zeros.len() {
                let (by_p, by_u) = (by_ends[r].p[i], by_ends[r].u[i]);
                by_output[t] += weights[i] * (left * by_p + held * by_u);
                by_ends[r + 1].p[i] += zeros[i] * by_p;
                by_ends[r + 1].u[i] += zeros[i] * by_u;
            }
        }
    }

    fn by_outputs_of_begin(
        &self,
        epoch: usize,
        weights: &[f64],
        by_begins: &mut [Passage],
        by_output: &mut [f64],
    ) {
        let (beta, zeros) = (self.training.momentum(), self.filter.zeros());
        for r in (0..by_begins.len() - 1).rev() {
            let t = epoch * self.period + r;
            let rate = self.training.rate(t);
            for i in 0..zeros.len() {
                let by_u = by_begins[r + 1].u[i];
                let by_p = by_begins[r + 1].p[i] + rate * by_u;
                by_begins[r].u[i] += by_u;
                by_begins[r].p[i] += beta * by_p;
                by_output[t] += weights[i] * super::blocks::power(zeros[i], r) * by_p;
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn zip3(a: &[f64], b: &[f64], c: &[f64], f: impl Fn(f64, f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).zip(c).map(|((a, b), c)| f(*a, *b, *c)).collect()
}

fn transpose(m: &mut [f64], size: usize) {
    for i in 0..size {
        for j in 0..i {
            m.swap(i * size + j, j * size + i);
        }
    }
}
