//! Appending operations, sealing blocks and writing groups allocate nothing, once the buffers have grown.
//!
//! The allocator of this program counts, for all threads. So there is one test, and nothing beside it.

use std::alloc::System;
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};
use skep_log::{BlockWriter, Directory, Files, GroupWriter, LogSettings, Manifest, ManifestShard, Segments};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const THREADS: usize = 3;
/// Rounds until the buffers have grown.
const WARM_UP: u64 = 20;

/// Appends batches of all threads, with effects and additions, and writes them. Returns the allocations of the writers.
fn round(number: u64, writers: &mut [BlockWriter], groups: &mut GroupWriter, segments: &Segments<Files>) -> usize {
    let region = Region::new(ALLOCATOR);
    for writer in writers.iter_mut() {
        for batch in 0..3 {
            for key in 0..256_u64 {
                let (key, value) = (key.to_le_bytes(), (key * number).to_le_bytes());
                let put = Operation::Put { value: &value, condition: PutCondition::Always };
                let request = Request { key: &key, operation: put };
                assert!(match batch {
                    0 => writer.append(0, number, &request),
                    1 =>
                        writer.append(0, number, &Request { operation: Operation::AddDecimal { delta: 3 }, ..request }),
                    _ => writer.append_effect(1, number, &request),
                });
            }
            groups.push(writer.seal(number).expect("it has operations"));
        }
    }
    let mut next_writer = 0;
    let mut allocations = region.change().allocations;
    loop {
        let region = Region::new(ALLOCATOR);
        // Of two writes in flight, the second one ends first.
        let writes = [groups.next_write(), groups.next_write()];
        while let Some(block) = groups.take_spent() {
            writers[next_writer % THREADS].reuse(block);
            next_writer += 1;
        }
        allocations += region.change().allocations;
        if writes[0].is_none() {
            return allocations;
        }
        for write in writes.into_iter().rev().flatten() {
            let result = segments.write(&write);
            let region = Region::new(ALLOCATOR);
            groups.written(write, result);
            allocations += region.change().allocations;
        }
    }
}

#[test]
fn the_writers_allocate_nothing() {
    let path = tempfile::tempdir().unwrap();
    let mut directory = Directory::open(Arc::new(Files::open(path.path()).unwrap())).unwrap();
    let end = directory.read_log(false, |_| Ok(())).unwrap();
    let manifest = Manifest { shards: vec![ManifestShard::default()], ..Manifest::default() };
    let settings = LogSettings { segment_size: 16 << 20, group_size: 8 << 10 };
    let mut writers: Vec<BlockWriter> = (0..THREADS).map(|_| BlockWriter::new()).collect();
    let (mut groups, segments) = directory.begin(end, settings, manifest, || 7).unwrap();
    for number in 1..=WARM_UP {
        round(number, &mut writers, &mut groups, &segments);
    }
    let allocations: usize =
        (1..=100).map(|number| round(WARM_UP + number, &mut writers, &mut groups, &segments)).sum();
    assert_eq!(allocations, 0);
    assert_eq!(groups.durable_block(), (WARM_UP + 100) * 3 * THREADS as u64);
}
