//! `antiphon noise`: shards, kills, keys, tables and their checks, and what is refused.

mod common;

use common::{antiphon, folder, json, message};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const STEPS: usize = 40;

/// One mechanism of each way in which rows are made.
fn mechanisms(folder: &Path) -> [&'static str; 4] {
    antiphon(folder, "optimize --epochs 4 --steps-per-epoch 10 --output dense").success();
    for (family, stamps) in [("tree-online", 2), ("fft-optimal", 3)] {
        let line =
            format!("make {family} --stamps {stamps} --epochs 4 --steps-per-epoch 10 --output {family}");
        antiphon(folder, &line).success();
    }
    antiphon(folder, "make comb-blt --epochs 4 --steps-per-epoch 10 --output comb-blt").success();
    ["dense", "tree-online", "fft-optimal", "comb-blt"]
}

fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn shards_are_the_whole_byte_for_byte() {
    let folder = folder();
    let here = folder.path();
    for name in mechanisms(here) {
        let common = format!("noise {name} --params 1000 --seed 7 --force --stddev 1");
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
        antiphon(here, &format!("{} --output a", common.replace("--stddev 1", "--stddev 2"))).success();
        assert_ne!(bytes(here, "a"), whole);
        assert_eq!(json(here, &format!("noise {name} --params 5 --stddev 1 --json"), 0)["bytes"], 20 * STEPS);
    }
    let value = json(here, "noise dense --params 9 --noise-multiplier 0.5 --clip-norm 3 --json", 0);
    assert!((value["stddev"].as_f64().unwrap() - 1.5).abs() < 1e-6, "{value}");
}

#[test]
fn a_kill_loses_nothing() {
    let folder = folder();
    let here = folder.path();
    for name in mechanisms(here) {
        // A NumPy file is no different.
        let ending = if name == "dense" { "npy" } else { "bin" };
        let (output, whole) = (format!("{name}.{ending}"), format!("whole.{ending}"));
        let line = format!("noise {name} --params 20000 --stddev 1 --key {name}.key");
        antiphon(here, &format!("{line} --output {whole} --force")).success();
        let line = format!("{line} --output {output} --memory 1");
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
            if here.join(&output).exists() {
                // Killed between its name and its note's end: a file appears when it is whole, so what is compared below is final.
                std::fs::remove_file(here.join(format!("{output}.partial.json"))).ok();
                break;
            }
        }
        assert!(kills > 0, "{name} was never killed");
        assert!(bytes(here, &output) == bytes(here, &whole), "{name}, {kills} kills");
        assert!(!here.join(format!("{output}.partial")).exists());
        assert!(!here.join(format!("{output}.partial.json")).exists());
        assert_eq!(
            json(here, &format!("noise {name} --check {output} --key {name}.key --json"), 0)["ok"],
            true
        );
    }
}

/// Leaves an unfinished job behind.
fn unfinished(here: &Path, line: &str, output: &str) {
    // It comes after its note.
    killed(here, line, &here.join(format!("{output}.partial")));
}

/// Kills a command as soon as a file is there.
fn killed(here: &Path, line: &str, awaited: &Path) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .current_dir(here)
        .args(line.split_whitespace())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !awaited.exists() {
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
    let value = json(here, "noise m --params 100 --stddev 1 --output a --json", 0);
    assert_eq!((&value["key_file"], &value["seeded"]), (&"a.key".into(), &false.into()));
    let first = bytes(here, "a");
    assert!(message(here, "noise m --params 100 --stddev 1 --output a", 2).contains("exists; use --force"));
    std::fs::remove_file(here.join("a")).unwrap();
    let text = message(here, "noise m --params 100 --stddev 1 --output a", 2);
    assert!(text.contains("a.key: exists, and is the key of other noise"), "{text}");
    antiphon(here, "noise m --params 100 --stddev 1 --output again --key a.key").success();
    assert_eq!(bytes(here, "again"), first);
    antiphon(here, "noise m --params 100 --stddev 1 --output a --force").success();
    assert_ne!(bytes(here, "a"), first, "a fresh key");
    let text = message(here, "noise m --params 100 --stddev 1 --output s --rows 0:3", 2);
    assert!(text.contains("all shards need the same key, so give --key FILE (or --seed)"), "{text}");

    // An unfinished file belongs to its job.
    unfinished(here, "noise m --params 300000 --stddev 1 --memory 1 --output u", "u");
    let text = message(here, "noise m --params 200000 --stddev 1 --output u --force", 2);
    assert!(text.contains("another job") && text.contains("remove it and its key"), "{text}");
    let value = json(here, "noise m --params 300000 --stddev 1 --output u --json", 0);
    assert_eq!(value["shape"], serde_json::json!([STEPS, 300_000]));
    unfinished(here, "noise m --params 300000 --stddev 1 --memory 1 --seed 1 --output v", "v");
    let text = message(here, "noise m --params 300000 --stddev 1 --seed 2 --output v", 2);
    assert!(text.contains("use --force to replace it"), "{text}");
    antiphon(here, "noise m --params 3000 --stddev 1 --seed 2 --output v --force").success();
}

#[test]
fn seeds_are_named_for_what_they_are() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 1 --steps-per-epoch 3 --output m").success();
    let assert = antiphon(here, "noise m --params 4 --stddev 1 --seed 1 --output a").success();
    let remark = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(remark.contains("not private against anyone who knows or guesses the seed"), "{remark}");
    antiphon(here, "noise m --params 4 --stddev 1 --seed 1 --output b --cipher chacha20").success();
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
        ("noise m --params 5", "--noise-multiplier Z, or --epsilon E --delta D, or --stddev"),
        (
            "noise m --params 5 --epsilon 1",
            "--delta must be given together with --epsilon: in (0, 1), well below",
        ),
        ("noise m --params 5 --delta 1e-5", "--epsilon must be given together with --delta, got nothing"),
        ("noise m --params 5 --epsilon 1 --delta 2", "--delta must be in (0, 1), got 2"),
        ("noise m --params 5 --epsilon 1 --stddev 2", "--epsilon must be left out where --stddev is given"),
        (
            "noise m --params 5 --noise-multiplier 1 --delta 1e-5",
            "--delta must be left out where --noise-multiplier is given",
        ),
        ("noise m --params 5 --stddev -1", "--stddev must be positive and finite, got -1"),
        ("noise m --params 5 --noise-multiplier 0", "--noise-multiplier must be positive and finite, got 0"),
        ("noise m --params 5 --noise-multiplier 1 --stddev 1", "--stddev must be left out"),
        (
            "noise m --params 5 --clip-norm 2 --stddev 1",
            "--clip-norm must be left out where --stddev is given",
        ),
        ("noise m --params 5 --stddev 1e38", "--stddev must be at most 3.55e37, so that no number"),
        (
            "noise m --params 5 --noise-multiplier 1 --clip-norm 1e38",
            "the stddev, noise multiplier · clip norm · sensitivity, must be at most 3.55e37",
        ),
        ("noise m --params 5 --stddev 1 --output o.npz", "--output must be a name that does not end in .npz"),
        ("noise m --params 5 --stddev 1 --output -", "--key must be given with --output - (or --seed)"),
        ("noise m --check o", "o.json: the description of the table cannot be read"),
        ("noise m --check o --stddev 1", "cannot be used with"),
        ("noise m --params 5 --stddev 1 --output o --reuse-key", "required arguments were not provided"),
        (
            "noise m --params 5 --stddev 1 --seed 1 --key k --output o",
            "--key must be left out where --seed is given",
        ),
        ("noise m --params 5 --cipher rc4", "cipher must be aes256-ctr or chacha20, got rc4"),
        ("noise m --self-test --params 100", "--params must be at least 1024 for a test, got 100"),
        ("noise implicit --params 5 --stddev 1", "an implicit mechanism has no stream of noise yet"),
        ("noise nothing --params 5", "nothing"),
    ] {
        let text = message(here, line, 2);
        assert!(text.contains(expected), "{line}: {text}");
    }
    let value = json(here, "noise m --params 5 --stddev 1 --seed 1 --output - --json", 2);
    assert!(value["error"]["message"].as_str().unwrap().contains("--json must be left out"), "{value}");
    let text = message(here, "noise m --params 5 --stddev 1 --output no/o", 3);
    assert!(text.contains("its folder does not exist"), "{text}");
    std::fs::write(here.join("k"), "{}").unwrap();
    let text = message(here, "noise m --params 5 --stddev 1 --key k --output o", 2);
    assert!(text.contains("is not a key"), "{text}");
}

fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

#[test]
fn noise_for_a_privacy_level() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make tree-online --epochs 3 --steps-per-epoch 4 --output m").success();
    let line = "noise m --params 7 --epsilon 8 --delta 1e-6 --clip-norm 2";
    let value = json(here, &format!("{line} --json"), 0);
    let accounted = json(here, "account m --epsilon 8 --delta 1e-6 --json", 0);
    let number = |value: &serde_json::Value, name: &str| value[name].as_f64().unwrap();
    assert_eq!(value["noise_multiplier"], accounted["noise_multiplier"]);
    assert_eq!(value["sensitivity"], accounted["sensitivity"]);
    assert_eq!((number(&value, "epsilon"), number(&value, "delta")), (8.0, 1e-6));
    let exact = 2.0 * number(&value, "noise_multiplier") * number(&value, "sensitivity");
    let stddev = number(&value, "stddev");
    assert!(stddev >= exact && stddev < exact * (1.0 + 1e-14), "{stddev} {exact}");
    let shown = text(&antiphon(here, line).success().get_output().stdout);
    for part in ["ε = 8 at δ = 1e-6", "noise multiplier 0.65", "clip norm 2", "sensitivity ", "zero-out"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A file that lies gets no noise, whichever way it is asked for.
    let path = here.join("m");
    let mut mechanism = antiphon::file::read(&path).unwrap().into_parts();
    mechanism.claims.sensitivity *= 0.9;
    antiphon::file::write(&path, &mechanism.clone().into(), true).unwrap();
    for amount in ["--epsilon 8 --delta 1e-6", "--noise-multiplier 1"] {
        let refused = json(here, &format!("noise m --params 7 {amount} --output o --json"), 1);
        assert_eq!(refused["ok"], false);
        let line = format!("noise m --params 7 {amount} --seed 1 --output -");
        let said = message(here, &line, 1); // and nothing on standard output
        assert!(said.contains("fails verification"), "{said}");
    }
    assert_eq!(std::fs::read_dir(here).unwrap().count(), 1, "no key, no noise");
}

#[test]
fn a_key_file_says_what_it_is_used_for() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make tree-online --epochs 2 --steps-per-epoch 20 --output m").success();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 20 --output other").success();
    let value = json(here, "noise m --params 100 --stddev 2 --key k --rows 0:10 --output a --json", 0);
    let recorded = || -> serde_json::Value { serde_json::from_slice(&bytes(here, "k")).unwrap() };
    let expected = serde_json::json!([
        { "kind": "noise", "noise_id": value["noise_id"], "stddev": 2.0, "params": 100 },
    ]);
    assert_eq!(recorded()["uses"], expected);
    // Other shards of the same noise.
    antiphon(here, "noise m --params 100 --stddev 2 --key k --rows 10:40 --output b").success();
    antiphon(here, "noise m --params 100 --stddev 2 --key k --coords 3:7 --output c").success();
    assert_eq!(recorded()["uses"], expected);
    let fingerprint = value["key_fingerprint"].as_str().unwrap();
    let secret = recorded()["key"].as_str().unwrap().to_owned();
    for line in [
        "noise m --params 101 --stddev 2 --key k --output d",
        "noise m --params 100 --stddev 3 --key k --output d",
        "noise other --params 100 --stddev 2 --key k --output d",
        "noise m --params 100 --stddev 3 --key k --output -",
    ] {
        let said = message(here, line, 2);
        assert!(said.contains("already used for noise") && said.contains("--reuse-key"), "{said}");
        assert!(said.contains(fingerprint) && !said.contains(&secret), "{said}");
    }
    assert_eq!(recorded()["uses"], expected);
    assert!(!here.join("d").exists() && !here.join("d.partial").exists());
    antiphon(here, "noise m --params 100 --stddev 3 --key k --output d --reuse-key").success();
    assert_eq!(recorded()["uses"].as_array().unwrap().len(), 2);
    // The key beside a table is recorded as well.
    antiphon(here, "noise m --params 100 --stddev 2 --output e").success();
    let said = message(here, "noise m --params 100 --stddev 3 --key e.key --output f", 2);
    assert!(said.contains("already used for noise"), "{said}");
    // The record is there as soon as any number can be.
    unfinished(here, "noise m --params 300000 --stddev 1 --memory 1 --output u --key l", "u");
    let said = message(here, "noise m --params 300000 --stddev 2 --output v --key l", 2);
    assert!(said.contains("already used for noise"), "{said}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(here.join("k")).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn keys_of_training_and_keys_without_a_record() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 3 --output m").success();
    let key = format!("{{\"antiphon_key\":1,\"cipher\":\"chacha20\",\"key\":\"{}\"}}", "ab".repeat(32));
    std::fs::write(here.join("old"), &key).unwrap();
    let output = antiphon(here, "noise m --params 9 --stddev 1 --key old --output a").success();
    assert!(text(&output.get_output().stderr).contains("had no record"));
    assert!(text(&bytes(here, "old")).contains("\"uses\""));
    let train = "train --epochs 60 --batch-size 100 --mechanism identity --epsilon 1 --checkpoints run";
    killed(here, train, &here.join("run/run.json"));
    let said = message(here, "noise m --params 9 --stddev 1 --key run/key.json --output b", 2);
    assert!(said.contains("already used for a training run"), "{said}");
}

#[test]
fn processes_at_the_same_time_share_a_key() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 4 --output m").success();
    let children: Vec<_> = (0..8)
        .map(|i| {
            let line = format!("noise m --params 50 --stddev 1 --key k --rows {i}:{} --output s{i}", i + 1);
            Command::new(env!("CARGO_BIN_EXE_antiphon"))
                .current_dir(here)
                .args(line.split_whitespace())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    children.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
    antiphon(here, "noise m --params 50 --stddev 1 --key k --output whole").success();
    let shards: Vec<u8> = (0..8).flat_map(|i| bytes(here, &format!("s{i}"))).collect();
    assert_eq!(shards, bytes(here, "whole"));
}

#[test]
fn a_table_says_what_it_is() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make tree-online --epochs 2 --steps-per-epoch 20 --output m").success();
    let common = "noise m --params 100 --epsilon 4 --delta 1e-5 --key k --rows 5:40 --coords 10:90";
    let raw = json(here, &format!("{common} --output t.bin --json"), 0);
    let shown = text(&antiphon(here, &format!("{common} --output t.npy")).success().get_output().stdout);
    assert!(shown.contains("numpy.load(\"t.npy\", mmap_mode=\"r\")"), "{shown}");
    let (npy, plain) = (bytes(here, "t.npy"), bytes(here, "t.bin"));
    assert_eq!(npy[128..], plain);
    let array = antiphon::npy::read(&here.join("t.npy")).unwrap();
    assert_eq!((array.nrows(), array.ncols()), (35, 80));
    let last = f32::from_le_bytes(*plain.last_chunk().unwrap());
    assert_eq!(array[(34, 79)] as f32, last);
    let about: serde_json::Value = serde_json::from_slice(&bytes(here, "t.npy.json")).unwrap();
    assert_eq!(about["shape"], serde_json::json!([35, 80]));
    assert_eq!(about["rows"], serde_json::json!([5, 40]));
    assert_eq!(about["coordinates"], serde_json::json!([10, 90]));
    assert_eq!((&about["params"], &about["offset"]), (&100.into(), &128.into()));
    assert_eq!((&about["dtype"], &about["seeded"]), (&"<f4".into(), &false.into()));
    assert_eq!((&about["epsilon"], &about["delta"]), (&4.0.into(), &1e-5.into()));
    assert_eq!(about["id"], json(here, "verify m --json", 0)["id"]);
    for name in
        ["noise_id", "key_fingerprint", "cipher", "version", "stddev", "noise_multiplier", "clip_norm"]
    {
        assert!(!about[name].is_null() && about[name] == raw[name], "{name}: {about} {raw}");
    }
    let secret: serde_json::Value = serde_json::from_slice(&bytes(here, "k")).unwrap();
    assert!(!text(&bytes(here, "t.npy.json")).contains(secret["key"].as_str().unwrap()));
    // The name may belong to somebody else.
    std::fs::write(here.join("mine.json"), "{}").unwrap();
    let said = message(here, &format!("{common} --output mine"), 2);
    assert!(said.contains("mine.json: exists; use --force"), "{said}");
    assert_eq!(bytes(here, "mine.json"), b"{}");
    // One that a kill has left, just before the table got its name, does not.
    antiphon(here, &format!("{common} --output again")).success();
    std::fs::remove_file(here.join("again")).unwrap();
    antiphon(here, &format!("{common} --output again")).success();
}

#[test]
fn a_table_is_checked_against_its_key() {
    let folder = folder();
    let here = folder.path();
    for (number, name) in mechanisms(here).into_iter().enumerate() {
        let output = ["t.npy", "t.bin", "u.npy", "u.bin"][number];
        antiphon(here, &format!("noise {name} --params 300 --stddev 1.5 --output {output}")).success();
        let value = json(here, &format!("noise {name} --check {output} --json"), 0);
        assert_eq!((&value["ok"], &value["places"]), (&true.into(), &66.into()));
        // The last number, by one bit.
        let good = bytes(here, output);
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        std::fs::write(here.join(output), &bad).unwrap();
        let said =
            text(&antiphon(here, &format!("noise {name} --check {output}")).code(1).get_output().stdout);
        assert!(said.contains("FAILED: the number at step 39, coordinate 299 differs"), "{said}");
        // Zeros in half of it are missed once in 2⁶⁴ checks.
        let mut bad = good.clone();
        bad[good.len() / 4..good.len() * 3 / 4].fill(0);
        std::fs::write(here.join(output), &bad).unwrap();
        let value = json(here, &format!("noise {name} --check {output} --json"), 1);
        assert!(value["reason"].as_str().unwrap().contains("the number at step"), "{value}");
        std::fs::write(here.join(output), &good[..good.len() - 1]).unwrap();
        let value = json(here, &format!("noise {name} --check {output} --json"), 1);
        assert!(value["reason"].as_str().unwrap().contains("bytes where its description says"), "{value}");
        std::fs::write(here.join(output), &good).unwrap();
        let value = json(here, &format!("noise {name} --check {output} --seed 1 --json"), 1);
        assert!(value["reason"].as_str().unwrap().contains("a different key"), "{value}");
    }
    let value = json(here, "noise dense --check t.bin --json", 1);
    assert!(value["reason"].as_str().unwrap().contains("a different mechanism"), "{value}");
    // The header, and the standard deviation that is stated.
    let mut bad = bytes(here, "t.npy");
    bad[20] ^= 1;
    std::fs::write(here.join("t.npy"), &bad).unwrap();
    assert!(json(here, "noise dense --check t.npy --json", 1)["reason"].as_str().unwrap().contains("header"));
    let about = text(&bytes(here, "u.npy.json")).replace("\"stddev\": 1.5", "\"stddev\": 2.5");
    std::fs::write(here.join("u.npy.json"), about).unwrap();
    let value = json(here, "noise fft-optimal --check u.npy --json", 1);
    assert!(value["reason"].as_str().unwrap().contains("standard deviation"), "{value}");
    // A seeded one needs its seed.
    antiphon(here, "noise dense --params 30 --stddev 1 --seed 4 --cipher chacha20 --output s").success();
    antiphon(here, "noise dense --check s --seed 4").success();
    antiphon(here, "noise dense --check s --seed 5").code(1);
    assert!(message(here, "noise dense --check s", 2).contains("s.key"));
}

#[test]
fn rows_go_to_standard_output() {
    let folder = folder();
    let here = folder.path();
    for name in mechanisms(here) {
        let line = format!("noise {name} --params 600 --stddev 1 --key {name}.key");
        antiphon(here, &format!("{line} --output whole --force")).success();
        let streamed = antiphon(here, &format!("{line} --output - --memory 1")).success();
        assert!(streamed.get_output().stdout == bytes(here, "whole"), "{name}");
        let part = antiphon(here, &format!("{line} --output - --rows 7:9 --coords 250:300")).success();
        antiphon(here, &format!("{line} --output part --rows 7:9 --coords 250:300 --force")).success();
        assert!(part.get_output().stdout == bytes(here, "part"), "{name}");
    }
    assert!(!here.join("-").exists() && !here.join("-.key").exists());
    // Who stops reading gets no complaint.
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .current_dir(here)
        .args("noise tree-online --params 1e6 --stddev 1 --seed 1 --output -".split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(!said.contains("roken pipe") && !said.contains("panicked"), "{said}");
    assert_eq!(output.status.code(), Some(141));
}

#[test]
fn a_disk_that_is_too_small_is_found_out_first() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 1 --steps-per-epoch 30 --output m").success();
    let output = antiphon(here, "noise m --params 1e15 --stddev 1 --output a.npy").failure();
    let said = text(&output.get_output().stderr);
    assert!(
        said.contains("the table needs 120000000000000128 bytes more") && said.contains(" free ("),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(here).unwrap().count(), 1, "no key, no note, no table");
}
