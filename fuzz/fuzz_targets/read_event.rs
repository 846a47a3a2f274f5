//! An event as JSON: never a panic, and one that passes the checks has a privacy loss.

#![no_main]

#[path = "../../crates/antiphon/tests/hostile/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::event(bytes);
});
