//! `compare`, `plan` and `reproduce` as a user meets them.

mod common;

use antiphon::families;
use common::{antiphon, folder, json, message};

/// The families with buffers, which need few rows and would be recommended before those of these tests.
fn buffered() -> String {
    families::names(families::candidates().filter(|family| family.has_buffers())).replace(' ', "")
}

fn text(folder: &std::path::Path, line: &str) -> String {
    String::from_utf8(antiphon(folder, line).success().get_output().stdout.clone()).unwrap()
}

#[test]
fn compare_lists_every_mechanism_with_all_fields() {
    let folder = folder();
    let value = json(folder.path(), "compare --epochs 5 --steps-per-epoch 12 --momentum 0.9 --json", 0);
    let bound = value["lower_bound"].as_f64().unwrap();
    let mechanisms = value["mechanisms"].as_array().unwrap();
    let mut names: Vec<&str> = mechanisms.iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "optimal", "the least loss comes first");
    names.sort_unstable();
    let schema = antiphon::schema::Schema::epochs(5, 12).unwrap();
    let mut all: Vec<&str> =
        families::candidates().filter(|one| one.suits(&schema)).map(|one| one.name()).collect();
    all.sort_unstable();
    assert_eq!(names, all);
    assert!(all.len() >= 8 && all.contains(&"fft-optimal") && all.contains(&"comb-blt"), "{all:?}");
    for mechanism in mechanisms {
        let number = |name: &str| mechanism[name].as_f64().unwrap_or_else(|| panic!("{name} in {mechanism}"));
        assert!((number("over_optimum") - (number("loss") / bound - 1.0)).abs() < 1e-12);
        assert!(number("over_optimum") >= 0.0);
        assert!((number("rmse") - (number("loss") / 60.0).sqrt()).abs() < 1e-9 * number("rmse"));
        assert!(number("stamps") >= 1.0 && number("seconds") >= 0.0 && number("stream_memory_rows") >= 1.0);
        // Not known where the sensitivity is from a rule of the family's own.
        let spectral = mechanism["sensitivity_spectral"].as_f64();
        assert!(spectral.is_some() || !mechanism["buffers"].is_null(), "{mechanism}");
        assert!(spectral.is_none_or(|bound| number("sensitivity") <= bound * (1.0 + 1e-8)));
        assert_eq!(mechanism["sensitivity_kind"], "exact");
        assert!(number("max_variance") >= number("loss") / 60.0);
    }
    // The same with a fixed number of stamps, as a table.
    let table = text(folder.path(), "compare --epochs 5 --steps-per-epoch 12 --stamps 5");
    assert!(table.contains("fft-optimal ×5") && table.contains("No mechanism has a loss below"), "{table}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a comparison writes no file");
}

#[test]
fn a_plan_recommends_what_fits_and_its_command_works() {
    let folder = folder();
    let run = format!("--epochs 4 --steps-per-epoch 16 --momentum 0.9 --params 100 --without {}", buffered());
    // 400 bytes for a row of 100 numbers, 16,640 for the optimum's matrix; a tree needs some eight rows.
    for (memory, name) in [("", "optimal"), ("--memory 4kb", "tree-online"), ("--memory 400", "identity")] {
        let line = format!("plan {run} {memory} --epsilon 8 --delta 1e-6 --json");
        let value = json(folder.path(), &line, 0);
        let chosen = &value["recommended"];
        assert_eq!(chosen["name"], name, "{chosen}");
        // The noise multiplier for (8, 1e-6): a little above the paper's 0.600 for 8.84.
        assert!((0.6..0.7).contains(&chosen["noise_multiplier"].as_f64().unwrap()), "{chosen}");
        let command = chosen["command"].as_str().unwrap().strip_prefix("antiphon ").unwrap();
        antiphon(folder.path(), &format!("{command} --force")).success();
        let verified = json(folder.path(), "verify mechanism.safetensors --json", 0);
        let mechanisms = value["mechanisms"].as_array().unwrap();
        let loss = mechanisms.iter().find(|m| m["name"] == name).unwrap()["loss"].as_f64().unwrap();
        assert!((verified["loss"].as_f64().unwrap() / loss - 1.0).abs() < 1e-3);
        let reason = chosen["reason"].as_str().unwrap();
        assert_eq!(reason.contains("least loss of all that were compared"), name == "optimal", "{reason}");
        assert_eq!(
            reason.contains("optimal (0.") && reason.contains("would need 16.6 KiB"),
            name != "optimal",
            "{reason}"
        );
    }
    let table =
        text(folder.path(), "plan --epochs 4 --steps-per-epoch 16 --params 1e6 --epsilon 2 --delta 1e-5");
    assert!(table.contains("noise multiplier") && table.contains("antiphon optimize --epochs 4"), "{table}");
    let table = text(folder.path(), "plan --steps 40 --min-separation 10 --params 1000");
    assert!(
        table.contains("--min-separation 10") && table.contains("--output mechanism.safetensors"),
        "{table}"
    );
}

#[test]
fn candidates_can_be_left_out() {
    let folder = folder();
    let run =
        format!("--epochs 4e0 --steps-per-epoch 16 --params 100 --without single-epoch,fft,{}", buffered());
    let value = json(folder.path(), &format!("plan {run} --json"), 0);
    let names: Vec<&str> =
        value["mechanisms"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert!(names.len() == 5 && !names.contains(&"single-epoch") && !names.contains(&"fft"), "{names:?}");
    let left_out = value["left_out"].as_array().unwrap();
    let least = 2 + buffered().split(',').count();
    assert!(
        left_out.len() == least && left_out.iter().all(|c| c["reason"] == "as asked (--without)"),
        "{value}"
    );
    assert_eq!(value["recommended"]["name"], "optimal");
    // Without the optimum, the best of the rest, and nothing is said about the best possible.
    let without = format!("optimal,single-epoch,{}", buffered());
    let line = format!("plan --epochs 4 --steps-per-epoch 16 --params 100 --without {without}");
    let table = text(folder.path(), &line);
    assert!(table.contains("No lower bound on the loss was computed"), "{table}");
    assert!(table.contains("Not compared: optimal, as asked (--without)."), "{table}");
    assert!(table.contains("antiphon make fft-optimal") && !table.contains("least possible"), "{table}");
}

#[test]
fn the_loss_table_and_the_figures_are_reproduced() {
    let folder = folder();
    let value = json(folder.path(), "reproduce losses --json", 0);
    assert_eq!((value["ok"].as_bool(), value["rows"].as_array().unwrap().len()), (Some(true), 30));
    assert!(value["rows"].as_array().unwrap().iter().all(|row| row["matches"] == true));
    let value = json(folder.path(), "reproduce decoders --output pictures --json", 0);
    assert_eq!(value["ok"], true);
    let png = std::fs::read(folder.path().join("pictures/decoders.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    let svg = std::fs::read_to_string(folder.path().join("pictures/decoders.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("tree-optimal"));
    let message = message(folder.path(), "reproduce decoders --output pictures", 2);
    assert!(message.contains("decoders.svg"), "{message}");
    antiphon(folder.path(), "reproduce decoders --output pictures --force").success();
}

#[test]
fn wrong_input_is_named() {
    let folder = folder();
    let run = "--epochs 4 --steps-per-epoch 16";
    for (line, expected) in [
        (format!("compare {run} --stamps 65"), "--stamps must be in 1..=64, got 65"),
        (format!("compare {run} --gap 0"), "--gap must be in [1e-8, 1], got 0"),
        (format!("plan {run} --params 0"), "D must be a whole number in 1..=1e15, such as 1e6, got 0"),
        (
            format!("plan {run} --params 1000 --memory 3kb"),
            "--memory must be at least 4000 bytes: one row of noise for 1000 parameters, got 3000",
        ),
        (format!("plan {run} --params 1000 --memory many"), "such as 8GiB, 800MB or 4e9, got many"),
        (format!("plan {run} --params 1000 --epsilon 8"), "--delta"),
        (format!("plan {run} --params 1000 --epsilon 8 --delta 2"), "--delta must be in (0, 1), got 2"),
        (format!("plan {run} --params 1000 --epsilon -1 --delta 1e-6"), "--epsilon must be"),
        (
            "reproduce losses --output pictures".into(),
            "--output must be left out with losses, which is a table, got pictures",
        ),
        (format!("plan {run} --params 10 --without wavelet"), "must be one of identity, tree-online"),
        (
            format!("compare {run} --without {}", families::names(families::candidates()).replace(' ', "")),
            "--without must be a list that leaves at least one candidate",
        ),
        (format!("compare {run} --stamps 1.5"), "a whole number in 0..=1e15, such as 100 or 1e2, got 1.5"),
        (
            "compare --epochs 4".into(),
            "the participation schema is missing or incomplete: give --epochs K --steps-per-epoch B",
        ),
    ] {
        let found = message(folder.path(), &line, 2);
        assert!(found.contains(expected), "{line}: {found}");
    }
}
