//! Tests of the cache: against the naive store, by counts of accesses, and with weakened hashes.

mod accesses;
mod collisions;
mod deferred;
mod expiries;
mod fifo;
mod items;
mod model;

use super::{Cache, Settings};
use crate::memory::{LocalMemory, Memory};
use crate::processor::Replies;
use skep_core::operation::{Operation, PutCondition, Reply, Request};

/// Bytes of the smallest cache.
const MEMORY_SIZE: u64 = 2 << 20;

/// A cache and the replies of its last batch.
struct Tested<M = LocalMemory> {
    cache: Cache<M>,
    replies: Replies,
}

impl Tested {
    /// Returns a cache of the smallest size, for pairs of this size.
    fn new(kv_size: usize, seed: u64) -> Self {
        Tested::with_memory(LocalMemory::new(MEMORY_SIZE).unwrap(), kv_size, seed)
    }
}

impl<M: Memory> Tested<M> {
    fn with_memory(memory: M, kv_size: usize, seed: u64) -> Self {
        let settings = Settings { memory: memory.size(), kv_size, seed };
        Tested { cache: Cache::with_memory(memory, &settings).unwrap(), replies: Replies::with_budget(usize::MAX) }
    }

    /// Executes an operation alone.
    fn run(&mut self, key: &[u8], operation: Operation<'_>) -> Reply<'_> {
        self.cache.execute(&[Request { key, operation }], &mut self.replies);
        self.replies.get(0)
    }

    /// Puts a pair.
    fn put(&mut self, key: &[u8], value: &[u8]) {
        assert_eq!(self.run(key, put(value)), Reply::Done, "a cache never refuses a pair");
    }
}

/// Returns a put without a condition.
fn put(value: &[u8]) -> Operation<'_> {
    Operation::Put { value, condition: PutCondition::Always }
}
