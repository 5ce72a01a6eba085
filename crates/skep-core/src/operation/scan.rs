//! A scan: the pairs of a range in the order of their keys, a page at a time (Honeycomb, sections 2 and 3.3).
//!
//! The range begins at the request's key. The key may be empty, and then the range begins below all keys. A page ends
//! at the end of the range, at the limit of pairs, or at the limit of bytes. The page says if more pairs follow;
//! [`Request::after_page`] returns the request for the next page. All pages of one [lease](ScanLease) show the store as
//! it was when the first page was read.

use super::{KEY_SIZE_MAX, Operation, OperationError, Page, Range, Request, ScanAnswer, ScanEnd, Start};

/// The pairs that a scan shows, their order, and the version of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// How the range begins at the request's key.
    pub start: ScanStart,
    /// Where the range ends.
    pub end: ScanEnd<'a>,
    /// Shows the greatest key first if true.
    pub reverse: bool,
    /// Largest number of pairs on the page, at least 1.
    pub limit: u32,
    /// The parts of each pair that the page holds.
    pub answer: ScanAnswer,
    /// The version of the store that is read.
    pub lease: ScanLease,
}

/// How a range begins at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStart {
    /// At the lowest key that is not below it.
    AtOrAbove,
    /// At the lowest key above it.
    Above,
    /// At the greatest key that is not above it, or at the lowest of all keys if there is none: the paper's `SCAN`. A
    /// prefix is a lower bound too, so with [`ScanEnd::Prefix`] this is the same as [`ScanStart::AtOrAbove`].
    Floor,
}

/// The version of the store that a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanLease {
    /// The current version.
    None,
    /// The current version, kept for later pages. The page contains the number of the lease, unless it is the last
    /// page.
    Open,
    /// The version of the lease with this number. The lease ends with the last page.
    Continue(u64),
}

impl<'a> Scan<'a> {
    /// Checks the scan from this key. Succeeds if it could be carried out on some ordered store.
    pub fn validate(&self, key: &[u8]) -> Result<(), OperationError> {
        if key.len().max(self.end.bytes().len()) > KEY_SIZE_MAX {
            return Err(OperationError::KeyTooLong);
        }
        if self.limit == 0 {
            return Err(OperationError::LimitZero);
        }
        let is_reversed = match self.end {
            ScanEnd::Last => false,
            ScanEnd::AtOrBelow(end) | ScanEnd::Below(end) => key > end,
            ScanEnd::Prefix(prefix) => key > prefix && !key.starts_with(prefix),
        };
        if is_reversed { Err(OperationError::RangeReversed) } else { Ok(()) }
    }

    /// Returns the range of the scan from this key.
    pub fn range<'k>(&self, key: &'k [u8]) -> Range<'k>
    where
        'a: 'k,
    {
        let start = match self.start {
            ScanStart::AtOrAbove => Start::AtOrAbove(key),
            ScanStart::Above => Start::Above(key),
            ScanStart::Floor => Start::Floor(key),
        };
        Range { start, end: self.end, limit: self.limit as usize }.with_prefix_as_start()
    }

    /// Returns true if the page ended among expired keys before it found the floor of the range, given the request's key.
    /// Then the next page begins at the floor of its last key.
    pub fn seeks_floor(&self, key: &[u8], page: &Page<'_>) -> bool {
        let is_below = matches!(self.start_at(key), (ScanStart::Floor, key) if page.last_key() <= key);
        is_below && page.more() && page.count() == 0
    }

    /// Returns where the range begins, given the request's key and the prefix of all keys.
    pub fn start_at<'k>(&self, key: &'k [u8]) -> (ScanStart, &'k [u8])
    where
        'a: 'k,
    {
        match self.range(key).start {
            Start::Above(key) => (ScanStart::Above, key),
            Start::Floor(key) => (ScanStart::Floor, key),
            start => (ScanStart::AtOrAbove, start.key()),
        }
    }
}

impl<'a> Request<'a> {
    /// Returns the request for the page after this one. Returns `None` if the page is the last one, or if this is not a
    /// scan.
    pub fn after_page(&self, page: &Page<'a>) -> Option<Request<'a>> {
        let Operation::Scan(scan) = self.operation else { return None };
        if !page.more() {
            return None;
        }
        let lease = page.lease().map_or(ScanLease::None, ScanLease::Continue);
        let seeks_floor = scan.seeks_floor(self.key, page);
        let (start, key, end) = if scan.reverse {
            // For a prefix too: every key that is at or above it and below a key that has it, has it as well.
            let (start, key) = scan.start_at(self.key);
            (start, if seeks_floor { page.last_key() } else { key }, ScanEnd::Below(page.last_key()))
        } else {
            (if seeks_floor { ScanStart::Floor } else { ScanStart::Above }, page.last_key(), scan.end)
        };
        Some(Request { key, operation: Operation::Scan(Scan { start, end, lease, ..scan }) })
    }
}
