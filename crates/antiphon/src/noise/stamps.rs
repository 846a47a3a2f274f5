//! Noise of the mechanisms that are made from a formula, stamp by stamp.
//!
//! A stamp with n steps has its own rows of Z: as many as its encoder has rows, after those of the stamps before it. What is
//! drawn is single precision, sums are in double precision, and each number is rounded once, at the end.

use super::Key;
use super::fft::FftNoise;
use super::fourier::{COLUMNS, Pairs};
use super::source::{Source, TILE, check_overflow};
use crate::error::{Error, Result};
use crate::linalg::dense;
use crate::mechanism::stamp;
use crate::mechanism::tree::{OnlineTree, Tree, TreeStream};
use crate::mechanism::{Factorization, Family, Structured};
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;

/// Stamps one after another.
pub struct Stamps {
    structured: Structured,
    stddev: f64,
    stamps: Vec<Stamp>,
}

/// One of them.
struct Stamp {
    steps: Range<usize>,
    /// The first row of Z.
    input: u64,
    kernel: Arc<Kernel>,
}

/// What makes the rows of one stamp.
enum Kernel {
    Identity,
    OnlineTree(OnlineTree),
    Tree(Tree),
    Fft(Box<FftNoise>),
}

impl Stamps {
    /// The stamps of a mechanism over so many steps.
    pub fn new(structured: Structured, steps: usize, stddev: f64) -> Result<Stamps> {
        // With room for the smallest rows in single precision: zeros are no noise.
        if stddev != 0.0 && stddev < 1e-35 {
            let allowed = "0, or at least 1e-35 for single precision";
            return Err(Error::argument("stddev", allowed, format!("{stddev:e}")));
        }
        let mut stamps: Vec<Stamp> = Vec::new();
        let (mut step, mut input) = (0, 0);
        for length in stamp::lengths(steps, structured.stamps)? {
            let kernel = match stamps.last() {
                Some(last) if last.steps.len() == length => last.kernel.clone(),
                _ => {
                    let kernel = Kernel::new(structured.family, length)?;
                    check_overflow(stddev, kernel.row_sum(length))?;
                    Arc::new(kernel)
                }
            };
            let inputs = kernel.inputs(length);
            stamps.push(Stamp { steps: step..step + length, input, kernel });
            (step, input) = (step + length, input + inputs as u64);
        }
        Ok(Stamps { structured, stddev, stamps })
    }

    /// What is repeated.
    pub fn family(&self) -> Family {
        self.structured.family
    }

    /// σ times some numbers, rounded.
    fn round(&self, numbers: impl Iterator<Item = f64>, out: &mut [f32]) {
        out.iter_mut().zip(numbers).for_each(|(out, x)| *out = (self.stddev * x) as f32);
    }

    fn stamp_of(&self, step: usize) -> &Stamp {
        &self.stamps[self.stamps.partition_point(|stamp| stamp.steps.end <= step)]
    }
}

impl Kernel {
    fn new(family: Family, steps: usize) -> Result<Kernel> {
        Ok(match family {
            Family::Identity => Kernel::Identity,
            Family::TreeOnline => Kernel::OnlineTree(OnlineTree::new(steps)),
            Family::TreeOptimal => Kernel::Tree(Tree::new(steps)),
            Family::Fft => Kernel::Fft(Box::new(FftNoise::new(steps, false)?)),
            Family::FftOptimal => Kernel::Fft(Box::new(FftNoise::new(steps, true)?)),
        })
    }

    /// Rows of Z for so many steps.
    fn inputs(&self, steps: usize) -> usize {
        match self {
            Kernel::Identity => steps,
            Kernel::OnlineTree(tree) => tree.inputs(),
            Kernel::Tree(tree) => tree.inputs(),
            Kernel::Fft(_) => 2 * steps,
        }
    }

    /// At least Σ_s |W(t, s)| for every step t of so many. Sums are in double precision, whose rounding the factor covers amply.
    fn row_sum(&self, steps: usize) -> f64 {
        let bound = match self {
            Kernel::Identity => 1.0,
            // A row is one estimate, minus at most one of every level below it. An estimate of level l is w·z + (1 − w)·(two of level
            // l − 1) with w ≥ ½, so its weights sum to at most one more than those of level l − 1: to l + 1.
            Kernel::OnlineTree(_) => {
                let height = steps.next_power_of_two().ilog2();
                f64::from((height + 1) * (height + 2) / 2)
            }
            // W is the pseudo-inverse of C, which has the rows of I among its own: no row of W is longer than 1.
            Kernel::Tree(tree) => (tree.inputs() as f64).sqrt(),
            Kernel::Fft(fft) => fft.row_sum(),
        };
        bound * (1.0 + 1e-6)
    }
}

impl Source for Stamps {
    fn steps(&self) -> usize {
        self.stamps.last().map_or(0, |last| last.steps.end)
    }

    fn tile(&self, key: &Key, rows: Range<usize>, first: u64, out: &mut [f32]) {
        for stamp in &self.stamps {
            let (start, end) = (stamp.steps.start.max(rows.start), stamp.steps.end.min(rows.end));
            if start >= end {
                continue;
            }
            let out = &mut out[(start - rows.start) * TILE..(end - rows.start) * TILE];
            let wanted = start - stamp.steps.start..end - stamp.steps.start;
            let length = stamp.steps.len();
            let draw = |input: usize, row: &mut [f32]| key.fill_f32(stamp.input + input as u64, first, row);
            match stamp.kernel.as_ref() {
                Kernel::Identity => {
                    let mut z = [0.0; TILE];
                    for (t, out) in wanted.zip(out.chunks_mut(TILE)) {
                        draw(t, &mut z);
                        self.round(z.iter().map(|z| f64::from(*z)), out);
                    }
                }
                Kernel::OnlineTree(_) => {
                    let mut branch = Branch::new(first);
                    for (step, out) in (start..end).zip(out.chunks_mut(TILE)) {
                        branch.row(self, key, step, out);
                    }
                }
                Kernel::Tree(tree) => {
                    let mut z = dense::Matrix::zeros(tree.inputs(), TILE);
                    let mut row = [0.0; TILE];
                    for input in 0..tree.inputs() {
                        draw(input, &mut row);
                        row.iter().enumerate().for_each(|(j, z_j)| z[(input, j)] = f64::from(*z_j));
                    }
                    let noise = tree.noise(&z);
                    for (t, out) in wanted.zip(out.chunks_mut(TILE)) {
                        self.round((0..TILE).map(|j| noise[(t, j)]), out);
                    }
                }
                Kernel::Fft(fft) => {
                    let mut z = vec![0.0; 2 * length * TILE];
                    z.chunks_mut(TILE).enumerate().for_each(|(input, row)| draw(input, row));
                    for column in (0..TILE).step_by(COLUMNS) {
                        let pairs = |row: &[f32]| Pairs::from_row(&row[column..column + COLUMNS]);
                        let mut group: Vec<Pairs> = z.chunks(TILE).map(pairs).collect();
                        fft.noise(&mut group);
                        for (t, out) in wanted.clone().zip(out.chunks_mut(TILE)) {
                            self.round((0..COLUMNS).map(|j| group[t].column(j)), &mut out[column..]);
                        }
                    }
                }
            }
        }
    }

    fn describe(&self, hash: &mut Sha256) {
        hash.update(self.structured.describe().as_bytes());
        hash.update(self.stddev.to_le_bytes());
        for stamp in &self.stamps {
            if let Kernel::Fft(fft) = stamp.kernel.as_ref() {
                fft.describe(hash);
            }
        }
    }

    fn stamps(&self) -> Option<&Stamps> {
        Some(self)
    }
}

/// A tile of the online tree's noise, row by row, in any order: one row for every finished subtree of a stamp is kept.
pub struct Branch {
    first: u64,
    /// The step that the stream makes next.
    step: usize,
    stream: Option<TreeStream>,
}

impl Branch {
    /// For the tile of columns that begins here.
    pub fn new(first: u64) -> Branch {
        Branch { first, step: 0, stream: None }
    }

    /// Writes one row. The one after the last is made at once, any other from all rows of its stamp before it.
    pub fn row(&mut self, stamps: &Stamps, key: &Key, step: usize, out: &mut [f32]) {
        let stamp = stamps.stamp_of(step);
        let Kernel::OnlineTree(tree) = stamp.kernel.as_ref() else {
            unreachable!("only the online tree has branches");
        };
        if step != self.step || step == stamp.steps.start {
            (self.step, self.stream) = (stamp.steps.start, None);
        }
        let stream = self.stream.get_or_insert_with(|| tree.stream(TILE));
        let (mut z, mut row) = ([0.0; TILE], [0.0; TILE]);
        while self.step <= step {
            stream.next_into(&mut row, |node, fresh| {
                key.fill_f32(stamp.input + node as u64, self.first, &mut z);
                fresh.iter_mut().zip(z).for_each(|(fresh, z)| *fresh = f64::from(z));
            });
            self.step += 1;
        }
        stamps.round(row.into_iter(), out);
    }
}

/// The bound on the rows of W of one stamp.
#[cfg(test)]
pub fn row_sum(family: Family, steps: usize) -> Result<f64> {
    Ok(Kernel::new(family, steps)?.row_sum(steps))
}
