//! BLTs as a user meets them: single participation, fixed epoch order and minimum separation, beyond what matrices can hold too.

mod common;

use common::{antiphon, folder, json, message};

#[test]
fn a_blt_is_made_verified_and_drawn_from_under_three_schemas() {
    let folder = folder();
    let here = folder.path();
    for flags in [
        "--epochs 3 --steps-per-epoch 6",
        "--steps 18 --steps-per-epoch 18 --momentum 0.9",
        "--steps 18 --min-separation 5 --max-participations 3",
        "--steps 18 --steps-per-epoch 5 --max-participations 2",
    ] {
        let made = json(here, &format!("make blt {flags} --json --force --output m.safetensors"), 0);
        assert_eq!((&made["name"], &made["kind"]), (&"blt".into(), &"structured".into()));
        let verified = json(here, "verify m.safetensors --json", 0);
        assert_eq!((&verified["ok"], &verified["id"]), (&true.into(), &made["id"]));
        let found = json(here, "sensitivity m.safetensors --json", 0);
        assert_eq!(
            (&found["kind"], found["upper"].as_f64() <= made["sensitivity"].as_f64()),
            (&"exact".into(), true)
        );
        let noise = "noise m.safetensors --params 300 --seed 1 --noise-multiplier 1";
        antiphon(here, &format!("{noise} --force --output n.npy")).success();
        antiphon(here, "noise m.safetensors --check n.npy --seed 1").success();
    }
}

#[test]
fn a_long_run_has_its_exact_sensitivity_by_the_toeplitz_rule() {
    // 13,000 steps: under minimum separation the gram matrix would be too large.
    let folder = folder();
    let here = folder.path();
    let flags = "--steps 13000 --min-separation 1000 --max-participations 13";
    json(here, &format!("make blt {flags} --json --output m.safetensors"), 0);
    let found = json(here, "sensitivity m.safetensors --json", 0);
    assert_eq!((&found["kind"], &found["method"]), (&"exact".into(), &"toeplitz".into()), "{found}");
    assert_eq!(json(here, "verify m.safetensors --json", 0)["ok"], true);
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let here = folder.path();
    let run = "--epochs 3 --steps-per-epoch 5";
    for (line, expected) in [
        (format!("make blt --buffers 0 {run}"), "--buffers must be in 1..=16, got 0"),
        (format!("make blt --buffers 17 {run}"), "--buffers must be in 1..=16, got 17"),
        (format!("make blt --stamps 2 {run}"), "--stamps must be 1 for blt"),
        (
            format!("make blt {run} --reshuffled"),
            "blt is made for single participation, fixed epoch order and minimum separation",
        ),
    ] {
        let said = message(here, &line, 2);
        assert!(said.contains(expected), "{line}: {said}");
    }
}
