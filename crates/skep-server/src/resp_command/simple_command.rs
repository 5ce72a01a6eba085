//! Simple commands: one operation on one key, without options, numbers or a time. Each is valid in all spaces. Most
//! commands are simple.

use skep_core::operation::{Operation, PlainRequest, PutCondition, Reply, Request};
use skep_wire::native::Response;
use skep_wire::resp::ReplyWriter;

use super::key_command::KeyCommand;
use super::table::CommandName;

/// What a simple command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimpleCommand {
    Get,
    Set,
    SetNew,
    Increment,
    Decrement,
    Delete,
    Exists,
}

impl SimpleCommand {
    /// Returns the command of this name and number of arguments, if it is a simple one.
    #[inline]
    pub(crate) fn find(name: CommandName, argument_count: usize) -> Option<SimpleCommand> {
        Some(match (name, argument_count) {
            (CommandName::Get, 2) => SimpleCommand::Get,
            (CommandName::Set, 3) => SimpleCommand::Set,
            (CommandName::SetNx, 3) => SimpleCommand::SetNew,
            (CommandName::Incr, 2) => SimpleCommand::Increment,
            (CommandName::Decr, 2) => SimpleCommand::Decrement,
            (CommandName::Del | CommandName::Unlink, 2) => SimpleCommand::Delete,
            (CommandName::Exists | CommandName::Touch, 2) => SimpleCommand::Exists,
            _ => return None,
        })
    }

    /// Returns the same as a command on keys.
    pub(crate) fn on_key(self) -> KeyCommand {
        match self {
            SimpleCommand::Get => KeyCommand::Get,
            SimpleCommand::Set => KeyCommand::Set(PutCondition::Always),
            SimpleCommand::SetNew => KeyCommand::SetNew,
            SimpleCommand::Increment => KeyCommand::Add { delta: 1 },
            SimpleCommand::Decrement => KeyCommand::Add { delta: -1 },
            SimpleCommand::Delete => KeyCommand::Delete,
            SimpleCommand::Exists => KeyCommand::Exists,
        }
    }

    /// Returns its operation, if that is a get or a plain put.
    #[inline(always)]
    pub(crate) fn plain<'a>(self, key: &'a [u8], value: &'a [u8]) -> Option<PlainRequest<'a>> {
        match self {
            SimpleCommand::Get => Some(PlainRequest { key, value: None }),
            SimpleCommand::Set => Some(PlainRequest { key, value: Some(value) }),
            _ => None,
        }
    }

    /// Returns its operation. A command without a value ignores `value`.
    pub(crate) fn request<'a>(self, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
        let put = |condition| Operation::Put { value, condition };
        let operation = match self {
            SimpleCommand::Get => Operation::Get,
            SimpleCommand::Set => put(PutCondition::Always),
            SimpleCommand::SetNew => put(PutCondition::IfAbsent),
            SimpleCommand::Increment => Operation::AddDecimal { delta: 1 },
            SimpleCommand::Decrement => Operation::AddDecimal { delta: -1 },
            SimpleCommand::Delete => Operation::Delete,
            SimpleCommand::Exists => Operation::Contains,
        };
        Request { key, operation }
    }

    /// Writes the reply to the command, unless that is an error. Returns true if it did.
    #[inline(always)]
    pub(crate) fn write(self, response: Response<'_>, writer: &mut ReplyWriter<'_>) -> bool {
        match (self, response) {
            (SimpleCommand::Get, Ok(Reply::Value(value))) => writer.bulk(value),
            (SimpleCommand::Set, Ok(Reply::Done)) => writer.ok(),
            (_, Ok(Reply::Failed(_) | Reply::Deferred) | Err(_)) => return false,
            (SimpleCommand::Increment | SimpleCommand::Decrement, Ok(Reply::Value(text))) => writer.decimal(text),
            (SimpleCommand::SetNew | SimpleCommand::Delete | SimpleCommand::Exists, Ok(reply)) => {
                writer.integer(i64::from(reply == Reply::Done));
            }
            _ => writer.null(),
        }
        true
    }
}
