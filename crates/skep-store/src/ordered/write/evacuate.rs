//! Moves frames out of sparse chunks, so that the chunks serve frames of any size.
//!
//! ```text
//! sparse chunk │ ░░█░░░░█░░░░░░█░ │ ─ copy, then one word of the page table ─▶ │ ██████░███████░█ │ others
//!                   └ garbage until an epoch has passed; then the chunk is free
//! ```
//!
//! A write that allocated a frame while few blocks were free examines the next [`UNITS_AT_A_TIME`] units of the chunk
//! that the space selects, and moves their frames. This bounds the work of a write.
//!
//! **Nodes.**
//!
//! 1. The frame is locked as for a merge.
//! 2. It is copied with its version, its log and its `old`, so readers of every version find the same data in the copy.
//! 3. The page table's entry is set to the copy.
//! 4. The old frame stays locked for ever, so a writer that has read it begins again.
//!
//! **Parts of values.** They never change. While the space is locked, the part is copied and its word of the page table
//! is swapped. A merge that drops a value finds the frames of its LIDs under the same lock, see [`Owner`]. So a part is
//! moved before that, or never.
//!
//! **Why readers are safe.** Readers that began before the swap may still read the old frame. It is tagged after the
//! swap, like all garbage, and an operation that begins later finds the copy. A node is opened here only if it was not
//! retired when the space returned it, under this operation's guard. If it is retired since then, its tag waits for
//! this operation.

use super::super::memory::frame_state::FreeFrame;
use super::super::memory::number::Lid;
use super::super::space::{Movable, Owner};
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;

/// Units that a write examines, and moves at most.
const UNITS_AT_A_TIME: u32 = 64;

impl OrderedStore {
    /// Moves some frames, if that gains anything.
    #[cold]
    pub(crate) fn evacuate(&self, retired: &mut Vec<Garbage>, guard: &Guard<'_>) {
        let mut left = UNITS_AT_A_TIME;
        loop {
            let mut space = self.space();
            let Some(from) = space.next_movable(&mut left) else { return };
            // A frame that is not the latest is still being built, or was just retired. The latest cannot be freed
            // while this operation lasts.
            if let Owner::Node(lid) = from.owner
                && !self.frames.is_latest(lid, from.number)
            {
                continue;
            }
            let Some(to) = space.allocate_for(&from) else { return };
            match from.owner {
                Owner::Value(lid) => {
                    space.give(to.number(), from.owner);
                    self.frames.publish(lid, &self.frames.copy_value(from.number, to));
                    space.retire_moved(&from);
                    retired.push(Garbage::Frame(self.frames.retired_value(from.number, from.units)));
                }
                Owner::Node(lid) => {
                    space.give(to.number(), from.owner);
                    drop(space);
                    self.move_node(lid, &from, to, retired, guard);
                }
            }
        }
    }

    /// Moves a node, unless another writer has locked it.
    fn move_node(&self, lid: Lid, from: &Movable, to: FreeFrame, retired: &mut Vec<Garbage>, guard: &Guard<'_>) {
        // A frame that is not the latest is still being built, or was just retired.
        let is_latest = self.frames.is_latest(lid, from.number);
        let locked = if is_latest { self.frames.node(from.number, guard).try_lock() } else { None };
        let Some(locked) = locked else { return self.space().free(to) };
        let copy = locked.copy_to(self.frames.build(to));
        let old = self.frames.replace(locked, &copy);
        self.space().retire_moved(from);
        retired.push(Garbage::Frame(old));
    }
}
