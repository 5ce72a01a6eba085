//! Fuzzes the bytes of a group of the log: `skep_fuzz_targets::log_group` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::log_group::run(input));
