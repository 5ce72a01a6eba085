//! Finding a key in a bucket: all ten slots are compared at once, without a branch for each.
//!
//! ```text
//! slot    0         1         2              9
//! word    ├─ 8 B ─┤                                the eight bytes from the slot on, the last slot's filled with zeros
//!              ├─ 8 B ─┤
//!                   ├─ 8 B ─┤   ...   ├ 5 B ┤
//! ```
//!
//! Both searches come down to one comparison of some bits of every word: the first bytes of a key, or the secondary hash
//! of a slot that points to a slab. [`Lanes`] is the seam: AVX2 where the processor has it, numbers elsewhere, tested
//! against each other. Each search is compiled for both, and stays out of line: it needs all registers for itself. Which
//! one it is, is found out once, by [`Search::new`].
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "functions that are compiled for AVX2, and their loads")
)]

use super::bucket::{
    Bucket, INLINE_SIZE_MAX, InlinePair, SLOT_COUNT, SLOT_SIZE, SLOTS_OFFSET, SecondaryHash, SlabSlot,
};
use crate::memory::{LINE_SIZE, Line, Pointer};

/// A set of slots: slot `s` is bit `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotSet(u32);

impl SlotSet {
    /// The lowest slot of the set.
    #[inline(always)]
    fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// The set without its lowest slot.
    #[inline(always)]
    fn without_first(self) -> Self {
        SlotSet(self.0 & self.0.wrapping_sub(1))
    }

    /// The slots of the set from this one on.
    #[inline(always)]
    fn from(self, slot: usize) -> Self {
        SlotSet(self.0 >> slot << slot)
    }
}

/// A way to compare the words of all slots.
trait Lanes: Copy {
    /// The slots of which the word has the bits of `expected` wherever `mask` has ones. `expected` has ones nowhere else.
    fn slots_where(self, line: &Line, mask: u64, expected: u64) -> SlotSet;
}

/// How buckets are searched on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

impl Default for Search {
    fn default() -> Self {
        Search::new()
    }
}

impl Search {
    /// Asks the processor what it can.
    pub fn new() -> Self {
        Search {
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
        }
    }

    /// The inline pair with this key.
    #[inline(always)]
    pub fn inline_pair(self, bucket: &Bucket, key: &[u8]) -> Option<InlinePair> {
        match self.first_look(bucket, key) {
            Sighting::Pair(pair) => Some(pair),
            Sighting::Nothing => None,
            Sighting::Unclear => inline_pair_of(bucket, key),
        }
    }

    #[inline(always)]
    fn first_look(self, bucket: &Bucket, key: &[u8]) -> Sighting {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            // SAFETY: the processor has what the function is compiled for, as `avx2` proves.
            return unsafe { avx2::first_look(avx2, bucket, key) };
        }
        first_look_scalar(bucket, key)
    }

    /// The first slot from `from` on that points to a slab and has this secondary hash.
    #[inline(always)]
    pub fn slab(self, bucket: &Bucket, secondary: SecondaryHash, from: usize) -> Option<(usize, SlabSlot)> {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            // SAFETY: the processor has what the function is compiled for, as `avx2` proves.
            return unsafe { avx2::slab(avx2, bucket, secondary, from) };
        }
        slab_scalar(bucket, secondary, from)
    }
}

/// What a first look at a bucket shows of an inline pair.
enum Sighting {
    /// There is none.
    Nothing,
    /// Here it is.
    Pair(InlinePair),
    /// It takes a closer look.
    Unclear,
}

/// As a rule the pair is the first candidate, and two words hold its key. Whatever needs a call is left to others, so
/// that nothing has to be saved for it.
#[inline(always)]
fn first_look(lanes: impl Lanes, bucket: &Bucket, key: &[u8]) -> Sighting {
    if key.len() > 16 {
        return if key.len() > INLINE_SIZE_MAX { Sighting::Nothing } else { Sighting::Unclear };
    }
    let (prefix, mask) = key_prefix(key);
    let candidates = lanes.slots_where(bucket.as_line(), mask, prefix);
    let Some(slot) = candidates.first() else { return Sighting::Nothing };
    let last_word = |key: &[u8]| key.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    match bucket.inline_pair(slot) {
        Some(pair)
            if usize::from(pair.key_size) == key.len()
                && (key.len() <= 8 || last_word(bucket.inline_key(pair)) == last_word(key)) =>
        {
            Sighting::Pair(pair)
        }
        _ => Sighting::Unclear,
    }
}

/// The inline pair with this key, after a closer look.
#[cold]
#[inline(never)]
fn inline_pair_of(bucket: &Bucket, key: &[u8]) -> Option<InlinePair> {
    let pairs = (0..SLOT_COUNT).filter_map(|slot| bucket.inline_pair(slot));
    pairs.into_iter().find(|pair| bucket.inline_key(*pair) == key)
}

#[inline(always)]
fn slab(lanes: impl Lanes, bucket: &Bucket, secondary: SecondaryHash, from: usize) -> Option<(usize, SlabSlot)> {
    let mask = SecondaryHash::MASK << Pointer::BITS;
    let expected = secondary.bits() << Pointer::BITS;
    let mut candidates = lanes.slots_where(bucket.as_line(), mask, expected).from(from);
    while let Some(slot) = candidates.first() {
        if let Some(slab) = bucket.slab_slot(slot) {
            return Some((slot, slab));
        }
        candidates = candidates.without_first();
    }
    None
}

/// The first eight bytes of a key as a little-endian number, and the mask of those that there are. The bytes of a shorter
/// key come as two words that may overlap: a call to copy them would cost more than the search.
#[inline(always)]
fn key_prefix(key: &[u8]) -> (u64, u64) {
    if let Some(first) = key.first_chunk() {
        return (u64::from_le_bytes(*first), u64::MAX);
    }
    let size = key.len();
    let prefix = if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (size - 4))
    } else if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        u64::from(u16::from_le_bytes(*first)) | u64::from(u16::from_le_bytes(*last)) << (8 * (size - 2))
    } else {
        u64::from(key.first().copied().unwrap_or(0))
    };
    (prefix, (1 << (8 * size)) - 1)
}

#[inline(never)]
fn first_look_scalar(bucket: &Bucket, key: &[u8]) -> Sighting {
    first_look(Scalar, bucket, key)
}

#[inline(never)]
fn slab_scalar(bucket: &Bucket, secondary: SecondaryHash, from: usize) -> Option<(usize, SlabSlot)> {
    slab(Scalar, bucket, secondary, from)
}

/// One word after the other.
#[derive(Clone, Copy)]
struct Scalar;

impl Lanes for Scalar {
    #[inline(always)]
    fn slots_where(self, line: &Line, mask: u64, expected: u64) -> SlotSet {
        let bit = |slot: usize| u32::from(word(line, slot) & mask == expected) << slot;
        SlotSet((0..SLOT_COUNT).map(bit).sum())
    }
}

/// The word of a slot.
#[inline(always)]
fn word(line: &Line, slot: usize) -> u64 {
    // The last slot ends with the line: its bytes are the upper ones of the line's last eight.
    let offset = SLOTS_OFFSET + slot * SLOT_SIZE;
    let start = offset.min(LINE_SIZE - 8);
    let bytes = line.0[start..].first_chunk().expect("eight bytes of the line");
    u64::from_le_bytes(*bytes) >> (8 * (offset - start))
}

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_and_si128, _mm_castsi128_pd, _mm_cmpeq_epi64, _mm_loadu_si128, _mm_movemask_pd,
        _mm_set1_epi64x, _mm_setr_epi8, _mm_shuffle_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_movemask_pd, _mm256_set_m128i, _mm256_set1_epi64x,
        _mm256_shuffle_epi8,
    };

    use super::{Bucket, LINE_SIZE, Lanes, Line, SLOT_COUNT, SLOT_SIZE, SLOTS_OFFSET, SecondaryHash, Sighting};
    use super::{SlabSlot, SlotSet};

    /// Proof that the processor has AVX2 and what came with it.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Avx2(());

    impl Avx2 {
        #[inline(always)]
        pub(super) fn detect() -> Option<Self> {
            let has_bits = is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt");
            (has_bits && is_x86_feature_detected!("avx2")).then_some(Avx2(()))
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    #[inline(never)]
    pub(super) fn first_look(avx2: Avx2, bucket: &Bucket, key: &[u8]) -> Sighting {
        super::first_look(avx2, bucket, key)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    #[inline(never)]
    pub(super) fn slab(
        avx2: Avx2,
        bucket: &Bucket,
        secondary: SecondaryHash,
        from: usize,
    ) -> Option<(usize, SlabSlot)> {
        super::slab(avx2, bucket, secondary, from)
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn slots_where(self, line: &Line, mask: u64, expected: u64) -> SlotSet {
            // SAFETY: the processor has AVX2, as `self` proves.
            unsafe { slots_where(line, mask, expected) }
        }
    }

    /// Sixteen bytes hold two words: at the first byte and five bytes on.
    ///
    /// ```text
    /// load   14       24       34       44       48
    /// words  14 19    24 29    34 39    44 49       54 59     the last load ends with the line
    /// ```
    #[target_feature(enable = "avx2")]
    #[inline]
    fn slots_where(line: &Line, mask: u64, expected: u64) -> SlotSet {
        const _: () = assert!(SLOT_COUNT == 10 && SLOT_SIZE == 5 && SLOTS_OFFSET == 14 && LINE_SIZE == 64);
        let load = |offset: usize| -> __m128i {
            let bytes: &[u8; 16] = line.0[offset..].first_chunk().expect("sixteen bytes of the line");
            // SAFETY: the reference is to sixteen bytes; the load asks for no alignment.
            unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
        };
        let pair = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10, 11, 12);
        let last_pair = _mm_setr_epi8(6, 7, 8, 9, 10, 11, 12, 13, 11, 12, 13, 14, 15, -1, -1, -1);
        let equal = |loads: __m256i| {
            let words = _mm256_shuffle_epi8(loads, _mm256_broadcastsi128_si256(pair));
            let masked = _mm256_and_si256(words, _mm256_set1_epi64x(mask as i64));
            let equal = _mm256_cmpeq_epi64(masked, _mm256_set1_epi64x(expected as i64));
            _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32
        };
        let words = _mm_shuffle_epi8(load(48), last_pair);
        let last =
            _mm_cmpeq_epi64(_mm_and_si128(words, _mm_set1_epi64x(mask as i64)), _mm_set1_epi64x(expected as i64));
        let last = _mm_movemask_pd(_mm_castsi128_pd(last)) as u32;
        let first = equal(_mm256_set_m128i(load(24), load(14)));
        let middle = equal(_mm256_set_m128i(load(44), load(34)));
        SlotSet(first | middle << 4 | last << 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_first_bytes_of_a_key() {
        let key: Vec<u8> = (1..=12).collect();
        for size in 0..=key.len() {
            let mut first = [0; 8];
            first[..size.min(8)].copy_from_slice(&key[..size.min(8)]);
            let (prefix, mask) = key_prefix(&key[..size]);
            assert_eq!(prefix.to_le_bytes(), first, "{size} bytes");
            assert_eq!(mask.to_le_bytes(), std::array::from_fn(|place| if place < size { 0xff } else { 0 }));
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn both_ways_to_compare_find_the_same_slots() {
        use rand::{RngExt, SeedableRng};
        let Some(avx2) = Avx2::detect() else { return };
        let seed = 5;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut found = [0; SLOT_COUNT];
        for round in 0..100_000 {
            // Few different bytes, so that slots agree in part and as a whole.
            let line = Line(std::array::from_fn(|_| random.random_range(0..2)));
            let mask = [u64::MAX, u64::MAX >> (8 * random.random_range(0..8)), 0x1ff << 31][round % 3];
            let expected = match random.random_range(0..3) {
                0 => random.random::<u64>() & 0x0101_0101_0101_0101,
                _ => word(&line, random.random_range(0..SLOT_COUNT)),
            } & mask;
            let slots = Scalar.slots_where(&line, mask, expected);
            let context = format!("seed {seed} round {round}: {line:?} {mask:#x} {expected:#x}");
            assert_eq!(avx2.slots_where(&line, mask, expected), slots, "{context}");
            for (slot, found) in found.iter_mut().enumerate() {
                *found += u32::from(slots.0 >> slot & 1 == 1);
            }
        }
        assert!(found.iter().all(|count| *count > 1000), "every slot was found: {found:?}");
    }
}
