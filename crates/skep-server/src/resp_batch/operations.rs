//! The operations of RESP commands.
//!
//! Most commands have one operation, on a key. Adjacent ones of one space are taken in one loop, all others one at a time.

use skep_core::operation::{PlainRequest, Request};
use skep_wire::native::WireError;

use super::simple::SimpleRequest;
use super::{Command, Replies, Requests, RespBatch};
use crate::resp_command::{Action, CommandRequest};
use crate::vocabulary::{OperationSource, Space};

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
        let Replies { command, operation, .. } = self.replies;
        let mut operations = RespOperations { parsed: self, input, command, index: operation, run: &[] };
        operations.open();
        operations
    }

    /// Returns true if the operation after the first `count` whose replies are not in the output may be refused, when
    /// `pending` operations from it on are to be submitted.
    pub(crate) fn may_be_refused(&self, count: usize, pending: usize) -> bool {
        let mut index = self.replies.operation + count;
        for command in &self.requests.commands[self.replies.command..] {
            if index < command.operation_count {
                let is_run = matches!(command.action, Action::Run);
                let is_whole = index == 0 && command.operation_count <= pending && !command.action.is_barrier();
                return pending > 0 && is_run || is_whole;
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
    /// The next command, and the index of its next operation, unless it is a run.
    command: usize,
    index: usize,
    /// What is left of the next command, if that is a run.
    run: &'a [SimpleRequest],
}

impl<'a> RespOperations<'a> {
    /// Sets the position to the operation at `index` of the next command.
    fn open(&mut self) {
        let Requests { commands, simple, .. } = &self.parsed.requests;
        let run = commands.get(self.command).map_or(&[][..], |command| command.run(simple));
        // The index of an operation of another command is no position in a run.
        self.run = run.get(self.index..).unwrap_or_default();
    }

    /// Returns the next command. Skips a run that is done.
    fn next_command(&mut self) -> Option<&'a Command> {
        let commands = &self.parsed.requests.commands;
        let command = commands.get(self.command)?;
        if !matches!(command.action, Action::Run) || !self.run.is_empty() {
            return Some(command);
        }
        (self.command, self.index) = (self.command + 1, 0);
        self.open();
        commands.get(self.command)
    }

    /// Returns the space of the next commands, and the operations of those that have one operation each, on a key of that
    /// space.
    #[inline]
    pub(crate) fn on_keys(&mut self) -> Option<(Space, OnKeys<'_, 'a>)> {
        let space = self.next_command()?.space;
        Some((space, OnKeys { operations: self, space }))
    }
}

/// The operations of commands that have one each, on a key of a space.
pub(crate) struct OnKeys<'o, 'a> {
    operations: &'o mut RespOperations<'a>,
    space: Space,
}

impl<'a> OperationSource<'a> for OnKeys<'_, 'a> {
    #[inline(always)]
    fn next_plain(&mut self) -> Option<PlainRequest<'a>> {
        // The next run may have been opened by now: a command that changes the space would be between two runs.
        let (first, rest) = self.operations.run.split_first()?;
        let plain = first.plain(self.operations.input)?;
        debug_assert!(self.operations.next_command().is_some_and(|command| command.space == self.space));
        self.operations.run = rest;
        Some(plain)
    }

    fn next_other(&mut self) -> Option<Result<Request<'a>, WireError>> {
        let command = self.operations.next_command().filter(|command| command.space == self.space)?;
        let RespOperations { parsed, input, index, .. } = *self.operations;
        if let Some((first, rest)) = self.operations.run.split_first() {
            self.operations.run = rest;
            return Some(Ok(first.request(input)));
        }
        let Requests { arguments, operands, .. } = &parsed.requests;
        let (_, on_key) = command.on_key().filter(|_| index == 0)?;
        self.operations.command += 1;
        self.operations.open();
        Some(Ok(on_key.request(command.arguments(input, arguments), operands.bytes(), 0, None)))
    }
}

impl<'a> Iterator for RespOperations<'a> {
    /// The operation, and its part in its command.
    type Item = (Part, Space, CommandRequest<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let Requests { arguments, operands, .. } = &self.parsed.requests;
        let progress = &self.parsed.replies.progress;
        loop {
            let command = self.next_command()?;
            if let Some((first, rest)) = self.run.split_first() {
                self.run = rest;
                let request = CommandRequest::Key(first.request(self.input));
                return Some((Part { index: 0, count: 1 }, command.space, request));
            }
            let is_first = self.command == self.parsed.replies.command;
            if !is_first && command.action.is_barrier() {
                return None;
            }
            let (index, count) = (self.index, command.operation_count);
            (self.command, self.index) =
                if index + 1 < count { (self.command, index + 1) } else { (self.command + 1, 0) };
            self.open();
            if index < count {
                let arguments = command.arguments(self.input, arguments);
                let request = command.action.request(arguments, operands.bytes(), index, is_first.then_some(progress));
                return Some((Part { index, count }, command.space, request));
            }
        }
    }
}
