//! Insertion, replacement and removal of an entry of the index (KV-Direct, section 3.3.1).
//!
//! Every function starts at the location where a search has ended. Its change takes effect at one moment: the write of one
//! bucket. The slabs to which the bucket will point are complete before, and those to which it has pointed are freed after.
//!
//! All slabs that a change needs are allocated before the first write, or none. So a refused change has no effect.
//!
//! A chain grows at its end, by a bucket from slab memory. It shrinks when a removal leaves a bucket empty, or so empty
//! that the next one fits into it.

use super::bucket::{Bucket, InlinePair, SLOT_COUNT, SlabSlot, slots_for};
use super::bucket_index::BucketIndex;
use super::location::{BucketCopy, Location};
use super::slab::{NoSlab, SlabClass, SlabNeeds};
use super::table::{HashTable, Home};
use super::{LargeRoot, large, large_layout, object};
use crate::apply::{Edit, NewValue};
use crate::memory::{Memory, Pointer};
use skep_core::operation::{Expiry, OperationError};

/// The reason why a pair was not stored. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStored {
    /// It cannot be.
    Failed(OperationError),
    /// Slabs are being merged: try again in a later batch. An operation that has [waited](HashTable::may_wait) for all merges
    /// fails with this error.
    Later(OperationError),
}

impl From<OperationError> for NotStored {
    fn from(error: OperationError) -> Self {
        NotStored::Failed(error)
    }
}

impl NoSlab {
    /// Returns the reason why a pair was not stored. The error is `full` if merging does not help.
    fn or_later(self, full: OperationError) -> NotStored {
        match self {
            NoSlab::Later => NotStored::Later(full),
            NoSlab::Full => NotStored::Failed(full),
        }
    }
}

/// A slab for a pair or a root, and what the index needs to point to it.
struct NewSlab {
    class: SlabClass,
    pointer: Pointer,
    /// Another bucket for the chain, if the search ended at a full one.
    bucket: Option<Pointer>,
}

/// An entry to be added to a bucket.
pub(super) enum NewEntry<'a> {
    /// The pair itself.
    Inline(&'a [u8], &'a NewValue<'a>),
    /// A slab that holds it.
    Slab(SlabSlot),
    /// The entry at these slots of another bucket: the first one, and their number.
    Of(&'a Bucket, usize, usize),
}

impl NewEntry<'_> {
    #[inline(always)]
    pub(super) fn slot_count(&self) -> usize {
        match self {
            NewEntry::Inline(key, new) => slots_for(key.len() + new.size()),
            NewEntry::Slab(_) => 1,
            NewEntry::Of(_, _, slot_count) => *slot_count,
        }
    }

    #[inline(always)]
    pub(super) fn push(&self, bucket: &mut Bucket) {
        match self {
            NewEntry::Inline(key, new) => new.finish(0, bucket.push_inline(key, new.bytes())),
            NewEntry::Slab(slab) => bucket.push_slab(*slab),
            NewEntry::Of(other, slot, slot_count) => bucket.push_slots(other, *slot, *slot_count),
        }
    }
}

impl<M: Memory> HashTable<M> {
    /// Makes an edit if it takes nothing but this bucket, which holds the inline pair or shows that there is none. Pairs are only
    /// inserted and removed if it is the home bucket, which is given then, and has no chain. Returns true if it did.
    #[inline(never)]
    pub(super) fn edit_bucket(
        &self,
        bucket: &mut Bucket,
        found: Option<InlinePair>,
        key: &[u8],
        home: Option<BucketIndex>,
        edit: &Edit<'_>,
    ) -> bool {
        let may_change_slots = home.is_some() && bucket.chain().is_none();
        let old_size = found.map(|pair| key.len() + pair.value_size());
        let old_slots = found.map_or(0, InlinePair::slot_count);
        let (new_size, new_slots) = match (edit, found) {
            // The pairs of the next bucket may fit into one that has lost a pair.
            (Edit::Remove(_), Some(_)) if may_change_slots => (None, 0),
            (Edit::Store(new), _)
                if (found.is_some() || may_change_slots)
                    && self.is_inline(key.len(), new.size(), new.expiry().apply(None)) =>
            {
                let new_size = key.len() + new.size();
                (Some(new_size), slots_for(new_size))
            }
            _ => return false,
        };
        if bucket.free_slot_count() + old_slots < new_slots {
            return false;
        }
        if let Some(pair) = found {
            bucket.remove_slots(pair.slot(), pair.slot_count());
        }
        if let Edit::Store(new) = edit {
            new.finish(0, bucket.push_inline(key, new.bytes()));
        }
        match (old_size, new_size) {
            (None, Some(_)) => self.count_insertion(home.expect("pairs are inserted into home buckets")),
            (Some(_), None) => self.count_removal(),
            _ => {}
        }
        self.count_pair_size(new_size.unwrap_or(0) as i64 - old_size.unwrap_or(0) as i64);
        true
    }

    /// Stores a pair whose value is not large. If there is no memory for the form that it should have, it stays in the slab
    /// that was found, if it fits: so a pair that does not grow can always be overwritten.
    pub(crate) async fn store(
        &self,
        home: Home,
        location: &Location,
        key: &[u8],
        new: &NewValue<'_>,
    ) -> Result<(), NotStored> {
        let expiry = self.expiry_after(location, new);
        let stored = self.store_in_form(home, location, key, new, expiry).await;
        let (Err(_), Location::Slab { slab, .. } | Location::Large { slab, .. }) = (&stored, location) else {
            return stored;
        };
        let needed = object::class_for_pair(key.len(), new.size(), expiry.is_some());
        if needed.is_none_or(|needed| needed > slab.class) {
            return stored;
        }
        self.write_pair(slab, key, new, expiry).await;
        self.count_overwrite(location, new.size(), expiry);
        Ok(())
    }

    /// Stores a pair in the form that its sizes and its expiry decide.
    async fn store_in_form(
        &self,
        home: Home,
        location: &Location,
        key: &[u8],
        new: &NewValue<'_>,
        expiry: Option<Expiry>,
    ) -> Result<(), NotStored> {
        let value_size = new.size();
        if self.is_inline(key.len(), value_size, expiry) {
            let bucket = if location.needs_bucket() { Some(self.take_bucket()?) } else { None };
            return self.install(home, location, NewEntry::Inline(key, new), bucket, key.len(), value_size).await;
        }
        let class = object::class_for_pair(key.len(), value_size, expiry.is_some()).expect("the value is not large");
        // A slab of the right class is overwritten. Its bucket is unchanged.
        if let Location::Slab { slab, .. } = location
            && slab.class == class
        {
            self.write_pair(slab, key, new, expiry).await;
            self.count_overwrite(location, value_size, expiry);
            return Ok(());
        }
        let slab = self.take_new_slab(class, location)?;
        let fill = |bytes: &mut [u8]| fill_pair(class, bytes, key, new, expiry);
        self.fill_slab(&slab, fill).await;
        self.install_slab(home, location, &slab, key.len(), value_size, expiry).await
    }

    /// Writes a pair over the content of a slab.
    async fn write_pair(&self, slab: &SlabSlot, key: &[u8], new: &NewValue<'_>, expiry: Option<Expiry>) {
        let fill = |bytes: &mut [u8]| fill_pair(slab.class, bytes, key, new, expiry);
        self.memory().write(slab.pointer.span(slab.class.size()), fill).await;
    }

    /// Counts an overwrite of what was found.
    fn count_overwrite(&self, location: &Location, value_size: usize, expiry: Option<Expiry>) {
        self.count_expiring(location.expiry(), expiry);
        self.count_pair_size(value_size as i64 - location.value_size().expect("a pair was found") as i64);
    }

    /// Stores a pair whose value is large.
    pub(crate) async fn store_large(
        &self,
        home: Home,
        location: &Location,
        key: &[u8],
        new: &NewValue<'_>,
    ) -> Result<(), NotStored> {
        let value_size = new.size();
        let expiry = self.expiry_after(location, new);
        let class = object::class_for_root(key.len(), large_layout::root_pointer_count(value_size), expiry.is_some());
        let mut needs = large_layout::needs(value_size);
        needs[class.index()] += 1;
        let mut slabs = self.take_with_bucket(needs, location)?;
        let bucket = location.needs_bucket().then(|| slabs.pop(SlabClass::BUCKET));
        let slab = NewSlab { class, pointer: slabs.pop(class), bucket };
        let root = self.write_large(new, &mut slabs).await;
        let fill = |bytes: &mut [u8]| object::write_root(class, bytes, key, &root, expiry);
        self.fill_slab(&slab, fill).await;
        self.install_slab(home, location, &slab, key.len(), value_size, expiry).await
    }

    /// Gives the key of a large value that was found this expiry.
    pub(crate) async fn store_root(
        &self,
        home: Home,
        location: &Location,
        key: &[u8],
        root: &LargeRoot,
        expiry: Option<Expiry>,
    ) -> Result<(), NotStored> {
        let Location::Large { slab: old, expiry: before, .. } = location else {
            unreachable!("a large value was found");
        };
        let value_size = root.value_size as usize;
        let class = object::class_for_root(key.len(), large_layout::root_pointer_count(value_size), expiry.is_some());
        if old.class != class {
            match self.take_new_slab(class, location) {
                Ok(slab) => {
                    let fill = |bytes: &mut [u8]| object::write_root(class, bytes, key, root, expiry);
                    self.fill_slab(&slab, fill).await;
                    return self.install_slab(home, location, &slab, key.len(), value_size, expiry).await;
                }
                Err(none) if old.class < class => return Err(none),
                // The larger slab does too.
                Err(_) => {}
            }
        }
        let fill = |bytes: &mut [u8]| object::write_root(old.class, bytes, key, root, expiry);
        self.memory().write(old.pointer.span(old.class.size()), fill).await;
        self.count_expiring(*before, expiry);
        Ok(())
    }

    /// Lets a large value that was found grow by zeros. Returns its root.
    pub(crate) async fn grow_large(
        &self,
        home: Home,
        location: &Location,
        key: &[u8],
        root: &LargeRoot,
        value_size: usize,
    ) -> Result<LargeRoot, NotStored> {
        let Location::Large { slab: old, expiry, .. } = location else {
            unreachable!("a large value was found");
        };
        let before = root.value_size as usize;
        let class = object::class_for_root(key.len(), large_layout::root_pointer_count(value_size), expiry.is_some());
        // A larger slab does too.
        let class = class.max(old.class);
        let mut needs = large_layout::growth_needs(before, value_size);
        needs[class.index()] += u32::from(class != old.class);
        let mut slabs = self.take_with_bucket(needs, location)?;
        let (root, replaced) = self.write_growth(root, value_size, &mut slabs).await;
        let fill = |bytes: &mut [u8]| object::write_root(class, bytes, key, &root, *expiry);
        if class == old.class {
            self.memory().write(old.pointer.span(class.size()), fill).await;
            self.count_pair_size(value_size as i64 - before as i64);
        } else {
            let slab = NewSlab { class, pointer: slabs.pop(class), bucket: None };
            self.fill_slab(&slab, fill).await;
            self.install_slab(home, location, &slab, key.len(), value_size, *expiry).await?;
        }
        for (class, pointer) in replaced {
            self.release(class, pointer);
        }
        Ok(root)
    }

    /// Removes the entry that was found; the key is `key_size` bytes long.
    ///
    /// # Panics
    /// If none was found.
    pub(crate) async fn remove(&self, location: &Location, key_size: usize) {
        let value_size = location.value_size().expect("an entry was found");
        let (copy, slot) = location.entry();
        self.clear_slot(copy, slot).await;
        self.release_found(location);
        self.count_removal();
        self.count_pair_size(-((key_size + value_size) as i64));
    }

    /// Allocates a bucket for a chain.
    fn take_bucket(&self) -> Result<Pointer, NotStored> {
        self.take_slab(SlabClass::BUCKET).map_err(|none| none.or_later(OperationError::IndexFull))
    }

    /// Allocates a slab for a pair at a location.
    fn take_new_slab(&self, class: SlabClass, location: &Location) -> Result<NewSlab, NotStored> {
        if !location.needs_bucket() {
            let taken = self.take_slab(class).map_err(|none| none.or_later(OperationError::SlabFull));
            return taken.map(|pointer| NewSlab { class, pointer, bucket: None });
        }
        let mut needs = SlabNeeds::default();
        needs[class.index()] += 1;
        needs[SlabClass::BUCKET.index()] += 1;
        let (mut pointer, mut bucket) = (None, None);
        let give = |taken: SlabClass, slab: Pointer| {
            let is_pointer = taken == class && pointer.is_none();
            *(if is_pointer { &mut pointer } else { &mut bucket }) = Some(slab);
        };
        let full = || if self.has_slab(class) { OperationError::IndexFull } else { OperationError::SlabFull };
        self.take_slabs(&needs, give).map_err(|none| none.or_later(full()))?;
        Ok(NewSlab { class, pointer: pointer.expect("it was needed"), bucket })
    }

    /// Allocates the slabs for a large value at a location.
    fn take_with_bucket(&self, mut needs: SlabNeeds, location: &Location) -> Result<large::LargeSlabs, NotStored> {
        needs[SlabClass::BUCKET.index()] += u32::from(location.needs_bucket());
        let mut slabs = large::LargeSlabs::default();
        self.take_slabs(&needs, |class, pointer| slabs.push(class, pointer))
            .map_err(|none| none.or_later(OperationError::SlabFull))?;
        Ok(slabs)
    }

    /// Fills a slab that no slot points to.
    async fn fill_slab(&self, slab: &NewSlab, fill: impl FnOnce(&mut [u8])) {
        self.memory().write(slab.pointer.span(slab.class.size()), fill).await;
    }

    /// Stores a slab that is filled, with a pair or a root of these sizes and this expiry, at a location.
    async fn install_slab(
        &self,
        home: Home,
        location: &Location,
        slab: &NewSlab,
        key_size: usize,
        value_size: usize,
        expiry: Option<Expiry>,
    ) -> Result<(), NotStored> {
        let entry = NewEntry::Slab(SlabSlot { class: slab.class, pointer: slab.pointer, secondary: home.secondary() });
        self.install(home, location, entry, slab.bucket, key_size, value_size).await?;
        self.count_expiring(None, expiry);
        Ok(())
    }

    /// Stores an entry at a location, and replaces the one that was found there. `bucket` extends the chain, if the location
    /// needs it.
    async fn install(
        &self,
        home: Home,
        location: &Location,
        entry: NewEntry<'_>,
        bucket: Option<Pointer>,
        key_size: usize,
        value_size: usize,
    ) -> Result<(), NotStored> {
        match (location, bucket) {
            (Location::Missing { copy, .. }, None) => self.push(copy.at, copy.bucket, &entry).await,
            (Location::Missing { copy, .. }, Some(next)) => {
                self.extend_chain(copy.at, copy.bucket, next, &entry).await;
            }
            (found, _) => self.replace(home, found, &entry).await?,
        }
        self.release_found(location);
        match location.value_size() {
            Some(old_value_size) => self.count_pair_size(value_size as i64 - old_value_size as i64),
            None => {
                self.count_insertion(home.bucket);
                self.count_pair_size((key_size + value_size) as i64);
            }
        }
        Ok(())
    }

    /// Replaces the entry that was found. A slab always has room, an inline pair may need another bucket.
    async fn replace(&self, home: Home, found: &Location, entry: &NewEntry<'_>) -> Result<(), NotStored> {
        let (copy, slot) = found.entry();
        let mut bucket = copy.bucket;
        if let (Some(_), NewEntry::Slab(slab)) = (bucket.slab_slot(slot), entry) {
            bucket.set_slab(slot, *slab);
            self.memory().write_line(copy.at, bucket.as_line()).await;
            return Ok(());
        }
        bucket.remove(slot);
        if bucket.free_slot_count() >= entry.slot_count() {
            self.push(copy.at, bucket, entry).await;
            return Ok(());
        }
        // The new entry needs a bucket with more room. It is inserted before the old one is removed, which does not leave the
        // bucket empty: an empty one has room for any entry.
        self.insert(home.bucket, entry).await?;
        let copy = BucketCopy { bucket: self.read_bucket(copy.at).await, ..*copy };
        self.clear_slot(&copy, slot).await;
        Ok(())
    }

    /// Inserts an entry into the first bucket of the chain that has room.
    pub(super) async fn insert(&self, home: BucketIndex, entry: &NewEntry<'_>) -> Result<(), NotStored> {
        let mut at = home.pointer();
        loop {
            let bucket = self.read_bucket(at).await;
            if bucket.free_slot_count() >= entry.slot_count() {
                self.push(at, bucket, entry).await;
                return Ok(());
            }
            match bucket.chain() {
                Some(next) => at = next,
                None => {
                    let next = self.take_bucket()?;
                    self.extend_chain(at, bucket, next, entry).await;
                    return Ok(());
                }
            }
        }
    }

    /// Appends an entry to a bucket that has room.
    async fn push(&self, at: Pointer, mut bucket: Bucket, entry: &NewEntry<'_>) {
        entry.push(&mut bucket);
        self.memory().write_line(at, bucket.as_line()).await;
    }

    /// Appends the bucket at `next`, with this entry, to a chain whose last bucket is `last`.
    async fn extend_chain(&self, at: Pointer, mut last: Bucket, next: Pointer, entry: &NewEntry<'_>) {
        self.push(next, Bucket::EMPTY, entry).await;
        last.set_chain(Some(next));
        self.memory().write_line(at, last.as_line()).await;
        self.count_overflow(1);
    }

    /// Removes the entry at a slot, and a bucket of the chain if it is no longer needed. If the removal leaves the bucket
    /// empty, the copy of the bucket before it is valid too.
    async fn clear_slot(&self, copy: &BucketCopy, slot: usize) {
        let BucketCopy { at, mut bucket, mut before, before_at } = *copy;
        bucket.remove(slot);
        // Reading the next bucket costs an access: worth it only where there is a good chance that it fits.
        if let Some(next_at) = bucket.chain()
            && bucket.free_slot_count() >= SLOT_COUNT / 2
        {
            let next = self.read_bucket(next_at).await;
            if next.used_slot_count() <= bucket.free_slot_count() {
                bucket.absorb(&next);
                self.memory().write_line(at, bucket.as_line()).await;
                self.release(SlabClass::BUCKET, next_at);
                self.count_overflow(-1);
                return;
            }
        }
        match before_at {
            Some(before_at) if bucket.used_slot_count() == 0 => {
                before.set_chain(None);
                self.memory().write_line(before_at, before.as_line()).await;
                self.release(SlabClass::BUCKET, at);
                self.count_overflow(-1);
            }
            _ => self.memory().write_line(at, bucket.as_line()).await,
        }
    }

    async fn read_bucket(&self, at: Pointer) -> Bucket {
        Bucket::from_line(self.memory().read_line(at).await)
    }

    /// Frees the slab of an entry to which the index no longer points. Does not free the pieces of a large value.
    fn release_found(&self, location: &Location) {
        if let Location::Slab { slab, expiry, .. } | Location::Large { slab, expiry, .. } = location {
            self.release(slab.class, slab.pointer);
            self.count_expiring(*expiry, None);
        }
    }
}

/// Fills a slab of a class with a pair.
fn fill_pair(class: SlabClass, bytes: &mut [u8], key: &[u8], new: &NewValue<'_>, expiry: Option<Expiry>) {
    let range = object::write_pair(class, bytes, key, new.bytes(), expiry);
    new.finish(0, &mut bytes[range]);
}
