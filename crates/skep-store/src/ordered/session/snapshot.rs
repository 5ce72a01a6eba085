//! A snapshot of all pairs, in steps of bounded work. Each step shows a range of keys at a version of its own.
//!
//! ```text
//! keys      ├── step 1, version 40 ──┼── step 2, version 52 ──┼── step 3, version 52 ──┤
//! effects        41: applied    39: ignored    50: ignored         53: applied
//! ```
//!
//! An effect with a version above that of the step whose range holds its key is not in the snapshot; all others are. So
//! the pairs of all steps, then in the order of their versions the effects that are not in them, are the state at any
//! later version. The snapshot is complete only when a durable floor is above the versions of all steps.
//!
//! No step pins memory for the next one, so a snapshot of a large store takes no more memory than one step.

use super::super::leaf::cursor::Seen;
use super::super::node::overflow;
use super::super::node::value::Value;
use super::Session;
use skep_core::operation::{Expiry, PAGE_SKIPPED_MAX, Range, ScanEnd, Start};

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotStep {
    /// The version at which the step has shown its range: from its position to the next one.
    pub version: u64,
    /// True if the range of the step has no end. Otherwise the next step begins at the position.
    pub is_last: bool,
}

impl Session<'_> {
    /// Calls `f` with the pairs from a position on, all as of one version, and moves the position to the next step. Stops
    /// before the number of pairs or the bytes of their keys and values exceed the limits, after at least one pair. Leaves
    /// out keys that have expired; too many of them end the step. The first position is empty.
    ///
    /// # Panics
    ///
    /// Panics if the store has no versions.
    pub fn snapshot_step(
        &mut self,
        position: &mut Vec<u8>,
        pairs_max: usize,
        bytes_max: usize,
        mut f: impl FnMut(&[u8], &[u8], Option<Expiry>),
    ) -> SnapshotStep {
        let Session { store, participant, scratch, .. } = self;
        assert!(store.versions.are_on(), "a step shows a version");
        let guard = participant.enter();
        let snapshot = store.snapshot();
        let (mut pairs, mut bytes, mut skipped, mut next) = (0, 0, 0, None);
        // One pair more tells where the next step begins.
        let limit = pairs_max.max(1).saturating_add(1);
        let range = Range::new(Start::AtOrAbove(position), ScanEnd::Last).limit(limit);
        store.scan(range, snapshot, &guard, |key, seen| {
            let (is_full, size) = match &seen {
                Seen::Pair(value) => {
                    let size = key.len() + value.size();
                    (pairs + 1 == limit || pairs > 0 && bytes + size > bytes_max, size)
                }
                Seen::Expired(_) => (skipped >= PAGE_SKIPPED_MAX, 0),
            };
            if is_full {
                next = Some(key);
                return false;
            }
            match seen {
                Seen::Pair(value) => {
                    (pairs, bytes) = (pairs + 1, bytes + size);
                    f(key, overflow::in_full(&store.frames, value, scratch, &guard), Value::expiry(value));
                }
                Seen::Expired(count) => skipped += count,
            }
            true
        });
        let is_last = next.is_none();
        if let Some(next) = next {
            position.clear();
            position.extend_from_slice(next);
        }
        SnapshotStep { version: snapshot.version, is_last }
    }
}
