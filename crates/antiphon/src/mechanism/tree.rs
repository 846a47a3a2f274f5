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
use crate::workload::Workload;

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

    /// 1ᵀX⁻¹1 over the first t + 1 steps, along the path from leaf t to the root: q = eᵀX⁻¹e and s = 1ᵀX⁻¹e, for e
    /// the indicator of those steps inside the subtree.
    fn prefix_variance(&self, t: usize) -> f64 {
        let (mut q, mut s) = (1.0, 1.0);
        for level in 1..=self.shape.height() {
            let children = self.shape.children(level, t >> level);
            let below: f64 = self.weights[children.clone()].iter().sum();
            if (t >> (level - 1)) & 1 == 1 {
                q += self.weights[children.start];
                s += self.weights[children.start];
            }
            (q, s) = (q - s * s / (1.0 + below), s / (1.0 + below));
        }
        q
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
            Workload::Training(training) if training.is_prefix_sum() => {
                (0..self.steps()).map(|t| self.prefix_variance(t)).collect()
            }
            _ => variances_by_columns(self, workload),
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

    /// A stream of the noise of each step, for coordinates drawn together.
    pub fn stream(&self) -> TreeStream {
        TreeStream { shape: self.shape.clone(), step: 0, estimates: Vec::new() }
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
    step: usize,
    /// The estimates that make up the last prefix sum, from large subtrees to small ones: level and row.
    estimates: Vec<(usize, Vec<f64>)>,
}

impl TreeStream {
    /// Writes the noise of the next step to `out`, in gradient space; `false` after the last step.
    ///
    /// `fresh(node, row)` must fill `row` with the Gaussians of that node, a row of Z. Every node is asked for once.
    pub fn next_into(&mut self, out: &mut [f64], mut fresh: impl FnMut(usize, &mut [f64])) -> bool {
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
            let mut stream = self.stream();
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
