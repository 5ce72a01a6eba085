//! How an entry comes into the index, changes its form, and goes (KV-Direct, section 3.3.1).
//!
//! Every function starts from where a search ended, and has one moment at which the change takes place: the write of one
//! bucket. What the bucket will point to is complete before, what it pointed to is given back after. An error leaves
//! everything as it was.
//!
//! A chain grows at its end, by a bucket from slab memory. It shrinks when a removal leaves a bucket empty, or so empty
//! that the next one fits into it.

use super::bucket::{Bucket, INLINE_SIZE_MAX, SLOT_COUNT, SecondaryHash, SlabSlot, slots_for};
use super::large::Pieces;
use super::object;
use super::slab::SlabClass;
use super::table::{HashTable, Home, Location, Place};
use crate::memory::{Memory, Pointer};
use crate::operation::OperationError;

/// What is put into a bucket.
enum NewEntry<'a> {
    /// The pair itself.
    Inline(&'a [u8], &'a [u8]),
    /// A slab that holds it.
    Slab(SlabSlot),
}

impl NewEntry<'_> {
    fn slot_count(&self) -> usize {
        match self {
            NewEntry::Inline(key, value) => slots_for(key.len() + value.len()),
            NewEntry::Slab(_) => 1,
        }
    }

    fn push(&self, bucket: &mut Bucket) {
        match self {
            NewEntry::Inline(key, value) => bucket.push_inline(key, value),
            NewEntry::Slab(slab) => bucket.push_slab(*slab),
        }
    }
}

/// The slabs of an entry that goes.
enum OldSlabs {
    None,
    Pair(SlabSlot),
    Large(SlabSlot, Pieces),
}

impl Location {
    /// Size of the value that was found.
    pub(crate) fn value_size(&self) -> Option<usize> {
        match self {
            Location::Inline { pair, .. } => Some(usize::from(pair.value_size)),
            Location::Slab { value_size, .. } => Some(*value_size),
            Location::Large { root, .. } => Some(root.value_size as usize),
            Location::Missing { .. } => None,
        }
    }
}

impl<M: Memory> HashTable<M> {
    /// Stores a pair of which the value is not large. `finish` may change the value before it is written.
    pub(crate) async fn store(
        &self,
        home: Home,
        location: Location,
        key: &[u8],
        value: &[u8],
        finish: impl FnOnce(&mut [u8]),
    ) -> Result<(), OperationError> {
        if self.is_inline(key.len(), value.len()) {
            let mut finished = [0; INLINE_SIZE_MAX];
            let finished = &mut finished[..value.len()];
            finished.copy_from_slice(value);
            finish(finished);
            return self.install(home, location, NewEntry::Inline(key, finished), key.len(), value.len()).await;
        }
        let class = object::class_for_pair(key.len(), value.len()).expect("the value is not large");
        let fill = |bytes: &mut [u8]| {
            let range = object::write_pair(class, bytes, key, value);
            finish(&mut bytes[range]);
        };
        // A slab of the right class is written over; its bucket stays as it is.
        if let Location::Slab { slab, value_size, .. } = &location
            && slab.class == class
        {
            self.memory().write(slab.pointer.span(class.size()), fill).await;
            self.count_pair_size(value.len() as i64 - *value_size as i64);
            return Ok(());
        }
        let pointer = self.allocate(class).await.ok_or(OperationError::SlabFull)?;
        self.memory().write(pointer.span(class.size()), fill).await;
        self.install_slab(home, location, class, pointer, key.len(), value.len()).await
    }

    /// Stores a pair of which the value is large.
    pub(crate) async fn store_large(
        &self,
        home: Home,
        location: Location,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), OperationError> {
        let root = self.write_large(value).await.ok_or(OperationError::SlabFull)?;
        let class = object::class_for_root(key.len(), root.pointers().count());
        let stored = match self.allocate(class).await {
            Some(pointer) => {
                let fill = |bytes: &mut [u8]| object::write_root(class, bytes, key, &root);
                self.memory().write(pointer.span(class.size()), fill).await;
                self.install_slab(home, location, class, pointer, key.len(), value.len()).await
            }
            None => Err(OperationError::SlabFull),
        };
        if stored.is_err() {
            let pieces = self.pieces(&root).await;
            self.release_pieces(&pieces);
        }
        stored
    }

    /// Removes the entry that was found; the key is `key_size` bytes long.
    ///
    /// # Panics
    /// If none was found.
    pub(crate) async fn remove(&self, home: Home, location: Location, key_size: usize) {
        let value_size = location.value_size().expect("an entry was found");
        let old = self.old_slabs(&location).await;
        let (place, slot) = into_slot(location);
        self.clear_slot(home, place, slot).await;
        self.release_old(&old);
        self.count_pairs(-1);
        self.count_pair_size(-((key_size + value_size) as i64));
    }

    /// Lets the index point to a slab that was written; gives it back at an error.
    async fn install_slab(
        &self,
        home: Home,
        location: Location,
        class: SlabClass,
        pointer: Pointer,
        key_size: usize,
        value_size: usize,
    ) -> Result<(), OperationError> {
        let entry = NewEntry::Slab(SlabSlot { class, pointer, secondary: SecondaryHash::from_hash(home.hash.0) });
        let installed = self.install(home, location, entry, key_size, value_size).await;
        if installed.is_err() {
            self.release(class, pointer);
        }
        installed
    }

    /// Puts an entry where the search ended, instead of the one that was found there, if one was.
    async fn install(
        &self,
        home: Home,
        location: Location,
        entry: NewEntry<'_>,
        key_size: usize,
        value_size: usize,
    ) -> Result<(), OperationError> {
        let old_value_size = location.value_size();
        let old = self.old_slabs(&location).await;
        match location {
            Location::Missing { mut place, has_room: true } => {
                entry.push(&mut place.bucket);
                self.memory().write_line(place.at, place.bucket.as_line()).await;
            }
            Location::Missing { place, has_room: false } => self.extend_chain(place, &entry).await?,
            found => self.replace(home, found, &entry).await?,
        }
        self.release_old(&old);
        match old_value_size {
            Some(old_value_size) => self.count_pair_size(value_size as i64 - old_value_size as i64),
            None => {
                self.count_pairs(1);
                self.count_pair_size((key_size + value_size) as i64);
            }
        }
        Ok(())
    }

    /// Puts an entry into the index instead of the one that was found.
    async fn replace(&self, home: Home, found: Location, entry: &NewEntry<'_>) -> Result<(), OperationError> {
        let (mut place, slot) = into_slot(found);
        if let (Some(_), NewEntry::Slab(slab)) = (place.bucket.slab_slot(slot), entry) {
            place.bucket.set_slab(slot, *slab);
            self.memory().write_line(place.at, place.bucket.as_line()).await;
            return Ok(());
        }
        let mut without = place.bucket;
        without.remove(slot);
        if without.free_slot_count() >= entry.slot_count() {
            entry.push(&mut without);
            self.memory().write_line(place.at, without.as_line()).await;
            return Ok(());
        }
        // The new form needs a bucket with more room: it comes first, the old one goes after.
        self.insert(home, entry).await?;
        place.bucket = self.read_bucket(place.at).await;
        self.clear_slot(home, place, slot).await;
        Ok(())
    }

    /// Puts an entry into the first bucket of the chain that has room.
    async fn insert(&self, home: Home, entry: &NewEntry<'_>) -> Result<(), OperationError> {
        let mut at = home.bucket.pointer();
        loop {
            let mut bucket = self.read_bucket(at).await;
            if bucket.free_slot_count() >= entry.slot_count() {
                entry.push(&mut bucket);
                self.memory().write_line(at, bucket.as_line()).await;
                return Ok(());
            }
            match bucket.chain() {
                Some(next) => at = next,
                None => return self.extend_chain(Place { at, bucket }, entry).await,
            }
        }
    }

    /// Adds a bucket with this entry to a chain that ends here.
    async fn extend_chain(&self, mut last: Place, entry: &NewEntry<'_>) -> Result<(), OperationError> {
        let at = self.allocate(SlabClass::BUCKET).await.ok_or(OperationError::IndexFull)?;
        let mut bucket = Bucket::EMPTY;
        entry.push(&mut bucket);
        self.memory().write_line(at, bucket.as_line()).await;
        last.bucket.set_chain(Some(at));
        self.memory().write_line(last.at, last.bucket.as_line()).await;
        Ok(())
    }

    /// Removes the entry at a slot, and a bucket of the chain if that makes one superfluous.
    async fn clear_slot(&self, home: Home, mut place: Place, slot: usize) {
        place.bucket.remove(slot);
        // Reading the next bucket costs an access: worth it only where there is a good chance that it fits.
        if let Some(next_at) = place.bucket.chain()
            && place.bucket.free_slot_count() >= SLOT_COUNT / 2
        {
            let next = self.read_bucket(next_at).await;
            if next.used_slot_count() <= place.bucket.free_slot_count() {
                place.bucket.absorb(&next);
                self.memory().write_line(place.at, place.bucket.as_line()).await;
                self.release(SlabClass::BUCKET, next_at);
                return;
            }
        }
        if place.bucket.used_slot_count() > 0 || place.at == home.bucket.pointer() {
            self.memory().write_line(place.at, place.bucket.as_line()).await;
            return;
        }
        // The last bucket of a chain is empty: the one before it becomes the last.
        let mut before = Place { at: home.bucket.pointer(), bucket: self.read_bucket(home.bucket.pointer()).await };
        while let Some(next) = before.bucket.chain().filter(|next| *next != place.at) {
            before = Place { at: next, bucket: self.read_bucket(next).await };
        }
        before.bucket.set_chain(place.bucket.chain());
        self.memory().write_line(before.at, before.bucket.as_line()).await;
        self.release(SlabClass::BUCKET, place.at);
    }

    async fn read_bucket(&self, at: Pointer) -> Bucket {
        Bucket::from_line(self.memory().read_line(at).await)
    }

    async fn old_slabs(&self, location: &Location) -> OldSlabs {
        match location {
            Location::Inline { .. } | Location::Missing { .. } => OldSlabs::None,
            Location::Slab { slab, .. } => OldSlabs::Pair(*slab),
            Location::Large { slab, root, .. } => OldSlabs::Large(*slab, self.pieces(root).await),
        }
    }

    fn release_old(&self, old: &OldSlabs) {
        match old {
            OldSlabs::None => {}
            OldSlabs::Pair(slab) => self.release(slab.class, slab.pointer),
            OldSlabs::Large(slab, pieces) => {
                self.release_pieces(pieces);
                self.release(slab.class, slab.pointer);
            }
        }
    }
}

/// Where an entry that was found lies.
fn into_slot(found: Location) -> (Place, usize) {
    match found {
        Location::Inline { place, pair } => (place, usize::from(pair.slot)),
        Location::Slab { place, slot, .. } | Location::Large { place, slot, .. } => (place, slot),
        Location::Missing { .. } => unreachable!("an entry was found"),
    }
}
