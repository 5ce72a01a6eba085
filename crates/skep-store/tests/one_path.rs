//! The memories that count run what the product runs: the same stages, then the same futures, with the same accesses.
//!
//! `SKEP_SEED` repeats a run.

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::memory::{AccessCounts, CountingMemory, LocalMemory, Memory};
use skep_store::naive::{Generator, GeneratorSettings, OwnedRequest};
use skep_store::processor::{Processor, Replies, StageCounts};

const MEMORY_SIZE: u64 = 8 << 20;

fn seed() -> u64 {
    std::env::var("SKEP_SEED").map_or(20_170_911, |seed| seed.parse().expect("SKEP_SEED is a number"))
}

/// Few buckets, so that there are chains, and memory enough, so that nothing is deferred.
fn settings(seed: u64) -> Settings {
    Settings { memory: MEMORY_SIZE, hash_index_ratio: 0.001, inline_threshold: 30, grows: false, seed }
}

fn generator(seed: u64) -> Generator {
    let settings =
        GeneratorSettings { seed, key_count: 1500, key_size: 4..=20, large_size_max: 3000, ..Default::default() };
    Generator::new(settings)
}

fn processor<M: Memory>(seed: u64, memory: impl FnOnce(LocalMemory) -> M) -> Processor<M> {
    Processor::with_memory(memory(LocalMemory::new(MEMORY_SIZE).unwrap()), &settings(seed)).unwrap()
}

fn replies() -> Replies {
    Replies::with_budget(usize::MAX)
}

/// Executes random batches. Returns the replies, as text, and the use of the stages after each batch.
fn run<M: Memory>(seed: u64, mut processor: Processor<M>) -> (Vec<String>, Vec<StageCounts>) {
    let (mut generator, mut replies) = (generator(seed), replies());
    let (mut texts, mut counts) = (Vec::new(), Vec::new());
    for batch in 0..300 {
        let batch: Vec<OwnedRequest> = generator.by_ref().take(1 + batch * 37 % 601).collect();
        let requests: Vec<Request<'_>> = batch.iter().map(OwnedRequest::as_request).collect();
        processor.execute(&requests, &mut replies);
        assert_eq!(replies.deferred_count(), 0, "seed {seed}");
        texts.extend(replies.iter().map(|reply| format!("{reply:?}")));
        counts.push(processor.stage_counts());
    }
    (texts, counts)
}

#[test]
fn a_counting_memory_is_served_by_the_stages_of_the_product() {
    let seed = seed();
    let (shipped_replies, shipped) = run(seed, processor(seed, |memory| memory));
    let (counted_replies, counted) = run(seed, processor(seed, CountingMemory::with_resident_lines));
    assert!(shipped_replies == counted_replies, "seed {seed}");
    assert_eq!(shipped, counted, "seed {seed}");
    let StageCounts { requests, buckets, probed, slabs, large, futures, .. } = shipped[shipped.len() - 1];
    let used = [requests, buckets, probed, slabs, large, futures];
    assert!(used.iter().all(|count| *count > 1000), "seed {seed}: every stage is used: {used:?}");
    // Without resident lines all is done by futures, with the same replies.
    let (replies_of_futures, futures) = run(seed, processor(seed, CountingMemory::new));
    assert!(shipped_replies == replies_of_futures, "seed {seed}");
    let StageCounts { requests, same_key, buckets, probed, slabs, large, .. } = futures[futures.len() - 1];
    assert_eq!([requests, same_key, buckets, probed, slabs, large], [0; 6]);
}

/// Each operation by itself: what the stages complete takes the accesses that it takes as a future. What they leave is a
/// future with the accesses that it has without them.
#[test]
fn an_operation_has_the_same_accesses_in_the_stages_and_as_a_future() {
    let seed = seed();
    let mut staged = processor(seed, CountingMemory::with_resident_lines);
    let mut unstaged = processor(seed, CountingMemory::new);
    let (mut staged_replies, mut unstaged_replies) = (replies(), replies());
    let (mut completed, mut left) = (0, 0);
    for (number, request) in generator(seed).take(60_000).enumerate() {
        let request = request.as_request();
        let before = (staged.memory().counts(), unstaged.memory().counts(), staged.stage_counts().futures);
        staged.execute(&[request], &mut staged_replies);
        unstaged.execute(&[request], &mut unstaged_replies);
        let context = format!("seed {seed}, operation {number}: {request:?}");
        assert_eq!(staged_replies.get(0), unstaged_replies.get(0), "{context}");
        assert_ne!(staged_replies.get(0), Reply::Deferred, "{context}");
        let of_stages = staged.memory().take_stage_counts();
        let of_futures = staged.memory().counts() - before.0;
        let expected = unstaged.memory().counts() - before.1;
        if staged.stage_counts().futures == before.2 {
            assert_eq!((of_stages, of_futures), (expected, AccessCounts::default()), "{context}");
            completed += 1;
        } else {
            assert_eq!(of_futures, expected, "{context}");
            left += 1;
        }
    }
    assert!(completed > 10_000 && left > 1000, "seed {seed}: {completed} completed by stages, {left} left");
}

/// Executed on the value in a register, in the stages of the product.
#[test]
fn adjacent_requests_on_one_key_are_one_read_and_one_write() {
    let mut processor = processor(seed(), CountingMemory::with_resident_lines);
    let mut replies = replies();
    let put = Operation::Put { value: b"value 00", condition: PutCondition::Always };
    let mut requests = vec![Request { key: b"key", operation: put }];
    processor.execute(&requests, &mut replies);
    processor.memory().take_stage_counts();
    requests.resize(256, requests[0]);
    processor.execute(&requests, &mut replies);
    assert!(replies.iter().all(|reply| reply == Reply::Done));
    assert_eq!(processor.stage_counts().same_key, 256);
    let expected = AccessCounts { read_accesses: 1, read_lines: 1, write_accesses: 1, write_lines: 1 };
    assert_eq!(processor.memory().take_stage_counts(), expected);
    assert_eq!(processor.memory().counts(), AccessCounts::default());
}
