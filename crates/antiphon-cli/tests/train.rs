//! `antiphon train`: what a person sees, what a program reads, and runs that are killed.

mod common;

use antiphon::mechanism::family::Run;
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use common::{antiphon, folder, json, message, parameters, started};
use std::path::Path;
use std::process::{Child, Command};
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

#[test]
fn a_run_goes_on_only_as_it_was() {
    let folder = folder();
    let here = folder.path();
    // One run, where nobody asked for several.
    antiphon(here, &format!("{SHORT} --checkpoints first --log l")).success();
    let line = format!("{SHORT} --mechanism identity --checkpoints run");
    antiphon(here, &line).success();
    assert!(!here.join("run/key.json").exists(), "a finished run needs no key");
    assert!(message(here, &line, 2).contains("has a run already"));
    assert!(message(here, &format!("{line} --resume"), 2).contains("a run that is finished"));
    let text = message(here, &format!("{line} --resume --learning-rate 0.7"), 2);
    assert!(text.contains("learning_rate was 0.1 and is 0.7"), "{text}");
    let text = message(here, &format!("{line} --resume --seed 1"), 2);
    assert!(text.contains("seed was null and is 1"), "{text}");
    let text = message(here, &format!("{line} --resume --sampling reshuffled"), 2);
    assert!(text.contains("sampling was \"fixed\" and is \"reshuffled\""), "{text}");
    // Not after the optimizer, which would refuse so many steps.
    let long = "train --epochs 400 --batch-size 10 --mechanism optimal --resume --checkpoints";
    let text = message(here, &format!("{long} nothing"), 2);
    assert!(text.contains("there is no run to resume"), "{text}");
    let text = message(here, &format!("{long} first"), 2);
    assert!(text.contains("epochs was 3 and is 400") && !text.contains("noise_multiplier"), "{text}");
    let text = message(here, &format!("{long} run"), 2);
    assert!(text.contains("mechanism was [\"identity\"") && text.contains("and is [\"optimal\""), "{text}");
    let text = message(here, &format!("{SHORT} --checkpoints first --resume"), 2);
    assert!(text.contains("a run that is finished"), "{text}");
}

/// Waits until a file is there.
fn wait_for(path: &Path) {
    for _ in 0..6000 {
        if path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} never appeared", path.display());
}

/// Sends a signal, and gives what the process says and its exit status.
fn signalled(child: Child, signal: &str) -> (String, Option<i32>) {
    // The shell's own kill: not every machine has a program of that name.
    let status = Command::new("sh").args(["-c", &format!("kill {signal} {}", child.id())]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_the_run_and_says_how_to_continue_it() {
    let folder = folder();
    let here = folder.path();
    let line = "train --epochs 300 --batch-size 100 --mechanism dp-sgd --noise-multiplier 1 --seed 4";
    antiphon(here, &format!("{line} --checkpoints whole")).success();
    let child = started(here, &format!("{line} --checkpoints run --checkpoint-every 1 --log l"));
    wait_for(&here.join("run/checkpoint.safetensors"));
    let (said, status) = signalled(child, "-INT");
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains(" of 4500 steps; they are saved in run"), "{said}");
    let stopped = said.split("stopped after ").nth(1).unwrap().split(' ').next().unwrap();
    let command =
        said.lines().find_map(|line| line.strip_prefix("antiphon: to continue: antiphon ")).unwrap();
    assert_eq!(command, format!("{line} --checkpoints run --checkpoint-every 1 --log l --resume"));
    let resumed = antiphon(here, &command.replace("every 1", "every 900")).success();
    let said = String::from_utf8_lossy(&resumed.get_output().stderr).into_owned();
    assert!(said.contains(&format!("resuming run: {stopped} of 4500 steps done")), "{said}");
    assert!(parameters(here, "run") == parameters(here, "whole"));
    assert_eq!(std::fs::read_to_string(here.join("l")).unwrap().lines().count(), 300);
}

#[test]
#[cfg(unix)]
fn without_checkpoints_a_stop_says_that_nothing_was_kept() {
    let folder = folder();
    let line = "train --epochs 9000 --batch-size 100 --mechanism dp-sgd --noise-multiplier 1 --seed 4 --log l --json";
    let child = started(folder.path(), line);
    wait_for(&folder.path().join("l"));
    let (said, status) = signalled(child, "-TERM");
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("steps, without a checkpoint") && said.contains("nothing was saved"), "{said}");
    assert!(!said.contains("--resume"), "{said}");
}

/// What a kill leaves at every moment between the beginning of a command and the first checkpoint of its run.
#[test]
fn a_run_that_was_killed_while_it_began_needs_no_force() {
    let folder = folder();
    let here = folder.path();
    let line = format!("{SHORT} --mechanism identity --log l --checkpoints");
    // A log is begun after its folder: where the folder is refused there is none.
    std::fs::create_dir_all(here.join("refused")).unwrap();
    std::fs::write(here.join("refused/checkpoint.safetensors"), "").unwrap();
    assert!(message(here, &format!("{line} refused"), 2).contains("run.json is missing"));
    assert!(!here.join("l").exists());
    // Between key.json and run.json.
    std::fs::create_dir_all(here.join("run")).unwrap();
    std::fs::write(here.join("run/key.json"), "{\"antiphon_key\":1,\"ci").unwrap();
    antiphon(here, &format!("{line} run")).success();
    assert_eq!(std::fs::read_to_string(here.join("l")).unwrap().lines().count(), 3);
    // Between run.json and the log.
    std::fs::remove_file(here.join("l")).unwrap();
    let seeded = format!("{line} seeded --seed 1");
    antiphon(here, &seeded).success();
    std::fs::remove_file(here.join("l")).unwrap();
    std::fs::remove_file(here.join("seeded/checkpoint.safetensors")).unwrap();
    let resumed = antiphon(here, &format!("{seeded} --resume")).success();
    let said = String::from_utf8_lossy(&resumed.get_output().stderr).into_owned();
    assert!(said.contains("resuming seeded from the beginning"), "{said}");
    assert_eq!(std::fs::read_to_string(here.join("l")).unwrap().lines().count(), 3);
    // A log of something else is replaced only if asked for, and before the run begins.
    assert!(message(here, &format!("{line} other"), 2).contains("exists; use --force"));
    assert!(!here.join("other").exists());
    antiphon(here, &format!("{line} other --force")).success();
    assert_eq!(std::fs::read_to_string(here.join("l")).unwrap().lines().count(), 3);
}

#[test]
fn a_delta_that_allows_to_publish_an_example_is_warned_about() {
    let folder = folder();
    let line = format!("{SHORT} --mechanism identity --json");
    let large = "δ = 1e-3 is not below 1/N = 6.9e-4 for the N = 1440 training examples";
    let assert = antiphon(folder.path(), &format!("{line} --delta 1e-3")).success();
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(said.contains(&format!("warning: {large}")), "{said}");
    let value: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert!(value["statement"].as_str().unwrap().contains(&format!("WARNING: {large}")), "{value}");
    let text = antiphon(folder.path(), &format!("{SHORT} --mechanism identity --delta 1e-3")).success();
    assert!(String::from_utf8_lossy(&text.get_output().stdout).contains("WARNING: δ = 1e-3"));
    let assert = antiphon(folder.path(), &line).success();
    let output = assert.get_output();
    assert!(
        ![&output.stdout, &output.stderr].iter().any(|text| String::from_utf8_lossy(text).contains("1/N"))
    );
}

#[test]
fn equal_runs_give_equal_files() {
    let folder = folder();
    let here = folder.path();
    let line = format!("{SHORT} --mechanism identity --seed 3 --output");
    let file = |name: &str| {
        antiphon(here, &format!("{line} {name}")).success();
        std::fs::read(here.join(name)).unwrap()
    };
    let first = file("0");
    for name in ["1", "2", "3", "4", "5"] {
        assert!(file(name) == first, "{name}");
    }
}

/// The id and the first bits of a run of version 0.1, which called this mechanism tree.
#[test]
fn a_renamed_mechanism_has_one_name_and_the_noise_that_it_had() {
    let folder = folder();
    let here = folder.path();
    for (i, name) in ["tree", "tree-online"].into_iter().enumerate() {
        let line = format!(
            "train --epochs 2 --batch-size 100 --mechanism {name} --stamps 2 --seed 1 --log l{i} --output o{i} --json"
        );
        let value = json(here, &line, 0);
        assert_eq!(value["runs"][0]["mechanism"], "tree-online, 2 stamps");
        let log = std::fs::read_to_string(here.join(format!("l{i}"))).unwrap();
        let logged: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        assert_eq!(logged["mechanism"], "tree-online, 2 stamps");
        assert_eq!(logged["run"], "ad1892f3ca3579f0a2d5b0b61b1d7bc9ac0c725ab6dc8dce14f793ee42a3ebbf");
        let bytes = std::fs::read(here.join(format!("o{i}"))).unwrap();
        let first: Vec<String> =
            bytes[bytes.len() - 2600..][..16].iter().map(|x| format!("{x:02x}")).collect();
        assert_eq!(first.concat(), "c45067bb226d973c05dd593b9f3b58bc");
    }
    assert!(message(here, &format!("{SHORT} --compare tree,tree-online"), 2).contains("different names"));
    let value = json(here, &format!("{SHORT} --mechanism fft-optimal-decoder --stamps 1 --json"), 0);
    assert_eq!(value["runs"][0]["mechanism"], "fft-optimal");
}

#[test]
fn single_epoch_optima_can_be_trained_with() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make single-epoch --stamps 2 --epochs 3 --steps-per-epoch 15 --output m").success();
    let noise = "--noise-multiplier 2 --json";
    let value = json(here, &format!("{SHORT} --mechanism single-epoch --stamps 2 {noise}"), 0);
    assert_eq!(value["runs"][0]["mechanism"], "single-epoch, 2 stamps");
    let stddev = |value: &serde_json::Value, i: usize| value["runs"][i]["stddev"].as_f64().unwrap();
    let made = json(here, &format!("{SHORT} --mechanism m {noise}"), 0);
    assert!((stddev(&value, 0) / stddev(&made, 0) - 1.0).abs() < 1e-9, "{value} {made}");
    // The best number of stamps, beside others at the same ε.
    let value = json(here, &format!("{SHORT} --compare optimal,single-epoch,identity --epsilon 2 --json"), 0);
    let name = value["runs"][1]["mechanism"].as_str().unwrap();
    assert!(name.starts_with("single-epoch"), "{name}");
    assert_eq!(value["runs"][1]["epsilon"], value["runs"][0]["epsilon"]);
    // And where the paper's experiments are made: what is missing is the data, not the mechanism.
    let text = message(here, "reproduce fashion-mnist --mechanisms single-epoch,tree --data nowhere", 2);
    assert!(text.contains("data fetch fashion-mnist"), "{text}");
    let text = message(here, "reproduce fashion-mnist --mechanisms laplace --data nowhere", 2);
    assert!(text.contains("single-epoch") && text.contains("got laplace"), "{text}");
}

#[test]
fn an_experiment_refuses_all_of_its_numbers_before_it_begins() {
    let folder = folder();
    for (arguments, refused) in [
        ("--epsilon 8,0", "--epsilon must be positive and finite numbers, got 0"),
        ("--epsilon 8,8", "--epsilon must be each number once, got 8"),
        ("--learning-rates 0.1,-1", "--learning-rates must be positive and finite numbers, got -1"),
        ("--learning-rates 0.1,inf", "--learning-rates must be positive and finite numbers, got inf"),
        ("--momentums 0.9,1", "--momentums must be numbers in [0, 1), got 1"),
        ("--momentums NaN", "--momentums must be numbers in [0, 1), got NaN"),
        ("--epochs 0", "--epochs must be at least 1, got 0"),
    ] {
        // The data are missing, which would be said later.
        let text = message(folder.path(), &format!("reproduce cifar10 {arguments} --data nowhere"), 2);
        assert!(text.contains(refused), "{text}");
    }
}

#[test]
fn help_and_statement_are_plain() {
    let folder = folder();
    let here = folder.path();
    let help =
        |line: &str| String::from_utf8(antiphon(here, line).success().get_output().stdout.clone()).unwrap();
    let short = help("train -h");
    for line in ["  fixed   ", "  reshuffled   ", "  min-separation   ", "  poisson   ", "noise gains most"] {
        assert!(help("train --help").contains(line), "{line}");
    }
    assert!(!short.contains("above") && short.contains("Learning rate; gradients are summed"), "{short}");
    let text = help("train --epochs 1 --batch-size 1440 --mechanism identity --epsilon 1.23456789");
    assert!(text.contains("over 1 step: 1 epoch with"), "{text}");
    // At most seven significant digits, and no smaller than the ε that was accounted for.
    let shown = text.split("with ε = ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(shown.len() <= 8 && shown.parse::<f64>().unwrap() >= 1.234567, "{shown}");
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 3 --output m").success();
    antiphon(here, "make identity --steps 48 --steps-per-epoch 48 --output once").success();
    antiphon(here, "make identity --epochs 2 --steps-per-epoch 24 --output fixed").success();
    antiphon(here, "make identity --steps 48 --min-separation 20 --max-participations 2 --output apart")
        .success();
    // A name is a name, also where a file has it.
    std::fs::write(here.join("tree"), "no mechanism").unwrap();
    for (line, expected) in [
        (
            "train --epochs 2 --mechanism once --checkpoints c",
            "--mechanism must be made for what this run does: 2 epochs of 24 steps (48 steps), same order in every epoch, \
             got 48 steps, each example at most once",
        ),
        (
            "train --epochs 2 --mechanism fixed --sampling reshuffled",
            "--mechanism must be made for what this run does: 2 epochs of 24 steps (48 steps), a new order in every epoch",
        ),
        (
            "train --epochs 2 --mechanism apart --sampling min-separation --min-separation 19",
            "--mechanism must be made for what this run does: 48 steps, an example returns after 19 steps",
        ),
        (
            "train --sampling poisson --mechanism tree",
            "its privacy is not accounted for under Poisson sampling), got poisson",
        ),
        (
            "train --sampling poisson --compare dp-sgd,identity",
            "--sampling must be fixed, reshuffled or min-sep",
        ),
        (
            "train --sampling poisson --mechanism fixed",
            "--sampling must be fixed, reshuffled or min-separation",
        ),
        ("train --sampling fixed --mechanism dp-sgd", "--sampling must be poisson for dp-sgd"),
        (
            "train --sampling reshuffled --compare tree,dp-sgd",
            "dp-sgd, whose privacy is accounted for Poisson",
        ),
        ("train --sampling min-separation --mechanism dp-sgd", "got min-separation"),
        (
            "train --sampling poisson --mechanism dp-sgd-shuffled",
            "--sampling must be fixed for dp-sgd-shuffled",
        ),
        (
            "train --sampling reshuffled --mechanism optimal",
            "--mechanism must be left out, or another one, for --sampling reshuffled (the optimum is known for fixed order \
             and listed patterns only; without --mechanism per-epoch is used), got optimal",
        ),
        ("train --sampling min-separation --mechanism optimal", "for --sampling min-separation (the optimum"),
        (
            "train --min-separation 3",
            "--min-separation must be left out without --sampling min-separation, got 3",
        ),
        ("train --sampling fixed --max-participations 3", "--max-participations must be left out without"),
        (
            "train --sampling min-separation --min-separation 25",
            "--min-separation must be in 1..=24, the steps",
        ),
        (
            "train --sampling min-separation --min-separation 0",
            "--min-separation must be in 1..=24, the steps",
        ),
        (
            "train --sampling min-separation --max-participations 19",
            "--max-participations must be in 20..=40: every example takes part once in every epoch, got 19",
        ),
        ("train --dataset imagenet", "imagenet"),
        ("train --mechanism laplace", "--mechanism must be identity, tree-online,"),
        ("train --epsilon -1", "--epsilon must be"),
        ("train --delta 2", "--delta must be"),
        ("train --batch-size 0", "--batch-size must be in 1..=1440, got 0"),
        ("train --learning-rate nan", "--learning-rate must be positive and finite, got NaN"),
        ("train --momentum 1", "--momentum must be in [0, 1), got 1"),
        ("train --clip-norm 0", "--clip-norm must be in [1e-30, 1e30], got 0"),
        ("train --epochs 0", "--epochs must be at least 1, got 0"),
        ("train --repeats 0", "--repeats must be in 1..=10000, got 0"),
        ("train --held-out 1440", "--held-out must be in 1..1440, got 1440"),
        ("train --model cifar10", "--model must be linear or small for grey images, got cifar10"),
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
    assert!(!here.join("c").exists(), "a run that cannot begin has no folder");
    // A mechanism protects also what is stricter than what it was made for.
    antiphon(here, "train --epochs 2 --mechanism apart").success();
    antiphon(here, "train --epochs 2 --mechanism apart --sampling min-separation --min-separation 21")
        .success();
}

/// The units of every step of a log, in the order of their numbers.
fn batches(here: &Path, log: &str) -> Vec<Vec<u64>> {
    let text = std::fs::read_to_string(here.join(log)).unwrap();
    let units = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut units: Vec<u64> = serde_json::from_value(line["units"].clone()).unwrap();
        units.sort_unstable();
        units
    };
    text.lines().map(units).collect()
}

/// A mechanism file for a schema.
fn made_for(schema: antiphon::Result<Schema>, path: &Path) {
    let (schema, workload) = (schema.unwrap(), Workload::prefix_sum(45));
    let run = Run { stamps: 3, ..Run::new(&schema, &workload, &|_| true) };
    let mechanism = antiphon::make::make(antiphon::families::SINGLE_EPOCH, &run).unwrap();
    antiphon::file::write(path, &mechanism, false).unwrap();
}

/// Every sampling is what it is called: the statement says so, the log agrees, and stricter schemas are violated.
#[test]
fn every_sampling_trains_and_is_clean_under_audit() {
    let folder = folder();
    let here = folder.path();
    made_for(Schema::epochs(3, 15), &here.join("fixed"));
    made_for(Schema::reshuffled(3, 15), &here.join("reshuffled"));
    made_for(Schema::min_separation(45, 7, 3), &here.join("min-separation"));
    let trained = |flags: &str, log: &str| {
        let line = format!("{SHORT} {flags} --epsilon 2 --seed 5 --participation-log {log}.who --json");
        let value = json(here, &line, 0);
        assert_eq!(value["runs"].as_array().unwrap().len(), 1, "no demonstration: {value}");
        let epsilon = value["runs"][0]["epsilon"].as_f64().unwrap();
        assert!((1.99..=2.0).contains(&epsilon) && value["runs"][0]["valid"] == true, "{value}");
        value
    };
    let audited = |log: &str, mechanism: &str, run: &serde_json::Value, code: i32| {
        let z = &run["runs"][0]["noise_multiplier"];
        let line = format!(
            "audit {log}.who --mechanism {mechanism} --noise-multiplier {z} --delta 1e-4 --units 1440 --json"
        );
        json(here, &line, code)
    };
    for (name, flags, mechanism, words) in [
        ("fixed", "--sampling fixed --mechanism optimal", "optimal", "the same batches in the same order"),
        ("reshuffled", "--sampling reshuffled", "per-epoch", "a new order in every epoch"),
        ("min-separation", "--sampling min-separation", "single-epoch", "after 7 steps at the earliest"),
    ] {
        let run = trained(flags, name);
        assert_eq!(run["runs"][0]["sampling"], name);
        assert!(run["runs"][0]["mechanism"].as_str().unwrap().starts_with(mechanism), "{run}");
        assert!(run["statement"].as_str().unwrap().contains(words), "{run}");
        assert_eq!(run["runs"][0]["settings"]["learning_rate"], 0.03, "that of correlated noise");
        let found = audited(name, name, &run, 0);
        assert!(found["ok"] == true && found["violation_count"] == 0 && found["steps"] == 45, "{found}");
        assert!(found["epsilon_realised"].as_f64().unwrap() <= 2.0 + 1e-6, "{found}");
        let steps = batches(here, &format!("{name}.who"));
        assert_eq!(steps[..15] == steps[15..30], name == "fixed");
        if name != "fixed" {
            assert!(audited(name, "fixed", &run, 1)["violation_count"].as_u64().unwrap() > 100);
        }
    }
    let run = trained("--sampling poisson", "poisson");
    assert_eq!(
        (&run["runs"][0]["sampling"], &run["runs"][0]["mechanism"]),
        (&"poisson".into(), &"dp-sgd".into())
    );
    assert!(run["statement"].as_str().unwrap().contains("Poisson sampling"), "{run}");
    let line = "audit poisson.who --sampling-rate 0.06944444444444445 --compositions 45 --units 1440 --noise-multiplier 1 \
                --delta 1e-4 --json";
    assert_eq!(json(here, line, 0)["ok"], true);
    // What nobody asked for is as it was.
    let plain = json(here, &format!("{SHORT} --compare tree,dp-sgd,dp-sgd-shuffled --json"), 0);
    let samplings: Vec<&str> =
        plain["runs"].as_array().unwrap().iter().map(|run| run["sampling"].as_str().unwrap()).collect();
    assert_eq!(samplings, ["fixed", "poisson", "fixed"]);
}

/// The log of a run is what `audit` reads, and a run that followed its schema has the ε that it stated.
#[test]
fn a_run_is_audited_by_its_log() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make tree-online --epochs 3 --steps-per-epoch 15 --output m").success();
    let train = "train --epochs 3 --batch-size 100 --mechanism m --epsilon 4 --delta 1e-5 --participation-log who.jsonl";
    let run = json(here, &format!("{train} --json"), 0)["runs"][0].clone();
    let line = format!(
        "audit who.jsonl --mechanism m --delta 1e-5 --units 1440 --noise-multiplier {}",
        run["noise_multiplier"]
    );
    let value = json(here, &format!("{line} --json"), 0);
    assert!(value["ok"] == true && value["steps"] == 45 && value["units"] == 1440, "{value}");
    assert_eq!(value["epsilon_realised"], value["epsilon_stated"]);
    let [stated, trained] = [&value["epsilon_stated"], &run["epsilon"]].map(|x| x.as_f64().unwrap());
    assert!((stated / trained - 1.0).abs() < 1e-9, "{stated} {trained}");
    assert!(message(here, train, 2).contains("exists; use --force"));
    antiphon(here, &format!("{train} --force")).success();
    let several = format!("{train} --repeats 2");
    assert!(message(here, &several, 2).contains("--participation-log must be left out"));
    assert!(
        message(here, &format!("{train} --force --log who.jsonl"), 2).contains("another file than --log")
    );
    // The log of another run does not go on, and is not touched.
    let kept = |folder: &str| {
        format!(
            "train --epochs 3 --batch-size 100 --mechanism m --checkpoints {folder} --participation-log {folder}.who"
        )
    };
    antiphon(here, &kept("one")).success();
    let foreign = std::fs::read(here.join("one.who")).unwrap();
    // As if it had been killed before its end: a finished run has no key any more.
    let line = format!("{} --seed 3", kept("three"));
    antiphon(here, &line).success();
    std::fs::copy(here.join("one.who"), here.join("three.who")).unwrap();
    let said = message(here, &format!("{line} --resume"), 2);
    assert!(said.contains("is the participation log of another run"), "{said}");
    let without = line.split(" --participation-log").next().unwrap();
    let resumed = antiphon(here, &format!("{without} --seed 3 --resume")).success();
    let said = String::from_utf8_lossy(&resumed.get_output().stderr).into_owned();
    assert!(said.contains("the participation log of this run is not continued"), "{said}");
    assert_eq!(std::fs::read(here.join("three.who")).unwrap(), foreign);
    // Real Poisson samples look like it; shuffled batches do not.
    let sampled = |mechanism: &str, code: i32| {
        let line = format!(
            "train --epochs 20 --batch-size 100 --mechanism {mechanism} --participation-log s.jsonl --force --seed 1"
        );
        antiphon(here, &line).success();
        let line = "audit s.jsonl --sampling-rate 0.06944444444444445 --compositions 300 --units 1440 --noise-multiplier 1 --delta 1e-5";
        let value = json(here, &format!("{line} --json"), code);
        assert!(value["epsilon_realised"].is_null() && value["sensitivity_realised"].is_null(), "{value}");
    };
    sampled("dp-sgd", 0);
    sampled("dp-sgd-shuffled", 1);
}
