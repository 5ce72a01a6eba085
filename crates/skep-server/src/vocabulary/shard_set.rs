//! A set of shards.

use crate::limits::SHARDS_MAX;

const WORDS: usize = SHARDS_MAX as usize / u64::BITS as usize;

/// A set of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardSet([u64; WORDS]);

impl ShardSet {
    /// Returns the set of the first `count` shards.
    pub(crate) fn first(count: u16) -> ShardSet {
        let mut set = ShardSet::default();
        (0..count).for_each(|shard| set.insert(shard));
        set
    }

    /// Returns the set of one shard.
    pub(crate) fn one(shard: u16) -> ShardSet {
        let mut set = ShardSet::default();
        set.insert(shard);
        set
    }

    /// Adds a shard.
    pub(crate) fn insert(&mut self, shard: u16) {
        self.0[usize::from(shard) / 64] |= 1 << (shard % 64);
    }

    /// Adds all shards of another set.
    pub(crate) fn extend(&mut self, other: ShardSet) {
        std::iter::zip(&mut self.0, other.0).for_each(|(word, other)| *word |= other);
    }

    /// Returns true if all shards of another set are in this one.
    pub(crate) fn includes(&self, other: ShardSet) -> bool {
        std::iter::zip(self.0, other.0).all(|(word, other)| other & !word == 0)
    }

    /// Returns the shard of a set of one.
    pub(crate) fn single(&self) -> Option<u16> {
        let shard = self.next(0)?;
        (*self == ShardSet::one(shard)).then_some(shard)
    }

    /// Returns the lowest shard from `first` on.
    pub(crate) fn next(&self, first: u16) -> Option<u16> {
        (first..SHARDS_MAX).find(|shard| self.0[usize::from(*shard) / 64] >> (shard % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use crate::vocabulary::ShardSet;

    #[test]
    fn shards_are_found_in_ascending_order() {
        let mut set = ShardSet::one(255);
        for shard in [64, 0, 63, 7] {
            set.insert(shard);
        }
        let mut found = Vec::new();
        let mut next = set.next(0);
        while let Some(shard) = next {
            found.push(shard);
            next = set.next(shard + 1);
        }
        assert_eq!(found, [0, 7, 63, 64, 255]);
        assert_eq!([set, ShardSet::default(), ShardSet::one(64)].map(|set| set.single()), [None, None, Some(64)]);
        assert!(set.includes(ShardSet::one(64)) && !set.includes(ShardSet::first(2)));
        assert!(ShardSet::first(256).includes(set) && set.includes(ShardSet::default()));
        let mut union = ShardSet::first(2);
        union.extend(set);
        assert!(union.includes(set) && union.includes(ShardSet::one(1)));
    }
}
