//! Valid checksums in bytes that a fuzzer has made. Without them it does not reach the code that the checksums protect.

use crate::{chunk, functions_file, group, manifest};

/// Writes valid checksums into bytes that may be a group.
pub fn set_group_checksums(bytes: &mut [u8]) {
    group::set_checksums(bytes);
}

/// Writes a valid checksum into bytes that may be a chunk.
pub fn set_chunk_checksum(bytes: &mut [u8]) {
    chunk::set_checksum(bytes);
}

/// Writes a valid checksum into bytes that may be a file of functions.
pub fn set_functions_checksum(bytes: &mut [u8]) {
    functions_file::set_checksum(bytes);
}

/// Writes a valid checksum into bytes that may be a manifest.
pub fn set_manifest_checksum(bytes: &mut [u8]) {
    manifest::set_checksum(bytes);
}
