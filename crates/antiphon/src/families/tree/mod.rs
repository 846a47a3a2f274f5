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

mod definition;
mod online;
mod optimal;

pub use online::{OnlineTree, TREE_ONLINE, TreeStream};
pub use optimal::{TREE_OPTIMAL, Tree};

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
