//! Statistical tests of the distribution of a mechanism's noise, as it is drawn on this machine.
//!
//! The field is tested by itself: moments, distribution, tails, correlations along coordinates and from step to step. Then the rows
//! of the stream, as a run would get them: the covariance between steps, against that of the mechanism. With probes u, v (single
//! steps, and sums of all steps up to one: what the model sees), Σ_j (uᵀN)_j(vᵀN)_j over d coordinates has mean d·Σ_uv and
//! variance d·(Σ_uu·Σ_vv + Σ_uv²), where Σ_uv = σ²·(Wᵀu)ᵀ(Wᵀv).

use super::statistics::{CHUNK, OVERLAP, Sums, Test};
use super::{Key, Prepared, Rows};
use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use crate::mechanism::{Factorization, Mechanism, Noise};
use crate::verify::Verified;
use rayon::prelude::*;

/// The probability that a correct generator fails, all tests together.
pub const ALPHA: f64 = 1e-6;
/// Steps that are probed, at most.
const PROBED: usize = 24;
/// Chunks of the field that are tested.
const CHUNKS: usize = 64;

/// What was tested and what came out.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SelfTest {
    /// Every test.
    pub tests: Vec<Test>,
    /// The p-value below which one test counts as failed: [`ALPHA`] over their number.
    pub threshold: f64,
    /// Numbers of the field that were drawn, and of the stream.
    pub samples: [u64; 2],
}

impl SelfTest {
    /// Whether all were passed.
    pub fn passed(&self) -> bool {
        self.tests.iter().all(|test| self.accepts(test))
    }

    /// Whether this one was. A p-value that is no number is none that passes.
    pub fn accepts(&self, test: &Test) -> bool {
        test.p_value >= self.threshold
    }
}

/// Tests the noise of a mechanism under a key, with so many coordinates of its stream: at least 1,024, for all that follows is
/// about large numbers. `observe` is told how many rows were drawn; `false` stops the work.
pub fn run(
    mechanism: &Verified,
    key: &Key,
    coordinates: usize,
    memory: usize,
    observe: &dyn Fn(usize) -> bool,
) -> Result<SelfTest> {
    test(mechanism.mechanism(), key, coordinates, memory, observe)
}

fn test(
    mechanism: &Mechanism,
    key: &Key,
    coordinates: usize,
    memory: usize,
    observe: &dyn Fn(usize) -> bool,
) -> Result<SelfTest> {
    if coordinates < 1024 {
        return Err(Error::argument("params", "at least 1024 for a test", coordinates));
    }
    let mut rows = rows(mechanism, key, coordinates, memory)?;
    let mut tests = field(key).tests();
    let (probes, noise) = probe(&mut rows, observe)?;
    let covariance = covariance(mechanism, &probes)?;
    tests.extend(compare(&noise, &covariance));
    let samples = [(CHUNKS * CHUNK) as u64, (rows.steps() * coordinates) as u64];
    Ok(SelfTest { threshold: ALPHA / tests.len() as f64, tests, samples })
}

/// The noise with σ = 1.
fn rows(mechanism: &Mechanism, key: &Key, coordinates: usize, memory: usize) -> Result<Rows> {
    Prepared::new(&mechanism.noise, mechanism.steps(), 1.0)?.rows(key, 0..coordinates as u64, memory)
}

/// The field, at steps that no run of the mechanism comes to.
fn field(key: &Key) -> Sums {
    let row = |step: u64, chunk: usize| -> Vec<f64> {
        let mut row = vec![0.0f32; CHUNK + OVERLAP];
        key.fill_f32(step, (chunk * CHUNK) as u64, &mut row);
        row.into_iter().map(f64::from).collect()
    };
    let sums =
        (0..CHUNKS).into_par_iter().map(|chunk| Sums::of(&row(1 << 40, chunk), &row((1 << 40) + 1, chunk)));
    sums.reduce(Sums::none, Sums::plus)
}

/// What is looked at: a step, or the sum of all steps up to it.
#[derive(Clone, Copy)]
enum Probe {
    Step(usize),
    Sum(usize),
}

/// The probes of the stream, and uᵀN for each.
fn probe(rows: &mut Rows, observe: &dyn Fn(usize) -> bool) -> Result<(Vec<Probe>, Vec<Vec<f64>>)> {
    let steps = rows.steps();
    // The first, neighbours, and the rest spread out to the last.
    let mut places: Vec<usize> = (0..PROBED).map(|i| i * (steps - 1) / (PROBED - 1)).chain([1, 2]).collect();
    places.retain(|place| *place < steps);
    places.sort_unstable();
    places.dedup();
    let (mut probes, mut noise) = (Vec::new(), Vec::new());
    let (mut row, mut sum) = (vec![0.0f32; rows.coordinates()], vec![0.0f64; rows.coordinates()]);
    for step in 0..steps {
        if !observe(step) {
            return Err(Error::Interrupted);
        }
        rows.next_into(&mut row)?;
        sum.iter_mut().zip(&row).for_each(|(sum, x)| *sum += f64::from(*x));
        if places.contains(&step) {
            probes.push(Probe::Step(step));
            noise.push(row.iter().map(|x| f64::from(*x)).collect());
            if step > 0 {
                probes.push(Probe::Sum(step));
                noise.push(sum.clone());
            }
        }
    }
    Ok((probes, noise))
}

/// Σ_uv for all pairs.
fn covariance(mechanism: &Mechanism, probes: &[Probe]) -> Result<Matrix> {
    let steps = mechanism.schema.steps();
    let u = dense::from_fn(steps, probes.len(), |t, i| match probes[i] {
        Probe::Step(step) => f64::from(t == step),
        Probe::Sum(step) => f64::from(t <= step),
    });
    let images = match &mechanism.noise {
        Noise::Dense(noising) => noising.matrix().transpose() * &u,
        Noise::Structured(structured) => structured.factorization(steps)?.noise_transpose(&u),
        Noise::Implicit { .. } => unreachable!("it has no stream"),
    };
    Ok(dense::gram(&images))
}

/// Variances of all probes, and covariances of all pairs, in standard errors.
fn compare(noise: &[Vec<f64>], covariance: &Matrix) -> [Test; 2] {
    let count = noise.len();
    let errors = |i: usize, j: usize| {
        let d = noise[i].len() as f64;
        let sum: f64 = noise[i].iter().zip(&noise[j]).map(|(a, b)| a * b).sum();
        let variance = covariance[(i, i)] * covariance[(j, j)] + covariance[(i, j)].powi(2);
        (sum - d * covariance[(i, j)]) / (d * variance).sqrt()
    };
    let variances: Vec<f64> = (0..count).map(|i| errors(i, i)).collect();
    let pairs: Vec<f64> = (0..count).flat_map(|i| (0..i).map(move |j| errors(i, j))).collect();
    [
        Test::largest(format!("variance of {count} steps and sums"), &variances),
        Test::largest(format!("covariance of {} pairs of steps and sums", pairs.len()), &pairs),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::families::comb::testing::{noise_of, random_comb_of};
    use crate::mechanism::{Certificate, Claims, NoisingMatrix, Structured};
    use crate::noise::Cipher;
    use crate::schema::Schema;
    use crate::workload::Workload;

    fn mechanism(noise: Noise) -> Mechanism {
        let schema = Schema::epochs(2, 20).unwrap();
        let workload = Workload::training(40, 0.0, None).unwrap();
        let claims = Claims { loss: 1.0, lower_bound: Some(1.0), sensitivity: 1.0 };
        Mechanism { schema, workload, noise, certificate: Some(Certificate::new(Vec::new())), claims }
    }

    fn triangle(below: f64) -> Noise {
        let packed: Vec<f64> =
            (0..40).flat_map(|i| (0..=i).map(move |j| if i == j { 1.0 } else { below })).collect();
        Noise::Dense(NoisingMatrix::from_packed(40, &packed).unwrap())
    }

    #[test]
    fn every_mechanism_passes() {
        let families = families::formulas().map(|family| Noise::Structured(Structured::formula(family, 2)));
        let combs = [20, 7, 40].map(|period| noise_of(&random_comb_of(40, period, 1)));
        for noise in families.into_iter().chain([triangle(-0.02)]).chain(combs) {
            let key = Key::from_seed(8, Cipher::ChaCha20);
            let result = test(&mechanism(noise.clone()), &key, 4096, 1 << 20, &|_| true).unwrap();
            assert!(result.passed(), "{noise:?}: {result:?}");
            assert_eq!(result.samples[1], 40 * 4096);
        }
    }

    /// The test can fail: noise of one mechanism is not that of another, even of a similar one.
    #[test]
    fn another_covariance_is_noticed() {
        let key = Key::from_seed(8, Cipher::ChaCha20);
        let mut rows = rows(&mechanism(triangle(-0.02)), &key, 16_384, 1 << 20).unwrap();
        let (probes, noise) = probe(&mut rows, &|_| true).unwrap();
        let [variances, pairs] = compare(&noise, &covariance(&mechanism(triangle(-0.015)), &probes).unwrap());
        assert!(pairs.p_value < 1e-9 && variances.p_value < 1e-9, "{variances:?} {pairs:?}");
        // A comb whose mixes are a little larger.
        let comb = random_comb_of(40, 20, 1);
        let mut other = comb.clone();
        other.mix.iter_mut().for_each(|x| *x *= 1.05);
        let mut rows = self::rows(&mechanism(noise_of(&comb)), &key, 16_384, 1 << 20).unwrap();
        let (probes, noise) = probe(&mut rows, &|_| true).unwrap();
        let [variances, _] = compare(&noise, &covariance(&mechanism(noise_of(&other)), &probes).unwrap());
        assert!(variances.p_value < 1e-9, "{variances:?}");
        assert!(test(&mechanism(triangle(0.0)), &key, 1000, 0, &|_| true).is_err());
        let stopped = test(&mechanism(triangle(0.0)), &key, 1024, 0, &|row| row < 3);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
