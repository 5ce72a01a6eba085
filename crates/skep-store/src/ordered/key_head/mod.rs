//! Windows and fingerprints: what a search compares instead of keys.
//!
//! A **window** is a signed number of 16 bits whose order is the keys' ([`encoding`]). Keys with different windows are
//! ordered as their windows, of equal windows nothing is known. A **fingerprint** is one byte of a key's hash.

pub(super) mod encoding;
pub(super) mod lanes;

use std::cmp::Ordering;

/// Bytes of a window.
pub(crate) const WINDOW_SIZE: usize = 2;
/// Most windows that are compared at once.
pub(crate) const WINDOW_COUNT_MAX: usize = 20;
/// Most fingerprints that are compared at once.
pub(crate) const FINGERPRINT_COUNT_MAX: usize = 16;

/// Which of the keys up to a given one a descent looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'k> {
    /// Where the key itself belongs: the last separator at or below it.
    AtOrBelow(&'k [u8]),
    /// Where the greatest lower key belongs: the last separator below it.
    Below(&'k [u8]),
    /// The right end of the tree.
    Last,
}

/// What a target is without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    AtOrBelow,
    Below,
    Last,
}

impl<'k> Target<'k> {
    /// Whether a separator lies at or to the left of what is looked for.
    #[inline]
    pub(crate) fn is_right_of(self, separator: &[u8]) -> bool {
        match self {
            Target::AtOrBelow(key) => separator <= key,
            Target::Below(key) => separator < key,
            Target::Last => true,
        }
    }

    /// The two parts of which it is made, which fit registers.
    #[inline(always)]
    pub(crate) fn parts(self) -> (Side, &'k [u8]) {
        match self {
            Target::AtOrBelow(key) => (Side::AtOrBelow, key),
            Target::Below(key) => (Side::Below, key),
            Target::Last => (Side::Last, &[]),
        }
    }

    /// Put together again.
    pub(crate) fn of_parts(side: Side, key: &'k [u8]) -> Self {
        match side {
            Side::AtOrBelow => Target::AtOrBelow(key),
            Side::Below => Target::Below(key),
            Side::Last => Target::Last,
        }
    }

    /// The key, if there is one.
    #[inline(always)]
    pub(crate) fn key(self) -> Option<&'k [u8]> {
        match self {
            Target::AtOrBelow(key) | Target::Below(key) => Some(key),
            Target::Last => None,
        }
    }
}

/// How many of `count` separators in ascending order lie at or to the left of the target, as far as windows tell.
/// `below` has a one for each separator whose window is below the target's, the first lowest, and anything from `count`
/// on. `window_at` is asked of a place behind the last one too: that is quicker than to guess whether the target is the last.
#[inline(always)]
pub(crate) fn count_untied(below: u32, count: usize, own: i16, window_at: impl Fn(usize) -> i16) -> Result<usize, Tie> {
    let below = (!below | 1 << count).trailing_zeros() as usize;
    debug_assert!(below <= count);
    if (below < count) & (window_at(below) == own) { Err(Tie { below }) } else { Ok(below) }
}

/// The separator with this number has the target's window, and it may not be the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    below: usize,
}

impl Tie {
    /// The number of the separator.
    pub(crate) fn place(self) -> usize {
        self.below
    }

    /// How many separators lie at or to the left of the target. `separator` shows one in full.
    #[cold]
    #[inline(never)]
    pub(crate) fn decide<'n>(
        self,
        count: usize,
        own: i16,
        target: Target<'_>,
        window_at: impl Fn(usize) -> i16,
        separator: impl Fn(usize) -> &'n [u8],
    ) -> usize {
        let mut low = self.below;
        let mut high = low + (low..count).take_while(|place| window_at(*place) == own).count();
        while low < high {
            let middle = (low + high) / 2;
            if target.is_right_of(separator(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// One byte of a key's hash.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u8 {
    // Colliding on purpose costs at most sixteen comparisons, so the seed is no secret.
    rapidhash::v3::rapidhash_v3(key) as u8
}

/// How many first bytes two keys have in common.
pub(crate) fn common_size(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key above `left` and at or below `right`.
pub(crate) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    debug_assert!(left.cmp(right) == Ordering::Less, "keys ascend");
    &right[..=common_size(left, right)]
}

#[cfg(test)]
mod tests {
    use super::encoding::Scale;
    use super::*;

    #[test]
    fn ties_are_decided_by_the_separators() {
        let separators: [&[u8]; 6] = [b"b", b"bb", b"bbb", b"bbc", b"bc", b"c"];
        let scale = Scale::between(None, None);
        let window_at = |place: usize| separators.get(place).map_or(0, |separator| scale.window(separator));
        let count = |target: Target<'_>| {
            let own = target.key().map_or(i16::MAX, |key| scale.window(key));
            let below: u32 = (0..8).map(|place| u32::from(window_at(place) < own) << place).sum();
            count_untied(below, 6, own, window_at)
                .unwrap_or_else(|tie| tie.decide(6, own, target, window_at, |place| separators[place]))
        };
        for key in [&b"a"[..], b"b", b"ba", b"bb", b"bba", b"bbb", b"bbbb", b"bbc", b"bbd", b"bc", b"c", b"d"] {
            let at_or_below = separators.iter().filter(|separator| **separator <= key).count();
            assert_eq!(count(Target::AtOrBelow(key)), at_or_below, "{key:?}");
            let below = separators.iter().filter(|separator| **separator < key).count();
            assert_eq!(count(Target::Below(key)), below, "{key:?}");
            assert_eq!(count(Target::Last), 6);
        }
    }

    #[test]
    fn the_shortest_separator() {
        assert_eq!(separator(b"apple", b"banana"), b"b");
        assert_eq!(separator(b"app", b"apple"), b"appl");
        assert_eq!(separator(b"apple", b"apply"), b"apply");
    }
}
