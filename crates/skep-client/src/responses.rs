//! The replies to one batch, in the order of its requests. The shards may reply in any order.

use skep_core::operation::{OperationError, Reply};
use skep_wire::native::{Response, WireError};

/// The replies to a batch. Its buffers are reused for the next batch, so a steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Responses {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// One reply. A value is a range of `bytes`.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// The reply has not arrived. No user sees this entry.
    Missing,
    Done,
    Value {
        start: usize,
        size: usize,
    },
    NotFound,
    Exists,
    Failed(OperationError),
    Rejected(WireError),
}

impl Responses {
    /// Returns a buffer without replies.
    pub fn new() -> Self {
        Responses::default()
    }

    /// Returns the number of replies.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no replies.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the reply to the request at this index of the batch.
    pub fn get(&self, index: usize) -> Response<'_> {
        Ok(match self.entries[index] {
            Entry::Missing => unreachable!("a batch ends with its last reply"),
            Entry::Done => Reply::Done,
            Entry::Value { start, size } => Reply::Value(&self.bytes[start..][..size]),
            Entry::NotFound => Reply::NotFound,
            Entry::Exists => Reply::Exists,
            Entry::Failed(error) => Reply::Failed(error),
            Entry::Rejected(error) => return Err(error),
        })
    }

    /// Returns the replies in the order of the requests.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Response<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Removes all replies.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Allocates the replies to `count` requests. They are missing.
    pub(crate) fn reset(&mut self, count: usize) {
        self.clear();
        self.entries.resize(count, Entry::Missing);
    }

    /// Returns true if this reply has not arrived.
    pub(crate) fn is_missing(&self, index: usize) -> bool {
        matches!(self.entries[index], Entry::Missing)
    }

    /// Returns true if this reply has arrived, and the operation may have changed something.
    pub(crate) fn is_done(&self, index: usize) -> bool {
        matches!(self.entries[index], Entry::Done | Entry::Value { .. })
    }

    /// Sets a reply. Copies a value.
    pub(crate) fn set(&mut self, index: usize, response: Response<'_>) {
        self.entries[index] = match response {
            Ok(Reply::Done) => Entry::Done,
            Ok(Reply::Value(value)) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(value);
                Entry::Value { start, size: value.len() }
            }
            Ok(Reply::NotFound) => Entry::NotFound,
            Ok(Reply::Exists) => Entry::Exists,
            Ok(Reply::Failed(error)) => Entry::Failed(error),
            Ok(Reply::Deferred) => Entry::Rejected(WireError::Busy),
            Err(error) => Entry::Rejected(error),
        };
    }
}
