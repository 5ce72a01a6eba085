//! A queue of sends: memory for the bytes in flight, and selective signalling.
//!
//! ```text
//!   sends      done │ in flight: their bytes are in the region, or in the queue itself │ next
//!              └▶ completion of one in SIGNAL_STEP
//! ```
//!
//! Send *n* uses the part *n* modulo [`SENDS_MAX`] of the region. So a part is used again after [`SENDS_MAX`] sends, when
//! the completion of a later one has told that it is done.

use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::slots::{SLOT_SIZE, SLOT_WORDS};
use super::verbs::{Domain, Kind, QueuePair, Region, Target};

/// Sends in flight.
const SENDS_MAX: u64 = 128;
/// One of as many sends raises a completion.
pub(super) const SIGNAL_STEP: u64 = 16;
/// The longest send that is copied into the queue itself, if the device has room for it: small requests.
const INLINE_WANTED: u32 = 192;

const _: () = assert!(SENDS_MAX.is_multiple_of(SIGNAL_STEP) && SIGNAL_STEP < SENDS_MAX);

/// A queue pair that sends, and the memory for its sends.
pub(super) struct SendQueue {
    pair: QueuePair,
    region: Region,
    posted: u64,
    done: u64,
    is_broken: bool,
}

impl SendQueue {
    /// Creates a queue pair that only sends.
    pub(super) fn new(domain: &Arc<Domain>, kind: Kind) -> Result<SendQueue> {
        let create = |inline_wanted| QueuePair::new(domain, kind, [SENDS_MAX as u32, 1], inline_wanted, None);
        // A device that cannot inline as much refuses.
        let pair = create(INLINE_WANTED).or_else(|_| create(0))?;
        let region = Region::new(domain, SENDS_MAX as usize * SLOT_WORDS, false)?;
        Ok(SendQueue { pair, region, posted: 0, done: 0, is_broken: false })
    }

    /// Returns the queue pair.
    pub(super) fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// Returns true if there is room for a send.
    pub(super) fn has_room(&mut self) -> bool {
        if self.posted - self.done > SENDS_MAX / 2 {
            self.take_completions();
        }
        self.posted - self.done < SENDS_MAX
    }

    /// Sends whole words. Returns false if there is no room, or the pair sends nothing any more: then they are lost.
    pub(super) fn send(&mut self, bytes: &[u8], target: Target<'_>) -> bool {
        debug_assert!(bytes.len().is_multiple_of(size_of::<u64>()) && bytes.len() <= SLOT_SIZE);
        if !self.has_room() || self.is_broken {
            return false;
        }
        let part = (self.posted % SENDS_MAX) as usize;
        let words = &self.region.words()[part * SLOT_WORDS..];
        for (word, bytes) in words.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        let is_signalled = (self.posted + 1).is_multiple_of(SIGNAL_STEP);
        let memory = self.region.part(part * SLOT_SIZE, bytes.len());
        let sent = self.pair.send(self.posted, memory, target, is_signalled);
        self.posted += u64::from(sent.is_ok());
        sent.is_ok()
    }

    /// Returns the number of sends so far.
    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    /// Returns the number of sends that are known to be done.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Returns true if the device has refused a send: nothing leaves any more.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.pair.next_sent() {
            self.done = completion.id + 1;
            self.is_broken |= !completion.is_success;
        }
    }
}
