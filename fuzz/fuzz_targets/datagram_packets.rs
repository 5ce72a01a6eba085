//! Fuzzes the packets of a session over UDP: `skep_fuzz_targets::datagram_packets` says what it looks for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| skep_fuzz_targets::datagram_packets::run(input));
