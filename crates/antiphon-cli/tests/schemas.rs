//! Mechanisms for minimum separation and for reshuffled epochs, and encoders of other people: from `make` to noise.

mod common;

use common::{antiphon, folder, json, message};
use std::path::Path;

/// Makes, verifies, accounts for and draws one; gives what `make` and `verify` say.
fn around(folder: &Path, what: &str) -> [serde_json::Value; 2] {
    let made = json(folder, &format!("make {what} --json --force --output m.safetensors"), 0);
    let verified = json(folder, "verify m.safetensors --json", 0);
    assert_eq!((&verified["ok"], &verified["id"]), (&true.into(), &made["id"]), "{what}");
    let account = json(folder, "account m.safetensors --epsilon 4 --delta 1e-5 --json", 0);
    assert!(account["sensitivity"].as_f64().unwrap() <= made["sensitivity"].as_f64().unwrap());
    antiphon(folder, "noise m.safetensors --params 300 --seed 1 --noise-multiplier 1 --force --output n.npy")
        .success();
    antiphon(folder, "noise m.safetensors --check n.npy --seed 1").success();
    [made, verified]
}

#[test]
fn every_family_has_files_for_minimum_separation() {
    let folder = folder();
    for family in
        ["identity", "tree-online", "tree-optimal", "fft", "fft-optimal", "single-epoch", "per-epoch"]
    {
        let run = "--steps 36 --min-separation 9 --max-participations 4 --momentum 0.9";
        let [made, verified] = around(folder.path(), &format!("{family} {run}"));
        // n ≤ k·b: the bound of fixed order holds, and says so.
        assert_eq!(made["bound"], "all", "{made}");
        let detail = verified["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["name"] == "lower_bound")
            .unwrap();
        assert!(detail["detail"].as_str().unwrap().contains("4 epochs of 9 steps"), "{detail}");
        assert!(["exact", "upper"].contains(&made["sensitivity_kind"].as_str().unwrap()), "{made}");
    }
    let text =
        antiphon(folder.path(), "make tree-online --steps 36 --min-separation 9 --max-participations 4")
            .success();
    let text = String::from_utf8(text.get_output().stdout.clone()).unwrap();
    assert!(text.contains("(exact, vector contributions)"), "{text}");
}

#[test]
fn reshuffled_epochs_have_a_mechanism_of_their_own() {
    let folder = folder();
    let run = "--epochs 5 --steps-per-epoch 8 --reshuffled";
    let [best, verified] = around(folder.path(), &format!("per-epoch {run}"));
    assert_eq!((&best["sensitivity_kind"], &best["bound"]), (&"exact".into(), &"all".into()));
    assert!(verified["over_optimum"].as_f64().unwrap() < 0.06, "{verified}");
    let [single, _] = around(folder.path(), &format!("single-epoch --stamps 5 {run}"));
    assert!(single["loss"].as_f64() > best["loss"].as_f64());
    around(folder.path(), &format!("fft {run}")); // not independent between epochs
    let compared = json(folder.path(), &format!("compare {run} --json"), 0);
    assert_eq!(compared["mechanisms"][0]["name"], "per-epoch", "{compared}");
    let fixed = json(folder.path(), "optimize --epochs 5 --steps-per-epoch 8 --json", 0);
    let gain = compared["fixed_order_loss"].as_f64().unwrap() / fixed["loss"].as_f64().unwrap();
    assert!((gain - 1.0).abs() < 2e-3, "{compared}");
    let compared = json(folder.path(), "compare --epochs 5 --steps-per-epoch 8 --json", 0);
    assert!(compared["fixed_order_loss"].is_null(), "{compared}");
    let text = antiphon(folder.path(), &format!("compare {run}")).success();
    let text = String::from_utf8(text.get_output().stdout.clone()).unwrap();
    assert!(text.contains("In a fixed order the optimum has a loss of"), "{text}");
}

#[test]
fn encoders_of_others_become_mechanisms() {
    let folder = folder();
    // The optimum for one pass, used for two: that of `single-epoch` with two stamps, and its loss.
    antiphon(folder.path(), "optimize --steps 20 --steps-per-epoch 20 --output one.safetensors").success();
    antiphon(folder.path(), "export one.safetensors --matrix C --output C.npy").success();
    let run = "--epochs 4 --steps-per-epoch 10";
    let single = json(folder.path(), &format!("make single-epoch --stamps 2 {run} --json"), 0);
    for file in ["one.safetensors", "C.npy"] {
        for stamps in ["", "--stamps 2"] {
            let [made, _] = around(folder.path(), &format!("from {file} {stamps} {run}"));
            assert_eq!((&made["stamps"], &made["name"]), (&2.into(), &"from".into()));
            assert!((made["loss"].as_f64().unwrap() / single["loss"].as_f64().unwrap() - 1.0).abs() < 1e-6);
        }
    }
    // A tree's encoder is not square: it gets the triangular one with the same gram matrix.
    antiphon(folder.path(), "make tree-optimal --epochs 2 --steps-per-epoch 10 --output tree.safetensors")
        .success();
    let [made, _] = around(folder.path(), "from tree.safetensors --epochs 2 --steps-per-epoch 10");
    let tree = json(folder.path(), "make tree-optimal --epochs 2 --steps-per-epoch 10 --json", 0);
    assert!((made["loss"].as_f64().unwrap() / tree["loss"].as_f64().unwrap() - 1.0).abs() < 1e-6);
    // 40 steps in three stamps need one of 14.
    let text = message(folder.path(), &format!("make from C.npy --stamps 3 {run}"), 2);
    assert!(text.contains("the encoder must be a matrix of 14 columns"), "{text}");
    let text = message(folder.path(), "make from C.npy --epochs 3 --steps-per-epoch 10", 2);
    assert!(text.contains("divides the 30 steps"), "{text}");
}
