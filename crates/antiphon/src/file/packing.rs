//! How many numbers a schema asks for, before any are allocated, and the certificate as one vector of them.

use crate::error::{Error, Result};
use crate::mechanism::{Certificate, NoisingMatrix};
use crate::schema::Schema;

/// Every step must be in a pattern: on a step that nobody takes part in, no noise is too small, and there is no
/// optimum. It also bounds the steps by what the file lists.
pub fn check_coverage(schema: &Schema) -> Result<()> {
    let Schema::Patterns { steps, patterns } = schema else {
        return Ok(());
    };
    let missing = |what: String| Error::argument("the patterns", "a cover of all steps", what);
    let listed: usize = patterns.iter().map(Vec::len).sum();
    if listed < *steps {
        return Err(missing(format!("{listed} participations in {steps} steps")));
    }
    let mut seen = vec![false; *steps];
    patterns.iter().flatten().for_each(|step| seen[*step] = true);
    match seen.iter().position(|seen| !seen) {
        Some(step) => Err(missing(format!("none with step {step}"))),
        None => Ok(()),
    }
}

/// n(n+1)/2.
pub fn triangle(n: usize) -> u128 {
    NoisingMatrix::packed_len(n)
}

/// Σ_π |π|(|π|+1)/2 over the patterns of [`Schema::listed`], without listing them.
pub fn certificate_len(schema: &Schema) -> Result<u128> {
    match schema {
        Schema::FixedOrder { steps, steps_per_epoch: b, max_participations: k } => {
            // The starts r < n − (k−1)b have room for k participations. The others, if any, are r < b,
            // and since (k−1)b < n they have room for k − 1.
            let long = steps - (k - 1) * b;
            let short = b.saturating_sub(long);
            Ok(long as u128 * triangle(*k) + short as u128 * triangle(k - 1))
        }
        Schema::Patterns { patterns, .. } => Ok(patterns.iter().map(|p| triangle(p.len())).sum()),
        Schema::Reshuffled { epochs: 1, steps_per_epoch: n } => Ok(*n as u128),
        Schema::Reshuffled { epochs: n, steps_per_epoch: 1 } => Ok(triangle(*n)),
        Schema::Reshuffled { epochs, .. } => Ok(schema.steps() as u128 + triangle(*epochs)),
        Schema::MinSeparation { .. } => {
            let reason = format!(
                "{} has patterns that cannot be listed, so it has no certificate of its own",
                schema.name()
            );
            Err(Error::Unsupported(reason))
        }
    }
}

/// The lower triangles of all L_π, row by row.
pub fn packed_certificate(certificate: &Certificate) -> Vec<f64> {
    let mut packed = Vec::new();
    for factor in &certificate.factors {
        let k = factor.len().isqrt();
        (0..k).for_each(|i| packed.extend(&factor[i * k..i * k + i + 1]));
    }
    packed
}

/// The inverse of [`packed_certificate`], for as many numbers as [`certificate_len`] says.
pub fn unpacked_certificate(schema: &Schema, packed: &[f64]) -> Certificate {
    let mut rest = packed;
    let sizes = Certificate::sizes(schema).unwrap_or_default();
    let mut unpack = |k: usize| {
        let mut factor = vec![0.0; k * k];
        for i in 0..k {
            let (row, after) = rest.split_at(i + 1);
            factor[i * k..i * k + i + 1].copy_from_slice(row);
            rest = after;
        }
        factor
    };
    Certificate::new(sizes.into_iter().map(&mut unpack).collect())
}
