//! The counts of a cache, and the causes for which it forgets keys.
//!
//! | an entry is removed or overwritten, and its item | counts as |
//! |---|---|
//! | is kept | an eviction by the index |
//! | was overwritten | an eviction by the log |
//! | was flushed | nothing: a flush has set the number of items to 0 |
//! | belongs to the key that is stored or deleted | nothing |
//! | has expired, and a request has found it | an expired key |
//!
//! A key is counted once, when its entry is removed or overwritten. Until then, an item that the log has overwritten counts as an item.

use super::bucket::Bucket;
use super::log::{Log, Presence};

/// The statistics of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Keys that have an entry in the index. Some of their items may have expired, or may be overwritten: until a request or
    /// the sweep finds them, at most while the log wraps around once.
    pub items: u64,
    /// Bytes of the memory.
    pub memory_bytes: u64,
    /// Of these, bytes of the index.
    pub index_bytes: u64,
    /// Of these, bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the log that were written since the last flush: all, once the log has wrapped around.
    pub log_used_bytes: u64,
    /// Requests executed. Deferred ones are not counted.
    pub operations: u64,
    /// `get` that found its key.
    pub hits: u64,
    /// `get` that did not.
    pub misses: u64,
    /// Keys that the index has evicted: another key with the same tag was stored, or their bucket was full.
    pub index_evictions: u64,
    /// Keys whose items the log has overwritten, as far as they were found.
    pub log_evictions: u64,
    /// Keys that have expired and were found by a request since. Others are evicted or overwritten later.
    pub expired: u64,
}

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) items: u64,
    pub(super) operations: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) index_evictions: u64,
    pub(super) log_evictions: u64,
    pub(super) expired: u64,
}

impl Counts {
    /// Counts the eviction of an item in this state, whose entry is removed or overwritten.
    #[inline]
    pub(super) fn evict(&mut self, presence: Presence) {
        match presence {
            Presence::Kept => self.index_evictions += 1,
            Presence::Overwritten => self.log_evictions += 1,
            // They were counted out at once.
            Presence::Flushed => return,
        }
        self.items -= 1;
    }

    /// Empties the slots of a bucket whose items are lost, which are bits of `slots`.
    #[inline(never)]
    pub(super) fn lose(&mut self, bucket: &mut Bucket, mut slots: u32, log: &Log) {
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            slots &= slots - 1;
            if let Some(item) = bucket.offset(slot) {
                self.evict(log.presence(item));
            }
            bucket.clear(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::bucket::KeyHash;
    use crate::memory::{LINE_SIZE, Line};

    #[test]
    fn lost_items_are_counted_by_their_cause() {
        let mut log = Log::new(0, 4);
        let mut line = Line([0; LINE_SIZE]);
        let bucket = Bucket::from_line_mut(&mut line);
        let mut set =
            |slot, log: &mut Log| bucket.set(slot, KeyHash::from_hash(1 + slot as u64, 1), log.append(1).0.stored());
        set(0, &mut log);
        log.flush();
        set(1, &mut log);
        (0..8).for_each(|_| _ = log.append(1));
        set(2, &mut log);
        let mut counts = Counts { items: 2, ..Counts::default() };
        assert_eq!(bucket.lost(&log), 0b011);
        counts.lose(bucket, 0b1_0011, &log);
        assert_eq!((counts.items, counts.index_evictions, counts.log_evictions), (1, 0, 1));
        counts.lose(bucket, 0b100, &log);
        assert_eq!((counts.items, counts.index_evictions, counts.log_evictions), (0, 1, 1));
        assert_eq!((0..8).find_map(|slot| bucket.offset(slot)), None);
    }
}
