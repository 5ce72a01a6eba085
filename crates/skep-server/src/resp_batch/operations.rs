//! The operations of RESP commands.
//!
//! Most commands have one operation, on a key. Adjacent ones of one space are taken in one loop, all others one at a time.

use skep_core::operation::Request;
use skep_wire::native::WireError;

use super::{Command, Requests, RespBatch};
use crate::resp_command::CommandRequest;
use crate::vocabulary::Space;

/// The position of an operation among those of its command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl RespBatch {
    /// Returns true if the next reply is a vector.
    pub(crate) fn is_next_vector(&self) -> bool {
        self.requests.commands.get(self.replies.command).is_some_and(|command| command.action.has_elements())
    }

    /// Returns the operations whose replies are not in the output, in order.
    ///
    /// They start at the first one. A command of a million keys is submitted in a thousand parts: walking over the others each
    /// time would be quadratic.
    pub(crate) fn operations<'a>(&'a self, input: &'a [u8]) -> RespOperations<'a> {
        RespOperations { parsed: self, input, command: self.replies.command, index: self.replies.operation }
    }

    /// Returns true if the operation after the first `count` whose replies are not in the output may be refused, when
    /// `pending` operations from it on are to be submitted.
    pub(crate) fn may_be_refused(&self, count: usize, pending: usize) -> bool {
        let mut index = self.replies.operation + count;
        for command in &self.requests.commands[self.replies.command..] {
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
pub(crate) struct RespOperations<'a> {
    parsed: &'a RespBatch,
    input: &'a [u8],
    /// The next command, and the index of its next operation.
    command: usize,
    index: usize,
}

impl<'a> RespOperations<'a> {
    /// Returns the space of the next commands, and the operations of those that have one operation each, on a key of that
    /// space. The caller says by [`RespOperations::skip_commands`] how many it has taken.
    #[inline]
    pub(crate) fn on_keys(&self) -> Option<(Space, impl Iterator<Item = Result<Request<'a>, WireError>> + use<'a>)> {
        let (input, Requests { commands, arguments, operands, .. }) = (self.input, &self.parsed.requests);
        let Command { space, .. } = commands.get(self.command)?;
        if self.index > 0 {
            return None;
        }
        let request = move |command: &'a Command| {
            let (_, on_key) = command.on_key().filter(|_| command.space == *space)?;
            Some(Ok(on_key.request(command.arguments(input, arguments), operands.bytes(), 0, None)))
        };
        Some((*space, commands[self.command..].iter().map_while(request)))
    }

    /// Skips commands of one operation each.
    pub(crate) fn skip_commands(&mut self, count: usize) {
        self.command += count;
    }
}

impl<'a> Iterator for RespOperations<'a> {
    /// The operation, and its part in its command.
    type Item = (Part, Space, CommandRequest<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let Requests { commands, arguments, operands, .. } = &self.parsed.requests;
        let progress = &self.parsed.replies.progress;
        loop {
            let command = commands.get(self.command)?;
            let is_first = self.command == self.parsed.replies.command;
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
