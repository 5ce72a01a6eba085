//! Fuzzes memcached's requests that arrive in pieces: `skep_fuzz_targets::memcached_request` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::memcached_request::run(input));
