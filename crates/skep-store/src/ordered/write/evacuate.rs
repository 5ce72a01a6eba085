//! Moving frames out of chunks with little in them, so that the chunks serve frames of any size.
//!
//! ```text
//! sparse chunk │ ░░█░░░░█░░░░░░█░ │ ─ copy, then one word of the page table ─▶ │ ██████░███████░█ │ others
//!                   └ garbage until an epoch has passed; then the chunk is free
//! ```
//!
//! A write that took a frame while few blocks were free looks at the next [`GRANULES_AT_A_TIME`] granules of the chunk that
//! the space names, and moves the frames in them. So no write moves more than that.
//!
//! **Nodes.** The frame is locked as for a merge, and copied with its version, its log and its `old`: readers of every version
//! find in the copy what they would find in the frame. The page table leads to the copy. The frame stays locked for ever, so a
//! writer that has seen it begins again.
//!
//! **Parts of values.** They never change. The part is copied and its word of the page table swapped while the space is locked.
//! A merge that drops a value settles under the same lock which frames its LIDs name, see [`Owner`]; so a part is moved
//! before that, or never.
//!
//! Readers that began before the swap may still read the frame. It is garbage as any other: it is tagged after the swap, and
//! an operation that begins later finds the copy. A node is opened here only if it was not retired when the space named it. That was
//! under this operation's guard: if it is retired now, its tag waits for this operation.

use super::super::memory::frame_state::FreeFrame;
use super::super::memory::number::Lid;
use super::super::space::{Movable, Owner};
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;

/// Granules that a write looks at, and moves at most.
const GRANULES_AT_A_TIME: u32 = 64;

impl<T: Trace> OrderedStore<T> {
    /// Moves some frames, if that gains anything.
    #[cold]
    pub(crate) fn evacuate(&self, replaced: &mut Vec<Garbage>, guard: &Guard<'_>) {
        let mut left = GRANULES_AT_A_TIME;
        loop {
            let mut space = self.space();
            let Some(from) = space.next_movable(&mut left) else { return };
            // A frame that is not the latest is still being built, or was just replaced. One that is cannot be freed while this
            // operation lasts.
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
                    replaced.push(Garbage::Frame(self.frames.replaced_value(from.number, from.granules)));
                }
                Owner::Node(lid) => {
                    space.give(to.number(), from.owner);
                    drop(space);
                    self.move_node(lid, &from, to, replaced, guard);
                }
            }
        }
    }

    /// Moves a node, unless another writer is at work on it.
    fn move_node(&self, lid: Lid, from: &Movable, to: FreeFrame, replaced: &mut Vec<Garbage>, guard: &Guard<'_>) {
        // A frame that is not the latest is still being built, or was just replaced.
        let is_latest = self.frames.is_latest(lid, from.number);
        let locked = if is_latest { self.frames.node(from.number, guard).try_lock() } else { None };
        let Some(locked) = locked else { return self.space().free(to) };
        let copy = locked.copy_to(self.frames.build(to));
        let old = self.frames.replace(locked, &copy);
        self.space().retire_moved(from);
        replaced.push(Garbage::Frame(old));
    }
}
