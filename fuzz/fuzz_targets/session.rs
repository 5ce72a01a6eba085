//! Fuzzes the bytes of a whole connection: `skep_fuzz_targets::session` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::session::run(input));
