//! A family that only these tests have: all that it takes is this file and one line of the table.

use super::*;
use crate::linalg::dense::{self, Matrix};
use crate::make::make;
use crate::mechanism::factorization::{Cost, Factorization};
use crate::mechanism::family::{Designed, Parameters, Row, Run, Stamp};
use crate::mechanism::stamp::Shared;
use crate::mechanism::stream::{Access, Draw, Kernel, Stream, TILE, scaled};
use crate::mechanism::{Noise, Structured};
use crate::noise::{Cipher, Key, Part, Rows, Stddev};
use crate::plan::{CompareParams, compare};
use crate::schema::Schema;
use crate::workload::Workload;
use crate::{file, verify};
use std::ops::Range;
use std::sync::Arc;

/// C = ½·I in every stamp; the ½ is a parameter.
pub const HALVES: Family = Family::of(&Halves);

struct Halves;

impl Row for Halves {
    fn name(&self) -> &'static str {
        "halves"
    }

    fn about(&self) -> &'static str {
        "Half of the identity, for tests"
    }

    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        let parameters = Parameters::from_iter([("weight", vec![0.5])]);
        Ok(Designed::Noise(Noise::Structured(Structured::new(HALVES, run.stamps, parameters))))
    }

    fn parameters(
        &self,
        _steps: usize,
        _stamps: usize,
        _length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        Some(vec![("weight", 1)])
    }

    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared> {
        Ok(Arc::new(Scaled { steps: stamp.steps, weight: stamp.parameters.get("weight")[0] }))
    }

    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit> {
        let weight = stamp.parameters.get("weight")[0];
        let scaled = |by: f64| dense::from_fn(stamp.steps, stamp.steps, |i, j| if i == j { by } else { 0.0 });
        Ok(exactly(scaled(weight), scaled(1.0 / weight)))
    }

    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>> {
        let weight = stamp.parameters.get("weight")[0];
        Ok(Arc::new(Doubled { steps: stamp.steps, factor: stddev / weight, weight }))
    }
}

struct Scaled {
    steps: usize,
    weight: f64,
}

impl Factorization for Scaled {
    fn steps(&self) -> usize {
        self.steps
    }

    fn inputs(&self) -> usize {
        self.steps
    }

    fn gram(&self, i: usize, j: usize) -> f64 {
        if i == j { self.weight * self.weight } else { 0.0 }
    }

    fn encode(&self, x: &Matrix) -> Matrix {
        dense::from_fn(x.nrows(), x.ncols(), |i, j| self.weight * x[(i, j)])
    }

    fn noise(&self, z: &Matrix) -> Matrix {
        dense::from_fn(z.nrows(), z.ncols(), |i, j| z[(i, j)] / self.weight)
    }

    fn noise_transpose(&self, u: &Matrix) -> Matrix {
        self.noise(u)
    }

    fn cost(&self) -> Cost {
        Cost {
            stream_memory_rows: 1,
            stream_flops_per_step: 1.0,
            stream_gaussians_per_step: 1.0,
            pregenerate_memory_rows: 1,
            pregenerate_flops_per_step: 1.0,
            coefficient_bytes: 8,
        }
    }
}

/// It keeps a row that counts the steps, so that the tests see whether memory is handled rightly.
struct Doubled {
    steps: usize,
    factor: f64,
    weight: f64,
}

impl Kernel for Doubled {
    fn inputs(&self) -> usize {
        self.steps
    }

    fn row_sum(&self) -> f64 {
        1.0 / self.weight
    }

    fn rows(&self, wanted: Range<usize>, draw: Draw<'_>, out: &mut [f32]) {
        self.replay(wanted, draw, out);
    }

    fn access(&self) -> Access<'_> {
        Access::Stream(self)
    }
}

impl Stream for Doubled {
    fn kept(&self) -> usize {
        1
    }

    fn start(&self, memory: &mut [f64]) {
        memory.fill(7.0);
    }

    fn next_row(&self, step: usize, _: &[f64], memory: &mut [f64], draw: Draw<'_>, out: &mut [f32]) {
        assert!(memory.len() == TILE && memory.iter().all(|seen| *seen == 7.0 + step as f64), "row {step}");
        memory.iter_mut().for_each(|seen| *seen += 1.0);
        let mut z = [0.0; TILE];
        draw(step, &mut z);
        scaled(self.factor, z.iter().map(|z| f64::from(*z)), out);
    }
}

#[test]
fn a_new_family_can_do_everything() {
    let schema = Schema::epochs(3, 5).unwrap();
    let workload = Workload::training(15, 0.9, None).unwrap();
    let run = Run { stamps: 2, ..Run::new(&schema, &workload, &|_| true) };
    assert_eq!(named("halves").unwrap(), HALVES);
    let made = make(HALVES, &run).unwrap();
    // A file.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    file::write(&path, &made, false).unwrap();
    let read = file::read(&path).unwrap();
    assert_eq!(read, made);
    // The checker: C = ½·I has half the sensitivity of I, √3, and a changed parameter changes what is derived.
    let verified = verify::verify(read).unwrap();
    assert!((verified.sensitivity() - 3f64.sqrt() / 2.0).abs() < 1e-9);
    let mut parts = made.clone().into_parts();
    parts.noise =
        Noise::Structured(Structured::new(HALVES, 2, Parameters::from_iter([("weight", vec![0.6])])));
    assert!(verify::verify(parts.into()).is_err());
    // Noise: twice that of the identity, by stream and by table.
    let identity = verify::verify(make(IDENTITY, &run).unwrap()).unwrap();
    let key = Key::from_seed(1, Cipher::ChaCha20);
    let rows = |of: &verify::Verified, sigma: f64| {
        let mut rows = Rows::of(of, &key, Stddev::without_privacy(sigma).unwrap(), 3..700, 1 << 20).unwrap();
        let mut all = vec![0.0; 15 * 697];
        all.chunks_mut(697).for_each(|row| rows.next_into(row).unwrap());
        rows.seek(9).unwrap(); // back into the second stamp, and past its beginning
        let mut again = vec![0.0; 697];
        rows.next_into(&mut again).unwrap();
        assert_eq!(again, all[9 * 697..10 * 697]);
        all
    };
    assert_eq!(rows(&verified, 1.0), rows(&identity, 2.0));
    let prepared = crate::noise::Prepared::of(&verified, Stddev::without_privacy(1.0).unwrap()).unwrap();
    prepared.table(&key, Part { rows: 4..9, coordinates: 0..10 }).unwrap();
    // The comparison of all mechanisms.
    let compared = compare(&schema, &workload, &CompareParams::default(), &|_| true).unwrap();
    let loss = |family| compared.candidates.iter().find(|c| c.family == family).unwrap().loss;
    assert!((loss(HALVES) / loss(IDENTITY) - 1.0).abs() < 1e-9);
}

#[test]
fn independent_noise_has_no_limit_of_steps_under_reshuffled_epochs() {
    let schema = Schema::reshuffled(25, 2_000).unwrap();
    for stamps in [1, 25, 50] {
        let factorization = Structured::formula(IDENTITY, stamps).factorization(50_000).unwrap();
        let found = crate::mechanism::sensitivity_of(&factorization, &schema).unwrap();
        assert!(found.lower <= 5.0 && 5.0 <= found.upper && found.upper < 5.0 + 1e-12, "{found:?}");
    }
}

#[test]
fn names_are_unique_and_lead_back() {
    for family in all() {
        for name in family.aliases().iter().chain([&family.name()]) {
            assert_eq!(named(name).unwrap(), family);
            let same = |other: &Family| other.name() == *name || other.aliases().contains(name);
            assert_eq!(all().filter(same).count(), 1, "{name}");
        }
    }
    let error = named("three").unwrap_err().to_string();
    assert!(error.starts_with("the mechanism must be one of identity, tree-online"), "{error}");
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let with = |parameters: Vec<(&'static str, Vec<f64>)>| {
        let structured = Structured::new(HALVES, 2, Parameters::from_iter(parameters));
        structured.check(10).unwrap_err().to_string()
    };
    assert_eq!(with(vec![]), "the parameter weight must be 1 numbers long, got 0");
    assert_eq!(with(vec![("weight", vec![1.0, 2.0])]), "the parameter weight must be 1 numbers long, got 2");
    assert_eq!(with(vec![("weight", vec![f64::NAN])]), "weight[0] must be finite, got NaN");
    assert!(
        with(vec![("weight", vec![1.0]), ("other", vec![])]).starts_with("the parameter must be one that")
    );
    let optimum = Structured::formula(OPTIMAL, 1).check(10).unwrap_err().to_string();
    assert!(optimum.contains("optimal is no family"), "{optimum}");
}
