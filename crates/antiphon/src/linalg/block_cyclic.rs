//! Inverses of V⁻¹ + τU in linear time, for V⁻¹ = A⁻¹A⁻ᵀ with A⁻¹ banded and U = LLᵀ block diagonal.
//!
//! U couples the steps of one residue class r, r+b, r+2b, …; A⁻¹ couples a step with the few before it. Ordered
//! by groups of neighbouring residues, V⁻¹ + τU is block tridiagonal with one cyclic corner (the last group meets
//! the first one an epoch later). Nothing is squared: the factor R with RᵀR = V⁻¹ + τU comes from orthogonal row
//! operations on [A⁻¹, √τ·L]ᵀ, group by group, with the last group as a border:
//!
//! 1. the *carry*, rows that touch group g and the last group, is annihilated against √τ·L_gᵀ;
//!    what is left of it touches the last group only and is folded into that group's triangle;
//! 2. the rows of A⁻ᵀ that belong to group g, touching g and g+1, are annihilated against the result;
//!    what is left of them is the carry of group g+1.
//!
//! Walking back gives the diagonal blocks of the inverse (selected inversion) or, block column by block column,
//! all of it. Each SIMD lane holds another τ; see the kernels in `lanes.rs`.

use super::dense::Matrix;
use super::lanes::{Lane, Plain, Shape, Trail, Transposed, add_product, solve_upper, stack_qr};
use super::quadrature::Quadrature;
use crate::workload::InverseBands;
use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};
use rayon::prelude::*;
use std::any::Any;
use std::sync::Mutex;

/// Which steps form which group, and how A⁻ᵀ couples them.
pub struct BlockCyclic {
    /// The steps of each group.
    groups: Vec<Vec<usize>>,
    /// For each step its position in its group.
    position: Vec<usize>,
    /// For each step its group.
    group: Vec<usize>,
    /// For each step s the non-zero A⁻¹[t, s], as (t, value).
    coupling: Vec<Vec<(usize, f64)>>,
    /// For each group but the last, where its blocks are in an [`Elimination`]; and where they end.
    places: Vec<Place>,
    /// Eliminations of the last call, whose memory the next one uses again: fresh pages cost as much as the work.
    spare: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// U = LLᵀ as the solver sees it: for each group the lower triangular factor of its diagonal block, row-major.
pub type GroupFactors = Vec<Vec<f64>>;

impl BlockCyclic {
    /// Groups must be cyclically ordered: A⁻¹[t, s] ≠ 0 only for t in the group of s or the next one, and within a
    /// group only for `position[t] ≥ position[s]`. There must be at least three groups.
    pub fn new(groups: Vec<Vec<usize>>, coupling: Vec<Vec<(usize, f64)>>) -> Self {
        let n = coupling.len();
        let (mut position, mut group) = (vec![0; n], vec![0; n]);
        for (g, steps) in groups.iter().enumerate() {
            for (p, step) in steps.iter().enumerate() {
                position[*step] = p;
                group[*step] = g;
            }
        }
        debug_assert!(groups.len() >= 3);
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let last = groups.len() - 1;
        let mut places = vec![Place::default()];
        for g in 0..last {
            // The group before the last has no block towards a next one.
            let next = if g + 1 < last { sizes[g + 1] } else { 0 };
            places.push(Place {
                inverse: places[g].inverse + sizes[g] * sizes[g],
                to_next: places[g].to_next + sizes[g] * next,
                to_last: places[g].to_last + sizes[g] * sizes[last],
            });
        }
        BlockCyclic { groups, position, group, coupling, places, spare: Mutex::default() }
    }

    /// The steps of each group.
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// For each group the diagonal blocks of Σ_j w_j (V⁻¹ + τ_j U)⁻¹ and of Σ_j w_j τ_j (V⁻¹ + τ_j U)⁻¹, row-major.
    pub fn diagonal_blocks(&self, factors: &GroupFactors, rule: &Quadrature) -> Vec<[Vec<f64>; 2]> {
        let batches = batches(rule);
        let task = DiagonalTask { structure: self, factors, batches: &batches };
        let mut parts = Arch::new().dispatch(task);
        // Summed in a fixed order, so that the number of threads changes no bit.
        let mut total = parts.remove(0);
        total.par_iter_mut().enumerate().for_each(|(g, block)| {
            for part in &parts {
                for which in 0..2 {
                    let pairs = block[which].iter_mut().zip(&part[g][which]);
                    pairs.for_each(|(sum, x)| *sum += x);
                }
            }
        });
        total
    }

    /// The lower triangle of Σ_j w_j (V⁻¹ + τ_j U)⁻¹ as a dense matrix, its steps in reversed order: entry (i, j), i ≥ j,
    /// is that of the steps (n−1−i, n−1−j). `progress` is told how many of all nodes are done.
    pub fn lower_reversed(
        &self,
        factors: &GroupFactors,
        rule: &Quadrature,
        progress: impl Fn(usize, usize),
    ) -> Matrix {
        let n = self.position.len();
        let batches = batches(rule);
        // Column block h holds, group by group, the blocks (g, h) with g ≤ h.
        let mut columns: Vec<Vec<f64>> = (0..self.groups.len())
            .map(|h| {
                let rows: usize = self.groups[..=h].iter().map(Vec::len).sum();
                vec![0.0; rows * self.groups[h].len()]
            })
            .collect();
        let threads = rayon::current_num_threads();
        for (chunk, some) in batches.chunks(threads).enumerate() {
            progress(chunk * threads, batches.len());
            let task = DenseTask { structure: self, factors, batches: some, columns: &mut columns };
            Arch::new().dispatch(task);
        }
        progress(batches.len(), batches.len());
        let mut x = Matrix::zeros(n, n);
        for (h, column) in columns.iter().enumerate() {
            let rows = self.groups[..=h].iter().flatten();
            for (i, values) in rows.zip(column.chunks_exact(self.groups[h].len())) {
                for (j, value) in self.groups[h].iter().zip(values) {
                    x[(n - 1 - i.min(j), n - 1 - i.max(j))] = *value;
                }
            }
        }
        x
    }

    /// An elimination to fill, with memory if there is some.
    fn take<F: Send + 'static>(&self) -> Box<Elimination<F>> {
        let spare = self.spare.lock().ok().and_then(|mut spare| spare.pop());
        spare.and_then(|any| any.downcast().ok()).unwrap_or_default()
    }

    /// Keeps the memory of an elimination.
    fn give<F: Send + 'static>(&self, elimination: Box<Elimination<F>>) {
        if let Ok(mut spare) = self.spare.lock() {
            spare.push(elimination);
        }
    }

    fn next(&self, g: usize) -> usize {
        (g + 1) % self.groups.len()
    }

    /// Writes the entries A⁻¹[t, s], s in group `from` (rows), t in group `to` (columns), into a cleared block.
    #[inline(always)]
    fn couple<S: Simd>(&self, simd: S, block: &mut [Lane<S::f64s>], from: usize, to: usize) {
        block.fill(Lane(simd.splat_f64s(0.0)));
        let columns = self.groups[to].len();
        for (row, step) in self.groups[from].iter().enumerate() {
            for (t, value) in &self.coupling[*step] {
                if self.group[*t] == to {
                    block[row * columns + self.position[*t]] = Lane(simd.splat_f64s(*value));
                }
            }
        }
    }
}

/// The grouping for residue classes modulo `b` over `n` steps: ⌊b/p⌋ groups of p neighbouring residues each, the
/// last one also with the b mod p left over, where p is the bandwidth of A⁻¹. `None` with fewer than three groups.
pub fn residue_groups(n: usize, b: usize, bands: &InverseBands) -> Option<BlockCyclic> {
    let p = bands.bandwidth;
    let count = b / p;
    if count < 3 {
        return None;
    }
    let groups = (0..count)
        .map(|g| {
            let end = if g + 1 == count { b } else { (g + 1) * p };
            (g * p..end).flat_map(|r| (r..n).step_by(b)).collect()
        })
        .collect();
    let coupling = (0..n).map(|s| (s..n.min(s + p + 1)).map(|t| (t, bands.get(t, s))).collect()).collect();
    Some(BlockCyclic::new(groups, coupling))
}

/// One SIMD vector of square roots √τ and of weights.
struct Poles {
    roots: Vec<f64>,
    weights: Vec<f64>,
}

/// The nodes and weights in batches of one SIMD vector; the last is filled up with nodes of weight zero.
fn batches(rule: &Quadrature) -> Vec<Poles> {
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

/// Offsets into an [`Elimination`].
#[derive(Clone, Copy, Default)]
struct Place {
    inverse: usize,
    to_next: usize,
    to_last: usize,
}

/// What the elimination of all groups leaves for one batch of nodes, enough to walk back. For every group g < last:
/// R_gg⁻¹, P = R_gg⁻¹R_{g,g+1}, T = R_gg⁻¹R_{g,last}.
struct Elimination<F> {
    inverse: Vec<Lane<F>>,
    to_next: Vec<Lane<F>>,
    to_last: Vec<Lane<F>>,
    /// R⁻¹ of the last group.
    last_inverse: Vec<Lane<F>>,
}

impl<F> Default for Elimination<F> {
    fn default() -> Self {
        Elimination {
            inverse: Vec::new(),
            to_next: Vec::new(),
            to_last: Vec::new(),
            last_inverse: Vec::new(),
        }
    }
}

impl<F> Elimination<F> {
    /// R_gg⁻¹, P and T of group g.
    #[inline(always)]
    fn row(&self, structure: &BlockCyclic, g: usize) -> [&[Lane<F>]; 3] {
        let (from, to) = (structure.places[g], structure.places[g + 1]);
        [
            &self.inverse[from.inverse..to.inverse],
            &self.to_next[from.to_next..to.to_next],
            &self.to_last[from.to_last..to.to_last],
        ]
    }
}

/// Makes a block of zeros, in memory that is there already if it is enough.
#[inline(always)]
fn clear<S: Simd>(simd: S, block: &mut Vec<Lane<S::f64s>>, length: usize) {
    block.clear();
    block.resize(length, Lane(simd.splat_f64s(0.0)));
}

#[inline(always)]
fn zeros<S: Simd>(simd: S, length: usize) -> Vec<Lane<S::f64s>> {
    vec![Lane(simd.splat_f64s(0.0)); length]
}

#[inline(always)]
fn eliminate<S: Simd>(
    simd: S,
    structure: &BlockCyclic,
    factors: &GroupFactors,
    poles: &Poles,
    elimination: &mut Elimination<S::f64s>,
) {
    let roots = S::as_simd_f64s(&poles.roots).0[0];
    let size = |g: usize| structure.groups[g].len();
    let last = structure.groups.len() - 1;
    let sl = size(last);
    let (mut triangle, mut own, mut scratch) = (Vec::new(), Vec::new(), Vec::new());

    let mut last_triangle = zeros(simd, sl * sl);
    scaled_transpose(simd, &mut last_triangle, &factors[last], sl, roots);
    // The first carry: the rows of A⁻ᵀ that belong to the last group touch it and group 0.
    let mut carry = zeros(simd, sl * size(0));
    let mut carry_last = zeros(simd, sl * sl);
    structure.couple(simd, &mut carry, last, 0);
    structure.couple(simd, &mut carry_last, last, last);
    let mut carried = sl;

    let end = structure.places[last];
    clear(simd, &mut elimination.inverse, end.inverse);
    clear(simd, &mut elimination.to_next, end.to_next);
    clear(simd, &mut elimination.to_last, end.to_last);
    for g in 0..last {
        let (s, next) = (size(g), structure.next(g));
        let (from, to) = (structure.places[g], structure.places[g + 1]);
        let inverse = &mut elimination.inverse[from.inverse..to.inverse];
        let to_next = &mut elimination.to_next[from.to_next..to.to_next];
        let to_last = &mut elimination.to_last[from.to_last..to.to_last];
        // 1. The carry against √τ·L_gᵀ; the remainder into the last triangle.
        clear(simd, &mut triangle, s * s);
        scaled_transpose(simd, &mut triangle, &factors[g], s, roots);
        stack_qr(
            simd,
            &mut triangle,
            &mut carry,
            Shape::full(s, carried),
            &mut [Trail { top: to_last, bottom: &mut carry_last, columns: sl }],
            &mut scratch,
        );
        stack_qr(simd, &mut last_triangle, &mut carry_last, Shape::full(sl, carried), &mut [], &mut scratch);
        // 2. The rows of A⁻ᵀ that belong to group g.
        clear(simd, &mut own, s * s);
        structure.couple(simd, &mut own, g, g);
        carried = s;
        clear(simd, &mut carry_last, s * sl);
        if next == last {
            structure.couple(simd, &mut carry_last, g, last);
            stack_qr(
                simd,
                &mut triangle,
                &mut own,
                Shape::triangular(s),
                &mut [Trail { top: to_last, bottom: &mut carry_last, columns: sl }],
                &mut scratch,
            );
            stack_qr(simd, &mut last_triangle, &mut carry_last, Shape::full(sl, s), &mut [], &mut scratch);
        } else {
            let sn = size(next);
            clear(simd, &mut carry, s * sn);
            structure.couple(simd, &mut carry, g, next);
            stack_qr(
                simd,
                &mut triangle,
                &mut own,
                Shape::triangular(s),
                &mut [
                    Trail { top: to_next, bottom: &mut carry, columns: sn },
                    Trail { top: to_last, bottom: &mut carry_last, columns: sl },
                ],
                &mut scratch,
            );
            solve_upper(simd, s, &triangle, to_next, sn);
        }
        solve_upper(simd, s, &triangle, to_last, sl);
        invert_upper(simd, s, &triangle, inverse);
    }
    clear(simd, &mut elimination.last_inverse, sl * sl);
    invert_upper(simd, sl, &last_triangle, &mut elimination.last_inverse);
}

/// out ← root·Lᵀ for a lower triangular L.
#[inline(always)]
fn scaled_transpose<S: Simd>(simd: S, out: &mut [Lane<S::f64s>], l: &[f64], size: usize, root: S::f64s) {
    for i in 0..size {
        for j in i..size {
            out[i * size + j] = Lane(simd.mul_f64s(simd.splat_f64s(l[j * size + i]), root));
        }
    }
}

/// inverse ← R⁻¹, in a block of zeros.
#[inline(always)]
fn invert_upper<S: Simd>(simd: S, size: usize, r: &[Lane<S::f64s>], inverse: &mut [Lane<S::f64s>]) {
    for i in 0..size {
        inverse[i * size + i] = Lane(simd.splat_f64s(1.0));
    }
    solve_upper(simd, size, r, inverse, size);
}

/// The blocks of the inverse G, walking back from the last group: G_{last,last}, and for the current group g the
/// blocks G_gg and G_{g,last}.
struct Walk<F> {
    corner: Vec<Lane<F>>,
    diagonal: Vec<Lane<F>>,
    towards_last: Vec<Lane<F>>,
    /// Room for the next ones, and for −G_{g,g+1}.
    room: [Vec<Lane<F>>; 3],
}

impl<F: Copy> Walk<F> {
    /// At the last group.
    #[inline(always)]
    fn start<S: Simd<f64s = F>>(simd: S, structure: &BlockCyclic, elimination: &Elimination<F>) -> Self {
        let sl = structure.groups[structure.groups.len() - 1].len();
        let mut corner = zeros(simd, sl * sl);
        let inverse = &elimination.last_inverse;
        add_product::<S, Transposed>(simd, &mut corner, inverse, inverse, (sl, sl, sl));
        let room = [Vec::new(), Vec::new(), Vec::new()];
        Walk { diagonal: corner.clone(), towards_last: corner.clone(), corner, room }
    }

    /// From group g + 1 to group g.
    #[inline(always)]
    fn step<S: Simd<f64s = F>>(
        &mut self,
        simd: S,
        structure: &BlockCyclic,
        elimination: &Elimination<F>,
        g: usize,
    ) {
        let size = |g: usize| structure.groups[g].len();
        let last = structure.groups.len() - 1;
        let (s, sl) = (size(g), size(last));
        let [inverse, to_next, to_last] = elimination.row(structure, g);
        let [diagonal, q_last, q_next] = &mut self.room;
        // −G_{g,last} = P·G_{next,last} + T·G_{last,last}
        clear(simd, q_last, s * sl);
        add_product::<S, Plain>(simd, q_last, to_last, &self.corner, (s, sl, sl));
        // G_gg = R⁻¹R⁻ᵀ + Q₁Pᵀ + Q₂Tᵀ
        clear(simd, diagonal, s * s);
        add_product::<S, Transposed>(simd, diagonal, inverse, inverse, (s, s, s));
        if g + 1 < last {
            let sn = size(g + 1);
            add_product::<S, Plain>(simd, q_last, to_next, &self.towards_last, (s, sn, sl));
            // −G_{g,next} = P·G_{next,next} + T·G_{last,next}
            clear(simd, q_next, s * sn);
            add_product::<S, Plain>(simd, q_next, to_next, &self.diagonal, (s, sn, sn));
            add_product::<S, Transposed>(simd, q_next, to_last, &self.towards_last, (s, sl, sn));
            add_product::<S, Transposed>(simd, diagonal, q_next, to_next, (s, sn, s));
        }
        add_product::<S, Transposed>(simd, diagonal, q_last, to_last, (s, sl, s));
        negate(simd, q_last);
        std::mem::swap(&mut self.diagonal, diagonal);
        std::mem::swap(&mut self.towards_last, q_last);
    }
}

#[inline(always)]
fn negate<S: Simd>(simd: S, block: &mut [Lane<S::f64s>]) {
    for x in block {
        x.0 = simd.neg_f64s(x.0);
    }
}

struct DiagonalTask<'a> {
    structure: &'a BlockCyclic,
    factors: &'a GroupFactors,
    batches: &'a [Poles],
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

struct DenseTask<'a> {
    structure: &'a BlockCyclic,
    factors: &'a GroupFactors,
    batches: &'a [Poles],
    columns: &'a mut [Vec<f64>],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense;
    use crate::workload::Workload;

    /// Σ_j w_j (A⁻¹A⁻ᵀ + τ_j LLᵀ)⁻¹ by dense Cholesky factorizations: the oracle.
    fn oracle(a_inverse: &Matrix, l: &Matrix, rule: &Quadrature) -> Matrix {
        let n = l.nrows();
        let mut sum = Matrix::zeros(n, n);
        for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
            let mut m = a_inverse * a_inverse.transpose() + (l * l.transpose()) * faer::Scale(*node);
            dense::cholesky_in_place(&mut m).unwrap();
            let inverse = dense::lower_inverse(&m).unwrap();
            sum += (inverse.transpose() * &inverse) * faer::Scale(*weight);
        }
        sum
    }

    #[test]
    fn blocks_and_dense_agree_with_the_oracle() {
        for (n, b, momentum) in
            [(12, 3, 0.0), (23, 5, 0.0), (30, 7, 0.9), (7, 7, 0.0), (40, 6, 0.5), (29, 9, 0.9)]
        {
            let workload = Workload::training(n, momentum, None).unwrap();
            let bands = workload.inverse_bands().unwrap();
            let structure = residue_groups(n, b, &bands).unwrap();
            let factors: GroupFactors = structure
                .groups()
                .iter()
                .map(|steps| {
                    let s = steps.len();
                    (0..s * s)
                        .map(|e| {
                            let (i, j) = (e / s, e % s);
                            // Steps of different residues are not coupled by U.
                            if steps[i] % b != steps[j] % b || j > i {
                                0.0
                            } else if i == j {
                                1.0 + 0.1 * (steps[i] as f64).sin()
                            } else {
                                0.3 * ((steps[i] * 7 + steps[j]) as f64).cos()
                            }
                        })
                        .collect()
                })
                .collect();
            let mut l = Matrix::zeros(n, n);
            for (steps, factor) in structure.groups().iter().zip(&factors) {
                for (i, row) in steps.iter().enumerate() {
                    for (j, column) in steps.iter().enumerate() {
                        l[(*row, *column)] = factor[i * steps.len() + j];
                    }
                }
            }
            let a_inverse = dense::from_fn(n, n, |i, j| bands.get(i, j));
            let rule = Quadrature::new(1e-3, 5.0, 11).unwrap();
            let expected = oracle(&a_inverse, &l, &rule);
            let scale = dense::squared_norm(&expected).sqrt();
            let full = structure.lower_reversed(&factors, &rule, |_, _| ());
            for i in 0..n {
                for j in i..n {
                    let error = full[(n - 1 - i, n - 1 - j)] - expected[(i, j)];
                    assert!(error.abs() < 1e-12 * scale, "n={n} b={b} ({i},{j}): {error:e}");
                }
            }
            let blocks = structure.diagonal_blocks(&factors, &rule);
            for (steps, [block, _]) in structure.groups().iter().zip(&blocks) {
                for (i, row) in steps.iter().enumerate() {
                    for (j, column) in steps.iter().enumerate() {
                        let error = block[i * steps.len() + j] - expected[(*row, *column)];
                        assert!(error.abs() < 1e-12 * scale, "n={n} b={b}: {error:e}");
                    }
                }
            }
        }
    }
}
