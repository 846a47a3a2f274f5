//! The binary as a user meets it: results, messages, exit status, files.

mod common;

use antiphon::linalg::dense;
use antiphon::mechanism::{Noise, Structured};
use antiphon::npy;
use common::{antiphon, folder, json, message};
use serde_json::Value;

#[test]
fn optimize_gives_the_known_optimum_as_json() {
    let folder = folder();
    // The paper's small table; 16.13131 is the optimum for vector contributions (docs/theory.md, section 9).
    for (flags, expected) in [("", 6.46088), ("--momentum 0.95", 16.13131)] {
        let line = format!("optimize --epochs 3 --steps-per-epoch 2 --gap 1e-8 --json {flags}");
        let value = json(folder.path(), &line, 0);
        let number = |name: &str| value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"));
        assert!((number("loss").sqrt() - expected).abs() <= 1e-5);
        assert!(number("gap") <= 1e-8 && number("lower_bound") <= number("loss"));
        assert!((number("rmse") - (number("loss") / 6.0).sqrt()).abs() < 1e-12);
        assert!((number("sensitivity") - 1.0).abs() < 1e-6 && number("sensitivity") >= 1.0);
        assert!(number("iterations") >= 1.0 && number("seconds") > 0.0);
        assert_eq!(value["steps"], 6);
        assert_eq!(value["route"], "dense");
    }
    let value = json(folder.path(), "optimize --epochs 4 --steps-per-epoch 10 --json", 0);
    assert_eq!(value["route"], "structured");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file without --output");
}

#[test]
fn a_mechanism_goes_around_the_house() {
    let folder = folder();
    let line = "optimize --epochs 4 --steps-per-epoch 10 --momentum 0.9 --output m.safetensors";
    let text =
        String::from_utf8(antiphon(folder.path(), line).success().get_output().stdout.clone()).unwrap();
    assert!(text.contains("proven within") && text.contains("antiphon verify m.safetensors"), "{text}");

    let value = json(folder.path(), "verify m.safetensors --json", 0);
    assert_eq!(value["ok"], true);
    assert!(value["over_optimum"].as_f64().unwrap() <= 1e-3);
    assert!(
        value["checks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|check| check["passed"] == true && check["name"].is_string() && check["detail"].is_string())
    );

    for matrix in ["C", "B", "X", "Cinv"] {
        antiphon(folder.path(), &format!("export m.safetensors --matrix {matrix} --output {matrix}.npy"))
            .success();
    }
    let read = |name: &str| npy::read(&folder.path().join(name)).unwrap();
    let (c, b, x, inverse) = (read("C.npy"), read("B.npy"), read("X.npy"), read("Cinv.npy"));
    assert!(dense::squared_norm(&(&c * &inverse - dense::identity(40))) < 1e-20);
    assert!(dense::squared_norm(&(dense::gram(&c) - &x)) < 1e-20);
    let a = antiphon::workload::Workload::training(40, 0.9, None).unwrap().matrix();
    assert!(dense::squared_norm(&(&b * &c - &a)) < 1e-16 * dense::squared_norm(&a));

    // As a foreign matrix it is as good as it was.
    let line = "verify C.npy --epochs 4 --steps-per-epoch 10 --momentum 0.9 --json";
    let foreign = json(folder.path(), line, 0);
    let (own, other) = (value["loss"].as_f64().unwrap(), foreign["loss"].as_f64().unwrap());
    assert!((own / other - 1.0).abs() < 1e-7, "{own} {other}");
    let value = json(folder.path(), "sensitivity m.safetensors --json", 0);
    assert_eq!(value["kind"], "exact");
}

#[test]
fn a_mechanism_from_a_formula_goes_around_the_house() {
    let folder = folder();
    let run = "--epochs 4 --steps-per-epoch 10 --momentum 0.9";
    for (family, kind) in
        [("tree-online", "structured"), ("fft-optimal", "structured"), ("single-epoch", "structured")]
    {
        let line = format!("make {family} --stamps 3 {run} --json --output {family}.safetensors");
        let made = json(folder.path(), &line, 0);
        assert_eq!((made["name"].as_str(), made["kind"].as_str()), (Some(family), Some(kind)));
        assert_eq!((&made["stamps"], &made["steps"]), (&3.into(), &40.into()));
        let number = |name: &str| made[name].as_f64().unwrap_or_else(|| panic!("{name} in {made}"));
        assert!((number("gap") - (number("loss") / number("lower_bound") - 1.0)).abs() < 1e-12);
        assert!(number("rmse") > 0.0 && number("sensitivity") > 0.0 && number("seconds") > 0.0);

        let verified = json(folder.path(), &format!("verify {family}.safetensors --json"), 0);
        assert_eq!(
            (&verified["ok"], &verified["id"], &verified["kind"]),
            (&true.into(), &made["id"], &made["kind"])
        );
        assert!((verified["loss"].as_f64().unwrap() / number("loss") - 1.0).abs() < 1e-6);
        let found = json(folder.path(), &format!("sensitivity {family}.safetensors --all-methods --json"), 0);
        assert_eq!(found["kind"], "exact");
        assert!(found["upper"].as_f64().unwrap() <= number("sensitivity"));

        for matrix in ["C", "B", "X", "Cinv"] {
            let line = format!("export {family}.safetensors --matrix {matrix} --output {matrix}.npy --force");
            antiphon(folder.path(), &line).success();
        }
        let read = |name: &str| npy::read(&folder.path().join(name)).unwrap();
        let (c, b, x, w) = (read("C.npy"), read("B.npy"), read("X.npy"), read("Cinv.npy"));
        assert!(dense::squared_norm(&(&w * &c - dense::identity(40))) < 1e-20);
        assert!(dense::squared_norm(&(dense::gram(&c) - &x)) < 1e-20);
        let a = antiphon::workload::Workload::training(40, 0.9, None).unwrap().matrix();
        assert!(dense::squared_norm(&(&b * &c - &a)) < 1e-16 * dense::squared_norm(&a));
    }
    // Without --output nothing is written, and it is said how to keep it.
    let output =
        antiphon(folder.path(), &format!("make identity {run}")).success().get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    assert!(text.contains(&format!("antiphon make identity {run} --output mechanism.safetensors")), "{text}");
    // Another family under the same claims.
    let path = folder.path().join("tree-online.safetensors");
    let mut mechanism = antiphon::file::read(&path).unwrap().into_parts();
    let family = antiphon::families::IDENTITY;
    mechanism.noise = Noise::Structured(Structured::formula(family, 3));
    antiphon::file::write(&path, &mechanism.clone().into(), true).unwrap();
    assert_eq!(json(folder.path(), "verify tree-online.safetensors --json", 1)["ok"], false);
    // One byte of the file.
    let path = folder.path().join("fft-optimal.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let before = br#"stamps\":"#;
    let at = bytes.windows(before.len()).position(|window| window == before).unwrap() + before.len();
    assert_eq!(bytes[at], b'3');
    bytes[at] = b'2';
    std::fs::write(&path, bytes).unwrap();
    assert!(message(folder.path(), "verify fft-optimal.safetensors", 2).contains("the file was changed"));
}

#[test]
fn the_papers_counterexample() {
    let folder = folder();
    // Paper, "A counterexample for general C": signs give 1, vectors √1.125.
    let c = [[2.0, 1.0, 1.0], [1.0, 2.0, -1.0], [1.0, -1.0, 2.0]];
    let c = dense::from_fn(3, 3, |i, j| c[i][j] / 24f64.sqrt());
    npy::write(&folder.path().join("C.npy"), &c, false).unwrap();
    let line = "sensitivity C.npy --epochs 3 --steps-per-epoch 1 --all-methods --json";
    let value = json(folder.path(), line, 0);
    assert_eq!(value["kind"], "exact");
    assert!((value["upper"].as_f64().unwrap() - 1.125f64.sqrt()).abs() < 1e-7);
    assert!(value["lower"].as_f64().unwrap() <= value["upper"].as_f64().unwrap());
    let methods = value["methods"].as_array().unwrap();
    let brute = methods.iter().find(|m| m["method"] == "scalar-brute-force").unwrap();
    assert!((brute["value"].as_f64().unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(brute["kind"], "lower");
}

#[test]
fn the_papers_table_is_reproduced() {
    let value = json(folder().path(), "reproduce non-negativity --json", 0);
    assert_eq!(value["ok"], true);
    assert_eq!(value["rows"].as_array().unwrap().len(), 6);
}

#[test]
fn bad_input_is_named_with_range_and_value() {
    let folder = folder();
    std::fs::write(folder.path().join("gap.json"), "[[0, 2], [1, 9]]").unwrap();
    std::fs::write(folder.path().join("rates.txt"), "1 0.5 -1 1 1 1").unwrap();
    std::fs::write(folder.path().join("junk.safetensors"), "not a mechanism").unwrap();
    std::fs::write(folder.path().join("short.txt"), "hello").unwrap();
    std::fs::write(folder.path().join("long.txt"), "one line of text\n".repeat(1000)).unwrap();
    std::fs::write(folder.path().join("zeros.bin"), [0; 100]).unwrap();
    let other = r#"{"__metadata__":{"format":"pt","format_version":"1"}}"#;
    let bytes = [&(other.len() as u64).to_le_bytes()[..], other.as_bytes()].concat();
    std::fs::write(folder.path().join("other.safetensors"), bytes).unwrap();
    for (line, expected) in [
        ("optimize --epochs 0 --steps-per-epoch 2", "--epochs must be in 1..=268435456, got 0"),
        ("optimize --steps 10 --steps-per-epoch 11", "--steps-per-epoch must be in 1..=10, got 11"),
        ("optimize --epochs 2 --steps-per-epoch 5 --gap 0", "--gap must be in [1e-8, 1], got 0"),
        ("optimize --epochs 2 --steps-per-epoch 5 --momentum 1", "--momentum must be in [0, 1), got 1"),
        ("optimize --epochs 2 --steps-per-epoch 5 --steps 9", "--steps must be left out"),
        ("optimize", "--epochs K --steps-per-epoch B"),
        ("optimize --epochs 2 --steps-per-epoch 9000", "--implicit"),
        ("optimize --steps 9 --min-separation 3 --max-participations 2", "exponentially many"),
        ("optimize --patterns gap.json", "step 3 is in no participation pattern"),
        (
            "optimize --epochs 3 --steps-per-epoch 2 --learning-rates rates.txt",
            "learning rate of step 2 must be",
        ),
        ("optimize --epochs 3 --steps-per-epoch 2 --cooldown 2:0.1", "FRACTION must be in (0, 1], got 2"),
        ("optimize --epochs 3 --steps-per-epoch 2 --threads 0", "--threads must be in 1..=1024, got 0"),
        ("optimize --epochs 3 --steps-per-epoch 2 --momentum -0.1", "--momentum must be in [0, 1), got -0.1"),
        ("optimize --epochs 3 --steps-per-epoch 4 --implicit --gap 1e-8", "--gap must be in [1e-6, 1]"),
        ("optimize --epochs 3 --steps-per-epoch 2 --output . --force", "is a folder"),
        ("optimize --epochs 3 --steps-per-epoch 2 --output /dev/null --force", "is not a regular file"),
        ("optimize --epochs 3 --steps-per-epoch 2 --output m.npy", "antiphon export"),
        ("make fft --epochs 3 --steps-per-epoch 2 --stamps 7", "--stamps must be in 1..=6, got 7"),
        ("make fft --epochs 3 --steps-per-epoch 2 --gap 2", "--gap must be in [1e-6, 1], got 2"),
        ("make from --epochs 3 --steps-per-epoch 2", "FILE must be a mechanism file or an encoder as .npy"),
        ("make fft x.npy --epochs 3 --steps-per-epoch 2", "FILE must be left out: fft is made from"),
        ("make from missing.npy --epochs 3 --steps-per-epoch 2", "missing.npy"),
        ("make optimal --stamps 2 --epochs 3 --steps-per-epoch 2", "--stamps must be 1 for optimal"),
        (
            "make per-epoch --stamps 2 --epochs 3 --steps-per-epoch 2",
            "--stamps must be left out for per-epoch",
        ),
        ("make fft --epochs 3 --steps-per-epoch 2 --output m.npy", "antiphon export"),
        ("make wavelet --epochs 3 --steps-per-epoch 2", "invalid value 'wavelet'"),
        ("verify missing.safetensors", "missing.safetensors"),
        ("verify short.txt", "short.txt: not a mechanism file"),
        ("verify long.txt", "long.txt: not a mechanism file"),
        ("verify zeros.bin", "zeros.bin: not a mechanism file"),
        ("verify other.safetensors", "other.safetensors: not a mechanism file"),
        ("verify junk.safetensors", "junk.safetensors: not a mechanism file"),
        ("sensitivity missing.npy --epochs 2 --steps-per-epoch 2", "missing.npy"),
    ] {
        let text = message(folder.path(), line, 2);
        assert!(text.contains(expected), "`{line}` should say `{expected}`, said: {text}");
    }
}

#[test]
fn an_unreachable_gap_is_no_result() {
    let line = "optimize --epochs 6 --steps-per-epoch 20 --momentum 0.9 --max-iterations 2 --gap 1e-6";
    let text = message(folder().path(), line, 1);
    assert!(text.contains("the gap reached is") && text.contains("1.000e-6"), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["reproduce", "non-negativity"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn existing_files_are_kept() {
    let folder = folder();
    std::fs::write(folder.path().join("m.safetensors"), "precious").unwrap();
    let line = "optimize --epochs 3 --steps-per-epoch 4 --output m.safetensors";
    assert!(message(folder.path(), line, 2).contains("--force"));
    assert_eq!(std::fs::read(folder.path().join("m.safetensors")).unwrap(), b"precious");
    antiphon(folder.path(), &format!("{line} --force")).success();
    antiphon(folder.path(), "verify m.safetensors").success();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no leftovers");
}

#[test]
fn a_changed_claim_is_found_out() {
    let folder = folder();
    antiphon(folder.path(), "optimize --epochs 3 --steps-per-epoch 4 --output m.safetensors").success();
    let path = folder.path().join("m.safetensors");
    let mut mechanism = antiphon::file::read(&path).unwrap().into_parts();
    mechanism.claims.sensitivity *= 0.999;
    antiphon::file::write(&path, &mechanism.clone().into(), true).unwrap();
    let value = json(folder.path(), "verify m.safetensors --json", 1);
    assert_eq!(value["ok"], false);
    let failed: Vec<&Value> =
        value["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["name"], "sensitivity");
}

#[test]
fn export_says_the_sensitivity_that_is_derived_or_none() {
    let folder = folder();
    antiphon(folder.path(), "make tree-online --epochs 3 --steps-per-epoch 4 --output m").success();
    let path = folder.path().join("m");
    let mut mechanism = antiphon::file::read(&path).unwrap().into_parts();
    let derived = json(folder.path(), "verify m --json", 0)["sensitivity_upper"].clone();
    let line = "export m --matrix Cinv --output w.npy --force";
    // A claim that is too large holds, but is not what noise has to be scaled with.
    mechanism.claims.sensitivity *= 1.5;
    mechanism.claims.loss *= 2.25;
    antiphon::file::write(&path, &mechanism.clone().into(), true).unwrap();
    let value = json(folder.path(), &format!("{line} --json"), 0);
    assert_eq!((&value["sensitivity"], &value["verified"]), (&derived, &true.into()));
    assert_eq!((&value["rows"], &value["file"]), (&12.into(), &"w.npy".into()));
    let printed = |status: i32| {
        let output = antiphon(folder.path(), line).code(status).get_output().clone();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let figure = format!("{:.4}", derived.as_f64().unwrap());
    assert!(printed(0).0.contains(&format!("is at most {figure}")), "{:?}", printed(0));
    // One that is too small does not hold: the matrix, but no figure.
    mechanism.claims.sensitivity = 0.9 * derived.as_f64().unwrap();
    antiphon::file::write(&path, &mechanism.clone().into(), true).unwrap();
    std::fs::remove_file(folder.path().join("w.npy")).unwrap();
    let value = json(folder.path(), &format!("{line} --json"), 1);
    assert_eq!((&value["sensitivity"], &value["verified"]), (&Value::Null, &false.into()));
    let (said, remark) = printed(1);
    assert!(
        said.contains("no sensitivity is given: m FAILED verification") && !said.contains("at most"),
        "{said}"
    );
    assert!(remark.contains("fails verification"), "{remark}");
    assert_eq!(npy::read(&folder.path().join("w.npy")).unwrap().nrows(), 12);
}

#[test]
#[cfg(unix)]
fn interruption_leaves_nothing_behind() {
    let folder = folder();
    // Long enough to be interrupted on any machine: a gap that is not reached soon.
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .current_dir(folder.path())
        .args(
            "optimize --epochs 6 --steps-per-epoch 342 --momentum 0.95 --gap 1e-8 --max-iterations 100000"
                .split(' '),
        )
        .args(["--output", "m.safetensors"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
