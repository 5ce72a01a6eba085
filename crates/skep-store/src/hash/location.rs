//! The location at which a search for a key has ended: where an edit begins.

use super::bucket::{Bucket, InlinePair, SlabSlot};
use super::object::LargeRoot;
use crate::memory::Pointer;
use skep_core::operation::Expiry;

/// The location at which a search for a key has ended.
pub(crate) enum Location {
    /// An inline pair.
    Inline { copy: BucketCopy, pair: InlinePair },
    /// A slab with the pair, and the bytes of its value. The key may have expired.
    Slab { copy: BucketCopy, slot: usize, slab: SlabSlot, value_size: usize, expiry: Option<Expiry> },
    /// A slab with the root of a large value. The key may have expired.
    Large { copy: BucketCopy, slot: usize, slab: SlabSlot, root: LargeRoot, expiry: Option<Expiry> },
    /// The key is missing. The bucket is the first one with the needed room, or the last of the chain.
    Missing { copy: BucketCopy, has_room: bool },
}

/// A copy of a bucket, and its address.
pub(crate) struct BucketCopy {
    pub(super) at: Pointer,
    pub(super) bucket: Bucket,
    /// The bucket before it in the chain. Empty for the home bucket.
    pub(super) before: Bucket,
    /// The address of that bucket. `None` for the home bucket.
    pub(super) before_at: Option<Pointer>,
}

impl BucketCopy {
    /// Returns a home bucket.
    pub(super) fn home(at: Pointer, bucket: Bucket) -> BucketCopy {
        BucketCopy { at, bucket, before: Bucket::EMPTY, before_at: None }
    }

    /// Returns the bucket after this one in the chain, with its address.
    pub(super) fn next(self, at: Pointer, bucket: Bucket) -> BucketCopy {
        BucketCopy { at, bucket, before: self.bucket, before_at: Some(self.at) }
    }
}

impl Location {
    /// Returns the size of the value that was found.
    pub(crate) fn value_size(&self) -> Option<usize> {
        match self {
            Location::Inline { pair, .. } => Some(pair.value_size()),
            Location::Slab { value_size, .. } => Some(*value_size),
            Location::Large { root, .. } => Some(root.value_size as usize),
            Location::Missing { .. } => None,
        }
    }

    /// Returns the expiry of the key that was found. Its time may have passed.
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        match self {
            Location::Slab { expiry, .. } | Location::Large { expiry, .. } => *expiry,
            Location::Inline { .. } | Location::Missing { .. } => None,
        }
    }

    /// Returns true if an entry of one slot needs another bucket.
    pub(super) fn needs_bucket(&self) -> bool {
        matches!(self, Location::Missing { has_room: false, .. })
    }

    /// Returns the bucket and the first slot of the entry that was found.
    ///
    /// # Panics
    /// If none was found.
    pub(super) fn entry(&self) -> (&BucketCopy, usize) {
        match self {
            Location::Inline { copy, pair } => (copy, pair.slot()),
            Location::Slab { copy, slot, .. } | Location::Large { copy, slot, .. } => (copy, *slot),
            Location::Missing { .. } => unreachable!("an entry was found"),
        }
    }
}
