//! One side of a connection: how far it is in both rings. It has no memory and no doorbell of its own; the files of both
//! sides are arguments.
//!
//! The other side may be hostile. Each of its words is loaded once and compared with the counters of this side: the
//! bytes between tail and taken are never more than a ring has. Bytes of the ring are only copied.

use super::ring::{copy_in, copy_out};
use super::sync::{AtomicU64, Ordering};
use super::words::{ENDED, NEXT_WAIT, PeerWords, WAITS_FOR_BYTES, WAITS_FOR_ROOM, begin_wait, publish, wait_of_peer};

const WORD_SIZE: u64 = size_of::<u64>() as u64;

/// The file that this side writes.
#[derive(Clone, Copy)]
pub(crate) struct OwnFile<'f> {
    pub(crate) tail: &'f AtomicU64,
    pub(crate) taken: &'f AtomicU64,
    pub(crate) wait: &'f AtomicU64,
    pub(crate) ring: &'f [AtomicU64],
}

/// The file that the other side writes: the indexes of its words, and its ring.
#[derive(Clone, Copy)]
pub(crate) struct PeerFile<'f> {
    pub(crate) words: PeerWords<'f>,
    pub(crate) tail: usize,
    pub(crate) taken: usize,
    pub(crate) wait: usize,
    pub(crate) ring: PeerWords<'f>,
}

/// A word of the other side that contradicts what this side knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWord {
    /// More bytes are said to wait than the ring has.
    #[error("the tail of the other side's ring is out of range")]
    Tail,
    /// More bytes are said to be taken than were sent, or fewer than before by more than the ring has.
    #[error("the number of bytes that the other side has taken is out of range")]
    Taken,
}

/// The result of a send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that moved.
    pub(crate) size: usize,
    /// The other side waits for it: ring the doorbell.
    pub(crate) must_ring: bool,
}

const NOTHING: Moved = Moved { size: 0, must_ring: false };

/// The state of one side.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Bytes that were sent.
    sent: u64,
    /// Bytes of these that the other side had taken at the last check.
    sent_taken: u64,
    /// Bytes that were received.
    received: u64,
    /// Bytes that the other side had sent at the last check.
    arrived: u64,
    /// The words of the other side when [`Side::take_changes`] last compared them.
    seen_tail: u64,
    seen_taken: u64,
    /// The last send found too little room.
    is_blocked: bool,
    /// The wait word of this side.
    wait: u64,
    /// The wait word of the other side when the doorbell was last rung.
    rung: u64,
}

impl Side {
    /// Sends as many of the bytes as the ring has room for.
    #[inline]
    pub(crate) fn send(&mut self, own: OwnFile<'_>, peer: PeerFile<'_>, bytes: &[u8]) -> Result<Moved, InvalidWord> {
        let capacity = own.ring.len() as u64 * WORD_SIZE;
        let wanted = bytes.len() as u64;
        if capacity - self.sent.wrapping_sub(self.sent_taken) < wanted {
            let taken = peer.words.load(peer.taken);
            self.seen_taken = taken;
            if self.sent.wrapping_sub(taken) > capacity {
                return Err(InvalidWord::Taken);
            }
            self.sent_taken = taken;
        }
        let size = wanted.min(capacity - self.sent.wrapping_sub(self.sent_taken)) as usize;
        self.is_blocked = size < bytes.len();
        if size == 0 {
            return Ok(NOTHING);
        }
        copy_in(own.ring, self.sent, &bytes[..size]);
        self.sent = self.sent.wrapping_add(size as u64);
        publish(own.tail, self.sent);
        Ok(Moved { size, must_ring: self.must_ring(peer, WAITS_FOR_BYTES) })
    }

    /// Receives bytes that have arrived, as many as the buffer takes.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        own: OwnFile<'_>,
        peer: PeerFile<'_>,
        buffer: &mut [u8],
    ) -> Result<Moved, InvalidWord> {
        let wanted = buffer.len() as u64;
        if self.arrived.wrapping_sub(self.received) < wanted {
            let tail = peer.words.load(peer.tail);
            self.seen_tail = tail;
            if tail.wrapping_sub(self.received) > peer.ring.len() as u64 * WORD_SIZE {
                return Err(InvalidWord::Tail);
            }
            self.arrived = tail;
        }
        let size = wanted.min(self.arrived.wrapping_sub(self.received)) as usize;
        if size == 0 {
            return Ok(NOTHING);
        }
        copy_out(peer.ring, self.received, &mut buffer[..size]);
        self.received = self.received.wrapping_add(size as u64);
        publish(own.taken, self.received);
        Ok(Moved { size, must_ring: self.must_ring(peer, WAITS_FOR_ROOM) })
    }

    /// Returns true if the other side waits, and the doorbell was not rung for this wait.
    #[inline]
    fn must_ring(&mut self, peer: PeerFile<'_>, reason: u64) -> bool {
        let wait = wait_of_peer(peer.words, peer.wait);
        let must_ring = wait & reason != 0 && wait != self.rung;
        if must_ring {
            self.rung = wait;
        }
        must_ring
    }

    /// Returns true if the other side has sent bytes that were not received.
    #[inline]
    pub(crate) fn has_bytes(&self, peer: PeerFile<'_>) -> bool {
        peer.words.load(peer.tail) != self.received
    }

    /// Returns true if the other side has taken bytes since a send found too little room.
    #[inline]
    pub(crate) fn has_room(&self, peer: PeerFile<'_>) -> bool {
        peer.words.load(peer.taken) != self.sent_taken
    }

    /// Returns which words of the other side have changed since the last call or the last use: its tail, and if a send
    /// found too little room, the bytes that it has taken.
    #[inline]
    pub(crate) fn take_changes(&mut self, peer: PeerFile<'_>) -> (bool, bool) {
        let tail = peer.words.load(peer.tail);
        let has_bytes = std::mem::replace(&mut self.seen_tail, tail) != tail;
        let has_room = self.is_blocked && {
            let taken = peer.words.load(peer.taken);
            std::mem::replace(&mut self.seen_taken, taken) != taken
        };
        (has_bytes, has_room)
    }

    /// Returns true if [`Side::take_changes`] would return a change.
    #[inline]
    pub(crate) fn has_changes(&self, peer: PeerFile<'_>) -> bool {
        peer.words.load(peer.tail) != self.seen_tail
            || self.is_blocked && peer.words.load(peer.taken) != self.seen_taken
    }

    /// Returns true if the last send found too little room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Sets the wait word. Before the caller sleeps, it checks once more for bytes, and for room if it waits for it.
    pub(crate) fn begin_wait(&mut self, own: OwnFile<'_>, for_room: bool) {
        let reasons = if for_room { WAITS_FOR_BYTES | WAITS_FOR_ROOM } else { WAITS_FOR_BYTES };
        let kept = self.wait & ENDED;
        self.wait = (self.wait & !(NEXT_WAIT - 1)).wrapping_add(NEXT_WAIT) | kept | reasons;
        begin_wait(own.wait, self.wait);
    }

    /// Ends the wait: the other side rings no more.
    pub(crate) fn end_wait(&mut self, own: OwnFile<'_>) {
        if self.wait & (WAITS_FOR_BYTES | WAITS_FOR_ROOM) != 0 {
            self.wait &= !(WAITS_FOR_BYTES | WAITS_FOR_ROOM);
            own.wait.store(self.wait, Ordering::Relaxed);
        }
    }

    /// Returns true if this side waits for doorbells.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait & WAITS_FOR_BYTES != 0
    }

    /// Tells the other side that this one sends no more.
    pub(crate) fn finish(&mut self, own: OwnFile<'_>) {
        self.wait |= ENDED;
        // The bytes that were sent before are seen by the side that sees this.
        publish(own.wait, self.wait);
    }

    /// Returns true if the other side has said that it sends no more. All its bytes can be received afterwards.
    pub(crate) fn has_peer_ended(&self, peer: PeerFile<'_>) -> bool {
        peer.words.load(peer.wait) & ENDED != 0
    }
}
