//! The kernel against loops that say what it means: the same bits.

use super::normals;
use crate::product::{Level, Product, Start};
use crate::real::Real;
use proptest::prelude::*;
use pulp::WithSimd;

/// One sum at a time, in the order of the terms.
fn slowly<T: Real>(product: &Product<'_, T>, fused: impl Fn(T, T, T) -> T) -> Vec<T> {
    let mut c = product.c.to_vec();
    let ([r0, r1], [t0, t1]) = (product.rows, product.terms);
    for (i, j) in (0..r0.count).flat_map(|i| (0..r1.count).map(move |j| (i, j))) {
        for column in 0..product.columns {
            let mut sum = match product.start {
                Start::Zero => T::default(),
                Start::Columns(start) => start[column],
                Start::There => c[i * r0.other + j * r1.other + column],
            };
            for (k, l) in (0..t0.count).flat_map(|k| (0..t1.count).map(move |l| (k, l))) {
                let a = product.a[i * r0.a + j * r1.a + k * t0.a + l * t1.a];
                sum = fused(a, product.b[k * t0.other + l * t1.other + column], sum);
            }
            c[i * r0.other + j * r1.other + column] = sum;
        }
    }
    c
}

fn compare<T: Real>(
    counts: [usize; 4],
    strides: [usize; 4],
    columns: usize,
    start: u8,
    fused: impl Fn(T, T, T) -> T,
) {
    let [r0, r1, t0, t1] = counts;
    let [ra, rb, ta, tb] = strides;
    // Rows of c do not overlap; those of a may. There is room behind the columns that must stay as it is.
    let rows = [
        Level { count: r0, a: ra, other: r1 * (columns + 1) },
        Level { count: r1, a: rb, other: columns + 1 },
    ];
    let terms = [
        Level { count: t0, a: ta, other: t1 * (columns + 2) },
        Level { count: t1, a: tb, other: columns + 2 },
    ];
    let a = normals::<T>(1, r0 * ra + r1 * rb + t0 * ta + t1 * tb + 1);
    let b = normals::<T>(2, t0 * t1 * (columns + 2));
    let bias = normals::<T>(3, columns);
    let before = normals::<T>(4, r0 * r1 * (columns + 1));
    let start = [Start::Zero, Start::Columns(&bias), Start::There][usize::from(start)];
    let after = |run: &dyn Fn(Product<'_, T>)| {
        let mut c = before.clone();
        run(Product { rows, terms, columns, start, a: &a, b: &b, c: &mut c });
        c
    };
    let mut c = before.clone();
    let expected = slowly(&Product { rows, terms, columns, start, a: &a, b: &b, c: &mut c }, fused);
    let case = format!("{counts:?} {strides:?} {columns}");
    assert!(after(&|product| product.run()) == expected, "{case}");
    // A machine with 512-bit vectors runs the narrower code nowhere else.
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        assert!(after(&|product| product.with_simd(simd)) == expected, "{case}, 256 bits");
    }
}

proptest! {
    #[test]
    fn is_what_it_says(
        counts in [1usize..4, 1usize..30, 1usize..20, 1usize..30],
        strides in [0usize..9, 0usize..9, 0usize..9, 0usize..9],
        // Terms or rows are neighbours.
        along: bool,
        columns in 1usize..70,
        start in 0u8..3,
    ) {
        let mut strides = strides;
        strides[if along { 3 } else { 1 }] = 1;
        compare::<f32>(counts, strides, columns, start, |a, b, c| a.mul_add(b, c));
        compare::<f64>(counts, strides, columns, start, |a, b, c| a.mul_add(b, c));
    }
}
