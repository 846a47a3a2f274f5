//! Honaker's estimator from below, and its stream.

use super::{Shape, definition};
use crate::error::Result;
use crate::linalg::dense::Matrix;
use crate::mechanism::Family;
use crate::mechanism::factorization::{Cost, Factorization, map_columns, variances_by_columns};
use crate::mechanism::family::{Explicit, Row, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::{Access, Draw, Kernel, Stream, TILE, scaled};
use crate::verify::definitions::differences;
use crate::workload::Workload;
use std::ops::Range;
use std::sync::Arc;

/// The binary tree with Honaker's estimator from below.
pub const TREE_ONLINE: Family = Family::of(&Online);

struct Online;

impl Row for Online {
    fn name(&self) -> &'static str {
        "tree-online"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["tree"]
    }

    fn about(&self) -> &'static str {
        "Binary tree with Honaker's estimator from below, as in DP-FTRL: log n rows of memory"
    }

    fn has_optimal_decoder(&self) -> bool {
        false
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        Ok(Arc::new(OnlineTree::new(stamp.steps)))
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        let encoder = definition::tree(stamp.steps);
        Ok(crate::families::exactly(encoder, differences(&definition::online_estimates(stamp.steps))))
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(Noise { tree: OnlineTree::new(stamp.steps), stddev }))
    }
}

/// The tree's noise in memory that grows with the logarithm of the steps.
struct Noise {
    tree: OnlineTree,
    stddev: f64,
}

impl Kernel for Noise {
    fn inputs(&self) -> usize {
        self.tree.shape.nodes()
    }

    /// A row is one estimate, minus at most one of every level below it. An estimate of level l is w·z + (1 − w)·(two of level
    /// l − 1) with w ≥ ½, so its weights sum to at most one more than those of level l − 1: to l + 1.
    fn row_sum(&self) -> f64 {
        let height = self.tree.shape.height();
        ((height + 1) * (height + 2) / 2) as f64 * (1.0 + 1e-6)
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        self.replay(wanted, draw, out);
    }

    fn access(&self) -> Access<'_> {
        Access::Stream(self)
    }
}

impl Stream for Noise {
    fn kept(&self) -> usize {
        self.tree.shape.height() + 1
    }

    fn next_row(&self, step: usize, _: &[f64], memory: &mut [f64], draw: Draw<'_>, out: &mut [f32]) {
        let (mut z, mut row) = ([0.0; TILE], [0.0; TILE]);
        self.tree.next_row(step, memory, &mut row, |node, fresh| {
            draw(node, &mut z);
            fresh.iter_mut().zip(z).for_each(|(fresh, z)| *fresh = f64::from(z));
        });
        scaled(self.stddev, row.into_iter(), out);
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
        let memory = vec![0.0; (self.shape.height() + 1) * coordinates];
        TreeStream { tree: self.clone(), coordinates, step: 0, memory }
    }

    /// The noise of a step, in gradient space. The estimates that make up the last prefix sum are those of the binary digits of
    /// `step`; the one of level l stands in row l of the memory. `fresh(node, row)` fills `row` with the Gaussians of that node.
    fn next_row(
        &self,
        step: usize,
        memory: &mut [f64],
        out: &mut [f64],
        mut fresh: impl FnMut(usize, &mut [f64]),
    ) {
        let (shape, width) = (&self.shape, out.len());
        let last = step + 1 == shape.steps;
        let mut estimate = vec![0.0; width];
        let mut own = vec![0.0; width];
        fresh(shape.node(0, step), &mut estimate);
        // The new prefix sum's noise minus the old one's: what comes minus what it replaces.
        out.fill(0.0);
        let mut level = 0;
        while level < shape.height() {
            let joins = (step >> level) & 1 == 1;
            if !joins && !last {
                break;
            }
            // At the last step every node above is finished, with virtual steps where others are missing.
            if joins {
                let left = &memory[level * width..][..width];
                for ((estimate, out), left) in estimate.iter_mut().zip(out.iter_mut()).zip(left) {
                    *estimate += left;
                    *out -= left;
                }
            }
            level += 1;
            fresh(shape.node(level, step >> level), &mut own);
            let weight = own_weight(level);
            estimate.iter_mut().zip(&own).for_each(|(e, own)| *e = weight * own + (1.0 - weight) * *e);
        }
        out.iter_mut().zip(&estimate).for_each(|(out, e)| *out += e);
        memory[level * width..][..width].copy_from_slice(&estimate);
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
    tree: OnlineTree,
    coordinates: usize,
    step: usize,
    memory: Vec<f64>,
}

impl TreeStream {
    /// Writes the noise of the next step to `out`, in gradient space; `false` after the last step.
    ///
    /// `fresh(node, row)` must fill `row` with the Gaussians of that node, a row of Z. Every node is asked for once.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as the stream has coordinates: noise for the others would be wrong.
    pub fn next_into(&mut self, out: &mut [f64], fresh: impl FnMut(usize, &mut [f64])) -> bool {
        assert_eq!(out.len(), self.coordinates, "a stream has the same coordinates at every step");
        if self.step == self.tree.shape.steps {
            return false;
        }
        self.tree.next_row(self.step, &mut self.memory, out, fresh);
        self.step += 1;
        true
    }

    /// The rows that are kept now.
    pub fn rows(&self) -> usize {
        match self.step == self.tree.shape.steps {
            true => 1,
            false => self.step.count_ones() as usize,
        }
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
