//! `audit` as a user meets it: clean logs and others, with figures that are computed here again.

mod common;

use antiphon::accounting::gaussian;
use antiphon::linalg::dense::{self, Matrix};
use antiphon::mechanism::Noise;
use antiphon::sensitivity::pattern_squared;
use antiphon::{file, verify};
use common::{antiphon, folder, json, message};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const EPOCHS: usize = 5;
const STEPS: usize = 12;
const FLAGS: &str = "--mechanism m.safetensors --noise-multiplier 0.8 --delta 1e-5";

/// A folder with the optimal mechanism of 5 × 12 steps.
fn with_mechanism() -> tempfile::TempDir {
    let folder = folder();
    let run = format!("--epochs {EPOCHS} --steps-per-epoch {STEPS} --momentum 0.9");
    antiphon(folder.path(), &format!("optimize {run} --output m.safetensors")).success();
    folder
}

/// Unit u takes part in steps u mod 12, that + 12, ...
fn clean(units: usize) -> Vec<Vec<usize>> {
    (0..units).map(|unit| (0..EPOCHS).map(|epoch| unit % STEPS + epoch * STEPS).collect()).collect()
}

/// Writes the log in which unit u has the steps `patterns[u]`.
fn write(folder: &Path, patterns: &[Vec<usize>], steps: usize) {
    let mut text = String::new();
    for step in 0..steps {
        let mut units = Vec::new();
        for (unit, of) in patterns.iter().enumerate() {
            units.extend(of.iter().filter(|s| **s == step).map(|_| unit));
        }
        writeln!(text, "{}", serde_json::json!({ "step": step, "units": units })).unwrap();
    }
    std::fs::write(folder.join("log.jsonl"), text).unwrap();
}

fn audit(folder: &Path, status: i32) -> Value {
    json(folder, &format!("audit log.jsonl {FLAGS} --json"), status)
}

fn refused(folder: &Path, log: &str, flags: &str) -> String {
    std::fs::write(folder.join("log.jsonl"), log).unwrap();
    message(folder, &format!("audit log.jsonl {flags}"), 2)
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn statement(value: &Value) -> String {
    let sentences = value["statement"].as_array().unwrap();
    sentences.iter().map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

/// The sensitivity of a pattern from the file, by forward substitution and plain loops.
fn brute_force(folder: &Path, pattern: &[usize]) -> f64 {
    let mechanism = file::read(&folder.join("m.safetensors")).unwrap();
    let Noise::Dense(noising) = mechanism.noise() else { panic!("dense") };
    let (w, n) = (noising.matrix(), noising.steps());
    let mut c = Matrix::zeros(n, n);
    for j in 0..n {
        for i in j..n {
            let sum: f64 = (j..i).map(|l| w[(i, l)] * c[(l, j)]).sum();
            c[(i, j)] = (f64::from(i == j) - sum) / w[(i, i)];
        }
    }
    let k = pattern.len();
    let x = |i: usize, j: usize| (0..n).map(|l| c[(l, pattern[i])] * c[(l, pattern[j])]).sum();
    pattern_squared(&dense::from_fn(k, k, x), 1e-10).unwrap().upper.sqrt()
}

#[test]
fn a_clean_log_has_the_stated_figures() {
    let folder = with_mechanism();
    write(folder.path(), &clean(30), EPOCHS * STEPS);
    let value = audit(folder.path(), 0);
    assert_eq!((&value["ok"], value["violations"].as_array().unwrap().len()), (&true.into(), 0));
    let report = verify::mechanism(&file::read(&folder.path().join("m.safetensors")).unwrap()).unwrap();
    assert_eq!(number(&value, "sensitivity_realised"), report.sensitivity.upper);
    assert_eq!(value["sensitivity_realised"], value["sensitivity_stated"]);
    assert_eq!(value["epsilon_realised"], value["epsilon_stated"]);
    let exact = gaussian::epsilon(0.8, 1e-5).unwrap();
    assert!((number(&value, "epsilon_stated") / exact - 1.0).abs() < 1e-9);
    assert_eq!((number(&value, "units"), number(&value, "steps")), (30.0, 60.0));
    assert_eq!((number(&value, "missing_steps"), number(&value, "max_participations_realised")), (0.0, 5.0));
    assert_eq!((number(&value, "distinct_patterns"), number(&value, "participations")), (12.0, 150.0));
    assert!(value["warnings"].as_array().unwrap().is_empty());
    let text = statement(&value);
    for part in ["Every participation in the log", "taken as fixed", "true and complete", "zero-out"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The other relation has half the noise multiplier.
    let value = json(
        folder.path(),
        &format!("audit log.jsonl {FLAGS} --adjacency replace-one --unit user --units 30 --json"),
        0,
    );
    let exact = gaussian::epsilon(0.4, 1e-5).unwrap();
    assert!((number(&value, "epsilon_realised") / exact - 1.0).abs() < 1e-9);
    assert!(statement(&value).contains("one user, which is replaced by another"), "{value}");
}

#[test]
fn one_unit_that_slips_by_five_steps_is_one_violation() {
    let folder = with_mechanism();
    for epoch in [0, 2, EPOCHS - 1] {
        let mut patterns = clean(30);
        patterns[15][epoch] += 5;
        write(folder.path(), &patterns, EPOCHS * STEPS);
        let value = audit(folder.path(), 1);
        assert_eq!(value["ok"], false);
        let violations = value["violations"].as_array().unwrap();
        assert_eq!(violations.len(), 1, "{violations:?}");
        let step = 3 + epoch * STEPS + 5;
        assert_eq!((&violations[0]["step"], &violations[0]["unit"]), (&step.into(), &15.into()));
        let reason = format!("expected every 12 steps from step 3 on; step {step} is 5 steps late");
        assert_eq!(violations[0]["reason"], reason);
        let slow = patterns.iter().map(|pattern| brute_force(folder.path(), pattern)).fold(0.0, f64::max);
        let found = number(&value, "sensitivity_realised");
        assert!((found / slow - 1.0).abs() < 1e-8, "{found} {slow}");
        // The ε is that of the noise that is left.
        let stated = number(&value, "sensitivity_stated");
        let epsilon = gaussian::epsilon(0.8 * stated / found, 1e-5).unwrap();
        let realised = number(&value, "epsilon_realised");
        assert!(realised >= epsilon * (1.0 - 1e-12) && (realised / epsilon - 1.0).abs() < 1e-8);
        // A slip makes it worse, but with this mechanism not in the last epoch.
        if epoch < EPOCHS - 1 {
            assert!(found > 1.01 * stated && value["worst"]["unit"] == 15, "{value}");
            assert!(realised > number(&value, "epsilon_stated"));
        }
        assert!(statement(&value).contains("does NOT cover this run"), "{value}");
        // For people.
        let output = antiphon(folder.path(), &format!("audit log.jsonl {FLAGS}")).code(1);
        let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
        assert!(text.contains(&format!("step {step}, unit 15: {reason}")), "{text}");
    }
}

#[test]
fn many_violations_are_counted_for_people_and_listed_as_json() {
    let folder = with_mechanism();
    let mut patterns = clean(30);
    patterns.iter_mut().for_each(|pattern| pattern[2] += 5);
    write(folder.path(), &patterns, EPOCHS * STEPS);
    let value = audit(folder.path(), 1);
    let violations = value["violations"].as_array().unwrap();
    let order: Vec<_> = violations.iter().map(|v| (v["step"].as_u64(), v["unit"].as_u64())).collect();
    assert!(order.len() == 30 && order.is_sorted(), "{order:?}");
    let output = antiphon(folder.path(), &format!("audit log.jsonl {FLAGS}")).code(1);
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert_eq!(text.matches(", unit ").count(), 10, "{text}");
    assert!(text.contains("violations    30") && text.contains("and 20 more violations"), "{text}");
}

#[test]
fn a_unit_twice_in_a_step_contributes_twice() {
    let folder = with_mechanism();
    let mut patterns = clean(12);
    patterns[4].insert(0, 4);
    write(folder.path(), &patterns, EPOCHS * STEPS);
    let value = audit(folder.path(), 1);
    let violations = value["violations"].as_array().unwrap();
    assert_eq!(violations.len(), 1);
    assert_eq!((&violations[0]["step"], &violations[0]["unit"]), (&4.into(), &4.into()));
    assert!(violations[0]["reason"].as_str().unwrap().starts_with("listed 2 times"), "{value}");
    let slow = brute_force(folder.path(), &patterns[4]);
    assert!((number(&value, "sensitivity_realised") / slow - 1.0).abs() < 1e-8);
}

#[test]
fn a_log_that_ends_early_or_has_gaps_is_remarked_on() {
    let folder = with_mechanism();
    write(folder.path(), &clean(12), 24);
    let value = audit(folder.path(), 0);
    assert_eq!((number(&value, "steps"), number(&value, "last_step")), (24.0, 23.0));
    assert_eq!((number(&value, "planned_steps"), number(&value, "missing_steps")), (60.0, 0.0));
    assert!(
        value["warnings"][0].as_str().unwrap().contains("the log ends with step 23 of 0..=59"),
        "{value}"
    );
    assert!(number(&value, "epsilon_realised") < number(&value, "epsilon_stated"));
    assert!(statement(&value).contains("less took part than the schema allows"));
    let path = folder.path().join("log.jsonl");
    std::fs::write(&path, "{\"step\":3,\"units\":[1]}\n\n{\"step\":59,\"units\":[0]}\n").unwrap();
    let value = audit(folder.path(), 0);
    assert_eq!((number(&value, "steps"), number(&value, "missing_steps")), (2.0, 58.0));
    assert!(
        value["warnings"][0].as_str().unwrap().contains("no line for 58 steps before step 59"),
        "{value}"
    );
    let assert = antiphon(folder.path(), &format!("audit log.jsonl {FLAGS}")).code(0);
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(stderr.contains("no line for 58 steps"), "{stderr}");
    // Nobody took part in the steps that have lines.
    std::fs::write(&path, "{\"step\":0,\"units\":[]}\n").unwrap();
    let value = audit(folder.path(), 0);
    assert_eq!((number(&value, "epsilon_realised"), number(&value, "units")), (0.0, 0.0));
    assert!(value["worst"].is_null());
}

#[test]
fn bad_logs_are_refused_with_the_line() {
    let folder = with_mechanism();
    let good = "{\"step\":0,\"units\":[0]}\n";
    for (log, flags, part) in [
        ("", FLAGS, "the log has no lines"),
        ("{\"step\":0,\"units\":[0]}\ngarbage\n", FLAGS, "log.jsonl: line 2: must be JSON such as"),
        ("{\"step\":0,\"units\":[-1]}\n", FLAGS, "line 1: must be JSON such as"),
        ("{\"step\":0,\"units\":[0.5]}\n", FLAGS, "whole numbers of at least 0"),
        ("{\"step\":0,\"units\":[0],\"epoch\":1}\n", FLAGS, "unknown field `epoch`"),
        ("{\"step\":60,\"units\":[0]}\n", FLAGS, "line 1: step must be in 0..60, got 60"),
        (
            "{\"step\":5,\"units\":[0]}\n{\"step\":4,\"units\":[0]}\n",
            FLAGS,
            "line 2: steps must be strictly increasing, got step 4 after step 5",
        ),
        ("{\"step\":0,\"units\":[0]}\n{\"step\":1,\"uni", FLAGS, "line 2: the last line is cut off"),
        (
            "{\"step\":0,\"units\":[3,12]}\n",
            &format!("{FLAGS} --units 12"),
            "line 1: every unit must be in 0..12, got 12",
        ),
        (good, &format!("{FLAGS} --units 0"), "--units must be in 1..=1e15, got 0"),
        (good, "--noise-multiplier 1 --delta 1e-5", "give --mechanism FILE, or for a run on Poisson samples"),
        (good, &format!("{FLAGS} --sampling-rate 0.1"), "--sampling-rate must be left out where --mechanism"),
        (
            good,
            "--mechanism m.safetensors --noise-multiplier 0 --delta 1e-5",
            "--noise-multiplier must be in [1e-6, 1e12], got 0",
        ),
        (good, "--mechanism m.safetensors --noise-multiplier 1 --delta 2", "--delta must be"),
    ] {
        let found = refused(folder.path(), log, flags);
        assert!(found.contains(part), "{part}: {found}");
    }
    assert!(message(folder.path(), &format!("audit none.jsonl {FLAGS}"), 2).contains("none.jsonl"));
    let value = json(folder.path(), &format!("audit none.jsonl {FLAGS} --json"), 2);
    assert_eq!((&value["ok"], &value["error"]["kind"]), (&false.into(), &"io".into()));
}

#[test]
fn no_figures_from_a_file_that_fails_or_that_no_run_can_have_used() {
    let folder = with_mechanism();
    write(folder.path(), &clean(12), 60);
    let run = format!("--epochs {EPOCHS} --steps-per-epoch {STEPS}");
    antiphon(folder.path(), &format!("optimize {run} --implicit --output i.safetensors")).success();
    let flags = "--mechanism i.safetensors --noise-multiplier 1 --delta 1e-5";
    assert!(message(folder.path(), &format!("audit log.jsonl {flags}"), 2).contains("no noise can be drawn"));
    // A claim that is too good.
    let path = folder.path().join("m.safetensors");
    let mut mechanism = file::read(&path).unwrap().into_parts();
    mechanism.claims.sensitivity *= 0.9;
    file::write(&path, &mechanism.into(), true).unwrap();
    let value = json(folder.path(), &format!("audit log.jsonl {FLAGS} --json"), 1);
    assert!(value["ok"] == false && value["epsilon_realised"].is_null() && value["checks"].is_array());
}

#[test]
fn a_mechanism_from_a_formula_is_audited_too() {
    let folder = folder();
    let run = format!("--epochs {EPOCHS} --steps-per-epoch {STEPS}");
    antiphon(folder.path(), &format!("make tree-online {run} --output m.safetensors")).success();
    let mut patterns = clean(12);
    write(folder.path(), &patterns, 60);
    let value = audit(folder.path(), 0);
    assert_eq!(value["epsilon_realised"], value["epsilon_stated"]);
    patterns[0][1] = 1;
    write(folder.path(), &patterns, 60);
    let value = audit(folder.path(), 1);
    assert_eq!(value["violations"].as_array().unwrap().len(), 1);
    assert!(number(&value, "epsilon_realised") > number(&value, "epsilon_stated"));
}

/// SplitMix64, uniform on [0, 1).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn sampled_logs() {
    let folder = folder();
    let flags = "--sampling-rate 0.05 --compositions 200 --units 1000 --noise-multiplier 1 --delta 1e-5";
    let line = format!("audit log.jsonl {flags} --json");
    let mut state = 5;
    // Poisson samples.
    let samples = |state: &mut u64| -> Vec<Vec<usize>> {
        (0..1000).map(|_| (0..200).filter(|_| uniform(state) < 0.05).collect()).collect()
    };
    write(folder.path(), &samples(&mut state), 200);
    let value = json(folder.path(), &line, 0);
    assert!(value["epsilon_realised"].is_null() && value["sensitivity_realised"].is_null());
    assert_eq!((&value["ok"], value["checks"].as_array().unwrap().len()), (&true.into(), 3));
    let account = "account --sampling-rate 0.05 --compositions 200 --noise-multiplier 1 --delta 1e-5 --json";
    assert_eq!(value["epsilon_stated"], json(folder.path(), account, 0)["epsilon_upper"]);
    assert!(statement(&value).contains("KEEP THIS LOG AS SECRET AS THE KEY"), "{value}");
    let output = antiphon(folder.path(), &format!("audit log.jsonl {flags}")).success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    // The text is wrapped.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("KEEP THIS LOG AS SECRET AS THE KEY") && !text.contains("realised,"), "{text}");
    // Epochs of 20 batches of 50: sizes and participations vary too little.
    let mut shuffled = vec![Vec::new(); 1000];
    for epoch in 0..10 {
        let mut order: Vec<usize> = (0..1000).collect();
        (1..1000).rev().for_each(|i| order.swap(i, (uniform(&mut state) * (i + 1) as f64) as usize));
        order.iter().enumerate().for_each(|(place, unit)| shuffled[*unit].push(20 * epoch + place / 50));
    }
    write(folder.path(), &shuffled, 200);
    let value = json(folder.path(), &line, 1);
    let violations = value["violations"].as_array().unwrap();
    let reasons: Vec<&str> = violations.iter().map(|v| v["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(
        reasons[0].contains("variance of the batch sizes") && reasons[1].contains("per unit"),
        "{reasons:?}"
    );
    assert!(violations.iter().all(|v| v["step"].is_null() && v["unit"].is_null()));
    assert!(statement(&value).contains("does NOT hold"));
    // Fixed sizes without epochs.
    let mut fixed = vec![Vec::new(); 1000];
    for step in 0..200 {
        let mut units: Vec<usize> = (0..1000).collect();
        for _ in 0..50 {
            let place = (uniform(&mut state) * units.len() as f64) as usize;
            fixed[units.swap_remove(place)].push(step);
        }
    }
    write(folder.path(), &fixed, 200);
    let value = json(folder.path(), &line, 1);
    assert_eq!(value["violations"].as_array().unwrap().len(), 1);
    assert!(value["violations"][0]["reason"].as_str().unwrap().contains("variance of the batch sizes"));
    // Another rate than the stated one.
    let other = line.replace("--sampling-rate 0.05", "--sampling-rate 0.045");
    write(folder.path(), &samples(&mut state), 200);
    assert!(
        json(folder.path(), &other, 1)["violations"][0]["reason"].as_str().unwrap().contains("number of")
    );
    // Bad input.
    for (log, line, part) in [
        ("{\"step\":0,\"units\":[1000]}\n", line.as_str(), "every unit must be in 0..1000, got 1000"),
        ("{\"step\":200,\"units\":[]}\n", line.as_str(), "step must be in 0..200, got 200"),
        ("", line.as_str(), "the log has no lines"),
        (
            "{\"step\":0,\"units\":[]}\n",
            &format!("{line} --adjacency replace-one"),
            "replace-one is not accounted for",
        ),
        (
            "{\"step\":0,\"units\":[]}\n",
            &line.replace("0.05", "1.5"),
            "--sampling-rate must be in (0, 1], got 1.5",
        ),
        (
            "{\"step\":0,\"units\":[]}\n",
            &line.replace("200", "0"),
            "--compositions must be in 1..=268435456, got 0",
        ),
    ] {
        std::fs::write(folder.path().join("log.jsonl"), log).unwrap();
        let found = json(folder.path(), line, 2)["error"]["message"].as_str().unwrap().to_owned();
        assert!(found.contains(part), "{part}: {found}");
    }
}
