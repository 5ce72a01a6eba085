//! The invocation of a command, as the run of an isolated command takes it, and the output of its session.

use skep_wire::resp::ReplyWriter;

use super::table::CommandName;
use super::{Arguments, Session};
use crate::vocabulary::Space;

/// An invocation of a command.
#[derive(Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub(crate) name: CommandName,
    pub(crate) arguments: Arguments<'a>,
    /// The operands that were converted from text: see [`super::Operands`].
    pub(crate) operands: &'a [u8],
    /// The space that was chosen before.
    pub(crate) space: Space,
}

/// The output of a connection, to which the commands of its session append their replies.
pub(crate) struct SessionOutput<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    pub(crate) session: &'a mut Session,
}

impl SessionOutput<'_> {
    /// Returns a writer of replies in the version of the session.
    pub(crate) fn writer(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.bytes, self.session.version)
    }

    /// Returns the number of bytes of the output.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the part of a reply that begins there, if the client wants no reply to the command.
    pub(crate) fn remove_if_silent(&mut self, begin: usize) {
        if self.session.replies.is_silent() {
            self.bytes.truncate(begin);
        }
    }
}
