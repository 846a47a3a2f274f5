//! Small dense kernels that run on several independent problems at once, one per SIMD lane.
//!
//! Every shifted system V⁻¹ + τU has the same shape for all shifts τ, so a lane is a shift:
//! the loops below read like scalar code, need no remainder handling whatever the block size,
//! and keep the vector units busy even for 1×1 blocks. Blocks are row-major slices.

use pulp::Simd;

/// One number per lane, aligned so that no load crosses a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub struct Lane<F>(pub F);

/// Trailing columns that a [`stack_qr`] carries along.
pub struct Trail<'a, F> {
    /// The rows beside the triangle.
    pub top: &'a mut [Lane<F>],
    /// The rows beside the part that is annihilated.
    pub bottom: &'a mut [Lane<F>],
    /// How many columns both have.
    pub columns: usize,
}

/// What [`stack_qr`] works on.
#[derive(Clone, Copy)]
pub struct Shape {
    /// The size of the triangle.
    pub size: usize,
    /// The rows below it.
    pub rows: usize,
    /// Whether those form an upper triangle as well.
    pub triangular: bool,
}

impl Shape {
    /// A full block of `rows` rows below a triangle.
    pub fn full(size: usize, rows: usize) -> Self {
        Shape { size, rows, triangular: false }
    }

    /// A triangle below a triangle.
    pub fn triangular(size: usize) -> Self {
        Shape { size, rows: size, triangular: true }
    }
}

/// Orthogonal row operations that annihilate `bottom` against the triangle above it:
///
/// ```text
/// Q · [ top    | trail.top    ]  =  [ R | … ]        top, R upper triangular with positive diagonal
///     [ bottom | trail.bottom ]     [ 0 | … ]        bottom of any shape
/// ```
///
/// `column` is scratch space. The reflection that sends the column
/// (α, b) with α > 0 to (β, 0), β = ‖(α, b)‖, is followed by a change of sign of its first row, which keeps
/// the diagonal positive and every sum below free of cancellation:
/// t' = (αt + bᵀc)/β, c' = c − b·(t + t')/(α + β) for another column (t, c).
#[inline(always)]
pub fn stack_qr<S: Simd>(
    simd: S,
    top: &mut [Lane<S::f64s>],
    bottom: &mut [Lane<S::f64s>],
    shape: Shape,
    trails: &mut [Trail<'_, S::f64s>],
    column: &mut Vec<Lane<S::f64s>>,
) {
    let Shape { size, rows, triangular } = shape;
    for j in 0..size {
        let active = if triangular { j + 1 } else { rows };
        column.clear();
        let mut squares = simd.splat_f64s(0.0);
        for i in 0..active {
            let b = bottom[i * size + j];
            squares = simd.mul_add_e_f64s(b.0, b.0, squares);
            column.push(b);
        }
        let alpha = top[j * size + j].0;
        let beta = simd.sqrt_f64s(simd.mul_add_e_f64s(alpha, alpha, squares));
        let one = simd.splat_f64s(1.0);
        let reflection = Reflection {
            alpha,
            inverse_beta: simd.div_f64s(one, beta),
            inverse_sum: simd.div_f64s(one, simd.add_f64s(alpha, beta)),
        };
        top[j * size + j] = Lane(beta);
        reflection.apply(simd, column, &mut top[j * size + j + 1..(j + 1) * size], bottom, size, j + 1);
        for trail in trails.iter_mut() {
            let n = trail.columns;
            reflection.apply(simd, column, &mut trail.top[j * n..(j + 1) * n], trail.bottom, n, 0);
        }
    }
}

#[derive(Clone, Copy)]
struct Reflection<F> {
    alpha: F,
    inverse_beta: F,
    inverse_sum: F,
}

impl<F: Copy> Reflection<F> {
    /// Applies the reflection to `top_row` and the columns of `bottom` from `first` on.
    #[inline(always)]
    fn apply<S: Simd<f64s = F>>(
        self,
        simd: S,
        column: &[Lane<F>],
        top_row: &mut [Lane<F>],
        bottom: &mut [Lane<F>],
        stride: usize,
        first: usize,
    ) {
        let columns = top_row.len();
        let mut c = 0;
        while c + 4 <= columns {
            self.chunk::<S, 4>(simd, column, &mut top_row[c..c + 4], bottom, stride, first + c);
            c += 4;
        }
        while c < columns {
            self.chunk::<S, 1>(simd, column, &mut top_row[c..c + 1], bottom, stride, first + c);
            c += 1;
        }
    }

    #[inline(always)]
    fn chunk<S: Simd<f64s = F>, const N: usize>(
        self,
        simd: S,
        column: &[Lane<F>],
        top: &mut [Lane<F>],
        bottom: &mut [Lane<F>],
        stride: usize,
        first: usize,
    ) {
        let mut sum = [simd.splat_f64s(0.0); N];
        for (b, row) in column.iter().zip(bottom.chunks_exact(stride)) {
            let row = &row[first..first + N];
            for c in 0..N {
                sum[c] = simd.mul_add_e_f64s(b.0, row[c].0, sum[c]);
            }
        }
        for c in 0..N {
            let t = top[c].0;
            let new = simd.mul_f64s(simd.mul_add_e_f64s(self.alpha, t, sum[c]), self.inverse_beta);
            top[c] = Lane(new);
            sum[c] = simd.mul_f64s(simd.add_f64s(t, new), self.inverse_sum);
        }
        for (b, row) in column.iter().zip(bottom.chunks_exact_mut(stride)) {
            let row = &mut row[first..first + N];
            for c in 0..N {
                row[c].0 = simd.negate_mul_add_e_f64s(b.0, sum[c], row[c].0);
            }
        }
    }
}

/// x ← R⁻¹x for an upper triangular R of the given size; x has `columns` columns.
#[inline(always)]
pub fn solve_upper<S: Simd>(
    simd: S,
    size: usize,
    r: &[Lane<S::f64s>],
    x: &mut [Lane<S::f64s>],
    columns: usize,
) {
    for i in (0..size).rev() {
        let (head, tail) = x.split_at_mut((i + 1) * columns);
        let row = &mut head[i * columns..];
        let coefficients = &r[i * size + i + 1..(i + 1) * size];
        let inverse = simd.div_f64s(simd.splat_f64s(1.0), r[i * size + i].0);
        let mut c = 0;
        while c + 4 <= columns {
            solve_chunk::<S, 4>(simd, coefficients, inverse, row, tail, columns, c);
            c += 4;
        }
        while c < columns {
            solve_chunk::<S, 1>(simd, coefficients, inverse, row, tail, columns, c);
            c += 1;
        }
    }
}

#[inline(always)]
fn solve_chunk<S: Simd, const N: usize>(
    simd: S,
    coefficients: &[Lane<S::f64s>],
    inverse: S::f64s,
    row: &mut [Lane<S::f64s>],
    below: &[Lane<S::f64s>],
    columns: usize,
    first: usize,
) {
    let row = &mut row[first..first + N];
    let mut sum = [simd.splat_f64s(0.0); N];
    for c in 0..N {
        sum[c] = row[c].0;
    }
    for (r, other) in coefficients.iter().zip(below.chunks_exact(columns)) {
        let other = &other[first..first + N];
        for c in 0..N {
            sum[c] = simd.negate_mul_add_e_f64s(r.0, other[c].0, sum[c]);
        }
    }
    for c in 0..N {
        row[c].0 = simd.mul_f64s(sum[c], inverse);
    }
}

/// How the second factor of a product is read.
pub trait Layout {
    /// Whether the factor is stored transposed.
    const TRANSPOSED: bool;
}
/// As it is.
pub struct Plain;
/// Transposed.
pub struct Transposed;
impl Layout for Plain {
    const TRANSPOSED: bool = false;
}
impl Layout for Transposed {
    const TRANSPOSED: bool = true;
}

/// out ← out + a·b, with a of `shape.0`×`shape.1`, b of `shape.1`×`shape.2` (stored transposed if so asked).
#[inline(always)]
pub fn add_product<S: Simd, L: Layout>(
    simd: S,
    out: &mut [Lane<S::f64s>],
    a: &[Lane<S::f64s>],
    b: &[Lane<S::f64s>],
    shape: (usize, usize, usize),
) {
    let (m, _, n) = shape;
    let mut i = 0;
    while i < m {
        let two = i + 2 <= m;
        let mut j = 0;
        while j < n {
            let four = j + 4 <= n;
            match (two, four) {
                (true, true) => tile::<S, L, 2, 4>(simd, out, a, b, shape, i, j),
                (true, false) => tile::<S, L, 2, 1>(simd, out, a, b, shape, i, j),
                (false, true) => tile::<S, L, 1, 4>(simd, out, a, b, shape, i, j),
                (false, false) => tile::<S, L, 1, 1>(simd, out, a, b, shape, i, j),
            }
            j += if four { 4 } else { 1 };
        }
        i += if two { 2 } else { 1 };
    }
}

#[inline(always)]
fn tile<S: Simd, L: Layout, const R: usize, const C: usize>(
    simd: S,
    out: &mut [Lane<S::f64s>],
    a: &[Lane<S::f64s>],
    b: &[Lane<S::f64s>],
    (_, inner, n): (usize, usize, usize),
    i: usize,
    j: usize,
) {
    let mut sum = [[simd.splat_f64s(0.0); C]; R];
    for r in 0..R {
        let row = &out[(i + r) * n + j..][..C];
        for c in 0..C {
            sum[r][c] = row[c].0;
        }
    }
    // Slices of exactly the rows that are read, so that the bounds are checked once.
    let mut left = [&a[..0]; R];
    for r in 0..R {
        left[r] = &a[(i + r) * inner..][..inner];
    }
    if L::TRANSPOSED {
        let mut right = [&b[..0]; C];
        for c in 0..C {
            right[c] = &b[(j + c) * inner..][..inner];
        }
        for l in 0..inner {
            for r in 0..R {
                for c in 0..C {
                    sum[r][c] = simd.mul_add_e_f64s(left[r][l].0, right[c][l].0, sum[r][c]);
                }
            }
        }
    } else {
        for l in 0..inner {
            let row = &b[l * n + j..][..C];
            for r in 0..R {
                for c in 0..C {
                    sum[r][c] = simd.mul_add_e_f64s(left[r][l].0, row[c].0, sum[r][c]);
                }
            }
        }
    }
    for r in 0..R {
        let row = &mut out[(i + r) * n + j..][..C];
        for c in 0..C {
            row[c].0 = sum[r][c];
        }
    }
}
