//! What the figures of a small mechanism are, by slow and plain code that shares nothing with `verify` but the definitions of formulas.
//!
//! Each figure is one that the truth cannot be better than: a sensitivity that contributions reach, and a loss with that noise.

use antiphon::linalg::dense::{self, Matrix};
use antiphon::mechanism::{Certificate, Mechanism, Noise};
use antiphon::schema::Schema;
use antiphon::verify::definitions;

/// Rows of numbers.
type Rows = Vec<Vec<f64>>;

/// A sensitivity that some contributions reach, and ‖A·W‖_F; `None` where they are no numbers.
pub struct Figures {
    pub sensitivity: f64,
    pub error: f64,
}

/// Refuses claims that are not true.
pub fn check(mechanism: &Mechanism) -> Option<Figures> {
    let (schema, claims) = (mechanism.schema(), mechanism.claims());
    let figures =
        figures(mechanism).filter(|found| found.sensitivity.is_finite() && found.error.is_finite())?;
    let Figures { sensitivity, error } = figures;
    assert!(claims.sensitivity >= sensitivity * (1.0 - 1e-9), "sensitivity {sensitivity:?} of {mechanism:?}");
    let loss = (claims.sensitivity * error).powi(2);
    assert!(claims.loss >= loss * (1.0 - 1e-5), "loss {loss:?} of {mechanism:?}");
    let a = rows(&mechanism.workload().matrix());
    if let (Some(certificate), Some(claimed)) = (mechanism.certificate(), claims.lower_bound) {
        let proved = proved(certificate, schema, &a);
        assert!(claimed <= proved * (1.0 + 1e-5), "lower bound {proved:?} of {mechanism:?}");
        // Independent noise is a mechanism too: its squared sensitivity is the size of the largest pattern.
        let largest = patterns(schema).iter().map(Vec::len).max().unwrap_or(0);
        let independent = largest as f64 * norm(&a).powi(2);
        assert!(
            claimed <= independent * (1.0 + 1e-6),
            "independent noise has {independent:?}: {mechanism:?}"
        );
    } else {
        assert_eq!((mechanism.certificate(), claims.lower_bound), (None, None));
    }
    Some(figures)
}

fn figures(mechanism: &Mechanism) -> Option<Figures> {
    let (schema, n) = (mechanism.schema(), mechanism.steps());
    let a = rows(&mechanism.workload().matrix());
    match mechanism.noise() {
        Noise::Dense(noising) => Some(of_noising(&rows(noising.matrix()), schema, &a)),
        Noise::Structured(structured) => {
            let found = definitions::explicit(structured, n).ok()?;
            let w = rows(&found.noising);
            let triangular =
                w.iter().enumerate().all(|(i, row)| row.len() == n && row[i + 1..].iter().all(|x| *x == 0.0));
            if triangular && (0..n).all(|i| w[i][i] != 0.0) {
                return Some(of_noising(&w, schema, &a));
            }
            let sensitivity = of_encoder(&rows(&found.encoder), schema) - n as f64 * found.column_error;
            Some(Figures { sensitivity, error: norm(&product(&a, &w)) })
        }
        Noise::Implicit { rule, squared_sensitivity } => {
            let m = product(&a, &factor(mechanism.certificate()?, schema));
            // (V⁻¹ + τU)⁻¹ = Aᵀ(I + τ·A·U·Aᵀ)⁻¹A, and U = LLᵀ.
            let mut encoder = Rows::new();
            for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
                let k = square(n, |i, j| f64::from(i == j) + node * dot(&m[i], &m[j]));
                let part = product(&inverse(&cholesky(&k)?), &a);
                encoder.extend(
                    part.into_iter()
                        .map(|row| row.into_iter().map(|x| x * weight.sqrt()).collect::<Vec<f64>>()),
                );
            }
            let scale = squared_sensitivity.sqrt();
            let x = square(n, |i, j| encoder.iter().map(|row| row[i] * row[j]).sum());
            let transposed = square(n, |i, j| a[j][i]);
            let error = norm(&product(&inverse(&cholesky(&x)?), &transposed)) * scale;
            Some(Figures { sensitivity: of_encoder(&encoder, schema) / scale * (1.0 - 1e-8), error })
        }
    }
}

/// Of C = W⁻¹: with C̃W = I + E for the computed C̃, sens(C) ≥ sens(C̃)/(1 + ‖E‖).
fn of_noising(w: &Rows, schema: &Schema, a: &Rows) -> Figures {
    let (n, c) = (w.len(), inverse(w));
    let absolute = |m: &Rows| -> Rows { m.iter().map(|row| row.iter().map(|x| x.abs()).collect()).collect() };
    let e = product(&c, w);
    let e = norm(&square(n, |i, j| e[i][j] - f64::from(i == j)))
        + 4.0 * n as f64 * f64::EPSILON * norm(&product(&absolute(&c), &absolute(w)));
    Figures { sensitivity: of_encoder(&c, schema) / (1.0 + e), error: norm(&product(a, w)) }
}

/// The largest ‖C·G‖_F that was found, over all patterns.
fn of_encoder(c: &Rows, schema: &Schema) -> f64 {
    let largest = c.iter().flatten().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let column = |j: usize| -> Vec<f64> { c.iter().map(|row| row[j] / largest).collect() };
    let columns: Rows = (0..schema.steps()).map(column).collect();
    let squared = |pattern: &Vec<usize>| {
        let x = square(pattern.len(), |i, j| dot(&columns[pattern[i]], &columns[pattern[j]]));
        by_signs(&x).max(by_vectors(&x))
    };
    let found = patterns(schema).iter().map(squared).fold(0.0, f64::max);
    found.sqrt() * largest * (1.0 - 1e-12)
}

/// max sᵀXs over all signs.
fn by_signs(x: &Rows) -> f64 {
    let k = x.len();
    let value = |code: u32| -> f64 {
        let sign = |i: usize| if code >> i & 1 == 1 { -1.0 } else { 1.0 };
        (0..k * k).map(|p| sign(p / k) * sign(p % k) * x[p / k][p % k]).sum()
    };
    (0..1u32 << (k - 1).min(6)).map(value).fold(0.0, f64::max)
}

/// Σ X_ij⟨v_i, v_j⟩ for unit vectors, each in turn turned to where it does most.
fn by_vectors(x: &Rows) -> f64 {
    let k = x.len();
    let mut v = square(k, |i, j| ((i * i + 3 * j) as f64 * 0.7 + 1.0).sin());
    let unit = |v: &[f64]| -> Vec<f64> {
        let length = dot(v, v).sqrt();
        v.iter().map(|x| if length > 0.0 { x / length } else { f64::from(v.len() == 1) }).collect()
    };
    v.iter_mut().for_each(|row| *row = unit(row));
    for _ in 0..60 {
        for i in 0..k {
            let pull = |axis: usize| (0..k).filter(|j| *j != i).map(|j| x[i][j] * v[j][axis]).sum();
            let pull: Vec<f64> = (0..k).map(pull).collect();
            if dot(&pull, &pull) > 1e-280 {
                v[i] = unit(&pull);
            }
        }
    }
    (0..k * k).map(|p| x[p / k][p % k] * dot(&v[p / k], &v[p % k])).sum::<f64>() * (1.0 - 1e-12)
}

/// Patterns that contain all others; some may be in there without being largest.
pub fn patterns(schema: &Schema) -> Vec<Vec<usize>> {
    let n = schema.steps();
    match schema {
        Schema::FixedOrder { steps_per_epoch: b, max_participations: k, .. } => {
            (0..n).map(|first| (first..n).step_by(*b).take(*k).collect()).collect()
        }
        Schema::Patterns { patterns, .. } => patterns.clone(),
        Schema::MinSeparation { min_separation: b, max_participations: k, .. } => {
            let mut all: Vec<Vec<usize>> = (0..n).map(|i| vec![i]).collect();
            let mut i = 0;
            while i < all.len() {
                let last = all[i][all[i].len() - 1];
                let longer =
                    (last + b..n).filter(|_| all[i].len() < *k).map(|next| [&all[i][..], &[next]].concat());
                let longer: Vec<Vec<usize>> = longer.collect();
                all.extend(longer);
                i += 1;
            }
            // Only those to which nothing can be added at the end: their beginnings reach no more.
            all.retain(|pattern| pattern.len() == *k || pattern[pattern.len() - 1] + b >= n);
            all
        }
        Schema::Reshuffled { epochs, steps_per_epoch: b } => {
            let more = |all: Vec<Vec<usize>>, epoch: usize| -> Vec<Vec<usize>> {
                let one =
                    |pattern: Vec<usize>| (0..*b).map(move |i| [&pattern[..], &[epoch * b + i]].concat());
                all.into_iter().flat_map(one).collect()
            };
            (0..*epochs).fold(vec![Vec::new()], more)
        }
    }
}

/// (‖A·L‖_*)²/Σ_π max_i ‖row i of L_π‖².
fn proved(certificate: &Certificate, schema: &Schema, a: &Rows) -> f64 {
    let allowed = patterns(schema);
    for pattern in patterns(certificate.schema(schema)) {
        let inside = |whole: &Vec<usize>| pattern.iter().all(|step| whole.contains(step));
        assert!(allowed.iter().any(inside), "{pattern:?} is not in {schema:?}");
    }
    if let (Schema::Reshuffled { epochs, steps_per_epoch }, false) = (schema, schema.is_listed()) {
        return proved_by_product(certificate, *epochs, *steps_per_epoch, a);
    }
    let m = product(a, &factor(certificate, schema));
    let largest = m.iter().flatten().fold(f64::MIN_POSITIVE, |largest: f64, x| largest.max(x.abs()));
    let scaled = dense::from_fn(m.len(), m[0].len(), |i, j| m[i][j] / largest);
    let nuclear: f64 = dense::singular_values(&scaled).map_or(0.0, |values| values.iter().sum());
    let row = |row: &[f64]| row.iter().map(|x| (x / largest).powi(2)).sum::<f64>();
    let of_factor = |factor: &Vec<f64>| factor.chunks(factor.len().isqrt()).map(row).fold(0.0, f64::max);
    nuclear * nuclear / certificate.factors.iter().map(of_factor).sum::<f64>()
}

/// (tr (A·U·Aᵀ)^½)² for the U of docs/FORMAT.md, written out: its roots are those of eigenvalues.
fn proved_by_product(certificate: &Certificate, epochs: usize, b: usize, a: &Rows) -> f64 {
    let n = epochs * b;
    let (weights, vectors) = certificate.factors.split_at(n);
    let heaviest = (0..epochs)
        .map(|e| weights[e * b..(e + 1) * b].iter().map(|u| u[0]).sum::<f64>())
        .fold(0.0, f64::max);
    let g: Vec<&[f64]> = vectors[0].chunks(epochs).collect();
    let longest = g.iter().map(|g| dot(g, g)).fold(1.0, f64::max);
    let u = |i: usize| if heaviest > 0.0 { weights[i][0] / heaviest } else { 0.0 };
    let entry = |i: usize, j: usize| match (i == j, i / b == j / b) {
        (true, _) => u(i),
        (false, true) => 0.0,
        (false, false) => u(i) * u(j) * dot(g[i / b], g[j / b]) / longest,
    };
    let transposed = square(n, |i, j| a[j][i]);
    let m = product(&product(a, &square(n, entry)), &transposed);
    let largest = m.iter().flatten().fold(f64::MIN_POSITIVE, |largest: f64, x| largest.max(x.abs()));
    let scaled = dense::from_fn(n, n, |i, j| 0.5 * (m[i][j] + m[j][i]) / largest);
    let values = dense::symmetric_eigen(&scaled).map_or(Vec::new(), |(values, _)| values);
    values.iter().map(|value| value.max(0.0).sqrt()).sum::<f64>().powi(2) * largest
}

/// All L_π side by side.
fn factor(certificate: &Certificate, schema: &Schema) -> Rows {
    let listed = certificate.schema(schema).listed().unwrap();
    let mut l = vec![Vec::new(); schema.steps()];
    for (pattern, factor) in listed.iter().zip(&certificate.factors) {
        let k = pattern.len();
        for (step, row) in l.iter_mut().enumerate() {
            match pattern.iter().position(|known| *known == step) {
                Some(i) => row.extend(&factor[i * k..(i + 1) * k]),
                None => row.extend(vec![0.0; k]),
            }
        }
    }
    l
}

fn rows(m: &Matrix) -> Rows {
    (0..m.nrows()).map(|i| (0..m.ncols()).map(|j| m[(i, j)]).collect()).collect()
}

fn square(n: usize, entry: impl Fn(usize, usize) -> f64) -> Rows {
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn product(a: &Rows, b: &Rows) -> Rows {
    let column = |j: usize| move |row: &Vec<f64>| row.iter().zip(b).map(|(x, row)| x * row[j]).sum::<f64>();
    let columns = b.first().map_or(0, Vec::len);
    a.iter().map(|row| (0..columns).map(|j| column(j)(row)).collect()).collect()
}

/// The Frobenius norm, without overflow.
fn norm(m: &Rows) -> f64 {
    let largest = m.iter().flatten().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    if largest == 0.0 {
        0.0
    } else {
        m.iter().flatten().map(|x| (x / largest).powi(2)).sum::<f64>().sqrt() * largest
    }
}

/// Of a lower triangular matrix.
fn inverse(l: &Rows) -> Rows {
    let n = l.len();
    let mut c = square(n, |_, _| 0.0);
    for j in 0..n {
        for i in j..n {
            let sum: f64 = (j..i).map(|k| l[i][k] * c[k][j]).sum();
            c[i][j] = (f64::from(i == j) - sum) / l[i][i];
        }
    }
    c
}

fn cholesky(x: &Rows) -> Option<Rows> {
    let n = x.len();
    let mut l = square(n, |_, _| 0.0);
    for i in 0..n {
        for j in 0..=i {
            let rest = x[i][j] - dot(&l[i][..j], &l[j][..j]);
            l[i][j] = if i == j { rest.sqrt() } else { rest / l[j][j] };
        }
        if !(l[i][i] > 0.0 && l[i][i].is_finite()) {
            return None;
        }
    }
    Some(l)
}
