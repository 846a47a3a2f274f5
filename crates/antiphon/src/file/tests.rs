use super::*;
use crate::linalg::dense::Matrix;
use crate::mechanism::{Certificate, Structured};
use crate::testing::{Seeded, mutate_bytes};
use safetensors::SafeTensors;
use std::fs;
use tempfile::TempDir;

mod combs;
mod structured;

fn triangular(n: usize, seeded: &mut Seeded) -> Matrix {
    let entry = |i, j| if j <= i { seeded.uniform() } else { 0.0 };
    dense::from_fn(n, n, entry)
}

const KINDS: [&str; 3] = ["dense", "implicit", "structured"];

fn mechanism(schema: Schema, workload: Workload, kind: &str, seeded: &mut Seeded) -> Mechanism {
    let n = schema.steps();
    let lengths: Vec<usize> = schema.listed().unwrap().iter().map(Vec::len).collect();
    let mut factor = |k: usize| {
        let l = triangular(k, seeded);
        (0..k * k).map(|e| l[(e / k, e % k)]).collect()
    };
    let certificate = Certificate::new(lengths.into_iter().map(&mut factor).collect());
    let noise = match kind {
        "implicit" => Noise::Implicit {
            rule: Quadrature::new(0.3, 1e5, 7).unwrap(),
            squared_sensitivity: seeded.uniform(),
        },
        "dense" => Noise::Dense(NoisingMatrix::new(triangular(n, seeded)).unwrap()),
        _ => {
            let family = families::formulas().nth(seeded.below(families::formulas().count())).unwrap();
            Noise::Structured(Structured::formula(family, 1 + seeded.below(n)))
        }
    };
    let lower_bound = seeded.uniform();
    let loss = lower_bound * (1.0 + seeded.uniform() * 1e-9);
    let claims = Claims { loss, lower_bound: Some(lower_bound), sensitivity: 1.0 + seeded.uniform() * 1e-9 };
    Mechanism { schema, workload, noise, certificate: Some(certificate), claims }
}

/// One of every kind.
fn mechanisms() -> Vec<Mechanism> {
    let seeded = &mut Seeded(1);
    let rates = |n: usize, seeded: &mut Seeded| Some((0..n).map(|_| seeded.uniform()).collect());
    let momentum = seeded.uniform();
    let workloads = |n: usize, seeded: &mut Seeded| {
        vec![
            Workload::prefix_sum(n),
            Workload::training(n, momentum, None).unwrap(),
            Workload::training(n, 0.0, rates(n, seeded)).unwrap(),
            Workload::training(n, 0.95, rates(n, seeded)).unwrap(),
            Workload::dense(triangular(n, seeded)).unwrap(),
        ]
    };
    let schemas = [
        Schema::epochs(3, 2).unwrap(),
        Schema::single(4).unwrap(),
        Schema::every_step(1).unwrap(),
        Schema::fixed_order(7, 3).unwrap(),
        Schema::fixed_order_at_most(7, 2, 2).unwrap(),
        Schema::patterns(4, vec![vec![0, 3], vec![1], vec![0, 1, 2]]).unwrap(),
    ];
    let mut mechanisms = Vec::new();
    for schema in schemas {
        for workload in workloads(schema.steps(), seeded) {
            for kind in KINDS {
                mechanisms.push(mechanism(schema.clone(), workload.clone(), kind, seeded));
            }
            mechanisms.push(with_parameters(&mechanisms[mechanisms.len() - 1], seeded));
        }
    }
    let without: Vec<Mechanism> = mechanisms.iter().filter_map(unproven).collect();
    mechanisms.extend(without);
    mechanisms.extend(unlisted(seeded));
    mechanisms
}

/// The same with noise of a family that has parameters.
fn with_parameters(of: &Mechanism, seeded: &mut Seeded) -> Mechanism {
    let steps = of.steps();
    let stamps = 1 + seeded.below(steps);
    let family = [families::SINGLE_EPOCH, families::FROM][seeded.below(2)];
    let mut numbers = |length: u128| (0..length).map(|_| seeded.uniform()).collect();
    let lengths = family.parameters(steps, stamps, &|_| 0).unwrap().into_iter();
    let parameters = lengths.map(|(name, length)| (name, numbers(length))).collect();
    Mechanism { noise: Noise::Structured(Structured::new(family, stamps, parameters)), ..of.clone() }
}

/// The same without a bound; an implicit mechanism is made of its certificate and has none.
fn unproven(of: &Mechanism) -> Option<Mechanism> {
    let claims = Claims { lower_bound: None, ..of.claims };
    let implicit = matches!(of.noise, Noise::Implicit { .. });
    (!implicit).then(|| Mechanism { certificate: None, claims, ..of.clone() })
}

/// Schemas whose patterns cannot be listed, with a certificate for some of them.
fn unlisted(seeded: &mut Seeded) -> Vec<Mechanism> {
    let schemas = [Schema::min_separation(7, 2, 3).unwrap(), Schema::reshuffled(3, 2).unwrap()];
    let mut all = Vec::new();
    for schema in schemas {
        let patterns = schema.listed_part().unwrap();
        for kind in ["dense", "structured"] {
            let workload = Workload::training(schema.steps(), 0.5, None).unwrap();
            let mut one = mechanism(patterns.clone(), workload, kind, seeded);
            one.schema = schema.clone();
            one.certificate.as_mut().unwrap().patterns = Some(patterns.clone());
            all.push(one);
        }
    }
    all
}

fn encode(mechanism: &Mechanism) -> Vec<u8> {
    to_bytes(mechanism).unwrap()
}

/// A dense, an implicit and a structured mechanism of six steps.
fn trio() -> [Mechanism; 3] {
    KINDS.map(|kind| {
        let workload = Workload::training(6, 0.9, Some(vec![0.5; 6])).unwrap();
        mechanism(Schema::epochs(3, 2).unwrap(), workload, kind, &mut Seeded(2))
    })
}

/// The bytes after a change to the header's JSON and to the data, with a checksum that fits: what a forger writes.
fn forge(bytes: &[u8], change: impl FnOnce(&mut serde_json::Value, &mut Vec<u8>)) -> Vec<u8> {
    let length = header::length(bytes, bytes.len() as u64).unwrap();
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut data = bytes[8 + length..].to_vec();
    header["__metadata__"]["checksum"] = header::NO_CHECKSUM.into();
    change(&mut header, &mut data);
    let text = header.to_string();
    let mut forged = (text.len() as u64).to_le_bytes().to_vec();
    forged.extend(text.bytes());
    forged.extend(data);
    let sum = checksum(&forged, text.len(), header::NO_CHECKSUM).unwrap();
    let start = 8 + text.find(header::NO_CHECKSUM).unwrap();
    forged[start..start + 64].copy_from_slice(sum.as_bytes());
    forged
}

fn forge_metadata(bytes: &[u8], key: &str, value: &str) -> Vec<u8> {
    forge(bytes, |header, _| header["__metadata__"][key] = value.into())
}

fn reason(bytes: &[u8]) -> String {
    from_bytes(bytes).expect_err("the bytes should be refused").to_string()
}

#[test]
fn what_is_written_is_read_again() {
    let directory = TempDir::new().unwrap();
    for (number, mechanism) in mechanisms().iter().enumerate() {
        let path = directory.path().join(format!("{number}.safetensors"));
        write(&path, mechanism, false).unwrap();
        assert_eq!(&read(&path).unwrap(), mechanism, "{number}");
        assert_eq!(fs::read(&path).unwrap(), encode(mechanism)); // the same bytes every time
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), mechanisms().len());
}

#[test]
fn the_safetensors_crate_reads_the_same_numbers() {
    let [dense, implicit, structured] = trio();
    let bytes = encode(&dense);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let Noise::Dense(w) = &dense.noise else { unreachable!() };
    let expected: Vec<u8> = w.packed().iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(tensors.tensor("noising_matrix").unwrap().data(), expected);
    assert_eq!(tensors.tensor("learning_rates").unwrap().shape(), [6]);
    assert_eq!(tensors.len(), 3);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["id"], w.id());
    let bytes = encode(&implicit);
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().len(), 4);
    let bytes = encode(&structured);
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().len(), 2); // certificate and learning rates
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let Noise::Structured(description) = &structured.noise else { unreachable!() };
    let expected = format!(r#"{{"family":"{}","stamps":{}}}"#, description.family.name(), description.stamps);
    assert_eq!(header.metadata().as_ref().unwrap()["structured"], expected);
}

#[test]
fn the_certificate_length_is_that_of_the_listed_patterns() {
    for n in 1..=12usize {
        for b in 1..=n {
            for k in 1..=n.div_ceil(b) {
                let schema = Schema::fixed_order_at_most(n, b, k).unwrap();
                let listed = schema.listed().unwrap();
                let expected: usize = listed.iter().map(|p| p.len() * (p.len() + 1) / 2).sum();
                assert_eq!(certificate_len(&schema).unwrap(), expected as u128, "{n} {b} {k}");
            }
        }
    }
    let largest = Schema::fixed_order_at_most(1 << 28, 1, 1 << 27).unwrap();
    assert!(certificate_len(&largest).unwrap() > u64::MAX as u128); // needs its 128 bits
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    for mechanism in trio() {
        let mut bytes = encode(&mechanism);
        assert_eq!(from_bytes(&bytes).unwrap(), mechanism);
        for i in 0..bytes.len() {
            for change in 1..=255 {
                bytes[i] ^= change;
                assert!(from_bytes(&bytes).is_err(), "byte {i} changed by {change}");
                bytes[i] ^= change;
            }
        }
    }
}

#[test]
fn no_truncation_and_no_extension_goes_unnoticed() {
    for mechanism in trio() {
        let mut bytes = encode(&mechanism);
        for length in 0..bytes.len() {
            assert!(from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        bytes.push(0);
        assert!(reason(&bytes).ends_with("the file was cut or extended"));
    }
}

#[test]
fn a_forged_claim_is_read_and_left_to_verify() {
    let [dense, ..] = trio();
    let forged = from_bytes(&forge_metadata(&encode(&dense), "sensitivity", "0.5")).unwrap();
    let claims = Claims { sensitivity: 0.5, ..dense.claims };
    assert_eq!(forged, Mechanism { claims, ..dense });
}

#[test]
fn lies_about_sizes_are_refused_before_anything_is_allocated() {
    let huge = 1usize << 28;
    let rateless = |schema: Schema, kind| {
        let workload = Workload::prefix_sum(schema.steps());
        encode(&mechanism(schema, workload, kind, &mut Seeded(3)))
    };
    for kind in KINDS {
        let bytes = rateless(Schema::epochs(3, 2).unwrap(), kind);
        let lies = [
            Schema::single(huge).unwrap(),
            Schema::every_step(huge).unwrap(),
            Schema::fixed_order_at_most(huge, 1, huge / 2).unwrap(),
            Schema::epochs(huge / 2, 2).unwrap(),
        ];
        for lie in lies {
            let message = reason(&forge_metadata(&bytes, "schema", &to_json(&lie)));
            assert!(message.starts_with("the tensor certificate must be F64 ["), "{message}");
            assert!(message.ends_with("], got F64 [12]"), "{message}");
        }
        let schema = r#"{"kind":"fixed-order","steps":18446744073709551615,"steps_per_epoch":1,"max_participations":1}"#;
        let message = reason(&forge_metadata(&bytes, "schema", schema));
        assert_eq!(message, format!("steps must be in 1..={huge}, got {}", u64::MAX));
        let schema = format!(r#"{{"kind":"patterns","steps":{huge},"patterns":[[0,1,2],[3,4,5]]}}"#);
        let message = reason(&forge_metadata(&bytes, "schema", &schema));
        assert!(message.contains("got 6 participations in 268435456 steps"), "{message}");
        let schema = r#"{"kind":"patterns","steps":6,"patterns":[[0,1,2],[2,4,5]]}"#;
        let message = reason(&forge_metadata(&bytes, "schema", schema));
        assert_eq!(message, "the patterns must be a cover of all steps, got none with step 3");
        let schema = r#"{"kind":"min-separation","steps":6,"min_separation":2,"max_participations":3}"#;
        assert!(reason(&forge_metadata(&bytes, "schema", schema)).contains("minimum separation"));
    }
}

#[test]
fn a_header_longer_than_the_file_or_the_limit_is_refused() {
    for (length, expected) in [(u64::MAX, "at most 67108864 bytes, got"), (1 << 26, "the file was cut")] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}      ");
        assert!(reason(&bytes).contains(expected), "{}", reason(&bytes));
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("long");
        fs::write(&path, &bytes).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert_eq!(message, format!("{}: {}", path.display(), reason(&bytes)));
    }
}

#[test]
fn numbers_that_are_none_are_refused_by_name_and_index() {
    for mechanism in trio() {
        let bytes = encode(&mechanism);
        let (_, tensors) = lay_out(&mechanism).unwrap();
        let mut start = 0;
        for (name, length) in tensors.iter().map(|(name, numbers)| (name, numbers.len())) {
            for i in 0..length {
                for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let at = start + 8 * i;
                    let bytes =
                        forge(&bytes, |_, data| data[at..at + 8].copy_from_slice(&value.to_le_bytes()));
                    assert_eq!(reason(&bytes), format!("{name}[{i}] must be finite, got {value}"));
                }
            }
            start += 8 * length;
        }
    }
}

#[test]
fn claims_that_cannot_be_true_are_refused() {
    let bytes = encode(&trio()[1]);
    for key in ["loss", "lower_bound", "sensitivity", "squared_sensitivity"] {
        for value in ["NaN", "inf", "0", "-1.0", "1e999"] {
            let message = reason(&forge_metadata(&bytes, key, value));
            assert!(message.starts_with(&format!("{key} must be positive and finite, got")), "{message}");
        }
        let message = reason(&forge_metadata(&bytes, key, "much"));
        assert_eq!(message, format!("{key} must be a decimal number, got much"));
    }
    let message = reason(&forge_metadata(&bytes, "lower_bound", "1e9"));
    assert!(message.starts_with("lower_bound must be at most the loss"), "{message}");
}

#[test]
fn another_matrix_needs_another_id() {
    for mechanism in trio() {
        let bytes = encode(&mechanism);
        let id = id(&mechanism).replace(|c: char| c.is_ascii_digit(), "a");
        assert!(reason(&forge_metadata(&bytes, "id", &id)).contains("is not the id in the file"));
        let bytes = forge(&bytes, |_, data| {
            let last = data.len() - 8; // of the noising matrix, the weights or the learning rates
            data[last] ^= 1;
        });
        assert!(reason(&bytes).contains("is not the id in the file"), "{}", reason(&bytes));
    }
}

#[test]
fn tensors_are_exactly_those_of_the_format() {
    let [dense, implicit, structured] = trio().map(|mechanism| encode(&mechanism));
    let message = reason(&forge(&dense, |header, _| {
        header["noising_matrix"]["dtype"] = "I64".into();
    }));
    assert_eq!(message, "the tensor noising_matrix must be F64 [21], got I64 [21]");
    let message = reason(&forge(&dense, |header, _| header["noising_matrix"]["shape"] = [3, 7].into()));
    assert_eq!(message, "the tensor noising_matrix must be F64 [21], got F64 [3, 7]");
    let empty = serde_json::json!({"dtype": "F64", "shape": [0], "data_offsets": [0, 0]});
    let message = reason(&forge(&dense, |header, _| header["extra"] = empty.clone()));
    assert!(message.starts_with("the tensor extra does not belong into a file of kind dense"), "{message}");
    let message = reason(&forge(&dense, |header, _| header["nodes"] = empty.clone()));
    assert!(message.starts_with("the tensor nodes does not belong into a file of kind dense"), "{message}");
    let message = reason(&forge(&implicit, |header, _| header["nodes"] = serde_json::Value::Null));
    assert!(message.starts_with("the header: invalid type: null"), "{message}");
    let message = reason(&forge_metadata(&implicit, "kind", "dense"));
    assert_eq!(message, "a dense file has no squared_sensitivity");
    let message = reason(&forge_metadata(&dense, "kind", "implicit"));
    assert_eq!(message, "squared_sensitivity is missing");
    let message = reason(&forge_metadata(&structured, "kind", "implicit"));
    assert_eq!(message, "squared_sensitivity is missing");
    let message = reason(&forge_metadata(&structured, "kind", "dense"));
    assert_eq!(message, "a file of kind dense has no entry named structured");
    let message = reason(&forge_metadata(&structured, "squared_sensitivity", "1.0"));
    assert_eq!(message, "a structured file has no squared_sensitivity");
    let message = reason(&forge_metadata(&implicit, "structured", "{}"));
    assert_eq!(message, "a file of kind implicit has no entry named structured");
    let message = reason(&forge(&structured, |header, _| {
        header["__metadata__"].as_object_mut().unwrap().remove("structured");
    }));
    assert_eq!(message, "structured is missing");
    let message = reason(&forge(&structured, |header, _| header["noising_matrix"] = empty.clone()));
    assert!(message.starts_with("the tensor noising_matrix does not belong into a file of kind structured"));
    let message = reason(&forge_metadata(&structured, "kind", "sparse"));
    assert_eq!(message, "kind must be dense, implicit or structured, got sparse");
    let message = reason(&forge_metadata(&dense, "workload", r#"{"kind":"dense"}"#));
    assert_eq!(message, "the tensor workload is missing");
    let overlapping = [0, 168].into();
    let message = reason(&forge(&dense, |header, _| header["noising_matrix"]["data_offsets"] = overlapping));
    assert!(message.contains("offset"), "{message}");
}

#[test]
fn other_files_and_other_versions_are_told_apart() {
    let [dense, ..] = trio().map(|mechanism| encode(&mechanism));
    assert!(reason(b"").contains("fewer than 8 bytes"));
    assert!(
        reason(b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'")
            .starts_with("not a mechanism file: the length of the header")
    );
    let foreign = br#"{"w":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}}"#;
    let mut bytes = (foreign.len() as u64).to_le_bytes().to_vec();
    bytes.extend(foreign);
    assert!(SafeTensors::deserialize(&bytes).is_ok());
    assert!(reason(&bytes).starts_with("not a mechanism file: missing field `__metadata__`"));
    let message = reason(&forge_metadata(&dense, "format_version", "3"));
    assert_eq!(message, "format_version must be 1 or 2, got 3");
    let directory = TempDir::new().unwrap();
    assert!(matches!(read(directory.path()), Err(Error::File { .. })));
    assert!(matches!(read(&directory.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn a_file_that_exists_is_replaced_only_on_demand() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("m.safetensors");
    let [dense, implicit, structured] = trio();
    fs::write(&path, "precious").unwrap();
    let message = write(&path, &dense, false).unwrap_err().to_string();
    assert_eq!(message, format!("{}: exists; it is replaced only if that is asked for", path.display()));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    write(&path, &dense, true).unwrap();
    assert_eq!(read(&path).unwrap(), dense);
    for other in [implicit, structured] {
        write(&path, &other, true).unwrap();
        assert_eq!(read(&path).unwrap(), other);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let directory = TempDir::new().unwrap();
    let target = directory.path().join("occupied");
    fs::create_dir(&target).unwrap(); // a folder is not replaced by a file
    let [dense, ..] = trio();
    assert!(matches!(write(&target, &dense, true), Err(Error::File { .. })));
    assert!(matches!(write(&target, &dense, false), Err(Error::File { .. })));
    let nowhere = directory.path().join("none").join("m.safetensors");
    assert!(matches!(write(&nowhere, &dense, false), Err(Error::Io { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_mechanism_that_could_not_be_read_is_not_written() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("m.safetensors");
    let breakages: [fn(&mut Mechanism); 8] = [
        |m| m.claims.loss = f64::NAN,
        |m| m.claims.lower_bound = Some(2.0 * m.claims.loss),
        |m| m.certificate.as_mut().unwrap().factors[0][3] = f64::INFINITY,
        |m| m.certificate.as_mut().unwrap().factors[0][1] = 1.0,
        |m| m.certificate.as_mut().unwrap().factors.truncate(1),
        |m| m.workload = Workload::prefix_sum(5),
        |m| m.workload = Workload::Dense(dense::from_fn(6, 6, |_, _| 1.0)),
        |m| m.schema = Schema::FixedOrder { steps: 6, steps_per_epoch: 0, max_participations: 1 },
    ];
    for breakage in breakages {
        let [mut mechanism, ..] = trio();
        breakage(&mut mechanism);
        assert!(write(&path, &mechanism, false).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

/// 20 000 seeded mutations: changed, cut, copied and inserted bytes, in half of the cases with a checksum made to fit. Whatever is
/// accepted can be written and read again. `tests/hostile` changes what the bytes mean, and verifies.
#[test]
fn mutations_never_panic() {
    let seeded = &mut Seeded(4);
    let files: Vec<Vec<u8>> = mechanisms().iter().map(encode).collect();
    let mut accepted = 0;
    for round in 0..20_000 {
        let mut bytes = files[seeded.below(files.len())].clone();
        mutate_bytes(&mut bytes, seeded);
        if round % 2 == 0 {
            fit_checksum(&mut bytes);
        }
        if let Ok(mechanism) = from_bytes(&bytes) {
            accepted += 1;
            assert_eq!(from_bytes(&encode(&mechanism)).unwrap(), mechanism);
        }
    }
    // Forged claims, workloads and certificates of the same size.
    assert!((100..10_000).contains(&accepted), "{accepted}");
}

/// Puts a checksum that fits where the first checksum is, if the header is still in place.
fn fit_checksum(bytes: &mut [u8]) {
    const START: usize = 8 + r#"{"__metadata__":{"checksum":""#.len();
    let Ok(length) = header::length(bytes, bytes.len() as u64) else {
        return;
    };
    let Some(value) = bytes.get(START..START + 64) else {
        return;
    };
    let Ok(value) = String::from_utf8(value.to_vec()) else {
        return;
    };
    if let Some(sum) = checksum(bytes, length, &value) {
        bytes[START..START + 64].copy_from_slice(sum.as_bytes());
    }
}
