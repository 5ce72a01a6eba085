//! Fuzzes the bytes of a chunk of a snapshot: `skep_fuzz_targets::log_chunk` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::log_chunk::run(input));
