//! Windows and fingerprints: what a search compares instead of keys.
//!
//! A **window** is two bytes of a key after the prefix that all keys of a node share, as a number whose order is the
//! keys'; what a short key lacks is zero. Keys with different windows are ordered as their windows, of equal windows
//! nothing is known. A **fingerprint** is one byte of a key's hash.

use std::cmp::Ordering;

/// Bytes of a window.
pub(super) const WINDOW_SIZE: usize = 2;
/// Most windows that are compared at once.
pub(super) const WINDOW_COUNT_MAX: usize = 20;
/// Most fingerprints that are compared at once.
pub(super) const FINGERPRINT_COUNT_MAX: usize = 16;

/// Which of the keys up to a given one a descent looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'k> {
    /// Where the key itself belongs: the last separator at or below it.
    AtOrBelow(&'k [u8]),
    /// Where the greatest lower key belongs: the last separator below it.
    Below(&'k [u8]),
    /// The right end of the tree.
    Last,
}

impl<'k> Target<'k> {
    /// Whether a separator lies at or to the left of what is looked for.
    #[inline]
    pub(super) fn is_right_of(self, separator: &[u8]) -> bool {
        match self {
            Target::AtOrBelow(key) => separator <= key,
            Target::Below(key) => separator < key,
            Target::Last => true,
        }
    }

    /// The key, if there is one.
    #[inline]
    fn key(self) -> Option<&'k [u8]> {
        match self {
            Target::AtOrBelow(key) | Target::Below(key) => Some(key),
            Target::Last => None,
        }
    }
}

/// The window of a key after `prefix_size` bytes.
#[inline]
pub(super) fn window(key: &[u8], prefix_size: usize) -> u16 {
    match key.get(prefix_size..) {
        Some([first, second, ..]) => u16::from_be_bytes([*first, *second]),
        Some([first]) => u16::from_be_bytes([*first, 0]),
        _ => 0,
    }
}

/// How many of `count` separators in ascending order lie at or to the left of the target. `windows` are those of the separators,
/// two bytes each; behind them are ones if they are `PADDED`, else anything. `separator` shows one in full, which is asked for
/// on a tie only.
#[inline]
pub(super) fn count_left<'n, const N: usize, const PADDED: bool>(
    windows: &[[u8; WINDOW_SIZE]; N],
    count: usize,
    prefix_size: usize,
    target: Target<'_>,
    separator: impl Fn(usize) -> &'n [u8],
) -> usize {
    debug_assert!(count <= N);
    let Some(key) = target.key() else { return count };
    let own = window(key, prefix_size);
    // All lanes are compared, those that are not in use as well: so it is a handful of vector instructions.
    let (mut below, mut equal) = (0_u16, 0_u16);
    for (place, bytes) in windows.iter().enumerate() {
        let other = u16::from_le_bytes(*bytes);
        let is_used = PADDED || place < count;
        below += u16::from(is_used & (other < own));
        equal += u16::from(is_used & (other == own));
    }
    let below = usize::from(below);
    let equal = usize::from(equal).min(count - below);
    if equal == 0 {
        return below;
    }
    decide_tie(below, below + equal, target, separator)
}

/// How many separators lie at or to the left of the target, if it is from `low` to `high`.
#[cold]
fn decide_tie<'n>(mut low: usize, mut high: usize, target: Target<'_>, separator: impl Fn(usize) -> &'n [u8]) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        if target.is_right_of(separator(middle)) { low = middle + 1 } else { high = middle }
    }
    low
}

/// One byte of a key's hash.
#[inline]
pub(super) fn fingerprint(key: &[u8]) -> u8 {
    // Colliding on purpose costs at most sixteen comparisons, so the seed is no secret.
    rapidhash::v3::rapidhash_v3(key) as u8
}

/// Which of sixteen fingerprints are this one, the first in bit 0.
#[inline]
pub(super) fn matching(fingerprints: [u64; 2], fingerprint: u8) -> u32 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const LOW_BITS: u64 = ONES * 0x7f;
    // Brings bit 0 of byte `b` to bit 56 + `b`.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let [low, high] = fingerprints.map(|bytes| {
        let difference = bytes ^ (ONES * u64::from(fingerprint));
        // The uppermost bit of each byte that is not zero.
        let others = ((difference & LOW_BITS) + LOW_BITS) | difference;
        ((!others >> 7 & ONES).wrapping_mul(GATHER) >> 56) as u32
    });
    low | high << 8
}

/// How many first bytes two keys have in common.
pub(super) fn common_size(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key above `left` and at or below `right`.
pub(super) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    debug_assert!(left.cmp(right) == Ordering::Less, "keys ascend");
    &right[..=common_size(left, right)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_ordered_as_keys() {
        let keys: [&[u8]; 7] = [b"p", b"p\0", b"p\0\0z", b"pa", b"pab", b"pb", b"p\xff\xff\xff"];
        let windows = keys.map(|key| window(key, 1));
        assert!(windows.is_sorted());
        assert_eq!(windows, [0, 0, 0, 0x6100, 0x6162, 0x6200, 0xffff]);
    }

    #[test]
    fn ties_are_decided_by_the_separators() {
        let separators: [&[u8]; 6] = [b"b", b"bb", b"bbb", b"bbc", b"bc", b"c"];
        let mut windows = [[0x62; WINDOW_SIZE]; 9];
        for (place, key) in windows.iter_mut().zip(separators) {
            *place = window(key, 0).to_le_bytes();
        }
        for key in [&b"a"[..], b"b", b"ba", b"bb", b"bba", b"bbb", b"bbbb", b"bbc", b"bbd", b"bc", b"c", b"d"] {
            let count = |target| count_left::<9, false>(&windows, 6, 0, target, |place| separators[place]);
            let at_or_below = separators.iter().filter(|separator| **separator <= key).count();
            assert_eq!(count(Target::AtOrBelow(key)), at_or_below, "{key:?}");
            let below = separators.iter().filter(|separator| **separator < key).count();
            assert_eq!(count(Target::Below(key)), below, "{key:?}");
            assert_eq!(count(Target::Last), 6);
        }
    }

    #[test]
    fn fingerprints_that_match() {
        let fingerprints = [u64::from_le_bytes([7, 1, 7, 0, 0, 0, 0, 7]), u64::from_le_bytes([0, 0, 0, 0, 0, 0, 9, 7])];
        assert_eq!(matching(fingerprints, 7), 0b1000_0000_1000_0101);
        assert_eq!(matching(fingerprints, 3), 0);
    }

    #[test]
    fn every_fingerprint_matches_itself_alone() {
        for fingerprint in 0..=255_u8 {
            for place in 0..16 {
                let mut bytes = [fingerprint ^ 0x80; 16];
                bytes[place] = fingerprint;
                bytes[(place + 1) % 16] = fingerprint.wrapping_add(1);
                let (low, high) = bytes.split_at(8);
                let words = [low, high].map(|half| u64::from_le_bytes(half.try_into().unwrap()));
                assert_eq!(matching(words, fingerprint), 1 << place);
            }
        }
    }

    #[test]
    fn the_shortest_separator() {
        assert_eq!(separator(b"apple", b"banana"), b"b");
        assert_eq!(separator(b"app", b"apple"), b"appl");
        assert_eq!(separator(b"apple", b"apply"), b"apply");
    }
}
