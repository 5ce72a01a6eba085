//! The state of a RESP connection that commands read and change.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use skep_wire::resp::Version;

use super::save_command::Awaited;
use crate::access::{Login, UserTable};
use crate::function_loader::ChangeInProgress;

/// The state of a RESP connection. A connection begins with the default, except for its login.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The version of the replies; `HELLO` changes it.
    pub(crate) version: Version,
    /// The user of the connection.
    pub(crate) login: Login,
    /// The client wants replies.
    pub(crate) replies: Replies,
    /// When the `DEBUG SLEEP` that is being executed ends.
    pub(crate) sleeps_until: Option<Instant>,
    /// What the command that is being executed waits for.
    pub(crate) awaited: Option<Awaited>,
    /// The change of the modules of functions that the command waits for.
    pub(crate) function_change: Option<ChangeInProgress>,
    /// The work on the file of users that the command waits for.
    pub(crate) file_work: Option<FileWork>,
    /// The number from which on a `CLIENT KILL` continues, and the connections that it has killed.
    pub(crate) kill_progress: (u64, i64),
}

/// The file of users is being read or written, by a thread of its own. The users are those that were read.
pub(crate) type FileWork = Arc<OnceLock<Result<UserTable, String>>>;

/// The replies that a client wants: `CLIENT REPLY` changes this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All.
    #[default]
    On,
    /// None, from `CLIENT REPLY OFF` itself on.
    Off,
    /// None to this `CLIENT REPLY SKIP` and to the next command.
    SkipNext,
    /// None to this command.
    Skip,
}

impl Session {
    /// Returns the session of a new connection.
    pub(crate) fn new(login: Login) -> Session {
        Session {
            version: Version::default(),
            login,
            replies: Replies::default(),
            sleeps_until: None,
            awaited: None,
            function_change: None,
            file_work: None,
            kill_progress: (0, 0),
        }
    }
}

impl Replies {
    /// Returns true if all commands get their replies.
    pub(crate) fn is_on(self) -> bool {
        self == Replies::On
    }

    /// Returns true if the command that is being executed gets no reply. (`CLIENT REPLY SKIP` itself writes none.)
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Replies::Off | Replies::Skip)
    }

    /// Records that a command is done.
    pub(crate) fn end_command(&mut self) {
        *self = match *self {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            state => state,
        };
    }
}
