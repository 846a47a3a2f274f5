//! Reading a mechanism file must not panic and must not take more memory than the file warrants.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = antiphon::file::from_bytes(bytes);
});
