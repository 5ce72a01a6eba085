//! Removes all keys, in steps of bounded work.
//!
//! A step removes the keys of a leaf from a position on, in their order, as deletes do. So scans, leases and writes run
//! beside it as they run beside deletes. Keys that are inserted after the first step, above the position, are removed too.

use super::super::key_head::Target;
use super::super::leaf::cursor::LeafCursor;
use super::super::version::clock::Snapshot;
use super::super::write::change::Change;
use super::Session;
use skep_core::operation::{Operation, Reply};

/// Most keys that a step removes.
pub const FLUSH_KEYS_MAX: usize = 64;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushStep {
    /// No key is left from the position on.
    Done,
    /// There may be more keys from the new position on.
    More,
    /// There is no memory for a removal at the moment: try again later.
    Waits,
}

impl Session<'_> {
    /// Removes keys from a position on, at most [`FLUSH_KEYS_MAX`], and moves the position after them. The first position
    /// is empty.
    pub fn flush_step(&mut self, position: &mut Vec<u8>) -> FlushStep {
        let mut keys: Vec<(Vec<u8>, bool)> = Vec::new();
        let next = {
            let (store, guard) = self.enter();
            let now = store.clock.now();
            let leaf = store.find_leaf(Target::AtOrBelow(position), u64::MAX, &guard);
            let mut cursor = LeafCursor::new(leaf, 0, Snapshot::ALL);
            let mut next = None;
            while let Some(item) = cursor.next() {
                if item.key < &position[..] {
                    continue;
                }
                if keys.len() == FLUSH_KEYS_MAX {
                    next = Some(item.key.to_vec());
                    break;
                }
                keys.push((item.key.to_vec(), item.value.has_expired(now)));
            }
            // Every leaf beside another one has a pair.
            let first = |right| LeafCursor::new(store.latest(right, &guard), 0, Snapshot::ALL).next();
            next.or_else(|| leaf.right().and_then(first).map(|item| item.key.to_vec()))
        };
        for (key, has_expired) in keys {
            let change = || if has_expired { Change::Reclaim } else { Change::Execute(&Operation::Delete) };
            let reply = self.try_write(&key, change()).or_else(|| {
                self.hand_over();
                self.store.reclaimer.make_room();
                self.try_write(&key, change())
            });
            self.collect_batch();
            if !matches!(reply, Some(Reply::Done | Reply::NotFound)) {
                *position = key;
                return FlushStep::Waits;
            }
        }
        match next {
            Some(next) => {
                *position = next;
                FlushStep::More
            }
            None => FlushStep::Done,
        }
    }
}
