//! The softmax of many logits, without the division: e = exp(logit − max) and the sum of them.
//!
//! Largest logits and sums are made of 16 parts, v mod 16, as in `dots.rs`: the bits do not depend on the vector unit.

use super::dots::{PARTS, total};
use crate::real::Real;
use pulp::{Arch, Simd, WithSimd};

/// What is to be computed, one row per label.
pub(super) struct Softmax<'a, T> {
    pub labels: &'a [u32],
    /// Numbers from one row of the outputs to the next.
    pub stride: usize,
    /// Numbers in a row, a multiple of [`PARTS`].
    pub columns: usize,
    /// Whether guesses are looked for in all rows, or only where the label may be it.
    pub all: bool,
    /// A token that is no guess, where they are looked for in all rows.
    pub never: Option<u32>,
    /// Logits, then e.
    pub outputs: &'a mut [T],
    /// The label's logit minus the largest one.
    pub targets: &'a mut [T],
    /// The first token with the largest logit, but for the one that is no guess.
    pub guesses: &'a mut [u32],
    /// The sums of e; not a number if a logit is not, or is infinite.
    pub sums: &'a mut [T],
}

impl<T: Real> Softmax<'_, T> {
    pub fn run(self) {
        Arch::new().dispatch(self);
    }
}

impl<T: Real> WithSimd for Softmax<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (t, (row, label)) in self.outputs.chunks_exact_mut(self.stride).zip(self.labels).enumerate() {
            let row = &mut row[..self.columns];
            let largest = largest(row);
            self.targets[t] = row[*label as usize] - largest;
            let wanted = self.all || self.targets[t] == T::default();
            self.guesses[t] = match (wanted, self.never) {
                (true, Some(never)) if self.all => without(row, never as usize),
                (true, _) => place(row, largest),
                (false, _) => u32::MAX,
            };
            self.sums[t] = exponentials(row, largest);
        }
    }
}

/// Where the largest number is first, but for one place.
#[inline(always)]
fn without<T: Real>(row: &mut [T], never: usize) -> u32 {
    let kept = std::mem::replace(&mut row[never], T::from_f64(f64::NEG_INFINITY));
    let found = place(row, largest(row));
    row[never] = kept;
    found
}

/// The largest number; what is not a number is passed over.
#[inline(always)]
fn largest<T: Real>(row: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut parts = [T::from_f64(f64::NEG_INFINITY); PARTS];
    for x in row.chunks_exact(PARTS) {
        for i in 0..PARTS {
            parts[i] = larger(parts[i], x[i]);
        }
    }
    parts.into_iter().fold(parts[0], larger)
}

/// Where this number is first; 0 if it is not there.
#[inline(always)]
fn place<T: Real>(row: &[T], number: T) -> u32 {
    let block = row.chunks_exact(PARTS).position(|x| x.iter().fold(false, |found, x| found | (*x == number)));
    let from = block.unwrap_or(0) * PARTS;
    (from + row[from..].iter().position(|x| *x == number).unwrap_or(0)) as u32
}

/// Replaces every x by exp(x − largest); says what their sum is.
#[inline(always)]
fn exponentials<T: Real>(row: &mut [T], largest: T) -> T {
    let mut sums = [T::default(); PARTS];
    for x in row.chunks_exact_mut(PARTS) {
        for i in 0..PARTS {
            x[i] = (x[i] - largest).exp();
            sums[i] += x[i];
        }
    }
    total(sums)
}
