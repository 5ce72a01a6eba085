//! The replay of a log by a processor: see `hash/replay.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use skep_core::operation::{Expiry, OperationError, Reply, Request};

use super::{Processor, Replies, drive};
use crate::hash::Reclaim;
use crate::memory::Memory;

impl Processor {
    /// Removes all pairs at once. From now on, puts that find no memory take spare memory, of which no page is touched
    /// before. So pairs that have fitted this memory fit it in any order, if the system grants the spare memory. An index that
    /// grows has this many home buckets, or as many as at the start if those are more, and does not grow until
    /// [`Processor::end_packing`]. With those of the start, pairs fit that have fitted before.
    pub fn begin_packing(&mut self, home_buckets: u32) {
        self.flush();
        while self.flush_step() {}
        drive(self.table.fix_index(home_buckets));
        self.table.open_spare();
    }

    /// Ends what [`Processor::begin_packing`] has begun. Returns the bytes of spare memory that were taken. As much of the
    /// memory is not given out until pairs with as many bytes are deleted.
    pub fn end_packing(&mut self) -> u64 {
        self.table.close_spare();
        self.table.unfix_index();
        self.table.debt()
    }

    /// Does not give out this number of bytes of the memory at most, as long as the spare memory that several stores have taken
    /// exceeds a bound: by `excess`, which all of them share. `owed` is the part of it that this store has taken.
    pub fn hold_back(&mut self, held_max: u64, owed: u64, excess: &Arc<AtomicU64>) {
        self.table.hold_back(held_max, owed, excess);
    }
}

impl<M: Memory> Processor<M> {
    /// Executes requests of a log at the time at which they were executed first, in milliseconds since 1970; this time may be
    /// before that of the last call. All requests of later calls on these keys were executed at `all_after` or later. Requests that are
    /// deferred are executed until they are done: if there is no memory, that of keys is freed that have expired by then.
    /// Afterwards the list is empty. Returns the first failure.
    pub fn replay(
        &mut self,
        now: u64,
        all_after: u64,
        requests: &mut Vec<Request<'_>>,
        replies: &mut Replies,
    ) -> Result<(), OperationError> {
        let mut outcome = Ok(());
        let all_after = all_after.min(now);
        self.table.begin_replay(now, all_after);
        while !requests.is_empty() {
            self.execute(requests, replies);
            let mut index = 0;
            requests.retain(|_| {
                index += 1;
                if let Reply::Failed(error) = replies.get(index - 1) {
                    outcome = outcome.and(Err(error));
                }
                replies.is_deferred(index - 1)
            });
            if !requests.is_empty() && self.table.may_free_for_replay() && self.table.wants_reclaim() {
                self.table.set_time(all_after);
                self.reclaim_all(usize::MAX);
                self.table.set_time(now);
            }
        }
        outcome
    }

    /// Returns the most bytes of slab memory that a pair takes.
    pub fn slab_size_max(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> u64 {
        self.table.slab_size_max(key.len(), value.len(), expiry)
    }

    /// Ends the replay of a log, and sets the time.
    pub fn end_replay(&mut self, now: u64) {
        self.table.end_replay(now);
        self.reclaim = Reclaim::default();
    }
}
