//! Dispatches the operations of memcached's commands.

use skep_wire::native::WireError;

use super::Dispatch;
use crate::memcached_batch::{MemcachedOperations, Operation};
use crate::reply_queue::{ReplyRange, push_range};
use crate::vocabulary::{Limit, Space};

impl<'a> Dispatch<'_, 'a> {
    /// Dispatches pending operations, in order; `ranges` are those of the operations whose replies are not in the
    /// output. If it is too late for operations that have not begun, they are refused. A retrieval is refused as a whole or
    /// not at all, and only if all of its operations are in the queue. Some commands are never refused.
    pub(super) fn submit_memcached(
        &mut self,
        mut operations: MemcachedOperations<'a>,
        ranges: &[ReplyRange],
        is_late: bool,
        limit: &mut Limit,
    ) {
        let mut is_refused = false;
        for range in ranges {
            let mut left = range.count();
            while left > 0 {
                if limit.is_reached() {
                    return;
                }
                if range.is_pending() && !is_late && !limit.holds_writes {
                    let count = self.submit_plain(&mut operations, left, limit);
                    if count > 0 {
                        left -= count;
                        continue;
                    }
                }
                let Some((part, operation)) = operations.next() else { return };
                let alike = left;
                left -= 1;
                if !range.is_pending() {
                    is_refused = false;
                    continue;
                }
                if part.index == 0 {
                    is_refused = is_late && part.count <= alike && part.may_be_refused;
                }
                if is_refused {
                    self.refuse(WireError::Busy, 1);
                    continue;
                }
                let is_read = matches!(&operation, Operation::Item(item) if item.is_read());
                if limit.holds_writes && !is_read {
                    limit.is_held = true;
                    return;
                }
                limit.count -= 1;
                match operation {
                    Operation::Item(item) => {
                        limit.size += item.size();
                        self.push_item(item);
                    }
                    Operation::Flush(shard, flush) => self.push_keyspace(Space::Cache, shard, flush),
                }
            }
        }
    }

    /// Dispatches adjacent plain commands, at most `count_max` and until the limit is reached. Returns their number.
    fn submit_plain(&mut self, operations: &mut MemcachedOperations<'a>, count_max: usize, limit: &mut Limit) -> usize {
        if limit.is_reached() {
            return 0;
        }
        let (own, partition) = (self.own, self.partition);
        let all_own = partition.shard_count() == 1;
        let count_max = count_max.min(limit.count);
        let (mut count, mut size) = (0, limit.size);
        loop {
            let mut other = None;
            let run = std::iter::from_fn(|| {
                if count == count_max || size >= limit.size_max {
                    return None;
                }
                let item = operations.next_plain()?;
                (count, size) = (count + 1, size + item.size());
                if all_own || partition.shard_of(item.key) == own {
                    return Some(item);
                }
                other = Some(item);
                None
            });
            let (first, run_count) = self.requests.extend_items(run);
            push_range(self.destinations, self.start, ReplyRange::of_ready(first, run_count));
            let Some(item) = other else { break };
            self.push_item(item);
        }
        (limit.count, limit.size) = (limit.count - count, size);
        if count > 0 {
            operations.begin_command();
        }
        count
    }
}
