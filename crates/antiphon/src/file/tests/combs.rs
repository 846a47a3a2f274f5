//! Files of combs: read again as they were, and refused by name where their numbers are no comb.

use super::*;
use crate::families::{COMB_BLT, comb};
use crate::mechanism::Parameters;
use crate::verify;

/// A comb over 3 epochs of 5 steps, with two knots of each kind and a gain for every residue.
fn parameters() -> Vec<(&'static str, Vec<f64>)> {
    vec![
        ("period", vec![5.0]),
        ("poles", vec![0.9, 0.5]),
        ("zeros", vec![0.7, 0.2]),
        ("mix_knots", vec![0.0, 3.0]),
        ("mix", vec![1.0, -0.2, 1.1, 0.1, -0.1, 1.2, 0.9, -0.3, 1.0, 0.0, 0.2, 0.8]),
        ("gain_knots", vec![1.0, 4.0]),
        ("input_gain", vec![1.0, 0.9, 1.1, 1.0, 0.8, 1.2]),
        ("output_gain", vec![0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ("residue_gain", vec![1.0, 1.1, 0.9, 1.0, 1.2]),
    ]
}

fn of(parameters: Vec<(&'static str, Vec<f64>)>) -> Mechanism {
    let schema = Schema::epochs(3, 5).unwrap();
    let noise = Noise::Structured(Structured::new(COMB_BLT, 1, parameters.into_iter().collect()));
    let claims = Claims { loss: 1e9, lower_bound: None, sensitivity: 1e3 };
    Mechanism { schema, workload: Workload::prefix_sum(15), noise, certificate: None, claims }
}

/// The same with other numbers of one name.
fn with(name: &'static str, numbers: &[f64]) -> Mechanism {
    let replaced = |(other, old): (&'static str, Vec<f64>)| match other == name {
        true => (other, numbers.to_vec()),
        false => (other, old),
    };
    of(parameters().into_iter().map(replaced).collect())
}

/// What is wrong with it: found out when it is written or read, or else when it is verified.
fn fault(mechanism: &Mechanism) -> String {
    match to_bytes(mechanism) {
        Err(error) => error.to_string(),
        Ok(bytes) => match from_bytes(&bytes) {
            Err(error) => error.to_string(),
            Ok(read) => verify::mechanism(&read).expect_err("it should be refused").to_string(),
        },
    }
}

#[test]
fn a_comb_is_read_again_and_verified() {
    let mechanism = of(parameters());
    let read = from_bytes(&encode(&mechanism)).unwrap();
    assert_eq!(read, mechanism);
    let report = verify::mechanism(&read).unwrap();
    let found = report.checks.iter().find(|check| check.name == "factorization").unwrap();
    assert!(found.passed && found.detail.starts_with("comb-blt, 2 buffers: "), "{found:?}");
    // A number that is another one makes another mechanism, and another id.
    assert_ne!(id(&with("residue_gain", &[1.0, 1.1, 0.9, 1.0, 1.3])), id(&mechanism));
    // Without gains of residues it is one too.
    let mut fewer = parameters();
    fewer.pop();
    let fewer = of(fewer);
    assert_eq!(from_bytes(&encode(&fewer)).unwrap(), fewer);
}

#[test]
fn numbers_that_are_no_comb_are_named() {
    for (name, numbers, expected) in [
        ("poles", &[1.0, 0.5][..], "poles[0] must be in (0, 1)"),
        ("poles", &[1.5, 0.5], "poles[0] must be in (0, 1)"),
        ("poles", &[0.5, 0.9], "zeros[0] must be in [0, 0.5)"),
        ("poles", &[0.9, 0.8], "poles[1] must be in (0, 0.7)"),
        ("poles", &[0.9, -0.5], "poles[1] must be in (0, 0.7)"),
        ("zeros", &[0.95, 0.2], "zeros[0] must be in [0, 0.9)"),
        ("zeros", &[0.7, 0.6], "zeros[1] must be in [0, 0.5)"),
        ("zeros", &[0.7], "zeros must be"),
        ("period", &[16.0], "period[0] must be a whole number in 1..=15, got 16"),
        ("period", &[0.0], "period[0] must be a whole number in 1..=15, got 0"),
        ("period", &[2.5], "period[0] must be a whole number in 1..=15, got 2.5"),
        ("period", &[], "period must be"),
        ("mix_knots", &[3.0, 0.0], "mix_knots must be at least one number, increasing, got [3, 0]"),
        ("mix_knots", &[3.0, 3.0], "mix_knots must be at least one number, increasing, got [3, 3]"),
        ("mix_knots", &[0.0, 5.0], "mix_knots[1] must be a whole number in 0..=4, got 5"),
        ("mix_knots", &[0.0], "mix must be"),
        ("gain_knots", &[4.0, 1.0], "gain_knots must be at least one number, increasing, got [4, 1]"),
        ("gain_knots", &[-1.0, 1.0], "gain_knots[0] must be a whole number in 0..=4, got -1"),
        ("mix", &[1.0; 11], "mix must be 12 numbers"),
        ("mix", &[0.0; 12], "mix[0] must be in [1e-60, 1e60], on the diagonal, got 0"),
        ("input_gain", &[0.0; 6], "input_gain[0] must be in [1e-60, 1e60], got 0"),
        ("output_gain", &[-1.0; 6], "output_gain[0] must be in [1e-60, 1e60], got -1"),
        ("output_gain", &[1.0; 7], "output_gain must be 6 numbers"),
        ("residue_gain", &[1.0; 4], "residue_gain must be 5 numbers"),
        ("residue_gain", &[1e61; 5], "residue_gain[0] must be in [1e-60, 1e60], got"),
    ] {
        let message =
            fault(&with(name, numbers)).replace("the parameter ", "").replace("the tensor parameter.", "");
        assert!(message.contains(expected), "{name} {numbers:?}: {message}");
    }
    let [none, many] = [0, 17].map(|d| {
        let mut changed = parameters();
        changed[1].1 = (0..d).map(|i| 0.9 * 0.9f64.powi(2 * i)).collect();
        changed[2].1 = (0..d).map(|i| 0.9 * 0.9f64.powi(2 * i + 1)).collect();
        fault(&of(changed))
    });
    assert_eq!(none, "the number of buffers must be in 1..=16, got 0");
    assert_eq!(many, "the number of buffers must be in 1..=16, got 17");
}

#[test]
fn numbers_that_are_none_and_names_that_are_missing_are_refused_in_a_file() {
    let bytes = encode(&of(parameters()));
    let length = header::length(&bytes, bytes.len() as u64).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    for (name, _) in parameters() {
        let tensor = format!("parameter.{name}");
        let start = written[&tensor]["data_offsets"][0].as_u64().unwrap() as usize;
        for value in [f64::NAN, f64::INFINITY] {
            let forged =
                forge(&bytes, |_, data| data[start..start + 8].copy_from_slice(&value.to_le_bytes()));
            let message = reason(&forged);
            assert!(message.contains(&format!("{name}[0] must be finite, got {value}")), "{message}");
        }
        let mut fewer = parameters();
        fewer.retain(|(other, _)| *other != name);
        if name != "residue_gain" {
            let message = fault(&of(fewer));
            assert!(message.contains(" must be "), "{name}: {message}");
        }
    }
    let mut more = parameters();
    more.push(("weight", vec![1.0]));
    assert!(fault(&of(more)).contains("got weight"));
    // Stamps would need parameters for each.
    let description = r#"{"family":"comb-blt","stamps":2}"#;
    let message = reason(&forge_metadata(&bytes, "structured", description));
    assert_eq!(message, "stamps must be 1 for comb-blt, got 2");
}

/// The schema of a file need not be the one that its comb was made for: what is claimed is checked all the same.
#[test]
fn another_schema_is_verified_by_the_matrices_or_refused() {
    let comb = comb::Comb::from_parameters(15, &parameters().into_iter().collect::<Parameters>()).unwrap();
    for schema in [
        Schema::epochs(3, 5).unwrap(),
        Schema::epochs(5, 3).unwrap(),
        Schema::fixed_order_at_most(15, 5, 2).unwrap(),
        Schema::min_separation(15, 5, 3).unwrap(),
        Schema::reshuffled(3, 5).unwrap(),
        Schema::patterns(15, vec![(0..15).collect()]).unwrap(),
    ] {
        let mechanism = Mechanism { schema: schema.clone(), ..of(parameters()) };
        let report = verify::mechanism(&mechanism).unwrap();
        assert!(report.sensitivity.lower > 0.0 && report.sensitivity.lower <= report.sensitivity.upper);
        let claims = Claims { sensitivity: report.sensitivity.lower * 0.999, ..mechanism.claims };
        let less = verify::mechanism(&Mechanism { claims, ..mechanism.clone() }).unwrap();
        assert!(less.checks.iter().any(|check| check.name == "sensitivity" && !check.passed), "{schema:?}");
        // The same by the command that computes sensitivities alone.
        let alone = mechanism.worst_case(&schema).unwrap().sensitivity;
        assert!(alone.upper <= report.sensitivity.upper * (1.0 + 1e-6), "{schema:?}");
        assert!(alone.upper >= report.sensitivity.lower, "{schema:?}");
    }
    // Too many steps for matrices: refused, and the message says for what it was made.
    let long = comb::Comb { steps: 5_000, period: 2_500, residue_gain: vec![], mix: vec![1.0; 6], ..comb };
    let long = comb::Comb { input_gain: vec![1.0; 4], output_gain: vec![1.0; 4], ..long };
    let noise = Noise::Structured(Structured::new(COMB_BLT, 1, long.to_parameters()));
    let schema = Schema::epochs(5, 1_000).unwrap();
    let workload = Workload::prefix_sum(5_000);
    let mechanism = Mechanism { schema, workload, noise, ..of(parameters()) };
    let message = verify::mechanism(&mechanism).unwrap_err().to_string();
    assert!(
        message.starts_with("this mechanism is made for a fixed order with 2500 steps per epoch; its sensitivity for another schema"),
        "{message}"
    );
}
