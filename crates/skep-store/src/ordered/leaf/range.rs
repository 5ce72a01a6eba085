//! Ranges of keys: their start, their end, and the number of pairs that a scan shows.

use super::super::key_head::Target;
use crate::short::is_below;

/// A range of keys, and the number of its pairs that are wanted. A scan fetches no more from memory, so a limit makes
/// it faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'k> {
    /// Its start.
    pub start: Start<'k>,
    /// Its end.
    pub end: End<'k>,
    /// Most pairs.
    pub limit: usize,
}

/// The start of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'k> {
    /// At the lowest key.
    First,
    /// At the lowest key not below this one.
    AtOrAbove(&'k [u8]),
    /// At the lowest key above this one.
    Above(&'k [u8]),
    /// At the greatest key not above this one, or at the lowest if there is none: the paper's `SCAN`.
    Floor(&'k [u8]),
}

/// The end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'k> {
    /// With the greatest key.
    Last,
    /// With the greatest key not above this one: the paper's `SCAN`.
    AtOrBelow(&'k [u8]),
    /// With the greatest key below this one.
    Below(&'k [u8]),
}

impl Range<'static> {
    /// All pairs.
    pub const ALL: Self = Range::new(Start::First, End::Last);
}

impl<'k> Range<'k> {
    /// Returns the range of all pairs from `start` to `end`.
    pub const fn new(start: Start<'k>, end: End<'k>) -> Self {
        Range { start, end, limit: usize::MAX }
    }

    /// Limits the number of pairs: to the lowest, or in reverse order to the greatest.
    #[must_use]
    pub const fn limit(self, limit: usize) -> Self {
        Range { limit, ..self }
    }
}

impl<'k> Start<'k> {
    /// Returns the key in whose segment the range begins.
    pub(crate) fn key(self) -> &'k [u8] {
        match self {
            Start::First => &[],
            Start::AtOrAbove(key) | Start::Above(key) | Start::Floor(key) => key,
        }
    }

    #[inline]
    pub(crate) fn admits(self, key: &[u8]) -> bool {
        match self {
            Start::Above(start) => is_below(start, key),
            _ => !is_below(key, self.key()),
        }
    }
}

impl<'k> End<'k> {
    #[inline]
    pub(crate) fn admits(self, key: &[u8]) -> bool {
        match self {
            End::Last => true,
            End::AtOrBelow(end) => !is_below(end, key),
            End::Below(end) => is_below(key, end),
        }
    }

    /// Returns the key that it ends with, or before.
    #[inline]
    pub(crate) fn key(self) -> Option<&'k [u8]> {
        match self {
            End::Last => None,
            End::AtOrBelow(key) | End::Below(key) => Some(key),
        }
    }

    pub(crate) fn target(self) -> Target<'k> {
        match self {
            End::Last => Target::Last,
            End::AtOrBelow(end) => Target::AtOrBelow(end),
            End::Below(end) => Target::Below(end),
        }
    }
}
