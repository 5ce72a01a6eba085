//! Times that count from the execution of a command. It is decoded with the time of its arrival, and may wait: for the end of a
//! pause, for memory, or for other shards. Then its times are moved.

use super::expiry::later;
use super::isolated::Isolated;
use super::{Action, KeyCommand};

impl Action {
    /// Returns true if times of the command count from its execution: until then, [`Action::postpone`] moves them.
    #[inline]
    pub(crate) fn counts_from_now(&self) -> bool {
        match self {
            Action::Keys(_, KeyCommand::String(command))
            | Action::Isolated(_, Isolated::Keys(KeyCommand::String(command))) => command.counts_from_now,
            Action::Isolated(_, Isolated::SetMany(command)) => command.counts_from_now,
            _ => false,
        }
    }

    /// Moves times that count from now: the command is executed this many milliseconds later than was expected.
    pub(crate) fn postpone(&mut self, milliseconds: i64) {
        match self {
            Action::Keys(_, KeyCommand::String(command))
            | Action::Isolated(_, Isolated::Keys(KeyCommand::String(command))) => command.postpone(milliseconds),
            Action::Isolated(_, Isolated::SetMany(command)) if command.counts_from_now => {
                command.expiry = later(command.expiry, milliseconds);
            }
            _ => {}
        }
    }
}
