//! Fuzzes the bytes of a chunk in a file of a snapshot.
//!
//! Looks for four faults:
//! 1. a panic
//! 2. a chunk that is larger than its bytes
//! 3. a number of pairs that differs from that of the header
//! 4. steps that are not in the order of their places and marks

use skep_log::{Chunk, SnapshotPart, Step, set_chunk_checksum};

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
    let steps: Vec<Step<'_>> = chunk.steps().collect();
    let (last, others) = steps.split_last().expect("a chunk has a step");
    assert!(others.iter().all(|step| step.end > chunk.from));
    assert!(others.is_sorted_by(|step, next| step.end < next.end && step.mark <= next.mark));
    // The range above the walk over the ordered space may have an earlier version than the steps before it.
    let above_walk = chunk.part == SnapshotPart::Ordered && last.end.is_empty() && last.pairs == 0;
    assert!(others.last().is_none_or(|step| above_walk || step.mark <= last.mark));
    assert!(others.last().is_none_or(|step| last.end.is_empty() || step.end < last.end));
}
