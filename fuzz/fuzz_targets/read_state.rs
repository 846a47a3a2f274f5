//! The state of a run: never a panic, and what is read can be written.

#![no_main]

#[path = "../../crates/antiphon/tests/hostile/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = bodies::state(bytes);
});
