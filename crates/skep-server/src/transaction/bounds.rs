//! The stores and the bounds of a run of isolated commands.

use crate::limits::{
    BEGUN_PARTS, ISOLATED_IN_TURN_MAX, ISOLATED_WORK_SIZE, MEDIUM_EFFORT_WORK, SLOW_ENTRIES_IN_TURN_MAX,
    SMALL_EFFORT_WORK,
};
use crate::spaces::Stores;
use crate::vocabulary::{Effort, ShardSet};

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
    /// The largest effort of a command that may begin.
    pub(crate) effort_max: Effort,
    /// The work of a command is forecast before it begins.
    pub(crate) is_careful: bool,
    /// A command took more than the number of its arguments has shown.
    pub(crate) has_misjudged: bool,
    /// A command that has waited too long is refused.
    pub(crate) refuses_late: bool,
}

impl<'b, 's> Bounds<'b, 's> {
    /// Begins a turn on the stores, of which these shards are held.
    pub(crate) fn new(stores: &'b mut Stores<'s>, held: ShardSet) -> Bounds<'b, 's> {
        let (left, slow_room) = (ISOLATED_IN_TURN_MAX, SLOW_ENTRIES_IN_TURN_MAX);
        Bounds {
            stores,
            held,
            left,
            operation_work: 1,
            executed: 0,
            slow_room,
            is_over: false,
            effort_max: Effort::Small,
            is_careful: false,
            has_misjudged: false,
            refuses_late: false,
        }
    }

    /// Begins another turn of a command that has begun. Others wait for the stores that it has, so it touches more bytes in
    /// the turn.
    pub(crate) fn of_begun(stores: &'b mut Stores<'s>, held: ShardSet) -> Bounds<'b, 's> {
        let bounds = Bounds::new(stores, held);
        Bounds { left: BEGUN_PARTS * bounds.left, operation_work: BEGUN_PARTS, ..bounds }
    }

    /// Returns the work by which a command of this effort may exceed the turn, so that it is not interrupted.
    pub(crate) fn excess(effort: Effort) -> usize {
        // As much as is forecast at most, and as much again for what a forecast does not count.
        match effort {
            Effort::Small => 2 * SMALL_EFFORT_WORK / ISOLATED_WORK_SIZE,
            Effort::Medium => 2 * MEDIUM_EFFORT_WORK / ISOLATED_WORK_SIZE,
            Effort::Large => 0,
        }
    }
}
