//! One command of a parsed batch.

use skep_wire::resp::Argument;

use super::RespBatch;
use crate::limits::DECODE_WORK;
use crate::resp_command::table::CommandName;
use crate::resp_command::{Action, Arguments, KeyCommand, simple};
use crate::vocabulary::Space;

/// A decoded command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) space: Space,
    /// The position of the request in the input.
    pub(super) start: usize,
    pub(super) first_argument: usize,
    pub(super) argument_count: usize,
    pub(super) action: Action,
    pub(super) operation_count: usize,
    /// It has one operation, on a key, whose reply is written at once.
    pub(super) is_on_key: bool,
}

/// Returns true if an action of this many operations has one, on a key, whose reply is written at once.
#[inline]
pub(super) fn is_on_key(action: &Action, operation_count: usize) -> bool {
    match action {
        Action::Keys(_, command) => operation_count == 1 && !command.may_continue() && command.elements().is_none(),
        _ => false,
    }
}

impl Command {
    /// Returns its name and itself if it has one operation, on a key, whose reply is written at once.
    #[inline]
    pub(super) fn on_key(&self) -> Option<(CommandName, &KeyCommand)> {
        match &self.action {
            Action::Keys(name, command) if self.is_on_key => Some((*name, command)),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn arguments<'a>(&self, input: &'a [u8], ranges: &'a [Argument]) -> Arguments<'a> {
        Arguments::new(&input[self.start..], &ranges[self.first_argument..][..self.argument_count])
    }
}

impl RespBatch {
    /// Takes a request whose arguments begin at `first_argument`, if its command is a simple one that is executed with
    /// the operations of its turn. Returns false if it is not.
    #[inline]
    pub(super) fn take_simple(&mut self, request: &[u8], first_argument: usize) -> bool {
        if self.multi.is_open() || self.requests.has_isolated {
            return false;
        }
        let arguments = Arguments::new(request, &self.requests.arguments[first_argument..]);
        let Some((name, command)) = simple(arguments) else { return false };
        let (start, argument_count) = (self.requests.size, arguments.count());
        self.requests.size += request.len();
        self.requests.work += DECODE_WORK;
        self.replies.operations_left += 1;
        let action = Action::Keys(name, command);
        self.requests.commands.push(Command {
            space: self.space,
            start,
            first_argument,
            argument_count,
            action,
            operation_count: 1,
            is_on_key: true,
        });
        true
    }
}
