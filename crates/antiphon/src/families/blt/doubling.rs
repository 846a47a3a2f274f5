//! Many steps of the prefix sums of T's output at once, by doubling.
//!
//! The state x has Σ_s ρ_a^(t−s) z_s for ρ = 1 and for every zero, and at its end y, the sum of gradients' noise after momentum β:
//!
//! ```text
//! x_a ← ρ_a x_a + z,      y ← βy + Σ g_a x_a
//! ```
//!
//! Without learning rates and profile, y is the noise of an iterate. All numbers are non-negative, so that nothing cancels, whether β meets a
//! zero or zeros are next to one.

use super::rational::{Ratio, Rational};

/// What L steps do.
#[derive(Debug, Clone)]
pub struct Steps {
    /// L.
    pub count: usize,
    /// The map of the state.
    pub map: Arrow,
    /// The covariance of a state that began with nothing.
    pub covariance: Square,
    /// The sum of all covariances on the way, that of the last state included.
    pub covariances: Square,
    /// Σ_τ (row of y in the map of τ steps), τ = 1..L,
    pub outputs: Vec<f64>,
    /// Σ_τ β^τ·(the same),
    pub faded_outputs: Vec<f64>,
    /// and Σ_τ of their squares: what a state at the beginning adds to the sum of y².
    pub squares: Square,
}

/// A map of states: a diagonal, and below it the row of y.
#[derive(Debug, Clone)]
pub struct Arrow {
    diagonal: Vec<f64>,
    row: Vec<f64>,
}

/// A symmetric matrix of a few rows.
#[derive(Debug, Clone)]
pub struct Square {
    size: usize,
    entries: Vec<f64>,
}

impl Steps {
    /// Of T, for a momentum.
    pub fn new(rational: &Rational, momentum: f64, count: usize) -> Steps {
        let ratios: Vec<Ratio> = std::iter::once(Ratio::ONE).chain(rational.zeros.iter().copied()).collect();
        let weights = rational.prefix_weights();
        let momentum = Ratio::of(momentum);
        let row = weights.iter().zip(&ratios).map(|(g, r)| g * r.value()).chain([momentum.value()]).collect();
        let one = Arrow { diagonal: ratios.iter().map(|r| r.value()).collect(), row };
        let input: Vec<f64> = ratios.iter().map(|_| 1.0).chain([weights.iter().sum()]).collect();
        let size = input.len();
        let nothing = Square::zero(size);
        let mut steps = Steps {
            count: 0,
            map: Arrow { diagonal: vec![1.0; size - 1], row: unit(size) },
            covariance: nothing.clone(),
            covariances: nothing.clone(),
            outputs: vec![0.0; size],
            faded_outputs: vec![0.0; size],
            squares: nothing,
        };
        for bit in (0..usize::BITS - count.leading_zeros()).rev() {
            steps.double();
            if count >> bit & 1 == 1 {
                steps.add_one(&one, &input);
            }
            // Powers of a power would double its rounding error every time.
            steps.map.diagonal = ratios.iter().map(|r| r.pow(steps.count)).collect();
            steps.map.row[size - 1] = momentum.pow(steps.count);
        }
        steps
    }

    /// From L to 2L.
    fn double(&mut self) {
        let later = self.map.around(&self.covariances);
        self.covariances.add(&later);
        self.covariances.add_multiple(&self.covariance, self.count as f64);
        self.covariance.add(&self.map.around(&self.covariance));
        self.squares.add(&self.map.around_transposed(&self.squares));
        let later = self.map.row_times(&self.outputs);
        self.outputs.iter_mut().zip(later).for_each(|(x, y)| *x += y);
        let (later, fade) = (self.map.row_times(&self.faded_outputs), self.map.row[self.outputs.len() - 1]);
        self.faded_outputs.iter_mut().zip(later).for_each(|(x, y)| *x += fade * y);
        self.map = self.map.times(&self.map);
        self.count *= 2;
    }

    /// From L to L + 1.
    fn add_one(&mut self, one: &Arrow, input: &[f64]) {
        self.count += 1;
        self.covariances = one.around(&self.covariances);
        self.covariances.add_product(input, self.count as f64);
        self.covariance = one.around(&self.covariance);
        self.covariance.add_product(input, 1.0);
        let output = unit(input.len());
        self.squares.add_product(&output, 1.0);
        self.squares = one.around_transposed(&self.squares);
        self.outputs[input.len() - 1] += 1.0;
        self.outputs = one.row_times(&self.outputs);
        self.faded_outputs[input.len() - 1] += 1.0;
        let fade = one.row[input.len() - 1];
        self.faded_outputs = one.row_times(&self.faded_outputs).iter().map(|x| fade * x).collect();
        self.map = self.map.times(one);
    }
}

impl Arrow {
    fn times(&self, other: &Arrow) -> Arrow {
        Arrow {
            diagonal: self.diagonal.iter().zip(&other.diagonal).map(|(x, y)| x * y).collect(),
            row: other.row_times(&self.row),
        }
    }

    /// rowᵀ·P.
    pub fn row_times(&self, row: &[f64]) -> Vec<f64> {
        let last = row[row.len() - 1];
        let entry = |(a, p): (usize, &f64)| self.diagonal.get(a).map_or(0.0, |d| row[a] * d) + last * p;
        self.row.iter().enumerate().map(entry).collect()
    }

    /// P·x.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let last = self.row.iter().zip(x).map(|(p, x)| p * x).sum();
        self.diagonal.iter().zip(x).map(|(d, x)| d * x).chain([last]).collect()
    }

    /// P·M·Pᵀ.
    pub fn around(&self, m: &Square) -> Square {
        let last = m.size - 1;
        let mut out = Square::zero(m.size);
        let mut corner = 0.0;
        for (a, row) in m.entries.chunks(m.size).enumerate() {
            let with_row: f64 = row.iter().zip(&self.row).map(|(x, p)| x * p).sum();
            corner += self.row[a] * with_row;
            let Some(own) = self.diagonal.get(a) else { break };
            for (b, d) in self.diagonal.iter().enumerate() {
                out.entries[a * m.size + b] = own * d * row[b];
            }
            out.entries[a * m.size + last] = own * with_row;
            out.entries[last * m.size + a] = own * with_row;
        }
        out.entries[last * m.size + last] = corner;
        out
    }

    /// Pᵀ·M·P.
    fn around_transposed(&self, m: &Square) -> Square {
        let last = m.size - 1;
        let corner = m.entries[last * m.size + last];
        let diagonal = |a: usize| self.diagonal.get(a).copied().unwrap_or(0.0);
        let mut out = Square::zero(m.size);
        for a in 0..m.size {
            for b in 0..m.size {
                let entry = |i: usize, j: usize| m.entries[i * m.size + j];
                out.entries[a * m.size + b] = diagonal(a) * diagonal(b) * entry(a, b)
                    + diagonal(a) * self.row[b] * entry(a, last)
                    + self.row[a] * diagonal(b) * entry(last, b)
                    + self.row[a] * self.row[b] * corner;
            }
        }
        out
    }
}

impl Square {
    /// The zero matrix of so many rows.
    pub fn zero(size: usize) -> Square {
        Square { size, entries: vec![0.0; size * size] }
    }

    /// The covariances with y, and last of all its variance.
    pub fn last_row(&self) -> &[f64] {
        &self.entries[self.size * (self.size - 1)..]
    }

    /// The variance of y.
    pub fn variance(&self) -> f64 {
        self.entries[self.entries.len() - 1]
    }

    /// M·x.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let product = |row: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum();
        self.entries.chunks(self.size).map(product).collect()
    }

    /// tr(M·N).
    pub fn inner(&self, other: &Square) -> f64 {
        self.entries.iter().zip(&other.entries).map(|(x, y)| x * y).sum()
    }

    /// M ← M + N.
    pub fn add(&mut self, other: &Square) {
        self.add_multiple(other, 1.0);
    }

    fn add_multiple(&mut self, other: &Square, factor: f64) {
        self.entries.iter_mut().zip(&other.entries).for_each(|(x, y)| *x += factor * y);
    }

    fn add_product(&mut self, x: &[f64], factor: f64) {
        for (row, a) in self.entries.chunks_mut(self.size).zip(x) {
            row.iter_mut().zip(x).for_each(|(entry, b)| *entry += factor * a * b);
        }
    }
}

fn unit(size: usize) -> Vec<f64> {
    (0..size).map(|i| f64::from(i + 1 == size)).collect()
}
