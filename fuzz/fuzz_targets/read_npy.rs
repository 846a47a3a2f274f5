//! A .npy file: never a panic, and no more memory than a small multiple of the file.

#![no_main]

#[path = "../../crates/antiphon/tests/hostile/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bodies::npy(bytes);
});
