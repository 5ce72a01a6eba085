//! Flushes of the cache: all shards notice one at the same moment.
//!
//! `flush_all` is forwarded to every shard. A pair that another connection stores meanwhile, in a shard that has not got the
//! forwarded flush, was stored after the flush and must stay. So a flush has two parts:
//!
//! 1. The shard that decodes the command counts it in [`CacheFlushes`], once all earlier commands of its connection were
//!    executed. The flush has taken effect.
//! 2. Each shard compares the count before it uses its part of the cache, and removes the keys if it has grown. The forwarded
//!    operation makes it do so at the latest before the client gets the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_store::cache::{Cache, Statistics};

/// The number of flushes that have taken effect in all shards at once.
#[derive(Debug, Default)]
pub(crate) struct CacheFlushes(AtomicU64);

impl CacheFlushes {
    /// Counts a flush: it takes effect now.
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of flushes so far.
    fn begun(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The cache of one shard.
#[derive(Debug)]
pub(crate) struct CachePart {
    cache: Cache,
    flushes: Arc<CacheFlushes>,
    /// The flushes whose keys it has removed.
    done: u64,
}

impl CachePart {
    /// Returns the part, which is empty; without a server, no other part is flushed with it.
    pub(crate) fn new(cache: Cache, flushes: Option<&Arc<CacheFlushes>>) -> CachePart {
        let flushes = flushes.cloned().unwrap_or_default();
        let done = flushes.begun();
        CachePart { cache, flushes, done }
    }

    /// Returns the cache without the keys that a flush has removed.
    #[inline]
    pub(crate) fn current(&mut self) -> &mut Cache {
        let begun = self.flushes.begun();
        if begun != self.done {
            self.done = begun;
            self.cache.flush();
        }
        &mut self.cache
    }

    /// Sets the time for expiries, in milliseconds since 1970.
    pub(crate) fn set_now(&mut self, now: u64) {
        self.cache.set_now(now);
    }

    /// Returns its statistics. They count the keys of a flush that the shard has not noticed yet.
    pub(crate) fn statistics(&self) -> Statistics {
        self.cache.statistics()
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PutCondition, Reply, Request};
    use skep_store::processor::Replies;

    use super::*;
    use crate::access::{Access, Login};
    use crate::memcached_batch::MemcachedBatch;
    use crate::settings::ServerSettings;
    use crate::unix_time::UnixTime;

    fn part(flushes: &Arc<CacheFlushes>) -> CachePart {
        let settings = ServerSettings { cache_memory: 4 << 20, shards: 1, ..ServerSettings::default() };
        CachePart::new(Cache::new(&settings.cache(1).unwrap()).unwrap(), Some(flushes))
    }

    fn count(part: &mut CachePart, key: &[u8], puts: bool) -> bool {
        let put = Operation::Put { value: b"1", condition: PutCondition::Always };
        let operation = if puts { put } else { Operation::Get };
        let mut replies = Replies::with_budget(1 << 10);
        part.current().execute(&[Request { key, operation }], &mut replies);
        !matches!(replies.get(0), Reply::NotFound)
    }

    #[test]
    fn what_a_shard_stores_after_the_flush_began_stays_when_the_forwarded_operation_arrives() {
        let flushes = Arc::new(CacheFlushes::default());
        let mut parts = [(); 2].map(|()| part(&flushes));
        for part in &mut parts {
            count(part, b"old", true);
        }
        flushes.begin();
        count(&mut parts[1], b"new", true);
        // The forwarded operation uses the part.
        parts.iter_mut().for_each(|part| _ = part.current());
        let found = |part: &mut CachePart| [b"old", b"new"].map(|key| count(part, key, false));
        assert_eq!(parts.each_mut().map(found), [[false, false], [false, true]]);
    }

    #[test]
    fn a_flush_begins_when_the_commands_before_it_are_done() {
        let flushes = Arc::new(CacheFlushes::default());
        let mut batch = MemcachedBatch::boxed(&ServerSettings::default(), Login::default(), Arc::clone(&flushes));
        let mut input = b"get a\r\nflush_all\r\nflush_all 10\r\n".to_vec();
        let mut begun = Vec::new();
        for _ in 0..3 {
            batch.decode(&mut input, usize::MAX, UnixTime::default(), &Access::new(None, true));
            begun.push(flushes.begun());
            let size = batch.finish();
            input.drain(..size);
        }
        assert_eq!((begun, input.len()), (vec![0, 1, 1], 0));
    }
}
