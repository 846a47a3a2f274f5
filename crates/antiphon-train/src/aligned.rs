//! Numbers that begin where a cache line does: a vector of them is then never in two lines.

use crate::real::Real;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Zeros at first. Its length does not change.
#[derive(Debug, Default)]
pub struct Aligned<T> {
    numbers: Vec<T>,
    start: usize,
    length: usize,
}

impl<T: Real> Aligned<T> {
    /// So many zeros.
    pub fn new(length: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let numbers = vec![T::default(); length + spare];
        // Where it cannot be done, only speed is lost.
        let start = numbers.as_ptr().align_offset(LINE).min(spare);
        Aligned { numbers, start, length }
    }

    /// The same numbers.
    pub fn copy(numbers: &[T]) -> Self {
        let mut copy = Aligned::new(numbers.len());
        copy.copy_from_slice(numbers);
        copy
    }

    /// The first so many numbers: what there is, or new zeros if these are fewer.
    pub fn room(&mut self, length: usize) -> &mut [T] {
        if self.length < length {
            *self = Aligned::new(length);
        }
        &mut self[..length]
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.numbers[self.start..][..self.length]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.start..][..self.length]
    }
}
