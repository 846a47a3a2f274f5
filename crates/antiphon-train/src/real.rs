//! The two kinds of number that the layers work with.
//!
//! Training runs in `f32`. The same code in `f64` is what the tests compare with finite differences and with other software,
//! to many more digits than `f32` has.

use crate::layers::{exp, tanh};
use pulp::Simd;
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Mul, Sub};

/// `f32` or `f64`, one by one and as vectors.
pub trait Real:
    Copy
    + Default
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + AddAssign
    + Send
    + Sync
    + 'static
{
    /// A vector of them.
    type Lanes<S: Simd>: Copy;
    /// One.
    const ONE: Self;

    /// How many are in a vector.
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Lanes<S>>() / size_of::<Self>()
    }
    /// A vector of equal numbers.
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Lanes<S>;
    /// a + b.
    fn plus<S: Simd>(simd: S, a: Self::Lanes<S>, b: Self::Lanes<S>) -> Self::Lanes<S>;
    /// a − b.
    fn minus<S: Simd>(simd: S, a: Self::Lanes<S>, b: Self::Lanes<S>) -> Self::Lanes<S>;
    /// a·b + c, rounded once.
    fn mul_add<S: Simd>(simd: S, a: Self::Lanes<S>, b: Self::Lanes<S>, c: Self::Lanes<S>) -> Self::Lanes<S>;
    /// The whole vectors of a slice.
    fn vectors<S: Simd>(x: &[Self]) -> &[Self::Lanes<S>];
    /// The same, to write.
    fn vectors_mut<S: Simd>(x: &mut [Self]) -> &mut [Self::Lanes<S>];
    /// A vector that begins with a slice shorter than it.
    fn load_part<S: Simd>(simd: S, x: &[Self]) -> Self::Lanes<S>;
    /// The beginning of a vector into a slice shorter than it.
    fn store_part<S: Simd>(simd: S, x: &mut [Self], value: Self::Lanes<S>);

    /// The nearest number of this kind.
    fn from_f64(x: f64) -> Self;
    /// The same number, exactly.
    fn to_f64(self) -> f64;
    /// exp(x) for x ≤ 0; for `f32` the fast one of `layers/exp.rs`.
    fn exp(self) -> Self;
    /// The hyperbolic tangent; for `f32` the fast one of `layers/tanh.rs`.
    fn tanh(self) -> Self;
}

macro_rules! real {
    ($kind:ty, $lanes:ident, $splat:ident, $add:ident, $sub:ident, $mul_add:ident, $load:ident, $store:ident, $whole:ident, $whole_mut:ident, $exp:path, $tanh:path) => {
        impl Real for $kind {
            type Lanes<S: Simd> = S::$lanes;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$lanes {
                simd.$splat(x)
            }
            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$lanes, b: S::$lanes) -> S::$lanes {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn minus<S: Simd>(simd: S, a: S::$lanes, b: S::$lanes) -> S::$lanes {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn mul_add<S: Simd>(simd: S, a: S::$lanes, b: S::$lanes, c: S::$lanes) -> S::$lanes {
                simd.$mul_add(a, b, c)
            }
            #[inline(always)]
            fn vectors<S: Simd>(x: &[Self]) -> &[S::$lanes] {
                S::$whole(x).0
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(x: &mut [Self]) -> &mut [S::$lanes] {
                S::$whole_mut(x).0
            }
            #[inline(always)]
            fn load_part<S: Simd>(simd: S, x: &[Self]) -> S::$lanes {
                simd.$load(x)
            }
            #[inline(always)]
            fn store_part<S: Simd>(simd: S, x: &mut [Self], value: S::$lanes) {
                simd.$store(x, value)
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $kind
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                $tanh(self)
            }
        }
    };
}

real!(
    f32,
    f32s,
    splat_f32s,
    add_f32s,
    sub_f32s,
    mul_add_f32s,
    partial_load_f32s,
    partial_store_f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    exp::fast,
    tanh::fast
);
real!(
    f64,
    f64s,
    splat_f64s,
    add_f64s,
    sub_f64s,
    mul_add_f64s,
    partial_load_f64s,
    partial_store_f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    libm::exp,
    libm::tanh
);
