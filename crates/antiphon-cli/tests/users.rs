//! `antiphon train --federated`: what a person sees, what a program reads, and what is refused.

mod common;

use common::{antiphon, folder, json, message};
use std::path::Path;

const SHORT: &str =
    "train --federated --dataset users.jsonl --epochs 2 --clients-per-round 10 --width 4 --context 2";

/// Eighty users with three lines each; some have none, one, or a very long one.
fn write_users(here: &Path) {
    let mut text = String::new();
    for user in 0..80 {
        for line in 0..3 {
            let words = match (user, line) {
                (5, _) => String::new(),
                (6, 1..) => continue,
                (7, 0) => "sun ".repeat(1_000_000),
                _ => format!("the sun {} over the sea .", ["sets", "rises", "hangs"][(user + line) % 3]),
            };
            text += &(serde_json::json!({ "user": format!("u{user}"), "text": words }).to_string() + "\n");
        }
    }
    std::fs::write(here.join("users.jsonl"), text).unwrap();
}

#[test]
fn json_has_its_fields_and_the_statement_speaks_of_users() {
    let folder = folder();
    let here = folder.path();
    write_users(here);
    let value = json(here, &format!("{SHORT} --compare optimal,identity,dp-sgd,dp-sgd-shuffled --json"), 0);
    assert_eq!((&value["unit"], &value["dataset"]), (&"user".into(), &"users.jsonl".into()));
    let runs = value["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["mechanism"].as_str().unwrap()).collect();
    assert_eq!(names, ["optimal", "identity", "dp-sgd", "dp-sgd-shuffled"]);
    for run in runs {
        for field in
            ["accuracy", "loss", "epsilon", "delta", "noise_multiplier", "steps", "zeroed", "seconds"]
        {
            assert!(run[field].is_number(), "{field} in {run}");
        }
        assert_eq!(run["zeroed_by_round"].as_array().unwrap().len() as u64, run["steps"].as_u64().unwrap());
        assert_eq!(run["valid"], run["mechanism"] != "dp-sgd-shuffled");
        assert_eq!(run["settings"]["in_workload"], true);
        for field in ["accuracy", "accuracy_with_end", "accuracy_without_punctuation", "loss"] {
            assert!(run["epochs"][1]["test"][field].is_number(), "{field} in {run}");
        }
    }
    let statement = value["statement"].as_str().unwrap();
    for words in [
        "differ in one user",
        "A user is all text of one name in the data.",
        "The update of every user was clipped to norm 1 as a whole",
        "the vocabulary (its words were counted in the training text)",
        "numbers of clipped and zeroed updates",
    ] {
        assert!(statement.contains(words), "{words} in {statement}");
    }
    // A public list is covered, and named.
    std::fs::write(here.join("words"), "the\nsun\nsea\n.\n").unwrap();
    let value = json(here, &format!("{SHORT} --vocabulary words --post-processing --json"), 0);
    let statement = value["statement"].as_str().unwrap();
    assert!(statement.contains("from the file words, which is treated as public"), "{statement}");
    assert!(!statement.contains("counted in the training text"), "{statement}");
    assert_eq!(value["runs"][0]["settings"]["in_workload"], false);
    assert_eq!(value["tested_on"], "test");
}

/// ε of a run whose vocabulary was counted in the data holds given that vocabulary: said first, and on standard error.
#[test]
fn a_vocabulary_from_the_data_is_a_condition() {
    let folder = folder();
    let here = folder.path();
    write_users(here);
    let line = format!("{SHORT} --mechanism identity --validation --cooldown 0:1 --output m.safetensors");
    let assert = antiphon(here, &line).success();
    let [text, remark] = [&assert.get_output().stdout, &assert.get_output().stderr]
        .map(|bytes| String::from_utf8(bytes.clone()).unwrap().replace('\n', " "));
    let condition = "This holds only if the vocabulary is taken as public";
    let place = text.find(condition).expect("the condition");
    assert!(place < text.find("The whole run is one Gaussian mechanism").unwrap(), "{text}");
    assert!(remark.contains(condition), "{remark}");
    for words in [
        "validation users",
        "validation accuracy",
        "accuracy and loss on the validation users, whom ε does not protect",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // The file that is released has neither the folder of the data nor figures of users whom ε does not protect.
    std::fs::create_dir(here.join("secret")).unwrap();
    std::fs::rename(here.join("users.jsonl"), here.join("secret/users.jsonl")).unwrap();
    let line = line.replace("users.jsonl", "secret/users.jsonl").replace("m.safetensors", "n.safetensors");
    antiphon(here, &line).success();
    let model = std::fs::read(here.join("n.safetensors")).unwrap();
    let text = String::from_utf8_lossy(&model);
    assert!(text.contains("users.jsonl") && !text.contains("secret") && text.contains(r#""accuracy":"""#));
}

#[test]
fn logs_pass_the_audit_and_early_returns_do_not() {
    let folder = folder();
    let here = folder.path();
    write_users(here);
    for (name, flags) in
        [("fixed", "--mechanism optimal"), ("rested", "--sampling min-separation --silent 0.3")]
    {
        let line = format!("{SHORT} {flags} --seed 1 --participation-log {name} --json");
        let value = json(here, &line, 0);
        let steps = value["runs"][0]["steps"].as_u64().unwrap();
        let schema = match name {
            "fixed" => format!("--steps {steps} --steps-per-epoch {}", steps / 2),
            _ => format!("--steps {steps} --min-separation {} --max-participations 3", (steps / 2) / 2),
        };
        antiphon(here, &format!("make identity {schema} --output {name}.m")).success();
        antiphon(here, &format!("audit {name} --mechanism {name}.m --noise-multiplier 1 --delta 1e-3"))
            .success();
        // The first users come back in the second round.
        let text = std::fs::read_to_string(here.join(name)).unwrap();
        let units = |line: &str| line[line.find('[').unwrap()..].to_string();
        let lines: Vec<&str> = text.lines().collect();
        let forged = text.replacen(&units(lines[1]), &units(lines[0]), 1);
        std::fs::write(here.join("forged"), forged).unwrap();
        antiphon(here, &format!("audit forged --mechanism {name}.m --noise-multiplier 1 --delta 1e-3"))
            .code(1);
    }
}

#[test]
fn without_arguments_it_shows_what_correlated_noise_gains() {
    let folder = folder();
    let value = json(folder.path(), "train --federated --seed 1 --epochs 2 --json", 0);
    assert_eq!((&value["dataset"], &value["unit"]), (&"poets".into(), &"user".into()));
    assert!(value["train_users"].as_u64().unwrap() >= 8_000, "{value}");
    let loss = |i: usize| value["runs"][i]["loss"].as_f64().unwrap();
    assert_eq!(
        (&value["runs"][0]["mechanism"], &value["runs"][1]["mechanism"]),
        (&"optimal".into(), &"identity".into())
    );
    assert!(loss(0) < loss(1), "{value}");
    assert!(value["statement"].as_str().unwrap().contains("The vocabulary is a public list"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file without being asked");
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let here = folder.path();
    write_users(here);
    std::fs::write(here.join("empty"), "\n").unwrap();
    std::fs::write(here.join("bad.jsonl"), b"{\"user\": 1, \"text\": \"a \xff\"}\n").unwrap();
    std::fs::write(here.join("none.jsonl"), "").unwrap();
    std::fs::write(here.join("one.jsonl"), "{\"user\": 1, \"text\": \"a b\"}\n").unwrap();
    std::fs::write(here.join("list.jsonl"), "[1, 2]\n").unwrap();
    std::fs::write(here.join("twice.jsonl"), "{\"user\": 1, \"user\": 2, \"text\": \"a b\"}\n").unwrap();
    let quiet = |user| format!("{{\"user\": {user}, \"text\": \"\"}}\n");
    std::fs::write(
        here.join("quiet.jsonl"),
        (0..99).map(quiet).collect::<String>() + "{\"user\": 1, \"text\": \"a\"}\n",
    )
    .unwrap();
    for (flags, expected) in [
        ("--clients-per-round 0", "in 1..="),
        ("--clients-per-round 1000", "in 1..="),
        ("--client-rate 0", "--client-rate must be positive and finite, got 0"),
        ("--client-tokens 0", "--client-tokens must be at least 1, got 0"),
        ("--client-batch-size 0", "--client-batch-size must be at least 1, got 0"),
        ("--client-batch-size 5000", "--client-batch-size must be in 1..=4096, got 5000"),
        ("--zero-threshold -1", "--zero-threshold must be positive and finite, got -1"),
        ("--silent 1", "--silent must be in [0, 1), got 1"),
        ("--width 0", "width must be"),
        ("--context 0", "context must be"),
        ("--vocabulary-size 3", "vocabulary-size must be at least 4"),
        ("--vocabulary empty", "empty"),
        ("--vocabulary nowhere", "nowhere"),
        ("--unit conversation-side", "expected a field \"conversation\" on every line"),
        ("--batch-size 10", "--batch-size"),
        ("--held-out 10", "--held-out"),
        ("--model linear", "--model"),
        ("--initial normal", "--initial"),
        ("--sampling min-separation --min-separation 600", "--min-separation must be in 1..="),
        ("--sampling min-separation --max-participations 1", "--max-participations must be at least"),
        ("--sampling poisson --mechanism optimal", "not accounted for under Poisson sampling"),
        ("--dataset bad.jsonl", "UTF-8"),
        ("--dataset none.jsonl", "none.jsonl"),
        ("--dataset one.jsonl", "one.jsonl"),
        ("--dataset list.jsonl", "line 1"),
        (
            "--dataset twice.jsonl",
            "line 1: expected an object {\"user\": …, \"text\": …}, found duplicate field `user`",
        ),
        ("--dataset quiet.jsonl", "expected text of the users to test on"),
        ("--dataset .", "--dataset"),
        ("--width 30000", "--width must be such that there are at most 67108864 parameters"),
        ("--dataset nowhere.jsonl", "nowhere.jsonl"),
        ("--dataset digits", "poets"),
    ] {
        let dataset = if flags.contains("--dataset") { "" } else { "--dataset users.jsonl" };
        let line = format!("train --federated {dataset} {flags}");
        let text = message(here, &line, 2);
        assert!(text.contains(expected), "{flags}: {text}");
    }
    let text = message(here, "train --dataset poets", 2);
    assert!(text.contains("--federated"), "{text}");
    let text = message(here, "train --client-rate 2", 2);
    assert!(text.contains("--federated"), "{text}");
}
