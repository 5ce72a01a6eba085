//! The work of commands that the server executes itself: see [`crate::account`].
//!
//! Each spends the work of an operation and of its reply. The commands that do more, such as `CLIENT KILL`, spend that where
//! they do it.

use super::table::CommandName;
use super::{Action, Arguments};
use crate::limits::{SMALL_ARGUMENT_SIZE_MAX, TEXT_WORK};

impl Action {
    /// Returns true if the server makes a short reply, in about the time of an operation.
    pub(crate) fn is_small(&self, arguments: Arguments<'_>) -> bool {
        use CommandName::{
            Auth, Client, Discard, Echo, Exec, Hello, LastSave, Multi, Ping, Quit, Reset, Role, Shutdown, Time,
            Unwatch, Wait, WaitAof,
        };
        match self {
            Action::Server(Ping | Echo) => arguments.from(1).all(|argument| argument.len() <= SMALL_ARGUMENT_SIZE_MAX),
            Action::Server(Client) => !arguments.is(1, "list") && !arguments.is(1, "kill"),
            Action::Server(name) => matches!(
                name,
                Auth | Discard
                    | Exec
                    | Hello
                    | LastSave
                    | Multi
                    | Quit
                    | Reset
                    | Role
                    | Shutdown
                    | Time
                    | Unwatch
                    | Wait
                    | WaitAof
            ),
            _ => true,
        }
    }
}

impl CommandName {
    /// Returns the work of a reply of this size that the server makes itself: a text, or a copy of an argument.
    pub(super) fn text_work(self, size: usize) -> usize {
        if matches!(self, CommandName::Ping | CommandName::Echo) { size } else { TEXT_WORK * size }
    }
}
