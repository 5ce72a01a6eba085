//! The course of an isolated command: its phase, and the reasons to stop.

use skep_core::operation::{OperationError, Reply};
use skep_store::hash::Room;

use crate::limits::ISOLATED_PART_MAX;
use crate::resp_command::Progress;
use crate::spaces::Window;
use crate::vocabulary::Step;

/// The phase of a command that changes keys. Not every command has all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It reads what it needs: values, and which keys exist.
    #[default]
    Read,
    /// It counts the room that its writes need.
    Count,
    /// It reserves this room, or checks that its writes need none.
    Reserve,
    Write,
    /// It removes the key whose value it has written elsewhere.
    Remove,
}

/// The reason for which a command does not go on.
pub(super) enum Halt {
    /// It continues in another step.
    Step(Step),
    /// It has failed: this error is its reply.
    Failed(OperationError),
}

impl From<Step> for Halt {
    fn from(step: Step) -> Self {
        Halt::Step(step)
    }
}

impl From<OperationError> for Halt {
    fn from(error: OperationError) -> Self {
        Halt::Failed(error)
    }
}

/// The course of a command that has begun.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) phase: Phase,
    /// Index of the first operation that is not done.
    pub(super) next: usize,
    pub(super) window: Window,
    /// The window of the writes, while the other one has what they write.
    pub(super) writes: Window,
    /// A value that is computed or copied.
    pub(super) kept: Vec<u8>,
    /// The room that the writes need in each shard.
    pub(super) rooms: Vec<(u16, Room)>,
    pub(super) progress: Progress,
    /// A part of the reply is written.
    pub(super) is_reply_begun: bool,
    /// Bytes of replies, and operations, since the last pause.
    pub(super) written: usize,
    pub(super) since_pause: usize,
}

impl Course {
    /// Begins anew, with the memory of the windows.
    pub(super) fn reset(&mut self) {
        let Course { mut window, mut writes, mut rooms, .. } = std::mem::take(self);
        window.end();
        writes.end();
        rooms.clear();
        *self = Course { window, writes, rooms, ..Course::default() };
    }

    /// Pauses between two parts. It may wait for the memory of the next part, so it holds none meanwhile: values that it
    /// has read and not written are read again. Only a command that reads pauses within a window.
    pub(super) fn pause(&mut self) {
        self.next += self.window.taken();
        self.window = Window::default();
        (self.written, self.since_pause) = (0, 0);
    }

    /// Begins a window for the next part of `count` operations, unless it has begun. Returns the index of its first
    /// operation.
    pub(super) fn begin_part(&mut self, count: usize) -> usize {
        if !self.window.is_open() {
            self.window.begin((count - self.next).min(ISOLATED_PART_MAX));
        }
        self.next
    }

    /// Ends the window of a part.
    pub(super) fn end_part(&mut self) {
        self.next += self.window.len();
        self.window.end();
    }

    /// Fails if one of the first `count` operations of the window has failed.
    pub(super) fn check(&self, count: usize) -> Result<(), OperationError> {
        (0..count).try_for_each(|index| match self.window.response(index) {
            Ok(Reply::Failed(error)) => Err(error),
            _ => Ok(()),
        })
    }
}
