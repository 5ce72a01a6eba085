//! The hash table of one shard: index, slabs, and how an entry is found, stored and removed (KV-Direct, section 3.3.1).
//!
//! ```text
//! memory  ├──────────── hash index ───────────┬───────────────── slab memory ─────────────────┤
//!          bucket 0, bucket 1, ...             pairs, chained buckets, large values
//!          └ share set by the hash index ratio ┘
//! ```
//!
//! Costs in accesses, when the bucket has no chain: a GET reads the bucket, and the slab if the pair is not inline. A
//! PUT reads the bucket and writes what changes. Each chained bucket on the way is one more.
//!
//! Nothing here excludes another operation on the same bucket: the processor's reservation station sees to it that no
//! two operations on one bucket and its chain are under way together. A copy of a bucket therefore stays true across an
//! await. No borrow of the allocator is held across one.

use std::cell::{Cell, RefCell};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use super::bucket::{Bucket, INLINE_SIZE_MAX, InlinePair, SecondaryHash, SlabSlot, slots_for};
use super::find::{Probe, Search};
use super::object::{self, LargeRoot, Object};
use super::settings::Settings;
use super::slab::{MergeDaemon, NoSlab, SlabAllocator, SlabClass, SlabNeeds, SlabStatistics};
use crate::memory::{Effect, LINE_SIZE, Line, Memory, Pointer, RegionError, ResidentLines};

/// The secret hash of a key, which places it in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u64);

/// Number of a bucket of the index. Buckets of a chain belong to the one it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketIndex(pub(crate) u32);

impl BucketIndex {
    #[inline(always)]
    pub(crate) fn pointer(self) -> Pointer {
        Pointer::to_line_below_end(self.0)
    }
}

/// What a search for a key ended at.
pub(crate) enum Location {
    /// An inline pair.
    Inline { place: Place, pair: InlinePair },
    /// A slab with the pair, and the bytes of its value.
    Slab { place: Place, slot: usize, slab: SlabSlot, value_size: usize },
    /// A slab with the root of a large value.
    Large { place: Place, slot: usize, slab: SlabSlot, root: LargeRoot },
    /// No such key. The place is the first bucket with the wanted room, or the end of the chain.
    Missing { place: Place, has_room: bool },
}

/// What the first line of a search has shown.
pub(crate) enum FirstLine {
    /// The value, and its visit did all that was to be done.
    Visited,
    /// Room for the edit, which was made.
    Edited,
    /// That there is no such key.
    Absent,
    /// The inline pair, to which more is to be done.
    Inline(InlinePair),
    /// Neither the pair nor that there is none: it may be in a slab or a chained bucket.
    Elsewhere,
}

/// What is to be done to a pair as a whole, if its bucket alone can hold the outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit<'a> {
    /// Nothing of the kind.
    None,
    /// It goes.
    Remove,
    /// It gets another value.
    Store(&'a [u8]),
}

/// What was done to a value that was found.
pub(crate) enum Visit {
    /// All that was to be done.
    Done(Effect),
    /// Nothing: its pair goes, or changes its size.
    Left,
}

/// What a slab held.
enum Found {
    Done,
    Value(usize),
    Large(LargeRoot),
    OtherKey,
}

/// A bucket and where it lies.
pub(crate) struct Place {
    pub(super) at: Pointer,
    pub(super) bucket: Bucket,
}

/// A key's place in the index, found out by [`HashTable::locate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) hash: KeyHash,
    pub(crate) bucket: BucketIndex,
}

impl Home {
    #[inline(always)]
    pub(crate) fn secondary(&self) -> SecondaryHash {
        SecondaryHash::from_hash(self.hash.0)
    }
}

/// A hash table and the memory it lies in.
#[derive(Debug)]
pub struct HashTable<M> {
    memory: M,
    bucket_count: u32,
    inline_threshold: usize,
    secrets: RapidSecrets,
    search: Search,
    slabs: RefCell<SlabAllocator>,
    pair_count: Cell<u64>,
    pair_size: Cell<u64>,
}

impl<M: Memory> HashTable<M> {
    /// An empty table in a memory of zeros.
    pub fn new(memory: M, settings: &Settings) -> Result<Self, RegionError> {
        let bucket_count = settings.bucket_count(memory.size())?;
        let slab_start = Pointer::to_line(u64::from(bucket_count));
        // The last line stays unused: the end of 64 GiB would have no pointer.
        let slab_end = Pointer::to_line(memory.size() / LINE_SIZE as u64 - 1);
        Ok(HashTable {
            bucket_count,
            inline_threshold: settings.inline_threshold.min(INLINE_SIZE_MAX),
            secrets: RapidSecrets::seed(settings.seed),
            search: Search::new(),
            slabs: RefCell::new(SlabAllocator::new(slab_start, slab_end)),
            pair_count: Cell::new(0),
            pair_size: Cell::new(0),
            memory,
        })
    }

    /// The memory below.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Keys in the table.
    pub fn pair_count(&self) -> u64 {
        self.pair_count.get()
    }

    /// Bytes of all keys and values.
    pub fn pair_size(&self) -> u64 {
        self.pair_size.get()
    }

    /// Bytes of the hash index, chained buckets left out.
    pub fn index_size(&self) -> u64 {
        u64::from(self.bucket_count) * LINE_SIZE as u64
    }

    /// Bytes of slab memory that are free.
    pub fn slab_free_size(&self) -> u64 {
        self.slabs.borrow().free_size()
    }

    /// Bytes that the allocator takes beside the memory.
    pub fn bookkeeping_size(&self) -> u64 {
        self.slabs.borrow().bookkeeping_size()
    }

    /// What the allocator's two sides have exchanged.
    pub fn slab_statistics(&self) -> SlabStatistics {
        self.slabs.borrow().traffic()
    }

    /// Hands the merging of free slabs over to a daemon, which the caller runs on a thread of its own.
    pub fn merge_daemon(&self) -> MergeDaemon {
        self.slabs.borrow_mut().merge_daemon()
    }

    /// Hashes a key.
    #[inline(always)]
    pub(crate) fn locate(&self, key: &[u8]) -> Home {
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        // The upper bits choose the bucket, the lowest nine are the secondary hash: independent of each other.
        let bucket = (u128::from(hash) * u128::from(self.bucket_count)) >> 64;
        Home { hash: KeyHash(hash), bucket: BucketIndex(bucket as u32) }
    }

    /// Says that a bucket will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, bucket: BucketIndex) {
        self.memory.prefetch_line(bucket.pointer());
    }

    /// Slots of a bucket that a pair takes.
    pub(crate) fn slot_count(&self, key_size: usize, value_size: usize) -> usize {
        if self.is_inline(key_size, value_size) { slots_for(key_size + value_size) } else { 1 }
    }

    /// How the machine searches buckets.
    #[inline]
    pub(crate) fn search(&self) -> Search {
        self.search
    }

    /// Searches a bucket for a key.
    #[inline]
    pub(crate) fn probe(&self, bucket: &Bucket, key: &[u8], home: Home) -> Probe {
        self.search.probe(bucket, key, home.secondary())
    }

    /// Does what a bucket allows after a probe of it. If the pair is inline, `visit` gets its value. If that leaves something
    /// to be done, or there is no pair in this bucket nor in a later one, `edit` says what, given whether the key was found.
    #[inline(always)]
    pub(crate) fn access_probed<'e>(
        &self,
        bucket: &mut Bucket,
        probe: Probe,
        key: &[u8],
        visit: impl FnOnce(&mut [u8]) -> Visit,
        edit: impl FnOnce(bool) -> Edit<'e>,
    ) -> (Effect, FirstLine) {
        let found = match probe {
            Probe::Slab(_) => return (Effect::Unchanged, FirstLine::Elsewhere),
            Probe::Pair(pair) => match visit(bucket.inline_value_mut(pair)) {
                Visit::Done(effect) => return (effect, FirstLine::Visited),
                Visit::Left => Some(pair),
            },
            Probe::Absent => None,
        };
        self.edit_probed(bucket, found, key, edit(found.is_some()))
    }

    /// Makes an edit after a probe, if this bucket is all that it takes.
    #[inline(never)]
    fn edit_probed(
        &self,
        bucket: &mut Bucket,
        found: Option<InlinePair>,
        key: &[u8],
        edit: Edit<'_>,
    ) -> (Effect, FirstLine) {
        if found.is_none() && bucket.chain().is_some() {
            return (Effect::Unchanged, FirstLine::Elsewhere);
        }
        if self.edit_in_place(bucket, found, key, edit) {
            return (Effect::Changed, FirstLine::Edited);
        }
        (Effect::Unchanged, found.map_or(FirstLine::Absent, FirstLine::Inline))
    }

    /// Says that a slab will be looked at soon.
    #[inline]
    pub(crate) fn prefetch_slab(&self, slab: SlabSlot) {
        self.memory.prefetch(slab.pointer.span(slab.class.size()));
    }

    /// Accesses a resident slab. Returns true if it holds the pair, and `visit` did all that was to be done.
    #[inline(always)]
    pub(crate) fn access_resident_slab(
        &self,
        lines: &mut impl ResidentLines,
        slab: SlabSlot,
        key: &[u8],
        visit: impl FnOnce(&mut [u8]) -> Visit,
    ) -> bool {
        let span = slab.pointer.span(slab.class.size());
        let bytes = lines.span(span);
        let Some(range) = object::find_value(slab.class, bytes, key) else { return false };
        let Visit::Done(effect) = visit(&mut bytes[range]) else { return false };
        lines.note(span, effect);
        true
    }

    /// Searches for a key. If it exists with a value that lies in one piece, `visit` sees the value, once. `Err`: the
    /// first line sufficed, or a visit did all that was to be done. Otherwise, where the search ended; if the key does not
    /// exist, with room for `needed_slots` where there is some; zero: none is needed.
    #[inline]
    pub(crate) async fn seek<'e>(
        &self,
        key: &[u8],
        home: Home,
        needed_slots: usize,
        mut visit: impl FnMut(&mut [u8]) -> Visit,
        edit: impl FnOnce(bool) -> Edit<'e>,
    ) -> Result<Location, FirstLine> {
        let look = |line: &mut Line| {
            let bucket = Bucket::from_line_mut(line);
            let probe = self.probe(bucket, key, home);
            let (effect, first) = self.access_probed(bucket, probe, key, &mut visit, edit);
            (effect, (first, *bucket))
        };
        let at = home.bucket.pointer();
        let (first, bucket) = self.memory.update_prefetched_line(at, look).await;
        let place = Place { at, bucket };
        match first {
            FirstLine::Visited | FirstLine::Edited => Err(first),
            FirstLine::Absent if needed_slots == 0 => Err(first),
            FirstLine::Inline(pair) => Ok(Location::Inline { place, pair }),
            FirstLine::Absent | FirstLine::Elsewhere => {
                self.seek_on(place, key, home, needed_slots, visit).await.ok_or(FirstLine::Visited)
            }
        }
    }

    /// Searches on from a bucket that does not hold the key inline.
    async fn seek_on(
        &self,
        mut place: Place,
        key: &[u8],
        home: Home,
        needed_slots: usize,
        mut visit: impl FnMut(&mut [u8]) -> Visit,
    ) -> Option<Location> {
        let secondary = home.secondary();
        let mut room = None;
        loop {
            let mut from = 0;
            while let Some((slot, slab)) = self.search.slab(&place.bucket, secondary, from) {
                let look = |bytes: &mut [u8]| match object::find(slab.class, bytes, key) {
                    Some(Object::Value(range)) => {
                        let value_size = range.len();
                        match visit(&mut bytes[range]) {
                            Visit::Done(effect) => (effect, Found::Done),
                            Visit::Left => (Effect::Unchanged, Found::Value(value_size)),
                        }
                    }
                    Some(Object::Large(root)) => (Effect::Unchanged, Found::Large(root)),
                    None => (Effect::Unchanged, Found::OtherKey),
                };
                match self.memory.update(slab.pointer.span(slab.class.size()), look).await {
                    Found::Done => return None,
                    Found::Value(value_size) => return Some(Location::Slab { place, slot, slab, value_size }),
                    Found::Large(root) => return Some(Location::Large { place, slot, slab, root }),
                    Found::OtherKey => from = slot + 1,
                }
            }
            let next = place.bucket.chain();
            if needed_slots > 0 && room.is_none() && place.bucket.free_slot_count() >= needed_slots {
                room = Some(Place { ..place });
            }
            let Some(at) = next else {
                let has_room = room.is_some();
                return Some(Location::Missing { place: room.unwrap_or(place), has_room });
            };
            place = Place { at, bucket: Bucket::from_line(self.memory.read_line(at).await) };
            if let Some(pair) = self.search.inline_pair(&place.bucket, key) {
                return match visit(place.bucket.inline_value_mut(pair)) {
                    Visit::Done(effect) => {
                        if effect == Effect::Changed {
                            self.memory.write_line(place.at, place.bucket.as_line()).await;
                        }
                        None
                    }
                    Visit::Left => Some(Location::Inline { place, pair }),
                };
            }
        }
    }

    /// Begins a batch, in which the store itself merges free slabs until it has had `merge_work` of them.
    pub(crate) fn begin_batch(&self, merge_work: usize) {
        self.slabs.borrow_mut().begin_batch(merge_work);
    }

    /// Says that an operation on a key lacks slabs which are being merged. Returns false if it has waited for all that there are.
    pub(crate) fn may_wait(&self, hash: KeyHash) -> bool {
        self.slabs.borrow_mut().may_wait(hash.0)
    }

    /// Says that an operation on a key, which may have waited for slabs, is done or refused.
    pub(crate) fn end_wait(&self, hash: KeyHash) {
        self.slabs.borrow_mut().end_wait(hash.0);
    }

    /// A slab of the class.
    pub(super) fn take_slab(&self, class: SlabClass) -> Result<Pointer, NoSlab> {
        self.slabs.borrow_mut().take(class)
    }

    /// Returns true if there is a slab of the class without merging.
    pub(super) fn has_slab(&self, class: SlabClass) -> bool {
        self.slabs.borrow().has(class)
    }

    /// All slabs that are needed, the largest first; or none.
    pub(super) fn take_slabs(&self, needs: &SlabNeeds, give: impl FnMut(SlabClass, Pointer)) -> Result<(), NoSlab> {
        self.slabs.borrow_mut().take_all(needs, give)
    }

    pub(super) fn release(&self, class: SlabClass, pointer: Pointer) {
        self.slabs.borrow_mut().release(class, pointer);
    }

    /// Whether a pair of these sizes lies in the index.
    pub(super) fn is_inline(&self, key_size: usize, value_size: usize) -> bool {
        key_size + value_size <= self.inline_threshold
    }

    /// Takes note of a new pair, or of one that is gone.
    pub(super) fn count_pairs(&self, difference: i64) {
        self.pair_count.set(self.pair_count.get().wrapping_add_signed(difference));
    }

    /// Takes note of bytes of keys and values that came or went.
    pub(super) fn count_pair_size(&self, difference: i64) {
        self.pair_size.set(self.pair_size.get().wrapping_add_signed(difference));
    }
}
