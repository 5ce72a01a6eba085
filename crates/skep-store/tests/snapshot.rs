//! A snapshot that is taken in steps, between the batches of a store that changes, and the log of these batches restore the
//! store exactly.
//!
//! The rule: each step notes the number of batches before it. A logged operation is executed again only if its batch came
//! after the step that returned the home bucket of its key.

use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, StringWrite};
use skep_store::hash::{KeyPositions, Settings};
use skep_store::naive::{Generator, GeneratorSettings, OwnedRequest};
use skep_store::processor::{Processor, Replies};

/// Random runs, unless `SKEP_SEED` names one.
const RUNS: u64 = 10_000;
/// The time of day, which does not pass.
const NOW: u64 = 1000;

fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => (0..RUNS).collect(),
    }
}

/// A key, its value and its expiry.
type Pair = (Vec<u8>, Vec<u8>, Option<Expiry>);

/// A batch of the log: requests that took place.
type Batch = Vec<OwnedRequest>;

/// Executes a request until it is not deferred. Returns true if it has replied without an error.
fn execute(store: &mut Processor, replies: &mut Replies, request: Request<'_>) -> bool {
    for _ in 0..10_000 {
        store.execute(&[request], replies);
        if !replies.is_deferred(0) {
            return matches!(replies.get(0), Reply::Done | Reply::Value(_));
        }
    }
    panic!("an operation is not deferred for ever");
}

/// Puts a pair of a snapshot.
fn put(store: &mut Processor, replies: &mut Replies, key: &[u8], value: &[u8], expiry: Option<Expiry>) {
    let operation = match expiry {
        None => Operation::Put { value, condition: PutCondition::Always },
        Some(expiry) => {
            let expiry = ExpiryChange::set(expiry);
            Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
        }
    };
    assert!(execute(store, replies, Request { key, operation }), "the snapshot fits");
}

/// Returns all pairs, sorted.
fn pairs(store: &mut Processor) -> Vec<Pair> {
    let (mut pairs, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        next = store.walk_pairs(from, |key, value, expiry| pairs.push((key.to_vec(), value.to_vec(), expiry)));
    }
    pairs.sort();
    pairs
}

/// Runs random batches, takes a snapshot between them, and restores another store. Returns true if it is equal. Without
/// the rule, every operation after the first step is executed again.
fn is_restored(seed: u64, with_rule: bool) -> bool {
    let settings = match seed as usize % 4 {
        ratio @ 0..3 => {
            let hash_index_ratio = [0.02, 0.1, 0.5][ratio];
            Settings { memory: 256 << 10, hash_index_ratio, inline_threshold: 30, grows: false, seed }
        }
        _ => Settings::growing(256 << 10, seed),
    };
    let positions = KeyPositions::new(seed);
    let (mut store, mut replies) = (Processor::new(&settings).unwrap(), Replies::with_budget(1 << 20));
    store.set_now(NOW);
    let of_generator =
        GeneratorSettings { seed, key_count: 60, large_size_max: 2000, invalid_per_mille: 0, ..Default::default() };
    let mut generator = Generator::new(of_generator);
    let mut log: Vec<Batch> = Vec::new();
    // For each step, the position with which the next one begins, and the number of batches before it.
    let (mut steps, mut snapshot, mut next) = (Vec::new(), Vec::new(), Some(0));
    while let Some(from) = next {
        let batch = generator.by_ref().take(1 + seed as usize % 9);
        let took_place =
            batch.filter(|request| execute(&mut store, &mut replies, request.as_request()) && !is_read(request));
        log.push(took_place.collect());
        if log.len() > 5 {
            next = store.walk_pairs(from, |key, value, expiry| {
                snapshot.push((key.to_vec(), value.to_vec(), expiry));
            });
            steps.push((next, log.len()));
        }
    }
    let mut restored = Processor::new(&Settings { seed: seed + 1, ..settings }).unwrap();
    restored.set_now(NOW);
    for (key, value, expiry) in &snapshot {
        put(&mut restored, &mut replies, key, value, *expiry);
    }
    let begin = steps.first().expect("a walk has a step").1;
    for (number, batch) in log.iter().enumerate() {
        for request in batch {
            let position = positions.of(request.as_request().key);
            let is_before = |end: Option<u64>| end.is_none_or(|end| position < end);
            let step = steps.iter().find(|(end, _)| is_before(*end)).expect("the steps cover all positions");
            if number >= if with_rule { step.1 } else { begin } {
                execute(&mut restored, &mut replies, request.as_request());
            }
        }
    }
    pairs(&mut restored) == pairs(&mut store)
}

fn is_read(request: &OwnedRequest) -> bool {
    request.as_request().operation.is_read()
}

#[test]
fn a_snapshot_and_the_log_restore_the_store() {
    for seed in seeds() {
        assert!(is_restored(seed, true), "SKEP_SEED={seed}");
    }
}

#[test]
fn a_snapshot_without_the_rule_does_not() {
    assert!((0..200).any(|seed| !is_restored(seed, false)));
}
