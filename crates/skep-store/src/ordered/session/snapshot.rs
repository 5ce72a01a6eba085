//! A snapshot of all pairs, in steps of bounded work. Each step shows a range of keys at a version of its own.
//!
//! ```text
//! keys      ├── step 1, version 40 ──┼── step 2, version 52 ──┼ greatest key at version 38 ┼── later keys, version 38
//! effects        41: applied    39: ignored    50: ignored                                        39: applied
//! ```
//!
//! An effect with a version above that of the step whose range holds its key is not in the snapshot; all others are. So
//! the pairs of all steps, then in the order of their versions the effects that are not in them, are the state at any
//! later version. The snapshot is complete only when a durable floor is above the versions of all steps.
//!
//! **Where it ends.** When a walk begins, it notes a version and the greatest key at that version. It shows only keys up
//! to this one. A greater key that exists at any later time was written after that version, so the log has its effect.
//! Hence a walk is not lengthened by writers that append keys. It meets other keys that are inserted before it, so its
//! caller takes steps for the inserts of its sessions ([`Session::take_inserted`]): if a walk passes `n` pairs for each
//! insert, of `p` pairs at its beginning, it shows at most `p * n / (n - 1)`.
//!
//! No step pins memory for the next one, so a snapshot of a large store takes no more memory than one step.

use super::super::leaf::cursor::Seen;
use super::super::node::value::Value;
use super::super::version::clock::Snapshot;
use super::Session;
use skep_core::operation::{Expiry, PAGE_SKIPPED_MAX, Range, ScanEnd, Start};

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotStep {
    /// The version at which the step has shown its range: from the position before it to the one after it.
    pub version: u64,
    /// True if it was the last step. Keys from the position on are not shown: the walk has them as of its beginning.
    pub is_last: bool,
}

/// The walk of a snapshot, whose steps sessions of several threads may make, one after another.
#[derive(Clone, Debug)]
pub struct SnapshotWalk {
    begun_at: u64,
    /// Keys that expire after this time are shown, also if the store's time is later.
    now: u64,
    /// The greatest key at the beginning.
    last: Option<Vec<u8>>,
    position: Vec<u8>,
}

impl SnapshotWalk {
    /// Returns the version at its beginning. An effect on a key that the walk does not reach is applied if its version is
    /// greater.
    pub fn begun_at(&self) -> u64 {
        self.begun_at
    }

    /// Returns the lowest key of the next step. It is empty before the first step, and after it if there were no keys.
    pub fn position(&self) -> &[u8] {
        &self.position
    }
}

impl Session<'_> {
    /// Begins a walk over the keys that exist now, and those in memory that had not expired at the time `now`, in milliseconds
    /// since 1970.
    ///
    /// # Panics
    ///
    /// Panics if the store has no versions.
    pub fn begin_snapshot(&mut self, now: u64) -> SnapshotWalk {
        let Session { store, participant, .. } = self;
        assert!(store.versions.are_on(), "a step shows a version");
        let guard = participant.enter();
        let snapshot = store.snapshot();
        let mut last = None;
        // A key that has expired will do: it is not below the others.
        store.scan_reverse(Range::new(Start::First, ScanEnd::Last), snapshot, &guard, |key, _| {
            last = Some(key.to_vec());
            false
        });
        SnapshotWalk { begun_at: snapshot.version, now, last, position: Vec::new() }
    }

    /// Calls `f` with the pairs from the position of a walk on, all as of one version, and moves the position to the next
    /// step. Stops before the number of pairs or the bytes of their keys and values exceed the limits, after at least one
    /// pair. Leaves out keys that had expired at the time of the walk; too many of them end the step.
    pub fn snapshot_step(
        &mut self,
        walk: &mut SnapshotWalk,
        pairs_max: usize,
        bytes_max: usize,
        mut f: impl FnMut(&[u8], &[u8], Option<Expiry>),
    ) -> SnapshotStep {
        let Session { store, participant, scratch, .. } = self;
        let guard = participant.enter();
        let SnapshotWalk { now, last, position, .. } = walk;
        let snapshot = store.snapshot();
        let snapshot = Snapshot { now: snapshot.now.min(*now), ..snapshot };
        let Some(last) = last else { return SnapshotStep { version: snapshot.version, is_last: true } };
        let (mut pairs, mut bytes, mut skipped, mut next) = (0, 0, 0, None);
        // One pair more tells where the next step begins.
        let limit = pairs_max.max(1).saturating_add(1);
        let range = Range::new(Start::AtOrAbove(position), ScanEnd::AtOrBelow(last)).limit(limit);
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
                    f(key, value.in_full(&store.frames, scratch, &guard), Value::expiry(value));
                }
                Seen::Expired(count) => skipped += count,
            }
            true
        });
        position.clear();
        match next {
            Some(next) => position.extend_from_slice(next),
            None => {
                // The lowest key above the last one.
                position.extend_from_slice(last);
                position.push(0);
            }
        }
        SnapshotStep { version: snapshot.version, is_last: next.is_none() }
    }

    /// Returns the number of keys that the session has inserted since the last call, if it records effects.
    pub fn take_inserted(&mut self) -> u64 {
        self.writer.effects.as_mut().map_or(0, |log| std::mem::take(&mut log.inserted))
    }
}
