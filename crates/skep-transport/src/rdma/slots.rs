//! The slots of a client: the layout, and the server's view of them.
//!
//! ```text
//! slot     0                1016 - size, rounded down    1016      1024
//!          | not written    | packet, padded to words    | trailer |
//!
//! trailer  0      2      4          8
//!          | size | zero | checksum |
//! ```
//!
//! - A packet is one WRITE, whose last word is the trailer. It is never zero, because no packet is empty. The card makes
//!   it visible last.
//! - The server copies the packet, sets the trailer to zero, and then compares the checksum. A client may write at any
//!   time: a late copy of an earlier WRITE may also arrive in between. A packet that was changed meanwhile has another
//!   checksum, and counts as lost.
//! - Packets are in the order of the slots, except those that were lost. The server polls the next slot and the one after
//!   it, so that the loss of one packet does not stop it. It looks into all of them before it waits for an event, and
//!   after one.

use std::sync::atomic::{AtomicU64, Ordering};

use crc_fast::{CrcAlgorithm, checksum};

use crate::datagram::{DATA_HEADER_SIZE, Dropped, WINDOW_MAX};

const WORD_SIZE: usize = size_of::<u64>();
/// Bytes of a slot: the least MTU of a device that is useful, so that a WRITE is one packet on the network.
pub(super) const SLOT_SIZE: usize = 1024;
pub(super) const SLOT_WORDS: usize = SLOT_SIZE / WORD_SIZE;
/// Slots of a client: as many as a session has packets in flight.
pub(super) const SLOT_COUNT: usize = WINDOW_MAX;
/// Bytes of the slots of a client.
pub const SLOTS_SIZE: usize = SLOT_COUNT * SLOT_SIZE;
/// The most bytes of a packet over RDMA.
pub const PACKET_SIZE_MAX: usize = SLOT_SIZE - WORD_SIZE;
/// The most bytes of the payload of such a packet.
pub const PAYLOAD_SIZE_MAX: usize = PACKET_SIZE_MAX - DATA_HEADER_SIZE;
/// Slots that are polled.
const POLLED: usize = 2;

const _: () = assert!(PACKET_SIZE_MAX.is_multiple_of(WORD_SIZE) && PACKET_SIZE_MAX < 1 << 16);

fn trailer_of(packet: &[u8]) -> u64 {
    packet.len() as u64 | checksum(CrcAlgorithm::Crc32Iscsi, packet) << u32::BITS
}

/// Completes a packet to the bytes of its WRITE, which end with its slot.
pub(super) fn seal(packet: &mut Vec<u8>) {
    debug_assert!((1..=PACKET_SIZE_MAX).contains(&packet.len()));
    let trailer = trailer_of(packet);
    packet.resize(packet.len().next_multiple_of(WORD_SIZE), 0);
    packet.extend_from_slice(&trailer.to_le_bytes());
}

/// The server's view of the slots of a client.
#[derive(Debug, Default)]
pub(super) struct Slots {
    next: usize,
}

impl Slots {
    /// Returns true if there may be a packet in one of the polled slots.
    pub(super) fn has_packet(&self, words: &[AtomicU64]) -> bool {
        self.find(words, POLLED).is_some()
    }

    /// Moves a packet to the buffer: the first of the polled slots, or of all. Returns `None` if there is none, and the
    /// reason if it is malformed.
    pub(super) fn take(&mut self, words: &[AtomicU64], all: bool, packet: &mut Vec<u8>) -> Option<Result<(), Dropped>> {
        let (slot, trailer) = self.find(words, if all { SLOT_COUNT } else { POLLED })?;
        self.next = (slot + 1) % SLOT_COUNT;
        let words = &words[slot * SLOT_WORDS..(slot + 1) * SLOT_WORDS];
        packet.clear();
        let size = usize::from(trailer as u16);
        let is_possible = (1..=PACKET_SIZE_MAX).contains(&size);
        if is_possible {
            let packet_words = size.div_ceil(WORD_SIZE);
            for word in &words[SLOT_WORDS - 1 - packet_words..SLOT_WORDS - 1] {
                packet.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            packet.truncate(size);
        }
        words[SLOT_WORDS - 1].store(0, Ordering::Relaxed);
        Some(if !is_possible {
            Err(Dropped::Size)
        } else if trailer == trailer_of(packet) {
            Ok(())
        } else {
            Err(Dropped::Checksum)
        })
    }

    /// Returns the first slot of the next `count` that has a trailer, and the trailer.
    fn find(&self, words: &[AtomicU64], count: usize) -> Option<(usize, u64)> {
        (self.next..self.next + count).find_map(|slot| {
            let slot = slot % SLOT_COUNT;
            // The packet is read after its trailer.
            let trailer = words[(slot + 1) * SLOT_WORDS - 1].load(Ordering::Acquire);
            (trailer != 0).then_some((slot, u64::from_le(trailer)))
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn memory() -> Vec<AtomicU64> {
        (0..SLOT_COUNT * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    /// Does what the network card does with the WRITE of a packet.
    fn write(words: &[AtomicU64], slot: usize, packet: &[u8]) {
        let mut sealed = packet.to_vec();
        seal(&mut sealed);
        assert!(sealed.len() <= SLOT_SIZE);
        let start = (slot + 1) * SLOT_WORDS - sealed.len() / WORD_SIZE;
        for (word, bytes) in words[start..].iter().zip(sealed.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    fn take(slots: &mut Slots, words: &[AtomicU64], all: bool) -> Option<Result<Vec<u8>, Dropped>> {
        let mut packet = Vec::new();
        slots.take(words, all, &mut packet).map(|taken| taken.map(|()| packet))
    }

    #[test]
    fn packets_of_all_sizes_are_taken_once() {
        let (words, mut slots) = (memory(), Slots::default());
        for size in 1..=PACKET_SIZE_MAX {
            let packet: Vec<u8> = (0..size).map(|byte| (byte * 7 + size) as u8).collect();
            write(&words, (size - 1) % SLOT_COUNT, &packet);
            assert!(slots.has_packet(&words));
            assert_eq!(take(&mut slots, &words, false), Some(Ok(packet)));
            assert_eq!(take(&mut slots, &words, true), None);
        }
    }

    #[test]
    fn lost_packets_are_skipped() {
        let (words, mut slots) = (memory(), Slots::default());
        write(&words, 1, b"after one loss");
        write(&words, 4, b"after two more");
        assert_eq!(take(&mut slots, &words, false), Some(Ok(b"after one loss".to_vec())));
        assert!(!slots.has_packet(&words));
        assert_eq!(take(&mut slots, &words, true), Some(Ok(b"after two more".to_vec())));
        write(&words, 0, b"late");
        assert_eq!(take(&mut slots, &words, true), Some(Ok(b"late".to_vec())));
    }

    #[test]
    fn a_packet_that_changed_while_it_was_read_is_dropped() {
        let (words, mut slots) = (memory(), Slots::default());
        write(&words, 0, &[1; 500]);
        words[SLOT_WORDS - 3].store(7, Ordering::Relaxed);
        assert_eq!(take(&mut slots, &words, false), Some(Err(Dropped::Checksum)));
        assert_eq!(take(&mut slots, &words, true), None);
    }

    #[test]
    fn slots_with_random_words_are_dropped() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (words, mut slots) = (memory(), Slots::default());
        for round in 0..100 {
            words.iter().for_each(|word| word.store(random.next_u64(), Ordering::Relaxed));
            for slot in 0..SLOT_COUNT {
                let size = random.random_range(1..=2 * PACKET_SIZE_MAX) as u64;
                let trailer = random.next_u64() << 32 | if round % 2 == 0 { size } else { random.next_u64() >> 32 };
                words[(slot + 1) * SLOT_WORDS - 1].store(trailer, Ordering::Relaxed);
            }
            let taken: Vec<_> = std::iter::from_fn(|| take(&mut slots, &words, true)).collect();
            assert!(taken.len() == SLOT_COUNT && taken.iter().all(Result::is_err), "{taken:?}");
        }
    }
}
