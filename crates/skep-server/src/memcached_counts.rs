//! The counts of commands of memcached's protocol, with the names that `stats` shows.

use crate::counter::Counter;

/// Declares [`Count`] and the names together.
macro_rules! counts {
    ($($variant:ident $name:literal)*) => {
        /// A count of commands or of their outcomes.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Count { $($variant),* }

        /// The names of the counts, in their order.
        pub(crate) const NAMES: &[&str] = &[$($name),*];

        /// The number of counts.
        pub(crate) const COUNT_COUNT: usize = NAMES.len();
    };
}

counts! {
    Gets "cmd_get"
    Sets "cmd_set"
    Items "total_items"
    Flushes "cmd_flush"
    Touches "cmd_touch"
    Metas "cmd_meta"
    GetHits "get_hits"
    GetMisses "get_misses"
    DeleteMisses "delete_misses"
    DeleteHits "delete_hits"
    IncrementMisses "incr_misses"
    IncrementHits "incr_hits"
    DecrementMisses "decr_misses"
    DecrementHits "decr_hits"
    CasMisses "cas_misses"
    CasHits "cas_hits"
    CasOthers "cas_badval"
    TouchHits "touch_hits"
    TouchMisses "touch_misses"
    Datagrams "udp_requests"
    DatagramsShort "udp_dropped_short"
    DatagramsInParts "udp_dropped_in_parts"
    DatagramsForged "udp_dropped_forged"
    DatagramsRefused "udp_dropped_refused"
}

/// The counts of one shard.
#[derive(Debug, Default)]
pub(crate) struct MemcachedMetrics([Counter; COUNT_COUNT]);

impl MemcachedMetrics {
    /// Adds to a count.
    #[inline]
    pub(crate) fn add(&self, count: Count, number: u64) {
        self.0[count as usize].add(number);
    }

    /// Adds the counts to sums.
    pub(crate) fn add_to(&self, sums: &mut [u64; COUNT_COUNT]) {
        for (sum, counter) in sums.iter_mut().zip(&self.0) {
            *sum += counter.get();
        }
    }
}
