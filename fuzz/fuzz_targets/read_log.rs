//! A participation log: never a panic, and what is read is in order and within the limits.

#![no_main]

#[path = "../../crates/antiphon/tests/hostile/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::log(bytes);
});
