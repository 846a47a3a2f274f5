//! Stamping: one factorization, repeated along the diagonal.
//!
//! The encoder of s stamps is block diagonal, and so is the noising matrix: W = W₁ ⊕ … ⊕ W_s. This one construction is
//! both of the paper's. With W_i the pseudo-inverse of C_i, it is the pseudo-inverse of the stamped encoder, the
//! optimal decoder for any workload. With W_i = S⁻¹B for a decoder B of prefix sums, S·W is B on the diagonal and the
//! last row of B, again and again, below it: the restarted mechanism of the tree literature (docs/theory.md,
//! section 10).

use super::factorization::{Cost, Factorization, Past, variances_by_columns};
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::schema::Schema;
use crate::sensitivity::WorstCase;
use crate::workload::{Training, Workload};
use std::sync::Arc;

/// A factorization that several stamps may share.
pub type Shared = Arc<dyn Factorization>;

/// Stamps one after another.
#[derive(Clone)]
pub struct Stamped {
    parts: Vec<Part>,
    steps: usize,
    inputs: usize,
}

#[derive(Clone)]
struct Part {
    factorization: Shared,
    /// The first step and the first row of Z.
    step: usize,
    input: usize,
}

/// Refuses a number of stamps that so many steps cannot have.
pub fn check(steps: usize, stamps: usize) -> Result<()> {
    match (1..=steps).contains(&stamps) {
        true => Ok(()),
        false => Err(Error::argument("stamps", format!("in 1..={steps}"), stamps)),
    }
}

/// The lengths of `stamps` stamps over so many steps: all equal, or the first ones longer by one.
pub fn lengths(steps: usize, stamps: usize) -> Result<Vec<usize>> {
    check(steps, stamps)?;
    let (length, longer) = (steps / stamps, steps % stamps);
    Ok((0..stamps).map(|i| length + usize::from(i < longer)).collect())
}

/// A mechanism and its number of stamps in words: `tree-online, 10 stamps`.
pub fn title(name: &str, stamps: usize) -> String {
    match stamps {
        1 => name.into(),
        stamps => format!("{name}, {stamps} stamps"),
    }
}

impl Stamped {
    /// These stamps, in order.
    pub fn of(factorizations: impl IntoIterator<Item = Shared>) -> Self {
        let (mut step, mut input) = (0, 0);
        let place = |factorization: Shared| {
            let part = Part { factorization, step, input };
            (step, input) = (step + part.factorization.steps(), input + part.factorization.inputs());
            part
        };
        let parts = factorizations.into_iter().map(place).collect();
        Stamped { parts, steps: step, inputs: input }
    }

    /// The number of stamps.
    pub fn stamps(&self) -> usize {
        self.parts.len()
    }

    /// The factorizations, in order.
    pub fn parts(&self) -> impl Iterator<Item = &dyn Factorization> {
        self.parts.iter().map(|part| part.factorization.as_ref())
    }

    fn part_of(&self, step: usize) -> &Part {
        &self.parts[self.parts.partition_point(|part| part.step <= step) - 1]
    }

    /// Applies a block diagonal map: `from` and `to` tell where a part's rows start in the argument and the result.
    fn blockwise(
        &self,
        m: &Matrix,
        rows: usize,
        from: impl Fn(&Part) -> (usize, usize),
        to: impl Fn(&Part) -> usize,
        f: impl Fn(&dyn Factorization, &Matrix) -> Matrix,
    ) -> Matrix {
        if let [part] = self.parts.as_slice() {
            return f(part.factorization.as_ref(), m);
        }
        let mut out = Matrix::zeros(rows, m.ncols());
        for part in &self.parts {
            let (first, height) = from(part);
            let block = dense::from_fn(height, m.ncols(), |i, j| m[(first + i, j)]);
            let image = f(part.factorization.as_ref(), &block);
            let first = to(part);
            for j in 0..m.ncols() {
                out.col_as_slice_mut(j)[first..first + image.nrows()].copy_from_slice(image.col_as_slice(j));
            }
        }
        out
    }

    /// The variances for a training workload, in one pass over the stamps.
    ///
    /// Within its own stamp, noise is treated by the part itself. After the last step e of a stamp, row t of A is
    /// u = A[e, ·] plus a multiple of p = M_β[e, ·] on the columns of that stamp, and both move on as [`Past`] says.
    fn training_variances(&self, training: &Training) -> Vec<f64> {
        let mut past = Past::default();
        let mut variances: Vec<f64> = Vec::with_capacity(self.steps);
        let mut known: Option<(Shared, Vec<f64>, [f64; 3])> = None;
        for part in &self.parts {
            let length = part.factorization.steps();
            let local = training.part(part.step, part.step + length);
            // Without a schedule, equal stamps do the same.
            let same = |(shared, ..): &(Shared, _, _)| {
                Arc::ptr_eq(shared, &part.factorization) && training.rates().is_none()
            };
            let (own, products) = match known.take_if(|known| same(known)) {
                Some((_, own, products)) => (own, products),
                None => {
                    let own = part.factorization.variances(&Workload::Training(local.clone()));
                    (own, past_products(part.factorization.as_ref(), &local))
                }
            };
            for (t, own) in own.iter().enumerate() {
                past.step(training, part.step + t);
                variances.push(past.variance() + own);
            }
            past.add(products);
            known = Some((part.factorization.clone(), own, products));
        }
        variances
    }
}

/// ‖Wᵀu‖², ⟨Wᵀu, Wᵀp⟩ and ‖Wᵀp‖² for the last rows u of A and p of M_β.
fn past_products(factorization: &dyn Factorization, training: &Training) -> [f64; 3] {
    let n = factorization.steps();
    let mut rows = Matrix::zeros(n, 2);
    rows[(n - 1, 0)] = 1.0;
    training.apply_transpose(rows.col_as_slice_mut(0));
    for j in 0..n {
        rows[(j, 1)] = training.momentum().powi((n - 1 - j).min(i32::MAX as usize) as i32);
    }
    let image = factorization.noise_transpose(&rows);
    let product = |a: usize, b: usize| -> f64 {
        image.col_as_slice(a).iter().zip(image.col_as_slice(b)).map(|(x, y)| x * y).sum()
    };
    [product(0, 0), product(0, 1), product(1, 1)]
}

impl Factorization for Stamped {
    fn steps(&self) -> usize {
        self.steps
    }

    fn inputs(&self) -> usize {
        self.inputs
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        let (a, b) = (self.part_of(i), self.part_of(j));
        if a.step == b.step { a.factorization.gram(i - a.step, j - a.step) } else { 0.0 }
    }

    fn block_start(&self, step: usize) -> usize {
        let part = self.part_of(step);
        part.step + part.factorization.block_start(step - part.step)
    }

    fn gram_error(&self) -> f64 {
        self.parts().map(|part| part.gram_error()).fold(0.0, f64::max)
    }

    fn gram_is_slow(&self) -> bool {
        self.parts().any(|part| part.gram_is_slow())
    }

    fn own_sensitivity(&self, schema: &Schema) -> Option<Result<WorstCase>> {
        match self.parts.as_slice() {
            [part] => part.factorization.own_sensitivity(schema),
            _ => None,
        }
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        let from = |part: &Part| (part.step, part.factorization.steps());
        self.blockwise(x, self.inputs, from, |part| part.input, |part, x| part.encode(x))
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        let from = |part: &Part| (part.input, part.factorization.inputs());
        self.blockwise(z, self.steps, from, |part| part.step, |part, z| part.noise(z))
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        let from = |part: &Part| (part.step, part.factorization.steps());
        self.blockwise(u, self.inputs, from, |part| part.input, |part, u| part.noise_transpose(u))
    }

    fn variances(&self, workload: &Workload) -> Vec<f64> {
        match (self.parts.as_slice(), workload) {
            ([part], _) => part.factorization.variances(workload),
            (_, Workload::Training(training)) => self.training_variances(training),
            _ => variances_by_columns(self, workload),
        }
    }

    fn cost(&self) -> Cost {
        // One stamp at a time, so the longest, which comes first, decides on memory.
        let mut cost = self.parts[0].factorization.cost();
        let mean = |f: &dyn Fn(&Cost) -> f64| {
            let weighed = |part: &Part| f(&part.factorization.cost()) * part.factorization.steps() as f64;
            self.parts.iter().map(weighed).sum::<f64>() / self.steps as f64
        };
        cost.stream_flops_per_step = mean(&|cost| cost.stream_flops_per_step);
        cost.stream_gaussians_per_step = mean(&|cost| cost.stream_gaussians_per_step);
        cost.pregenerate_flops_per_step = mean(&|cost| cost.pregenerate_flops_per_step);
        // What stamps share is kept once.
        let others =
            self.parts.windows(2).filter(|pair| !Arc::ptr_eq(&pair[0].factorization, &pair[1].factorization));
        cost.coefficient_bytes +=
            others.map(|pair| pair[1].factorization.cost().coefficient_bytes).sum::<usize>();
        cost
    }
}
