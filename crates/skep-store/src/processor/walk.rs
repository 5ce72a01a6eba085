//! Walks over all keys of a processor: see `hash/walk.rs`.

use skep_core::operation::Expiry;

use super::{Processor, drive};
use crate::hash::{WalkLimit, WalkStep};
use crate::memory::Memory;

impl<M: Memory> Processor<M> {
    /// Makes a step of a walk over all keys: calls `each` with the keys from a [position](crate::hash::KeyPositions) on, in the order of the
    /// home buckets, up to the limit. A key that exists during all steps of a walk is returned by one of them, however the
    /// operations between the steps change the store. Keys that have expired are left out.
    pub fn walk(&mut self, from: u64, limit: WalkLimit, each: impl FnMut(&[u8])) -> WalkStep {
        drive(self.table.walk(&mut self.walked, from, limit, each))
    }

    /// Makes a step of a walk over all pairs, of at most 64 home buckets from a [position](crate::hash::KeyPositions) on: calls `each` with their
    /// keys, values and expiries. Returns the position with which the next step begins; `None` after the last one. Keys that
    /// have expired and are not removed yet are among them.
    pub fn walk_pairs(&mut self, from: u64, each: impl FnMut(&[u8], &[u8], Option<Expiry>)) -> Option<u64> {
        drive(self.table.walk_pairs(&mut self.walked, from, each))
    }
}
