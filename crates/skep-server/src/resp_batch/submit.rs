//! The submission of RESP commands: their operations, and which of them are dispatched.
//!
//! Most commands have one operation, on a key. Adjacent ones of one space are dispatched in one loop. All others are
//! dispatched one at a time.

use super::{Command, RespBatch};
use crate::dispatch::Dispatch;
use crate::reply_queue::ReplyRange;
use crate::resp_command::CommandRequest;
use crate::vocabulary::{KeyspaceOperation, Limit, Refusal, Space};

/// The position of an operation among those of its command.
#[derive(Clone, Copy, Debug)]
struct Part {
    index: usize,
    count: usize,
}

impl RespBatch {
    /// Returns true if the next reply is a vector.
    pub(crate) fn is_next_vector(&self) -> bool {
        self.commands.get(self.command).is_some_and(|command| command.action.has_elements())
    }

    /// Dispatches pending operations, in order; `ranges` are those of the operations whose replies are not in the
    /// output. Operations that have not begun may be refused. A command of several keys is refused as a whole or not at
    /// all, and if it is late only if all of its operations are in the queue. One on all keys is refused only if it
    /// removes them.
    pub(crate) fn submit<'a>(
        &'a self,
        input: &'a [u8],
        ranges: &[ReplyRange],
        refusal: Refusal,
        dispatch: &mut Dispatch<'_, 'a>,
        limit: &mut Limit,
    ) {
        let mut refused = None;
        // Starts at the first operation without a reply in the output. A command of a million keys is submitted in a
        // thousand parts: walking over the others each time would be quadratic.
        let mut operations = RespOperations { parsed: self, input, command: self.command, index: self.operation };
        for range in ranges {
            let mut left = range.count();
            while left > 0 {
                if limit.is_reached() {
                    return;
                }
                if range.is_pending() && refusal == Refusal::Nothing && !limit.holds_writes {
                    let count = operations.submit_keys(left, dispatch, limit);
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
                    dispatch.refuse(error, 1);
                    continue;
                }
                match request {
                    CommandRequest::Key(request) if limit.holds(&request.operation) => {
                        limit.is_held = true;
                        return;
                    }
                    CommandRequest::Key(request) => {
                        limit.count(&Ok(request));
                        dispatch.push(space, request);
                    }
                    CommandRequest::Keyspace(_, _, KeyspaceOperation::Flush { .. }) if limit.holds_writes => {
                        limit.is_held = true;
                        return;
                    }
                    CommandRequest::Keyspace(space, shard, operation) => {
                        limit.count -= 1;
                        dispatch.push_keyspace(space, shard, operation);
                    }
                }
            }
        }
    }

    /// Returns true if the operation after the first `count` whose replies are not in the output may be refused, when
    /// `pending` operations from it on are to be submitted.
    pub(crate) fn may_be_refused(&self, count: usize, pending: usize) -> bool {
        let mut index = self.operation + count;
        for command in &self.commands[self.command..] {
            if index < command.operation_count {
                return index == 0 && command.operation_count <= pending && !command.action.is_barrier();
            }
            index -= command.operation_count;
        }
        false
    }
}

/// The operations whose replies are not in the output, from a position on. Those of a barrier are among them when it is
/// the first command.
struct RespOperations<'a> {
    parsed: &'a RespBatch,
    input: &'a [u8],
    /// The next command, and the index of its next operation.
    command: usize,
    index: usize,
}

impl<'a> RespOperations<'a> {
    /// Dispatches adjacent commands on keys of one space, at most `count_max` and until the limit is reached. Returns
    /// their number.
    fn submit_keys(&mut self, count_max: usize, dispatch: &mut Dispatch<'_, 'a>, limit: &mut Limit) -> usize {
        let RespBatch { commands, arguments, operands, .. } = self.parsed;
        let Some(Command { space, .. }) = commands.get(self.command) else { return 0 };
        if self.index > 0 {
            return 0;
        }
        let request = |command: &'a Command| {
            let (_, on_key) = command.on_key().filter(|_| command.space == *space)?;
            Some(Ok(on_key.request(command.arguments(self.input, arguments), operands.bytes(), 0, None)))
        };
        let left = limit.count;
        dispatch.extend(*space, &mut commands[self.command..].iter().take(count_max).map_while(request), limit);
        let count = left - limit.count;
        self.command += count;
        count
    }
}

impl<'a> Iterator for RespOperations<'a> {
    /// The operation, and its part in its command.
    type Item = (Part, Space, CommandRequest<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let RespBatch { commands, arguments, operands, progress, .. } = self.parsed;
        loop {
            let command = commands.get(self.command)?;
            let is_first = self.command == self.parsed.command;
            if !is_first && command.action.is_barrier() {
                return None;
            }
            let (index, count) = (self.index, command.operation_count);
            (self.command, self.index) =
                if index + 1 < count { (self.command, index + 1) } else { (self.command + 1, 0) };
            if index < count {
                let arguments = command.arguments(self.input, arguments);
                let request = command.action.request(arguments, operands.bytes(), index, is_first.then_some(progress));
                return Some((Part { index, count }, command.space, request));
            }
        }
    }
}
