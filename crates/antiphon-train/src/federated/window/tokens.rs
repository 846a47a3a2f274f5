//! The different tokens of a batch. Their columns of the table are far apart in memory, and windows overlap, so each column is
//! read and written once per batch.

use crate::aligned::Aligned;
use crate::real::Real;

/// The tokens of the windows of one batch, and D numbers for each.
#[derive(Default)]
pub(super) struct Tokens<T> {
    /// For each place of the windows, which of the different tokens it is.
    pub slots: Vec<usize>,
    /// The different tokens, in the order in which they appear.
    list: Vec<u32>,
    /// For each token of the vocabulary its place in the list, or [`ABSENT`].
    places: Vec<usize>,
    /// The numbers of each token in the list.
    pub rows: Aligned<T>,
}

const ABSENT: usize = usize::MAX;

impl<T: Real> Tokens<T> {
    /// Takes the columns of the tokens of these windows out of a table of `width` rows.
    pub fn gather(&mut self, windows: &[u32], table: &[T], stride: usize, width: usize) {
        self.find(windows, stride);
        if self.rows.len() < self.list.len() * width {
            self.rows = Aligned::new(windows.len() * width);
        }
        for (i, row) in table.chunks_exact(stride).take(width).enumerate() {
            let places = self.rows.iter_mut().skip(i).step_by(width);
            places.zip(&self.list).for_each(|(to, token)| *to = row[*token as usize]);
        }
    }

    /// Makes the list. A token that is not in the vocabulary panics here, or is one of those that fill the stride.
    fn find(&mut self, windows: &[u32], stride: usize) {
        self.places.resize(stride, ABSENT);
        self.slots.clear();
        self.list.clear();
        for token in windows {
            let place = &mut self.places[*token as usize];
            if *place == ABSENT {
                *place = self.list.len();
                self.list.push(*token);
            }
            self.slots.push(*place);
        }
        self.list.iter().for_each(|token| self.places[*token as usize] = ABSENT);
    }

    /// Replaces the numbers by zeros.
    pub fn clear(&mut self, width: usize) {
        self.rows[..self.list.len() * width].fill(T::default());
    }

    /// Adds the numbers to the columns.
    pub fn scatter(&self, table: &mut [T], stride: usize, width: usize) {
        for (i, row) in table.chunks_exact_mut(stride).take(width).enumerate() {
            let places = self.rows.iter().skip(i).step_by(width);
            places.zip(&self.list).for_each(|(from, token)| row[*token as usize] += *from);
        }
    }
}
