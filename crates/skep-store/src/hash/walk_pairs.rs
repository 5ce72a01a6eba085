//! A walk over all pairs of a table, in steps, while operations between the steps change it: for snapshots.
//!
//! A step returns the pairs of at most [`GROUP_BUCKETS`] home buckets with their chains, as they are at this moment, and
//! fewer if their keys and values have many bytes. Why no key is missed: see `walk.rs`. Keys that have expired and are not removed yet are returned too. What is read back
//! has its own time of day, at which they may exist.

use super::bucket::{Bucket, Entry};
use super::bucket_index::BucketIndex;
use super::object::{self, Content};
use super::table::HashTable;
use super::walk::GROUP_BUCKETS;
use crate::memory::Memory;
use skep_core::operation::Expiry;

/// Bytes of keys and values from which on a step ends with a home bucket.
const STEP_SIZE: usize = 256 << 10;

impl<M: Memory> HashTable<M> {
    /// Calls `each` with the key, the value and the expiry of the pairs from a position on. Returns the position with which the
    /// next step begins; `None` after the last one. `group` is for its memory.
    pub(crate) async fn walk_pairs(
        &self,
        group: &mut Vec<(BucketIndex, Bucket)>,
        from: u64,
        mut each: impl FnMut(&[u8], &[u8], Option<Expiry>),
    ) -> Option<u64> {
        let first = self.index.bucket(from);
        let end = self.index.end_of_run(first.0).min(first.0.saturating_add(GROUP_BUCKETS));
        self.read_group(group, first.0..end).await;
        let mut size = 0;
        let mut home = first;
        for (bucket_home, bucket) in &*group {
            if *bucket_home != home {
                if size >= STEP_SIZE {
                    return Some(self.index.first_position(bucket_home.0));
                }
                home = *bucket_home;
            }
            let mut each = |key: &[u8], value: &[u8], expiry| {
                if home == first && self.position(key) < from {
                    return;
                }
                size += key.len() + value.len();
                each(key, value, expiry);
            };
            for (_, entry) in bucket.entries() {
                let slab = match entry {
                    Entry::Slab(slab) => slab,
                    Entry::Inline(pair) => {
                        each(bucket.inline_key(pair), bucket.inline_value(pair), None);
                        continue;
                    }
                };
                let read = |bytes: &[u8]| {
                    let (key, object) = object::read(slab.class, bytes);
                    match object.content {
                        Content::Value(value) => {
                            each(&bytes[key], &bytes[value], object.expiry);
                            None
                        }
                        Content::Large(root) => Some((bytes[key].to_vec(), root, object.expiry)),
                    }
                };
                if let Some((key, root, expiry)) = self.memory().read(slab.pointer.span(slab.class.size()), read).await
                {
                    let pieces = self.pieces(&root).await;
                    let mut value = Vec::with_capacity(root.value_size as usize);
                    let size = root.value_size as usize;
                    self.read_pieces(&pieces, 0..size, |_, piece| value.extend_from_slice(piece)).await;
                    each(&key, &value, expiry);
                }
            }
        }
        self.index.next(end).map(|next| self.index.first_position(next))
    }
}
