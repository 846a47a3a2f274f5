//! The description of a structured mechanism: what it may say, and its id.

use super::*;
use crate::families;

#[test]
fn a_description_that_means_nothing_is_refused() {
    let [_, _, structured] = trio();
    let bytes = encode(&structured);
    for (description, expected) in [
        (r#"{"family":"fft","stamps":0}"#, "stamps must be in 1..=6, got 0"),
        (r#"{"family":"fft","stamps":7}"#, "stamps must be in 1..=6, got 7"),
        (r#"{"family":"fft","stamps":18446744073709551615}"#, "in 1..=6, got 18446744073709551615"),
        (r#"{"family":"fft","stamps":-1}"#, "structured: invalid value: integer `-1`"),
        (r#"{"family":"fft","stamps":1.0}"#, "structured: invalid type: floating point"),
        (r#"{"family":"fft"}"#, "structured: missing field `stamps`"),
        (r#"{"family":"fft","stamps":1,"more":1}"#, "structured: unknown field `more`"),
        (r#"{"family":"fft","stamps":1,"stamps":1}"#, "structured: duplicate field `stamps`"),
        (r#"{"family":"wavelet","stamps":1}"#, "the family must be one of identity, "),
        (r#"{"family":"Fft","stamps":1}"#, "the family must be one of identity, "),
        ("", "structured: EOF"),
    ] {
        let message = reason(&forge_metadata(&bytes, "structured", description));
        assert!(message.contains(expected), "{description}: {message}");
    }
    // Another description that means something has another id.
    let Noise::Structured(own) = structured.noise.clone() else { unreachable!() };
    for family in families::formulas() {
        for stamps in 1..=6 {
            let other = Structured::formula(family, stamps);
            let forged = forge_metadata(&bytes, "structured", &to_json(&described(&other)));
            assert!(other == own || reason(&forged).contains("is not the id in the file"), "{other:?}");
        }
    }
    for stamps in [0, 7] {
        let noise = Noise::Structured(Structured { stamps, ..own.clone() });
        assert!(lay_out(&Mechanism { noise, ..structured.clone() }).is_err());
    }
}

/// The id as docs/FORMAT.md says it, and so that it never changes.
#[test]
fn the_id_of_a_structured_mechanism_is_that_of_its_description() {
    let [_, _, mut mechanism] = trio();
    mechanism.noise = Noise::Structured(Structured::formula(families::TREE_ONLINE, 2));
    let mut hash = Sha256::new();
    hash.update(r#"{"kind":"fixed-order","steps":6,"steps_per_epoch":2,"max_participations":3}"#);
    hash.update(r#"{"kind":"training","momentum":"0.9","learning_rates":true}"#);
    hash.update(r#"{"family":"tree-online","stamps":2}"#);
    (0..6).for_each(|_| hash.update(0.5f64.to_le_bytes()));
    assert_eq!(id(&mechanism), hexadecimal(hash));
    // What is claimed and proved about the noise is no part of it.
    let named = id(&mechanism);
    mechanism.claims.loss *= 2.0;
    mechanism.certificate.as_mut().unwrap().factors[0][0] *= 2.0;
    assert_eq!(id(&mechanism), named);
}
