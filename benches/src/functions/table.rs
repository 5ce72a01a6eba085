//! A hash store of equal values, on which batches of one operation are timed.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_measure::Work;
use skep_store::hash::Settings;
use skep_store::processor::{Processor, Replies};

use crate::keys::random_key;

/// Operations in a batch, or all keys if there are fewer.
pub(super) const BATCH: usize = 256;
/// The most bytes of the values of a batch. A store defers a part of a larger one.
const BATCH_SIZE: usize = 1 << 20;
/// The most batches until the store has room for the same values.
const TRIES_MAX: usize = 1000;
/// Bytes of a key.
const KEY_SIZE: usize = 8;
/// The share of the default utilization to which the store is filled.
const FILL: f64 = 0.8;
/// The smallest memory of a store.
const MEMORY_MIN: u64 = 4 << 20;

/// A store, and its keys in the order in which they are visited.
pub(super) struct Table {
    processor: Processor,
    replies: Replies,
    keys: Vec<[u8; KEY_SIZE]>,
    next: usize,
    batch: usize,
}

impl Table {
    /// Returns a store with this value at each of `count` keys. They are visited in another order than that of the puts.
    pub(super) fn new(count: usize, value: &[u8]) -> Result<Table, String> {
        let kv_size = KEY_SIZE + value.len();
        let memory = (count * kv_size) as f64 / (FILL * Settings::utilization_for(kv_size));
        let settings = Settings::for_kv_size((memory as u64).max(MEMORY_MIN), kv_size, 7);
        let processor = Processor::new(&settings).map_err(|error| error.to_string())?;
        let batch = (BATCH_SIZE / value.len()).clamp(1, BATCH);
        let mut keys: Vec<_> = (0..count as u64).map(random_key).collect();
        let mut table =
            Table { processor, replies: Replies::with_budget(usize::MAX), keys: keys.clone(), next: 0, batch };
        let put = Operation::Put { value, condition: PutCondition::Always };
        for keys in keys.chunks(batch) {
            // A store may put off a large value until it has joined free memory.
            let mut tries = 0;
            while table.execute(keys, put)?.operations < keys.len() {
                tries += 1;
                if tries == TRIES_MAX {
                    return Err("the store has no room for the values of the measurement".to_owned());
                }
            }
        }
        keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(1));
        table.keys = keys;
        Ok(table)
    }

    /// Executes batches of an operation on one key after another until they have taken this time. The time does not
    /// include that of building the requests.
    pub(super) fn run(&mut self, operation: Operation<'_>, at_least: Duration) -> Result<Work, String> {
        let mut work = Work::default();
        let keys = std::mem::take(&mut self.keys);
        while work.spent < at_least {
            let end = (self.next + self.batch).min(keys.len());
            match self.execute(&keys[self.next..end], operation) {
                Ok(batch) => work.add(batch.spent, batch.operations),
                Err(reason) => {
                    self.keys = keys;
                    return Err(reason);
                }
            }
            self.next = if end == keys.len() { 0 } else { end };
        }
        self.keys = keys;
        Ok(work)
    }

    /// Executes a batch of one operation. None may fail. Those that the store puts off do not count.
    fn execute(&mut self, keys: &[[u8; KEY_SIZE]], operation: Operation<'_>) -> Result<Work, String> {
        let mut requests = [Request { key: &[], operation }; BATCH];
        for (request, key) in requests.iter_mut().zip(keys) {
            request.key = key;
        }
        let requests = &requests[..keys.len()];
        let begun = Instant::now();
        self.processor.execute(requests, &mut self.replies);
        let spent = begun.elapsed();
        let refused =
            self.replies.iter().find(|reply| !matches!(reply, Reply::Done | Reply::Value(_) | Reply::Deferred));
        match refused {
            Some(reply) => Err(format!("an operation of the measurement was refused: {reply:?}")),
            None => Ok(Work { spent, operations: keys.len() - self.replies.deferred_count() }),
        }
    }

    /// Returns the value of a key.
    #[cfg(test)]
    pub(super) fn value(&mut self) -> Vec<u8> {
        let key = self.keys[0];
        self.execute(&[key], Operation::Get).unwrap();
        match self.replies.get(0) {
            Reply::Value(value) => value.to_vec(),
            reply => panic!("{reply:?}"),
        }
    }
}
