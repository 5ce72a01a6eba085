//! What a batch does at once, where the memory has lines at hand: tight stages over the whole part instead of futures.
//!
//! ```text
//! announced at    active     first line of each front,      announce      visit each slab,
//! admission  ───▶ chains ──▶ forward what it holds ───────▶ the slabs ──▶ forward its value
//!                   ▲          │ what has to wait                           │ other key in it
//!                   │          └───────▶ futures ◀──────────────────────────┤
//!                   └───────────── chains that are not empty ◀──────────────┘
//! ```
//!
//! Prefetches of slabs stand close together, so that their page walks overlap. What waits goes through the same searches
//! and edits as a future, and so does everything on a memory that has nothing at hand.

use super::chain::{Batch, edit_of};
use super::replies::Replies;
use super::station::ChainIndex;
use crate::hash::{FirstLine, SlabSlot};
use crate::memory::Memory;

/// The lists between the stages, kept from batch to batch.
#[derive(Debug, Default)]
pub(super) struct Stages {
    active: Vec<ChainIndex>,
    slabs: Vec<(ChainIndex, SlabSlot)>,
    /// Chains that have to wait, after [`Batch::run_at_hand`].
    pub(super) waiting: Vec<ChainIndex>,
}

impl<M: Memory> Batch<'_, M> {
    /// Works off all chains as far as that can be done at once.
    #[inline(never)]
    pub(super) fn run_at_hand(&self, stages: &mut Stages) {
        let mut replies = self.replies.borrow_mut();
        let Stages { active, slabs, waiting } = stages;
        waiting.clear();
        active.extend(self.station.chains());
        while !active.is_empty() {
            for chain in active.iter() {
                match self.first_lines(*chain, &mut replies) {
                    FirstLine::Visited => {}
                    FirstLine::Slab(slab) => slabs.push((*chain, slab)),
                    _ => waiting.push(*chain),
                }
            }
            active.clear();
            for (_, slab) in slabs.iter() {
                self.table.announce_slab(*slab);
            }
            for (chain, slab) in slabs.drain(..) {
                let list = if self.visit_slab(chain, slab, &mut replies) { &mut *active } else { &mut *waiting };
                list.push(chain);
            }
        }
    }

    /// Works off a chain as far as first lines do: until it is empty, or what its front's first line shows if more is
    /// to be done.
    #[inline(always)]
    fn first_lines(&self, chain: ChainIndex, replies: &mut Replies) -> FirstLine {
        while let Some(first) = self.front(chain) {
            let request = &self.requests[first.index()];
            let visit = |value: &mut [u8]| self.forward(chain, first, request, value, &mut None, replies);
            let edit = |found| edit_of(request, found);
            match self.table.look_at_hand(request.key, self.homes[first.index()], visit, edit) {
                None => return FirstLine::Elsewhere,
                Some(FirstLine::Visited) => {}
                Some(other) if self.answer_first_line(chain, first, &other, replies) => {}
                Some(other) => return other,
            }
        }
        FirstLine::Visited
    }

    /// Looks for the key of a chain's first request in a slab. Whether it was there, and the request was answered.
    #[inline(always)]
    fn visit_slab(&self, chain: ChainIndex, slab: SlabSlot, replies: &mut Replies) -> bool {
        let Some(first) = self.front(chain) else { return true };
        let request = &self.requests[first.index()];
        let visit = |value: &mut [u8]| self.forward(chain, first, request, value, &mut None, replies);
        self.table.visit_slab_at_hand(slab, request.key, visit)
    }
}
