//! Fuzzes the bytes that a client sends on the native port: `skep_fuzz_targets::request_frame` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::request_frame::run(input));
