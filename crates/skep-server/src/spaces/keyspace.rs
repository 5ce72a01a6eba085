//! The execution of operations on all keys by the stores of a shard.

use std::time::Instant;

use skep_core::operation::{Operation, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};
use skep_store::ordered::FlushStep;

use crate::keyspace::{KeyspaceReplies, KeyspaceRequest};
use crate::limits::{COUNT_STEPS, FLUSH_STEPS};
use crate::spaces::{Executed, Stores};
use crate::vocabulary::{END, KeyspaceOperation, Space, UNKNOWN, WalkStart};
use crate::watches::WatchTable;

impl Stores<'_> {
    /// Executes operations on all keys: of a divided one, on the part of a shard.
    pub(crate) fn execute_keyspace(
        &mut self,
        shard: u16,
        requests: &[KeyspaceRequest],
        replies: &mut KeyspaceReplies,
        deferred: &mut usize,
        now: Instant,
    ) -> Executed {
        if requests.is_empty() {
            return Executed::default();
        }
        replies.begin();
        for &KeyspaceRequest { space, operation, connection } in requests {
            if !replies.may_execute() {
                continue;
            }
            match (space, operation) {
                (Space::Hash, KeyspaceOperation::Walk { from, key_count, size }) => {
                    replies.walk(&mut self.part(shard).processor, from, key_count, size);
                }
                (Space::Ordered, KeyspaceOperation::Walk { from, key_count, size }) => {
                    self.walk_ordered(from, key_count, size, connection, replies, now);
                }
                (Space::Cache, KeyspaceOperation::Walk { .. }) => unreachable!("a cache is not walked"),
                (Space::Cache, KeyspaceOperation::Count) => {
                    // It may have keys that have expired, or whose items are overwritten.
                    replies.count(self.part(shard).cache().statistics().items, true);
                }
                (_, KeyspaceOperation::FlushAt { time }) => {
                    // One at once took effect when it was decoded, and this shard notices it now at the latest.
                    let cache = self.part(shard).cache();
                    if time > 0 {
                        cache.flush_at(time);
                    }
                    replies.flush(END);
                }
                (space, KeyspaceOperation::Flush { from }) => self.flush(space, shard, from, connection, replies),
                (Space::Hash, KeyspaceOperation::Count) => {
                    let processor = &mut self.part(shard).processor;
                    let is_exact = processor.reclaim_all(COUNT_STEPS);
                    replies.count(processor.statistics().pairs, is_exact);
                }
                (Space::Ordered, KeyspaceOperation::Count) => {
                    let store = self.shared.and_then(|shared| shared.ordered.as_ref());
                    let store = store.expect("a space was chosen that the server has");
                    let is_exact = self.ordered.as_mut().is_none_or(|session| session.reclaim_all(COUNT_STEPS));
                    self.holds_garbage = true;
                    replies.count(store.pair_count(), is_exact);
                }
            }
        }
        *deferred = replies.deferred_count();
        Executed { operations: requests.len() - *deferred, bytes: replies.bytes_touched() }
    }

    /// Removes all keys of a shard's part of the hash space or of the cache, or some keys of the ordered space from
    /// a position on. Sets the flags of connections that watch keys there.
    fn flush(&mut self, space: Space, shard: u16, from: u64, connection: u64, replies: &mut KeyspaceReplies) {
        self.with_watches(space, shard, WatchTable::touch_all);
        match space {
            Space::Hash => {
                self.part(shard).processor.flush();
                if let Some(log) = &mut self.log {
                    log.record_flush(space, shard);
                }
                return replies.flush(END);
            }
            Space::Cache => {
                self.part(shard).cache().flush();
                return replies.flush(END);
            }
            Space::Ordered => {}
        }
        let session = self.ordered.as_mut().expect("a space was chosen that the server has");
        let cursors = &self.shared.expect("a server has it").cursors;
        // If the position was forgotten, the keys below it are gone already.
        let mut position = cursors.find(from).unwrap_or_default();
        self.holds_garbage = true;
        for _ in 0..FLUSH_STEPS {
            match session.flush_step(&mut position) {
                FlushStep::More => {}
                FlushStep::Done => {
                    cursors.end(from);
                    return replies.flush(END);
                }
                FlushStep::Waits => {
                    // The position is known from the last step, or it is the first one.
                    let page = replies.begin_page();
                    return replies.defer_page(page);
                }
            }
        }
        replies.flush(cursors.follow(from, &position, connection));
    }

    /// Walks over the keys of the ordered space.
    fn walk_ordered(
        &mut self,
        from: WalkStart,
        key_count: u32,
        size: u32,
        connection: u64,
        replies: &mut KeyspaceReplies,
        now: Instant,
    ) {
        let cursors = &self.shared.expect("a server has it").cursors;
        let session = self.ordered.as_mut().expect("a space was chosen that the server has");
        let page = replies.begin_page();
        let cursor = match from {
            WalkStart::At(cursor) => cursor,
            WalkStart::Random(number) => {
                let mut key = Vec::new();
                if session.random_key(number, &mut key) {
                    replies.push_key(&key);
                }
                return replies.end_page(page, END);
            }
        };
        let after = if cursor == 0 { Some(Vec::new()) } else { cursors.find(cursor) };
        let Some(after) = after else { return replies.end_page(page, UNKNOWN) };
        let (start, end) = (ScanStart::Above, ScanEnd::Last);
        let limit = key_count.min(replies.keys_max(size as usize));
        let (answer, lease) = (ScanAnswer::Keys, ScanLease::None);
        let scan = Scan { start, end, reverse: false, limit, answer, lease };
        session.execute(&[Request { key: &after, operation: Operation::Scan(scan) }], &mut self.pages, now);
        let Reply::Value(bytes) = self.pages.get(0) else {
            debug_assert!(self.pages.is_deferred(0), "{:?}", self.pages.get(0));
            return replies.defer_page(page);
        };
        let found = Page::decode(bytes).expect("the store returns a whole page");
        found.pairs().for_each(|(key, _)| replies.push_key(key));
        let next = if found.more() {
            cursors.follow(cursor, found.last_key(), connection)
        } else {
            cursors.end(cursor);
            END
        };
        replies.end_page(page, next);
    }
}
