//! A bucket of the hash index: one line of ten slots (KV-Direct, section 3.3.1, Fig. 5).
//!
//! ```text
//! byte 0        4        8            14                                                          64
//!      ├────────┼────────┼────────────┼────┬────┬────┬────┬────┬────┬────┬────┬────┬────┤
//!      │ chain  │ types  │ marks      │ 0  │ 1  │ 2  │ 3  │ 4  │ 5  │ 6  │ 7  │ 8  │ 9  │ ten slots of 5 bytes
//!      └────────┴────────┴────────────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┘
//! chain   32 bits  bit 31: valid; bits 0–30: pointer to the next bucket
//! types   30 bits  three for each slot: 0 empty, 1–5 pointer to a slab of 32–512 bytes,
//!                  6 first slot of an inline pair, 7 further slot of it
//! marks   50 bits  one for each byte of the slots; the first two are bits 30–31 of the types' word.
//!                  They end at byte 14. Read as one u64 at offset 6, bit i is the mark of byte i of the line (i ≥ 14)
//! slot    40 bits  bits 0–30: pointer; bits 31–39: secondary hash. Or five bytes of an inline pair
//! ```
//!
//! An inline pair begins at a slot and takes as many slots as it needs, key first. The last byte of the key has a mark,
//! and so has that of the value unless it is empty. No sizes are stored, so five pairs of 10 bytes fill the 50 bytes.
//!
//! Invariant: the slots in use are the first ones. A removal moves the later entries up, and an insertion appends. A
//! bucket of zeros is empty.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::slab::SlabClass;
use crate::memory::{LINE_SIZE, Line, Pointer};
use crate::short::overwrite;

/// Slots of a bucket.
pub const SLOT_COUNT: usize = 10;
/// Bytes of a slot.
pub const SLOT_SIZE: usize = 5;
/// Most bytes of an inline pair.
pub const INLINE_SIZE_MAX: usize = SLOT_COUNT * SLOT_SIZE;

const TYPE_BITS: usize = 3;
const TYPES_BITS: usize = SLOT_COUNT * TYPE_BITS;
const MARKS_BITS: usize = SLOT_COUNT * SLOT_SIZE;
const CHAIN_BITS: usize = Pointer::BITS as usize + 1;
pub(super) const SLOTS_OFFSET: usize = (CHAIN_BITS + TYPES_BITS + MARKS_BITS) / 8;
const SECONDARY_HASH_BITS: usize = 9;

const _: () = assert!(CHAIN_BITS + TYPES_BITS + MARKS_BITS == SLOTS_OFFSET * 8);
const _: () = assert!(SLOTS_OFFSET + SLOT_COUNT * SLOT_SIZE == LINE_SIZE);
const _: () = assert!(Pointer::BITS as usize + SECONDARY_HASH_BITS == SLOT_SIZE * 8);
const _: () = assert!(SlabClass::COUNT < TYPE_INLINE_BEGIN as usize);

const TYPE_MASK: u32 = (1 << TYPE_BITS) - 1;
const TYPES_MASK: u32 = (1 << TYPES_BITS) - 1;
const CHAIN_VALID: u32 = 1 << Pointer::BITS;
/// Offset in the line of the eight bytes that end with the marks.
const MARKS_OFFSET: usize = SLOTS_OFFSET - 8;

const _: () = assert!(SLOTS_OFFSET + MARKS_BITS == 64, "of the eight bytes, bit i is the mark of byte i");

const TYPE_INLINE_BEGIN: u32 = 6;
const TYPE_INLINE_MORE: u32 = 7;

const _: () = assert!(TYPE_INLINE_MORE == TYPE_MASK && TYPE_INLINE_BEGIN == TYPE_MASK ^ 1);

/// For each number of type bits that match those of a pair, from its first slot on: the bytes of the pair's slots, or 0
/// if not even the three bits of the first slot match.
const BYTES_OF_PAIR: [u8; 33] = {
    let mut bytes = [0; 33];
    let mut bits = 0;
    while bits < 33 {
        bytes[bits] = (bits / TYPE_BITS * SLOT_SIZE) as u8;
        bits += 1;
    }
    bytes
};

/// The lowest type bit of the slot that begins at a byte of the line.
const TYPE_SHIFT: [u8; LINE_SIZE] = {
    let mut shifts = [0; LINE_SIZE];
    let mut slot = 0;
    while slot < SLOT_COUNT {
        shifts[SLOTS_OFFSET + slot * SLOT_SIZE] = (slot * TYPE_BITS) as u8;
        slot += 1;
    }
    shifts
};

/// The type bits of the first slots of a pair, up to the slot that has this byte of the pair. Beyond a bucket's slots:
/// all.
const TYPES_TO_BYTE: [u32; 65] = {
    let mut types = [u32::MAX; 65];
    let mut byte = 0;
    while byte < INLINE_SIZE_MAX {
        types[byte] = (1 << ((byte / SLOT_SIZE + 1) * TYPE_BITS)) - 1;
        byte += 1;
    }
    types
};

/// The second hash of a key. It excludes most other slots without reading their slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondaryHash(u16);

impl SecondaryHash {
    /// Takes the lowest nine bits.
    pub fn from_hash(hash: u64) -> Self {
        SecondaryHash((hash & ((1 << SECONDARY_HASH_BITS) - 1)) as u16)
    }

    /// Returns the upper eight bits, which are the last byte of a slot.
    #[inline(always)]
    pub(super) fn upper_bits(self) -> u8 {
        (self.0 >> (SECONDARY_HASH_BITS - 8)) as u8
    }
}

/// A slot that points to a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabSlot {
    /// Size of the slab.
    pub class: SlabClass,
    /// Its address.
    pub pointer: Pointer,
    /// Second hash of the key in it.
    pub secondary: SecondaryHash,
}

/// The position of an inline pair in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinePair {
    /// The byte of the line at which it begins.
    offset: u8,
    key_size: u8,
    value_size: u8,
}

impl InlinePair {
    /// Returns the pair that begins at this byte of the line.
    #[inline(always)]
    pub(super) fn at(offset: usize, key_size: usize, value_size: usize) -> Self {
        InlinePair { offset: offset as u8, key_size: key_size as u8, value_size: value_size as u8 }
    }

    /// Returns the bytes of its key.
    #[inline(always)]
    pub fn key_size(self) -> usize {
        self.key_size.into()
    }

    /// Returns the bytes of its value.
    #[inline(always)]
    pub fn value_size(self) -> usize {
        self.value_size.into()
    }

    /// Returns its first slot.
    #[inline]
    pub fn slot(self) -> usize {
        (usize::from(self.offset) - SLOTS_OFFSET) / SLOT_SIZE
    }

    /// Returns the slots that it takes.
    #[inline]
    pub fn slot_count(self) -> usize {
        slots_for(self.key_size() + self.value_size())
    }

    #[inline]
    fn key_offset(self) -> usize {
        self.offset.into()
    }

    #[inline]
    fn value_offset(self) -> usize {
        self.key_offset() + self.key_size()
    }
}

/// Returns the slots that an inline pair of `pair_size` bytes takes.
#[inline]
pub fn slots_for(pair_size: usize) -> usize {
    pair_size.div_ceil(SLOT_SIZE)
}

/// A bucket, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Bucket(Line);

impl Bucket {
    /// A bucket with nothing in it.
    pub const EMPTY: Bucket = Bucket(Line([0; LINE_SIZE]));

    /// Returns the bucket in this line.
    pub fn from_line(line: Line) -> Self {
        Bucket(line)
    }

    /// Returns the bucket in this line, in place.
    #[inline]
    pub fn from_line_mut(line: &mut Line) -> &mut Self {
        zerocopy::transmute_mut!(line)
    }

    /// Returns the line of this bucket, in place.
    #[inline(always)]
    pub(super) fn as_line_mut(&mut self) -> &mut Line {
        &mut self.0
    }

    /// Returns the line of this bucket.
    #[inline(always)]
    pub fn as_line(&self) -> &Line {
        &self.0
    }

    /// Returns the next bucket of the chain.
    #[inline]
    pub fn chain(&self) -> Option<Pointer> {
        let word = self.word(0);
        (word & CHAIN_VALID != 0).then(|| Pointer::new(word & !CHAIN_VALID))
    }

    /// Sets the next bucket of the chain.
    #[inline]
    pub fn set_chain(&mut self, next: Option<Pointer>) {
        self.set_word(0, next.map_or(0, |pointer| pointer.unit() | CHAIN_VALID));
    }

    /// Returns the number of slots in use, which are the first ones.
    #[inline]
    pub fn used_slot_count(&self) -> usize {
        (32 - self.types().leading_zeros() as usize).div_ceil(TYPE_BITS)
    }

    /// Returns the number of slots not in use.
    #[inline]
    pub fn free_slot_count(&self) -> usize {
        SLOT_COUNT - self.used_slot_count()
    }

    /// Returns the slab to which the slot points, if it does.
    #[inline]
    pub fn slab_slot(&self, slot: usize) -> Option<SlabSlot> {
        let class = SlabClass::from_code(self.slot_type(slot))?;
        let offset = SLOTS_OFFSET + slot * SLOT_SIZE;
        let mut bytes = [0; 8];
        bytes[..SLOT_SIZE].copy_from_slice(&self.0.0[offset..offset + SLOT_SIZE]);
        let bits = u64::from_le_bytes(bytes);
        Some(SlabSlot {
            class,
            pointer: Pointer::new((bits & u64::from(CHAIN_VALID - 1)) as u32),
            secondary: SecondaryHash((bits >> Pointer::BITS) as u16),
        })
    }

    /// Returns the key of an inline pair.
    #[inline]
    pub fn inline_key(&self, pair: InlinePair) -> &[u8] {
        &self.0.0[pair.key_offset()..pair.value_offset()]
    }

    /// Returns the value of an inline pair.
    pub fn inline_value(&self, pair: InlinePair) -> &[u8] {
        let start = pair.value_offset();
        &self.0.0[start..start + pair.value_size()]
    }

    /// Returns the value of an inline pair, to be changed.
    #[inline]
    pub fn inline_value_mut(&mut self, pair: InlinePair) -> &mut [u8] {
        let start = pair.value_offset();
        &mut self.0.0[start..start + pair.value_size()]
    }

    /// Returns every entry with its first slot, in the order of the slots.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let used = self.used_slot_count();
        let mut slot = 0;
        std::iter::from_fn(move || {
            if slot == used {
                return None;
            }
            let first = slot;
            let entry = match self.slab_slot(slot) {
                Some(slab) => Entry::Slab(slab),
                None => Entry::Inline(self.inline_pair(slot).expect("a slot in use is of a slab or a pair")),
            };
            slot += entry.slot_count();
            Some((first, entry))
        })
    }

    /// Appends an inline pair. Returns its value.
    ///
    /// # Panics
    /// If there are too few free slots, or the key is empty.
    #[inline(always)]
    pub fn push_inline(&mut self, key: &[u8], value: &[u8]) -> &mut [u8] {
        let slot = self.used_slot_count();
        let pair_size = key.len() + value.len();
        let slot_count = slots_for(pair_size);
        assert!(!key.is_empty() && slot + slot_count <= SLOT_COUNT, "an inline pair fits the free slots");
        let offset = SLOTS_OFFSET + slot * SLOT_SIZE;
        overwrite(&mut self.0.0[offset..offset + key.len()], key);
        overwrite(&mut self.0.0[offset + key.len()..offset + pair_size], value);
        // All ones, except the lowest bit of the first slot.
        let types = ((1 << (slot_count * TYPE_BITS)) - 1) ^ (TYPE_INLINE_MORE ^ TYPE_INLINE_BEGIN);
        self.set_types(self.types() | types << (slot * TYPE_BITS));
        // For an empty value the two marks are one.
        let marks = (1 << (key.len() - 1)) | (1 << (pair_size - 1));
        self.set_marks(self.marks() | marks << (slot * SLOT_SIZE));
        &mut self.0.0[offset + key.len()..offset + pair_size]
    }

    /// Appends a slot that points to a slab.
    ///
    /// # Panics
    /// If no slot is free.
    #[inline]
    pub fn push_slab(&mut self, slab: SlabSlot) {
        let slot = self.used_slot_count();
        assert!(slot < SLOT_COUNT, "a slot is free");
        self.set_slab(slot, slab);
    }

    /// Points a slot that points to a slab to another one.
    #[inline]
    pub fn set_slab(&mut self, slot: usize, slab: SlabSlot) {
        let bits = u64::from(slab.pointer.unit()) | u64::from(slab.secondary.0) << Pointer::BITS;
        let offset = SLOTS_OFFSET + slot * SLOT_SIZE;
        self.0.0[offset..offset + SLOT_SIZE].copy_from_slice(&bits.to_le_bytes()[..SLOT_SIZE]);
        let shift = slot * TYPE_BITS;
        self.set_types(self.types() & !(7 << shift) | slab.class.code() << shift);
    }

    /// Removes the entry that begins at `slot`; later entries move up.
    pub fn remove(&mut self, slot: usize) {
        let slot_count = match self.slab_slot(slot) {
            Some(_) => 1,
            None => self.inline_pair(slot).map_or(0, InlinePair::slot_count),
        };
        self.remove_slots(slot, slot_count);
    }

    /// Removes the entry at these slots; later entries move up.
    #[inline(always)]
    pub(super) fn remove_slots(&mut self, slot: usize, slot_count: usize) {
        let used = self.used_slot_count();
        let offset = |slot: usize| SLOTS_OFFSET + slot * SLOT_SIZE;
        self.0.0.copy_within(offset(slot + slot_count)..offset(used), offset(slot));
        self.set_types(close_gap(u64::from(self.types()), slot * TYPE_BITS, slot_count * TYPE_BITS) as u32);
        self.set_marks(close_gap(self.marks(), slot * SLOT_SIZE, slot_count * SLOT_SIZE));
    }

    /// Appends all entries of the next bucket, and removes that from the chain.
    ///
    /// # Panics
    /// If there are too few free slots.
    pub fn absorb(&mut self, next: &Bucket) {
        self.push_slots(next, 0, next.used_slot_count());
        self.set_chain(next.chain());
    }

    /// Appends the entries at these slots of another bucket.
    ///
    /// # Panics
    /// If there are too few free slots.
    #[inline(always)]
    pub(super) fn push_slots(&mut self, other: &Bucket, slot: usize, slot_count: usize) {
        let used = self.used_slot_count();
        assert!(used + slot_count <= SLOT_COUNT, "the entries fit the free slots");
        let position = |slot: usize| SLOTS_OFFSET + slot * SLOT_SIZE;
        let from = &other.0.0[position(slot)..position(slot + slot_count)];
        overwrite(&mut self.0.0[position(used)..position(used + slot_count)], from);
        let types = (other.types() >> (slot * TYPE_BITS)) & ((1 << (slot_count * TYPE_BITS)) - 1);
        self.set_types(self.types() | types << (used * TYPE_BITS));
        let marks = (other.marks() >> (slot * SLOT_SIZE)) & ((1 << (slot_count * SLOT_SIZE)) - 1);
        self.set_marks(self.marks() | marks << (used * SLOT_SIZE));
    }

    /// Returns true if a slot points to a slab.
    #[inline(always)]
    pub(super) fn has_slabs(&self) -> bool {
        let [low, middle, high] = [0, 1, 2].map(|bit| self.types() >> bit & 0o11_1111_1111);
        (low | middle | high) & !(middle & high) != 0
    }

    /// Returns the inline pair that begins at `slot`, if one does.
    fn inline_pair(&self, slot: usize) -> Option<InlinePair> {
        self.inline_pair_at(SLOTS_OFFSET + slot * SLOT_SIZE)
    }

    /// Returns the inline pair that begins at this byte of the line, if one does. A slot must begin there.
    #[inline(always)]
    pub(super) fn inline_pair_at(&self, offset: usize) -> Option<InlinePair> {
        let slots_size = self.pair_slots_size(offset);
        if slots_size == 0 {
            return None;
        }
        let marks = (self.marks_of_bytes() >> offset) & !(u64::MAX << slots_size);
        let key_size = marks.trailing_zeros() as usize + 1;
        let pair_size = 64 - marks.leading_zeros() as usize;
        Some(InlinePair::at(offset, key_size, pair_size - key_size))
    }

    /// Returns the bytes of the slots of the pair that begins at this byte of the line, or 0 if none does. A slot must
    /// begin there.
    #[inline(always)]
    fn pair_slots_size(&self, offset: usize) -> usize {
        BYTES_OF_PAIR[self.type_differences(offset).trailing_zeros() as usize].into()
    }

    /// Returns true if a pair begins at this byte of the line, and byte `end` from there is in one of its slots. A slot
    /// must begin there. `end` is at most 64.
    #[inline(always)]
    pub(super) fn is_in_pair(&self, offset: usize, end: usize) -> bool {
        self.type_differences(offset) & TYPES_TO_BYTE[end] == 0
    }

    /// XORs the type bits with the pattern of a pair (first bit 0, all others 1), from the slot on that begins at this
    /// byte of the line. A zero bit matches.
    #[inline(always)]
    fn type_differences(&self, offset: usize) -> u32 {
        const PAIR_OF_ALL_SLOTS: u32 = !(TYPE_INLINE_MORE ^ TYPE_INLINE_BEGIN);
        // The word's two upper bits are marks. They match no further slot, because a slot has three bits.
        self.word(4) >> TYPE_SHIFT[offset] ^ PAIR_OF_ALL_SLOTS
    }

    #[inline]
    fn slot_type(&self, slot: usize) -> u32 {
        (self.types() >> (slot * TYPE_BITS)) & TYPE_MASK
    }

    #[inline]
    fn types(&self) -> u32 {
        self.word(4) & TYPES_MASK
    }

    #[inline]
    fn set_types(&mut self, types: u32) {
        self.set_word(4, self.word(4) & !TYPES_MASK | types);
    }

    #[inline(always)]
    fn marks(&self) -> u64 {
        self.marks_of_bytes() >> SLOTS_OFFSET
    }

    /// Returns the marks of all bytes of the line: byte `i` is bit `i`. Bits before the slots are not marks.
    #[inline(always)]
    pub(super) fn marks_of_bytes(&self) -> u64 {
        u64::from_le_bytes(self.0.0[MARKS_OFFSET..SLOTS_OFFSET].try_into().expect("eight bytes"))
    }

    #[inline]
    fn set_marks(&mut self, marks: u64) {
        let others = self.marks_of_bytes() & ((1 << SLOTS_OFFSET) - 1);
        self.0.0[MARKS_OFFSET..SLOTS_OFFSET].copy_from_slice(&(others | marks << SLOTS_OFFSET).to_le_bytes());
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.0.0[offset..offset + 4].try_into().expect("four bytes"))
    }

    #[inline]
    fn set_word(&mut self, offset: usize, word: u32) {
        self.0.0[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// An entry, which begins at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A pair in the bucket itself.
    Inline(InlinePair),
    /// A pointer to a slab.
    Slab(SlabSlot),
}

impl Entry {
    /// Returns the slots that it takes.
    pub fn slot_count(self) -> usize {
        match self {
            Entry::Inline(pair) => pair.slot_count(),
            Entry::Slab(_) => 1,
        }
    }
}

/// Removes `width` bits from `start` on; higher bits move down.
fn close_gap(bits: u64, start: usize, width: usize) -> u64 {
    let below = (1 << start) - 1;
    bits & below | (bits >> width) & !below
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Search;

    fn slab(unit: u32, hash: u64) -> SlabSlot {
        SlabSlot {
            class: SlabClass::for_size(100).unwrap(),
            pointer: Pointer::new(unit),
            secondary: SecondaryHash::from_hash(hash),
        }
    }

    /// An inline pair as bytes, or a slot that points to a slab.
    type Content = Result<(Vec<u8>, Vec<u8>), SlabSlot>;

    fn content(bucket: &mut Bucket) -> Vec<Content> {
        let entries: Vec<_> = bucket.entries().collect();
        entries
            .into_iter()
            .map(|(_, entry)| match entry {
                Entry::Inline(pair) => Ok((bucket.inline_key(pair).to_vec(), bucket.inline_value_mut(pair).to_vec())),
                Entry::Slab(slab) => Err(slab),
            })
            .collect()
    }

    #[test]
    fn five_pairs_of_ten_bytes_fill_a_bucket() {
        let mut bucket = Bucket::EMPTY;
        for i in 0..5u8 {
            assert_eq!(bucket.free_slot_count(), 10 - 2 * usize::from(i));
            bucket.push_inline(&[b'k', i, 0, 0, 0, 0, 0, 0], &[i, i]);
        }
        assert_eq!(bucket.free_slot_count(), 0);
        for i in 0..5u8 {
            let pair = Search::new().inline_pair(&bucket, &[b'k', i, 0, 0, 0, 0, 0, 0]).unwrap();
            assert_eq!(bucket.inline_value_mut(pair), [i, i]);
        }
        assert_eq!(Search::new().inline_pair(&bucket, b"k"), None);
    }

    #[test]
    fn a_pair_of_fifty_bytes_takes_the_bucket() {
        for key_size in 1..=50 {
            let pair = [7u8; 50];
            let (key, value) = pair.split_at(key_size);
            let mut bucket = Bucket::EMPTY;
            bucket.push_inline(key, value);
            let found = Search::new().inline_pair(&bucket, key).unwrap();
            assert_eq!((found.key_size(), found.value_size()), (key.len(), value.len()));
            bucket.set_chain(Some(Pointer::new((1 << 31) - 1)));
            assert_eq!(Search::new().inline_pair(&bucket, key), Some(found));
            assert_eq!(bucket.chain(), Some(Pointer::new((1 << 31) - 1)));
            bucket.remove(0);
            bucket.set_chain(None);
            assert_eq!(bucket.used_slot_count(), 0);
        }
    }

    #[test]
    fn slab_slots_keep_their_bits() {
        let mut bucket = Bucket::EMPTY;
        for i in 0..10u32 {
            bucket.push_slab(slab((1 << 31) - 1 - i, 511 - u64::from(i)));
        }
        let (slot, found) = Search::new().slab(&bucket, SecondaryHash::from_hash(505), 0).unwrap();
        assert_eq!((slot, found), (6, slab((1 << 31) - 7, 505)));
        assert_eq!(Search::new().slab(&bucket, SecondaryHash::from_hash(505), 7), None);
    }

    /// Random insertions and removals against a vector of what should be there.
    #[test]
    fn a_bucket_agrees_with_a_list_of_entries() {
        use rand::{RngExt, SeedableRng};
        let seed = 11;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..2000 {
            let mut bucket = Bucket::EMPTY;
            let mut expected = Vec::new();
            for step in 0..40 {
                let free = bucket.free_slot_count();
                if random.random_bool(0.6) {
                    if free > 0 && random.random_bool(0.3) {
                        let slab = slab(random.random_range(0..1 << 31), random.random());
                        bucket.push_slab(slab);
                        expected.push(Err(slab));
                    } else {
                        let pair_size = random.random_range(1..=INLINE_SIZE_MAX);
                        if slots_for(pair_size) <= free {
                            let pair: Vec<u8> = (0..pair_size).map(|_| random.random()).collect();
                            let (key, value) = pair.split_at(random.random_range(1..=pair_size));
                            bucket.push_inline(key, value);
                            expected.push(Ok((key.to_vec(), value.to_vec())));
                        }
                    }
                } else if !expected.is_empty() {
                    let index = random.random_range(0..expected.len());
                    let slot = bucket.entries().nth(index).unwrap().0;
                    bucket.remove(slot);
                    drop(expected.remove(index));
                }
                assert_eq!(content(&mut bucket), expected, "seed {seed} round {round} step {step}");
            }
        }
    }
}
