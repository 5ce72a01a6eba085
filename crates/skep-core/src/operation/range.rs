//! Ranges of keys: a start, an end, and a number of pairs.
//!
//! All engines scan a [`Range`]. A [`Scan`](super::Scan) has the same parts, except that its start refers to the key of
//! the request; [`Scan::range`](super::Scan::range) puts the two together.

/// A range of keys, and the number of its pairs that are wanted. A store fetches no more of them, so a limit makes a
/// scan faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'k> {
    /// Its start.
    pub start: Start<'k>,
    /// Its end.
    pub end: ScanEnd<'k>,
    /// Most pairs.
    pub limit: usize,
}

/// The start of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'k> {
    /// At the lowest key.
    First,
    /// At the lowest key that is not below this one.
    AtOrAbove(&'k [u8]),
    /// At the lowest key above this one.
    Above(&'k [u8]),
    /// At the greatest key that is not above this one, or at the lowest of all keys if there is none: the paper's
    /// `SCAN`. A prefix is a lower bound too, so with [`ScanEnd::Prefix`] this is the same as [`Start::AtOrAbove`].
    Floor(&'k [u8]),
}

/// Where a range ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd<'a> {
    /// At the greatest key.
    Last,
    /// At the greatest key that is not above this one: the paper's `SCAN`.
    AtOrBelow(&'a [u8]),
    /// At the greatest key below this one.
    Below(&'a [u8]),
    /// At the greatest key that begins with these bytes. The range also begins at or above the lowest such key.
    Prefix(&'a [u8]),
}

impl<'a> ScanEnd<'a> {
    /// Returns the key or prefix of this end. It is empty for [`ScanEnd::Last`].
    pub fn bytes(self) -> &'a [u8] {
        match self {
            ScanEnd::Last => &[],
            ScanEnd::AtOrBelow(bytes) | ScanEnd::Below(bytes) | ScanEnd::Prefix(bytes) => bytes,
        }
    }

    /// Returns the same kind of end with other bytes.
    pub fn with_bytes(self, bytes: &[u8]) -> ScanEnd<'_> {
        match self {
            ScanEnd::Last => ScanEnd::Last,
            ScanEnd::AtOrBelow(_) => ScanEnd::AtOrBelow(bytes),
            ScanEnd::Below(_) => ScanEnd::Below(bytes),
            ScanEnd::Prefix(_) => ScanEnd::Prefix(bytes),
        }
    }
}

impl Range<'static> {
    /// All pairs.
    pub const ALL: Self = Range::new(Start::First, ScanEnd::Last);
}

impl<'k> Range<'k> {
    /// Returns the range of all pairs from `start` to `end`.
    pub const fn new(start: Start<'k>, end: ScanEnd<'k>) -> Self {
        Range { start, end, limit: usize::MAX }
    }

    /// Limits the number of pairs: to the lowest, or in reverse order to the greatest.
    #[must_use]
    pub const fn limit(self, limit: usize) -> Self {
        Range { limit, ..self }
    }

    /// Returns the same range with the lower bound that a prefix is. An engine need not know it then.
    #[must_use]
    pub fn with_prefix_as_start(self) -> Self {
        let ScanEnd::Prefix(prefix) = self.end else { return self };
        let start = match self.start {
            start if start.key() < prefix => Start::AtOrAbove(prefix),
            Start::Floor(key) => Start::AtOrAbove(key),
            start => start,
        };
        Range { start, ..self }
    }

    /// Returns false if the range contains no pair with this key. A floor may be any key below the start.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let is_before = match self.start {
            Start::First | Start::Floor(_) => false,
            Start::AtOrAbove(start) => key < start,
            Start::Above(start) => key <= start,
        };
        let is_after = match self.end {
            ScanEnd::Last => false,
            ScanEnd::AtOrBelow(end) => key > end,
            ScanEnd::Below(end) => key >= end,
            ScanEnd::Prefix(prefix) => !key.starts_with(prefix),
        };
        !(is_before || is_after)
    }
}

impl<'k> Start<'k> {
    /// Returns the key of this start. It is empty for [`Start::First`].
    pub fn key(self) -> &'k [u8] {
        match self {
            Start::First => &[],
            Start::AtOrAbove(key) | Start::Above(key) | Start::Floor(key) => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_the_keys_between_its_start_and_its_end() {
        let contains = |start, end, key: &[u8]| Range::new(start, end).with_prefix_as_start().may_contain(key);
        use Start::{Above, AtOrAbove, First, Floor};
        assert!(contains(AtOrAbove(b"b"), ScanEnd::Last, b"b") && contains(First, ScanEnd::Last, b"a"));
        assert!(!contains(Above(b"b"), ScanEnd::Last, b"b") && !contains(AtOrAbove(b"b"), ScanEnd::Last, b"a"));
        assert!(contains(Floor(b"b"), ScanEnd::Last, b"a") && !contains(Floor(b"b"), ScanEnd::AtOrBelow(b"c"), b"d"));
        let from_a = |end, key: &[u8]| contains(Above(b"a"), end, key);
        assert!(from_a(ScanEnd::AtOrBelow(b"c"), b"c") && !from_a(ScanEnd::Below(b"c"), b"c"));
        let with_prefix = |start, key: &[u8]| contains(start, ScanEnd::Prefix(b"ab"), key);
        assert!(with_prefix(Floor(b""), b"abc") && !with_prefix(Floor(b""), b"ac"));
        assert!(!with_prefix(Floor(b"abb"), b"aba") && !with_prefix(First, b"aa"));
        assert!(!with_prefix(AtOrAbove(b"b"), b"abc") && !with_prefix(AtOrAbove(b"b"), b"b"), "it is empty");
    }
}
