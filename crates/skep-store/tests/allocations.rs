//! The hot path allocates nothing: batches of every operation on small pairs, once the buffers have grown.
//!
//! The allocator of this program counts, for all threads. So there is one test, and nothing beside it.

use std::alloc::System;
use std::collections::HashSet;
use std::hint::black_box;

use skep_core::operation::{Operation, PutCondition, Reply, Request, StringWrite};
use skep_store::cache::{self, Cache};
use skep_store::hash::Settings;
use skep_store::naive::{Generator, GeneratorSettings, Mix, OwnedOperation, OwnedRequest, SizeWeights};
use skep_store::processor::{Processor, Replies};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SEED: u64 = 44;
/// Requests of a batch: one part of the processor and a piece of another.
const BATCH: usize = 300;
const BATCH_COUNT: usize = 400;
/// How often all batches are executed before allocations are counted. Backtraces of all allocations show that only
/// `HostPools::push` allocates after the fourth time. Each zone of the slab memory has a stack of free slabs for each class.
/// A stack takes memory for its first slab, and doubles. Every time the batches free the same number of slabs, but others,
/// so a zone may get its first slab of a class late. With inline values up to 25 and 50 bytes no stack grows after the
/// fourth time, without inline values some do until the tenth, one in the 13th and one in the 19th.
const WARM_UP: usize = 16;
/// Most bytes of a key and a value that a slab holds with its header.
const SMALL_PAIR_SIZE_MAX: usize = 508;

/// Outcomes that must have occurred while allocations were counted.
const OUTCOMES: &[(&str, &str)] = &[
    ("get", "value"),
    ("get", "not found"),
    ("contains", "done"),
    ("put", "done"),
    ("put if absent", "done"),
    ("put if absent", "exists"),
    ("put if present", "done"),
    ("put if present", "not found"),
    ("delete", "done"),
    ("delete", "not found"),
    ("update", "done"),
    ("update", "value"),
    ("update", "not found"),
    ("update", "failed"),
    ("reduce", "value"),
    ("filter", "value"),
    ("add decimal", "value"),
    ("add decimal", "failed"),
    ("string read", "value"),
    ("string write", "done"),
    ("string write", "value"),
];

fn operation_name(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Get => "get",
        Operation::Contains => "contains",
        Operation::Put { condition: PutCondition::Always, .. } => "put",
        Operation::Put { condition: PutCondition::IfAbsent, .. } => "put if absent",
        Operation::Put { condition: PutCondition::IfPresent, .. } => "put if present",
        Operation::Delete => "delete",
        Operation::Update(_) => "update",
        Operation::Reduce(_) => "reduce",
        Operation::Filter(_) => "filter",
        Operation::AddDecimal { .. } => "add decimal",
        Operation::Call(_) => "call",
        Operation::StringRead(_) => "string read",
        Operation::StringWrite(_) => "string write",
        Operation::Scan(_) => "scan",
    }
}

fn answer_name(reply: Reply<'_>) -> &'static str {
    match reply {
        Reply::Done => "done",
        Reply::Value(_) => "value",
        Reply::NotFound => "not found",
        Reply::Exists => "exists",
        Reply::Failed(_) => "failed",
        Reply::Deferred => "deferred",
    }
}

/// How often memory was allocated or grown meanwhile.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    work();
    let change = region.change();
    change.allocations + change.reallocations
}

/// Returns true if the pair that a request may store fits into one slab.
fn is_small(request: &OwnedRequest) -> bool {
    let value_size = match &request.operation {
        OwnedOperation::Put { value, .. } => value.len(),
        OwnedOperation::Update { initial, .. } => initial.as_ref().map_or(0, Vec::len),
        // An expiry takes eight bytes.
        OwnedOperation::StringWrite { write: StringWrite::Set { .. }, bytes, .. } => 8 + bytes.len(),
        OwnedOperation::StringWrite { write: StringWrite::Remove { .. } | StringWrite::Expire { .. }, .. } => 8,
        // The value may grow beyond a slab.
        OwnedOperation::StringWrite { .. } => return false,
        _ => 0,
    };
    request.key.len() + value_size <= SMALL_PAIR_SIZE_MAX
}

/// Every second request is to one of few keys, as under Zipf's law: most of these meet others of their key in the batch.
fn batches() -> Vec<Vec<OwnedRequest>> {
    let generator = |seed, key_count| {
        let sizes = SizeWeights { empty: 2, inline: 60, slab: 38, large: 0 };
        Generator::new(GeneratorSettings {
            seed,
            key_count,
            sizes,
            mix: Mix::built_in(),
            ..GeneratorSettings::default()
        })
        .filter(is_small)
    };
    let (mut all, mut popular) = (generator(SEED, 20_000), generator(SEED + 1, 20));
    let mut batch = || (0..BATCH / 2).flat_map(|_| [all.next(), popular.next()]).flatten().collect();
    (0..BATCH_COUNT).map(|_| batch()).collect()
}

/// Executes all batches. None may allocate, and all outcomes must occur.
fn check(
    batches: &[Vec<Request<'_>>],
    replies: &mut Replies,
    store: &str,
    mut execute: impl FnMut(&[Request<'_>], &mut Replies),
) {
    let mut seen = HashSet::new();
    for (number, batch) in batches.iter().enumerate() {
        let allocations = allocations(|| execute(batch, replies));
        assert_eq!(allocations, 0, "batch {number}, {store}, seed {SEED}");
        let pairs = batch.iter().zip(replies.iter());
        seen.extend(pairs.map(|(request, reply)| (operation_name(&request.operation), answer_name(reply))));
    }
    for outcome in OUTCOMES {
        assert!(seen.contains(outcome), "{outcome:?} took part, {store}, seed {SEED}");
    }
}

#[test]
fn small_operations_allocate_nothing() {
    assert_eq!(allocations(|| _ = black_box(vec![1u8; 10])), 1, "the counter counts");
    let grow = |mut bytes: Vec<u8>| bytes.resize(1000, 1);
    let bytes = vec![1u8; 10];
    assert_eq!(allocations(|| grow(black_box(bytes))), 1, "and it counts what grows");

    let owned = batches();
    let batches: Vec<Vec<Request<'_>>> =
        owned.iter().map(|batch| batch.iter().map(OwnedRequest::as_request).collect()).collect();
    // In a cache, a warm-up grows the buffers of replies and computed values.
    let mut cache = Cache::new(&cache::Settings { memory: 4 << 20, kv_size: 100, seed: SEED }).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for _ in 0..4 {
        batches.iter().for_each(|batch| cache.execute(batch, &mut replies));
    }
    check(&batches, &mut replies, "cache", |batch, replies| cache.execute(batch, replies));
    assert!(cache.statistics().log_evictions > 1000, "the log has wrapped around");

    for inline_threshold in [0, 25, 50] {
        let settings = Settings { memory: 32 << 20, hash_index_ratio: 0.1, inline_threshold, grows: false, seed: SEED };
        let mut processor = Processor::new(&settings).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        // What the batches put and delete they put and delete again.
        for _ in 0..WARM_UP {
            batches.iter().for_each(|batch| processor.execute(batch, &mut replies));
        }
        let slabs_before = processor.statistics().slab.allocations;
        let store = format!("inline up to {inline_threshold}");
        check(&batches, &mut replies, &store, |batch, replies| processor.execute(batch, replies));
        assert!(processor.statistics().slab.allocations > slabs_before + 1000, "slabs came and went");
    }
}
