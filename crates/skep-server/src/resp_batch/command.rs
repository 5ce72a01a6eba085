//! One command of a parsed batch.

use skep_wire::resp::Argument;

use crate::resp_command::table::CommandName;
use crate::resp_command::{Action, Arguments, KeyCommand};
use crate::vocabulary::Space;

/// A decoded command, or a run of simple ones.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) space: Space,
    /// The position of the request in the input.
    pub(super) start: usize,
    /// Index of its first argument, or of the first request of a run.
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
