//! Running the binary.
#![allow(dead_code)] // not every test file needs all of it

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

/// Runs the binary in a folder.
pub fn antiphon(folder: &Path, line: &str) -> assert_cmd::assert::Assert {
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .env_remove("CARGO")
        .current_dir(folder)
        .args(line.split_whitespace())
        .assert()
}

/// The JSON object that a command prints.
pub fn json(folder: &Path, line: &str, status: i32) -> Value {
    let assert = antiphon(folder, line).code(status);
    serde_json::from_slice(&assert.get_output().stdout).expect("one JSON object on standard output")
}

/// What a command that fails says.
pub fn message(folder: &Path, line: &str, status: i32) -> String {
    let assert = antiphon(folder, line).code(status);
    assert!(assert.get_output().stdout.is_empty(), "nothing but results on standard output");
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// An empty folder.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
