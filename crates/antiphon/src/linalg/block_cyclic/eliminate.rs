//! The elimination of all groups for one batch of nodes, and the walk back through it.

use super::tasks::Poles;
use super::{BlockCyclic, GroupFactors};
use crate::linalg::lanes::{Lane, Plain, Shape, Trail, Transposed, add_product, solve_upper, stack_qr};
use pulp::Simd;

/// Offsets into an [`Elimination`].
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub inverse: usize,
    pub to_next: usize,
    pub to_last: usize,
}

/// What the elimination of all groups leaves for one batch of nodes, enough to walk back. For every group g < last:
/// R_gg⁻¹, P = R_gg⁻¹R_{g,g+1}, T = R_gg⁻¹R_{g,last}.
pub(super) struct Elimination<F> {
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
    pub fn row(&self, structure: &BlockCyclic, g: usize) -> [&[Lane<F>]; 3] {
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
pub(super) fn clear<S: Simd>(simd: S, block: &mut Vec<Lane<S::f64s>>, length: usize) {
    block.clear();
    block.resize(length, Lane(simd.splat_f64s(0.0)));
}

#[inline(always)]
pub(super) fn zeros<S: Simd>(simd: S, length: usize) -> Vec<Lane<S::f64s>> {
    vec![Lane(simd.splat_f64s(0.0)); length]
}

#[inline(always)]
pub(super) fn eliminate<S: Simd>(
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
pub(super) fn scaled_transpose<S: Simd>(
    simd: S,
    out: &mut [Lane<S::f64s>],
    l: &[f64],
    size: usize,
    root: S::f64s,
) {
    for i in 0..size {
        for j in i..size {
            out[i * size + j] = Lane(simd.mul_f64s(simd.splat_f64s(l[j * size + i]), root));
        }
    }
}

/// inverse ← R⁻¹, in a block of zeros.
#[inline(always)]
pub(super) fn invert_upper<S: Simd>(
    simd: S,
    size: usize,
    r: &[Lane<S::f64s>],
    inverse: &mut [Lane<S::f64s>],
) {
    for i in 0..size {
        inverse[i * size + i] = Lane(simd.splat_f64s(1.0));
    }
    solve_upper(simd, size, r, inverse, size);
}

/// The blocks of the inverse G, walking back from the last group: G_{last,last}, and for the current group g the
/// blocks G_gg and G_{g,last}.
pub(super) struct Walk<F> {
    corner: Vec<Lane<F>>,
    pub diagonal: Vec<Lane<F>>,
    pub towards_last: Vec<Lane<F>>,
    /// Room for the next ones, and for −G_{g,g+1}.
    room: [Vec<Lane<F>>; 3],
}

impl<F: Copy> Walk<F> {
    /// At the last group.
    #[inline(always)]
    pub fn start<S: Simd<f64s = F>>(simd: S, structure: &BlockCyclic, elimination: &Elimination<F>) -> Self {
        let sl = structure.groups[structure.groups.len() - 1].len();
        let mut corner = zeros(simd, sl * sl);
        let inverse = &elimination.last_inverse;
        add_product::<S, Transposed>(simd, &mut corner, inverse, inverse, (sl, sl, sl));
        let room = [Vec::new(), Vec::new(), Vec::new()];
        Walk { diagonal: corner.clone(), towards_last: corner.clone(), corner, room }
    }

    /// From group g + 1 to group g.
    #[inline(always)]
    pub fn step<S: Simd<f64s = F>>(
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
pub(super) fn negate<S: Simd>(simd: S, block: &mut [Lane<S::f64s>]) {
    for x in block {
        x.0 = simd.neg_f64s(x.0);
    }
}
