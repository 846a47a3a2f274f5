//! Running the binary.
#![allow(dead_code)] // not every test file needs all of it

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};

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

/// Starts a command, and leaves it running.
pub fn started(here: &Path, line: &str) -> Child {
    std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .env_remove("CARGO")
        .current_dir(here)
        .args(line.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The parameters and velocity in a checkpoint: everything but the times.
pub fn parameters(here: &Path, name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(here.join(name).join("checkpoint.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    ["parameters", "velocity"].map(|name| tensors.tensor(name).unwrap().data().to_vec()).to_vec()
}
