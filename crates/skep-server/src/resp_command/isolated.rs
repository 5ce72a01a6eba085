//! Isolated commands, decoded.

use skep_core::operation::{ConditionKind, ExpiryChange};

use super::KeyCommand;
use super::queue::Queue;
use crate::vocabulary::Space;

/// A command that no other operation can observe half done.
#[derive(Debug)]
pub(crate) enum Isolated {
    /// Operations on keys, each with its reply or summed up.
    Keys(KeyCommand),
    /// `MSET`, `MSETNX`, `MSETEX`
    SetMany(SetMany),
    /// `RENAME key new-key`, `RENAMENX`
    Rename {
        /// Only if the new key does not exist; the reply is a number.
        if_absent: bool,
    },
    /// `COPY key new-key`
    Copy {
        /// The space of the new key.
        to: Space,
        /// Also if the new key exists.
        replace: bool,
    },
    /// `BITOP function new-key key…`
    Combine(BitFunction),
    /// `WATCH key…`
    Watch,
    /// `EXEC`
    Exec(Box<Queue>),
}

impl Isolated {
    /// Returns the number of operations for which the command counts, if it has this number of arguments. Those of a
    /// transaction count for its commands.
    pub(crate) fn weight(&self, argument_count: usize) -> usize {
        match self {
            Isolated::Keys(command) => command.operation_count(argument_count),
            Isolated::SetMany(command) => command.count,
            Isolated::Combine(_) | Isolated::Watch => argument_count,
            Isolated::Rename { .. } | Isolated::Copy { .. } | Isolated::Exec(_) => 1,
        }
    }
}

/// A command that sets many keys or none.
#[derive(Debug)]
pub(crate) struct SetMany {
    /// Index of the argument that is the first key.
    pub(crate) first: usize,
    /// Number of keys.
    pub(crate) count: usize,
    /// The condition that all keys must fulfil.
    pub(crate) condition: ConditionKind,
    pub(crate) expiry: ExpiryChange,
    /// The expiry counts from the execution.
    pub(crate) counts_from_now: bool,
    /// The reply is 1 or 0, instead of `OK`.
    pub(crate) has_flag: bool,
}

/// A function of `BITOP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitFunction {
    And,
    Or,
    Xor,
    Not,
}
