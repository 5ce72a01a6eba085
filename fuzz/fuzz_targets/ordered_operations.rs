//! Fuzzes batches of operations on a small ordered store: `skep_fuzz_targets::ordered_operations` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::ordered_operations::run(input));
