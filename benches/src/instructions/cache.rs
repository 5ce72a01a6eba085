//! Operations on a cache: one that holds all pairs, and whose log has not wrapped around.

use skep_core::operation::{Operation, PutCondition, Request};
use skep_store::cache::{Cache, Settings};
use skep_store::processor::Replies;

use super::{BATCH, Case, VALUES, fold};
use crate::keys::random_key;

/// Names of the operations, as they are given to the program under valgrind.
pub(super) const OPERATIONS: [&str; 5] = ["cache-get", "cache-put", "cache-fetch-add", "cache-put-new", "cache-delete"];
/// Value sizes, and the pairs of them.
pub(super) const SIZES: [(usize, &str); 2] = [(VALUES[0].0, "8 + 8 B"), (VALUES[1].0, "8 + 100 B")];

/// Fills a cache, prepares `batches_max` batches and executes the first `batches` of them. Returns a hash of the replies.
pub(super) fn run(case: Case, pairs: u64, batches_max: usize, batches: usize) -> u64 {
    let pair_size = 8 + case.value_size;
    let pairs_max = pairs + (batches_max * BATCH) as u64;
    // Two buckets for each key: a key is seldom evicted by another one.
    let memory = (pairs_max * 16 * pair_size as u64).max(4 << 20);
    let settings = Settings { memory, kv_size: pair_size, seed: 7 };
    let mut cache = Cache::new(&settings).expect("a cache of some megabytes");
    let mut replies = Replies::with_budget(1 << 20);
    let value: Vec<u8> = (0..case.value_size).map(|byte| byte as u8).collect();
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    let keys: Vec<[u8; 8]> = (0..pairs_max).map(random_key).collect();
    let (stored, new) = keys.split_at(pairs as usize);
    for keys in stored.chunks(BATCH) {
        let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put }).collect();
        cache.execute(&puts, &mut replies);
    }
    let operation = match case.operation {
        "cache-get" => Operation::Get,
        "cache-fetch-add" => Operation::Update(case.fetch_add()),
        "cache-delete" => Operation::Delete,
        _ => put,
    };
    // Coprime to the number of stored pairs, so that no pair is deleted twice.
    const STEP: usize = 7919;
    let key = |number: usize| match case.operation {
        "cache-put-new" => &new[number],
        _ => &stored[number * STEP % stored.len()],
    };
    let requests: Vec<Request<'_>> =
        (0..batches_max * BATCH).map(|number| Request { key: key(number), operation }).collect();
    let mut hash = 0;
    for batch in requests.chunks(BATCH).take(batches) {
        cache.execute(batch, &mut replies);
        hash = fold(hash, replies.get(hash as usize % BATCH));
    }
    hash ^ cache.statistics().items
}
