//! A part of the hash range, whose keys are recovered in one pass over the directory.

use skep_store::hash::{KeyPositions, Settings};

/// Parts of the hash range. The directory is read once for each.
pub(super) const SLICES: u64 = 8;

/// The keys of a pass over the directory.
pub(super) struct Slice {
    /// Those of each store.
    positions: Vec<KeyPositions>,
    /// The first position.
    pub(super) first: u64,
    /// The first position after them; `None` if there is none.
    end: Option<u64>,
}

impl Slice {
    /// Returns a slice of whole home buckets, if the store of each table has this many.
    pub(super) fn new(number: u64, tables: &[Settings], bucket_count: u32) -> Slice {
        let bucket_count = u128::from(bucket_count);
        let bound = |number: u64| {
            let bucket = u128::from(number) * bucket_count / u128::from(SLICES);
            u64::try_from((bucket << 64).div_ceil(bucket_count)).ok()
        };
        let positions = tables.iter().map(|table| KeyPositions::new(table.seed)).collect();
        Slice { positions, first: bound(number).expect("a slice begins before the end"), end: bound(number + 1) }
    }

    /// Returns true if a position is before the end of the slice.
    pub(super) fn is_before_end(&self, position: u64) -> bool {
        self.end.is_none_or(|end| position < end)
    }

    /// Returns true if the key of a store is to be recovered in this pass.
    pub(super) fn contains(&self, store: usize, key: &[u8]) -> bool {
        let position = self.positions[store].of(key);
        position >= self.first && self.is_before_end(position)
    }
}
