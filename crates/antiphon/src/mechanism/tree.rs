//! Binary trees: every node holds the sum of its leaves (steps) and noise of its own.
//!
//! Row (l, q) of the encoder is one on the steps q·2^l .. (q+1)·2^l. Where the number of steps is no power of two the
//! tree is completed with virtual steps; nodes that cover virtual steps only are left out, since nothing private
//! happens there. Two decoders:
//!
//! - **online** ([`OnlineTree`]): Honaker's estimator from below (2015), as DP-FTRL uses it (Kairouz et al. 2021). The
//!   sum at a node is estimated from the subtree below it, a prefix sum from the subtrees that make it up. At the last
//!   step the tree is complete: the estimate is that of the root, with the noise of virtual nodes removed (paper,
//!   appendix "Improvements to tree completion").
//! - **optimal** ([`Tree`]): the pseudo-inverse, which is Honaker's fully efficient estimator. In linear time, since
//!   the gram matrix of a subtree is that of its two halves plus a matrix of ones.

use super::factorization::{Cost, Factorization, map_columns, variances_by_columns};
use crate::linalg::dense::Matrix;
use crate::workload::{Training, Workload};

/// The shape of a completed tree over n steps: level l has ⌈n/2^l⌉ nodes.
#[derive(Debug, Clone)]
struct Shape {
    steps: usize,
    /// The number of the first node of every level, and at the end the number of all nodes.
    offsets: Vec<usize>,
}

impl Shape {
    fn new(steps: usize) -> Self {
        let height = steps.next_power_of_two().trailing_zeros() as usize;
        let mut offsets = vec![0];
        for level in 0..=height {
            offsets.push(offsets[level] + steps.div_ceil(1 << level));
        }
        Shape { steps, offsets }
    }

    /// The level of the root.
    fn height(&self) -> usize {
        self.offsets.len() - 2
    }

    fn nodes(&self) -> usize {
        self.offsets[self.height() + 1]
    }

    fn node(&self, level: usize, place: usize) -> usize {
        self.offsets[level] + place
    }

    /// The nodes of one level.
    fn places(&self, level: usize) -> usize {
        self.offsets[level + 1] - self.offsets[level]
    }

    /// The nodes below: two, or one where the other would be virtual.
    fn children(&self, level: usize, place: usize) -> std::ops::Range<usize> {
        let last = self.offsets[level];
        self.node(level - 1, 2 * place)..(self.node(level - 1, 2 * place + 2)).min(last)
    }

    /// The number of nodes that hold both steps: one for every level at which their paths have met.
    fn gram(&self, i: usize, j: usize) -> f64 {
        let apart = (usize::BITS - (i ^ j).leading_zeros()) as usize;
        (self.height() + 1 - apart) as f64
    }

    /// C·x: sums, from the leaves up.
    fn encode(&self, x: &[f64], nodes: &mut [f64]) {
        nodes[..self.steps].copy_from_slice(x);
        for level in 1..=self.height() {
            for place in 0..self.places(level) {
                nodes[self.node(level, place)] = nodes[self.children(level, place)].iter().sum();
            }
        }
    }

    /// Cᵀ·z: every leaf gets the sum of the nodes above it.
    fn encode_transpose(&self, z: &[f64], x: &mut [f64]) {
        let mut sums = z.to_vec();
        for level in (1..=self.height()).rev() {
            for place in 0..self.places(level) {
                let above = sums[self.node(level, place)];
                sums[self.children(level, place)].iter_mut().for_each(|sum| *sum += above);
            }
        }
        x.copy_from_slice(&sums[..self.steps]);
    }
}

/// The tree with its optimal decoder W = C⁺ = X⁻¹Cᵀ.
///
/// With D the gram matrices of the two halves side by side, a subtree has X = D + 11ᵀ, so by Sherman and Morrison
/// X⁻¹ = D⁻¹ − D⁻¹11ᵀD⁻¹/(1 + 1ᵀD⁻¹1), all the way down.
#[derive(Debug, Clone)]
pub struct Tree {
    shape: Shape,
    /// c = 1ᵀX⁻¹1 for the subtree of every node.
    weights: Vec<f64>,
}

impl Tree {
    /// The tree over so many steps, at least one.
    pub fn new(steps: usize) -> Self {
        let shape = Shape::new(steps);
        let mut weights = vec![1.0; shape.nodes()];
        for level in 1..=shape.height() {
            for place in 0..shape.places(level) {
                let below: f64 = weights[shape.children(level, place)].iter().sum();
                weights[shape.node(level, place)] = below / (1.0 + below);
            }
        }
        Tree { shape, weights }
    }

    /// u ← X⁻¹u.
    fn solve(&self, u: &mut [f64]) {
        let (shape, weights) = (&self.shape, &self.weights);
        // Up: s = 1ᵀX⁻¹u for every subtree; below the root that of D, divided by 1 + c.
        let mut sums = vec![0.0; shape.nodes()];
        sums[..shape.steps].copy_from_slice(u);
        for level in 1..=shape.height() {
            for place in 0..shape.places(level) {
                let children = shape.children(level, place);
                let below: f64 = weights[children.clone()].iter().sum();
                sums[shape.node(level, place)] = sums[children].iter().sum::<f64>() / (1.0 + below);
            }
        }
        // Down: X⁻¹(u − a1) = D⁻¹(u − (a + s')1) with s' = 1ᵀX⁻¹(u − a1) = s − a·c.
        let mut shifts = vec![0.0; shape.nodes()];
        for level in (1..=shape.height()).rev() {
            for place in 0..shape.places(level) {
                let node = shape.node(level, place);
                let shift = shifts[node] + sums[node] - shifts[node] * weights[node];
                shifts[shape.children(level, place)].fill(shift);
            }
        }
        u.iter_mut().zip(&shifts).for_each(|(u, shift)| *u -= shift);
    }

    /// The variances for a training workload, level by level in O(n log n).
    ///
    /// For every step t: q = aᵀX⁻¹a and s = 1ᵀX⁻¹a, with a the part of row t of A in the subtree that holds t. When two
    /// halves join, a step of the right one gains the left half's part, which is u + H·p for the last rows u of A and p of
    /// M_β there and what momentum and rates have added since. Then the node's own ones take their share:
    /// q − s²/(1 + c) and s/(1 + c), with c = 1ᵀD⁻¹1.
    fn training_variances(&self, training: &Training) -> Vec<f64> {
        let (shape, beta) = (&self.shape, training.momentum());
        let mut q: Vec<f64> = (0..shape.steps).map(|t| training.rate(t).powi(2)).collect();
        let mut s: Vec<f64> = (0..shape.steps).map(|t| training.rate(t)).collect();
        let leaf = |t: usize| {
            let eta = training.rate(t);
            Forms { uu: eta * eta, up: eta, pp: 1.0, su: eta, sp: 1.0 }
        };
        let mut forms: Vec<Forms> = (0..shape.steps).map(leaf).collect();
        for level in 1..=shape.height() {
            let half = 1 << (level - 1);
            let join = |place: usize, q: &mut [f64], s: &mut [f64]| {
                let children = shape.children(level, place);
                let below: f64 = self.weights[children.clone()].iter().sum();
                let mut joined = forms[2 * place];
                if children.len() == 2 {
                    let left = forms[2 * place];
                    let (mut fade, mut gain) = (1.0, 0.0);
                    for i in half..q.len() {
                        fade *= beta;
                        gain += training.rate((place << level) + i) * fade;
                        q[i] += left.uu + gain * (2.0 * left.up + gain * left.pp);
                        s[i] += left.su + gain * left.sp;
                    }
                    joined = left.moved(gain, fade).plus(&forms[2 * place + 1]);
                }
                for (q, s) in q.iter_mut().zip(s.iter_mut()) {
                    (*q, *s) = (*q - *s * *s / (1.0 + below), *s / (1.0 + below));
                }
                joined.under_node(below)
            };
            let parts = q.chunks_mut(2 * half).zip(s.chunks_mut(2 * half));
            forms = parts.enumerate().map(|(place, (q, s))| join(place, q, s)).collect();
        }
        q
    }
}

/// Inner products under X⁻¹ of a subtree, of the last rows u of A and p of M_β and the vector of ones.
#[derive(Debug, Clone, Copy)]
struct Forms {
    uu: f64,
    up: f64,
    pp: f64,
    su: f64,
    sp: f64,
}

impl Forms {
    /// Those of u + gain·p and fade·p.
    fn moved(&self, gain: f64, fade: f64) -> Forms {
        Forms {
            uu: self.uu + gain * (2.0 * self.up + gain * self.pp),
            up: fade * (self.up + gain * self.pp),
            pp: fade * fade * self.pp,
            su: self.su + gain * self.sp,
            sp: fade * self.sp,
        }
    }

    /// Those of two halves side by side.
    fn plus(&self, other: &Forms) -> Forms {
        Forms {
            uu: self.uu + other.uu,
            up: self.up + other.up,
            pp: self.pp + other.pp,
            su: self.su + other.su,
            sp: self.sp + other.sp,
        }
    }

    /// Those under D + 11ᵀ, from those under D with c = 1ᵀD⁻¹1.
    fn under_node(&self, c: f64) -> Forms {
        let scale = 1.0 / (1.0 + c);
        Forms {
            uu: self.uu - scale * self.su * self.su,
            up: self.up - scale * self.su * self.sp,
            pp: self.pp - scale * self.sp * self.sp,
            su: scale * self.su,
            sp: scale * self.sp,
        }
    }
}

impl Factorization for Tree {
    fn steps(&self) -> usize {
        self.shape.steps
    }

    fn inputs(&self) -> usize {
        self.shape.nodes()
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        self.shape.gram(i, j)
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        map_columns(x, self.inputs(), |x, nodes| self.shape.encode(x, nodes))
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        map_columns(z, self.steps(), |z, x| {
            self.shape.encode_transpose(z, x);
            self.solve(x);
        })
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        map_columns(u, self.inputs(), |u, nodes| {
            let mut x = u.to_vec();
            self.solve(&mut x);
            self.shape.encode(&x, nodes);
        })
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match workload {
            Workload::Training(training) => self.training_variances(training),
            Workload::Dense(_) => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            stream_memory_rows: self.steps(), // every step's noise depends on every node
            stream_flops_per_step: 14.0,
            stream_gaussians_per_step: self.inputs() as f64 / self.steps() as f64,
            pregenerate_memory_rows: 4 * self.inputs(), // Z and three numbers per node
            pregenerate_flops_per_step: 14.0,
            coefficient_bytes: 8 * self.inputs(),
        }
    }
}

/// The tree with Honaker's estimator from below: noise while training, in logarithmic memory.
///
/// The estimate at a node of level l weighs the node's own sum against those of its children, by their variances:
/// own (1 − κ), children κ, with variance ratio v/(1 + v), v = 2·variance(l − 1). In closed form variance(l) =
/// 1/(2(1 − 2^−(l+1))) and 1 − κ = 2^l/(2^(l+1) − 1).
#[derive(Debug, Clone)]
pub struct OnlineTree {
    shape: Shape,
}

/// The weight 1 − κ of a node's own sum in its estimate. The formula holds for a leaf too, which has nothing else.
fn own_weight(level: usize) -> f64 {
    let size = (1u64 << level) as f64;
    size / (2.0 * size - 1.0)
}

/// The variance of the estimate at a complete node.
fn node_variance(level: usize) -> f64 {
    own_weight(level) // κ's optimum: the variance of the estimate equals the weight of an observation of variance one
}

impl OnlineTree {
    /// The tree over so many steps, at least one.
    pub fn new(steps: usize) -> Self {
        OnlineTree { shape: Shape::new(steps) }
    }

    /// A stream of the noise of each step, for so many coordinates drawn together.
    pub fn stream(&self, coordinates: usize) -> TreeStream {
        TreeStream { shape: self.shape.clone(), coordinates, step: 0, estimates: Vec::new() }
    }

    /// Σ of squares of the weights in the root's estimate, virtual nodes left out.
    fn last_variance(&self) -> f64 {
        // Level by level from the root, every node of a level has the same weight.
        let (mut weight, mut sum) = (1.0, 0.0);
        for level in (0..=self.shape.height()).rev() {
            let own = weight * own_weight(level);
            sum += own * own * self.shape.places(level) as f64;
            weight -= own;
        }
        sum
    }
}

/// Draws the rows of [`OnlineTree`]'s noise one after another, keeping one row per finished subtree: at most
/// log₂ n + 1 of them.
#[derive(Debug, Clone)]
pub struct TreeStream {
    shape: Shape,
    coordinates: usize,
    step: usize,
    /// The estimates that make up the last prefix sum, from large subtrees to small ones: level and row.
    estimates: Vec<(usize, Vec<f64>)>,
}

impl TreeStream {
    /// Writes the noise of the next step to `out`, in gradient space; `false` after the last step.
    ///
    /// `fresh(node, row)` must fill `row` with the Gaussians of that node, a row of Z. Every node is asked for once.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the stream has coordinates: noise for the others would be wrong.
    pub fn next_into(&mut self, out: &mut [f64], mut fresh: impl FnMut(usize, &mut [f64])) -> bool {
        assert_eq!(out.len(), self.coordinates, "a stream has the same coordinates at every step");
        let t = self.step;
        if t == self.shape.steps {
            return false;
        }
        self.step += 1;
        let last = self.step == self.shape.steps;
        let mut estimate = vec![0.0; out.len()];
        let mut own = vec![0.0; out.len()];
        fresh(self.shape.node(0, t), &mut estimate);
        // The new prefix sum's noise minus the old one's: what comes minus what it replaces.
        out.fill(0.0);
        let mut level = 0;
        while level < self.shape.height() {
            let joins = self.estimates.last().is_some_and(|(l, _)| *l == level);
            if !joins && !last {
                break;
            }
            // At the last step every node above is finished, with virtual steps where others are missing.
            if let Some((_, left)) = self.estimates.pop_if(|(l, _)| *l == level) {
                for ((estimate, out), left) in estimate.iter_mut().zip(out.iter_mut()).zip(&left) {
                    *estimate += left;
                    *out -= left;
                }
            }
            level += 1;
            fresh(self.shape.node(level, t >> level), &mut own);
            let weight = own_weight(level);
            estimate.iter_mut().zip(&own).for_each(|(e, own)| *e = weight * own + (1.0 - weight) * *e);
        }
        out.iter_mut().zip(&estimate).for_each(|(out, e)| *out += e);
        self.estimates.push((level, estimate));
        true
    }

    /// The rows that are kept now.
    pub fn rows(&self) -> usize {
        self.estimates.len()
    }
}

impl Factorization for OnlineTree {
    fn steps(&self) -> usize {
        self.shape.steps
    }

    fn inputs(&self) -> usize {
        self.shape.nodes()
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        self.shape.gram(i, j)
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        map_columns(x, self.inputs(), |x, nodes| self.shape.encode(x, nodes))
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        map_columns(z, self.steps(), |z, x| {
            let mut stream = self.stream(1);
            for x in x.iter_mut() {
                stream.next_into(std::slice::from_mut(x), |node, row| row[0] = z[node]);
            }
        })
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        // W = S⁻¹B. First (S⁻¹)ᵀu, then the weight of every node in Bᵀ of that: from the subtrees of each prefix sum
        // down to the leaves.
        map_columns(u, self.inputs(), |u, nodes| {
            let n = self.steps();
            for t in 0..n {
                let change = u[t] - u.get(t + 1).unwrap_or(&0.0);
                if t + 1 == n {
                    nodes[self.shape.node(self.shape.height(), 0)] += change;
                    continue;
                }
                // The subtrees of t + 1 steps, one for each of its binary digits.
                for level in (0..=self.shape.height()).filter(|level| ((t + 1) >> level) & 1 == 1) {
                    nodes[self.shape.node(level, ((t + 1) >> level) - 1)] += change;
                }
            }
            for level in (1..=self.shape.height()).rev() {
                for place in 0..self.shape.places(level) {
                    let node = self.shape.node(level, place);
                    let below = nodes[node] * (1.0 - own_weight(level));
                    nodes[node] *= own_weight(level);
                    nodes[self.shape.children(level, place)].iter_mut().for_each(|x| *x += below);
                }
            }
        })
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match workload {
            Workload::Training(training) if training.is_prefix_sum() => {
                let n = self.steps();
                let digits = |t: usize| (0..=self.shape.height()).filter(move |level| (t >> level) & 1 == 1);
                let mut variances: Vec<f64> = (1..n).map(|t| digits(t).map(node_variance).sum()).collect();
                variances.push(self.last_variance());
                variances
            }
            _ => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            stream_memory_rows: self.shape.height() + 2, // the estimates, and the one in the making
            stream_flops_per_step: 6.0,
            stream_gaussians_per_step: self.inputs() as f64 / self.steps() as f64,
            pregenerate_memory_rows: self.shape.height() + 2,
            pregenerate_flops_per_step: 6.0,
            coefficient_bytes: 0,
        }
    }
}
