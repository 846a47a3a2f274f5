//! What holds for all commands: help, errors as JSON, exit statuses, completions, manual pages.

mod common;

use assert_cmd::Command;
use common::{antiphon, folder, json, message};
use std::path::Path;

const COMMANDS: [&str; 15] = [
    "train",
    "optimize",
    "make",
    "compare",
    "plan",
    "verify",
    "account",
    "audit",
    "sensitivity",
    "noise",
    "export",
    "data",
    "reproduce",
    "completions",
    "man",
];

fn text(folder: &Path, line: &str) -> String {
    String::from_utf8(antiphon(folder, line).success().get_output().stdout.clone()).unwrap()
}

/// The help of a command on a terminal of so many columns.
fn help(command: &str, columns: usize) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .env("COLUMNS", columns.to_string())
        .args([command, "--help"])
        .assert()
        .success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

/// Text that was broken by hand and again by the width has short lines in the middle of a sentence.
#[test]
fn help_is_wrapped_once() {
    for columns in [60, 80, 100, 200] {
        for command in COMMANDS {
            let text = help(command, columns);
            let about = text.split("Usage:").next().unwrap();
            let lines: Vec<&str> = about.lines().collect();
            for pair in lines.windows(2) {
                let [line, next] = [pair[0], pair[1]];
                // Lists and examples are indented, and have lines of their own.
                if line.is_empty() || line.starts_with(' ') || next.is_empty() || next.starts_with(' ') {
                    continue;
                }
                let word = next.split(' ').next().unwrap();
                let joined = line.chars().count() + 1 + word.chars().count();
                assert!(
                    joined > columns.min(100),
                    "{command}, {columns} columns: `{word}` fits after `{line}`"
                );
            }
            for line in about.lines().filter(|line| line.trim().contains(' ')) {
                assert!(line.chars().count() <= columns.min(100), "{command}, {columns} columns: {line}");
            }
        }
    }
}

#[test]
fn one_table_has_all_exit_statuses() {
    let text = text(folder().path(), "--help");
    for line in
        ["0    done", "1    a check failed", "2    bad input", "3    the machine refused", "130  interrupted"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn errors_are_json_with_json() {
    let folder = folder();
    std::fs::write(folder.path().join("junk.txt"), "not a mechanism").unwrap();
    for (line, status, kind, part) in [
        (
            "optimize --epochs 0 --steps-per-epoch 2",
            2,
            "argument",
            "--epochs must be in 1..=268435456, got 0",
        ),
        ("verify junk.txt", 2, "file", "junk.txt: not a mechanism file"),
        ("verify missing.safetensors", 2, "io", "missing.safetensors"),
        ("optimize", 2, "unsupported", "the participation schema is missing"),
        ("optimize --epochs six", 2, "usage", "a whole number"),
        ("optimize --epochs -1", 2, "usage", "'--epochs <K>': the value must be a whole number"),
        ("frobnicate", 2, "usage", "unrecognized subcommand 'frobnicate'"),
        ("", 2, "usage", "Usage"),
        (
            "optimize --epochs 6 --steps-per-epoch 20 --max-iterations 1 --gap 1e-7",
            1,
            "no-convergence",
            "after 1 iteration",
        ),
        (
            "optimize --epochs 3 --steps-per-epoch 2 --output no/m.safetensors",
            3,
            "io",
            "its folder does not exist",
        ),
    ] {
        let value = json(folder.path(), &format!("{line} --json"), status);
        assert_eq!((&value["ok"], &value["error"]["kind"]), (&false.into(), &kind.into()), "{line}: {value}");
        assert!(value["error"]["message"].as_str().unwrap().contains(part), "{line}: {value}");
        // Without the flag the same on standard error alone.
        assert!(message(folder.path(), line, status).contains(part), "{line}");
    }
    // Help is no error.
    assert!(text(folder.path(), "verify --help --json").contains("Usage"));
}

#[test]
#[cfg(target_os = "linux")]
fn the_machine_that_refuses_has_a_status_of_its_own() {
    let folder = folder();
    let shell = |script: &str| {
        let output = std::process::Command::new("sh")
            .current_dir(folder.path())
            .args(["-c", script, env!("CARGO_BIN_EXE_antiphon")])
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // A file that may not grow beyond one block, as on a full disk.
    let make = "make single-epoch --epochs 3 --steps-per-epoch 20 --output m.safetensors";
    let (status, stderr) = shell(&format!("trap '' XFSZ; ulimit -f 1; exec \"$0\" {make}"));
    assert_eq!(status, Some(3), "{stderr}");
    assert!(stderr.contains("m.safetensors: "), "{stderr}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    // Standard output on a full disk.
    let (status, stderr) = shell("exec \"$0\" make identity --epochs 2 --steps-per-epoch 2 > /dev/full");
    assert_eq!(status, Some(3), "{stderr}");
    assert!(stderr.contains("standard output: "), "{stderr}");
}

#[test]
fn completions_know_every_command_and_flag() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(folder.path(), &format!("completions {shell}"));
        for word in COMMANDS.iter().chain(&["steps-per-epoch", "without", "noise-multiplier"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let value = json(folder.path(), &format!("completions {shell} --json"), 0);
        assert_eq!(value["script"].as_str().unwrap().trim_end(), script.trim_end());
    }
    assert!(message(folder.path(), "completions tcsh", 2).contains("[possible values: bash, zsh, fish]"));
}

#[test]
fn manual_pages_are_there_for_every_command() {
    let folder = folder();
    let page = text(folder.path(), "man");
    assert!(page.contains(".TH antiphon 1") && page.contains("Exit status"), "{page}");
    let value = json(folder.path(), "man --output pages --json", 0);
    let files: Vec<&str> = value["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    for command in COMMANDS {
        let path = format!("pages/antiphon-{command}.1");
        assert!(files.contains(&path.as_str()), "{files:?}");
        let page = std::fs::read_to_string(folder.path().join(&path)).unwrap();
        assert!(page.contains(&format!(".TH antiphon-{command} 1")), "{page}");
    }
    assert!(
        files.contains(&"pages/antiphon.1") && files.contains(&"pages/antiphon-data-fetch.1"),
        "{files:?}"
    );
    assert!(message(folder.path(), "man --output pages", 2).contains("use --force"));
    antiphon(folder.path(), "man --output pages --force").success();
}
