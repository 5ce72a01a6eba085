//! What was replaced and waits for an epoch to pass (Honeycomb, section 3.2).
//!
//! ```text
//! session: replaced, in order ──▶ batch, tagged once all of it is readable ──▶ list of all sessions ──▶ free
//! ```
//!
//! A tag is a vector with a number for each thread under way, so it is made for a batch, not for each frame. That
//! keeps garbage a little longer, never too short.

use std::collections::VecDeque;

use super::epoch::{Epochs, Tag};
use super::frame::Replaced;
use super::header::Lid;
use super::space::Space;

/// Pieces that a session collects before it tags them.
pub(super) const BATCH_SIZE: usize = 8;

/// Something that operations under way may still reach.
#[derive(Debug)]
pub(super) enum Garbage {
    /// A frame of a node or a value.
    Frame(Replaced),
    /// The name of a node that is no more.
    Lid(Lid),
}

impl Garbage {
    /// Bytes of its frame.
    fn size(&self) -> u64 {
        match self {
            Garbage::Frame(frame) => (frame.granules() * super::frame::GRANULE_SIZE) as u64,
            Garbage::Lid(_) => 0,
        }
    }
}

/// Tagged garbage of all sessions.
#[derive(Debug, Default)]
pub(super) struct GarbageList {
    batches: VecDeque<(Tag, Vec<Garbage>)>,
    /// Bytes of frames that wait.
    bytes: u64,
}

impl GarbageList {
    /// Adds garbage whose change is readable already.
    pub(super) fn push(&mut self, epochs: &Epochs, pieces: Vec<Garbage>) {
        self.bytes += pieces.iter().map(Garbage::size).sum::<u64>();
        self.batches.push_back((epochs.tag(), pieces));
    }

    /// Gives everything back that nobody can reach any more. Whether there was anything.
    pub(super) fn collect(&mut self, epochs: &Epochs, space: &mut Space) -> bool {
        let mut any = false;
        // In order: a batch that has to wait holds up later ones, which mostly wait for the same operation.
        while self.batches.front().is_some_and(|(tag, _)| epochs.is_past(tag)) {
            for piece in self.batches.pop_front().into_iter().flat_map(|(_, pieces)| pieces) {
                any = true;
                self.bytes -= piece.size();
                match piece {
                    Garbage::Frame(frame) => space.free(frame.reuse()),
                    Garbage::Lid(lid) => space.free_lid(lid),
                }
            }
        }
        any
    }

    /// Whether what has waited longest waits for a hold.
    pub(super) fn waits_for_hold(&self, epochs: &Epochs) -> bool {
        self.batches.front().is_some_and(|(tag, _)| epochs.waits_for_hold(tag))
    }

    /// Whether anything waits.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Bytes of frames that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
