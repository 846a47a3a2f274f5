//! `reproduce federated` on a few users: what it prints and keeps, and that a kill loses nothing.

mod common;

use common::{antiphon, folder, json, message};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Sixty users who write short sentences.
fn text(folder: &Path) {
    let words = ["a", "cat", "sat", "on", "the", "mat", "and", "saw", "dogs", "run", "."];
    let line = |user: usize, line: usize| {
        let words: Vec<&str> =
            (0..3 + (user + line) % 9).map(|i| words[(i * (1 + user % 2) + line) % 11]).collect();
        serde_json::json!({ "user": format!("u{user:02}"), "text": words.join(" ") }).to_string() + "\n"
    };
    let lines: String = (0..60).flat_map(|user| (0..5).map(move |i| line(user, i))).collect();
    std::fs::write(folder.join("users.jsonl"), lines).unwrap();
}

const BASE: &str = "reproduce federated --part runs --dataset users.jsonl --epsilon 8";

/// What was printed, with one space between two words.
fn words(printed: &[u8]) -> String {
    String::from_utf8_lossy(printed).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kept(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("out/federated.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row<'a>(runs: &'a Value, name: &str) -> &'a Value {
    runs["rows"].as_array().unwrap().iter().find(|row| row["algorithm"] == name).unwrap()
}

#[test]
fn runs_are_compared_kept_and_continued() {
    let folder = folder();
    let here = folder.path();
    text(here);
    let line = format!(
        "{BASE} --mechanisms mf6,dp-fedavg-assumed --learning-rates 0.25 --repeats 2 --epochs 2 --output out --json"
    );
    let value = json(here, &line, 0);
    let runs = &value["runs"];
    assert_eq!((value["ok"].as_bool(), runs["rows"].as_array().unwrap().len()), (Some(true), 2));
    let (mf6, assumed) = (row(runs, "mf6"), row(runs, "dp-fedavg-assumed"));
    assert_eq!(
        (&mf6["name"], &mf6["valid"], &assumed["valid"]),
        (&"MF6,6e".into(), &true.into(), &false.into())
    );
    assert_eq!((mf6["loss"]["count"].as_u64(), mf6["choice"].as_array().unwrap().len()), (Some(2), 0));
    assert!(mf6["loss"]["min"].as_f64().unwrap() <= mf6["loss"]["mean"].as_f64().unwrap());
    assert!(mf6["epsilon"].as_f64().unwrap() <= 8.0);
    let difference = &runs["differences"][0];
    assert_eq!(
        (&difference["algorithm"], &difference["minus"]),
        (&"mf6".into(), &"dp-fedavg-assumed".into())
    );
    assert!(difference["loss"]["interval"].is_array() && difference["accuracy"]["interval"].is_array());
    // The paper's figures, which are of another task.
    let paper = runs["paper"]["cells"].as_array().unwrap();
    let cell = paper.iter().find(|cell| cell["algorithm"] == "mf6" && cell["epsilon"] == 17.65).unwrap();
    assert_eq!(cell["accuracy"], 0.25265);
    assert_eq!(runs["paper"]["note"], "StackOverflow, another task: not comparable");
    for name in ["federated-loss", "federated-accuracy", "federated-zeroed"] {
        assert!(
            here.join(format!("out/{name}.svg")).exists() && here.join(format!("out/{name}.png")).exists()
        );
    }
    // A line for every run, seed by seed.
    let lines = kept(here);
    let order: Vec<_> = lines
        .iter()
        .map(|line| (line["algorithm"].as_str().unwrap(), line["seed"].as_u64().unwrap()))
        .collect();
    assert_eq!(order, [("mf6", 1), ("dp-fedavg-assumed", 1), ("mf6", 2), ("dp-fedavg-assumed", 2)]);
    for line in &lines {
        assert!(line["loss"].as_f64().unwrap() > 0.0 && line["accuracy_with_end"].is_f64());
        assert_eq!(line["zeroed"].as_array().unwrap().len(), line["steps"].as_u64().unwrap() as usize);
        assert_eq!(
            (&line["client"]["most_tokens"], &line["diverged"], &line["held_out"]),
            (&64.into(), &Value::Null, &false.into())
        );
        assert_eq!(line["users"], runs["train_users"]);
    }
    // Once more, as text: nothing is trained again, and what is not valid says so.
    let line = line.replace("--json", "--force");
    let again = antiphon(here, &line).success();
    let words = words(&again.get_output().stdout);
    assert!(
        words.contains("DP-FedAvg, assumed Poisson *") && words.contains("* not a valid guarantee"),
        "{words}"
    );
    assert!(words.contains("StackOverflow, another task: not comparable"), "{words}");
    assert_eq!(kept(here), lines);
    assert!(
        std::fs::read_to_string(here.join("out/federated-loss.svg"))
            .unwrap()
            .contains("not a valid guarantee")
    );
}

/// The rate is chosen on validation users; a rate that diverges counts as the worst, and is told.
#[test]
fn rates_are_chosen_and_divergence_ends_nothing() {
    let folder = folder();
    let here = folder.path();
    text(here);
    let line = format!(
        "{BASE} --mechanisms unnoised,mf6 --learning-rates 1e60,0.25 --repeats 1 --epochs 1 --output out --json"
    );
    let value = json(here, &line, 0);
    for name in ["mf6", "unnoised"] {
        let row = row(&value["runs"], name);
        assert_eq!((&row["settings"]["learning_rate"], &row["diverged"]), (&0.25.into(), &0.into()), "{row}");
        assert!(row["choice"][0]["loss"].is_null() && row["choice"][1]["loss"].is_f64());
        assert!(row["choice"][0]["diverged"].as_str().unwrap().contains("diverged"));
    }
    let unnoised = row(&value["runs"], "unnoised");
    assert_eq!(
        (&unnoised["private"], &unnoised["valid"], &unnoised["epsilon"]),
        (&false.into(), &false.into(), &Value::Null)
    );
    let lines = kept(here);
    let held_out: Vec<bool> = lines.iter().map(|line| line["held_out"].as_bool().unwrap()).collect();
    assert_eq!(held_out, [true, true, true, true, false, false]);
    assert!(lines.iter().all(|line| line["algorithm"] == "mf6" || line["epsilon"].is_null()));
    // Only a diverging rate: the row says so instead of a loss, and the command ends well.
    let line = line.replace("1e60,0.25", "1e60") + " --force";
    let row = row(&json(here, &line, 0)["runs"], "mf6").clone();
    assert_eq!(
        (&row["loss"], &row["diverged"], &row["accuracy"]["mean"]),
        (&Value::Null, &1.into(), &0.0.into())
    );
    // No noise is called what it is.
    let text = antiphon(here, &line.replace("--json", "")).success();
    let words = words(&text.get_output().stdout);
    assert!(
        words.contains("NOT private: updates are clipped, and there is no noise")
            && words.contains("1 of 1 runs diverged"),
        "{words}"
    );
}

/// Killed at any moment, the same command goes on and comes to the same figures.
#[test]
fn a_killed_sweep_is_continued() {
    let folder = folder();
    let here = folder.path();
    text(here);
    let line = format!(
        "{BASE} --mechanisms mf6,mf1 --learning-rates 0.25 --repeats 2 --epochs 4 --output out --json"
    );
    let straight = json(here, &line.replace("--output out ", ""), 0);
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .current_dir(here)
        .args(line.split_whitespace())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Until it has written something.
    let begin = Instant::now();
    while std::fs::read_dir(here.join("out")).map_or(0, Iterator::count) == 0
        && begin.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let again = json(here, &(line + " --force"), 0);
    for name in ["mf6", "mf1"] {
        let figures = |value: &Value| row(&value["runs"], name)["loss"].clone();
        assert_eq!(figures(&straight), figures(&again), "{name}");
    }
    assert_eq!(kept(here).len(), 4);
}

#[test]
fn bad_input_is_refused_before_the_work() {
    let folder = folder();
    let here = folder.path();
    text(here);
    for (more, expected) in [
        ("--mechanisms optimal", "--mechanisms must be of mf6, mf1,"),
        ("--mechanisms mf6,mf6", "each mechanism once"),
        ("--learning-rates 0.5,0.5", "--learning-rates must be each number once, got 0.5"),
        ("--repeats 0", "--repeats must be in 1..=1000"),
        ("--learning-rates 0.5,-1", "--learning-rates must be positive and finite numbers, got -1"),
    ] {
        let message = message(here, &format!("{BASE} {more}"), 2);
        assert!(message.contains(expected), "{message}");
    }
    let message = message(here, "reproduce federated --part runs --epsilon 0", 2);
    assert!(message.contains("--epsilon must be positive and finite numbers, got 0"), "{message}");
}

/// The paper's mechanism needs no data.
#[test]
fn the_papers_mechanism_and_noise_multipliers_are_reproduced() {
    let folder = folder();
    let value = json(folder.path(), "reproduce federated --part mechanism --output out --json", 0);
    let mechanism = &value["mechanism"];
    assert_eq!((value["ok"].as_bool(), mechanism["steps"].as_u64()), (Some(true), Some(2052)));
    let rows = mechanism["noise_multipliers"].as_array().unwrap();
    let printed: Vec<_> = rows
        .iter()
        .map(|row| (row["run"].as_str().unwrap(), row["paper_noise_multiplier"].as_str().unwrap()))
        .collect();
    let expected = [
        ("MF", "0.341"),
        ("MF", "0.600"),
        ("MF", "2.231"),
        ("DP-SGD", "0.402"),
        ("DP-SGD", "0.491"),
        ("DP-SGD", "0.757"),
    ];
    assert_eq!(printed, expected);
    assert!(rows.iter().all(|row| row["agrees"] == true), "{rows:?}");
    assert!(mechanism["gap"].as_f64().unwrap() <= 1e-3);
    // From the best to the worst.
    let losses: Vec<f64> =
        mechanism["mechanisms"].as_array().unwrap().iter().map(|row| row["loss"].as_f64().unwrap()).collect();
    assert!(losses.is_sorted() && losses.len() == 4, "{losses:?}");
    assert!(folder.path().join("out/federated-variance.svg").exists());
}
