//! Tests of the hazards of an out-of-order engine.
//!
//! [`DelayedMemory`] makes every access take a random number of turns, so that operations overlap in ways that a CPU's
//! caches seldom show.

mod merging;
mod replay;

use std::cell::Cell;
use std::task::{Context, Waker};

use super::station::Admission;
use super::{Admitted, IN_FLIGHT_MAX, Processor, Replies, drive};
use crate::hash::{BucketIndex, Home, Settings, is_large};
use crate::memory::{Effect, Line, LocalMemory, MEMORY_SIZE_MAX, Memory, NoLines, Pointer, Span};
use crate::naive::{Generator, GeneratorSettings, NaiveStore, OwnedOperation, OwnedRequest, SizeWeights, SplitMix64};
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, OperationError, PutCondition, Reply, Request, Shape, StringWrite, Update};

/// A memory whose accesses end in no order.
struct DelayedMemory {
    memory: LocalMemory,
    random: Cell<u64>,
}

impl DelayedMemory {
    fn new(size: u64, seed: u64) -> Self {
        DelayedMemory { memory: LocalMemory::new(size).unwrap(), random: Cell::new(seed | 1) }
    }

    async fn delay(&self) {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        for _ in 0..x % 4 {
            self.memory.pause().await;
        }
    }
}

impl Memory for DelayedMemory {
    type Resident<'a> = NoLines;

    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn prefetch(&self, _: Span) {}
    async fn update_prefetched_line<R>(&self, pointer: Pointer, f: impl FnOnce(&mut Line) -> (Effect, R)) -> R {
        // Reading and writing are two accesses, as on a NIC.
        let mut line = self.read_line(pointer).await;
        let (effect, result) = f(&mut line);
        if effect == Effect::Changed {
            self.write_line(pointer, &line).await;
        }
        result
    }
    async fn read_line(&self, pointer: Pointer) -> Line {
        self.delay().await;
        let line = self.memory.read_line(pointer).await;
        self.delay().await;
        line
    }
    async fn write_line(&self, pointer: Pointer, line: &Line) {
        self.delay().await;
        self.memory.write_line(pointer, line).await;
        self.delay().await;
    }
    async fn read<R>(&self, span: Span, f: impl FnOnce(&[u8]) -> R) -> R {
        self.delay().await;
        self.memory.read(span, f).await
    }
    async fn update<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> (Effect, R)) -> R {
        self.delay().await;
        let result = self.memory.update(span, f).await;
        self.delay().await;
        result
    }
    async fn write(&self, span: Span, fill: impl FnOnce(&mut [u8])) {
        self.delay().await;
        self.memory.write(span, fill).await;
        self.delay().await;
    }
    async fn pause(&self) {
        self.memory.pause().await;
    }
}

/// Runs random batches over few buckets. Returns the first reply that differs from the naive store's.
fn run_delayed(seed: u64, admission: impl Fn(&Home) -> Admission + Copy) -> Result<(), String> {
    let settings = Settings { memory: 256 << 10, hash_index_ratio: 0.001, inline_threshold: 24, grows: false, seed };
    let memory = DelayedMemory::new(settings.memory, seed);
    let mut processor = Processor::with_memory(memory, &settings).unwrap();
    let mut naive = NaiveStore::new();
    let mut replies = Replies::with_budget(usize::MAX);
    let mut generator =
        Generator::new(GeneratorSettings { seed, key_count: 120, key_size: 4..=20, ..Default::default() });
    for batch in 0..40 {
        let batch_requests: Vec<OwnedRequest> = generator.by_ref().take(256).collect();
        let requests: Vec<Request<'_>> = batch_requests.iter().map(OwnedRequest::as_request).collect();
        processor.execute_admitted_by(&requests, &mut replies, admission);
        for (request, reply) in requests.iter().zip(replies.iter()) {
            naive
                .check(request, reply)
                .map_err(|expected| format!("seed {seed} batch {batch}: {request:?}\n{reply:?}, not {expected:?}"))?;
        }
    }
    Ok(())
}

#[test]
fn operations_on_one_bucket_do_not_interleave() {
    for seed in 0..40 {
        run_delayed(seed, |home| Admission::To(home.bucket)).unwrap();
    }
}

/// The control: the test above fails if the slots of the station follow from the key instead of the bucket.
#[test]
fn a_station_that_tells_keys_apart_instead_of_buckets_is_caught() {
    let caught = (0..40).any(|seed| {
        let run = || run_delayed(seed, |home| Admission::To(BucketIndex((home.hash.0 >> 20) as u32)));
        // Torn buckets may also end in a panic.
        std::panic::catch_unwind(run).map_or(true, |result| result.is_err())
    });
    assert!(caught);
}

/// Runs random operations that begin one by one while up to `IN_FLIGHT_MAX` are in flight, polled in random order. Compares
/// the replies with the naive store's.
fn run_flow(seed: u64, slot_of: fn(&Home) -> usize) -> Result<(), String> {
    let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.01, inline_threshold: 24, grows: false, seed: 3 };
    let memory = DelayedMemory::new(settings.memory, seed);
    let mut processor = Processor::with_memory(memory, &settings).unwrap();
    let mut naive = NaiveStore::new();
    let mut replies = Replies::with_budget(usize::MAX);
    let sizes = SizeWeights { empty: 1, inline: 6, slab: 3, large: 0 };
    let mut generator =
        Generator::new(GeneratorSettings { seed, key_count: 120, key_size: 4..=20, sizes, ..Default::default() });
    // A flow leaves values of more than one slab to others.
    let fits = |request: &OwnedRequest| {
        let stored = match &request.operation {
            OwnedOperation::Put { value, .. } => Some(value),
            OwnedOperation::Update { initial, .. } | OwnedOperation::Call { initial, .. } => initial.as_ref(),
            OwnedOperation::StringWrite { write: StringWrite::Set { .. }, bytes, .. } => Some(bytes),
            // A value may grow beyond a slab.
            OwnedOperation::StringWrite { .. } => return false,
            _ => None,
        };
        !is_large(request.key.len(), stored.map_or(0, Vec::len), true)
    };
    let owned: Vec<OwnedRequest> = generator.by_ref().filter(fits).take(6000).collect();
    let requests: Vec<Request<'_>> = owned.iter().map(OwnedRequest::as_request).collect();
    let plan = processor.plan_by(&requests, slot_of);
    let flow = processor.flow(&plan, &mut replies);
    let replied = {
        let mut random = SplitMix64::new(seed);
        let mut context = Context::from_waker(Waker::noop());
        let (mut queues, mut begun, mut replied) = (Vec::new(), 0, vec![0; requests.len()]);
        let (mut done, mut most_waited) = (0, 0);
        while done < requests.len() || !queues.is_empty() {
            let room = (IN_FLIGHT_MAX + done - begun).min(requests.len() - begun);
            for _ in 0..random.below(room as u64 + 1) {
                if let Admitted::Begins(queue) = flow.admit(begun) {
                    queues.push(Box::pin(flow.run(queue)));
                }
                begun += 1;
            }
            if !queues.is_empty() {
                let index = random.below(queues.len() as u64) as usize;
                if queues[index].as_mut().poll(&mut context).is_ready() {
                    drop(queues.swap_remove(index));
                }
            }
            flow.take_replied(|index| {
                replied[index] += 1;
                done += 1;
            });
            most_waited = most_waited.max(begun - done);
        }
        assert!(most_waited > IN_FLIGHT_MAX / 2, "{most_waited} in flight");
        drop(queues);
        flow.end();
        replied
    };
    assert!(replied.iter().all(|times| *times == 1), "seed {seed}: each is replied once");
    assert_eq!(processor.statistics().operations, requests.len() as u64);
    for (request, reply) in requests.iter().zip(replies.iter()) {
        naive
            .check(request, reply)
            .map_err(|expected| format!("seed {seed}: {request:?}\n{reply:?}, not {expected:?}"))?;
    }
    Ok(())
}

#[test]
fn a_flow_replies_as_the_naive_store() {
    for seed in 0..20 {
        run_flow(seed, |home| home.bucket.0 as usize).unwrap();
    }
}

#[test]
fn a_flow_leaves_large_values_to_others() {
    let mut processor = Processor::new(&Settings::for_kv_size(4 << 20, 64, 3)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let value = [7; 600];
    let operations = [put(&[1]), put(&value), Operation::Get, put(&[2])];
    let requests = operations.map(|operation| Request { key: b"key", operation });
    let plan = processor.plan(&requests);
    let flow = processor.flow(&plan, &mut replies);
    let Admitted::Begins(queue) = flow.admit(0) else { panic!("it is the first") };
    assert!((1..4).all(|index| matches!(flow.admit(index), Admitted::Waits)));
    drive(flow.run(queue));
    let mut count = 0;
    flow.take_replied(|_| count += 1);
    flow.end();
    assert_eq!(count, 4);
    assert!(replies.iter().eq([Reply::Done, Reply::Deferred, Reply::Deferred, Reply::Deferred]));
    assert_eq!(processor.statistics().operations, 1);
}

/// The control: the test above fails if the slots of the flow follow from the key instead of the bucket.
#[test]
fn a_flow_that_tells_keys_apart_instead_of_buckets_is_caught() {
    let caught = (0..20).any(|seed| {
        let run = || run_flow(seed, |home| (home.hash.0 >> 20) as usize);
        // Torn buckets may also end in a panic.
        std::panic::catch_unwind(run).map_or(true, |result| result.is_err())
    });
    assert!(caught);
}

/// Requests of different buckets need no station.
#[test]
fn independent_requests_have_the_same_replies_without_a_station() {
    let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.5, inline_threshold: 24, grows: false, seed: 3 };
    let memories = [2, 4].map(|seed| DelayedMemory::new(settings.memory, seed));
    let [mut with, mut without] = memories.map(|memory| Processor::with_memory(memory, &settings).unwrap());
    let [mut expected, mut replies] = [(); 2].map(|()| Replies::with_budget(usize::MAX));
    let settings = GeneratorSettings { seed: 5, key_count: 300, key_size: 4..=20, ..Default::default() };
    let mut generator = Generator::new(settings);
    for batch in 0..100 {
        let mut buckets = std::collections::HashSet::new();
        let requests: Vec<OwnedRequest> = generator.by_ref().take(256).collect();
        let requests = requests.iter().map(OwnedRequest::as_request);
        let requests: Vec<_> = requests.filter(|request| buckets.insert(with.home_bucket(request.key))).collect();
        with.execute(&requests, &mut expected);
        without.execute_independent(&requests, &mut replies);
        assert!(replies.iter().eq(expected.iter()), "batch {batch}");
    }
}

fn put(value: &[u8]) -> Operation<'_> {
    Operation::Put { value, condition: PutCondition::Always }
}

fn add_one() -> Operation<'static> {
    Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &[1, 0, 0, 0, 0, 0, 0, 0],
        initial: None,
        return_old: true,
    })
}

/// Executes a batch on one key. Returns the replies.
fn execute<'a>(processor: &mut Processor, replies: &'a mut Replies, operations: &[Operation<'_>]) -> Vec<Reply<'a>> {
    let requests: Vec<_> = operations.iter().map(|operation| Request { key: b"key", operation: *operation }).collect();
    processor.execute(&requests, replies);
    replies.iter().collect()
}

/// Adjacent requests on one key are executed on one word, up to one that changes the size of the value.
#[test]
fn adjacent_requests_on_one_key_are_executed_in_a_register() {
    let mut processor = Processor::new(&Settings::for_kv_size(1 << 20, 16, 3)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let number = |n: u64| n.to_le_bytes();
    execute(&mut processor, &mut replies, &[put(&number(7))]);
    let before = processor.stage_counts();
    // More than one part.
    let count = 300;
    let values: Vec<_> = (7..).map(number).take(count).collect();
    let expected: Vec<_> = values.iter().map(|value| Reply::Value(value)).collect();
    assert_eq!(execute(&mut processor, &mut replies, &vec![add_one(); count]), expected);
    let after = processor.stage_counts();
    assert_eq!((after.same_key - before.same_key, after.buckets), (count as u64, before.buckets));

    let sum = number(7 + count as u64);
    let operations = [Operation::Get, Operation::Contains, put(b"four"), Operation::Get, add_one(), Operation::Delete];
    let replies = execute(&mut processor, &mut replies, &operations);
    assert_eq!(replies[..4], [Reply::Value(&sum), Reply::Done, Reply::Done, Reply::Value(b"four")]);
    assert_eq!(replies[4..], [Reply::Failed(OperationError::NotScalar), Reply::Done]);
    let same_key = processor.stage_counts().same_key - after.same_key;
    assert_eq!((same_key, processor.statistics().pairs), (2, 0));
    assert_eq!(processor.statistics().hits, 2);
}

/// A value that does not fit takes the main path and fails there; what was forwarded before and after stays true.
#[test]
fn a_write_that_finds_no_memory_loses_nothing_that_was_acknowledged() {
    let settings = Settings { memory: 16 << 10, hash_index_ratio: 0.05, inline_threshold: 0, grows: false, seed: 3 };
    let mut processor = Processor::new(&settings).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let filler = [0; 400];
    execute(&mut processor, &mut replies, &[put(&[0; 8])]);
    for number in 0u32..1000 {
        let key = number.to_le_bytes();
        processor.execute(&[Request { key: &key, operation: put(&filler) }], &mut replies);
    }
    assert_eq!(replies.get(0), Reply::Failed(OperationError::SlabFull));
    let operations = [add_one(), add_one(), put(&filler), add_one(), Operation::Get];
    let replies = execute(&mut processor, &mut replies, &operations);
    let number = |n: u8| [n, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(replies[..2], [Reply::Value(&number(0)), Reply::Value(&number(1))]);
    assert_eq!(replies[2], Reply::Failed(OperationError::SlabFull));
    assert_eq!(replies[3..], [Reply::Value(&number(2)), Reply::Value(&number(3))]);
}

/// Every change of form of a value, with forwarded operations in between.
#[test]
fn a_key_keeps_its_order_through_all_sizes() {
    let mut processor = Processor::new(&Settings::for_kv_size(4 << 20, 20, 3)).unwrap();
    let mut replies = Replies::with_budget(usize::MAX);
    let values: Vec<Vec<u8>> =
        [1, 8, 8, 40, 300, 508, 5000, 5000, 300_000, 100, 0, 1 << 20, 3].map(|size| vec![size as u8; size]).to_vec();
    let mut operations = vec![Operation::Get];
    for value in &values {
        operations.extend([put(value), Operation::Get, Operation::Contains, Operation::Get]);
    }
    operations.extend([Operation::Delete, Operation::Get, Operation::Delete]);
    let replies = execute(&mut processor, &mut replies, &operations);
    assert_eq!(replies[0], Reply::NotFound);
    for (value, replies) in values.iter().zip(replies[1..].chunks(4)) {
        assert_eq!(*replies, [Reply::Done, Reply::Value(value), Reply::Done, Reply::Value(value)]);
    }
    assert_eq!(replies[replies.len() - 3..], [Reply::Done, Reply::NotFound, Reply::NotFound]);
    assert_eq!(processor.statistics().pairs, 0);
}

/// Stores small and large values in turn in the same memory, several times.
fn shift_between_small_and_large(mut processor: Processor) {
    let mut replies = Replies::with_budget(1 << 20);
    let mut counts = Vec::new();
    for round in 0..6 {
        let value = vec![round as u8; if round % 2 == 0 { 10 } else { 490 }];
        let mut count = 0u32;
        loop {
            let keys: Vec<_> = (count..count + 64).map(|number| (number ^ 0x5000_0000).to_le_bytes()).collect();
            let requests: Vec<_> = keys.iter().map(|key| Request { key, operation: put(&value) }).collect();
            processor.execute(&requests, &mut replies);
            while replies.deferred_count() > 0 {
                processor.execute(&requests, &mut replies);
            }
            if replies.iter().any(|reply| reply != Reply::Done) {
                break;
            }
            count += 64;
        }
        counts.push(count);
        for number in 0..count + 64 {
            let key = (number ^ 0x5000_0000).to_le_bytes();
            processor.execute(&[Request { key: &key, operation: Operation::Delete }], &mut replies);
        }
        assert_eq!(processor.statistics().pairs, 0);
    }
    for round in 2..6 {
        let (first, now) = (counts[round - 2], counts[round]);
        assert!(now + 128 >= first, "as much fits as the first time: {counts:?}");
    }
    assert!(processor.statistics().slab.merge_passes > 0);
}

#[test]
fn a_shift_of_sizes_gets_its_memory_back() {
    let settings = Settings { memory: 2 << 20, hash_index_ratio: 0.1, inline_threshold: 0, grows: false, seed: 3 };
    shift_between_small_and_large(Processor::new(&settings).unwrap());
}

#[test]
fn a_shift_of_sizes_gets_its_memory_back_beside_a_daemon() {
    let settings = Settings { memory: 8 << 20, hash_index_ratio: 0.1, inline_threshold: 0, grows: false, seed: 3 };
    let mut processor = Processor::new(&settings).unwrap();
    let daemon = processor.merge_daemon();
    let thread = std::thread::spawn(move || daemon.run());
    shift_between_small_and_large(processor);
    thread.join().unwrap();
}

/// Deletes free overflow buckets, also those in the middle of a chain.
#[test]
fn overflow_buckets_come_back() {
    let settings = Settings { memory: 64 << 10, hash_index_ratio: 1e-6, inline_threshold: 50, grows: false, seed: 3 };
    let mut processor = Processor::new(&settings).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let free = processor.statistics().slab_free_bytes;
    let keys: Vec<_> = (0u32..200).map(u32::to_le_bytes).collect();
    for order in [1, 7, 191] {
        let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put(&[7; 20]) }).collect();
        processor.execute(&puts, &mut replies);
        assert!(replies.iter().all(|reply| reply == Reply::Done));
        let full = processor.statistics();
        assert!(full.slab_free_bytes < free - 90 * 64);
        assert_eq!(
            (full.overflow_buckets, full.slab.in_use[1]),
            ((free - full.slab_free_bytes) / 64, full.overflow_buckets)
        );
        let deletes: Vec<_> =
            (0..200).map(|index| Request { key: &keys[index * order % 200], operation: Operation::Delete }).collect();
        processor.execute(&deletes[..180], &mut replies);
        let left = (free - processor.statistics().slab_free_bytes) / 64;
        assert!(left <= 20, "20 pairs of 24 bytes are left in {left} overflow buckets");
        processor.execute(&deletes[180..], &mut replies);
        let empty = processor.statistics();
        assert_eq!((empty.slab_free_bytes, empty.overflow_buckets, empty.slab.in_use), (free, 0, [0; 5]));
    }
}

/// Every size at which a value takes another form, beside keys at which a header or a root does.
#[test]
fn values_of_all_edge_sizes_come_back_and_leave_nothing() {
    let settings = Settings::for_kv_size(8 << 20, 64, 3);
    let mut processor = Processor::new(&settings).unwrap();
    let mut replies = Replies::with_budget(usize::MAX);
    let free = processor.statistics().slab_free_bytes;
    let sizes = [0, 1, 48, 49, 252, 253, 254, 507, 508, 509, 4096, 4097, 65_536, 524_288, 524_289, 1 << 20];
    for key_size in [1, 237, 240, 241, 246, 253, 254, 255, 256, 440, 441, 450, 459, 460] {
        let key = vec![7; key_size];
        for (index, size) in sizes.into_iter().enumerate() {
            let value: Vec<u8> = (0..size).map(|byte| (byte * 31 + byte / 509) as u8).collect();
            // Every other value replaces the one before.
            let delete = if index % 2 == 0 { Operation::Contains } else { Operation::Delete };
            let requests = [put(&value), Operation::Get, delete].map(|operation| Request { key: &key, operation });
            processor.execute(&requests, &mut replies);
            let wanted = [Reply::Done, Reply::Value(&value), Reply::Done];
            assert!(replies.iter().eq(wanted), "key of {key_size} B, value of {size} B");
            let left = if index % 2 == 0 { (1, (key_size + size) as u64) } else { (0, 0) };
            let statistics = processor.statistics();
            assert_eq!((statistics.pairs, statistics.pair_bytes), left, "key of {key_size} B, value of {size} B");
        }
        let empty = processor.statistics();
        assert_eq!((empty.slab_free_bytes, empty.slab.in_use), (free, [0; 5]), "key of {key_size} B");
    }
}

/// Buckets and slabs far out, of a store as large as pointers allow. Few keys: each touches a page, which may be huge.
#[test]
fn a_memory_of_64_gib_is_used_without_touching_it_all() {
    for hash_index_ratio in [1e-9, 0.99] {
        let settings =
            Settings { memory: MEMORY_SIZE_MAX, hash_index_ratio, inline_threshold: 20, grows: false, seed: 3 };
        let mut processor = Processor::new(&settings).unwrap();
        let mut replies = Replies::with_budget(usize::MAX);
        let keys: Vec<_> = (0..8u32).map(u32::to_le_bytes).collect();
        for (operation, expected) in [(put(&[5; 600]), Reply::Done), (Operation::Get, Reply::Value(&[5; 600]))] {
            let requests: Vec<_> = keys.iter().map(|key| Request { key, operation }).collect();
            processor.execute(&requests, &mut replies);
            assert!(replies.iter().all(|reply| reply == expected));
        }
    }
}

/// A deferred request is counted when it is executed, once.
#[test]
fn deferred_requests_are_counted_once() {
    let mut processor = Processor::new(&Settings::for_kv_size(4 << 20, 64, 3)).unwrap();
    let mut replies = Replies::with_budget(1000);
    let value = vec![1; 5000];
    let mut left = vec![put(&value), Operation::Get, Operation::Get, Operation::Contains, Operation::Get];
    let (mut rounds, count) = (0, left.len() as u64);
    while !left.is_empty() {
        let replies = execute(&mut processor, &mut replies, &left);
        let deferred = replies.iter().filter(|reply| **reply == Reply::Deferred).count();
        left.drain(..left.len() - deferred);
        rounds += 1;
    }
    assert_eq!((rounds, processor.statistics().operations), (3, count));
    assert_eq!(processor.statistics().hits, 3);
}

/// Folds of large values return few bytes and read many: a batch of them is divided too.
#[test]
fn large_values_that_are_not_returned_are_rationed() {
    use skep_core::function::Fold;
    use skep_core::operation::Reduce;
    let mut processor = Processor::new(&Settings::for_kv_size(4 << 20, 64, 3)).unwrap();
    let mut replies = Replies::with_budget(10_000);
    let value = vec![1; 50_000];
    execute(&mut processor, &mut replies, &[put(&value)]);
    let sum = Operation::Reduce(Reduce { fold: Fold::Sum, element: Element::U8, initial: &[0], constants: &[] });
    let mut left = vec![sum; 100];
    let mut rounds = 0;
    while !left.is_empty() {
        let replies = execute(&mut processor, &mut replies, &left);
        let done = replies.iter().take_while(|reply| **reply != Reply::Deferred).count();
        assert!((1..=2).contains(&done), "80,000 bytes, and what goes beyond them by one value");
        assert!(replies[..done].iter().all(|reply| *reply == Reply::Value(&[80])), "50,000 modulo 256");
        assert!(replies[done..].iter().all(|reply| *reply == Reply::Deferred));
        left.drain(..done);
        rounds += 1;
    }
    assert_eq!(rounds, 50);
}
