//! The mechanism file: one safetensors file with the mechanism, its certificate and its claims.
//!
//! `docs/FORMAT.md` is the specification. The header is written and read here rather than by the safetensors crate:
//! the same mechanism gives the same bytes every time, and a key that is unknown or occurs twice is refused.
//!
//! Reading checks form, hash and checksum. It protects against damage, lying sizes and numbers that are none; it
//! takes memory in proportion to the file, whatever the file says. It does not protect against a forger, who can
//! compute a checksum as well: reading believes no figure and disputes none. Only `verify` recomputes the loss, the
//! lower bound and the sensitivity.

mod header;
mod packing;

pub use header::Malformed;

use crate::error::{Error, Result};
use crate::families;
use crate::linalg::dense;
use crate::linalg::quadrature::Quadrature;
use crate::mechanism::{
    BoundClass, Certificate, Claims, Mechanism, Noise, NoisingMatrix, Parameters, Structured,
};
use crate::schema::Schema;
use crate::workload::Workload;
use header::{Header, MAX_HEADER, Metadata, PARAMETER, StructuredEntry, Tensors, WorkloadEntry};
use header::{blocks, checksum, hexadecimal, json, number, refuse, shown, to_json};
use packing::{certificate_len, check_coverage, packed_certificate, triangle, unpacked_certificate};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// Largest file that is read, in bytes: a dense mechanism of 65 000 steps.
const MAX_FILE: u64 = 16 << 30;

/// The numbers of all tensors, in the order in which they are stored.
type Contents = BTreeMap<String, Vec<f64>>;

/// The SHA-256 that names a mechanism, in hexadecimal: of the noising matrix where there is one
/// ([`NoisingMatrix::id`]), otherwise of all that the description depends on.
pub fn id(mechanism: &Mechanism) -> String {
    match &mechanism.noise {
        Noise::Dense(noising_matrix) => noising_matrix.id(),
        Noise::Implicit { rule, squared_sensitivity } => {
            let mut hash = Sha256::new();
            hash.update(to_json(&mechanism.schema));
            let (entry, rates, packed_workload) = describe(&mechanism.workload);
            hash.update(to_json(&entry));
            let certificate = mechanism.certificate.as_ref().map(packed_certificate);
            let tensors = [certificate.as_ref(), rates.as_ref(), packed_workload.as_ref()];
            for numbers in tensors.into_iter().flatten().chain([&rule.nodes, &rule.weights]) {
                blocks(numbers).for_each(|block| hash.update(block));
            }
            hash.update(squared_sensitivity.to_le_bytes());
            hexadecimal(hash)
        }
        Noise::Structured(structured) => {
            let mut hash = Sha256::new();
            let (entry, rates, packed_workload) = describe(&mechanism.workload);
            for text in [to_json(&mechanism.schema), to_json(&entry), to_json(&described(structured))] {
                hash.update(text);
            }
            for numbers in [rates, packed_workload].iter().flatten() {
                blocks(numbers).for_each(|block| hash.update(block));
            }
            for (name, numbers) in structured.parameters.iter() {
                hash.update(name);
                blocks(numbers).for_each(|block| hash.update(block));
            }
            hexadecimal(hash)
        }
    }
}

/// Writes a mechanism to a file, which appears whole or not at all. An existing one is only replaced if `replace`
/// says so.
pub fn write(path: &Path, mechanism: &Mechanism, replace: bool) -> Result<()> {
    let (header, tensors) = lay_out(mechanism)?;
    crate::atomic::write(path, replace, |file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&header)?;
        for numbers in tensors.values() {
            blocks(numbers).try_for_each(|block| out.write_all(&block))?;
        }
        out.flush()
    })
}

/// The bytes of the file that [`write`](fn@write) writes.
pub fn to_bytes(mechanism: &Mechanism) -> Result<Vec<u8>> {
    let (mut bytes, tensors) = lay_out(mechanism)?;
    tensors.values().flat_map(|numbers| blocks(numbers)).for_each(|block| bytes.extend(block));
    Ok(bytes)
}

/// Reads a mechanism file and checks its form. See the [module](self) for what that means and what it does not.
pub fn read(path: &Path) -> Result<Mechanism> {
    let failed = |source: io::Error| Error::Io { path: path.to_owned(), source };
    let malformed = |error: Malformed| Error::File { path: path.to_owned(), reason: error.0 };
    let mut file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(malformed(Malformed("not a regular file".into())));
    }
    let size = about.len();
    if size > MAX_FILE {
        let reason = format!("the file has {size} bytes, the largest that is read has {MAX_FILE}");
        return Err(malformed(Malformed(reason)));
    }
    // The first eight bytes tell most other files apart before anything large is allocated.
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(8).read_to_end(&mut bytes).map_err(failed)?;
    header::length(&bytes, size).map_err(malformed)?;
    let rest = size.saturating_sub(8); // the file may have grown since its size was asked for
    let capacity = usize::try_from(rest).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(capacity)
        .map_err(|_| malformed(Malformed(format!("no memory for its {size} bytes"))))?;
    file.take(rest).read_to_end(&mut bytes).map_err(failed)?;
    from_bytes(&bytes).map_err(malformed)
}

/// Reads a mechanism from the bytes of a file. Never panics, and takes memory in proportion to the bytes.
pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Mechanism, Malformed> {
    let length = header::length(bytes, bytes.len() as u64)?;
    let (text, data) = bytes[8..].split_at(length);
    let Header { metadata, tensors } = Header::parse(text)?;
    let mut tensors = Tensors::new(tensors, data)?;

    let schema: Schema = json("schema", &metadata.schema)?;
    let schema = schema.validate()?;
    check_coverage(&schema)?;
    let steps = schema.steps();

    let (certificate, lower_bound) = bound(&metadata, &schema, &mut tensors)?;
    let workload = match json("workload", &metadata.workload)? {
        WorkloadEntry::Training { momentum, learning_rates } => {
            let rates = match learning_rates {
                true => Some(tensors.take("learning_rates", Some(steps as u128))?),
                false => None,
            };
            let bad = || Error::argument("momentum", "a decimal number", shown(&momentum));
            Workload::training(steps, momentum.parse().map_err(|_| bad())?, rates)?
        }
        WorkloadEntry::Dense {} => {
            let packed = tensors.take("workload", Some(triangle(steps)))?;
            let entry = |i: usize, j: usize| {
                if j <= i { packed[i * (i + 1) / 2 + j] } else { 0.0 }
            };
            Workload::dense(dense::from_fn(steps, steps, entry))?
        }
    };
    let noise = match (metadata.kind.as_str(), &metadata.squared_sensitivity, &metadata.structured) {
        ("dense", None, None) => {
            let packed = tensors.take("noising_matrix", Some(triangle(steps)))?;
            Noise::Dense(NoisingMatrix::from_packed(steps, &packed)?)
        }
        ("implicit", Some(squared_sensitivity), None) => {
            let nodes = tensors.take("nodes", None)?;
            let weights = tensors.take("weights", Some(nodes.len() as u128))?;
            let squared_sensitivity = number("squared_sensitivity", squared_sensitivity)?;
            Noise::Implicit { rule: Quadrature { nodes, weights }, squared_sensitivity }
        }
        ("structured", None, Some(structured)) => {
            let former = metadata.format_version == header::FORMER_VERSION;
            Noise::Structured(self::structured(json("structured", structured)?, steps, former, &mut tensors)?)
        }
        ("implicit", None, _) => return refuse("squared_sensitivity is missing"),
        ("structured", _, None) => return refuse("structured is missing"),
        (kind @ ("dense" | "structured"), Some(_), _) => {
            return refuse(format!("a {kind} file has no squared_sensitivity"));
        }
        (kind @ ("dense" | "implicit"), _, Some(_)) => {
            return refuse(format!("a file of kind {kind} has no entry named structured"));
        }
        (kind, ..) => {
            return Err(Error::argument("kind", "dense, implicit or structured", shown(kind)).into());
        }
    };
    if let Some(name) = tensors.infos.keys().next() {
        return refuse(format!(
            "the tensor {name} does not belong into a file of kind {} with this workload",
            metadata.kind
        ));
    }
    let claims = Claims {
        loss: number("loss", &metadata.loss)?,
        lower_bound,
        sensitivity: number("sensitivity", &metadata.sensitivity)?,
    };
    let mechanism = Mechanism { schema, workload, noise, certificate, claims };
    check(&mechanism)?;
    if id(&mechanism) != metadata.id {
        return refuse("the hash of the stored mechanism is not the id in the file: the file was changed");
    }
    if checksum(bytes, length, &metadata.checksum).as_ref() != Some(&metadata.checksum) {
        return refuse("the checksum in the file is wrong: the file was damaged or changed");
    }
    Ok(mechanism)
}

/// The certificate and the bound that is claimed, for the class of mechanisms that the file names.
fn bound(
    metadata: &Metadata,
    schema: &Schema,
    tensors: &mut Tensors<'_>,
) -> header::Reading<(Option<Certificate>, Option<f64>)> {
    let former = metadata.format_version == header::FORMER_VERSION;
    let class = match (former, metadata.bound.as_deref()) {
        (true, Some(_)) => return refuse("a file of version 1 has no entry named bound"),
        (false, None) => return refuse("bound is missing"),
        (true, None) => BoundClass::All.name(),
        (false, Some(class)) => class,
    };
    let patterns: Option<Schema> = match &metadata.bound_schema {
        Some(_) if former => return refuse("a file of version 1 has no entry named bound_schema"),
        Some(text) => match json::<Schema>("bound_schema", text)? {
            order @ Schema::FixedOrder { .. } => Some(order.validate()?),
            _ => return refuse("bound_schema must be a fixed order"),
        },
        None => None,
    };
    match (class, &metadata.lower_bound) {
        ("all", Some(lower_bound)) => {
            let listed = patterns.as_ref().unwrap_or(schema);
            check_coverage(listed)?;
            let numbers = tensors.take("certificate", Some(certificate_len(listed)?))?;
            let certificate =
                Certificate { patterns: patterns.clone(), ..unpacked_certificate(listed, &numbers) };
            Ok((Some(certificate), Some(number("lower_bound", lower_bound)?)))
        }
        ("none", None) if patterns.is_none() => Ok((None, None)),
        ("none", _) => refuse("a file whose bound is none has neither lower_bound nor bound_schema"),
        ("all", None) => refuse("lower_bound is missing"),
        ("family", _) => refuse("no family of this version has a lower bound of its own"),
        (class, _) => Err(Error::argument("bound", "all, family or none", shown(class)).into()),
    }
}

/// A mechanism that is described by its family, with the parameters that the family has.
fn structured(
    entry: StructuredEntry,
    steps: usize,
    former: bool,
    tensors: &mut Tensors<'_>,
) -> header::Reading<Structured> {
    let family = families::all().find(|family| family.name() == entry.family).ok_or_else(|| {
        Error::argument(
            "the family",
            format!("one of {}", families::names(families::all())),
            shown(&entry.family),
        )
    })?;
    crate::mechanism::stamp::check(steps, entry.stamps)?;
    let length = |name: &str| tensors.length(&format!("{PARAMETER}{name}"));
    let Some(expected) =
        family.parameters(steps, entry.stamps, &length).filter(|all| !former || all.is_empty())
    else {
        return refuse(format!(
            "{family} is no family whose mechanisms are described by a name in this version"
        ));
    };
    let take = |(name, length): (&'static str, u128)| {
        tensors.take(&format!("{PARAMETER}{name}"), Some(length)).map(|numbers| (name, numbers))
    };
    let parameters = expected.into_iter().map(take).collect::<header::Reading<Parameters>>()?;
    Ok(Structured::new(family, entry.stamps, parameters))
}

fn described(structured: &Structured) -> StructuredEntry {
    StructuredEntry { family: structured.family.name().into(), stamps: structured.stamps }
}

/// What holds for every mechanism in a file, beyond what its parts check when they are built.
fn check(mechanism: &Mechanism) -> Result<()> {
    let Mechanism { schema, workload, noise, certificate, claims } = mechanism;
    let steps = schema.steps();
    if workload.steps() != steps {
        return Err(Error::argument("the workload's steps", steps.to_string(), workload.steps()));
    }
    match noise {
        Noise::Dense(w) if w.steps() != steps => {
            return Err(Error::argument("the noising matrix's steps", steps.to_string(), w.steps()));
        }
        Noise::Dense(_) => {}
        Noise::Implicit { rule, squared_sensitivity } => {
            rule.check()?;
            positive("squared_sensitivity", *squared_sensitivity)?;
            if certificate.as_ref().is_none_or(|certificate| certificate.patterns.is_some()) {
                let allowed = "there, for the patterns of the schema: an implicit mechanism is made of it";
                return Err(Error::argument("the certificate", allowed, "nothing"));
            }
        }
        Noise::Structured(structured) => structured.check(steps)?,
    }
    positive("loss", claims.loss)?;
    positive("sensitivity", claims.sensitivity)?;
    match (certificate, claims.lower_bound) {
        (None, None) => Ok(()),
        (Some(certificate), Some(lower_bound)) => {
            certificate.check(schema)?;
            positive("lower_bound", lower_bound)?;
            if lower_bound > claims.loss {
                let allowed = format!("at most the loss {:?}", claims.loss);
                return Err(Error::argument("lower_bound", allowed, lower_bound));
            }
            Ok(())
        }
        _ => Err(Error::argument(
            "the lower bound",
            "claimed together with a certificate",
            "one without the other",
        )),
    }
}

fn positive(name: &str, value: f64) -> Result<()> {
    match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => Err(Error::argument(name, "positive and finite", value)),
    }
}

/// A workload's metadata entry, its learning rates and its packed matrix, as far as it has them.
fn describe(workload: &Workload) -> (WorkloadEntry, Option<Vec<f64>>, Option<Vec<f64>>) {
    match workload {
        Workload::Training(training) => {
            let momentum = format!("{:?}", training.momentum());
            let entry = WorkloadEntry::Training { momentum, learning_rates: training.rates().is_some() };
            (entry, training.rates().map(<[f64]>::to_vec), None)
        }
        Workload::Dense(a) => {
            let packed = (0..a.nrows()).flat_map(|i| (0..=i).map(move |j| a[(i, j)])).collect();
            (WorkloadEntry::Dense {}, None, Some(packed))
        }
    }
}

/// The bytes of the header with its length before it, and what follows.
fn lay_out(mechanism: &Mechanism) -> Result<(Vec<u8>, Contents)> {
    // Parts can be put together by hand: a mechanism that cannot be read again is not written.
    let Mechanism { schema, workload, noise, certificate, claims } = mechanism;
    check_coverage(&schema.clone().validate()?)?;
    check(mechanism)?;
    if let Workload::Dense(a) = workload {
        dense::check_invertible_triangle(a, "the workload matrix")?;
    }
    let (entry, rates, packed_workload) = describe(workload);
    let (mut squared_sensitivity, mut structured) = (None, None);
    let mut tensors = Contents::new();
    let mut add = |name: &str, numbers: Option<Vec<f64>>| {
        if let Some(numbers) = numbers {
            tensors.insert(name.into(), numbers);
        }
    };
    add("learning_rates", rates);
    add("workload", packed_workload);
    add("certificate", certificate.as_ref().map(packed_certificate));
    match noise {
        Noise::Dense(w) => add("noising_matrix", Some(w.packed())),
        Noise::Implicit { rule, squared_sensitivity: squared } => {
            squared_sensitivity = Some(format!("{squared:?}"));
            add("nodes", Some(rule.nodes.clone()));
            add("weights", Some(rule.weights.clone()));
        }
        Noise::Structured(description) => {
            structured = Some(to_json(&described(description)));
            for (name, numbers) in description.parameters.iter() {
                add(&format!("{PARAMETER}{name}"), Some(numbers.to_vec()));
            }
        }
    }
    let bound_schema = certificate.as_ref().and_then(|certificate| certificate.patterns.as_ref());
    let mut header = Header {
        metadata: Metadata {
            checksum: header::NO_CHECKSUM.into(),
            format: header::FORMAT.into(),
            format_version: header::FORMAT_VERSION.into(),
            kind: noise.kind().into(),
            schema: to_json(schema),
            workload: to_json(&entry),
            loss: format!("{:?}", claims.loss),
            bound: Some(mechanism.bound_class().name().into()),
            bound_schema: bound_schema.map(to_json),
            lower_bound: claims.lower_bound.map(|bound| format!("{bound:?}")),
            sensitivity: format!("{:?}", claims.sensitivity),
            squared_sensitivity,
            structured,
            id: id(mechanism),
            written_by: concat!("antiphon ", env!("CARGO_PKG_VERSION")).into(),
        },
        ..Header::default()
    };
    header.place(tensors.iter().map(|(name, numbers)| (name, numbers.len())));
    let zeroed = header.to_bytes();
    let length = zeroed.len() - 8;
    if length as u64 > MAX_HEADER {
        let allowed = format!("short enough for a header of {MAX_HEADER} bytes");
        return Err(Error::argument("the list of patterns", allowed, format!("{length} bytes")));
    }
    let mut hash = Sha256::new();
    hash.update(zeroed);
    for numbers in tensors.values() {
        blocks(numbers).for_each(|block| hash.update(block));
    }
    header.metadata.checksum = hexadecimal(hash);
    Ok((header.to_bytes(), tensors))
}

#[cfg(test)]
mod tests;
