//! Finding a key in a bucket: all ten slots are compared at once, without a branch for each.
//!
//! ```text
//! marked bytes that are the key's last, shifted to where it begins  ..x...x............x...........
//! bytes at which a slot begins                                      ..............1....1....1....1.
//! both: the candidates                                              ...................x...........
//! ```
//!
//! 1. [`Lanes::bytes_equal`] compares one byte with all bytes of the line. The last byte of a key is compared first: it
//!    has a mark, and it differs between decimal or big-endian counters. The first byte is compared only if several
//!    candidates are left. It differs between little-endian counters.
//! 2. For each candidate, the search checks if a pair begins there, the size of its key, and all bytes of the key. The
//!    first candidate is nearly always the pair.
//! 3. Only if there is no such pair, the search compares the secondary hash with the slots that point to a slab: eight
//!    of its nine bits are a byte of the slot.
//!
//! [`Lanes`] is the interface. It is implemented with AVX2 where the processor has it, and with plain numbers
//! elsewhere. The two are tested against each other. [`Search::new`] finds out once which one this machine has.
//! [`Search::run`] runs work that was compiled for it, from one probe to a loop over a whole batch.
#![expect(unsafe_code, reason = "functions that are compiled for AVX2, and loads whose bounds follow from the marks")]

use super::bucket::{
    Bucket, INLINE_SIZE_MAX, InlinePair, SLOT_COUNT, SLOT_SIZE, SLOTS_OFFSET, SecondaryHash, SlabSlot,
};
use crate::memory::{LINE_SIZE, Line};
use crate::short::{SHORT_SIZE_MAX, equal, load_short};

/// The bytes of a line at which slots begin. Byte `i` is bit `i`.
const SLOT_STARTS: u64 = {
    let (mut starts, mut slot) = (0, 0);
    while slot < SLOT_COUNT {
        starts |= 1 << (SLOTS_OFFSET + slot * SLOT_SIZE);
        slot += 1;
    }
    starts
};

/// Candidates of a search: the bytes at which their slots begin, as in [`SLOT_STARTS`].
#[derive(Clone, Copy)]
struct Candidates(u64);

impl Iterator for Candidates {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let offset = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(offset)
    }
}

/// A way to compare all bytes of a line.
pub(crate) trait Lanes: Copy {
    /// Returns the bytes of the line that are equal to `byte`. Byte `i` is bit `i`.
    fn bytes_equal(self, line: &Line, byte: u8) -> u64;
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

/// The result of searching one bucket for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    /// The bucket has neither its inline pair nor a slab with its secondary hash.
    Absent,
    /// Its inline pair.
    Pair(InlinePair),
    /// No inline pair, and the first slot whose slab may hold its pair.
    Slab(u8, SlabSlot),
}

/// Work that is compiled for the lanes of the machine it runs on.
pub(crate) trait WithLanes {
    /// Its result.
    type Output;

    /// Does the work. Must be inlined always: otherwise it is compiled without the lanes.
    fn run(self, lanes: impl Lanes) -> Self::Output;
}

impl Search {
    /// Finds out which lanes the processor has.
    pub fn new() -> Self {
        Search {
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
        }
    }

    /// Does some work with the lanes of this machine.
    #[inline(always)]
    pub(crate) fn run<W: WithLanes>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            // SAFETY: the processor has what the function is compiled for, as `avx2` proves.
            return unsafe { avx2::run(avx2, work) };
        }
        work.run(Scalar)
    }

    /// Searches a bucket for a key.
    #[inline(always)]
    pub(super) fn probe(self, bucket: &Bucket, key: &[u8], secondary: SecondaryHash) -> Probe {
        self.run(ProbeOne { bucket, key, secondary })
    }

    /// Returns the inline pair with this key.
    #[inline]
    pub fn inline_pair(self, bucket: &Bucket, key: &[u8]) -> Option<InlinePair> {
        self.run(FindPair { bucket, key })
    }

    /// Returns the first slot from `from` on that points to a slab and has this secondary hash.
    #[inline]
    pub fn slab(self, bucket: &Bucket, secondary: SecondaryHash, from: usize) -> Option<(usize, SlabSlot)> {
        self.run(FindSlab { bucket, secondary, from })
    }
}

/// Returns the bytes at which an inline pair with this key may begin.
#[inline(always)]
fn candidates(lanes: impl Lanes, bucket: &Bucket, key: &[u8]) -> Candidates {
    let (Some(first), Some(last)) = (key.first(), key.last()) else { return Candidates(0) };
    if key.len() > INLINE_SIZE_MAX {
        return Candidates(0);
    }
    let ends = lanes.bytes_equal(bucket.as_line(), *last) & bucket.marks_of_bytes();
    let mut candidates = (ends >> (key.len() - 1)) & SLOT_STARTS;
    if candidates & candidates.wrapping_sub(1) != 0 {
        candidates &= lanes.bytes_equal(bucket.as_line(), *first);
    }
    Candidates(candidates)
}

/// The result of [`find_short_value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuickProbe {
    /// The position of the value of the inline pair.
    Short(ShortValue),
    /// There is no inline pair with this key.
    NoPair,
    /// Only a [`probe`] can tell.
    Unclear,
}

/// Searches a bucket for the inline pair with this key. Finds it if the key has at most 16 bytes, the value one to
/// eight, and the pair is the first candidate, as it nearly always is.
///
/// It has no loop and no call, so a loop over a batch keeps its state in registers.
#[inline(always)]
pub(crate) fn find_short_value(lanes: impl Lanes, bucket: &Bucket, key: &[u8]) -> QuickProbe {
    let key_end = key.len().wrapping_sub(1);
    if key_end >= 2 * SHORT_SIZE_MAX {
        return QuickProbe::Unclear;
    }
    let (line, marks) = (bucket.as_line(), bucket.marks_of_bytes());
    let mut candidates = ((lanes.bytes_equal(line, key[key_end]) & marks) >> key_end) & SLOT_STARTS;
    if candidates == 0 {
        return QuickProbe::NoPair;
    }
    if candidates & (candidates - 1) != 0 {
        candidates &= lanes.bytes_equal(line, key[0]);
        if candidates == 0 {
            return QuickProbe::NoPair;
        }
    }
    // From the slot on, the first mark is the key's last byte and the second the value's. If the value is empty, the
    // second mark belongs to another pair.
    let offset = candidates.trailing_zeros() as usize;
    let marks = marks >> offset;
    let first_mark = marks.trailing_zeros() as usize;
    let value_end = (marks & (marks.wrapping_sub(1))).trailing_zeros() as usize;
    let value_size = value_end.wrapping_sub(key_end);
    if first_mark != key_end || value_size > SHORT_SIZE_MAX || !bucket.is_in_pair(offset, value_end) {
        return QuickProbe::Unclear;
    }
    // SAFETY: marks are bits of a number of 64, so both ends are in the line. A slot begins at `offset`, so they are at
    // least `SLOTS_OFFSET`.
    let words_end_in_line = |end: usize| unsafe { word_ending_at(line, offset + end + 1) };
    let is_key = if key.len() == SHORT_SIZE_MAX {
        words_end_in_line(key_end) == load_short(key)
    } else if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        words_end_in_line(key_end) == u64::from_le_bytes(*last)
            && words_end_in_line(SHORT_SIZE_MAX - 1) == u64::from_le_bytes(*first)
    } else {
        words_end_in_line(key_end) >> ((64 - 8 * key.len()) & 63) == load_short(key)
    };
    if !is_key {
        return QuickProbe::Unclear;
    }
    QuickProbe::Short(ShortValue { end: (offset + value_end + 1) as u8, size: value_size as u8 })
}

/// The position of a value of one to eight bytes in its bucket.
///
/// It is read and written with the eight bytes that end where it ends. They are all in the line, because the slots
/// begin at byte 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortValue {
    /// The byte after it, from [`SLOTS_OFFSET`] to [`LINE_SIZE`].
    end: u8,
    /// Its bytes, from one to eight.
    size: u8,
}

impl ShortValue {
    /// Its bytes.
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        self.size.into()
    }

    /// Returns the pair that it belongs to, whose key has `key_size` bytes.
    #[inline(always)]
    pub(crate) fn pair(self, key_size: usize) -> InlinePair {
        InlinePair::at(usize::from(self.end) - self.size() - key_size, key_size, self.size())
    }

    /// Returns the eight bytes that end with the value, as a number.
    #[inline(always)]
    pub(crate) fn load_word(self, bucket: &Bucket) -> u64 {
        // SAFETY: the end is as the function requires.
        unsafe { word_ending_at(bucket.as_line(), self.end.into()) }
    }

    /// Returns the value as a number, given the eight bytes that end with it.
    #[inline(always)]
    pub(crate) fn value_of(self, word: u64) -> u64 {
        word >> self.shift()
    }

    /// Returns the eight bytes with another value, the lower bytes of a number.
    #[inline(always)]
    pub(crate) fn word_with(self, word: u64, value: u64) -> u64 {
        word & !(u64::MAX << self.shift()) | value << self.shift()
    }

    /// Sets the eight bytes that end with the value.
    #[inline(always)]
    pub(crate) fn store_word(self, bucket: &mut Bucket, word: u64) {
        // SAFETY: the end is as the function requires.
        unsafe { set_word_ending_at(bucket.as_line_mut(), self.end.into(), word) }
    }

    /// Bits before it in the eight bytes that end with it.
    #[inline(always)]
    fn shift(self) -> u32 {
        (8 * u32::from(self.size)).wrapping_neg() & 63
    }
}

/// Returns the eight bytes of a line that end at `end`.
///
/// # Safety
/// `end` is from [`SLOTS_OFFSET`] to [`LINE_SIZE`].
#[inline(always)]
unsafe fn word_ending_at(line: &Line, end: usize) -> u64 {
    debug_assert!((SLOTS_OFFSET..=LINE_SIZE).contains(&end));
    // SAFETY: the eight bytes are in the line, and a read that asks for no alignment may be of any bytes.
    u64::from_le(unsafe { line.0.as_ptr().add(end - SHORT_SIZE_MAX).cast::<u64>().read_unaligned() })
}

/// Sets the eight bytes of a line that end at `end`.
///
/// # Safety
/// As for [`word_ending_at`].
#[inline(always)]
unsafe fn set_word_ending_at(line: &mut Line, end: usize, word: u64) {
    debug_assert!((SLOTS_OFFSET..=LINE_SIZE).contains(&end));
    // SAFETY: as for reading, and the reference is to a line that may be changed.
    unsafe { line.0.as_mut_ptr().add(end - SHORT_SIZE_MAX).cast::<u64>().write_unaligned(word.to_le()) }
}

const _: () = assert!(SLOTS_OFFSET >= SHORT_SIZE_MAX);

/// Returns the inline pair with this key.
#[inline(always)]
pub(super) fn find_pair(lanes: impl Lanes, bucket: &Bucket, key: &[u8]) -> Option<InlinePair> {
    // A loop, because the closure of `find_map` would be compiled without the lanes.
    for offset in candidates(lanes, bucket, key) {
        if let Some(pair) = bucket.inline_pair_at(offset)
            && pair.key_size() == key.len()
            && equal(bucket.inline_key(pair), key)
        {
            return Some(pair);
        }
    }
    None
}

/// Returns the first slot from `from` on that points to a slab and has this secondary hash.
#[inline(always)]
pub(super) fn find_slab(
    lanes: impl Lanes,
    bucket: &Bucket,
    secondary: SecondaryHash,
    from: usize,
) -> Option<(usize, SlabSlot)> {
    let has_upper_bits = lanes.bytes_equal(bucket.as_line(), secondary.upper_bits()) >> (SLOT_SIZE - 1);
    let from = SLOT_STARTS & u64::MAX.checked_shl((SLOTS_OFFSET + from * SLOT_SIZE) as u32).unwrap_or(0);
    for offset in Candidates(has_upper_bits & from) {
        let slot = (offset - SLOTS_OFFSET) / SLOT_SIZE;
        if let Some(slab) = bucket.slab_slot(slot)
            && slab.secondary == secondary
        {
            return Some((slot, slab));
        }
    }
    None
}

/// Searches a bucket for a key, after a quick probe.
#[inline(always)]
pub(crate) fn probe(
    lanes: impl Lanes,
    bucket: &Bucket,
    key: &[u8],
    secondary: SecondaryHash,
    quick: QuickProbe,
) -> Probe {
    let pair = match quick {
        QuickProbe::NoPair => None,
        QuickProbe::Short(position) => Some(position.pair(key.len())),
        QuickProbe::Unclear => find_pair(lanes, bucket, key),
    };
    match pair {
        Some(pair) => Probe::Pair(pair),
        None => probe_slabs(lanes, bucket, secondary),
    }
}

/// Searches a bucket that has no inline pair with a key for a slab that may.
#[inline(always)]
fn probe_slabs(lanes: impl Lanes, bucket: &Bucket, secondary: SecondaryHash) -> Probe {
    match find_slab(lanes, bucket, secondary, 0) {
        Some((slot, slab)) => Probe::Slab(slot as u8, slab),
        None => Probe::Absent,
    }
}

/// A probe of one bucket.
struct ProbeOne<'a> {
    bucket: &'a Bucket,
    key: &'a [u8],
    secondary: SecondaryHash,
}

impl WithLanes for ProbeOne<'_> {
    type Output = Probe;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Probe {
        probe(lanes, self.bucket, self.key, self.secondary, QuickProbe::Unclear)
    }
}

/// A search for an inline pair.
struct FindPair<'a> {
    bucket: &'a Bucket,
    key: &'a [u8],
}

impl WithLanes for FindPair<'_> {
    type Output = Option<InlinePair>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        find_pair(lanes, self.bucket, self.key)
    }
}

/// A search for the first slab from a slot on.
struct FindSlab<'a> {
    bucket: &'a Bucket,
    secondary: SecondaryHash,
    from: usize,
}

impl WithLanes for FindSlab<'_> {
    type Output = Option<(usize, SlabSlot)>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        find_slab(lanes, self.bucket, self.secondary, self.from)
    }
}

/// One word after the other.
#[derive(Clone, Copy)]
struct Scalar;

impl Lanes for Scalar {
    #[inline(always)]
    fn bytes_equal(self, line: &Line, byte: u8) -> u64 {
        const LOWER_BITS: u64 = u64::from_le_bytes([0x7f; 8]);
        /// Moves the highest bit of byte `i` to bit `56 + i`, with no carry between them.
        const GATHER: u64 = 0x0002_0408_1020_4081;
        let wanted = u64::from_le_bytes([byte; 8]);
        line.0.as_chunks().0.iter().rev().fold(0, |equal, word| {
            // A byte is zero where it is equal. Of each byte, the highest bit becomes a one if any bit is one.
            let difference = u64::from_le_bytes(*word) ^ wanted;
            let differs = ((difference & LOWER_BITS) + LOWER_BITS) | difference | LOWER_BITS;
            equal << 8 | (!differs).wrapping_mul(GATHER) >> 56
        })
    }
}

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{_mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8};

    use super::{LINE_SIZE, Lanes, Line, WithLanes};

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
    pub(super) fn run<W: WithLanes>(avx2: Avx2, work: W) -> W::Output {
        work.run(avx2)
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn bytes_equal(self, line: &Line, byte: u8) -> u64 {
            // SAFETY: the processor has AVX2, as `self` proves.
            unsafe { bytes_equal(line, byte) }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn bytes_equal(line: &Line, byte: u8) -> u64 {
        const _: () = assert!(LINE_SIZE == 2 * 32);
        let [lower, upper] = line.0.as_chunks::<32>().0 else { unreachable!("a line is two halves") };
        let equal = |half: &[u8; 32]| {
            // SAFETY: the reference is to 32 bytes; the load asks for no alignment.
            let half = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
            u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(half, _mm256_set1_epi8(byte as i8))) as u32)
        };
        equal(lower) | equal(upper) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::super::bucket::Entry;
    use super::super::slab::SlabClass;
    use super::*;
    use crate::memory::Pointer;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn all_lanes_find_the_same_bytes() {
        let seed = 5;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut found = [0; LINE_SIZE];
        for round in 0..100_000 {
            // Few different bytes, among them those that differ in one bit.
            let of = [0, 1, 0x80, 0xff, random.random()];
            let line = Line(std::array::from_fn(|_| of[random.random_range(0..of.len())]));
            let byte = of[random.random_range(0..of.len())];
            let expected = line.0.iter().rev().fold(0, |bits, other| bits << 1 | u64::from(*other == byte));
            let context = format!("seed {seed} round {round}: {line:?} {byte:#x}");
            assert_eq!(Scalar.bytes_equal(&line, byte), expected, "{context}");
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = Avx2::detect() {
                assert_eq!(avx2.bytes_equal(&line, byte), expected, "{context}");
            }
            for (offset, found) in found.iter_mut().enumerate() {
                *found += expected >> offset & 1;
            }
        }
        assert!(found.iter().all(|count| *count > 1000), "every byte was found: {found:?}");
    }

    /// Buckets of pairs whose keys share their ends, with slabs whose bytes look like pairs.
    #[test]
    fn a_search_finds_what_a_walk_over_the_entries_finds() {
        let seed = 6;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut pairs, mut quick_pairs, mut slabs) = (0, 0, 0);
        for round in 0..50_000 {
            let mut bucket = Bucket::EMPTY;
            let bytes = |random: &mut rand_xoshiro::Xoshiro256PlusPlus, size: usize| -> Vec<u8> {
                (0..size).map(|_| random.random_range(0..2)).collect()
            };
            while bucket.free_slot_count() > 0 {
                let pair_size = random.random_range(1..=20.min(bucket.free_slot_count() * SLOT_SIZE));
                let key_size = random.random_range(1..=pair_size);
                if random.random_bool(0.3) {
                    let secondary = SecondaryHash::from_hash(random.random_range(0..4));
                    let pointer = Pointer::new(random.random_range(0..2) * 0x0101_0101);
                    bucket.push_slab(SlabSlot { class: SlabClass::BUCKET, pointer, secondary });
                } else {
                    bucket.push_inline(&bytes(&mut random, key_size), &bytes(&mut random, pair_size - key_size));
                }
            }
            let key_size = random.random_range(1..=20);
            let key = bytes(&mut random, key_size);
            let secondary = SecondaryHash::from_hash(random.random_range(0..4));
            let from = random.random_range(0..=SLOT_COUNT);
            let pair = bucket.entries().find_map(|(_, entry)| match entry {
                Entry::Inline(pair) if bucket.inline_key(pair) == key => Some(pair),
                _ => None,
            });
            let slab = bucket.entries().find_map(|(slot, entry)| match entry {
                Entry::Slab(slab) if slab.secondary == secondary && slot >= from => Some((slot, slab)),
                _ => None,
            });
            let context = format!("seed {seed} round {round}: {bucket:?} {key:?} {secondary:?} {from}");
            assert_eq!(find_pair(Scalar, &bucket, &key), pair, "{context}");
            assert_eq!(find_slab(Scalar, &bucket, secondary, from), slab, "{context}");
            assert_eq!(Search::new().inline_pair(&bucket, &key), pair, "{context}");
            assert_eq!(Search::new().slab(&bucket, secondary, from), slab, "{context}");
            let quick = find_short_value(Scalar, &bucket, &key);
            match quick {
                QuickProbe::Short(position) => {
                    let pair = position.pair(key.len());
                    assert_eq!(Some(pair), find_pair(Scalar, &bucket, &key), "{context}");
                    let mut changed = bucket;
                    assert_eq!(
                        position.value_of(position.load_word(&bucket)),
                        load_short(changed.inline_value_mut(pair)),
                        "{context}"
                    );
                    let mut expected = bucket;
                    expected.inline_value_mut(pair).fill(0xa5);
                    let word = position.word_with(position.load_word(&changed), u64::from_le_bytes([0xa5; 8]));
                    position.store_word(&mut changed, word);
                    assert_eq!(changed, expected, "{context}");
                    quick_pairs += 1;
                }
                QuickProbe::NoPair => assert_eq!(pair, None, "{context}"),
                QuickProbe::Unclear => {}
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = Avx2::detect() {
                assert_eq!(find_short_value(avx2, &bucket, &key), quick, "{context}");
            }
            (pairs, slabs) = (pairs + u32::from(pair.is_some()), slabs + u32::from(slab.is_some()));
        }
        let found = [pairs, quick_pairs, slabs];
        assert!(found.iter().all(|count| *count > 500), "all were found: {found:?}");
    }
}
