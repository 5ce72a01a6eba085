//! The memory of a parsed batch: what it holds, and what the next command needs.

use skep_core::operation::VALUE_SIZE_MAX;
use skep_wire::resp::{Argument, Arriving};

use super::simple::SimpleRequest;
use super::{After, Command, RespBatch};
use crate::limits::{ELEMENT_SIZE_MAX, FREE_ARGUMENTS_MAX, LONG_COMMAND, WATCHED_KEYS_MAX};
use crate::resp_command::{Arguments, Operands};
use crate::vocabulary::Need;
use crate::watches::memory_of;

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
        if !self.multi.is_open() && may_be_watch(input) && argument_count <= WATCHED_KEYS_MAX + 1 {
            need.besides += memory_of(argument_count, size_min);
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
        let held = self.capacity() - self.requests.arguments.capacity() * size_of::<Argument>();
        let allowed = memory_max.saturating_sub(held) / size_of::<Argument>();
        let needed = self.requests.arguments.len() + count;
        if needed > allowed && (count > FREE_ARGUMENTS_MAX || !self.requests.commands.is_empty()) {
            return Err(count * size_of::<Argument>());
        }
        let wanted = needed.max((2 * self.requests.arguments.len()).min(allowed));
        self.requests.arguments.reserve_exact(wanted - self.requests.arguments.len());
        Ok(())
    }

    /// Returns an error, which says what follows, if a request of this size has to wait: for the commands before it, or for
    /// memory. A transaction has `room` bytes to grow.
    #[inline]
    pub(super) fn admit(
        &self,
        arguments: Arguments<'_>,
        size: usize,
        room: usize,
        memory_max: usize,
    ) -> Result<(), After> {
        if arguments.count() > LONG_COMMAND && !self.requests.commands.is_empty() {
            return Err(After::End);
        }
        let needed = arguments.operand_memory();
        // Other commands have a few bytes of operands, such as a time.
        let growth = self.requests.operands.growth(needed.max(FREE_ARGUMENTS_MAX * ELEMENT_SIZE_MAX));
        let is_free = self.requests.commands.is_empty() && needed <= FREE_ARGUMENTS_MAX * ELEMENT_SIZE_MAX;
        if growth > 0 && !is_free && self.capacity() + growth > memory_max {
            return Err(After::NeedsMemory(growth));
        }
        let growth = self.multi.growth(size, arguments.count());
        if !self.multi.has_room(growth, room) {
            return Err(After::NeedsRoom(growth));
        }
        Ok(())
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.requests.commands.capacity() * size_of::<Command>()
            + self.requests.simple.capacity() * size_of::<SimpleRequest>()
            + self.requests.arguments.capacity() * size_of::<Argument>()
            + self.requests.operands.capacity()
            + self.requests.queued_bytes
            + self.multi.capacity()
            + self.watched.as_ref().map_or(0, |watched| watched.capacity())
            + self.watch_room
            + self.reply_memory()
    }

    /// Returns the part of [`RespBatch::capacity`] that is memory of replies, and of those that are being made.
    pub(crate) fn reply_memory(&self) -> usize {
        self.requests.message_bytes
            + self.replies.progress.capacity()
            + self.isolated.run.as_ref().map_or(0, |run| run.capacity())
    }

    /// Returns the memory of a finished parsed batch.
    pub(crate) fn release(&mut self) {
        (self.requests.commands, self.requests.simple) = (Vec::new(), Vec::new());
        (self.requests.arguments, self.requests.operands) = (Vec::new(), Operands::default());
    }
}

/// Returns the name of the command that these bytes begin, if it is an array and the name has arrived.
fn name_of(input: &[u8]) -> Option<&[u8]> {
    input.splitn(4, |&byte| byte == b'\n').nth(2).map(<[u8]>::trim_ascii_end)
}

/// Returns true if these bytes begin a `RESTORE`, whose value may be longer than its payload.
fn is_restore(input: &[u8]) -> bool {
    name_of(input).is_some_and(|name| name.eq_ignore_ascii_case(b"RESTORE"))
}

/// Returns true if these bytes may begin a `WATCH`, whose keys are kept. An inline request is one if its name may be that
/// word, perhaps in quotes.
pub(crate) fn may_be_watch(input: &[u8]) -> bool {
    match input.first() {
        Some(b'*') => name_of(input).is_some_and(|name| name.eq_ignore_ascii_case(b"WATCH")),
        _ => {
            // Within its line: many blank lines would be looked at again and again.
            let line = input.iter().take_while(|&&byte| byte != b'\n');
            let first = line.into_iter().find(|&&byte| !is_blank(byte));
            first.is_some_and(|first| b"wW\"'".contains(first))
        }
    }
}

/// Returns the bytes of memory that the keys of a `WATCH` take at most. One of too many keys is refused.
pub(super) fn watch_growth(arguments: Arguments<'_>) -> usize {
    let count = arguments.count() - 1;
    if count > WATCHED_KEYS_MAX { 0 } else { memory_of(count, arguments.from(1).map(<[u8]>::len).sum()) }
}

/// Returns the same for a line, of whose words the first one is the name. Quotes only join words.
pub(super) fn inline_watch_growth(line: &[u8]) -> usize {
    let count = line.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty()).count();
    memory_of(count.min(WATCHED_KEYS_MAX), line.len())
}

/// Returns true if the byte separates the words of a line.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 11
}

#[cfg(test)]
mod tests {
    use super::may_be_watch;

    #[test]
    fn only_the_first_line_decides_whether_keys_are_watched() {
        for watch in [&b"watch a\r\n"[..], b"  WATCH a", b"\"watch\" a\n", b"*2\r\n$5\r\nwatch\r\n$1\r\na\r\n"] {
            assert!(may_be_watch(watch), "{}", watch.escape_ascii());
        }
        // Each blank line would be read to the end of all blank lines.
        for other in [&b"\r\nwatch a\r\n"[..], b" \n\n watch a", b"\r\n", b"get a\r\n", b"*1\r\n$4\r\nPING\r\n"] {
            assert!(!may_be_watch(other), "{}", other.escape_ascii());
        }
    }
}
