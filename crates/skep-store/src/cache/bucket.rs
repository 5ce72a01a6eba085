//! A bucket of the lossy index: one line with eight entries (MICA, NSDI 2014, section 4.3, "lossy concurrent hash index").
//!
//! ```text
//! byte 0               16               32                                64
//!      ├───────────────┼────────────────┼─────────────────────────────────┤
//!      │ 8 tags of u16 │ 8 checks, u16  │ 8 stored offsets of u32         │
//!      └───────────────┴────────────────┴─────────────────────────────────┘
//! entry i   tag     bits 0–15 of the hash of the key; 0 counts as 1, because a tag of 0 is an empty entry
//!           check   bits 16–31 of the hash
//!           offset  the lower 32 bits of the virtual offset of the item, in units of 32 bytes
//! bucket    the upper bits of the hash select it
//! ```
//!
//! - The tags of a bucket differ, so at most one entry may belong to a key. That bounds a GET to one item.
//! - A PUT compares 32 bits of the hash (tag and check), not the key. It overwrites the entry with its tag, without reading
//!   the item. Therefore it takes one random line. If the checks differ, the entry belonged to another key, and that key is
//!   evicted.
//! - If the checks are equal too, the keys are nearly always the same. They differ by chance in one of 500 million PUTs of
//!   new keys (8 entries / 2³²). Only such an eviction is not counted.
//! - A new key takes an empty entry. If the bucket has none, it takes the entry with the oldest item, which may be lost.
//!
//! A line of zeros is an empty bucket.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::log::{Log, StoredOffset};
use crate::memory::{LINE_SIZE, Line, Pointer};

/// Entries of a bucket.
pub(super) const ENTRY_COUNT: usize = 8;

/// The part of a key's hash that the index knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct KeyHash {
    /// The number of the bucket.
    bucket: u32,
    /// The tag, and the check above it.
    tag_and_check: u32,
}

/// Selects the bucket, the tag and the check of a key, by its secret hash.
#[derive(Debug)]
pub(super) struct Locator {
    secrets: RapidSecrets,
    pub(super) bucket_count: u32,
    /// The bits of hashes that a test keeps.
    #[cfg(test)]
    pub(super) hash_mask: u64,
}

impl Locator {
    /// Returns the locator of an index of this many buckets.
    pub(super) fn new(seed: u64, bucket_count: u32) -> Self {
        Locator {
            secrets: RapidSecrets::seed(seed),
            bucket_count,
            #[cfg(test)]
            hash_mask: u64::MAX,
        }
    }

    /// Returns the hash of a key.
    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        #[cfg(test)]
        let hash = hash & self.hash_mask;
        KeyHash::from_hash(hash, self.bucket_count)
    }
}

impl KeyHash {
    /// Divides the hash of a key for an index of this many buckets.
    #[inline(always)]
    pub(super) fn from_hash(hash: u64, bucket_count: u32) -> Self {
        let bucket = (u128::from(hash) * u128::from(bucket_count)) >> 64;
        // A tag of 0 becomes 1.
        let tag_and_check = hash as u32 + u32::from(hash as u16 == 0);
        KeyHash { bucket: bucket as u32, tag_and_check }
    }

    #[inline(always)]
    fn tag(self) -> u16 {
        self.tag_and_check as u16
    }

    #[inline(always)]
    fn check(self) -> u16 {
        (self.tag_and_check >> u16::BITS) as u16
    }

    /// Returns the address of the bucket. The index begins at line 0.
    #[inline(always)]
    pub(super) fn pointer(self) -> Pointer {
        Pointer::to_line_below_end(self.bucket)
    }
}

/// An entry that has the tag of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its index in the bucket.
    pub(super) slot: usize,
    /// The offset of its item.
    pub(super) offset: StoredOffset,
    /// True if the check is equal too. If not, the item belongs to another key.
    pub(super) has_check: bool,
}

/// Numbers of 16 bits in a word.
const LANES: usize = 4;

/// Returns a word whose lowest bit that is set belongs to the first lane with this number; 0 if there is none. A lane above it
/// may have a bit for no reason.
#[inline(always)]
fn equal_lanes(lanes: u64, number: u16) -> u64 {
    const ONES: u64 = u64::MAX / u16::MAX as u64;
    // Zero where the number is. Only a zero borrows from the top bit, unless the lane below has borrowed.
    let different = lanes ^ (ONES * u64::from(number));
    different.wrapping_sub(ONES) & !different & ONES << (u16::BITS - 1)
}

/// A bucket.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    tags: [u16; ENTRY_COUNT],
    checks: [u16; ENTRY_COUNT],
    offsets: [u32; ENTRY_COUNT],
}

const _: () = assert!(size_of::<Bucket>() == LINE_SIZE && align_of::<Bucket>() == align_of::<Line>());

impl Bucket {
    /// Returns the bucket in this line, in place.
    #[inline(always)]
    pub(super) fn from_line_mut(line: &mut Line) -> &mut Self {
        zerocopy::transmute_mut!(line)
    }

    /// Returns the first slot with this tag.
    #[inline(always)]
    fn slot_of(&self, tag: u16) -> Option<usize> {
        // One load, where the machine is little-endian.
        let lanes =
            |begin: usize| (0..LANES).fold(0, |word, lane| word | u64::from(self.tags[begin + lane]) << (16 * lane));
        let lane = |equal: u64| (equal.trailing_zeros() / u16::BITS) as usize;
        let slot = match (equal_lanes(lanes(0), tag), equal_lanes(lanes(LANES), tag)) {
            (0, 0) => return None,
            (0, second) => LANES + lane(second),
            (first, _) => lane(first),
        };
        Some(slot % ENTRY_COUNT)
    }

    /// Returns the entry with the tag of a key.
    #[inline(always)]
    pub(super) fn find(&self, hash: KeyHash) -> Option<Entry> {
        let slot = self.slot_of(hash.tag())?;
        let offset = StoredOffset(self.offsets[slot]);
        Some(Entry { slot, offset, has_check: self.checks[slot] == hash.check() })
    }

    /// Returns the slot that a new key takes: an empty one, or else the one with the oldest item.
    #[inline(always)]
    pub(super) fn oldest(&self, log: &Log) -> usize {
        if let Some(empty) = self.slot_of(0) {
            return empty;
        }
        let age = |slot: usize| log.age(StoredOffset(self.offsets[slot]));
        let (mut oldest, mut age_max) = (0, age(0));
        for slot in 1..ENTRY_COUNT {
            let age = age(slot);
            (oldest, age_max) = if age > age_max { (slot, age) } else { (oldest, age_max) };
        }
        oldest
    }

    /// Returns the offset of the item of a slot. `None` if it is empty.
    #[inline(always)]
    pub(super) fn offset(&self, slot: usize) -> Option<StoredOffset> {
        let slot = slot % ENTRY_COUNT;
        (self.tags[slot] != 0).then_some(StoredOffset(self.offsets[slot]))
    }

    /// Sets the entry of a slot.
    #[inline(always)]
    pub(super) fn set(&mut self, slot: usize, hash: KeyHash, item: StoredOffset) {
        let slot = slot % ENTRY_COUNT;
        (self.tags[slot], self.checks[slot], self.offsets[slot]) = (hash.tag(), hash.check(), item.0);
    }

    /// Empties a slot.
    pub(super) fn clear(&mut self, slot: usize) {
        self.tags[slot] = 0;
    }

    /// Returns the slots whose items are lost, as bits.
    #[inline]
    pub(super) fn lost(&self, log: &Log) -> u32 {
        let is_lost =
            |slot: usize| (self.tags[slot] != 0) & (log.age(StoredOffset(self.offsets[slot])) > log.age_max());
        // Mostly none is lost, which is found out for all at once.
        if !(0..ENTRY_COUNT).fold(false, |any, slot| any | is_lost(slot)) {
            return 0;
        }
        (0..ENTRY_COUNT).map(|slot| u32::from(is_lost(slot)) << slot).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(tag: u16, check: u16) -> KeyHash {
        KeyHash { bucket: 0, tag_and_check: u32::from(check) << u16::BITS | u32::from(tag) }
    }

    #[test]
    fn a_hash_is_bucket_check_and_tag() {
        let hash = KeyHash::from_hash(0x8000_0000_1234_5678, 10);
        assert_eq!((hash.bucket, hash.tag(), hash.check()), (5, 0x5678, 0x1234));
        let zero = KeyHash::from_hash(0x1_0000, 10);
        assert_eq!((zero.tag(), zero.check()), (1, 1), "0 is an empty entry");
        assert_eq!(KeyHash::from_hash(u64::MAX, 10).bucket, 9);
        assert_eq!(hash.pointer(), Pointer::to_line(5));
    }

    #[test]
    fn the_first_lane_with_a_number_is_found() {
        let near = [0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff];
        for (index, number) in near.into_iter().flat_map(|number| (0..LANES).map(move |index| (index, number))) {
            for (below, above) in near.into_iter().flat_map(|below| near.map(|above| (below, above))) {
                let lanes: [u16; LANES] = std::array::from_fn(|lane| match lane.cmp(&index) {
                    std::cmp::Ordering::Less => below,
                    std::cmp::Ordering::Equal => number,
                    std::cmp::Ordering::Greater => above,
                });
                let word = u64::from_le_bytes(zerocopy::transmute!(lanes.map(u16::to_le_bytes)));
                for searched in near {
                    let found = equal_lanes(word, searched);
                    let expected = lanes.iter().position(|lane| *lane == searched);
                    let position = (found != 0).then_some((found.trailing_zeros() / u16::BITS) as usize);
                    assert_eq!(position, expected, "{searched:#x} in {lanes:x?}");
                }
            }
        }
    }

    #[test]
    fn an_entry_is_found_by_its_tag() {
        let mut log = Log::new(0, 100);
        let mut line = Line([0; LINE_SIZE]);
        let bucket = Bucket::from_line_mut(&mut line);
        for number in 0..ENTRY_COUNT as u16 {
            assert_eq!(bucket.oldest(&log), number.into(), "the first empty entry");
            let (item, _) = log.append(1);
            bucket.set(number.into(), hash(100 + number, 7), item.stored());
        }
        for number in 0..ENTRY_COUNT as u16 {
            let offset = StoredOffset(1 + u32::from(number));
            let entry = Entry { slot: number.into(), offset, has_check: true };
            assert_eq!(bucket.find(hash(100 + number, 7)), Some(entry));
            assert_eq!(bucket.find(hash(100 + number, 8)), Some(Entry { has_check: false, ..entry }));
            assert_eq!(bucket.offset(number.into()), Some(offset));
        }
        assert_eq!(bucket.find(hash(99, 7)), None);
        assert_eq!(bucket.oldest(&log), 0, "the oldest item");
        bucket.set(0, hash(50, 7), log.append(1).0.stored());
        assert_eq!(bucket.oldest(&log), 1);
        bucket.clear(5);
        assert_eq!((bucket.oldest(&log), bucket.offset(5), bucket.find(hash(105, 7))), (5, None, None));
        assert_eq!(bucket.lost(&log), 0);
        log.flush();
        assert_eq!(bucket.lost(&log), 0b1101_1111);
    }
}
