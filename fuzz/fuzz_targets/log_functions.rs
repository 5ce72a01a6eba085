//! Fuzzes the bytes of a file of functions: `skep_fuzz_targets::log_functions` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::log_functions::run(input));
