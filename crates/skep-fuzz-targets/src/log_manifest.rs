//! Fuzzes the bytes of a manifest and of the header of a segment.
//!
//! Looks for two faults:
//! 1. a panic
//! 2. a manifest that is decoded differently after it was decoded and encoded again

use skep_log::{Manifest, Pages, SegmentHeader, set_manifest_checksum};

/// Runs the target: on the bytes, and on the same with a valid checksum.
pub fn run(input: &[u8]) {
    _ = SegmentHeader::decode(input);
    check(input);
    let mut bytes = input.to_vec();
    set_manifest_checksum(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    let mut pages = Pages::default();
    manifest.encode(&mut pages);
    assert_eq!(Manifest::decode(pages.bytes()), Ok(manifest));
}
