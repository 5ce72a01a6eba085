//! The store for embedding: a processor, and the thread that merges its free slabs in the background.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use skep_server::embedding::Clock;
use skep_store::hash::Settings;
use skep_store::memory::RegionError;
use skep_store::processor::{Processor, Replies, Statistics};

use crate::Request;

/// Errors of [`Store::open`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is out of its range. The text names it.
    #[error("{0}")]
    Settings(String),
    /// The memory cannot be reserved.
    #[error(transparent)]
    Memory(#[from] RegionError),
}

/// Operations for each step that looks for expired keys.
const OPERATIONS_PER_RECLAIM: usize = 32;

/// A store in this process: one shard, without a network.
///
/// A key that has expired is missing from the next batch on. Its memory is freed by later batches. The store's clock follows
/// that of the machine, but not jumps that last less than a minute, and it never goes back.
///
/// A store can be sent to another thread, but only one thread at a time can use it. A program that needs several cores
/// opens several stores and divides its keys among them, as the server does.
pub struct Store {
    // This field must be dropped first: the daemon ends when the processor is dropped, and only then can its thread be
    // joined.
    pub(crate) processor: Processor,
    clock: Clock,
    _merging: Merging,
}

/// The thread of the merge daemon. Dropping it joins the thread.
struct Merging(Option<JoinHandle<()>>);

impl Store {
    /// Opens a store and reserves its memory. Pages are touched as the store fills.
    pub fn open(settings: &Settings) -> Result<Store, OpenError> {
        settings.validate().map_err(OpenError::Settings)?;
        Ok(Store::of(Processor::new(settings)?))
    }

    /// Returns the store of a processor, with a thread that merges.
    pub(crate) fn of(mut processor: Processor) -> Store {
        let daemon = processor.merge_daemon();
        // If the thread cannot be started, slabs are merged when one is needed. That is slower and loses nothing.
        let thread = thread::Builder::new().name("skep-merge".to_owned()).spawn(move || daemon.run()).ok();
        let clock = clock_from(&processor);
        Store { processor, clock, _merging: Merging(thread) }
    }

    /// Executes a batch. Afterwards `replies` holds a reply to each request, in order. Requests on one key take effect
    /// in order. A batch is not a transaction.
    ///
    /// This never waits for the merge daemon. It may defer two kinds of requests, with the reply
    /// [`crate::Reply::Deferred`]:
    ///
    /// 1. Requests on large values, if their replies exceed the budget of `replies`.
    /// 2. Requests that need memory which is free, but in pieces that the daemon has not merged yet.
    ///
    /// All later requests on the same key are deferred too. Submit them again, in order. After a few batches the memory
    /// is merged, or the reply is OUT_OF_MEMORY.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies) {
        self.begin_batch(requests.len());
        self.processor.execute(requests, replies);
    }

    /// Sets the time, and frees memory of expired keys, before a batch of this many operations.
    pub(crate) fn begin_batch(&mut self, operations: usize) {
        let (monotonic, wall) = read_clocks();
        self.clock.read(monotonic, wall);
        self.processor.set_now(self.clock.time().as_millis() as u64);
        for _ in 0..=operations / OPERATIONS_PER_RECLAIM {
            if !self.processor.is_reclaim_due() {
                return;
            }
            self.processor.reclaim();
        }
    }

    /// Returns statistics of the pairs and the memory.
    pub fn statistics(&self) -> Statistics {
        self.processor.statistics()
    }
}

/// Returns a clock that begins at the time of the processor, or of the machine if that is later.
fn clock_from(processor: &Processor) -> Clock {
    let (monotonic, wall) = read_clocks();
    Clock::new(monotonic, wall, Duration::from_millis(processor.now()))
}

/// Reads the monotonic clock and that of the machine. Both are a few milliseconds behind, and cost a few nanoseconds.
fn read_clocks() -> (Duration, Duration) {
    let read = |clock| {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        Duration::new(tv_sec.max(0).cast_unsigned(), tv_nsec as u32)
    };
    (read(ClockId::MonotonicCoarse), read(ClockId::RealtimeCoarse))
}

impl Drop for Merging {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // If the daemon panicked, its thread has already reported that.
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenError, Settings, Store};

    #[test]
    fn settings_and_memory_out_of_range_are_named() {
        let settings = Settings { inline_threshold: 51, ..Settings::for_kv_size(1 << 20, 64, 0) };
        assert!(matches!(Store::open(&settings), Err(OpenError::Settings(what)) if what.contains("inline threshold")));
        let settings = Settings::for_kv_size(64, 64, 0);
        assert!(matches!(Store::open(&settings), Err(OpenError::Memory(_))));
    }

    #[test]
    fn a_store_moves_between_threads() {
        let mut store = Store::open(&Settings::for_kv_size(1 << 20, 64, 0)).unwrap();
        std::thread::spawn(move || store.execute(&[], &mut crate::Replies::with_budget(0))).join().unwrap();
    }
}
