//! `antiphon train`: what a person sees, what a program reads, and runs that are killed.

mod common;

use common::{antiphon, folder, json, message};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHORT: &str = "train --epochs 3 --batch-size 100";

#[test]
fn without_arguments_it_shows_what_correlated_noise_gains() {
    let folder = folder();
    let assert = antiphon(folder.path(), "train --seed 1").success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    for part in ["digits: linear model, 650 parameters", "optimal", "identity", "at the same ε", "zero-out"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("40 runs were made on the same data"), "{text}");
    let remark = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(remark.contains("a seeded run is not private"), "{remark}");
    let value = json(folder.path(), "train --seed 1 --json", 0);
    let mean = |i: usize| value["summary"][i]["accuracy"].as_f64().unwrap();
    assert!(mean(0) > 0.85 && mean(0) > mean(1) + 0.1, "{value}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file without being asked");
}

#[test]
fn json_has_its_fields_and_epsilon_is_that_of_account() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "optimize --epochs 3 --steps-per-epoch 15 --output m.safetensors").success();
    let line =
        format!("{SHORT} --compare optimal,m.safetensors,dp-sgd --noise-multiplier 1.3 --delta 1e-5 --json");
    let value = json(here, &line, 0);
    assert_eq!(value["dataset"], "digits");
    assert!(value["statement"].as_str().unwrap().contains("differentially private"));
    let runs = value["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        for field in ["accuracy", "epsilon", "delta", "noise_multiplier", "steps", "seconds"] {
            assert!(run[field].is_number(), "{field} in {run}");
        }
        assert_eq!(run["steps"], 45);
    }
    let names: Vec<&str> = runs.iter().map(|run| run["mechanism"].as_str().unwrap()).collect();
    assert_eq!(names, ["optimal", "m.safetensors", "dp-sgd"]);
    let accounted = json(here, "account m.safetensors --noise-multiplier 1.3 --delta 1e-5 --json", 0);
    assert_eq!(runs[0]["epsilon"], accounted["epsilon_upper"]);
    assert_eq!(runs[1]["epsilon"], accounted["epsilon_upper"]);
    let rate = 100.0 / 1440.0;
    let line = format!(
        "account --noise-multiplier 1.3 --delta 1e-5 --sampling-rate {rate} --compositions 45 --json"
    );
    assert_eq!(runs[2]["epsilon"], json(here, &line, 0)["epsilon_upper"]);
    // A budget is kept.
    let value = json(here, &format!("{SHORT} --mechanism tree --epsilon 3 --json"), 0);
    let epsilon = value["runs"][0]["epsilon"].as_f64().unwrap();
    assert!((2.99..=3.0).contains(&epsilon), "{epsilon}");
}

#[test]
fn the_shuffled_baseline_is_labelled_wherever_it_appears() {
    let folder = folder();
    let line = format!("{SHORT} --mechanism dp-sgd-shuffled --epsilon 2 --force --picture p");
    let text =
        String::from_utf8(antiphon(folder.path(), &line).success().get_output().stdout.clone()).unwrap();
    assert!(text.contains("* not a valid guarantee") && text.contains("NOT A VALID GUARANTEE"), "{text}");
    let value = json(folder.path(), &format!("{line} --json"), 0);
    assert_eq!(value["runs"][0]["valid"], false);
    let picture = std::fs::read_to_string(folder.path().join("p.svg")).unwrap();
    assert!(picture.contains("not a valid guarantee"), "{picture}");
    assert!(value["statement"].as_str().unwrap().contains("NOT A VALID GUARANTEE"));
}

#[test]
fn logs_pictures_and_parameters_are_written() {
    let folder = folder();
    let here = folder.path();
    let line = format!("{SHORT} --mechanism optimal --seed 3 --log l --picture p --output model.safetensors");
    let text = String::from_utf8(antiphon(here, &line).success().get_output().stdout.clone()).unwrap();
    assert!(text.contains("test accuracy") && text.contains("    3      45"), "a table of epochs: {text}");
    let log = std::fs::read_to_string(here.join("l")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[2]["step"], &lines[2]["mechanism"]), (&45.into(), &"optimal".into()));
    assert!(here.join("p.svg").exists() && here.join("p.png").exists());
    let bytes = std::fs::read(here.join("model.safetensors")).unwrap();
    let head = String::from_utf8_lossy(&bytes[..bytes.len() - 2600]);
    assert!(
        head.contains("statement") && head.contains(r#"\"dataset\":[\"digits\",\"\"]"#),
        "no hash of the data: {head}"
    );
    assert!(message(here, &line, 2).contains("exists; use --force"));
    antiphon(here, &format!("{line} --force")).success();
}

/// Everything but the times.
fn parameters(here: &Path, name: &str) -> Vec<u8> {
    let bytes = std::fs::read(here.join(name).join("checkpoint.safetensors")).unwrap();
    bytes[bytes.len() - 8 * 650..].to_vec()
}

/// Kills a run at seeded moments, each time with another number of threads, until it is through; says how often.
fn kill_until_done(here: &Path, line: &str, folder: &str, seed: u64) -> usize {
    let (mut kills, mut state) = (0, seed);
    loop {
        let resume = if here.join(folder).join("run.json").exists() { " --resume" } else { "" };
        let threads = 1 + kills % 3;
        let line = format!("{line} --checkpoints {folder} --checkpoint-every 1 --threads {threads}{resume}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .current_dir(here)
            .args(line.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // While the mechanism is made, in the middle of steps and of writes; later each time, so that it ends.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(60 + (state >> 33) % (120 + 30 * kills as u64)));
        if child.try_wait().unwrap().is_some_and(|status| status.success()) {
            return kills;
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            return kills;
        }
        kills += 1;
        assert!(kills < 500, "the run never ends");
    }
}

fn kills_lose_nothing(epochs: usize, least: usize) {
    let folder = folder();
    let here = folder.path();
    for (i, mechanism) in ["optimal", "dp-sgd"].into_iter().enumerate() {
        let line = format!("train --epochs {epochs} --batch-size 100 --mechanism {mechanism} --seed 4");
        let whole = format!("{mechanism}-whole");
        antiphon(here, &format!("{line} --checkpoints {whole}")).success();
        let mut kills = 0;
        for turn in 0.. {
            let killed = format!("{mechanism}-killed-{turn}");
            kills += kill_until_done(here, &line, &killed, 7 + i as u64 + 10 * turn);
            assert!(parameters(here, &killed) == parameters(here, &whole), "{mechanism}, {kills} kills");
            if kills >= least {
                break;
            }
        }
        println!("{mechanism}: {kills} kills");
    }
}

#[test]
fn a_kill_loses_nothing() {
    kills_lose_nothing(6, 2);
}

#[test]
#[ignore = "at least forty kills over hundreds of checkpoints, for a release build"]
fn many_kills_lose_nothing() {
    kills_lose_nothing(40, 20);
}

#[test]
fn a_run_goes_on_only_as_it_was() {
    let folder = folder();
    let here = folder.path();
    // One run, where nobody asked for several.
    antiphon(here, &format!("{SHORT} --checkpoints first --log l")).success();
    let line = format!("{SHORT} --mechanism identity --checkpoints run");
    antiphon(here, &line).success();
    assert!(!here.join("run/key.json").exists(), "the key has served");
    assert!(message(here, &line, 2).contains("has a run already"));
    assert!(message(here, &format!("{line} --resume"), 2).contains("is a run that is over"));
    let text = message(here, &format!("{line} --resume --learning-rate 0.7"), 2);
    assert!(text.contains("learning_rate was 0.1 and is 0.7"), "{text}");
    let text = message(here, &format!("{line} --resume --seed 1"), 2);
    assert!(text.contains("seed was null and is 1"), "{text}");
    let text = message(here, &format!("{SHORT} --mechanism tree --checkpoints nothing --resume"), 2);
    assert!(text.contains("no run to go on with"), "{text}");
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 3 --output m").success();
    antiphon(here, "make identity --steps 48 --steps-per-epoch 48 --output once").success();
    // A name is a name, also where a file has it.
    std::fs::write(here.join("tree"), "no mechanism").unwrap();
    for (line, expected) in [
        ("train --epochs 2 --mechanism once", "step 24 is refused: example"),
        ("train --dataset imagenet", "imagenet"),
        ("train --mechanism laplace", "--mechanism must be optimal, tree,"),
        ("train --epsilon -1", "--epsilon must be"),
        ("train --delta 2", "--delta must be"),
        ("train --batch-size 0", "--batch-size must be in 1..=1440, got 0"),
        ("train --learning-rate nan", "--learning-rate must be positive and finite, got NaN"),
        ("train --momentum 1", "--momentum must be in [0, 1), got 1"),
        ("train --clip-norm 0", "--clip-norm must be in [1e-30, 1e30], got 0"),
        ("train --epochs 0", "--epochs must be at least 1, got 0"),
        ("train --repeats 0", "--repeats must be in 1..=10000, got 0"),
        ("train --held-out 1440", "--held-out must be in 1..1440, got 1440"),
        ("train --model cifar10", "model must be linear or small for grey images, got cifar10"),
        ("train --mechanism optimal --stamps 2", "--stamps must be left out"),
        ("train --compare tree,identity,tree", "--compare must be mechanisms of different names, got tree"),
        ("train --mechanism m", "--mechanism must be made for 480 steps (20 epochs of 24), got 6 steps"),
        (
            "train --repeats 2 --checkpoints c",
            "--checkpoints must be left out where more than one run is given",
        ),
        ("train --dataset cifar10 --data nowhere", "antiphon data fetch cifar10"),
    ] {
        let text = message(here, line, 2);
        assert!(text.contains(expected), "{line}: {text}");
    }
}
