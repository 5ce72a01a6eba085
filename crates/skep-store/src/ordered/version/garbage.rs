//! Replaced frames and LIDs that wait for an epoch to pass (Honeycomb, section 3.2).
//!
//! ```text
//! session: replaced, in order ──▶ batch, tagged once all of it is readable ──▶ list of all sessions ──▶ free, part by part
//! ```
//!
//! A tag is a vector with a number for each thread under way, so it is made for a batch, not for each frame. That
//! keeps garbage a little longer, never too short.
//!
//! The list only says which garbage may be freed. Freeing it needs the space, and so happens after the list was unlocked
//! (`reclaim`), in parts: a lease that ends may leave hundreds of thousands of frames.

use std::collections::VecDeque;

use super::super::memory::frame_state::Replaced;
use super::super::memory::number::{GRANULE_SIZE, Lid};
use super::epoch::{Epochs, HoldName, Tag};

/// Pieces that a session collects before it tags them.
pub(crate) const BATCH_SIZE: usize = 8;

/// Something that operations under way may still reach.
#[derive(Debug)]
pub(crate) enum Garbage {
    /// A frame of a node or a value.
    Frame(Replaced),
    /// The name of a node that is no more.
    Lid(Lid),
}

impl Garbage {
    /// Bytes of its frame.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Garbage::Frame(frame) => (frame.granules() * GRANULE_SIZE) as u64,
            Garbage::Lid(_) => 0,
        }
    }
}

/// Tagged garbage of all sessions, in the order in which it was handed over.
#[derive(Debug, Default)]
pub(crate) struct GarbageList {
    batches: VecDeque<(Tag, Vec<Garbage>)>,
}

impl GarbageList {
    /// Adds garbage with a tag that was made after its change was readable.
    pub(crate) fn push(&mut self, tag: Tag, pieces: Vec<Garbage>) {
        self.batches.push_back((tag, pieces));
    }

    /// Takes at most `count_max` pieces that no operation can reach any more, the oldest first.
    pub(crate) fn take_past(&mut self, epochs: &Epochs, count_max: usize) -> Vec<Garbage> {
        let mut taken: Vec<Garbage> = Vec::new();
        // In order: a batch that has to wait holds up later ones, which mostly wait for the same operation.
        while let Some((tag, pieces)) = self.batches.front_mut()
            && taken.len() < count_max
            && epochs.is_past(tag)
        {
            let room = count_max - taken.len();
            if pieces.len() > room {
                taken.extend(pieces.drain(pieces.len() - room..));
                break;
            }
            match taken.is_empty() {
                // As a rule there is one batch, which needs no other memory.
                true => taken = std::mem::take(pieces),
                false => taken.append(pieces),
            }
            self.batches.pop_front();
        }
        taken
    }

    /// Returns the holds that the oldest garbage waits for, if it waits for holds alone.
    pub(crate) fn holds_of_oldest(&self, epochs: &Epochs) -> Vec<HoldName> {
        self.batches.front().map_or_else(Vec::new, |(tag, _)| epochs.holds_of(tag))
    }
}
