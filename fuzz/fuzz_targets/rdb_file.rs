//! Fuzzes the bytes of an RDB file: `skep_fuzz_targets::rdb_file` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::rdb_file::run(input));
