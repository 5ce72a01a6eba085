//! Key-head encodings: how the keys of a node become key heads.
//!
//! ```text
//! key        prefix │ 8 bytes: a number n │ ...       both fences of the node begin with the prefix
//! key head   (n >> shift) − (low fence's n >> shift) − 2¹⁵            the least shift for which 16 bits hold all
//! bits       prefix size 10 │ shift 6               with an outer bound: `offset` is the shift, these six bits are 63
//! bound      low fence's n 8 │ prefix 24: three numbers like n
//! ```
//!
//! A short key is filled up with zeros. The key heads of a node's keys are spread over at least half of all numbers, so
//! two separators seldom have the same one.
//!
//! A node at an end of the tree lacks a fence. If the separators of an interior node share a prefix, its first or last
//! separator replaces the fence. Keys beyond it have the lowest or the greatest key head; the [`OuterBound`] in line 0
//! identifies them. So keys that all begin with `user:` still differ at the root.

use std::cmp::Ordering;

use super::{Target, common_size};
use skep_core::operation::KEY_SIZE_MAX;

/// The shift of the largest range of numbers.
const SHIFT_MAX: u16 = 48;
/// Bits of a shift.
const SHIFT_BITS: u32 = 6;
/// The shift bits of an encoding with an outer bound.
const OUTER_BOUND: u16 = (1 << SHIFT_BITS) - 1;
/// Bytes of a number.
const NUMBER_SIZE: usize = size_of::<u64>();
/// Most bytes of a prefix that an outer bound can hold.
const OUTER_BOUND_PREFIX_SIZE_MAX: usize = 24;
/// Words of an outer bound.
pub(crate) const OUTER_BOUND_WORD_COUNT: usize = 4;

const _: () = assert!(SHIFT_MAX < OUTER_BOUND && KEY_SIZE_MAX < 1 << (u16::BITS - SHIFT_BITS));
const _: () = assert!(NUMBER_SIZE + OUTER_BOUND_PREFIX_SIZE_MAX == OUTER_BOUND_WORD_COUNT * NUMBER_SIZE);

/// Makes the key heads of a node's keys. Two numbers that fit registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    /// Prefix size and shift.
    pub(crate) bits: u16,
    /// The number that is subtracted.
    pub(crate) offset: u16,
}

impl Encoding {
    /// Returns the encoding of the keys between two fences, the fences included. A fence is `None` at an end of the
    /// tree.
    pub(crate) fn between(low: Option<&[u8]>, high: Option<&[u8]>) -> Self {
        let prefix_size = low.zip(high).map_or(0, |(low, high)| common_size(low, high));
        let low = low.map_or(0, |low| number_after(low, prefix_size));
        let shift = shift_between(low, high.map_or(u64::MAX, |high| number_after(high, prefix_size)));
        // The key head of the low fence is the lowest.
        let offset = ((low >> shift) as u16).wrapping_sub(i16::MIN.cast_unsigned());
        Encoding { bits: (prefix_size as u16) << SHIFT_BITS | shift, offset }
    }

    /// Returns true if a key may be beyond the fences, so that the outer bound is needed.
    #[inline(always)]
    pub(crate) fn has_outer_bound(self) -> bool {
        self.bits % (1 << SHIFT_BITS) == OUTER_BOUND
    }

    #[inline(always)]
    fn prefix_size(self) -> usize {
        usize::from(self.bits >> SHIFT_BITS)
    }

    /// Returns the key head of a target. That of the right end of the tree is the greatest.
    #[inline(always)]
    pub(crate) fn key_head_of(self, target: Target<'_>) -> i16 {
        target.key().map_or(i16::MAX, |key| self.key_head(key))
    }

    /// Returns the key head of a key between the fences. With an outer bound the result is arbitrary.
    #[inline(always)]
    pub(crate) fn key_head(self, key: &[u8]) -> i16 {
        // Both are cut to 16 bits, so their difference is right if it fits 16 bits.
        let number = number_after(key, self.prefix_size());
        ((number >> (self.bits % (1 << SHIFT_BITS))) as u16).wrapping_sub(self.offset).cast_signed()
    }
}

/// Returns the least shift after which 16 bits hold the difference.
fn shift_between(low: u64, high: u64) -> u16 {
    let fits = |shift: &u16| (high >> shift) - (low >> shift) <= u64::from(u16::MAX);
    (0..SHIFT_MAX).find(fits).unwrap_or(SHIFT_MAX)
}

/// Returns the eight bytes of a key after `prefix_size` of them as a number.
#[inline(always)]
fn number_after(key: &[u8], prefix_size: usize) -> u64 {
    let bytes = key.get(prefix_size..prefix_size + NUMBER_SIZE).and_then(<[u8]>::first_chunk);
    bytes.map_or_else(|| number_of_last(key, prefix_size), |bytes| u64::from_be_bytes(*bytes))
}

/// Does the same for a key that has fewer bytes.
#[inline(never)]
fn number_of_last(key: &[u8], prefix_size: usize) -> u64 {
    if let Some(last) = key.last_chunk() {
        let lacking = (prefix_size + NUMBER_SIZE - key.len()) as u32;
        return u64::from_be_bytes(*last).checked_shl(lacking * u8::BITS).unwrap_or(0);
    }
    let bytes = key.get(prefix_size..).unwrap_or(&[]).iter();
    bytes.zip(1..).map(|(byte, index)| u64::from(*byte) << (u64::BITS - index * u8::BITS)).sum()
}

/// The encoding of an interior node that lacks a fence, and the bound beyond which keys may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OuterBound {
    encoding: Encoding,
    words: [u64; OUTER_BOUND_WORD_COUNT],
}

impl OuterBound {
    /// Returns the encoding of a node between these fences or their replacements.
    fn between(low: &[u8], high: &[u8]) -> Self {
        let prefix_size = common_size(low, high).min(OUTER_BOUND_PREFIX_SIZE_MAX);
        let number = number_after(low, prefix_size);
        let shift = shift_between(number, number_after(high, prefix_size));
        let part = |index: usize| number_after(&low[..prefix_size], index * NUMBER_SIZE);
        OuterBound {
            encoding: Encoding { bits: (prefix_size as u16) << SHIFT_BITS | OUTER_BOUND, offset: shift },
            words: [number, part(0), part(1), part(2)],
        }
    }

    #[inline]
    pub(crate) fn of_words(encoding: Encoding, words: [u64; OUTER_BOUND_WORD_COUNT]) -> Self {
        OuterBound { encoding, words }
    }

    /// Returns the key head of any key.
    #[inline]
    pub(crate) fn key_head(&self, key: &[u8]) -> i16 {
        let [low, prefix @ ..] = &self.words;
        let (prefix_size, mut compared) = (self.encoding.prefix_size(), 0);
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
        let shift = self.encoding.offset;
        let above = (number_after(key, prefix_size).max(*low) >> shift) - (low >> shift);
        (above.min(u64::from(u16::MAX)) as u16).wrapping_add(i16::MIN.cast_unsigned()).cast_signed()
    }
}

/// Makes the key heads of an interior node's separators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InteriorEncoding {
    /// Between two fences, or over all keys.
    Inner(Encoding),
    /// At an end of the tree, for keys that share a prefix.
    Outer(OuterBound),
}

impl InteriorEncoding {
    /// Returns the encoding of a node between two fences, `None` at the ends of the tree, with this first and last
    /// separator.
    pub(crate) fn new(low_fence: Option<&[u8]>, high_fence: Option<&[u8]>, first: &[u8], last: &[u8]) -> Self {
        let (low, high) = (low_fence.unwrap_or(first), high_fence.unwrap_or(last));
        let is_inner = low_fence.is_some() && high_fence.is_some();
        // Separators that differ in their first byte use enough of all key heads. A single separator is compared itself
        // as fast.
        if is_inner || common_size(low, high) == 0 || low == high {
            InteriorEncoding::Inner(Encoding::between(low_fence, high_fence))
        } else {
            InteriorEncoding::Outer(OuterBound::between(low, high))
        }
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            InteriorEncoding::Inner(encoding) => *encoding,
            InteriorEncoding::Outer(outer_bound) => outer_bound.encoding,
        }
    }

    pub(crate) fn key_head(&self, key: &[u8]) -> i16 {
        match self {
            InteriorEncoding::Inner(encoding) => encoding.key_head(key),
            InteriorEncoding::Outer(outer_bound) => outer_bound.key_head(key),
        }
    }

    /// Returns the words of the outer bound, zeros if there is none.
    pub(crate) fn outer_bound_words(&self) -> [u64; OUTER_BOUND_WORD_COUNT] {
        match self {
            InteriorEncoding::Inner(_) => [0; OUTER_BOUND_WORD_COUNT],
            InteriorEncoding::Outer(outer_bound) => outer_bound.words,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Returns a key head as a number from 0 on.
    fn from_zero(key_head: i16) -> i32 {
        i32::from(key_head) - i32::from(i16::MIN)
    }

    #[test]
    fn windows_are_drawn_from_the_bytes_behind_the_prefix() {
        let keys: [&[u8]; 7] = [b"p", b"p\0", b"p\0\0z", b"pa", b"pab", b"pb", b"p\xff\xff\xff"];
        let key_heads = keys.map(|key| from_zero(Encoding::between(None, None).key_head(key)));
        assert_eq!(key_heads, [0x7000, 0x7000, 0x7000, 0x7061, 0x7061, 0x7062, 0x70ff]);
        let keys = [&b"pa"[..], b"pa\0\0", b"pa\x01\0", b"pab", b"pb", b"pb\0zzzzzzzzz", b"pc"];
        let key_heads = keys.map(|key| from_zero(Encoding::between(Some(b"pa"), Some(b"pc")).key_head(key)));
        assert_eq!(key_heads, [0, 0, 0x40, 0x1880, 0x4000, 0x401e, 0x8000]);
    }

    #[test]
    fn scales_and_edges_lie_as_they_are_drawn() {
        let encoding = Encoding::between(Some(b"pa"), Some(b"pc"));
        assert_eq!((encoding.bits, encoding.offset), (1 << 6 | 42, (0x61 << 14) as u16 ^ 0x8000));
        let outer_bound = InteriorEncoding::new(None, None, b"user:name:3", b"user:name:7");
        assert_eq!((outer_bound.encoding().bits, outer_bound.encoding().offset), (10 << 6 | 63, 43));
        let number = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        assert_eq!(
            outer_bound.outer_bound_words(),
            [number(b"3\0\0\0\0\0\0\0"), number(b"user:nam"), number(b"e:\0\0\0\0\0\0"), 0]
        );
    }

    #[test]
    fn keys_beyond_an_edge_have_the_outermost_windows() {
        let outer_bound = InteriorEncoding::new(None, None, b"user:3", b"user:7");
        assert!(outer_bound.encoding().has_outer_bound());
        let keys = [&b""[..], b"use", b"user:", b"user:2", b"user:3", b"user:5", b"user:7", b"user:8", b"v", b"user;"];
        let key_heads = keys.map(|key| from_zero(outer_bound.key_head(key)));
        assert_eq!(key_heads, [0, 0, 0, 0, 0, 0x4000, 0x8000, 0xa000, 0xffff, 0xffff]);
    }

    #[test]
    fn windows_of_random_keys_are_ordered_and_spread() {
        let seed = 11;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..20_000 {
            let key = |random: &mut Xoshiro256PlusPlus| -> Vec<u8> {
                let mut key = [&b""[..], b"p", b"a prefix longer than an outer bound can hold"]
                    [random.random_range(0..3)]
                .to_vec();
                let size = random.random_range(1..14);
                key.extend((0..size).map(|_| [0, 1, 0x7f, 0xff][random.random_range(0..4)]));
                key
            };
            let mut keys: Vec<Vec<u8>> = (0..8).map(|_| key(&mut random)).collect();
            keys.sort();
            let encoding = Encoding::between(Some(&keys[0]), Some(&keys[7]));
            let key_heads: Vec<i16> = keys.iter().map(|key| encoding.key_head(key)).collect();
            let context = format!("seed {seed} round {round}: {keys:x?}");
            assert!(key_heads.is_sorted(), "{context}: {encoding:?} {key_heads:?}");
            assert_eq!(key_heads[0], i16::MIN, "{context}: {encoding:?}");
            assert!(
                encoding.bits.is_multiple_of(1 << SHIFT_BITS) || key_heads[7] >= 0,
                "{context}: {encoding:?} {key_heads:?}"
            );

            let fence =
                |index: usize, random: &mut Xoshiro256PlusPlus| random.random_bool(0.5).then(|| keys[index].as_slice());
            let (low, high) = (fence(0, &mut random), fence(7, &mut random));
            let (first, last) = (&keys[random.random_range(1..4)], &keys[random.random_range(4..7)]);
            let encoding = InteriorEncoding::new(low, high, first, last);
            let key_heads: Vec<i16> = keys.iter().map(|key| encoding.key_head(key)).collect();
            assert!(key_heads.is_sorted(), "{context}: {low:x?} {high:x?} {encoding:?} {key_heads:?}");
        }
    }
}
