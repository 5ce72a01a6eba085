//! What the shards of a server count about the calls of a user function.
//!
//! ```text
//! shard 0  │ calls │ elements │ failed │   64 bytes
//! shard 1  │ calls │ elements │ failed │
//! …
//! ```
//!
//! Only the thread of a shard writes its line, so counting takes a few instructions, and no thread waits for another one. A
//! call does not know in which shard it runs: the thread of a shard states that once, by [`count_calls_of_shard`]. Other
//! threads count nothing, such as those that replay a log.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The shard of this thread.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Lets this thread count the calls that it runs, as those of a shard. The number is that of the shard in its server.
pub fn count_calls_of_shard(shard: usize) {
    SHARD.set(shard);
}

/// The counters of a user function, for each shard of a server.
#[derive(Debug)]
pub struct CallCounts {
    shards: Box<[ShardCounts]>,
}

/// What a shard has counted.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ShardCounts {
    calls: AtomicU64,
    elements: AtomicU64,
    failed: AtomicU64,
}

const _: () = assert!(size_of::<ShardCounts>() == 64);

/// The sums over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// Calls on the values of existing keys, also those that failed. In the ordered space, one that is repeated counts
    /// again.
    pub calls: u64,
    /// The elements of these values.
    pub elements: u64,
    /// Calls in which the function failed.
    pub failed: u64,
}

impl CallCounts {
    /// Returns counters for this number of shards, all zero.
    pub fn new(shard_count: usize) -> CallCounts {
        CallCounts { shards: (0..shard_count).map(|_| ShardCounts::default()).collect() }
    }

    /// Counts a call on this number of elements.
    #[inline]
    pub fn note_call(&self, element_count: usize) {
        let Some(counts) = self.shards.get(SHARD.get()) else { return };
        add(&counts.calls, 1);
        add(&counts.elements, element_count as u64);
    }

    /// Counts that a call has failed, which was counted before.
    #[cold]
    pub fn note_failure(&self) {
        if let Some(counts) = self.shards.get(SHARD.get()) {
            add(&counts.failed, 1);
        }
    }

    /// Returns the sums over all shards.
    pub fn totals(&self) -> CallTotals {
        let mut totals = CallTotals::default();
        for ShardCounts { calls, elements, failed } in &self.shards {
            totals.calls += calls.load(Ordering::Relaxed);
            totals.elements += elements.load(Ordering::Relaxed);
            totals.failed += failed.load(Ordering::Relaxed);
        }
        totals
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{CallCounts, CallTotals, count_calls_of_shard};

    #[test]
    fn each_shard_counts_and_other_threads_do_not() {
        const ROUNDS: u64 = 10_000;
        let counts = CallCounts::new(3);
        thread::scope(|scope| {
            for shard in [Some(0), Some(1), Some(2), Some(3), None] {
                let counts = &counts;
                scope.spawn(move || {
                    shard.into_iter().for_each(count_calls_of_shard);
                    for round in 0..ROUNDS {
                        counts.note_call(3);
                        if round % 4 == 0 {
                            counts.note_failure();
                        }
                    }
                });
            }
        });
        assert_eq!(counts.totals(), CallTotals { calls: 3 * ROUNDS, elements: 9 * ROUNDS, failed: 3 * ROUNDS / 4 });
    }
}
