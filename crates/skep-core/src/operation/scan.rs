//! A scan: the pairs of a range in the order of their keys, a page at a time (Honeycomb, sections 2 and 3.3).
//!
//! The range begins at the request's key, which may be empty here: all keys lie above it. A page ends with the range, with
//! the limit of pairs or with the limit of bytes, and says which; [`Request::after_page`] is the request for the next one.
//! Pages of one [lease](ScanLease) all show the store as it was when the first of them was read.

use super::{KEY_SIZE_MAX, Operation, OperationError, Page, Request};

/// Which pairs are shown, in which order, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// How the range begins at the request's key.
    pub start: ScanStart,
    /// Where it ends.
    pub end: ScanEnd<'a>,
    /// Whether the greatest key comes first.
    pub reverse: bool,
    /// Most pairs of the page, at least 1.
    pub limit: u32,
    /// What the page holds.
    pub answer: ScanAnswer,
    /// Which state of the store is read.
    pub lease: ScanLease,
}

/// How a range begins at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStart {
    /// With the lowest key not below it.
    AtOrAbove,
    /// With the lowest key above it.
    Above,
    /// With the greatest key not above it, or the lowest of all if there is none: the paper's `SCAN`. A prefix bounds its
    /// range below too: with [`ScanEnd::Prefix`] this is the same as [`ScanStart::AtOrAbove`].
    Floor,
}

/// Where a range ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd<'a> {
    /// With the greatest key.
    Last,
    /// With the greatest key not above this one: the paper's `SCAN`.
    AtOrBelow(&'a [u8]),
    /// With the greatest key below this one.
    Below(&'a [u8]),
    /// With the greatest key that begins with these bytes. It begins not before the lowest of these either.
    Prefix(&'a [u8]),
}

/// What a page holds of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScanAnswer {
    /// Key and value.
    Pairs = 0,
    /// The key.
    Keys = 1,
    /// Nothing: pairs are counted.
    Count = 2,
}

/// Which state of the store a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanLease {
    /// The present one.
    None,
    /// The present one, kept for pages to come. The page has the number of the lease, unless nothing follows it.
    Open,
    /// That of the lease with this number. The lease ends with the page that nothing follows.
    Continue(u64),
}

impl ScanAnswer {
    /// All of them, in the order of their codes.
    pub const ALL: [ScanAnswer; 3] = [ScanAnswer::Pairs, ScanAnswer::Keys, ScanAnswer::Count];
}

impl<'a> ScanEnd<'a> {
    /// The key or prefix that it names; empty for [`ScanEnd::Last`].
    pub fn bytes(self) -> &'a [u8] {
        match self {
            ScanEnd::Last => &[],
            ScanEnd::AtOrBelow(bytes) | ScanEnd::Below(bytes) | ScanEnd::Prefix(bytes) => bytes,
        }
    }

    /// The same kind of end with other bytes.
    pub fn with_bytes(self, bytes: &[u8]) -> ScanEnd<'_> {
        match self {
            ScanEnd::Last => ScanEnd::Last,
            ScanEnd::AtOrBelow(_) => ScanEnd::AtOrBelow(bytes),
            ScanEnd::Below(_) => ScanEnd::Below(bytes),
            ScanEnd::Prefix(_) => ScanEnd::Prefix(bytes),
        }
    }
}

impl<'a> Scan<'a> {
    /// Whether the scan from this key could be carried out on some ordered store.
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

    /// Where the range begins, by the request's key and the prefix that keys must have.
    pub fn start_at(&self, key: &'a [u8]) -> (ScanStart, &'a [u8]) {
        match self.end {
            ScanEnd::Prefix(prefix) if !key.starts_with(prefix) => (ScanStart::AtOrAbove, prefix),
            ScanEnd::Prefix(_) if self.start == ScanStart::Floor => (ScanStart::AtOrAbove, key),
            _ => (self.start, key),
        }
    }
}

impl<'a> Request<'a> {
    /// The request for what follows a page that answered this one; none if nothing does, or if this is no scan.
    pub fn after_page(&self, page: &Page<'a>) -> Option<Request<'a>> {
        let Operation::Scan(scan) = self.operation else { return None };
        if !page.more() {
            return None;
        }
        let lease = page.lease().map_or(ScanLease::None, ScanLease::Continue);
        let (start, key, end) = if scan.reverse {
            // Of a prefix too: all keys from it on and below one that has it have it.
            let (start, key) = scan.start_at(self.key);
            (start, key, ScanEnd::Below(page.last_key()))
        } else {
            (ScanStart::Above, page.last_key(), scan.end)
        };
        Some(Request { key, operation: Operation::Scan(Scan { start, end, lease, ..scan }) })
    }
}
