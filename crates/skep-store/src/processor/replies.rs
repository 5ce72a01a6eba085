//! The answers to one batch, in the order of its requests, whatever order they were finished in.

use super::interleaver::IN_FLIGHT_MAX;
use crate::hash::PAIR_SIZE_MAX;
use crate::operation::{OperationError, Reply, VALUE_SIZE_MAX};

/// Largest reply budget: with what may go beyond it, all places are 32-bit numbers.
const BUDGET_MAX: usize = 2 << 30;

const _: () = assert!(BUDGET_MAX + VALUE_SIZE_MAX + IN_FLIGHT_MAX * PAIR_SIZE_MAX <= u32::MAX as usize);

/// The answers to a batch. Its buffers are kept from batch to batch, so a steady state allocates nothing.
#[derive(Debug)]
pub struct Replies {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    budget: usize,
    /// Bytes of large values that were read or written, whether they are answered or not.
    large_bytes: usize,
}

/// Bytes of large values that a batch may read or write for each byte of its budget: a fold of a megabyte answers eight
/// bytes and takes a tenth of a millisecond, and a batch of them must not keep everybody else waiting.
const LARGE_BYTES_PER_BUDGET: usize = 8;

/// One answer in eight bytes; a value is a range of `bytes`.
///
/// ```text
/// bits 0–2   what it is
///      3–7   code of the error
///      8–31  size of the value
///      32–63 where it starts
/// ```
#[derive(Clone, Copy, Debug)]
struct Entry(u64);

const SIZE_SHIFT: u32 = 8;
const SIZE_BITS: u32 = 24;
const START_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
const ERROR_SHIFT: u32 = 3;
const KIND_MASK: u64 = (1 << ERROR_SHIFT) - 1;

const _: () = assert!(VALUE_SIZE_MAX < 1 << SIZE_BITS);
const _: () = assert!(OperationError::ALL.len() < 1 << (SIZE_SHIFT - ERROR_SHIFT));

impl Entry {
    const DEFERRED: Entry = Entry(0);
    const DONE: Entry = Entry(1);
    const NOT_FOUND: Entry = Entry(2);
    const EXISTS: Entry = Entry(3);
    const VALUE: u64 = 4;
    const FAILED: u64 = 5;

    fn value(start: usize, size: usize) -> Self {
        debug_assert!(start <= u32::MAX as usize, "the budget and what may go beyond it");
        Entry((start as u64) << START_SHIFT | (size as u64) << SIZE_SHIFT | Self::VALUE)
    }

    fn failed(error: OperationError) -> Self {
        Entry(u64::from(error.code()) << ERROR_SHIFT | Self::FAILED)
    }
}

impl Replies {
    /// Answers that may take about `budget` bytes, of which more than 2 GiB count as 2 GiB. Once they have taken as many,
    /// requests for large values are answered [`Reply::Deferred`], and so are all from the next 256 of the batch on:
    /// answers go beyond the budget by at most one large value and 256 small ones. One value always fits.
    pub fn with_budget(budget: usize) -> Self {
        Replies { entries: Vec::new(), bytes: Vec::new(), budget: budget.min(BUDGET_MAX), large_bytes: 0 }
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no answers.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The answer to the request at this place of the batch.
    pub fn get(&self, index: usize) -> Reply<'_> {
        let entry = self.entries[index];
        match entry.0 & KIND_MASK {
            Entry::VALUE => {
                let size = (entry.0 >> SIZE_SHIFT) & ((1 << SIZE_BITS) - 1);
                Reply::Value(&self.bytes[(entry.0 >> START_SHIFT) as usize..][..size as usize])
            }
            Entry::FAILED => {
                let code = (entry.0 >> ERROR_SHIFT) as u8;
                Reply::Failed(OperationError::from_code(code).expect("the code of an error"))
            }
            kind if kind == Entry::DONE.0 => Reply::Done,
            kind if kind == Entry::NOT_FOUND.0 => Reply::NotFound,
            kind if kind == Entry::EXISTS.0 => Reply::Exists,
            _ => Reply::Deferred,
        }
    }

    /// The answers in the order of the requests.
    pub fn iter(&self) -> impl Iterator<Item = Reply<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Whether a large value may still be added. The first one always may, or a small budget would defer for ever.
    pub(crate) fn within_budget(&self) -> bool {
        self.bytes.is_empty() || self.bytes.len() < self.budget
    }

    /// Whether another large value may still be read or written, and added to the answers if `is_answered`. The first one
    /// always may.
    pub(crate) fn may_touch_large(&self, is_answered: bool) -> bool {
        let may_work = self.large_bytes == 0 || self.large_bytes / LARGE_BYTES_PER_BUDGET < self.budget;
        may_work && (!is_answered || self.within_budget())
    }

    /// Takes note of a large value that was read or written.
    pub(crate) fn touch_large(&mut self, value_size: usize) {
        self.large_bytes += value_size;
    }

    /// Makes room for the answers to a batch of `count` requests, all of them [`Reply::Deferred`] until set.
    pub(crate) fn reset(&mut self, count: usize) {
        self.entries.clear();
        self.entries.resize(count, Entry::DEFERRED);
        self.bytes.clear();
        self.large_bytes = 0;
        // A batch of large values must not pin its memory for ever.
        if self.bytes.capacity() > self.budget.max(1 << 20).saturating_mul(4) {
            self.bytes.shrink_to(self.budget);
        }
    }

    /// Sets an answer. A value is copied.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, reply: Reply<'_>) {
        self.entries[index] = match reply {
            Reply::Value(value) => return self.set_value(index, value),
            Reply::Done => Entry::DONE,
            Reply::NotFound => Entry::NOT_FOUND,
            Reply::Exists => Entry::EXISTS,
            Reply::Failed(error) => Entry::failed(error),
            Reply::Deferred => Entry::DEFERRED,
        };
    }

    /// Answers a value, which is copied.
    #[inline]
    pub(crate) fn set_value(&mut self, index: usize, value: &[u8]) {
        let start = self.bytes.len();
        self.append(value);
        self.entries[index] = Entry::value(start, value.len());
    }

    /// Appends bytes. Up to eight go as one word: a call to copy two bytes costs more than the rest of the answer.
    #[inline]
    fn append(&mut self, value: &[u8]) {
        let size = value.len();
        let word = match size {
            0..2 => value.first().map_or(0, |byte| u64::from(*byte)),
            2..4 => two_halves(size, u16::from_le_bytes(head(value)).into(), u16::from_le_bytes(tail(value)).into(), 2),
            4..8 => two_halves(size, u32::from_le_bytes(head(value)).into(), u32::from_le_bytes(tail(value)).into(), 4),
            8 => u64::from_le_bytes(head(value)),
            _ => return self.bytes.extend_from_slice(value),
        };
        let end = self.bytes.len() + size;
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self.bytes.truncate(end);
    }

    /// The bytes of the answers so far; what is appended here becomes a value by [`Replies::finish_value`].
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes the bytes from `start` on the value that answers the request.
    pub(crate) fn finish_value(&mut self, index: usize, start: usize) {
        self.entries[index] = Entry::value(start, self.bytes.len() - start);
    }
}

/// A number of `size` bytes from its first and its last `width` bytes, which may overlap.
#[inline]
fn two_halves(size: usize, first: u64, last: u64, width: usize) -> u64 {
    first | last << (8 * (size - width))
}

#[inline]
fn head<const N: usize>(value: &[u8]) -> [u8; N] {
    *value.first_chunk().expect("the value is long enough")
}

#[inline]
fn tail<const N: usize>(value: &[u8]) -> [u8; N] {
    *value.last_chunk().expect("the value is long enough")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_comes_back() {
        let mut replies = Replies::with_budget(1 << 20);
        let values: Vec<Vec<u8>> = (0..40).map(|size| (1..=size).collect()).collect();
        let mut expected: Vec<Reply<'_>> = values.iter().map(|value| Reply::Value(value)).collect();
        expected.extend([Reply::Done, Reply::NotFound, Reply::Exists, Reply::Deferred]);
        expected.extend(OperationError::ALL.map(Reply::Failed));
        replies.reset(expected.len());
        assert!(replies.iter().all(|reply| reply == Reply::Deferred));
        for (index, reply) in expected.iter().enumerate().rev() {
            replies.set(index, *reply);
        }
        assert_eq!(replies.iter().collect::<Vec<_>>(), expected);
    }
}
