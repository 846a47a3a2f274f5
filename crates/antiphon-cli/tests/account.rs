//! `account` as a user meets it: figures, statements, and what is refused.

mod common;

use antiphon::accounting::gaussian;
use assert_cmd::Command;
use common::{antiphon, folder, json, message};
use serde_json::Value;

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn statement(value: &Value) -> String {
    let sentences = value["statement"].as_array().unwrap();
    sentences.iter().map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn epsilon_of_a_sampled_run() {
    let run = "--noise-multiplier 0.402 --sampling-rate 0.00291990 --compositions 2052 --delta 1e-6";
    let value = json(folder().path(), &format!("account {run} --json"), 0);
    // dp-accounting 0.6.0 has 17.627 on a grid of 1e-3.
    let (upper, lower) = (number(&value, "epsilon_upper"), number(&value, "epsilon_lower"));
    assert!((upper / 17.627 - 1.0).abs() < 5e-3 && lower < upper && lower > 17.5, "{lower} {upper}");
    assert_eq!((number(&value, "noise_multiplier"), number(&value, "delta")), (0.402, 1e-6));
    assert_eq!((&value["adjacency"], &value["unit"]), (&"zero-out".into(), &"example".into()));
    assert_eq!(value["event"]["events"][0]["count"], 2052);
    assert_eq!(value["event"]["events"][0]["event"]["kind"], "poisson-sampled");
    assert!(value["rho"].is_null() && value["epsilon_from_zcdp"].is_null());
    let text = statement(&value);
    for part in ["add-or-remove", "must be Poisson sampled", "hyper-parameters", "upper bound", "was checked"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("No amplification"), "{text}");
}

#[test]
fn the_third_is_found_from_the_other_two() {
    let folder = folder();
    let value = json(folder.path(), "account --epsilon 8 --delta 1e-6 --json", 0);
    let z = number(&value, "noise_multiplier");
    let exact = gaussian::noise_multiplier(8.0, 1e-6).unwrap();
    assert!(z >= exact && z < exact * (1.0 + 1e-8), "{z} {exact}");
    assert!(number(&value, "epsilon_upper") <= 8.0 && number(&value, "epsilon_lower") > 7.999);
    assert!((number(&value, "rho") * 2.0 * z * z - 1.0).abs() < 1e-12);
    assert!((number(&value, "mu") * z - 1.0).abs() < 1e-12);
    assert!(number(&value, "epsilon_from_zcdp") > 8.0);
    assert_eq!(value["event"]["kind"], "gaussian");
    let text = statement(&value);
    assert!(text.contains("No amplification") && text.contains("same order in every epoch"), "{text}");
    // Around the triangle: δ of that noise at that ε.
    let value = json(folder.path(), &format!("account --noise-multiplier {z} --epsilon 8 --json"), 0);
    let delta = number(&value, "delta_upper");
    assert!(delta <= 1e-6 * (1.0 + 1e-9) && delta > 0.999e-6 && number(&value, "delta_lower") <= delta);
    assert!(value["delta"].is_null() && number(&value, "epsilon") == 8.0);
    assert_eq!(number(&value, "epsilon_upper"), 8.0, "there whatever is asked");
    // T full batches take √T times the noise.
    let value = json(folder.path(), "account --epsilon 8 --delta 1e-6 --compositions 100 --json", 0);
    assert!((number(&value, "noise_multiplier") / (10.0 * z) - 1.0).abs() < 1e-8);
    // Samples take less than as many full batches.
    let line = "account --epsilon 8 --delta 1e-6 --compositions 10 --sampling-rate 0.1 --json";
    let value = json(folder.path(), line, 0);
    assert!(
        number(&value, "noise_multiplier") < 0.9 * 10f64.sqrt() * z && number(&value, "epsilon_upper") <= 8.0
    );
}

#[test]
fn replacing_takes_twice_the_noise() {
    let folder = folder();
    let out = json(folder.path(), "account --epsilon 2 --delta 1e-5 --json", 0);
    let one = json(folder.path(), "account --epsilon 2 --delta 1e-5 --adjacency replace-one --json", 0);
    assert_eq!(number(&one, "noise_multiplier"), 2.0 * number(&out, "noise_multiplier"));
    assert_eq!(one["event"]["noise_multiplier"], one["noise_multiplier"], "as stated, not halved");
    assert_eq!((&one["epsilon_upper"], &one["rho"]), (&out["epsilon_upper"], &out["rho"]));
    assert!(statement(&one).contains("half of it was used for this figure"));
}

#[test]
fn printed_figures_are_on_the_safe_side() {
    let line = "account --noise-multiplier 0.6 --delta 1e-6 --unit user";
    let output = antiphon(folder().path(), line).success().get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    // ε = 8.840530288 (mpmath 1.3.0): up, and down for the lower end. ρ = 1.38888…, μ = 1.66666….
    for part in ["8.84054", "lower bound is 8.84053)", "ρ = 1.38889", "μ = 1.66667", "δ = 1e-6", "one user"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn a_large_delta_is_warned_of_everywhere() {
    let folder = folder();
    let all = |line: &str| {
        let output = antiphon(folder.path(), line).success().get_output().clone();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap().replace('\n', " "))
    };
    // Given, and found: 0.0178 is δ at ε = 3 and z = 0.7 or so.
    for (line, shown) in [
        ("account --noise-multiplier 1 --delta 0.01", "δ = 0.0100000"),
        ("account --epsilon 2 --delta 0.0011", "δ = 0.00110000"),
        ("account --noise-multiplier 0.7 --epsilon 2", "δ = 0."),
    ] {
        let [stdout, stderr] = all(line);
        let warning = format!("WARNING: {shown}");
        assert!(stderr.contains(&warning), "{line}: {stderr}");
        assert!(stdout.contains(&warning) && stdout.contains("Privacy statement"), "{line}: {stdout}");
        let value = json(folder.path(), &format!("{line} --json"), 0);
        assert!(statement(&value).contains(&warning), "{value}");
        assert!(value["warnings"][0].as_str().unwrap().contains(&warning), "{value}");
    }
    let [stdout, stderr] = all("account --noise-multiplier 1 --delta 1e-3");
    assert!(!stdout.contains("WARNING") && stderr.is_empty(), "{stdout} {stderr}");
    let value = json(folder.path(), "account --noise-multiplier 1 --delta 1e-3 --json", 0);
    assert_eq!(value["warnings"], serde_json::json!([]));
}

#[test]
fn a_given_epsilon_is_printed_to_seven_digits_and_never_below() {
    let [e, printed] = ["2.718281828459045", "2.718282"];
    for line in
        [format!("account --epsilon {e} --delta 1e-5"), format!("account --noise-multiplier 2 --epsilon {e}")]
    {
        let output = antiphon(folder().path(), &line).success().get_output().stdout.clone();
        let text = String::from_utf8(output).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("ε = {printed} ")) && !text.contains("2.7182818"), "{text}");
    }
}

#[test]
fn a_file_is_verified_before_anything_is_said() {
    let folder = folder();
    antiphon(folder.path(), "make tree-online --epochs 3 --steps-per-epoch 4 --output m.safetensors")
        .success();
    let line = "account m.safetensors --noise-multiplier 0.6 --delta 1e-6";
    let value = json(folder.path(), &format!("{line} --json"), 0);
    let verified = json(folder.path(), "verify m.safetensors --json", 0);
    assert_eq!((&value["sensitivity"], &value["id"]), (&verified["sensitivity_upper"], &verified["id"]));
    assert_eq!((&value["schema"], &value["kind"]), (&verified["schema"], &verified["kind"]));
    assert!((number(&value, "epsilon_upper") - 8.8405).abs() < 1e-4);
    let deviation = 0.6 * number(&value, "sensitivity");
    assert!(number(&value, "noise_standard_deviation") >= deviation);
    assert!(number(&value, "noise_standard_deviation") < deviation * (1.0 + 1e-12));
    assert_eq!(value["event"], serde_json::json!({ "kind": "gaussian", "noise_multiplier": 0.6 }));
    let text = statement(&value);
    for part in ["3 epochs of 4 steps", "at most 3 steps", "order of the data is fixed", "No amplification"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A claim that does not hold: the verdict of `verify`, and no figure of privacy.
    let path = folder.path().join("m.safetensors");
    let mut mechanism = antiphon::file::read(&path).unwrap().into_parts();
    mechanism.claims.sensitivity *= 0.9;
    antiphon::file::write(&path, &mechanism.clone().into(), true).unwrap();
    let refused = json(folder.path(), &format!("{line} --json"), 1);
    assert!(refused["ok"] == false && refused["epsilon_upper"].is_null());
    let output = antiphon(folder.path(), line).code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("NOT verified") && !text.contains("private with"), "{text}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("no privacy statement"));
    // Bytes that are not what was written.
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(message(folder.path(), line, 2).contains("m.safetensors"));
}

#[test]
fn an_event_comes_from_a_file_or_from_standard_input() {
    let folder = folder();
    let event =
        r#"{"kind":"composed","events":[{"event":{"kind":"gaussian","noise_multiplier":10},"count":100}]}"#;
    std::fs::write(folder.path().join("event.json"), event).unwrap();
    let value = json(folder.path(), "account --event event.json --delta 1e-6 --json", 0);
    let same = json(folder.path(), "account --noise-multiplier 10 --compositions 100 --delta 1e-6 --json", 0);
    assert_eq!(value["epsilon_upper"], same["epsilon_upper"]);
    assert_eq!((&value["event"], &value["noise_multiplier"]), (&same["event"], &Value::Null));
    let output = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["account", "--event", "-", "--delta", "1e-6", "--json"])
        .write_stdin(event)
        .assert()
        .success();
    let value: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(value["epsilon_upper"], same["epsilon_upper"]);
}

#[test]
fn the_table_of_noise_multipliers_is_reproduced() {
    let value = json(folder().path(), "reproduce noise-multipliers --json", 0);
    let rows = value["rows"].as_array().unwrap();
    assert_eq!((&value["ok"], rows.len()), (&true.into(), 9));
    for row in rows {
        let paper = |name: &str| row[name].as_str().unwrap().parse::<f64>().unwrap();
        assert!(number(row, "epsilon_upper") <= paper("paper_epsilon"), "{row}");
        assert!(number(row, "noise_multiplier") <= paper("paper_noise_multiplier"), "{row}");
        assert!(row["run"] != "DP-GD" || row["more_than_needed"] == true, "{row}");
        assert!(row["run"] != "MF" || row["more_than_needed"] == false, "{row}");
    }
}

#[test]
fn counts_may_have_exponents_and_agree_with_their_nouns() {
    let folder = folder();
    let run = "account --noise-multiplier 10 --delta 1e-6 --json";
    let [one, other] = ["1e2", "100"].map(|t| json(folder.path(), &format!("{run} --compositions {t}"), 0));
    assert_eq!(one, other);
    let made =
        "make tree-online --epochs 1e0 --steps-per-epoch 1e1 --stamps 2e0 --output m.safetensors --json";
    assert_eq!(json(folder.path(), made, 0)["steps"], 10);
    let text =
        statement(&json(folder.path(), "account m.safetensors --noise-multiplier 1 --delta 1e-6 --json", 0));
    assert!(text.contains("at most 1 step."), "{text}");
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("junk.safetensors", "not a mechanism");
    write("broken.json", r#"{"kind":"gaussian""#);
    write("unknown.json", r#"{"kind":"laplace","noise_multiplier":1}"#);
    write("negative.json", r#"{"kind":"gaussian","noise_multiplier":-1}"#);
    write("sampled.json", r#"{"kind":"poisson-sampled","sampling_rate":0.5,"noise_multiplier":1}"#);
    antiphon(folder.path(), "make identity --epochs 2 --steps-per-epoch 2 --output m.safetensors").success();
    for (line, expected) in [
        (
            "--noise-multiplier 1",
            "--delta in (0, 1): the third is computed; got --noise-multiplier 1. --delta has no default",
        ),
        ("--epsilon 8", "got --epsilon 8. --delta has no default"),
        ("--delta 1e-6", "give two of --noise-multiplier in [1e-6, 1e12] (or --event), --epsilon in (0, ∞)"),
        ("", "got none of them"),
        ("m.safetensors", "got none of them"),
        (
            "--noise-multiplier 1 --epsilon 8 --delta 1e-6",
            "got --noise-multiplier 1, --epsilon 8, --delta 1e-6",
        ),
        (
            "--event sampled.json --epsilon 8 --delta 1e-6",
            "got --event sampled.json, --epsilon 8, --delta 1e-6",
        ),
        ("--noise-multiplier 1 --delta 0", "--delta must be in (0, 1), got 0"),
        ("--noise-multiplier 1 --delta 2", "--delta must be in (0, 1), got 2"),
        ("--epsilon 8 --delta 2 --sampling-rate 0.1", "--delta must be in (0, 1), got 2"),
        ("--epsilon -1 --delta 1e-6", "--epsilon must be in (0, ∞), got -1"),
        ("--noise-multiplier 1 --epsilon 0", "--epsilon must be in (0, ∞), got 0"),
        ("--noise-multiplier -1 --delta 1e-6", "--noise-multiplier must be in [1e-6, 1e12], got -1"),
        ("--noise-multiplier nan --delta 1e-6", "--noise-multiplier must be in [1e-6, 1e12], got NaN"),
        (
            "--noise-multiplier 1 --delta 1e-6 --sampling-rate 1.5",
            "--sampling-rate must be in (0, 1], got 1.5",
        ),
        ("--epsilon 8 --delta 1e-6 --sampling-rate 0", "--sampling-rate must be in (0, 1], got 0"),
        (
            "--noise-multiplier 1 --delta 1e-6 --compositions 0",
            "--compositions must be in 1..=1000000000, got 0",
        ),
        ("--noise-multiplier 1 --delta 1e-6 --width 2", "--width must be in [1e-6, 1], got 2"),
        (
            "--noise-multiplier 1 --delta 1e-6 --width 0 --sampling-rate 0.1",
            "--width must be in [1e-6, 1], got 0",
        ),
        (
            "--noise-multiplier 1 --delta 1e-6 --interval 0.1",
            "--interval must be left out where nothing is sampled",
        ),
        (
            "--noise-multiplier 1 --delta 1e-6 --interval -1 --sampling-rate 0.1",
            "--interval must be in [1e-8, 10], got -1",
        ),
        (
            "--noise-multiplier 1 --delta 1e-6 --sampling-rate 0.1 --adjacency replace-one",
            "replace-one is not accounted for with Poisson sampling",
        ),
        (
            "--epsilon 8 --delta 1e-6 --sampling-rate 0.1 --adjacency replace-one",
            "replace-one is not accounted for with Poisson sampling",
        ),
        ("--event sampled.json --delta 1e-6 --adjacency replace-one", "replace-one is not accounted for"),
        ("--event broken.json --delta 1e-6", "broken.json: --event must be an event as JSON"),
        ("--event unknown.json --delta 1e-6", "unknown variant `laplace`"),
        ("--event missing.json --delta 1e-6", "missing.json"),
        (
            "--event negative.json --delta 1e-6",
            "noise_multiplier in --event negative.json must be in [1e-6, 1e12], got -1",
        ),
        (
            "--event sampled.json --delta 1e-6 --compositions 3",
            "--compositions must be left out where --event is given, got 3",
        ),
        (
            "m.safetensors --event sampled.json --delta 1e-6",
            "FILE must be left out where --event is given, got m.safetensors",
        ),
        (
            "m.safetensors --noise-multiplier 1 --delta 1e-6 --sampling-rate 0.1",
            "--sampling-rate must be left out where a mechanism FILE (one Gaussian mechanism for all steps",
        ),
        (
            "m.safetensors --noise-multiplier 1 --delta 1e-6 --compositions 2",
            "--compositions must be left out where a mechanism FILE",
        ),
        ("m.safetensors --noise-multiplier 1 --delta 2", "--delta must be in (0, 1), got 2"),
        ("junk.safetensors --noise-multiplier 1 --delta 1e-6", "junk.safetensors"),
        (
            "--noise-multiplier 1 --delta 1e-6 --unit family",
            "[possible values: example, user, conversation-side]",
        ),
    ] {
        let found = message(folder.path(), &format!("account {line}"), 2);
        assert!(found.contains(expected), "`{line}` should say `{expected}`, said: {found}");
    }
}
