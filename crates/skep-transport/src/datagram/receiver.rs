//! The stream that arrives in a session: puts packets into their order, and drops those that arrived before.
//!
//! ```text
//!   packets    … read │ in order, not read │ next │ early: held or missing │ beyond the window
//!                     └▶ read              └▶ receive                      └▶ window
//! ```
//!
//! Each arrow is under the boundary that the method moves.
//!
//! Invariants: a packet is appended to the bytes in order exactly once, when it is the next one. Bytes in order and early
//! packets together are at most [`WINDOW_MAX`] packets of the largest size, because a packet at or beyond `next + window`
//! is dropped. The end of the window never moves back: a packet takes at most the room of one packet.

use std::collections::{BTreeMap, VecDeque};

use super::packet::{Data, Dropped, PAYLOAD_SIZE_MAX, WINDOW_MAX};
use super::{SPARE_SIZE_MAX, shrink};

/// Bytes that were received and not read, at most.
const RECEIVED_SIZE_MAX: usize = WINDOW_MAX * PAYLOAD_SIZE_MAX;

/// A packet that was received, and what the other side is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// It was the next one, and no later one is missing.
    Next,
    /// A packet before it is missing, or it was one of several that were.
    OutOfOrder,
}

/// The receiving half of a session.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The first packet that is missing.
    next: u64,
    /// Bit *i* is set if the packet `next + 1 + i` is held.
    bitmap: u64,
    /// The packets of the bitmap. Only reordering and loss make any.
    early: BTreeMap<u64, Early>,
    early_size: usize,
    /// The bytes before the missing packet that were not read.
    bytes: VecDeque<u8>,
    /// The stream ends after these bytes.
    has_end: bool,
    /// The control of the simulation: takes packets twice.
    #[cfg(test)]
    pub(super) takes_twice: bool,
}

#[derive(Debug)]
struct Early {
    payload: Box<[u8]>,
    is_end: bool,
}

impl Receiver {
    /// Takes a numbered packet. Without room for more than one, memory is short: only a packet that can be read at once
    /// is taken.
    pub(super) fn receive(&mut self, number: u64, data: &Data<'_>, has_memory: bool) -> Result<Receipt, Dropped> {
        if self.has(number) {
            return Err(Dropped::Duplicate);
        }
        if self.has_end || number >= self.next + u64::from(self.window()) {
            return Err(Dropped::Window);
        }
        if !has_memory && (number > self.next || !self.bytes.is_empty()) {
            return Err(Dropped::Memory);
        }
        if number > self.next {
            self.bitmap |= 1 << (number - self.next - 1);
            self.early_size += data.payload.len();
            self.early.insert(number, Early { payload: data.payload.into(), is_end: data.is_end });
            return Ok(Receipt::OutOfOrder);
        }
        let is_alone = self.early.is_empty();
        self.append(data.payload, data.is_end);
        while !self.has_end
            && let Some(early) = self.early.remove(&self.next)
        {
            self.early_size -= early.payload.len();
            self.append(&early.payload, early.is_end);
        }
        if self.has_end {
            // Only a peer that breaks the rules has sent more.
            (self.early, self.early_size, self.bitmap) = (BTreeMap::new(), 0, 0);
        }
        Ok(if is_alone { Receipt::Next } else { Receipt::OutOfOrder })
    }

    /// Returns true if this packet arrived before.
    fn has(&self, number: u64) -> bool {
        #[cfg(test)]
        if self.takes_twice {
            return false;
        }
        number < self.next || self.early.contains_key(&number)
    }

    fn append(&mut self, payload: &[u8], is_end: bool) {
        self.bytes.extend(payload);
        self.has_end = is_end;
        self.next += 1;
        self.bitmap >>= 1;
    }

    /// Returns the first packet that is missing.
    pub(super) fn acknowledgement(&self) -> u64 {
        self.next
    }

    /// Returns the packets after the missing one that are held.
    pub(super) fn bitmap(&self) -> u64 {
        self.bitmap
    }

    /// Returns the number of packets from the missing one on that are taken.
    pub(super) fn window(&self) -> u16 {
        (RECEIVED_SIZE_MAX.saturating_sub(self.bytes.len()) / PAYLOAD_SIZE_MAX) as u16
    }

    /// Returns the number of bytes that can be read.
    pub(super) fn readable(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if all bytes were read and no more arrive.
    pub(super) fn has_ended(&self) -> bool {
        self.has_end && self.bytes.is_empty()
    }

    /// Returns true if the other side has ended its stream.
    pub(super) fn has_end(&self) -> bool {
        self.has_end
    }

    /// Moves bytes to the buffer. Returns their number.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let (first, second) = self.bytes.as_slices();
        let from_first = first.len().min(buffer.len());
        let from_second = second.len().min(buffer.len() - from_first);
        buffer[..from_first].copy_from_slice(&first[..from_first]);
        buffer[from_first..from_first + from_second].copy_from_slice(&second[..from_second]);
        self.bytes.drain(..from_first + from_second);
        shrink(&mut self.bytes, SPARE_SIZE_MAX);
        from_first + from_second
    }

    /// Returns the bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.early_size + self.early.len() * size_of::<(u64, Early)>()
    }
}
