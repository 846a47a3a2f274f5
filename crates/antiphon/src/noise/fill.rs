//! Ranges of the field: whole groups in tiles that stay in the first cache, and what is left at either end.

use super::Key;
use super::transform::{BATCH, Bytes, GROUP, LANES, batch_f32, batch_f64};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Groups that are drawn at once: 8 KiB of random bytes, and 4 or 8 of normals.
const TILE: usize = 64;
/// Normals per task when a range is filled in parallel.
const TASK: usize = 1 << 16;

/// What the field is made of: `f32` or `f64`. Both come from the same words and differ only by rounding.
pub trait Normal: Copy + Default + Send + Sync + sealed::Transform {}
impl Normal for f32 {}
impl Normal for f64 {}

mod sealed {
    use super::*;

    pub trait Transform: Sized {
        /// The normals of a batch.
        fn batch(bytes: &[Bytes; BATCH], out: &mut [[Self; GROUP]; BATCH]);
    }

    impl Transform for f32 {
        #[inline(always)]
        fn batch(bytes: &[Bytes; BATCH], out: &mut [[f32; GROUP]; BATCH]) {
            batch_f32(bytes, out);
        }
    }

    impl Transform for f64 {
        #[inline(always)]
        fn batch(bytes: &[Bytes; BATCH], out: &mut [[f64; GROUP]; BATCH]) {
            batch_f64(bytes, out);
        }
    }
}

/// Groups of random bytes to groups of normals.
pub(super) struct Groups<'a, T> {
    pub bytes: &'a [Bytes],
    pub out: &'a mut [[T; GROUP]],
}

impl<T: Normal> WithSimd for Groups<'_, T> {
    type Output = ();
    /// Compiled once for every kind of vector unit; none of them is named here.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (bytes, bytes_left) = self.bytes.as_chunks();
        let (out, out_left) = self.out.as_chunks_mut();
        for (bytes, out) in bytes.iter().zip(out) {
            T::batch(bytes, out);
        }
        if !out_left.is_empty() {
            let (mut bytes, mut out) = ([[0; size_of::<Bytes>()]; BATCH], [[T::default(); GROUP]; BATCH]);
            bytes[..bytes_left.len()].copy_from_slice(bytes_left);
            T::batch(&bytes, &mut out);
            out_left.copy_from_slice(&out[..out_left.len()]);
        }
    }
}

impl Key {
    /// Writes z(step, first), z(step, first + 1), … to all of `out`.
    ///
    /// # Panics
    ///
    /// If the range ends beyond 2⁶⁴.
    pub fn fill<T: Normal>(&self, step: u64, first: u64, out: &mut [T]) {
        self.fill_by(&mut [[0; size_of::<Bytes>()]; TILE], step, first, out);
    }

    /// [`Key::fill`] with memory for random bytes, as many groups at a time as there is room for: who draws many short ranges has it
    /// cleared once.
    pub(super) fn fill_by<T: Normal>(&self, bytes: &mut [Bytes], step: u64, first: u64, out: &mut [T]) {
        check_range(first, out.len());
        let arch = Arch::new();
        let mut group = first / GROUP as u64;
        // A range may begin within a group: the normals before it are drawn and left out.
        let skip = (first % GROUP as u64) as usize;
        let head = if skip == 0 { 0 } else { (GROUP - skip).min(out.len()) };
        let (out, rest) = out.split_at_mut(head);
        if head > 0 {
            self.part(arch, step, group, skip, out);
            group += 1;
        }
        let (whole, tail) = rest.as_chunks_mut::<GROUP>();
        for out in whole.chunks_mut(bytes.len()) {
            let bytes = &mut bytes[..out.len()];
            self.draw(arch, step, group, bytes, out);
            group += out.len() as u64;
        }
        if !tail.is_empty() {
            self.part(arch, step, group, 0, tail);
        }
    }

    /// [`Key::fill`] on all threads of the pool; the same numbers.
    pub fn fill_parallel<T: Normal>(&self, step: u64, first: u64, out: &mut [T]) {
        check_range(first, out.len());
        // Tasks begin where groups do, so none is drawn twice.
        let head = (first.wrapping_neg() % GROUP as u64).min(out.len() as u64);
        let (before, rest) = out.split_at_mut(head as usize);
        self.fill(step, first, before);
        rest.par_chunks_mut(TASK).enumerate().for_each(|(i, out)| {
            self.fill(step, first + head + (i * TASK) as u64, out);
        });
    }

    /// [`Key::fill`] for `f32`.
    pub fn fill_f32(&self, step: u64, first: u64, out: &mut [f32]) {
        self.fill(step, first, out);
    }

    /// [`Key::fill`] for `f64`.
    pub fn fill_f64(&self, step: u64, first: u64, out: &mut [f64]) {
        self.fill(step, first, out);
    }

    /// Whole groups.
    fn draw<T: Normal>(
        &self,
        arch: Arch,
        step: u64,
        group: u64,
        bytes: &mut [Bytes],
        out: &mut [[T; GROUP]],
    ) {
        let quads = bytes.as_flattened_mut().as_chunks_mut().0;
        self.stream.words(step, group * LANES as u64, quads);
        arch.dispatch(Groups { bytes, out });
    }

    /// A part of one group, from its normal `skip` on.
    fn part<T: Normal>(&self, arch: Arch, step: u64, group: u64, skip: usize, out: &mut [T]) {
        let (mut bytes, mut drawn) = ([[0; size_of::<Bytes>()]], [[T::default(); GROUP]]);
        self.draw(arch, step, group, &mut bytes, &mut drawn);
        out.copy_from_slice(&drawn[0][skip..skip + out.len()]);
    }
}

/// The last coordinate of a range must have a number.
fn check_range(first: u64, count: usize) {
    let last = (count as u64).checked_sub(1).map_or(Some(first), |more| first.checked_add(more));
    assert!(last.is_some(), "coordinates {first} and {count} more end beyond 2^64");
}
