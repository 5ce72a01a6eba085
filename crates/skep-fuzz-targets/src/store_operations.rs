//! Fuzzes batches of operations on a small hash store, and compares it with the naive store.
//!
//! The bytes are decoded as settings, then as batches. The memory is small, so that chains grow and the store becomes
//! full. Looks for four faults:
//! 1. a panic
//! 2. a reply that differs from that of the naive store
//! 3. a refused operation that changed something
//! 4. a lost pair

use arbitrary::{Result, Unstructured};
use skep_store::hash::Settings;
use skep_store::naive::{Harness, NaiveStore, OwnedOperation, OwnedRequest};
use skep_store::processor::Processor;

use crate::operations::{KEY_COUNT, key, key_number, operation};

/// Runs the target.
pub fn run(input: &[u8]) {
    // The run ends when the bytes end.
    let _ = run_batches(&mut Unstructured::new(input));
}

fn run_batches(input: &mut Unstructured<'_>) -> Result<()> {
    let memory = *input.choose(&[64 << 10, 256 << 10, 1 << 20, 8 << 20])?;
    let kv_size = *input.choose(&[Some(10), Some(62), Some(254), None])?;
    let seed = input.arbitrary()?;
    let settings = kv_size.map_or(Settings::growing(memory, seed), |size| Settings::for_kv_size(memory, size, seed));
    let mut processor = Processor::new(&settings).expect("a few megabytes can be reserved");
    let mut harness = Harness::new(NaiveStore::new(), *input.choose(&[1, 4096, 64 << 20])?, 0);
    while !input.is_empty() {
        let count = input.int_in_range(1..=64)?;
        let requests = (0..count).map(|_| request(input)).collect::<Result<Vec<_>>>()?;
        harness.execute_owned(&requests, |requests, replies| processor.execute(requests, replies));
    }
    let every_key: Vec<OwnedRequest> =
        (0..KEY_COUNT).map(|number| OwnedRequest { key: key(number), operation: OwnedOperation::Get }).collect();
    harness.execute_owned(&every_key, |requests, replies| processor.execute(requests, replies));
    assert_eq!(processor.statistics().pairs, harness.naive().len() as u64);
    Ok(())
}

fn request(input: &mut Unstructured<'_>) -> Result<OwnedRequest> {
    let number = key_number(input)?;
    Ok(OwnedRequest { key: key(number), operation: operation(input, number)? })
}
