//! What is done with eliminations: diagonal blocks, or all blocks, summed over the nodes; in parallel.

use super::eliminate::{Elimination, Walk, clear, eliminate, negate};
use super::{BlockCyclic, GroupFactors};
use crate::linalg::lanes::{Lane, Plain, Transposed, add_product};
use crate::linalg::quadrature::Quadrature;
use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};
use rayon::prelude::*;

/// One SIMD vector of square roots √τ and of weights.
pub(super) struct Poles {
    pub roots: Vec<f64>,
    pub weights: Vec<f64>,
}

/// The nodes and weights in batches of one SIMD vector; the last is filled up with nodes of weight zero.
pub(super) fn batches(rule: &Quadrature) -> Vec<Poles> {
    let lanes = Arch::new().dispatch(Lanes);
    let poles: Vec<(f64, f64)> = rule.nodes.iter().copied().zip(rule.weights.iter().copied()).collect();
    poles
        .chunks(lanes)
        .map(|chunk| {
            let node = |i: usize| chunk.get(i).map_or(chunk[0].0, |pole| pole.0);
            let weight = |i: usize| chunk.get(i).map_or(0.0, |pole| pole.1);
            Poles {
                roots: (0..lanes).map(|i| node(i).sqrt()).collect(),
                weights: (0..lanes).map(weight).collect(),
            }
        })
        .collect()
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F64_LANES
    }
}

pub(super) struct DiagonalTask<'a> {
    pub structure: &'a BlockCyclic,
    pub factors: &'a GroupFactors,
    pub batches: &'a [Poles],
}

impl WithSimd for DiagonalTask<'_> {
    type Output = Vec<Vec<[Vec<f64>; 2]>>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let DiagonalTask { structure, factors, batches } = self;
        batches
            .par_iter()
            .map(|poles| simd.vectorize(DiagonalBatch { simd, structure, factors, poles }))
            .collect()
    }
}

/// One batch on one thread. A named type rather than a closure, because only a method can be forced inline into
/// the code that is compiled for the vector unit.
struct DiagonalBatch<'a, S> {
    simd: S,
    structure: &'a BlockCyclic,
    factors: &'a GroupFactors,
    poles: &'a Poles,
}

impl<S: Simd> NullaryFnOnce for DiagonalBatch<'_, S> {
    type Output = Vec<[Vec<f64>; 2]>;
    #[inline(always)]
    fn call(self) -> Self::Output {
        let DiagonalBatch { simd, structure, factors, poles } = self;
        let weights = S::as_simd_f64s(&poles.weights).0[0];
        let roots = S::as_simd_f64s(&poles.roots).0[0];
        let other = simd.mul_f64s(weights, simd.mul_f64s(roots, roots));
        let mut elimination = structure.take();
        eliminate(simd, structure, factors, poles, &mut elimination);
        let mut blocks = vec![[Vec::new(), Vec::new()]; structure.groups.len()];
        let mut walk = Walk::start(simd, structure, &elimination);
        for g in (0..structure.groups.len()).rev() {
            if g + 1 < structure.groups.len() {
                walk.step(simd, structure, &elimination, g);
            }
            for (sums, weights) in blocks[g].iter_mut().zip([weights, other]) {
                sums.resize(walk.diagonal.len(), 0.0);
                add_weighted(simd, sums, &walk.diagonal, weights);
            }
        }
        structure.give(elimination);
        blocks
    }
}

/// sums += Σ over the lanes of weight·x, entry by entry.
#[inline(always)]
fn add_weighted<S: Simd>(simd: S, sums: &mut [f64], block: &[Lane<S::f64s>], weights: S::f64s) {
    for (sum, x) in sums.iter_mut().zip(block) {
        *sum += simd.reduce_sum_f64s(simd.mul_f64s(x.0, weights));
    }
}

pub(super) struct DenseTask<'a> {
    pub structure: &'a BlockCyclic,
    pub factors: &'a GroupFactors,
    pub batches: &'a [Poles],
    pub columns: &'a mut [Vec<f64>],
}

/// An elimination with the blocks (h, h) and (h, last) of the inverse for every h.
struct Solved<F> {
    elimination: Box<Elimination<F>>,
    blocks: Vec<[Vec<Lane<F>>; 2]>,
    weights: F,
}

impl WithSimd for DenseTask<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let DenseTask { structure, factors, batches, columns } = self;
        let solved: Vec<Solved<S::f64s>> = batches
            .par_iter()
            .map(|poles| simd.vectorize(SolveBatch { simd, structure, factors, poles }))
            .collect();
        columns.par_iter_mut().enumerate().for_each(|(h, column)| {
            for solved in &solved {
                simd.vectorize(AddColumn { simd, structure, solved, h, column });
            }
        });
        solved.into_iter().for_each(|solved| structure.give(solved.elimination));
    }
}

struct SolveBatch<'a, S> {
    simd: S,
    structure: &'a BlockCyclic,
    factors: &'a GroupFactors,
    poles: &'a Poles,
}

impl<S: Simd> NullaryFnOnce for SolveBatch<'_, S> {
    type Output = Solved<S::f64s>;
    #[inline(always)]
    fn call(self) -> Self::Output {
        let SolveBatch { simd, structure, factors, poles } = self;
        let mut elimination = structure.take();
        eliminate(simd, structure, factors, poles, &mut elimination);
        let mut blocks = vec![[Vec::new(), Vec::new()]; structure.groups.len()];
        let mut walk = Walk::start(simd, structure, &elimination);
        for h in (0..structure.groups.len()).rev() {
            if h + 1 < structure.groups.len() {
                walk.step(simd, structure, &elimination, h);
            }
            blocks[h] = [walk.diagonal.clone(), walk.towards_last.clone()];
        }
        let weights = S::as_simd_f64s(&poles.weights).0[0];
        Solved { elimination, blocks, weights }
    }
}

struct AddColumn<'a, S: Simd> {
    simd: S,
    structure: &'a BlockCyclic,
    solved: &'a Solved<S::f64s>,
    h: usize,
    column: &'a mut [f64],
}

impl<S: Simd> NullaryFnOnce for AddColumn<'_, S> {
    type Output = ();
    #[inline(always)]
    fn call(self) {
        add_column(self.simd, self.structure, self.solved, self.h, self.column);
    }
}

/// Adds the weighted blocks (g, h), g ≤ h, of the inverse to a column block, walking up from the diagonal:
/// G_{g,h} = −(P_g·G_{g+1,h} + T_g·G_{last,h}).
#[inline(always)]
fn add_column<S: Simd>(
    simd: S,
    structure: &BlockCyclic,
    solved: &Solved<S::f64s>,
    h: usize,
    column: &mut [f64],
) {
    let size = |g: usize| structure.groups[g].len();
    let (last, sh) = (structure.groups.len() - 1, size(h));
    let sl = size(last);
    let [diagonal, towards_last] = &solved.blocks[h];
    let mut block = diagonal.clone();
    let mut next = Vec::new();
    let mut end = column.len();
    for g in (0..=h).rev() {
        let s = size(g);
        if g < h {
            let [_, to_next, to_last] = solved.elimination.row(structure, g);
            clear(simd, &mut next, s * sh);
            add_product::<S, Transposed>(simd, &mut next, to_last, towards_last, (s, sl, sh));
            if g + 1 < last {
                add_product::<S, Plain>(simd, &mut next, to_next, &block, (s, size(g + 1), sh));
            }
            std::mem::swap(&mut block, &mut next);
            negate(simd, &mut block);
        }
        let start = end - s * sh;
        add_weighted(simd, &mut column[start..end], &block, solved.weights);
        end = start;
    }
}
