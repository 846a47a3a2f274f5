//! A key file: never a panic, no message tells the key, and a use that is recorded leaves the key as it is.

#![no_main]

#[path = "../../crates/antiphon/tests/hostile/bodies.rs"]
mod bodies;

use std::sync::LazyLock;

/// One folder for the whole process.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::key(bytes, &FOLDER.path().join("key"));
});
