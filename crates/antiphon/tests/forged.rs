//! Certificates that somebody made up: entries over forty decades, so that a careless sum is nothing but rounding errors. What is derived from them must
//! still be a bound, and no file with a false bound may pass.

use antiphon::certificate::lower_bound_in_linear_time;
use antiphon::families;
use antiphon::linalg::Matrix;
use antiphon::linalg::dense::singular_values;
use antiphon::linalg::quadrature::Quadrature;
use antiphon::mechanism::{Certificate, Claims, Noise, Parts, Structured};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use antiphon::{file, verify};
use std::path::Path;

/// splitmix64, as in fixtures/forged.py.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A power of two over forty decades.
    fn scale(&mut self) -> f64 {
        2f64.powi(self.below(133) as i32 - 66)
    }

    fn wild(&mut self) -> f64 {
        let sign = if self.below(2) == 0 { 1.0 } else { -1.0 };
        let mantissa = 1.0 + self.unit();
        sign * mantissa * self.scale()
    }
}

/// Factors for residues of n steps. Mode 0: all entries wild; 1: the identity but for eighteen places; 2: rows of wild sizes.
fn factors(words: &mut Words, n: usize, b: usize, mode: usize) -> Certificate {
    let size = |r: usize| (n - r).div_ceil(b);
    let mut factors = Vec::new();
    for r in 0..b {
        let k = size(r);
        let mut factor = vec![0.0; k * k];
        for i in 0..k {
            let scale = words.scale();
            for j in 0..=i {
                factor[i * k + j] = match mode {
                    0 if words.below(8) == 0 => 0.0,
                    0 => words.wild(),
                    1 => f64::from(i == j),
                    _ => scale * (2.0 * words.unit() - 1.0),
                };
            }
        }
        factors.push(factor);
    }
    if mode == 1 {
        for _ in 0..18 {
            let r = words.below(b);
            let i = words.below(size(r));
            let j = words.below(i + 1);
            factors[r][i * size(r) + j] = words.wild();
        }
    }
    Certificate::new(factors)
}

/// Case by number, as in fixtures/forged.py.
fn case(number: u64) -> (Schema, Workload, Certificate) {
    let mut words = Words(number);
    let k = 1 + words.below(10);
    let b = 6 + words.below(60 / k - 5);
    let n = k * b - if k > 1 { words.below(b) } else { 0 };
    let momentum = [0.0, 0.5, 0.9, 0.95][words.below(4)];
    let falling = words.below(2) == 1;
    let rates = falling.then(|| (0..n).map(|i| 1.0 / (1.0 + i as f64)).collect());
    let mode = words.below(3);
    let certificate = factors(&mut words, n, b, mode);
    (Schema::fixed_order(n, b).unwrap(), Workload::training(n, momentum, rates).unwrap(), certificate)
}

/// Checks a case; whether its bound is good for something.
fn proves_no_more_than_it_does(number: u64, exact: f64, path: &Path) -> bool {
    let (schema, workload, certificate) = case(number);
    // Where no rule can be made there is no bound, which is none too many.
    let derived = lower_bound_in_linear_time(&schema, &workload, &certificate);
    let derived = derived.map_or(0.0, |bound| bound.expect("fixed order, six steps per epoch").value);
    assert!(derived <= exact, "case {number}: derived {derived:e}, exact {exact:e}");
    // A file of this certificate, with a bound that is false by a thousandth, and right checksums.
    let lower_bound = (exact * 1.001).max(f64::MIN_POSITIVE);
    let rule = Quadrature::new(1e-9, 1e9, 30).unwrap();
    let forged = Parts {
        schema,
        workload,
        noise: Noise::Implicit { rule, squared_sensitivity: 1e80 },
        certificate: Some(certificate),
        claims: Claims { loss: lower_bound.max(1e200), lower_bound: Some(lower_bound), sensitivity: 1e30 },
    };
    file::write(path, &forged.into(), true).unwrap();
    let report = verify::mechanism(&file::read(path).unwrap());
    assert!(report.is_err() || !report.unwrap().ok(), "case {number} is verified");
    derived > 0.9 * exact
}

#[test]
fn two_thousand_forged_files_prove_no_more_than_they_do() {
    let exact: Vec<f64> =
        include_str!("fixtures/forged.txt").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(exact.len(), 2000);
    let folder = tempfile::tempdir().unwrap();
    let half = |start: usize| {
        let path = folder.path().join(format!("{start}.safetensors"));
        let cases = (start..2000).step_by(2);
        cases.filter(|i| proves_no_more_than_it_does(*i as u64 + 1, exact[*i], &path)).count()
    };
    let useful = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(0) + other.join().unwrap()
    });
    // The test would be empty if all bounds were zero.
    assert!(useful > 1000, "{useful}");
}

#[test]
fn losses_of_nearly_singular_certificates_are_not_understated() {
    // L_r close to rank one: lᵀXl cancels. The true squared error is at least a/sup h, a from singular values.
    for number in 0..60 {
        let mut words = Words(1000 + number);
        let (n, b, size) = (9, 3, 10f64.powi(number as i32 % 12));
        let mut l = Matrix::zeros(n, n);
        let factors = (0..b)
            .map(|r| {
                let mut factor = vec![0.0; 9];
                for i in 0..3 {
                    let row = size * (2.0 * words.unit() - 1.0);
                    for j in 0..=i {
                        factor[i * 3 + j] = row * (j + 1) as f64 + 2.0 * words.unit() - 1.0;
                        l[(r + i * b, r + j * b)] = factor[i * 3 + j];
                    }
                }
                factor
            })
            .collect();
        let schema = Schema::fixed_order(n, b).unwrap();
        let workload = Workload::prefix_sum(n);
        let a: f64 = singular_values(&workload.apply(&l)).unwrap().iter().sum();
        let rule = Quadrature::new(1e-22 / size, 1e4, 40).unwrap();
        let least = a / rule.supremum(1e-9);
        let claims = Claims { loss: 1e100, lower_bound: Some(1e-9), sensitivity: 1e20 };
        let noise = Noise::Implicit { rule, squared_sensitivity: 1.0 };
        let certificate = Certificate::new(factors);
        let report = verify::mechanism(
            &Parts { schema, workload, noise, certificate: Some(certificate), claims }.into(),
        );
        if let Ok(report) = report {
            assert!(report.loss >= 1e40 * least * (1.0 - 1e-9), "case {number}: {:e} {least:e}", report.loss);
        }
    }
}

#[test]
fn forged_certificates_of_long_runs_prove_less_than_the_optimum() {
    let (n, b) = (4002, 1334);
    let schema = Schema::fixed_order(n, b).unwrap();
    let workload = Workload::prefix_sum(n);
    let params = Params { implicit: true, ..Params::default() };
    let optimum = optimize(&schema, &workload, &params, &|_| true).unwrap().mechanism;
    let best = optimum.claims().loss;
    assert!(verify::mechanism(&optimum).unwrap().ok());
    let structured = Structured::formula(families::IDENTITY, 1);
    for number in 0..50 {
        let mut words = Words(number);
        let certificate = factors(&mut words, n, b, number as usize % 3);
        // What a forger would like to be believed of independent noise.
        let claims = Claims { loss: 1.5 * best, lower_bound: Some(1.4 * best), sensitivity: 2.0 };
        let noise = Noise::Structured(structured.clone());
        let forged = Parts {
            schema: schema.clone(),
            workload: workload.clone(),
            noise,
            certificate: Some(certificate),
            claims,
        };
        let report = verify::mechanism(&forged.into()).unwrap();
        let bound = report.lower_bound.unwrap();
        assert!(bound <= best, "case {number}: {bound:e} > {best:e}");
        let check = report.checks.iter().find(|check| check.name == "lower_bound").unwrap();
        assert!(!check.passed, "case {number}: {}", check.detail);
    }
}
