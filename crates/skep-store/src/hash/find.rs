//! Finding a key in a bucket: all ten slots are compared at once, without a branch for each.
//!
//! ```text
//! slot    0         1         2              9
//! word    ├─ 8 B ─┤                                the eight bytes from the slot on, the last slot's filled with zeros
//!              ├─ 8 B ─┤
//!                   ├─ 8 B ─┤   ...   ├ 5 B ┤
//! ```
//!
//! Every search comes down to one comparison of some bits of every word: the first bytes of a key, or the secondary hash
//! of a slot that points to a slab. [`Lanes`] is the seam: AVX2 where the processor has it, numbers elsewhere, tested
//! against each other. [`Search::run`] does work that was compiled for the lanes of this machine, from one look to a loop
//! over a whole batch; which they are is found out once, by [`Search::new`].
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "functions that are compiled for AVX2, and their loads")
)]

use super::bucket::{
    Bucket, INLINE_SIZE_MAX, InlinePair, SLOT_COUNT, SLOT_SIZE, SLOTS_OFFSET, SecondaryHash, SightedPair, SlabSlot,
};
use crate::memory::{LINE_SIZE, Line, Pointer};
use crate::short::load_masked;

/// A set of slots: slot `s` is bit `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotSet(u32);

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
pub(crate) trait Lanes: Copy {
    /// The words of all slots.
    type Words: Copy;

    /// The words of a bucket.
    fn words(self, line: &Line) -> Self::Words;

    /// The slots of which the word has the bits of `expected` wherever `mask` has ones. `expected` has ones nowhere else.
    fn slots_where(self, words: Self::Words, mask: u64, expected: u64) -> SlotSet;
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

/// What a first look at a bucket shows of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sighting {
    /// It is not there.
    Nothing,
    /// Its inline pair.
    Pair(InlinePair),
    /// The first slab that may hold its pair.
    Slab(SlabSlot),
    /// It takes a closer look.
    Unclear,
}

/// Work that is compiled for the lanes of the machine it runs on.
pub(crate) trait WithLanes {
    /// What it ends with.
    type Output;

    /// Does the work. It is to be inlined always, or it is compiled for no particular machine.
    fn run(self, lanes: impl Lanes) -> Self::Output;
}

impl Search {
    /// Asks the processor what it can.
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

    /// Takes a first look for a key in a bucket.
    #[inline(always)]
    pub(super) fn first_look(self, bucket: &Bucket, key: &[u8], secondary: SecondaryHash) -> Sighting {
        self.run(FirstLook { bucket, key, secondary })
    }

    /// What an unclear sighting was: the key was longer than the first look compares, or another begins as it does.
    #[cold]
    #[inline(never)]
    pub(super) fn closer_look(self, bucket: &Bucket, key: &[u8], secondary: SecondaryHash) -> Sighting {
        let mut pairs = (0..SLOT_COUNT).filter_map(|slot| bucket.inline_pair(slot));
        match pairs.find(|pair| bucket.inline_key(*pair) == key) {
            Some(pair) => Sighting::Pair(pair),
            None => self.slab(bucket, secondary, 0).map_or(Sighting::Nothing, |(_, slab)| Sighting::Slab(slab)),
        }
    }

    /// The inline pair with this key.
    #[inline]
    pub fn inline_pair(self, bucket: &Bucket, key: &[u8]) -> Option<InlinePair> {
        let secondary = SecondaryHash::from_hash(0);
        match self.first_look(bucket, key, secondary) {
            Sighting::Pair(pair) => Some(pair),
            Sighting::Unclear => match self.closer_look(bucket, key, secondary) {
                Sighting::Pair(pair) => Some(pair),
                _ => None,
            },
            _ => None,
        }
    }

    /// The first slot from `from` on that points to a slab and has this secondary hash.
    #[inline]
    pub fn slab(self, bucket: &Bucket, secondary: SecondaryHash, from: usize) -> Option<(usize, SlabSlot)> {
        self.run(SlabLook { bucket, secondary, from })
    }
}

/// Why a first look shows no inline pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoPair {
    /// There is none.
    Absent,
    /// It takes a closer look.
    Unclear,
}

/// The inline pair with this key, as far as a first look shows it. As a rule the pair is the first candidate, and two words
/// hold its key. Whatever needs a call is left to others, so that nothing has to be saved for it.
#[inline(always)]
pub(super) fn pair_in_sight<L: Lanes>(
    lanes: L,
    words: L::Words,
    bucket: &Bucket,
    key: &[u8],
) -> Result<SightedPair, NoPair> {
    if key.len() > 16 {
        return Err(if key.len() > INLINE_SIZE_MAX { NoPair::Absent } else { NoPair::Unclear });
    }
    let (prefix, mask) = load_masked(key);
    let Some(slot) = lanes.slots_where(words, mask, prefix).first() else { return Err(NoPair::Absent) };
    let last_word = |key: &[u8]| key.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    match bucket.sighted_pair(slot) {
        Some(pair)
            if pair.key_size() == key.len()
                && (key.len() <= 8 || last_word(bucket.inline_key(pair.into())) == last_word(key)) =>
        {
            Ok(pair)
        }
        _ => Err(NoPair::Unclear),
    }
}

/// What a bucket shows beside a pair in sight.
#[inline(always)]
pub(super) fn beside_pair<L: Lanes>(
    lanes: L,
    words: L::Words,
    bucket: &Bucket,
    no_pair: NoPair,
    secondary: SecondaryHash,
) -> Sighting {
    match no_pair {
        NoPair::Absent => match slab_of(lanes, words, bucket, secondary, 0) {
            Some((_, slab)) => Sighting::Slab(slab),
            None => Sighting::Nothing,
        },
        NoPair::Unclear => Sighting::Unclear,
    }
}

/// One first look.
struct FirstLook<'a> {
    bucket: &'a Bucket,
    key: &'a [u8],
    secondary: SecondaryHash,
}

impl WithLanes for FirstLook<'_> {
    type Output = Sighting;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Sighting {
        let words = lanes.words(self.bucket.as_line());
        match pair_in_sight(lanes, words, self.bucket, self.key) {
            Ok(pair) => Sighting::Pair(pair.into()),
            Err(no_pair) => beside_pair(lanes, words, self.bucket, no_pair, self.secondary),
        }
    }
}

/// A look for the first slab from a slot on.
struct SlabLook<'a> {
    bucket: &'a Bucket,
    secondary: SecondaryHash,
    from: usize,
}

impl WithLanes for SlabLook<'_> {
    type Output = Option<(usize, SlabSlot)>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        slab_of(lanes, lanes.words(self.bucket.as_line()), self.bucket, self.secondary, self.from)
    }
}

#[inline(always)]
fn slab_of<L: Lanes>(
    lanes: L,
    words: L::Words,
    bucket: &Bucket,
    secondary: SecondaryHash,
    from: usize,
) -> Option<(usize, SlabSlot)> {
    let mask = SecondaryHash::MASK << Pointer::BITS;
    let expected = secondary.bits() << Pointer::BITS;
    let mut candidates = lanes.slots_where(words, mask, expected).from(from);
    while let Some(slot) = candidates.first() {
        if let Some(slab) = bucket.slab_slot(slot) {
            return Some((slot, slab));
        }
        candidates = candidates.without_first();
    }
    None
}

/// One word after the other.
#[derive(Clone, Copy)]
struct Scalar;

impl Lanes for Scalar {
    type Words = [u64; SLOT_COUNT];

    #[inline(always)]
    fn words(self, line: &Line) -> Self::Words {
        std::array::from_fn(|slot| word(line, slot))
    }

    #[inline(always)]
    fn slots_where(self, words: Self::Words, mask: u64, expected: u64) -> SlotSet {
        let bit = |slot: usize| u32::from(words[slot] & mask == expected) << slot;
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

    use super::{LINE_SIZE, Lanes, Line, SLOT_COUNT, SLOT_SIZE, SLOTS_OFFSET, SlotSet, WithLanes};

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
        type Words = Words;

        #[inline(always)]
        fn words(self, line: &Line) -> Words {
            // SAFETY: the processor has AVX2, as `self` proves.
            unsafe { words(line) }
        }

        #[inline(always)]
        fn slots_where(self, words: Words, mask: u64, expected: u64) -> SlotSet {
            // SAFETY: the processor has AVX2, as `self` proves.
            unsafe { slots_where(words, mask, expected) }
        }
    }

    /// The words of all slots: four, four, and two.
    #[derive(Clone, Copy)]
    pub(super) struct Words {
        first: __m256i,
        middle: __m256i,
        last: __m128i,
    }

    /// Sixteen bytes hold two words: at the first byte and five bytes on.
    ///
    /// ```text
    /// load   14       24       34       44       48
    /// words  14 19    24 29    34 39    44 49       54 59     the last load ends with the line
    /// ```
    #[target_feature(enable = "avx2")]
    #[inline]
    fn words(line: &Line) -> Words {
        const _: () = assert!(SLOT_COUNT == 10 && SLOT_SIZE == 5 && SLOTS_OFFSET == 14 && LINE_SIZE == 64);
        let load = |offset: usize| -> __m128i {
            let bytes: &[u8; 16] = line.0[offset..].first_chunk().expect("sixteen bytes of the line");
            // SAFETY: the reference is to sixteen bytes; the load asks for no alignment.
            unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
        };
        let pair = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10, 11, 12);
        let last_pair = _mm_setr_epi8(6, 7, 8, 9, 10, 11, 12, 13, 11, 12, 13, 14, 15, -1, -1, -1);
        let two_pairs = |loads: __m256i| -> __m256i { _mm256_shuffle_epi8(loads, _mm256_broadcastsi128_si256(pair)) };
        Words {
            first: two_pairs(_mm256_set_m128i(load(24), load(14))),
            middle: two_pairs(_mm256_set_m128i(load(44), load(34))),
            last: _mm_shuffle_epi8(load(48), last_pair),
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn slots_where(words: Words, mask: u64, expected: u64) -> SlotSet {
        let equal = |words: __m256i| {
            let masked = _mm256_and_si256(words, _mm256_set1_epi64x(mask as i64));
            let equal = _mm256_cmpeq_epi64(masked, _mm256_set1_epi64x(expected as i64));
            _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32
        };
        let last =
            _mm_cmpeq_epi64(_mm_and_si128(words.last, _mm_set1_epi64x(mask as i64)), _mm_set1_epi64x(expected as i64));
        let last = _mm_movemask_pd(_mm_castsi128_pd(last)) as u32;
        SlotSet(equal(words.first) | equal(words.middle) << 4 | last << 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let slots = Scalar.slots_where(Scalar.words(&line), mask, expected);
            let context = format!("seed {seed} round {round}: {line:?} {mask:#x} {expected:#x}");
            assert_eq!(avx2.slots_where(avx2.words(&line), mask, expected), slots, "{context}");
            for (slot, found) in found.iter_mut().enumerate() {
                *found += u32::from(slots.0 >> slot & 1 == 1);
            }
        }
        assert!(found.iter().all(|count| *count > 1000), "every slot was found: {found:?}");
    }
}
