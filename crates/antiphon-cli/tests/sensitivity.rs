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

#[test]
fn reshuffled_epochs_for_every_kind_of_input() {
    let folder = folder();
    let here = folder.path();
    // Zero between the two epochs, and the worst step of each at another place: no fixed order has both.
    let c = dense::from_fn(4, 4, |i, j| if i == j { [3.0, 1.0, 1.0, 4.0][i] } else { 0.0 });
    npy::write(&here.join("C.npy"), &c, false).unwrap();
    npy::write(&here.join("X.npy"), &dense::gram(&c), false).unwrap();
    let schema = "--epochs 2 --steps-per-epoch 2 --reshuffled";
    for file in ["C.npy", "X.npy --gram"] {
        let found = json(here, &format!("sensitivity {file} {schema} --json"), 0);
        assert_eq!((&found["kind"], &found["method"]), (&"exact".into(), &"epoch-maxima".into()));
        assert!((found["upper"].as_f64().unwrap() - 5.0).abs() < 1e-12, "{found}"); // √(9 + 16)
        assert_eq!(steps(&found), [0, 3]);
        let expected = serde_json::json!({"kind": "reshuffled", "epochs": 2, "steps_per_epoch": 2});
        assert_eq!(found["schema"], expected);
    }
    let said = text(here, &format!("sensitivity C.npy {schema} --all-methods"));
    assert!(
        said.contains("participation 2 epochs of 2 steps (4 steps), a new order in every epoch"),
        "{said}"
    );
    assert!(said.contains("largest diagonal entries of the epochs"), "{said}");
    // A mechanism file made for fixed order: never less than there.
    antiphon(here, "optimize --epochs 4 --steps-per-epoch 10 --output m").success();
    let fixed = json(here, "sensitivity m --json", 0);
    let found = json(here, "sensitivity m --epochs 4 --steps-per-epoch 10 --reshuffled --json", 0);
    assert!(found["lower"].as_f64() > fixed["upper"].as_f64(), "{fixed} {found}");
    assert!(steps(&found).iter().enumerate().all(|(e, step)| *step as usize / 10 == e), "{found}");
}

#[test]
fn reshuffled_takes_epochs_and_steps_per_epoch_and_nothing_else() {
    let folder = folder();
    let here = folder.path();
    npy::write(&here.join("C.npy"), &dense::identity(4), false).unwrap();
    std::fs::write(here.join("p.json"), "[[0, 1, 2, 3]]").unwrap();
    let full = "--reshuffled --epochs 2 --steps-per-epoch 2";
    for (flags, expected) in [
        (
            "--reshuffled --epochs 2",
            "--steps-per-epoch must be given together with --reshuffled, got nothing",
        ),
        (
            "--reshuffled --steps-per-epoch 2",
            "--epochs must be given together with --reshuffled, got nothing",
        ),
        (&format!("{full} --steps 4"), "--steps must be left out where --reshuffled is given, got 4"),
        (
            &format!("{full} --min-separation 2"),
            "--min-separation must be left out where --reshuffled is given, got 2",
        ),
        (
            &format!("{full} --max-participations 2"),
            "--max-participations must be left out where --reshuffled is given, got 2",
        ),
        (
            &format!("{full} --patterns p.json"),
            "--patterns must be left out where --reshuffled is given, got p.json",
        ),
        ("--reshuffled --epochs 0 --steps-per-epoch 2", "--epochs must be in 1..=268435456, got 0"),
        ("--reshuffled --epochs 3 --steps-per-epoch 2", "the number of steps must be 4"),
    ] {
        let output =
            antiphon(here, &format!("sensitivity C.npy {flags}")).failure().get_output().stderr.clone();
        let said = String::from_utf8(output).unwrap();
        assert!(said.contains(expected), "{flags}: {said}");
    }
    // The optimum is not known, and the message says what is.
    let output = antiphon(here, &format!("optimize {full}")).failure().get_output().stderr.clone();
    let said = String::from_utf8(output).unwrap();
    assert!(said.contains("epochs with a new order in each") && said.contains("per-epoch"), "{said}");
}
