//! The keys of a command, as the table of commands describes them, and the shards that they involve.

use skep_wire::partition::Partition;

use super::Arguments;
use super::table::CommandName;
use crate::vocabulary::{ShardSet, Space};

impl CommandName {
    /// Returns the indexes of the arguments that are keys. The number of arguments has been checked against the table.
    pub(crate) fn key_indexes(self, arguments: Arguments<'_>) -> impl Iterator<Item = usize> {
        let (mut first, last, mut step) = self.info().keys;
        let mut end = if last < 0 { arguments.count() as i64 + last } else { last };
        if self == CommandName::MSetEx {
            let count = arguments.integer(1).unwrap_or(0).clamp(0, arguments.count() as i64);
            (first, step, end) = (2, 2, (2 * count).min(arguments.count() as i64 - 1));
        }
        let end = if first == 0 { 0 } else { end.min(arguments.count() as i64 - 1) + 1 };
        (first.max(0) as usize..end.max(0) as usize).step_by(step.max(1) as usize)
    }

    /// Returns the shards whose stores the command uses, if it is about this space. All shards share the ordered space.
    pub(crate) fn shards(self, arguments: Arguments<'_>, space: Space, partition: &Partition) -> ShardSet {
        let count = partition.shard_count();
        let mut keys = self.key_indexes(arguments).peekable();
        let has_keys = keys.peek().is_some() || self.info().needs_order;
        let copies_to_space =
            self == CommandName::Copy && (3..arguments.count()).any(|index| arguments.is(index, "DB"));
        let mut shards = ShardSet::default();
        if self.is_on_all_keys() || has_keys && (space == Space::Ordered || copies_to_space) {
            return ShardSet::first(count);
        }
        keys.for_each(|index| shards.insert(partition.shard_of(arguments.get(index))));
        shards
    }
}

/// Returns the shards whose stores have a key.
pub(crate) fn shards_of_key(key: &[u8], space: Space, partition: &Partition) -> ShardSet {
    match space {
        Space::Hash | Space::Cache => ShardSet::one(partition.shard_of(key)),
        Space::Ordered => ShardSet::first(partition.shard_count()),
    }
}
