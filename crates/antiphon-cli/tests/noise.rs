//! `antiphon noise`: shards, kills, keys and what is refused.

mod common;

use common::{antiphon, folder, json, message};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const STEPS: usize = 40;

/// One mechanism of each way in which rows are made.
fn mechanisms(folder: &Path) -> [&'static str; 3] {
    antiphon(folder, "optimize --epochs 4 --steps-per-epoch 10 --output dense").success();
    for (family, stamps) in [("tree-online", 2), ("fft-optimal", 3)] {
        let line =
            format!("make {family} --stamps {stamps} --epochs 4 --steps-per-epoch 10 --output {family}");
        antiphon(folder, &line).success();
    }
    ["dense", "tree-online", "fft-optimal"]
}

fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn shards_are_the_whole_byte_for_byte() {
    let folder = folder();
    let here = folder.path();
    for name in mechanisms(here) {
        let common = format!("noise {name} --params 1000 --seed 7 --force");
        let value = json(here, &format!("{common} --output whole --json"), 0);
        assert_eq!(value["shape"], serde_json::json!([STEPS, 1000]));
        assert_eq!((&value["dtype"], &value["seeded"]), (&"<f4".into(), &true.into()));
        let whole = bytes(here, "whole");
        assert_eq!(whole.len(), STEPS * 4000);
        antiphon(here, &format!("{common} --rows 0:13 --threads 1 --output a")).success();
        antiphon(here, &format!("{common} --rows 13:40 --threads 5 --memory 1 --output b")).success();
        assert!(whole == [bytes(here, "a"), bytes(here, "b")].concat(), "{name}, rows");
        antiphon(here, &format!("{common} --coords 0:300 --threads 2 --output a")).success();
        antiphon(here, &format!("{common} --coords 300:1000 --output b")).success();
        let (left, right) = (bytes(here, "a"), bytes(here, "b"));
        let rows: Vec<u8> =
            left.chunks(1200).zip(right.chunks(2800)).flat_map(|(a, b)| [a, b].concat()).collect();
        assert!(whole == rows, "{name}, coordinates");
        // Standard deviation scales, and the sensitivity of an optimal mechanism is one.
        antiphon(here, &format!("{common} --stddev 2 --output a")).success();
        assert_ne!(bytes(here, "a"), whole);
        assert_eq!(json(here, &format!("noise {name} --params 5 --json"), 0)["bytes"], 20 * STEPS);
    }
    let value = json(here, "noise dense --params 9 --noise-multiplier 0.5 --clip-norm 3 --json", 0);
    assert!((value["stddev"].as_f64().unwrap() - 1.5).abs() < 1e-6, "{value}");
}

#[test]
fn a_kill_loses_nothing() {
    let folder = folder();
    let here = folder.path();
    for name in mechanisms(here) {
        let line = format!("noise {name} --params 20000 --output {name}.bin --memory 1 --key {name}.key");
        antiphon(here, &format!("noise {name} --params 20000 --output whole --key {name}.key --force"))
            .success();
        let (mut kills, mut wait) = (0, 5);
        loop {
            let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
                .current_dir(here)
                .args(line.split_whitespace())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            // Later each time, and past the end at last.
            std::thread::sleep(Duration::from_millis(wait));
            wait += 10 + wait / 2;
            if child.try_wait().unwrap().is_some_and(|status| status.success()) {
                break;
            }
            child.kill().unwrap(); // SIGKILL where there are signals
            if child.wait().unwrap().success() {
                break;
            }
            kills += 1;
            assert!(!here.join(format!("{name}.bin")).exists(), "a file appears when it is whole");
        }
        assert!(kills > 0, "{name} was never killed");
        assert!(bytes(here, &format!("{name}.bin")) == bytes(here, "whole"), "{name}, {kills} kills");
        assert!(!here.join(format!("{name}.bin.partial")).exists());
        assert!(!here.join(format!("{name}.bin.partial.json")).exists());
    }
}

/// Leaves an unfinished job behind: what a kill leaves, made by hand.
fn unfinished(here: &Path, line: &str, output: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .current_dir(here)
        .args(line.split_whitespace())
        .spawn()
        .unwrap();
    // It comes after its note.
    let partial = here.join(format!("{output}.partial"));
    while !partial.exists() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(child.try_wait().unwrap().is_none(), "ended before it was killed");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_key_serves_one_job() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make tree-online --epochs 2 --steps-per-epoch 20 --output m").success();
    let value = json(here, "noise m --params 100 --output a --json", 0);
    assert_eq!((&value["key_file"], &value["seeded"]), (&"a.key".into(), &false.into()));
    let first = bytes(here, "a");
    assert!(message(here, "noise m --params 100 --output a", 2).contains("exists; use --force"));
    std::fs::remove_file(here.join("a")).unwrap();
    let text = message(here, "noise m --params 100 --output a", 2);
    assert!(text.contains("a.key: exists, with the key of other noise"), "{text}");
    antiphon(here, "noise m --params 100 --output again --key a.key").success();
    assert_eq!(bytes(here, "again"), first);
    antiphon(here, "noise m --params 100 --output a --force").success();
    assert_ne!(bytes(here, "a"), first, "a fresh key");
    let text = message(here, "noise m --params 100 --output s --rows 0:3", 2);
    assert!(text.contains("the same --key FILE (or --seed)"), "{text}");

    // An unfinished file belongs to its job.
    unfinished(here, "noise m --params 300000 --memory 1 --output u", "u");
    let text = message(here, "noise m --params 200000 --output u --force", 2);
    assert!(text.contains("another job") && text.contains("remove it and its key"), "{text}");
    let value = json(here, "noise m --params 300000 --output u --json", 0);
    assert_eq!(value["shape"], serde_json::json!([STEPS, 300_000]));
    unfinished(here, "noise m --params 300000 --memory 1 --seed 1 --output v", "v");
    let text = message(here, "noise m --params 300000 --seed 2 --output v", 2);
    assert!(text.contains("use --force to replace it"), "{text}");
    antiphon(here, "noise m --params 3000 --seed 2 --output v --force").success();
}

#[test]
fn seeds_are_named_for_what_they_are() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 1 --steps-per-epoch 3 --output m").success();
    let assert = antiphon(here, "noise m --params 4 --seed 1 --output a").success();
    let remark = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(remark.contains("not private against anyone who knows or guesses the seed"), "{remark}");
    antiphon(here, "noise m --params 4 --seed 1 --output b --cipher chacha20").success();
    assert_ne!(bytes(here, "a"), bytes(here, "b"));
}

#[test]
fn self_tests_pass() {
    let folder = folder();
    let here = folder.path();
    for name in mechanisms(here) {
        let value = json(here, &format!("noise {name} --self-test --seed 3 --params 2048 --json"), 0);
        assert_eq!((&value["passed"], &value["alpha"]), (&true.into(), &1e-6.into()));
        assert_eq!(value["tests"].as_array().unwrap().len(), 22);
    }
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 3 --output m").success();
    antiphon(here, "optimize --epochs 2 --steps-per-epoch 3 --implicit --output implicit").success();
    for (line, expected) in [
        ("noise m", "--params must be given: the number of parameters of the model, got nothing"),
        ("noise m --params 0", "must be a whole number in 1..=1e15, such as 1e6, got 0"),
        ("noise m --params 5 --rows 4:9", "--rows must be within 0:6, got 4:9"),
        ("noise m --params 5 --coords 0:6", "--coords must be within 0:5, got 0:6"),
        ("noise m --params 5 --rows 4", "must be two whole numbers, the first one smaller, got 4"),
        ("noise m --params 5 --stddev -1", "--stddev must be positive and finite, got -1"),
        ("noise m --params 5 --noise-multiplier 0", "--noise-multiplier must be positive and finite, got 0"),
        ("noise m --params 5 --noise-multiplier 1 --stddev 1", "--stddev must be left out"),
        (
            "noise m --params 5 --clip-norm 2",
            "--clip-norm must be given together with --noise-multiplier only",
        ),
        ("noise m --params 5 --seed 1 --key k --output o", "--key must be left out where --seed is given"),
        ("noise m --params 5 --cipher rc4", "cipher must be aes256-ctr or chacha20, got rc4"),
        ("noise m --self-test --params 100", "--params must be at least 1024 for a test, got 100"),
        ("noise implicit --params 5", "an implicit mechanism has no stream of noise yet"),
        ("noise nothing --params 5", "nothing"),
    ] {
        let text = message(here, line, 2);
        assert!(text.contains(expected), "{line}: {text}");
    }
    let text = message(here, "noise m --params 5 --output no/o", 3);
    assert!(text.contains("its folder does not exist"), "{text}");
    std::fs::write(here.join("k"), "{}").unwrap();
    let text = message(here, "noise m --params 5 --key k --output o", 2);
    assert!(text.contains("is not a key"), "{text}");
}
