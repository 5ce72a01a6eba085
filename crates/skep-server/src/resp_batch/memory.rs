//! The memory of a parsed batch: what it holds, and what the next command needs.

use skep_core::operation::VALUE_SIZE_MAX;
use skep_wire::resp::{Argument, Arriving};

use super::{Command, RespBatch};
use crate::limits::{ELEMENT_SIZE_MAX, FREE_ARGUMENTS_MAX};
use crate::resp_command::Operands;
use crate::vocabulary::Need;

impl RespBatch {
    /// Returns the memory that the command needs which begins with these bytes and is incomplete.
    pub(crate) fn arriving(&self, input: &[u8]) -> Need {
        let Arriving { size_min, is_size_known, argument_count } = self.parser.arriving();
        let mut need = Need::of_size(is_size_known.then_some(size_min));
        need.size_min = size_min;
        if argument_count > FREE_ARGUMENTS_MAX {
            need.besides = argument_count * size_of::<Argument>();
            need.perhaps += argument_count * ELEMENT_SIZE_MAX;
        }
        if is_restore(input) {
            need.perhaps += VALUE_SIZE_MAX;
        }
        if self.multi.is_open() {
            // It is copied to the transaction.
            let growth = self.multi.growth(size_min, argument_count);
            need.besides += growth.least;
            need.perhaps += growth.most - growth.least;
        }
        need
    }

    /// Makes room for `count` more arguments, and for twice as many as there are if `memory_max` allows that. If it
    /// does not even allow `count` more, returns the bytes that these need; a few of a first command are always allowed.
    pub(super) fn make_room_for_arguments(&mut self, count: usize, memory_max: usize) -> Result<(), usize> {
        let held = self.capacity() - self.arguments.capacity() * size_of::<Argument>();
        let allowed = memory_max.saturating_sub(held) / size_of::<Argument>();
        let needed = self.arguments.len() + count;
        if needed > allowed && (count > FREE_ARGUMENTS_MAX || !self.commands.is_empty()) {
            return Err(count * size_of::<Argument>());
        }
        let wanted = needed.max((2 * self.arguments.len()).min(allowed));
        self.arguments.reserve_exact(wanted - self.arguments.len());
        Ok(())
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.commands.capacity() * size_of::<Command>()
            + self.arguments.capacity() * size_of::<Argument>()
            + self.operands.capacity()
            + self.queued_bytes
            + self.multi.capacity()
            + self.watched.as_ref().map_or(0, |watched| watched.capacity())
            + self.reply_memory()
    }

    /// Returns the part of [`RespBatch::capacity`] that is memory of replies, and of those that are being made.
    pub(crate) fn reply_memory(&self) -> usize {
        self.message_bytes + self.progress.capacity() + self.run.as_ref().map_or(0, |run| run.capacity())
    }

    /// Returns the memory of a finished parsed batch.
    pub(crate) fn release(&mut self) {
        (self.commands, self.arguments, self.operands) = (Vec::new(), Vec::new(), Operands::default());
    }
}

/// Returns true if these bytes begin a `RESTORE`, whose value may be longer than its payload.
fn is_restore(input: &[u8]) -> bool {
    let name = input.splitn(4, |&byte| byte == b'\n').nth(2);
    name.is_some_and(|name| name.trim_ascii_end().eq_ignore_ascii_case(b"RESTORE"))
}
