//! A part of the hash range, whose keys are recovered in one pass over the directory.

use skep_store::hash::{KeyPositions, Settings};

/// Parts of the hash range. The directory is read once for each.
pub(super) const SLICES: u64 = 8;

/// The keys of a pass over the directory.
pub(super) struct Slice {
    /// Those of each store.
    positions: Vec<KeyPositions>,
    /// Home buckets of each store, of which those from `first` to before `end` are the slice.
    bucket_count: u32,
    pub(super) first: u32,
    pub(super) end: u32,
}

impl Slice {
    pub(super) fn new(number: u64, tables: &[Settings], bucket_count: u32) -> Slice {
        let bound = |number: u64| (number * u64::from(bucket_count) / SLICES) as u32;
        let positions = tables.iter().map(|table| KeyPositions::new(table.seed)).collect();
        Slice { positions, bucket_count, first: bound(number), end: bound(number + 1) }
    }

    /// Returns true if the key of a store is to be recovered in this pass.
    pub(super) fn contains(&self, store: usize, key: &[u8]) -> bool {
        let position = self.positions[store].of(key);
        let bucket = (u128::from(position) * u128::from(self.bucket_count)) >> 64;
        (self.first..self.end).contains(&(bucket as u32))
    }
}
