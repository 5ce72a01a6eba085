//! Fuzzes the bytes of a file of functions of a data directory.
//!
//! Looks for two faults:
//! 1. a panic
//! 2. functions that are decoded differently after they were decoded and encoded again, or other bytes: there is one
//!    encoding

use skep_log::{Pages, StoredFunctions, VERSION, set_functions_checksum};

/// Runs the target: on the bytes, and on the same with a valid checksum.
pub fn run(input: &[u8]) {
    check(input);
    let mut bytes = input.to_vec();
    set_functions_checksum(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Ok((functions, generation)) = StoredFunctions::decode(bytes) else { return };
    let mut pages = Pages::default();
    functions.encode(generation, &mut pages);
    assert_eq!(StoredFunctions::decode(pages.bytes()), Ok((functions, generation)));
    if bytes[16..18] == VERSION.to_le_bytes() {
        assert!(bytes.starts_with(pages.bytes()), "two encodings");
    }
}
