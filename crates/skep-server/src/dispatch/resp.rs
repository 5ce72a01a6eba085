//! Dispatches the operations of RESP commands.
//!
//! Most commands have one operation, on a key. Adjacent ones of one space are dispatched in one loop. All others are
//! dispatched one at a time.

use super::Dispatch;
use crate::reply_queue::ReplyRange;
use crate::resp_batch::RespOperations;
use crate::resp_command::CommandRequest;
use crate::vocabulary::{KeyspaceOperation, Limit, Refusal};

impl<'a> Dispatch<'_, 'a> {
    /// Dispatches pending operations, in order; `ranges` are those of the operations whose replies are not in the
    /// output. Operations that have not begun may be refused. A command of several keys is refused as a whole or not at
    /// all, and if it is late only if all of its operations are in the queue. One on all keys is refused only if it
    /// removes them.
    pub(super) fn submit_resp(
        &mut self,
        mut operations: RespOperations<'a>,
        ranges: &[ReplyRange],
        refusal: Refusal,
        limit: &mut Limit,
    ) {
        let mut refused = None;
        for range in ranges {
            let mut left = range.count();
            while left > 0 {
                if limit.is_reached() {
                    return;
                }
                if range.is_pending() && refusal == Refusal::Nothing && !limit.holds_writes {
                    let count = self.submit_keys(&mut operations, left, limit);
                    if count > 0 {
                        left -= count;
                        continue;
                    }
                }
                let Some((part, space, request)) = operations.next() else { return };
                let alike = left;
                left -= 1;
                if !range.is_pending() {
                    refused = None;
                    continue;
                }
                if part.index == 0 {
                    refused = match &request {
                        CommandRequest::Key(request) => refusal.of(&request.operation),
                        CommandRequest::Keyspace(_, _, operation) => refusal.of_keyspace(operation),
                    };
                    refused = refused.filter(|_| refusal != Refusal::Late || part.count <= alike);
                }
                if let Some(error) = refused {
                    self.refuse(error, 1);
                    continue;
                }
                match request {
                    CommandRequest::Key(request) if limit.holds(&request.operation) => {
                        limit.is_held = true;
                        return;
                    }
                    CommandRequest::Key(request) => {
                        limit.count(&Ok(request));
                        self.push(space, request);
                    }
                    CommandRequest::Keyspace(_, _, KeyspaceOperation::Flush { .. }) if limit.holds_writes => {
                        limit.is_held = true;
                        return;
                    }
                    CommandRequest::Keyspace(space, shard, operation) => {
                        limit.count -= 1;
                        self.push_keyspace(space, shard, operation);
                    }
                }
            }
        }
    }

    /// Dispatches adjacent commands on keys of one space, at most `count_max` and until the limit is reached. Returns
    /// their number.
    fn submit_keys(&mut self, operations: &mut RespOperations<'a>, count_max: usize, limit: &mut Limit) -> usize {
        let Some((space, mut on_keys)) = operations.on_keys() else { return 0 };
        let left = limit.count;
        self.extend(space, &mut on_keys, count_max, limit);
        left - limit.count
    }
}
