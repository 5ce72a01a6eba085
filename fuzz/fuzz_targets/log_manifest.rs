//! Fuzzes the bytes of a manifest: `skep_fuzz_targets::log_manifest` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::log_manifest::run(input));
