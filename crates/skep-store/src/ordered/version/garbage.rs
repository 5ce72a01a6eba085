//! Retired frames and LIDs that wait for an epoch to pass (Honeycomb, section 3.2).
//!
//! ```text
//! session: retired, in order ──▶ batch, tagged once all is readable ──▶ list of all sessions ──▶ free, part by part
//! ```
//!
//! A tag has a number for each operation in flight, so it is made for a batch, not for each frame. That keeps garbage a
//! little longer, never too short.
//!
//! The list only decides which garbage may be freed. Freeing needs the lock of the space, so it happens after the list
//! was unlocked (`reclaim`). It happens in parts: a lease that ends may leave hundreds of thousands of frames.

use std::collections::VecDeque;

use super::super::memory::frame_state::RetiredFrame;
use super::super::memory::number::{Lid, UNIT_512_SIZE};
use super::epoch::{Epochs, PinName, Tag};

/// Pieces that a session collects before it tags them.
pub(crate) const BATCH_SIZE: usize = 8;

/// Memory that operations in flight may still reach.
#[derive(Debug)]
pub(crate) enum Garbage {
    /// A frame of a node or a value.
    Frame(RetiredFrame),
    /// The LID of a node or a part that no longer exists.
    Lid(Lid),
}

impl Garbage {
    /// Returns the bytes of its frame.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Garbage::Frame(frame) => (frame.units() * UNIT_512_SIZE) as u64,
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

    /// Removes up to `count_max` pieces, the oldest first, that no operation can reach any more.
    pub(crate) fn take_past(&mut self, epochs: &Epochs, count_max: usize) -> Vec<Garbage> {
        let mut taken: Vec<Garbage> = Vec::new();
        // A batch that has to wait delays later ones. Most of them wait for the same operation.
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
                // Usually there is one batch, which needs no other memory.
                true => taken = std::mem::take(pieces),
                false => taken.append(pieces),
            }
            self.batches.pop_front();
        }
        taken
    }

    /// Returns the pins that the oldest garbage waits for, if it waits only for pins.
    pub(crate) fn pins_of_oldest(&self, epochs: &Epochs) -> Vec<PinName> {
        self.batches.front().map_or_else(Vec::new, |(tag, _)| epochs.pins_of(tag))
    }
}
