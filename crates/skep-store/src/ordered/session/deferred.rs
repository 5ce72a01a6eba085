//! The requests of a batch that were deferred because there is no memory for the write or for its reply, and the
//! requests that may not overtake them.
//!
//! 1. Later requests of the batch are executed, since other clients may have sent them, and a delete may free memory.
//! 2. Later requests on a deferred key are deferred too.
//! 3. A scan whose range has such a key would miss a write that came before it, so the batch ends with it.
//! 4. The batch also ends when [`COUNT_MAX`] requests are deferred: each was attempted, and the work of a batch is
//!    bounded.

use skep_core::operation::{Operation, Request};

/// Most requests of a batch that are deferred one by one.
const COUNT_MAX: usize = 32;

/// Indexes of the deferred requests in the batch, at most one for each key.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    indexes: [usize; COUNT_MAX],
    count: usize,
}

impl Deferred {
    /// Notes that the first request of its key was deferred.
    pub(crate) fn push(&mut self, index: usize) {
        self.indexes[self.count] = index;
        self.count += 1;
    }

    /// Returns true if nothing was deferred.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if there is no room for another request.
    pub(crate) fn is_full(&self) -> bool {
        self.count == COUNT_MAX
    }

    /// Returns true if a later request of the batch has the key of one that was deferred.
    pub(crate) fn have_key_of(&self, request: &Request<'_>, requests: &[Request<'_>]) -> bool {
        self.keys(requests).any(|key| match &request.operation {
            Operation::Scan(scan) => scan.range(request.key).may_contain(key),
            _ => key == request.key,
        })
    }

    fn keys<'r>(&self, requests: &[Request<'r>]) -> impl Iterator<Item = &'r [u8]> {
        self.indexes[..self.count].iter().map(|index| requests[*index].key)
    }
}
