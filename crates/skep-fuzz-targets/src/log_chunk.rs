//! Fuzzes the bytes of a chunk in a file of a snapshot.
//!
//! Looks for four faults:
//! 1. a panic
//! 2. a chunk that is larger than its bytes
//! 3. a number of pairs that differs from that of the header
//! 4. steps that are not in the order of their positions and blocks

use skep_log::{Chunk, Step, set_chunk_checksum};

/// Runs the target: on the bytes, and on the same with a valid checksum.
pub fn run(input: &[u8]) {
    check(input);
    let mut bytes = input.to_vec();
    set_chunk_checksum(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Some(chunk) = Chunk::decode(bytes) else { return };
    assert!(chunk.size <= bytes.len());
    assert_eq!(chunk.requests().count(), chunk.pairs as usize);
    let steps: Vec<Step> = chunk.steps().collect();
    assert!(steps[0].to >= chunk.from);
    assert!(steps.is_sorted_by(|step, next| step.to < next.to && step.block <= next.block));
}
