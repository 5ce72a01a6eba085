//! The requests of a batch that were deferred because there is no memory for the write or for its reply, and the
//! requests that may not overtake them.
//!
//! 1. Later requests of the batch are executed, since other clients may have sent them, and a delete may free memory.
//! 2. Later requests on a deferred key are deferred too.
//! 3. A scan whose range has such a key would miss a write that came before it, so the batch ends with it.
//! 4. The batch also ends when [`COUNT_MAX`] requests are deferred: each was attempted, and the work of a batch is
//!    bounded.

use skep_core::operation::{Operation, Request, Scan, ScanEnd, ScanStart};

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
            Operation::Scan(scan) => may_show(request.key, scan, key),
            _ => key == request.key,
        })
    }

    fn keys<'r>(&self, requests: &[Request<'r>]) -> impl Iterator<Item = &'r [u8]> {
        self.indexes[..self.count].iter().map(|index| requests[*index].key)
    }
}

/// Returns false if a scan from a key cannot show the pair of another key.
fn may_show(from: &[u8], scan: &Scan<'_>, key: &[u8]) -> bool {
    let (start, from) = scan.start_at(from);
    let is_before = match start {
        // The floor may be any key below.
        ScanStart::Floor => false,
        ScanStart::AtOrAbove => key < from,
        ScanStart::Above => key <= from,
    };
    let is_behind = match scan.end {
        ScanEnd::Last => false,
        ScanEnd::AtOrBelow(end) => key > end,
        ScanEnd::Below(end) => key >= end,
        ScanEnd::Prefix(prefix) => !key.starts_with(prefix),
    };
    !(is_before || is_behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_core::operation::{ScanAnswer, ScanLease};

    #[test]
    fn scans_show_the_keys_of_their_range() {
        let shows = |from: &[u8], start, end, key: &[u8]| {
            let scan = Scan { start, end, reverse: false, limit: 9, answer: ScanAnswer::Keys, lease: ScanLease::None };
            may_show(from, &scan, key)
        };
        use ScanStart::{Above, AtOrAbove, Floor};
        assert!(shows(b"b", AtOrAbove, ScanEnd::Last, b"b") && shows(b"", AtOrAbove, ScanEnd::Last, b"a"));
        assert!(!shows(b"b", Above, ScanEnd::Last, b"b") && !shows(b"b", AtOrAbove, ScanEnd::Last, b"a"));
        assert!(shows(b"b", Floor, ScanEnd::Last, b"a") && !shows(b"b", Floor, ScanEnd::AtOrBelow(b"c"), b"d"));
        assert!(shows(b"a", Above, ScanEnd::AtOrBelow(b"c"), b"c") && !shows(b"a", Above, ScanEnd::Below(b"c"), b"c"));
        assert!(shows(b"", Floor, ScanEnd::Prefix(b"ab"), b"abc") && !shows(b"", Floor, ScanEnd::Prefix(b"ab"), b"ac"));
    }
}
