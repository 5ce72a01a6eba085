//! How much a space has: what the bounds of commands on all of its keys depend on.

use super::Spaces;

/// Bytes of a bucket of the index.
const BUCKET_SIZE: usize = 64;

/// The extent of a space: what commands on all of its keys depend on. Upper bounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    /// Pairs, with those that have expired.
    pub(crate) pairs: usize,
    /// Pairs that are not in the index itself.
    pub(crate) slabs: usize,
    /// Bytes of all keys.
    pub(crate) key_bytes: usize,
    /// Bytes of the index, all of which a walk reads.
    pub(crate) index_bytes: usize,
    /// Keys with an expiry.
    pub(crate) expiring: usize,
    /// Bytes of the longest value; known of the ordered space only.
    pub(crate) value_size_max: usize,
}

/// The extents of the spaces, and what else the bounds of commands depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    pub(crate) spaces: Spaces,
    pub(crate) hash: Extent,
    pub(crate) ordered: Extent,
    pub(crate) clients: usize,
}

impl Extents {
    /// Returns extents that are not known, for commands that depend on none.
    pub(crate) fn unknown(spaces: Spaces) -> Extents {
        Extents { spaces, hash: Extent::default(), ordered: Extent::default(), clients: 0 }
    }

    /// Adds pairs that commands may add before others walk over them, and the length that values may have then.
    pub(crate) fn grow(&mut self, pairs: usize, key_bytes: usize, value_size_max: usize) {
        for extent in [&mut self.hash, &mut self.ordered] {
            extent.pairs += pairs;
            extent.slabs += pairs;
            extent.key_bytes += key_bytes;
            extent.index_bytes += pairs * BUCKET_SIZE;
            extent.expiring += pairs;
            extent.value_size_max = extent.value_size_max.max(value_size_max);
        }
    }
}
