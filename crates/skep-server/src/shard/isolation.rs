//! How far the isolated commands of a connection were run in a turn.

use crate::vocabulary::{Effort, ShardSet, Step};

/// The state of a connection after its isolated commands were run as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// Its next command is not isolated, or may not be run yet.
    Over,
    /// Its next command needs these shards.
    Needs(ShardSet),
    /// The operations of the turn are used up, or its next command is run in parts or is too much effort now. It can go on
    /// later.
    Later(Effort),
    /// A command has begun and cannot go on: nothing else is executed.
    Blocked(Step),
}
