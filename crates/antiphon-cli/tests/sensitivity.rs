//! `antiphon sensitivity`: brackets, and the pattern that reaches the lower end.

mod common;

use antiphon::linalg::{Matrix, dense};
use antiphon::npy;
use common::{antiphon, folder, json};
use serde_json::Value;
use std::path::Path;

fn text(folder: &Path, line: &str) -> String {
    String::from_utf8(antiphon(folder, line).success().get_output().stdout.clone()).unwrap()
}

fn steps(value: &Value) -> Vec<u64> {
    value["worst_pattern"].as_array().unwrap().iter().map(|step| step.as_u64().unwrap()).collect()
}

#[test]
fn a_loader_that_drifts_is_shown_with_its_pattern() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "optimize --epochs 20 --steps-per-epoch 100 --output m").success();
    // In the fixed order that it was made for, the sensitivity is one.
    let fixed = json(here, "sensitivity m --json", 0);
    assert_eq!((&fixed["kind"], steps(&fixed).len()), (&"exact".into(), 20));
    assert!(steps(&fixed).windows(2).all(|pair| pair[1] - pair[0] == 100));
    // Every 105 steps already reaches 1.189 = √1.414.
    let line = "sensitivity m --steps 2000 --min-separation 100 --max-participations 20";
    let found = json(here, &format!("{line} --json"), 0);
    let number = |name: &str| found[name].as_f64().unwrap();
    assert!(number("lower") >= 1.189 && number("lower") <= number("upper"), "{found}");
    let pattern = steps(&found);
    assert!(pattern.len() == 20 && pattern.windows(2).all(|pair| pair[1] - pair[0] >= 100), "{pattern:?}");
    assert!(pattern.windows(2).any(|pair| pair[1] - pair[0] > 100), "{pattern:?}");
    let said = text(here, line);
    let begins = format!("  worst pattern steps {}, {}, ", pattern[0], pattern[1]);
    let ends = format!(", …, {}: 20 participations (reaches it)\n", pattern[19]);
    assert!(said.contains(&begins) && said.contains(&ends), "{said}");
    assert_eq!(found["kind"], "exact", "{found}");
    // At a distance of 50 there are too many patterns to settle, so there is a bracket and the pattern of its lower end.
    let line = "sensitivity m --steps 2000 --min-separation 50 --max-participations 20";
    let found = json(here, &format!("{line} --json"), 0);
    assert!(found["kind"] == "upper" && found["upper"].as_f64() < Some(1.61), "{found}");
    let ends = format!(", …, {}: 20 participations (reaches the lower bound)\n", steps(&found)[19]);
    assert!(text(here, line).contains(&ends));
}

#[test]
fn every_kind_of_input_has_a_worst_pattern() {
    let folder = folder();
    let here = folder.path();
    // Steps 1 and 3 are heavy and the columns orthogonal, so {1, 3} is the only worst pattern.
    let c = dense::from_fn(4, 4, |i, j| if i == j { [1.0, 3.0, 1.0, 3.0][i] } else { 0.0 });
    npy::write(&here.join("C.npy"), &c, false).unwrap();
    npy::write(&here.join("X.npy"), &dense::gram(&c), false).unwrap();
    npy::write(&here.join("Z.npy"), &Matrix::zeros(4, 4), false).unwrap();
    for schema in ["--epochs 2 --steps-per-epoch 2", "--min-separation 2 --max-participations 2"] {
        for file in ["C.npy", "X.npy --gram"] {
            assert_eq!(steps(&json(here, &format!("sensitivity {file} {schema} --json"), 0)), [1, 3]);
            let said = text(here, &format!("sensitivity {file} {schema}"));
            assert!(said.contains("\n  worst pattern steps 1, 3 (reaches it)\n"), "{said}");
        }
        let nothing = json(here, &format!("sensitivity Z.npy {schema} --json"), 0);
        assert_eq!((&nothing["worst_pattern"], &nothing["lower"]), (&Value::Null, &0.0.into()));
        assert!(!text(here, &format!("sensitivity Z.npy {schema}")).contains("worst pattern"));
    }
    // A mechanism from a formula: with non-negative C and one participation, a single step.
    antiphon(here, "make tree-online --steps 8 --steps-per-epoch 8 --output t").success();
    assert_eq!(steps(&json(here, "sensitivity t --json", 0)).len(), 1);
    assert!(text(here, "sensitivity t").contains("\n  worst pattern step "));
}
