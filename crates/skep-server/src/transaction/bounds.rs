//! The stores and the bounds of a run of isolated commands.

use crate::limits::{ISOLATED_IN_TURN_MAX, SLOW_ENTRIES_IN_TURN_MAX};
use crate::spaces::Stores;
use crate::vocabulary::ShardSet;

/// The stores and the bounds of a run of isolated commands.
pub(crate) struct Bounds<'b, 's> {
    pub(crate) stores: &'b mut Stores<'s>,
    /// The shards that are held.
    pub(crate) held: ShardSet,
    /// Operations that may still be executed in this turn.
    pub(crate) left: usize,
    /// Operations that were executed.
    pub(crate) executed: usize,
    /// Commands that may be entered in the slow log in this turn.
    pub(crate) slow_room: usize,
    /// No other command begins in this turn: one has begun that is not done, or was done after several turns.
    pub(crate) is_over: bool,
}

impl<'b, 's> Bounds<'b, 's> {
    /// Begins a turn on the stores, of which these shards are held.
    pub(crate) fn new(stores: &'b mut Stores<'s>, held: ShardSet) -> Bounds<'b, 's> {
        let (left, slow_room) = (ISOLATED_IN_TURN_MAX, SLOW_ENTRIES_IN_TURN_MAX);
        Bounds { stores, held, left, executed: 0, slow_room, is_over: false }
    }
}
