//! Fuzzes the source of user functions: `skep_fuzz_targets::function_source` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::function_source::run(input));
