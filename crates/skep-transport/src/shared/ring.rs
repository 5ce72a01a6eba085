//! Copies bytes into a ring and out of it.
//!
//! All accesses are to whole words, so that both sides access the same bytes with the same size. The first or last word
//! of a copy may contain bytes outside the copy; these keep their values.

use super::sync::{AtomicU64, Ordering};
use super::words::PeerWords;

const WORD_SIZE: usize = size_of::<u64>();

/// Divides a copy at a position of a stream: the index of its first word in a ring of this many words, and the number of
/// bytes of that word that are before the copy.
#[inline]
fn locate(position: u64, ring_words: usize) -> (usize, usize) {
    let words = position / WORD_SIZE as u64;
    // The remainder is less than the number of words, which is a `usize`.
    ((words % ring_words as u64) as usize, (position % WORD_SIZE as u64) as usize)
}

/// Writes bytes at a position of the stream. Only this side writes the ring.
#[inline]
pub(crate) fn copy_in(ring: &[AtomicU64], position: u64, bytes: &[u8]) {
    let (mut index, offset) = locate(position, ring.len());
    let mut rest = bytes;
    if offset > 0 {
        let (first, after) = bytes.split_at(bytes.len().min(WORD_SIZE - offset));
        merge(&ring[index], offset, first);
        (index, rest) = ((index + 1) % ring.len(), after);
    }
    let (words, last) = rest.as_chunks::<WORD_SIZE>();
    let (until_end, from_start) = words.split_at(words.len().min(ring.len() - index));
    for (to, from) in ring[index..].iter().zip(until_end).chain(ring.iter().zip(from_start)) {
        to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
    }
    if !last.is_empty() {
        merge(&ring[(index + words.len()) % ring.len()], 0, last);
    }
}

/// Replaces some bytes of a word. The others may be bytes that the other side has not taken.
fn merge(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    let mut merged = word.load(Ordering::Relaxed).to_le_bytes();
    merged[offset..offset + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_le_bytes(merged), Ordering::Relaxed);
}

/// Reads bytes at a position of the stream. Each word is loaded once.
#[inline]
pub(crate) fn copy_out(ring: PeerWords<'_>, position: u64, buffer: &mut [u8]) {
    let (mut index, offset) = locate(position, ring.len());
    let mut rest = buffer;
    if offset > 0 {
        let size = rest.len().min(WORD_SIZE - offset);
        let (first, after) = rest.split_at_mut(size);
        first.copy_from_slice(&ring.load_relaxed(index).to_le_bytes()[offset..offset + size]);
        (index, rest) = ((index + 1) % ring.len(), after);
    }
    let (words, last) = rest.as_chunks_mut::<WORD_SIZE>();
    let count = words.len();
    let (until_end, from_start) = words.split_at_mut(count.min(ring.len() - index));
    for (to, from) in until_end.iter_mut().zip(ring.from(index).iter()) {
        *to = from.to_le_bytes();
    }
    for (to, from) in from_start.iter_mut().zip(ring.iter()) {
        *to = from.to_le_bytes();
    }
    if !last.is_empty() {
        let word = ring.load_relaxed((index + count) % ring.len()).to_le_bytes();
        last.copy_from_slice(&word[..last.len()]);
    }
}
