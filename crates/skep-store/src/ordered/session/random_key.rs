//! A random key: a descent that takes a random child of each node, then a random pair of the leaf.
//!
//! Keys of leaves with few pairs are returned more often than others.

use super::super::leaf::cursor::LeafCursor;
use super::super::memory::number::Lid;
use super::super::node::interior;
use super::super::version::clock::Snapshot;
use super::Session;

/// Leaves in which a key is sought that has not expired.
const LEAVES_MAX: usize = 16;

impl Session<'_> {
    /// Appends a key that a random number chooses to `key`. Returns false if it has found none: the store is empty, or the
    /// keys of a random leaf and of some leaves after it have expired.
    pub fn random_key(&mut self, random: u64, key: &mut Vec<u8>) -> bool {
        let (store, guard) = self.enter();
        let Snapshot { version, now } = store.snapshot();
        let mut random = random;
        // Returns a number below `count`, and takes its part of the random bits.
        let mut below = |count: usize| {
            let product = u128::from(random) * count as u128;
            random = product as u64;
            (product >> u64::BITS) as usize
        };
        let mut node = store.as_of(Lid::ROOT, version, &guard);
        while node.level() > 0 {
            let children = interior::children(node);
            node = store.as_of(children[below(children.len())].lid, version, &guard);
        }
        for _ in 0..LEAVES_MAX {
            let pairs = || {
                let mut cursor = LeafCursor::new(node, 0, Snapshot { version, now });
                std::iter::from_fn(move || cursor.next()).filter(|item| !item.value.has_expired(now))
            };
            let count = pairs().count();
            if let Some(item) = pairs().nth(below(count)) {
                key.extend_from_slice(item.key);
                return true;
            }
            let Some(right) = node.right() else { return false };
            node = store.as_of(right, version, &guard);
        }
        false
    }
}
