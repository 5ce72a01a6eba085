//! The stores and the bounds of a run of isolated commands.

use crate::limits::{BEGUN_PARTS, ISOLATED_IN_TURN_MAX, SLOW_ENTRIES_IN_TURN_MAX};
use crate::spaces::Stores;
use crate::vocabulary::ShardSet;

/// The stores and the bounds of a run of isolated commands.
pub(crate) struct Bounds<'b, 's> {
    pub(crate) stores: &'b mut Stores<'s>,
    /// The shards that are held.
    pub(crate) held: ShardSet,
    /// Work that may still be done in this turn: see [`ISOLATED_IN_TURN_MAX`].
    pub(crate) left: usize,
    /// The part of it that an operation takes, beside the bytes that it touches.
    pub(crate) operation_work: usize,
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
        Bounds { stores, held, left, operation_work: 1, executed: 0, slow_room, is_over: false }
    }

    /// Begins another turn of a command that has begun. Others wait for the stores that it has, so it touches more bytes in
    /// the turn.
    pub(crate) fn of_begun(stores: &'b mut Stores<'s>, held: ShardSet) -> Bounds<'b, 's> {
        let bounds = Bounds::new(stores, held);
        Bounds { left: BEGUN_PARTS * bounds.left, operation_work: BEGUN_PARTS, ..bounds }
    }
}
