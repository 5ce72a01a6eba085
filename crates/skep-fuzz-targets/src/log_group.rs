//! Fuzzes the bytes of a group in a segment of the log.
//!
//! Looks for three faults:
//! 1. a panic
//! 2. a group that is larger than its bytes
//! 3. a number of operations that differs from the count of its block

use skep_log::{Group, set_group_checksums};

/// Runs the target: on the bytes, and on the same with valid checksums.
pub fn run(input: &[u8]) {
    check(input);
    let mut bytes = input.to_vec();
    set_group_checksums(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Some(group) = Group::decode(bytes) else { return };
    assert!(group.size <= bytes.len());
    for block in group.blocks() {
        let operations: Vec<_> = block.sections().flat_map(|section| section.operations).collect();
        assert_eq!(operations.len(), block.count as usize);
    }
}
