//! Mechanisms with buffers as a user meets them: made, verified, compared, planned with, drawn from, trained with.

mod common;

use antiphon::families;
use antiphon::linalg::dense;
use antiphon::mechanism::{Noise, Structured};
use antiphon::npy;
use common::{antiphon, folder, json, message};
use std::path::Path;

const RUN: &str = "--epochs 3 --steps-per-epoch 5";

fn text(folder: &Path, line: &str) -> String {
    String::from_utf8(antiphon(folder, line).success().get_output().stdout.clone()).unwrap()
}

#[test]
fn a_comb_goes_around_the_house() {
    let folder = folder();
    let here = folder.path();
    for (flags, steps) in [(RUN, 15), ("--steps 13 --steps-per-epoch 5 --momentum 0.9", 13)] {
        let line = format!("make comb-blt --buffers 3 {flags} --json --force --output m.safetensors");
        let made = json(here, &line, 0);
        assert_eq!((&made["name"], &made["kind"]), (&"comb-blt".into(), &"structured".into()));
        assert_eq!((&made["buffers"], &made["stream_memory_rows"]), (&3.into(), &4.into()));
        let number = |name: &str| made[name].as_f64().unwrap_or_else(|| panic!("{name} in {made}"));
        assert!((number("gap") - (number("loss") / number("lower_bound") - 1.0)).abs() < 1e-12);
        assert_eq!(made["over_optimum"], made["gap"]);
        assert!(number("sensitivity") > 0.0 && number("seconds") > 0.0 && number("gap") >= 0.0);

        let verified = json(here, "verify m.safetensors --json", 0);
        assert_eq!((&verified["ok"], &verified["id"]), (&true.into(), &made["id"]));
        assert!((verified["loss"].as_f64().unwrap() / number("loss") - 1.0).abs() < 1e-6);
        let found = json(here, "sensitivity m.safetensors --all-methods --json", 0);
        assert!(found["upper"].as_f64().unwrap() <= number("sensitivity"));
        // Under another schema it is less protected, and that is found.
        let other = json(here, "sensitivity m.safetensors --min-separation 1 --json", 0);
        assert!(other["lower"].as_f64().unwrap() > number("sensitivity"), "{other}");
        let account = json(here, "account m.safetensors --epsilon 4 --delta 1e-5 --json", 0);
        assert!(account["sensitivity"].as_f64().unwrap() <= number("sensitivity"));

        for matrix in ["C", "B", "X", "Cinv"] {
            let line = format!("export m.safetensors --matrix {matrix} --output {matrix}.npy --force");
            antiphon(here, &line).success();
        }
        let read = |name: &str| npy::read(&here.join(name)).unwrap();
        let (c, b, x, w) = (read("C.npy"), read("B.npy"), read("X.npy"), read("Cinv.npy"));
        assert!(dense::squared_norm(&(&w * &c - dense::identity(steps))) < 1e-20);
        assert!(dense::squared_norm(&(dense::gram(&c) - &x)) < 1e-20);
        let momentum = if steps == 13 { 0.9 } else { 0.0 };
        let a = antiphon::workload::Workload::training(steps, momentum, None).unwrap().matrix();
        assert!(dense::squared_norm(&(&b * &c - &a)) < 1e-16 * dense::squared_norm(&a));

        let noise = "noise m.safetensors --params 300 --seed 1 --noise-multiplier 1";
        antiphon(here, &format!("{noise} --force --output n.npy")).success();
        antiphon(here, "noise m.safetensors --check n.npy --seed 1").success();
    }
}

#[test]
fn people_read_buffers_rows_and_the_distance_to_the_optimum() {
    let folder = folder();
    let here = folder.path();
    let said = text(here, &format!("make comb-blt --buffers 4 {RUN}"));
    let first = said.lines().next().unwrap();
    assert!(first.starts_with("comb-blt, 4 buffers: 5 rows of memory while training, at most "), "{first}");
    assert!(first.ends_with("% above the best possible"), "{first}");
    // A distance that nothing so small reaches is no failure: the mechanism is there, and says how far it is.
    let output =
        antiphon(here, &format!("make comb-blt --buffers 1 --over-optimum 1e-9 {RUN} --json")).success();
    let value: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert!(value["over_optimum"].as_f64().unwrap() > 1e-9, "{value}");
    let note = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(
        note.contains("note: the loss is at most") && note.contains("--over-optimum was not reached"),
        "{note}"
    );
    // One that is reached needs no note.
    let output = antiphon(here, &format!("make comb-blt --over-optimum 1 {RUN} --json")).success();
    let value: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let note = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert_eq!(note.contains("not reached"), value["gap"].as_f64().unwrap() > 1.0, "{note}");
    // Others have no buffers.
    let value = json(here, &format!("make identity {RUN} --json"), 0);
    assert!(value["buffers"].is_null() && value["stream_memory_rows"] == 1, "{value}");
    let value = json(here, &format!("make optimal {RUN} --json"), 0);
    assert!(value["buffers"].is_null() && value["stream_memory_rows"] == 1, "{value}");
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("rates.txt"), "1 1 1 0 1 1 1 1 1 1 1 1 1 1 1").unwrap();
    for (line, expected) in [
        (format!("make comb-blt --buffers 0 {RUN}"), "--buffers must be in 1..=16, got 0"),
        (format!("make comb-blt --buffers 17 {RUN}"), "--buffers must be in 1..=16, got 17"),
        (
            format!("make comb-blt --buffers -1 {RUN}"),
            "'--buffers <D>': the value must be a whole number in 0..=1e15",
        ),
        (format!("make comb-blt --buffers 1.5 {RUN}"), "got 1.5"),
        (format!("make comb-blt --over-optimum 0 {RUN}"), "--over-optimum must be in (0, 1], got 0"),
        (format!("make comb-blt --over-optimum nan {RUN}"), "--over-optimum must be in (0, 1], got NaN"),
        (format!("make comb-blt --over-optimum -0.1 {RUN}"), "--over-optimum must be in (0, 1], got -0.1"),
        (format!("make comb-blt --over-optimum 1.1 {RUN}"), "--over-optimum must be in (0, 1], got 1.1"),
        (
            format!("make identity --buffers 2 {RUN}"),
            "--buffers must be left out for identity, which has no buffers, got 2",
        ),
        (format!("make optimal --buffers 2 {RUN}"), "--buffers must be left out for optimal"),
        (format!("make identity --over-optimum 0.1 {RUN}"), "--over-optimum must be left out for identity"),
        (
            format!("make comb-blt --stamps 2 {RUN}"),
            "--stamps must be 1 for comb-blt, whose buffers run through all steps, got 2",
        ),
        (format!("make comb-blt --learning-rates rates.txt {RUN}"), "learning rate of step 3 must be"),
        (
            "make comb-blt --steps 15 --min-separation 5 --max-participations 3".into(),
            "(fixed epoch order); blt and single-epoch can be made for minimum separation",
        ),
        (
            format!("make comb-blt {RUN} --reshuffled"),
            "(fixed epoch order); per-epoch is made for reshuffled epochs",
        ),
        (
            "make comb-blt --steps 15 --steps-per-epoch 5 --max-participations 2".into(),
            "leave out the limit of participations",
        ),
        ("train --mechanism comb-blt --stamps 2 --epochs 2".into(), "--stamps must be left out for comb-blt"),
        (
            "train --mechanism comb-blt --sampling reshuffled --epochs 2".into(),
            "per-epoch is made for reshuffled",
        ),
    ] {
        let found = message(here, &line, 2);
        assert!(found.contains(expected), "`{line}` should say `{expected}`, said: {found}");
    }
}

/// What a forger or a mistake could write: every command that takes a file says what is wrong.
#[test]
fn numbers_that_are_no_comb_are_refused_by_every_command() {
    let folder = folder();
    let here = folder.path();
    let path = here.join("m.safetensors");
    antiphon(here, &format!("make comb-blt --buffers 2 {RUN} --output m.safetensors")).success();
    let parts = antiphon::file::read(&path).unwrap().into_parts();
    let Noise::Structured(structured) = &parts.noise else { panic!("a comb is described") };
    for (name, numbers, expected) in [
        ("poles", vec![1.0, 0.5], "poles[0] must be in (0, 1)"),
        ("zeros", vec![0.1, 0.2], "must be in"),
        ("period", vec![16.0], "period[0] must be a whole number in 1..=15, got 16"),
    ] {
        let replaced = |(other, old): (&'static str, &[f64])| {
            (other, if other == name { numbers.clone() } else { old.to_vec() })
        };
        let parameters = structured.parameters.iter().map(replaced).collect();
        let noise = Noise::Structured(Structured { parameters, ..structured.clone() });
        let changed = antiphon::mechanism::Parts { noise, ..parts.clone() };
        antiphon::file::write(&path, &changed.into(), true).unwrap();
        for command in [
            "verify m.safetensors",
            "sensitivity m.safetensors",
            "export m.safetensors --matrix C --output C.npy",
            "account m.safetensors --epsilon 4 --delta 1e-5",
            "noise m.safetensors --params 3 --seed 1 --noise-multiplier 1 --output n.npy",
            "train --epochs 3 --batch-size 288 --mechanism m.safetensors",
        ] {
            let found = message(here, command, 2);
            assert!(found.contains(expected), "`{command}` should say `{expected}`, said: {found}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(here).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn compare_and_plan_know_buffers() {
    let folder = folder();
    let here = folder.path();
    let compared = json(here, &format!("compare {RUN} --json"), 0);
    let find = |name: &str| {
        let all = compared["mechanisms"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} in {compared}")).clone()
    };
    let comb = find("comb-blt");
    let buffers = comb["buffers"].as_u64().unwrap();
    assert_eq!(comb["stream_memory_rows"], buffers + 1);
    assert!(find("identity")["buffers"].is_null());
    // The default of `make` is what was compared.
    let made = json(here, &format!("make comb-blt {RUN} --json"), 0);
    assert_eq!(made["buffers"], buffers);
    assert!((made["loss"].as_f64().unwrap() / comb["loss"].as_f64().unwrap() - 1.0).abs() < 1e-6);
    // Under minimum separation and for reshuffled epochs nobody offers it.
    for schema in ["--steps 15 --min-separation 5", "--epochs 3 --steps-per-epoch 5 --reshuffled"] {
        let compared = json(here, &format!("compare {schema} --json"), 0);
        assert!(!compared["mechanisms"].to_string().contains("comb-blt"), "{compared}");
        assert!(!compared["left_out"].to_string().contains("comb-blt"), "{compared}");
    }
    // Where the matrix of the optimum does not fit, it is recommended, with the command that makes it.
    let others = "tree-online,tree-optimal,fft,fft-optimal,single-epoch";
    let line = format!("plan --epochs 4 --steps-per-epoch 16 --params 100 --memory 8kb --without {others}");
    let value = json(here, &format!("{line} --json"), 0);
    let chosen = &value["recommended"];
    assert_eq!(chosen["name"], "comb-blt", "{value}");
    let rows = chosen["buffers"].as_u64().unwrap() + 1;
    let reason = chosen["reason"].as_str().unwrap();
    assert!(
        reason.contains(&format!("buffers, {rows} rows) has the least loss of those that fit, at most ")),
        "{reason}"
    );
    assert!(reason.contains("optimal (1.00 times its error) would need"), "{reason}");
    let command = chosen["command"].as_str().unwrap();
    assert!(command.starts_with("antiphon make comb-blt --epochs 4 --steps-per-epoch 16"), "{command}");
    let made = json(here, &format!("{} --json", command.strip_prefix("antiphon ").unwrap()), 0);
    assert_eq!((&made["buffers"], made["file"].is_string()), (&chosen["buffers"], true));
    antiphon(here, "verify mechanism.safetensors").success();
    assert!(text(here, &line).contains(" rows) has the least loss"));
}

#[test]
fn a_comb_trains_and_its_log_is_clean() {
    let folder = folder();
    let here = folder.path();
    antiphon(here, "make comb-blt --epochs 3 --steps-per-epoch 15 --output m").success();
    let flags = "train --epochs 3 --batch-size 100 --noise-multiplier 2 --delta 1e-4 --seed 5";
    let named = json(here, &format!("{flags} --mechanism comb-blt --participation-log who --json"), 0);
    assert_eq!(named["runs"][0]["mechanism"], "comb-blt");
    let filed = json(here, &format!("{flags} --mechanism m --json"), 0);
    let stddev = |value: &serde_json::Value| value["runs"][0]["stddev"].as_f64().unwrap();
    assert!((stddev(&named) / stddev(&filed) - 1.0).abs() < 1e-9, "{named} {filed}");
    let line = "audit who --mechanism m --noise-multiplier 2 --delta 1e-4 --units 1440 --json";
    let audited = json(here, line, 0);
    assert!(audited["ok"] == true && audited["violation_count"] == 0, "{audited}");
    let [realised, stated] =
        ["sensitivity_realised", "sensitivity_stated"].map(|name| audited[name].as_f64().unwrap());
    assert!(realised > 0.0 && realised <= stated * (1.0 + 1e-8), "{audited}");
}

/// Nobody named a mechanism: the optimum, and the comb where it would draw thousands of normals for each number.
#[test]
fn long_runs_are_trained_with_combs() {
    let folder = folder();
    let here = folder.path();
    let trained = |flags: &str| {
        let value = json(here, &format!("train {flags} --epsilon 2 --seed 5 --json"), 0);
        let runs = value["runs"].as_array().unwrap();
        runs.iter().map(|run| run["mechanism"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(trained("--epochs 3 --batch-size 100 --repeats 1"), ["optimal", "identity"]);
    assert_eq!(trained("--epochs 3 --batch-size 1 --repeats 1"), ["comb-blt", "identity"]); // 4,320 steps
}

#[test]
fn help_completions_and_manuals_have_every_family() {
    let folder = folder();
    let here = folder.path();
    let help = |command: &str| text(here, &format!("{command} --help"));
    let (make, compare, train) = (help("make"), help("compare"), help("train"));
    let completions = text(here, "completions bash");
    antiphon(here, "man --output pages").success();
    let page =
        |command: &str| std::fs::read_to_string(here.join(format!("pages/antiphon-{command}.1"))).unwrap();
    let (page, trained) = (page("make"), page("train").replace("\\-", "-"));
    for family in families::candidates() {
        let name = family.name();
        for (place, text) in
            [("make", &make), ("compare", &compare), ("train", &train), ("bash", &completions)]
        {
            assert!(text.contains(name), "{name} in {place}");
        }
        assert!(page.replace("\\-", "-").contains(name) && trained.contains(name), "{name}");
        let line = train.lines().find(|line| line.starts_with(&format!("  {name} "))).unwrap();
        assert!(line.contains(family.about().split(' ').next().unwrap()), "{line}");
    }
    for text in [&make, &compare, &train] {
        assert!(!text.contains("{candidates}"), "{text}");
    }
    let words = make.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("a buffer is one row of d numbers"), "{make}");
}

#[test]
fn without_a_bound_nothing_is_said_of_the_distance() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let made = json(here, "make blt --epochs 4 --steps-per-epoch 5 --no-bound --output m --json", 0);
    assert!(
        made["lower_bound"].is_null() && made["over_optimum"].is_null() && made["bound"] == "none",
        "{made}"
    );
    let found = json(here, "verify m --json", 0);
    assert!(found["over_optimum"].is_null(), "{found}");
    let with = json(here, "make blt --epochs 4 --steps-per-epoch 5 --json", 0);
    assert_eq!(with["loss"], made["loss"]);
    assert!(with["over_optimum"].as_f64().unwrap() > 0.0, "{with}");
}
