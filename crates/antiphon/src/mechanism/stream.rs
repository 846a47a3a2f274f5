//! How the noise of one stamp is made: rows of σ·W·Z for a tile of columns, from rows of Z that somebody draws.

use sha2::Sha256;
use std::ops::Range;

/// Columns that are worked on together: a multiple of every vector's length, and of the groups of the normals.
pub const TILE: usize = 256;

/// Fills a row of Z, [`TILE`] numbers: that of this input of the stamp. Every row can be drawn again, any number of times.
pub type Draw<'a> = &'a dyn Fn(usize, &mut [f32]);

/// The noise of one stamp.
pub trait Kernel: Send + Sync {
    /// Rows of Z that belong to the stamp.
    fn inputs(&self) -> usize;

    /// At least Σ_s |W(t, s)| for every step t of the stamp, with room for rounding.
    fn row_sum(&self) -> f64;

    /// Writes some rows of the stamp, one after another, each of [`TILE`] numbers.
    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]);

    /// How rows are made one after another.
    fn access(&self) -> Access<'_>;

    /// How a row is made, where that is a [`Recurrence`].
    fn recurrence(&self, _step: usize) -> Option<Recurrence> {
        None
    }

    /// All that fixes the numbers, beside the name of the mechanism, σ and Z.
    fn describe(&self, _hash: &mut Sha256) {}
}

/// One row of noise as a device can make it that knows nothing of mechanisms, from rows of Z and a few buffers s_q that it keeps:
///
/// ```text
/// z̃ = 0 + Σ_i weight_i·z_i      ξ = z̃ − Σ_q taken_q·s_q      s_q ← kept_q·s_q + z̃      row = scale·ξ
/// ```
///
/// in double precision and in this order, every product and every sum rounded by itself, and the row rounded to single precision at the end:
/// so it has the same bits wherever it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Recurrence {
    /// The rows of Z, and their weights.
    pub inputs: Vec<(u64, f64)>,
    /// taken_q and kept_q.
    pub buffers: Vec<(f64, f64)>,
    /// σ and the gain of the step.
    pub scale: f64,
    /// Whether all buffers are zero before it.
    pub first: bool,
}

/// What the next row costs.
pub enum Access<'a> {
    /// As much as any other, alone.
    Single,
    /// Less if many are made together.
    Together,
    /// Little, with what is kept of the rows before it.
    Stream(&'a dyn Stream),
    /// Every row needs all of Z: they are made at once, and kept.
    Whole,
}

/// Noise that is made row after row in memory that does not grow with the number of steps.
pub trait Stream: Sync {
    /// Numbers for each column that are kept between two rows.
    fn kept(&self) -> usize;

    /// Prepares the memory for row 0: [`Stream::kept`]·[`TILE`] numbers.
    fn start(&self, _memory: &mut [f64]) {}

    /// The numbers of row `step` that are the same for all columns, in place of what `out` holds: found once for all tiles.
    fn coefficients(&self, _step: usize, _out: &mut Vec<f64>) {}

    /// Writes row `step`, [`TILE`] numbers, with its coefficients. Rows come in order.
    fn next_row(
        &self,
        step: usize,
        coefficients: &[f64],
        memory: &mut [f64],
        draw: Draw<'_>,
        out: &mut [f32],
    );

    /// Some rows, from the beginning.
    fn replay(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        let mut memory = vec![0.0; self.kept() * TILE];
        let mut coefficients = Vec::new();
        let mut skipped = [0.0; TILE];
        self.start(&mut memory);
        for step in 0..wanted.end {
            let out = match step.checked_sub(wanted.start) {
                Some(row) => &mut out[row * TILE..][..TILE],
                None => &mut skipped,
            };
            self.coefficients(step, &mut coefficients);
            self.next_row(step, &coefficients, &mut memory, draw, out);
        }
    }
}

/// σ times some numbers, rounded once.
pub fn scaled(stddev: f64, numbers: impl Iterator<Item = f64>, out: &mut [f32]) {
    out.iter_mut().zip(numbers).for_each(|(out, x)| *out = (stddev * x) as f32);
}
