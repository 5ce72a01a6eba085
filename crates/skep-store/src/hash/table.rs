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

use super::bucket::{Bucket, InlinePair, SecondaryHash, SlabSlot, slots_for};
use super::object::{self, LargeRoot, Object};
use super::settings::Settings;
use super::slab::{MergeDaemon, Shortage, SlabAllocator, SlabClass, SlabTraffic};
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, RegionError};

/// The secret hash of a key, which places it in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u64);

/// Number of a bucket of the index. Buckets of a chain belong to the one it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketIndex(pub(crate) u32);

impl BucketIndex {
    pub(super) fn pointer(self) -> Pointer {
        Pointer::to_line(u64::from(self.0))
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

/// A bucket and where it lies.
pub(crate) struct Place {
    pub(super) at: Pointer,
    pub(super) bucket: Bucket,
}

/// A key's place in the index, found out by [`HashTable::locate`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) hash: KeyHash,
    pub(crate) bucket: BucketIndex,
}

/// A hash table and the memory it lies in.
#[derive(Debug)]
pub struct HashTable<M> {
    memory: M,
    bucket_count: u32,
    inline_threshold: usize,
    secrets: RapidSecrets,
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
            inline_threshold: settings.inline_threshold,
            secrets: RapidSecrets::seed(settings.seed),
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
    pub fn slab_traffic(&self) -> SlabTraffic {
        self.slabs.borrow().traffic()
    }

    /// Hands the merging of free slabs over to a daemon, which the caller runs on a thread of its own.
    pub fn merge_daemon(&self) -> MergeDaemon {
        self.slabs.borrow_mut().merge_daemon()
    }

    /// Hashes a key.
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> Home {
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        // The upper bits choose the bucket, the lowest nine are the secondary hash: independent of each other.
        let bucket = (u128::from(hash) * u128::from(self.bucket_count)) >> 64;
        Home { hash: KeyHash(hash), bucket: BucketIndex(bucket as u32) }
    }

    /// Says that the key's bucket will be read soon.
    #[inline]
    pub(crate) fn announce(&self, home: Home) {
        self.memory.announce(home.bucket.pointer().span(LINE_SIZE));
    }

    /// Slots of a bucket that a pair takes.
    pub(crate) fn slot_count(&self, key_size: usize, value_size: usize) -> usize {
        if self.is_inline(key_size, value_size) { slots_for(key_size + value_size) } else { 1 }
    }

    /// Searches for a key. If it exists with a value that lies in one piece, `visit` sees the value, once, and may change
    /// it. If it does not exist, the place has room for `needed_slots` where there is one; zero: none is needed.
    pub(crate) async fn seek(
        &self,
        key: &[u8],
        home: Home,
        needed_slots: usize,
        mut visit: impl FnMut(&mut [u8]) -> Effect,
    ) -> Location {
        let secondary = SecondaryHash::from_hash(home.hash.0);
        let at = home.bucket.pointer();
        let mut place = Place { at, bucket: Bucket::from_line(self.memory.read_announced_line(at).await) };
        let mut room = None;
        loop {
            if let Some(pair) = place.bucket.find_inline(key) {
                if visit(place.bucket.inline_value_mut(pair)) == Effect::Changed {
                    self.memory.write_line(place.at, place.bucket.as_line()).await;
                }
                return Location::Inline { place, pair };
            }
            let mut from = 0;
            while let Some((slot, slab)) = place.bucket.find_slab(secondary, from) {
                let span = slab.pointer.span(slab.class.size());
                let look = |bytes: &mut [u8]| match object::find(slab.class, bytes, key) {
                    Some(Object::Value(range)) => {
                        let value_size = range.len();
                        (visit(&mut bytes[range]), Some(Ok(value_size)))
                    }
                    Some(Object::Large(root)) => (Effect::Unchanged, Some(Err(root))),
                    None => (Effect::Unchanged, None),
                };
                match self.memory.update(span, look).await {
                    Some(Ok(value_size)) => return Location::Slab { place, slot, slab, value_size },
                    Some(Err(root)) => return Location::Large { place, slot, slab, root },
                    None => from = slot + 1,
                }
            }
            let has_room = needed_slots > 0 && place.bucket.free_slot_count() >= needed_slots;
            let next = place.bucket.chain();
            if has_room && room.is_none() {
                room = Some(Place { ..place });
            }
            match next {
                Some(at) => place = Place { at, bucket: Bucket::from_line(self.memory.read_line(at).await) },
                None => {
                    let has_room = room.is_some();
                    return Location::Missing { place: room.unwrap_or(place), has_room };
                }
            }
        }
    }

    /// A slab, after waiting for merging passes if need be.
    pub(super) async fn allocate(&self, class: SlabClass) -> Option<Pointer> {
        loop {
            let allocated = self.slabs.borrow_mut().allocate(class);
            if allocated.is_some() {
                return allocated;
            }
            let shortage = self.slabs.borrow_mut().shortage(class);
            match shortage {
                Shortage::Retry => {}
                Shortage::Wait => {
                    // The daemon may need this core.
                    std::thread::yield_now();
                    self.memory.pause().await;
                }
                Shortage::Full => return None,
            }
        }
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
