//! Key heads and fingerprints: the parts of keys that a search compares first.
//!
//! A **key head** is a signed number of 16 bits ([`encoding`]). Keys with different key heads have the order of their
//! key heads; equal key heads say nothing. A **fingerprint** is one byte of a key's hash.

pub(super) mod encoding;
pub(super) mod lanes;

use std::cmp::Ordering;

/// Bytes of a key head.
pub(crate) const KEY_HEAD_SIZE: usize = 2;
/// Most key heads that are compared at once.
pub(crate) const KEY_HEAD_COUNT_MAX: usize = 20;
/// Most fingerprints that are compared at once.
pub(crate) const FINGERPRINT_COUNT_MAX: usize = 16;

/// The key that a descent searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'k> {
    /// Finds the last separator at or below the key: where the key itself belongs.
    AtOrBelow(&'k [u8]),
    /// Finds the last separator below the key: where the greatest lower key belongs.
    Below(&'k [u8]),
    /// Finds the right end of the tree.
    Last,
}

/// A target without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    AtOrBelow,
    Below,
    Last,
}

impl<'k> Target<'k> {
    /// Returns true if a separator is at the target or to the left of it.
    #[inline]
    pub(crate) fn is_right_of(self, separator: &[u8]) -> bool {
        match self {
            Target::AtOrBelow(key) => separator <= key,
            Target::Below(key) => separator < key,
            Target::Last => true,
        }
    }

    /// Returns the two parts of the target, which fit registers.
    #[inline(always)]
    pub(crate) fn parts(self) -> (Side, &'k [u8]) {
        match self {
            Target::AtOrBelow(key) => (Side::AtOrBelow, key),
            Target::Below(key) => (Side::Below, key),
            Target::Last => (Side::Last, &[]),
        }
    }

    /// Returns the target of these parts.
    pub(crate) fn of_parts(side: Side, key: &'k [u8]) -> Self {
        match side {
            Side::AtOrBelow => Target::AtOrBelow(key),
            Side::Below => Target::Below(key),
            Side::Last => Target::Last,
        }
    }

    /// Returns the key, if there is one.
    #[inline(always)]
    pub(crate) fn key(self) -> Option<&'k [u8]> {
        match self {
            Target::AtOrBelow(key) | Target::Below(key) => Some(key),
            Target::Last => None,
        }
    }
}

/// Counts the separators, among `count` in ascending order, that are at the target or to the left of it. Fails on a tie
/// of key heads. `below` has a one for each separator whose key head is below the target's, the first lowest; its bits
/// from `count` on are arbitrary. `key_head_at` is also called with `count`: that is faster than to test for the last
/// separator.
#[inline(always)]
pub(crate) fn count_untied(
    below: u32,
    count: usize,
    own: i16,
    key_head_at: impl Fn(usize) -> i16,
) -> Result<usize, Tie> {
    let below = (!below | 1 << count).trailing_zeros() as usize;
    debug_assert!(below <= count);
    if key_head_at(below) == own { tie_below(below, count) } else { Ok(below) }
}

/// Returns a tie if there is a separator with this index.
#[cold]
fn tie_below(below: usize, count: usize) -> Result<usize, Tie> {
    if below < count { Err(Tie { below }) } else { Ok(below) }
}

/// The separator with this index has the target's key head; more may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    below: usize,
}

impl Tie {
    /// Returns the index of the separator.
    pub(crate) fn index(self) -> usize {
        self.below
    }

    /// Counts the separators that are at the target or to the left of it. `separator` returns one in full.
    #[cold]
    #[inline(never)]
    pub(crate) fn decide<'n>(
        self,
        count: usize,
        own: i16,
        target: Target<'_>,
        key_head_at: impl Fn(usize) -> i16,
        separator: impl Fn(usize) -> &'n [u8],
    ) -> usize {
        let mut low = self.below;
        let mut high = low + (low..count).take_while(|index| key_head_at(*index) == own).count();
        while low < high {
            let middle = (low + high) / 2;
            if target.is_right_of(separator(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Returns one byte of a key's hash.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u8 {
    // A client that chooses colliding keys costs at most sixteen comparisons, so the seed is not secret.
    rapidhash::v3::rapidhash_v3(key) as u8
}

/// Returns the number of first bytes that two keys share.
pub(crate) fn common_size(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the shortest key above `left` and at or below `right`.
pub(crate) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    debug_assert!(left.cmp(right) == Ordering::Less, "keys ascend");
    &right[..=common_size(left, right)]
}

#[cfg(test)]
mod tests {
    use super::encoding::Encoding;
    use super::*;

    #[test]
    fn ties_are_decided_by_the_separators() {
        let separators: [&[u8]; 6] = [b"b", b"bb", b"bbb", b"bbc", b"bc", b"c"];
        let encoding = Encoding::between(None, None);
        let key_head_at = |index: usize| separators.get(index).map_or(0, |separator| encoding.key_head(separator));
        let count = |target: Target<'_>| {
            let own = target.key().map_or(i16::MAX, |key| encoding.key_head(key));
            let below: u32 = (0..8).map(|index| u32::from(key_head_at(index) < own) << index).sum();
            count_untied(below, 6, own, key_head_at)
                .unwrap_or_else(|tie| tie.decide(6, own, target, key_head_at, |index| separators[index]))
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
