//! The hash table of one shard: its index and slabs, and the search for a key (KV-Direct, section 3.3.1).
//!
//! ```text
//! memory  ├──────────── hash index ───────────┬───────────────── slab memory ─────────────────┤
//!          bucket 0, bucket 1, ...             pairs, overflow buckets, large values
//!          └ share set by the hash index ratio, or as many as the pairs need ┘
//! ```
//!
//! Costs in accesses, if the bucket has no chain: a GET reads the bucket, and the slab if the pair is not inline. A PUT
//! reads the bucket and writes the bucket, the slab or both. Each overflow bucket before the pair is one access more.
//!
//! The table does not exclude other operations on the same bucket. The processor's reservation station ensures that
//! only one operation on a bucket and its chain is in flight. A copy of a bucket therefore stays valid across an await.
//! No borrow of the allocator is held across an await.

use std::cell::{Cell, RefCell, RefMut};
use std::hint::cold_path;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use super::bucket::{Bucket, INLINE_SIZE_MAX, InlinePair, SecondaryHash, SlabSlot, slots_for};
use super::bucket_index::BucketIndex;
use super::find::{Probe, Search};
use super::index::{Division, Growth, Index};
use super::location::{BucketCopy, Location};
use super::object::{self, Content, LargeRoot, Object};
use super::settings::Settings;
use super::slab::{MergeDaemon, NoSlab, SlabAllocator, SlabClass, SlabNeeds, SlabStatistics};
use super::stale::Stale;
use super::used::UsedGroups;
use crate::apply::{Edit, NewValue};
use crate::memory::{Effect, LINE_SIZE, Line, Memory, Pointer, RegionError};
use skep_core::operation::Expiry;

/// The secret hash of a key, which places it in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u64);

/// A value in one piece, and the expiry of its key, whose time has not passed.
#[derive(Debug)]
pub(crate) struct ResidentValue<'v> {
    pub(crate) bytes: &'v mut [u8],
    pub(crate) expiry: Option<Expiry>,
}

/// The result of an access to a value, or to a missing key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'e> {
    /// The operation was executed, and has its reply.
    Done(Effect),
    /// Nothing was done. The pair is to be edited.
    Edit(Edit<'e>),
}

/// The result of an access to one bucket, after a probe of it.
pub(crate) enum BucketAccess<'e> {
    /// The operation was executed, and has its reply.
    Done,
    /// The edit was made. The operation has no reply yet.
    Edited(Edit<'e>),
    /// The edit needs more than this bucket. Holds the inline pair if the key exists.
    Left(Option<InlinePair>, Edit<'e>),
    /// The pair may be in a slab or in a later bucket of the chain.
    Elsewhere,
}

/// The result of a search for a key in all buckets of its chain.
pub(crate) enum Sought<'e> {
    /// The operation was executed, and has its reply.
    Done,
    /// The edit was made. The operation has no reply yet.
    Edited(Edit<'e>),
    /// The edit is to be made at this location.
    Left(Location, Edit<'e>),
    /// The value is large, and its key may have expired. Nothing was done.
    Large(Location, LargeRoot),
}

/// The result of an access to a slab in a search.
enum SlabContent<'e> {
    Done,
    Value(usize, Option<Expiry>, Edit<'e>),
    Large(LargeRoot, Option<Expiry>),
    OtherKey,
}

/// A key's hash and home bucket, as [`HashTable::locate`] returns them.
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

/// A hash table and its memory.
#[derive(Debug)]
pub struct HashTable<M> {
    pub(super) memory: M,
    pub(super) index: Index,
    pub(super) growth: Growth,
    /// Bit s: pairs of s bytes are inline.
    inline_sizes: u64,
    secrets: RapidSecrets,
    search: Search,
    slabs: RefCell<SlabAllocator>,
    pub(super) pair_count: Cell<u64>,
    pub(super) used: UsedGroups,
    pair_size: Cell<u64>,
    /// Pairs whose keys have an expiry.
    expiring_count: Cell<u64>,
    /// Buckets of chains, besides the home buckets.
    overflow_count: Cell<u64>,
    /// A write was refused for lack of memory: the next pass over expired keys shall not pause.
    wants_reclaim: Cell<bool>,
    /// While a log is replayed: see `replay.rs`.
    pub(super) replayed_until: Cell<Option<u64>>,
    /// At most the earliest expiry that was written since the last call of `forget_earliest_expiry`.
    earliest_expiry: Cell<u64>,
    /// The time, in milliseconds since 1970.
    now: Cell<u64>,
    pub(super) stale: Stale,
}

impl<M: Memory> HashTable<M> {
    /// Returns an empty table in a memory of zeros.
    pub fn new(memory: M, settings: &Settings) -> Result<Self, RegionError> {
        let bucket_count = settings.bucket_count(memory.size())?;
        let bucket_count_max = if settings.grows { Settings::bucket_count_max(memory.size()) } else { bucket_count };
        let slab_start = Pointer::to_line(u64::from(bucket_count));
        // The last line stays unused: the end of 64 GiB would have no pointer.
        let slab_end = Pointer::to_line(memory.size() / LINE_SIZE as u64 - 1);
        let mut slabs = SlabAllocator::new(slab_start, slab_end);
        if settings.grows {
            slabs.keep_front();
        }
        Ok(HashTable {
            index: Index::new(bucket_count),
            growth: Growth::new(bucket_count, bucket_count_max),
            inline_sizes: settings.inline_sizes(),
            secrets: RapidSecrets::seed(settings.seed),
            search: Search::new(),
            slabs: RefCell::new(slabs),
            pair_count: Cell::new(0),
            used: UsedGroups::new(bucket_count_max),
            pair_size: Cell::new(0),
            expiring_count: Cell::new(0),
            overflow_count: Cell::new(0),
            wants_reclaim: Cell::new(false),
            replayed_until: Cell::new(None),
            earliest_expiry: Cell::new(u64::MAX),
            now: Cell::new(0),
            stale: Stale::default(),
            memory,
        })
    }

    /// Counts a pair that was inserted.
    #[inline(always)]
    pub(super) fn count_insertion(&self, home: BucketIndex) {
        self.pair_count.set(self.pair_count.get() + 1);
        self.used.set(home.0);
    }

    /// Counts a pair that was removed.
    #[inline(always)]
    pub(super) fn count_removal(&self) {
        self.pair_count.set(self.pair_count.get() - 1);
    }

    /// Counts a bucket that was appended to a chain, or removed from one.
    pub(super) fn count_overflow(&self, difference: i64) {
        self.overflow_count.set(self.overflow_count.get().wrapping_add_signed(difference));
    }

    /// Returns the number of buckets in chains, besides the home buckets.
    pub fn overflow_count(&self) -> u64 {
        self.overflow_count.get()
    }

    /// Returns the memory of the table.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the number of keys.
    pub fn pair_count(&self) -> u64 {
        self.pair_count.get()
    }

    /// Returns the bytes of all keys and values.
    pub fn pair_size(&self) -> u64 {
        self.pair_size.get()
    }

    /// Returns the number of keys that have an expiry, with those that have expired.
    pub fn expiring_count(&self) -> u64 {
        self.expiring_count.get()
    }

    /// Sets the time, in milliseconds since 1970. It does not go back.
    #[inline]
    pub(crate) fn set_now(&self, now: u64) {
        self.now.set(self.now.get().max(now));
    }

    /// Sets the time of a replay, also back.
    pub(crate) fn set_time(&self, now: u64) {
        self.now.set(now);
    }

    /// Returns the time, in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Forgets all pairs and the memory that they take.
    pub(super) fn forget_pairs(&self) {
        self.pair_count.set(0);
        self.used.clear_all();
        self.pair_size.set(0);
        self.expiring_count.set(0);
        self.overflow_count.set(0);
        self.forget_earliest_expiry();
        self.slabs.borrow_mut().forget();
    }

    /// Returns the memory of some zones to the allocator after [`HashTable::forget_pairs`]. Returns true if there are more.
    pub(super) fn return_zones(&self, count: usize) -> bool {
        self.slabs.borrow_mut().return_zones(count)
    }

    /// Returns the number of home buckets; while the index grows, the number that there will be.
    pub(crate) fn bucket_count(&self) -> u32 {
        self.index.count()
    }

    /// Returns a time that is not above any expiry since the last call of [`HashTable::forget_earliest_expiry`].
    pub(super) fn earliest_expiry(&self) -> u64 {
        self.earliest_expiry.get()
    }

    pub(super) fn forget_earliest_expiry(&self) {
        self.earliest_expiry.set(u64::MAX);
    }

    /// Notes an expiry, in milliseconds since 1970.
    pub(super) fn note_expiry(&self, milliseconds: u64) {
        self.earliest_expiry.set(self.earliest_expiry.get().min(milliseconds));
    }

    /// Returns true if a key with this expiry is missing.
    #[inline(always)]
    pub(crate) fn has_expired(&self, expiry: Option<Expiry>) -> bool {
        expiry.is_some_and(|expiry| expiry.has_passed(self.now.get()))
    }

    /// Returns the expiry of a key after its pair is stored at a location.
    pub(crate) fn expiry_after(&self, location: &Location, new: &NewValue<'_>) -> Option<Expiry> {
        new.expiry().apply(location.expiry().filter(|expiry| !self.has_expired(Some(*expiry))))
    }

    /// Notes that a write was refused for lack of memory.
    pub(crate) fn want_reclaim(&self) {
        self.wants_reclaim.set(true);
    }

    /// Returns true if a write was refused since the last pass over expired keys began.
    pub(crate) fn wants_reclaim(&self) -> bool {
        self.wants_reclaim.get()
    }

    /// Notes that a pass has begun.
    pub(crate) fn forget_want(&self) {
        self.wants_reclaim.set(false);
    }

    /// Returns true if a key that is stored at a location would have expired already: its pair is removed instead.
    pub(crate) fn expires_at_once(&self, location: &Location, new: &NewValue<'_>) -> bool {
        self.has_expired(self.expiry_after(location, new))
    }

    /// Returns the bytes of the hash index, without overflow buckets.
    pub fn index_size(&self) -> u64 {
        u64::from(self.bucket_count()) * LINE_SIZE as u64
    }

    /// Returns the bytes of slab memory that are free.
    pub fn slab_free_size(&self) -> u64 {
        self.slabs.borrow().free_size()
    }

    /// Returns the bytes that the allocator takes besides the memory.
    pub fn bookkeeping_size(&self) -> u64 {
        self.slabs.borrow().bookkeeping_size()
    }

    /// Returns the statistics of the allocator.
    pub fn slab_statistics(&self) -> SlabStatistics {
        self.slabs.borrow().statistics()
    }

    /// Returns a daemon that merges free slabs, which the caller runs on its own thread.
    pub fn merge_daemon(&self) -> MergeDaemon {
        self.slabs.borrow_mut().merge_daemon()
    }

    /// Hashes a key.
    #[inline(always)]
    pub(crate) fn locate(&self, key: &[u8]) -> Home {
        self.locate_in(self.division(), key)
    }

    /// Returns how keys are divided among home buckets now. It stays so during a batch.
    #[inline(always)]
    pub(crate) fn division(&self) -> Division {
        self.index.division()
    }

    /// Hashes a key, whose home bucket follows from this division.
    #[inline(always)]
    pub(crate) fn locate_in(&self, division: Division, key: &[u8]) -> Home {
        let hash = self.position(key);
        // The upper bits choose the bucket, the lowest nine are the secondary hash. So the two are independent of each
        // other.
        Home { hash: KeyHash(hash), bucket: division.bucket(hash) }
    }

    /// Returns the position of a key: its secret hash.
    #[inline(always)]
    pub(super) fn position(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
    }

    /// Prefetches a bucket.
    #[inline]
    pub(crate) fn prefetch(&self, bucket: BucketIndex) {
        self.memory.prefetch_line(bucket.pointer());
    }

    /// Returns the slots of a bucket that a new pair takes.
    pub(crate) fn slot_count(&self, key_size: usize, value_size: usize, expiry: Option<Expiry>) -> usize {
        if self.is_inline(key_size, value_size, expiry) { slots_for(key_size + value_size) } else { 1 }
    }

    /// Returns the search for this machine.
    #[inline]
    pub(crate) fn search(&self) -> Search {
        self.search
    }

    /// Searches a bucket for a key.
    #[inline]
    pub(crate) fn probe(&self, bucket: &Bucket, key: &[u8], home: Home) -> Probe {
        self.search.probe(bucket, key, home.secondary())
    }

    /// Executes an operation as far as this bucket alone allows, after a probe of it. If the bucket has the pair,
    /// `access` gets the value. If it shows that the key is missing, `access` gets `None`. An edit is made if it needs
    /// only this bucket, which is the home bucket if that is given.
    #[inline(always)]
    pub(crate) fn access_bucket<'e>(
        &self,
        bucket: &mut Bucket,
        probe: Probe,
        key: &[u8],
        home: Option<BucketIndex>,
        access: impl FnOnce(Option<ResidentValue<'_>>) -> Access<'e>,
    ) -> (Effect, BucketAccess<'e>) {
        let (found, accessed) = match probe {
            Probe::Pair(pair) => {
                let bytes = bucket.inline_value_mut(pair);
                (Some(pair), access(Some(ResidentValue { bytes, expiry: None })))
            }
            Probe::Absent if bucket.chain().is_none() => (None, access(None)),
            Probe::Absent | Probe::Slab(..) => return (Effect::Unchanged, BucketAccess::Elsewhere),
        };
        match accessed {
            Access::Done(effect) => (effect, BucketAccess::Done),
            Access::Edit(edit) if self.edit_bucket(bucket, found, key, home, &edit) => {
                (Effect::Changed, BucketAccess::Edited(edit))
            }
            Access::Edit(edit) => (Effect::Unchanged, BucketAccess::Left(found, edit)),
        }
    }

    /// Prefetches a slab.
    #[inline]
    pub(crate) fn prefetch_slab(&self, slab: SlabSlot) {
        self.memory.prefetch(slab.pointer.span(slab.class.size()));
    }

    /// Searches for a key. `access` gets its value if that is in one piece, or `None` if the key is missing. A missing
    /// key's location has room for `needed_slots`, if any bucket of the chain has.
    #[inline]
    pub(crate) async fn find<'e>(
        &self,
        key: &[u8],
        home: Home,
        needed_slots: usize,
        mut access: impl FnMut(Option<ResidentValue<'_>>) -> Access<'e>,
    ) -> Sought<'e> {
        let access_home = |line: &mut Line| {
            let bucket = Bucket::from_line_mut(line);
            let probe = self.probe(bucket, key, home);
            let (effect, accessed) = self.access_bucket(bucket, probe, key, Some(home.bucket), &mut access);
            (effect, (accessed, *bucket))
        };
        let at = home.bucket.pointer();
        let (accessed, bucket) = self.memory.update_prefetched_line(at, access_home).await;
        let copy = BucketCopy::home(at, bucket);
        match accessed {
            BucketAccess::Done => Sought::Done,
            BucketAccess::Edited(edit) => Sought::Edited(edit),
            BucketAccess::Left(Some(pair), edit) => Sought::Left(Location::Inline { copy, pair }, edit),
            BucketAccess::Left(None, edit) => {
                let has_room = copy.bucket.free_slot_count() >= needed_slots;
                Sought::Left(Location::Missing { copy, has_room }, edit)
            }
            BucketAccess::Elsewhere => self.find_on(copy, key, home, needed_slots, access).await,
        }
    }

    /// Continues a search from a bucket that does not hold the key inline.
    async fn find_on<'e>(
        &self,
        mut copy: BucketCopy,
        key: &[u8],
        home: Home,
        needed_slots: usize,
        mut access: impl FnMut(Option<ResidentValue<'_>>) -> Access<'e>,
    ) -> Sought<'e> {
        let secondary = home.secondary();
        let mut room = None;
        loop {
            let mut from = 0;
            while let Some((slot, slab)) = self.search.slab(&copy.bucket, secondary, from) {
                let access_slab = |bytes: &mut [u8]| match object::find(slab.class, bytes, key) {
                    Some(Object { content: Content::Value(range), expiry }) => {
                        let value_size = range.len();
                        let has_expired = self.has_expired(expiry);
                        let value = (!has_expired).then(|| ResidentValue { bytes: &mut bytes[range], expiry });
                        match access(value) {
                            Access::Done(effect) => (effect, SlabContent::Done),
                            Access::Edit(edit) => (Effect::Unchanged, SlabContent::Value(value_size, expiry, edit)),
                        }
                    }
                    Some(Object { content: Content::Large(root), expiry }) => {
                        (Effect::Unchanged, SlabContent::Large(root, expiry))
                    }
                    None => (Effect::Unchanged, SlabContent::OtherKey),
                };
                match self.memory.update(slab.pointer.span(slab.class.size()), access_slab).await {
                    SlabContent::Done => return Sought::Done,
                    SlabContent::Value(value_size, expiry, edit) => {
                        return Sought::Left(Location::Slab { copy, slot, slab, value_size, expiry }, edit);
                    }
                    SlabContent::Large(root, expiry) => {
                        return Sought::Large(Location::Large { copy, slot, slab, root, expiry }, root);
                    }
                    SlabContent::OtherKey => from = slot + 1,
                }
            }
            let next = copy.bucket.chain();
            if needed_slots > 0 && room.is_none() && copy.bucket.free_slot_count() >= needed_slots {
                room = Some(BucketCopy { ..copy });
            }
            let Some(at) = next else {
                let Access::Edit(edit) = access(None) else { return Sought::Done };
                let has_room = room.is_some();
                return Sought::Left(Location::Missing { copy: room.unwrap_or(copy), has_room }, edit);
            };
            copy = copy.next(at, Bucket::from_line(self.memory.read_line(at).await));
            if let Some(pair) = self.search.inline_pair(&copy.bucket, key) {
                let bytes = copy.bucket.inline_value_mut(pair);
                return match access(Some(ResidentValue { bytes, expiry: None })) {
                    Access::Done(effect) => {
                        if effect == Effect::Changed {
                            self.memory.write_line(copy.at, copy.bucket.as_line()).await;
                        }
                        Sought::Done
                    }
                    Access::Edit(edit) => Sought::Left(Location::Inline { copy, pair }, edit),
                };
            }
        }
    }

    /// Begins a batch, in which the store itself merges at most `merge_work` free slabs.
    pub(crate) fn begin_batch(&self, merge_work: usize) {
        self.slabs.borrow_mut().begin_batch(merge_work);
    }

    /// Returns the bytes that merging has touched in this batch, in the store itself.
    pub(crate) fn bytes_merged(&self) -> usize {
        self.slabs.borrow().work_of_merging().saturating_mul(LINE_SIZE)
    }

    /// Notes that an operation on a key lacks slabs, which are being merged. Returns false if it has already waited for
    /// all merges.
    pub(crate) fn may_wait(&self, hash: KeyHash) -> bool {
        self.slabs.borrow_mut().may_wait(hash.0)
    }

    /// Notes that an operation on a key, which may have waited for slabs, is done or refused.
    #[inline(always)]
    pub(crate) fn end_wait(&self, hash: KeyHash) {
        // Nearly always none waits.
        if self.slabs.borrow().has_waiters() {
            cold_path();
            self.slabs.borrow_mut().end_wait(hash.0);
        }
    }

    /// Returns the allocator of slabs.
    pub(super) fn slabs(&self) -> RefMut<'_, SlabAllocator> {
        self.slabs.borrow_mut()
    }

    /// Allocates a slab of the class.
    pub(super) fn take_slab(&self, class: SlabClass) -> Result<Pointer, NoSlab> {
        self.slabs.borrow_mut().take(class)
    }

    /// Returns true if there is a slab of the class without merging.
    pub(super) fn has_slab(&self, class: SlabClass) -> bool {
        self.slabs.borrow().has(class)
    }

    /// Allocates a slab of the class, if there is one without merging.
    pub(super) fn take_free_slab(&self, class: SlabClass) -> Option<Pointer> {
        self.slabs.borrow_mut().allocate(class)
    }

    /// Allocates all slabs that are needed, the largest first; or none.
    pub(super) fn take_slabs(&self, needs: &SlabNeeds, give: impl FnMut(SlabClass, Pointer)) -> Result<(), NoSlab> {
        self.slabs.borrow_mut().take_all(needs, give)
    }

    /// Takes back a slab of [`HashTable::take_free_slab`] that was not used.
    pub(super) fn take_back_unused(&self, class: SlabClass, pointer: Pointer) {
        self.slabs.borrow_mut().take_back_unused(class, pointer);
    }

    pub(super) fn release(&self, class: SlabClass, pointer: Pointer) {
        self.slabs.borrow_mut().release(class, pointer);
    }

    /// Returns true if a pair is stored in its bucket. A key with an expiry never is: a bucket has no bits for it.
    #[inline(always)]
    pub(crate) fn is_inline(&self, key_size: usize, value_size: usize, expiry: Option<Expiry>) -> bool {
        let size = key_size + value_size;
        size <= INLINE_SIZE_MAX && self.inline_sizes >> size & 1 != 0 && expiry.is_none()
    }

    /// Counts keys that got an expiry or have lost one.
    pub(super) fn count_expiring(&self, before: Option<Expiry>, after: Option<Expiry>) {
        let difference = i64::from(after.is_some()) - i64::from(before.is_some());
        self.expiring_count.set(self.expiring_count.get().wrapping_add_signed(difference));
        if let Some(after) = after {
            self.note_expiry(after.milliseconds());
        }
    }

    /// Counts bytes of keys and values that were inserted or removed.
    pub(super) fn count_pair_size(&self, difference: i64) {
        self.pair_size.set(self.pair_size.get().wrapping_add_signed(difference));
    }
}
