//! The spaces of a server, and the lists of operations in a batch.

use skep_wire::native::{CACHE_SPACE, HASH_SPACE, ORDERED_SPACE};

use super::functions::Functions;

/// The store that an operation addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Space {
    /// The hash store.
    #[default]
    Hash,
    /// The ordered store.
    Ordered,
    /// The caches.
    Cache,
}

impl Space {
    /// Returns the number that clients use for it.
    pub(crate) fn number(self) -> u16 {
        match self {
            Space::Hash => HASH_SPACE,
            Space::Ordered => ORDERED_SPACE,
            Space::Cache => CACHE_SPACE,
        }
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Space::Hash => "hash",
            Space::Ordered => "ordered",
            Space::Cache => "cache",
        }
    }

    /// Returns true if each shard has a part of the space, and its keys.
    #[inline]
    pub(crate) fn is_divided(self) -> bool {
        self != Space::Ordered
    }
}

/// The spaces that a server has: the ordered one and the cache may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spaces {
    /// The server has an ordered space.
    pub(crate) has_ordered: bool,
    /// The server has a cache.
    pub(crate) has_cache: bool,
    /// The shards that have a part of the hash space and of the cache each.
    pub(crate) shard_count: u16,
    /// The functions that users have loaded.
    pub(crate) functions: &'static Functions,
}

impl Spaces {
    /// Returns the space of this number, if there is one.
    pub(crate) fn find(self, number: u16) -> Option<Space> {
        match number {
            HASH_SPACE => Some(Space::Hash),
            ORDERED_SPACE if self.has_ordered => Some(Space::Ordered),
            CACHE_SPACE if self.has_cache => Some(Space::Cache),
            _ => None,
        }
    }
}

/// A list of the operations of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// Those on keys of the hash space.
    #[default]
    Hash,
    /// Those on keys of the ordered space.
    Ordered,
    /// Those on keys of the cache.
    Cache,
    /// Those of memcached's protocol, on keys of the cache.
    Items,
    /// Those on all keys of a space.
    Keyspace,
}

impl List {
    /// Returns the list of the operations on keys of a space.
    #[inline]
    pub(crate) fn of(space: Space) -> List {
        match space {
            Space::Hash => List::Hash,
            Space::Ordered => List::Ordered,
            Space::Cache => List::Cache,
        }
    }
}

/// The index of a reply among those of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyIndex {
    pub(crate) list: List,
    pub(crate) index: u32,
}

impl ReplyIndex {
    /// Returns the index of the reply to operation `index` of the hash space.
    pub(crate) fn hash(index: usize) -> ReplyIndex {
        ReplyIndex { list: List::Hash, index: index as u32 }
    }

    /// Returns the index of the reply `count` operations later in the same list.
    #[inline]
    pub(crate) fn plus(self, count: usize) -> ReplyIndex {
        ReplyIndex { index: self.index + count as u32, ..self }
    }
}
