//! Scales: how the keys of a node become windows.
//!
//! ```text
//! key       prefix │ 8 bytes: a number n │ ...       the prefix is what both fences of the node begin with
//! window    (n >> shift) − (low fence's n >> shift) − 2¹⁵            the least shift for which 16 bits hold all
//! bits      prefix size 10 │ shift 6                   an edge has its shift as base, and this one instead of it: 63
//! edge      low fence's n 8 │ prefix 24: three numbers as n is one
//! ```
//!
//! What a short key lacks is zero. The windows of a node's keys are spread over half of all numbers at least, wherever its
//! fences lie, so two separators seldom have the same one.
//!
//! A node at an end of the tree lacks a fence. In an interior node whose separators begin alike the first or the last of them
//! stands in for it: keys beyond have the lowest or the greatest window, and the [`Edge`] in line 0 tells which keys those
//! are. So keys may all begin with `user:` and still differ at the root.

use std::cmp::Ordering;

use super::{Target, common_size};
use skep_core::operation::KEY_SIZE_MAX;

/// By how much numbers are shifted whose range is the largest.
const SHIFT_MAX: u16 = 48;
/// Bits of a shift.
const SHIFT_BITS: u32 = 6;
/// In the place of a shift if there is an edge.
const EDGE: u16 = (1 << SHIFT_BITS) - 1;
/// Bytes of a number.
const NUMBER_SIZE: usize = size_of::<u64>();
/// Bytes of a prefix that an edge can hold.
const EDGE_PREFIX_SIZE_MAX: usize = 24;
/// Words of an edge.
pub(crate) const EDGE_WORD_COUNT: usize = 4;

const _: () = assert!(SHIFT_MAX < EDGE && KEY_SIZE_MAX < 1 << (u16::BITS - SHIFT_BITS));
const _: () = assert!(NUMBER_SIZE + EDGE_PREFIX_SIZE_MAX == EDGE_WORD_COUNT * NUMBER_SIZE);

/// What makes a window of a key of a node. Two numbers that fit registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Prefix size and shift.
    pub(crate) bits: u16,
    /// What is subtracted.
    pub(crate) base: u16,
}

impl Scale {
    /// That of the keys between two fences, the fences included; none at the ends of the tree.
    pub(crate) fn between(low: Option<&[u8]>, high: Option<&[u8]>) -> Self {
        let prefix_size = low.zip(high).map_or(0, |(low, high)| common_size(low, high));
        let low = low.map_or(0, |low| number_after(low, prefix_size));
        let shift = shift_between(low, high.map_or(u64::MAX, |high| number_after(high, prefix_size)));
        // The window of the low fence is the lowest.
        let base = ((low >> shift) as u16).wrapping_sub(i16::MIN.cast_unsigned());
        Scale { bits: (prefix_size as u16) << SHIFT_BITS | shift, base }
    }

    /// Whether a key may lie beyond, so that the edge is needed.
    #[inline(always)]
    pub(crate) fn has_edge(self) -> bool {
        self.bits % (1 << SHIFT_BITS) == EDGE
    }

    #[inline(always)]
    fn prefix_size(self) -> usize {
        usize::from(self.bits >> SHIFT_BITS)
    }

    /// The window of a target. The right end of the tree lies behind all.
    #[inline(always)]
    pub(crate) fn window_of(self, target: Target<'_>) -> i16 {
        target.key().map_or(i16::MAX, |key| self.window(key))
    }

    /// The window of a key between the fences. With an edge it is anything.
    #[inline(always)]
    pub(crate) fn window(self, key: &[u8]) -> i16 {
        // Both are cut to 16 bits, so their difference is right where it has not more.
        let number = number_after(key, self.prefix_size());
        ((number >> (self.bits % (1 << SHIFT_BITS))) as u16).wrapping_sub(self.base).cast_signed()
    }
}

/// The least shift after which 16 bits hold the difference.
fn shift_between(low: u64, high: u64) -> u16 {
    let fits = |shift: &u16| (high >> shift) - (low >> shift) <= u64::from(u16::MAX);
    (0..SHIFT_MAX).find(fits).unwrap_or(SHIFT_MAX)
}

/// The eight bytes of a key after `prefix_size` of them as a number.
#[inline(always)]
fn number_after(key: &[u8], prefix_size: usize) -> u64 {
    let bytes = key.get(prefix_size..).and_then(<[u8]>::first_chunk);
    bytes.map_or_else(|| number_of_last(key, prefix_size), |bytes| u64::from_be_bytes(*bytes))
}

/// The same if there are fewer.
#[inline(never)]
fn number_of_last(key: &[u8], prefix_size: usize) -> u64 {
    if let Some(last) = key.last_chunk() {
        let lacking = (prefix_size + NUMBER_SIZE - key.len()) as u32;
        return u64::from_be_bytes(*last).checked_shl(lacking * u8::BITS).unwrap_or(0);
    }
    let bytes = key.get(prefix_size..).unwrap_or(&[]).iter();
    bytes.zip(1..).map(|(byte, place)| u64::from(*byte) << (u64::BITS - place * u8::BITS)).sum()
}

/// The scale of an interior node that lacks a fence, and where its keys go beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    scale: Scale,
    words: [u64; EDGE_WORD_COUNT],
}

impl Edge {
    /// That of a node whose fences, or what stands in for them, are these.
    fn between(low: &[u8], high: &[u8]) -> Self {
        let prefix_size = common_size(low, high).min(EDGE_PREFIX_SIZE_MAX);
        let number = number_after(low, prefix_size);
        let shift = shift_between(number, number_after(high, prefix_size));
        let part = |place: usize| number_after(&low[..prefix_size], place * NUMBER_SIZE);
        Edge {
            scale: Scale { bits: (prefix_size as u16) << SHIFT_BITS | EDGE, base: shift },
            words: [number, part(0), part(1), part(2)],
        }
    }

    #[inline]
    pub(crate) fn of_words(scale: Scale, words: [u64; EDGE_WORD_COUNT]) -> Self {
        Edge { scale, words }
    }

    /// The window of any key.
    #[inline]
    pub(crate) fn window(&self, key: &[u8]) -> i16 {
        let [low, prefix @ ..] = &self.words;
        let (prefix_size, mut compared) = (self.scale.prefix_size(), 0);
        for part in prefix {
            if compared >= prefix_size {
                break;
            }
            let others = NUMBER_SIZE.saturating_sub(prefix_size - compared) as u32 * u8::BITS;
            match (number_after(key, compared) >> others).cmp(&(part >> others)) {
                Ordering::Less => return i16::MIN,
                Ordering::Greater => return i16::MAX,
                Ordering::Equal => compared += NUMBER_SIZE,
            }
        }
        let shift = self.scale.base;
        let above = (number_after(key, prefix_size).max(*low) >> shift) - (low >> shift);
        (above.min(u64::from(u16::MAX)) as u16).wrapping_add(i16::MIN.cast_unsigned()).cast_signed()
    }
}

/// What makes windows of the separators of an interior node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InteriorScale {
    /// Between two fences, or over all keys.
    Inner(Scale),
    /// At an end of the tree, of keys that begin alike.
    Outer(Edge),
}

impl InteriorScale {
    /// That of a node between two fences, none at the ends of the tree, whose first and last separators are these.
    pub(crate) fn new(fences: (Option<&[u8]>, Option<&[u8]>), first: &[u8], last: &[u8]) -> Self {
        let (low, high) = (fences.0.unwrap_or(first), fences.1.unwrap_or(last));
        let is_inner = fences.0.is_some() && fences.1.is_some();
        // Separators that differ in their first byte fill enough of all windows, and one alone is as soon compared itself.
        if is_inner || common_size(low, high) == 0 || low == high {
            InteriorScale::Inner(Scale::between(fences.0, fences.1))
        } else {
            InteriorScale::Outer(Edge::between(low, high))
        }
    }

    pub(crate) fn scale(&self) -> Scale {
        match self {
            InteriorScale::Inner(scale) => *scale,
            InteriorScale::Outer(edge) => edge.scale,
        }
    }

    pub(crate) fn window(&self, key: &[u8]) -> i16 {
        match self {
            InteriorScale::Inner(scale) => scale.window(key),
            InteriorScale::Outer(edge) => edge.window(key),
        }
    }

    /// The words of the edge, zero if there is none.
    pub(crate) fn edge_words(&self) -> [u64; EDGE_WORD_COUNT] {
        match self {
            InteriorScale::Inner(_) => [0; EDGE_WORD_COUNT],
            InteriorScale::Outer(edge) => edge.words,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// A window as a number from 0 on.
    fn from_zero(window: i16) -> i32 {
        i32::from(window) - i32::from(i16::MIN)
    }

    #[test]
    fn windows_are_drawn_from_the_bytes_behind_the_prefix() {
        let keys: [&[u8]; 7] = [b"p", b"p\0", b"p\0\0z", b"pa", b"pab", b"pb", b"p\xff\xff\xff"];
        let windows = keys.map(|key| from_zero(Scale::between(None, None).window(key)));
        assert_eq!(windows, [0x7000, 0x7000, 0x7000, 0x7061, 0x7061, 0x7062, 0x70ff]);
        let keys = [&b"pa"[..], b"pa\0\0", b"pa\x01\0", b"pab", b"pb", b"pb\0zzzzzzzzz", b"pc"];
        let windows = keys.map(|key| from_zero(Scale::between(Some(b"pa"), Some(b"pc")).window(key)));
        assert_eq!(windows, [0, 0, 0x40, 0x1880, 0x4000, 0x401e, 0x8000]);
    }

    #[test]
    fn scales_and_edges_lie_as_they_are_drawn() {
        let scale = Scale::between(Some(b"pa"), Some(b"pc"));
        assert_eq!((scale.bits, scale.base), (1 << 6 | 42, (0x61 << 14) as u16 ^ 0x8000));
        let edge = InteriorScale::new((None, None), b"user:name:3", b"user:name:7");
        assert_eq!((edge.scale().bits, edge.scale().base), (10 << 6 | 63, 43));
        let number = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        assert_eq!(edge.edge_words(), [number(b"3\0\0\0\0\0\0\0"), number(b"user:nam"), number(b"e:\0\0\0\0\0\0"), 0]);
    }

    #[test]
    fn keys_beyond_an_edge_have_the_outermost_windows() {
        let edge = InteriorScale::new((None, None), b"user:3", b"user:7");
        assert!(edge.scale().has_edge());
        let keys = [&b""[..], b"use", b"user:", b"user:2", b"user:3", b"user:5", b"user:7", b"user:8", b"v", b"user;"];
        let windows = keys.map(|key| from_zero(edge.window(key)));
        assert_eq!(windows, [0, 0, 0, 0, 0, 0x4000, 0x8000, 0xa000, 0xffff, 0xffff]);
    }

    #[test]
    fn windows_of_random_keys_are_ordered_and_spread() {
        let seed = 11;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..20_000 {
            let key = |random: &mut Xoshiro256PlusPlus| -> Vec<u8> {
                let mut key =
                    [&b""[..], b"p", b"a prefix longer than an edge can hold"][random.random_range(0..3)].to_vec();
                let size = random.random_range(1..14);
                key.extend((0..size).map(|_| [0, 1, 0x7f, 0xff][random.random_range(0..4)]));
                key
            };
            let mut keys: Vec<Vec<u8>> = (0..8).map(|_| key(&mut random)).collect();
            keys.sort();
            let scale = Scale::between(Some(&keys[0]), Some(&keys[7]));
            let windows: Vec<i16> = keys.iter().map(|key| scale.window(key)).collect();
            let context = format!("seed {seed} round {round}: {keys:x?}");
            assert!(windows.is_sorted(), "{context}: {scale:?} {windows:?}");
            assert_eq!(windows[0], i16::MIN, "{context}: {scale:?}");
            assert!(scale.bits.is_multiple_of(1 << SHIFT_BITS) || windows[7] >= 0, "{context}: {scale:?} {windows:?}");

            let fence =
                |place: usize, random: &mut Xoshiro256PlusPlus| random.random_bool(0.5).then(|| keys[place].as_slice());
            let fences = (fence(0, &mut random), fence(7, &mut random));
            let scale = InteriorScale::new(fences, &keys[random.random_range(1..4)], &keys[random.random_range(4..7)]);
            let windows: Vec<i16> = keys.iter().map(|key| scale.window(key)).collect();
            assert!(windows.is_sorted(), "{context}: {fences:x?} {scale:?} {windows:?}");
        }
    }
}
