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
}

/// One answer; a value is a range of `bytes`.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Done,
    Value { start: u32, size: u32 },
    NotFound,
    Exists,
    Failed(OperationError),
    Deferred,
}

impl Replies {
    /// Answers that may take about `budget` bytes, of which more than 2 GiB count as 2 GiB. Once they have taken as many,
    /// requests for large values are answered [`Reply::Deferred`], and so are all from the next 256 of the batch on:
    /// answers go beyond the budget by at most one large value and 256 small ones. One value always fits.
    pub fn with_budget(budget: usize) -> Self {
        Replies { entries: Vec::new(), bytes: Vec::new(), budget: budget.min(BUDGET_MAX) }
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
        match self.entries[index] {
            Entry::Done => Reply::Done,
            Entry::Value { start, size } => Reply::Value(&self.bytes[start as usize..][..size as usize]),
            Entry::NotFound => Reply::NotFound,
            Entry::Exists => Reply::Exists,
            Entry::Failed(error) => Reply::Failed(error),
            Entry::Deferred => Reply::Deferred,
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

    /// Makes room for the answers to a batch of `count` requests, all of them [`Reply::Deferred`] until set.
    pub(crate) fn reset(&mut self, count: usize) {
        self.entries.clear();
        self.entries.resize(count, Entry::Deferred);
        self.bytes.clear();
        // A batch of large values must not pin its memory for ever.
        if self.bytes.capacity() > self.budget.max(1 << 20).saturating_mul(4) {
            self.bytes.shrink_to(self.budget);
        }
    }

    /// Sets an answer. A value is copied.
    pub(crate) fn set(&mut self, index: usize, reply: Reply<'_>) {
        self.entries[index] = match reply {
            Reply::Done => Entry::Done,
            Reply::Value(value) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(value);
                return self.finish_value(index, start);
            }
            Reply::NotFound => Entry::NotFound,
            Reply::Exists => Entry::Exists,
            Reply::Failed(error) => Entry::Failed(error),
            Reply::Deferred => Entry::Deferred,
        };
    }

    /// The bytes of the answers so far; what is appended here becomes a value by [`Replies::finish_value`].
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes the bytes from `start` on the value that answers the request.
    pub(crate) fn finish_value(&mut self, index: usize, start: usize) {
        let size = self.bytes.len() - start;
        let narrow = |n: usize| u32::try_from(n).expect("the answers to one batch take less than 4 GiB");
        self.entries[index] = Entry::Value { start: narrow(start), size: narrow(size) };
    }
}
