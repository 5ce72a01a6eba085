//! Fuzzes batches of operations on a small hash store: `skep_fuzz_targets::store_operations` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::store_operations::run(input));
