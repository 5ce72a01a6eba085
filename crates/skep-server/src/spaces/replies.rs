//! The replies to a batch, in a list for each space.

use skep_core::operation::Reply;
use skep_store::processor::Replies;

use crate::keyspace::KeyspaceReplies;
use crate::limits::REPLY_BUDGET;
use crate::vocabulary::{List, ReplyIndex};

/// The replies to a batch.
#[derive(Debug)]
pub(crate) struct SpaceReplies {
    pub(super) hash: Replies,
    pub(super) ordered: Replies,
    pub(super) cache: Replies,
    pub(super) items: Replies,
    pub(super) keyspace: KeyspaceReplies,
    /// Operations of the last batch that are to be submitted again.
    pub(super) hash_deferred: usize,
    pub(super) ordered_deferred: usize,
    pub(super) cache_deferred: usize,
    pub(super) items_deferred: usize,
    pub(super) keyspace_deferred: usize,
    /// Puts of the hash space that a test lets be deferred.
    #[cfg(test)]
    pub(super) deferred_puts: Vec<bool>,
    /// Each two replies of the hash space are swapped: a test must find that.
    #[cfg(test)]
    pub(super) are_swapped: bool,
}

impl SpaceReplies {
    /// Returns an object without replies.
    pub(crate) fn new() -> SpaceReplies {
        let replies = || Replies::with_budget(REPLY_BUDGET);
        SpaceReplies {
            hash: replies(),
            ordered: replies(),
            cache: replies(),
            items: replies(),
            keyspace: KeyspaceReplies::default(),
            hash_deferred: 0,
            ordered_deferred: 0,
            cache_deferred: 0,
            items_deferred: 0,
            keyspace_deferred: 0,
            #[cfg(test)]
            deferred_puts: Vec::new(),
            #[cfg(test)]
            are_swapped: false,
        }
    }

    /// Sets the number of bytes that the large replies of each space may take in the next batch. Requests whose replies
    /// do not fit are deferred.
    pub(crate) fn set_room(&mut self, room: usize) {
        for replies in [&mut self.hash, &mut self.ordered, &mut self.cache, &mut self.items] {
            replies.set_room(room);
        }
        self.keyspace.set_room(room);
    }

    /// Returns the bytes that `count` operations from an index on have touched, without those that have touched few each.
    pub(crate) fn bytes_touched_by(&self, first: ReplyIndex, count: usize) -> usize {
        let range = first.index as usize..first.index as usize + count;
        match first.list {
            List::Hash => self.hash.bytes_touched_by(range),
            List::Ordered => self.ordered.bytes_touched_by(range),
            List::Cache => self.cache.bytes_touched_by(range),
            List::Items => self.items.bytes_touched_by(range),
            List::Keyspace => self.keyspace.bytes_touched_by(range),
        }
    }

    /// Returns true if the operation at this index was deferred because there is no room for its reply.
    pub(crate) fn is_deferred_for_room(&self, at: ReplyIndex) -> bool {
        let index = at.index as usize;
        match at.list {
            List::Hash => self.hash.is_deferred_for_room(index),
            List::Ordered => self.ordered.is_deferred_for_room(index),
            List::Cache => self.cache.is_deferred_for_room(index),
            List::Items => self.items.is_deferred_for_room(index),
            List::Keyspace => self.keyspace.is_deferred_for_room(index),
        }
    }

    /// Returns the replies of a list, if they are those of a store.
    #[inline]
    pub(crate) fn list(&self, list: List) -> Option<&Replies> {
        #[cfg(test)]
        if self.are_swapped {
            return None;
        }
        match list {
            List::Hash => Some(&self.hash),
            List::Ordered => Some(&self.ordered),
            List::Cache => Some(&self.cache),
            List::Items => Some(&self.items),
            List::Keyspace => None,
        }
    }

    /// Returns the reply at this index.
    #[inline]
    pub(crate) fn get(&self, at: ReplyIndex) -> Reply<'_> {
        let index = at.index as usize;
        #[cfg(test)]
        if self.are_swapped && at.list == List::Hash {
            return self.swapped(index);
        }
        match at.list {
            List::Hash => self.hash.get(index),
            List::Ordered => self.ordered.get(index),
            List::Cache => self.cache.get(index),
            List::Items => self.items.get(index),
            List::Keyspace => self.keyspace.get(index).map_or(Reply::Deferred, Reply::Value),
        }
    }

    /// Returns the reply to the operation of the hash space after or before this one, if both are done.
    #[cfg(test)]
    fn swapped(&self, index: usize) -> Reply<'_> {
        let other = index ^ 1;
        let is_done = |index| index < self.hash.len() && !self.hash.is_deferred(index);
        self.hash.get(if is_done(index) && is_done(other) { other } else { index })
    }

    /// Returns true if operations of this index's list are to be submitted again.
    pub(crate) fn have_deferred(&self, at: ReplyIndex) -> bool {
        match at.list {
            List::Hash => self.hash_deferred > 0,
            List::Ordered => self.ordered_deferred > 0,
            List::Cache => self.cache_deferred > 0,
            List::Items => self.items_deferred > 0,
            List::Keyspace => self.keyspace_deferred > 0,
        }
    }

    /// Returns true if the operation at this index is to be submitted again.
    pub(crate) fn is_deferred(&self, at: ReplyIndex) -> bool {
        let index = at.index as usize;
        #[cfg(test)]
        if at.list == List::Hash && self.deferred_puts.get(index).is_some_and(|is_deferred| *is_deferred) {
            return true;
        }
        match at.list {
            List::Hash => self.hash.is_deferred(index),
            List::Ordered => self.ordered.is_deferred(index),
            List::Cache => self.cache.is_deferred(index),
            List::Items => self.items.is_deferred(index),
            List::Keyspace => self.keyspace.is_deferred(index),
        }
    }
}
