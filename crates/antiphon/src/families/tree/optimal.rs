//! The optimal decoder of the tree, in linear time.

use super::{Shape, definition};
use crate::error::Result;
use crate::linalg::dense::Matrix;
use crate::mechanism::Family;
use crate::mechanism::factorization::{Cost, Factorization, map_columns, variances_by_columns};
use crate::mechanism::family::{Explicit, Row, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::{Access, Draw, Kernel, TILE, scaled};
use crate::verify::definitions::pseudo_inverse;
use crate::workload::{Training, Workload};
use std::ops::Range;
use std::sync::Arc;

/// The binary tree with its optimal decoder.
pub const TREE_OPTIMAL: Family = Family::of(&Optimal);

struct Optimal;

impl Row for Optimal {
    fn name(&self) -> &'static str {
        "tree-optimal"
    }

    fn about(&self) -> &'static str {
        "Binary tree with its optimal decoder; the noise is computed before training"
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        Ok(Arc::new(Tree::new(stamp.steps)))
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        let encoder = definition::tree(stamp.steps);
        let noising = pseudo_inverse(&encoder)?;
        Ok(crate::families::exactly(encoder, noising))
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(Noise { tree: Tree::new(stamp.steps), stddev }))
    }
}

/// The tree's noise, all rows at once.
struct Noise {
    tree: Tree,
    stddev: f64,
}

impl Kernel for Noise {
    fn inputs(&self) -> usize {
        self.tree.inputs()
    }

    /// W is the pseudo-inverse of C, which has the rows of I among its own: no row of W is longer than 1.
    fn row_sum(&self) -> f64 {
        (self.tree.inputs() as f64).sqrt() * (1.0 + 1e-6)
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        let mut z = Matrix::zeros(self.tree.inputs(), TILE);
        let mut row = [0.0; TILE];
        for input in 0..self.tree.inputs() {
            draw(input, &mut row);
            row.iter().enumerate().for_each(|(j, z_j)| z[(input, j)] = f64::from(*z_j));
        }
        let noise = self.tree.noise(&z);
        for (t, out) in wanted.zip(out.chunks_mut(TILE)) {
            scaled(self.stddev, (0..TILE).map(|j| noise[(t, j)]), out);
        }
    }

    fn access(&self) -> Access<'_> {
        Access::Whole
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
