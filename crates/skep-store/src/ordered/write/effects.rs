//! The effects of a session's writes, for a log: what each write has left of its key, and the version from which on.
//!
//! ```text
//! entries   version, sizes, expiry │ version, sizes, expiry │ ...
//! bytes     key, value             │ key (deleted)          │ ...
//! ```
//!
//! An effect is recorded where an attempt is committed, in the order of the session's writes, which is that of their
//! versions. Each write has a version of its own. The value is that of the whole key: an update records its outcome. An
//! overflow value is read back from its frames, under the guard of the write.
//!
//! The removal of a key that has expired is no effect: the key is absent at any later time. It still takes a version, like
//! splits and joins, so the session owes the others a floor above it.

use super::super::leaf::edit::NewEntry;
use super::super::node::overflow;
use super::super::node::value::{Content, Value};
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::change::Change;
use skep_core::operation::Expiry;

/// Bytes of memory that the log keeps from block to block.
const KEPT_SIZE: usize = 1 << 20;

/// The effects of a session since it last sealed a block.
#[derive(Debug)]
pub(crate) struct EffectLog {
    /// The session's slot among the floors.
    pub(crate) slot: usize,
    /// True if the slot is open.
    pub(crate) is_open: bool,
    /// True if a write has taken a version, also one without an effect.
    pub(crate) has_versions: bool,
    pub(crate) entries: Vec<Entry>,
    pub(crate) bytes: Vec<u8>,
    /// Keys that were inserted, until they were counted.
    pub(crate) inserted: u64,
}

/// An effect whose key and value are in the bytes, after those of the entry before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    pub(crate) key_size: u32,
    /// `None` if the key was deleted.
    pub(crate) value_size: Option<u32>,
    pub(crate) expiry: Option<Expiry>,
}

impl EffectLog {
    /// Creates an empty log for a session with this slot.
    pub(crate) fn new(slot: usize) -> Self {
        EffectLog { slot, is_open: false, has_versions: false, entries: Vec::new(), bytes: Vec::new(), inserted: 0 }
    }

    /// Opens the slot, before a write that may have an effect takes a version.
    #[inline(never)]
    pub(crate) fn open(&mut self, store: &OrderedStore, change: Change<'_>) {
        if !self.is_open && matches!(change, Change::Execute(_)) {
            store.floors.open(self.slot, &store.versions);
            self.is_open = true;
        }
    }

    /// Records the effect of a change that was committed: the key has this entry from a version on.
    #[inline(never)]
    pub(crate) fn record(
        &mut self,
        store: &OrderedStore,
        change: Change<'_>,
        version: u64,
        &NewEntry { key, value, .. }: &NewEntry<'_>,
        guard: &Guard<'_>,
    ) {
        self.has_versions = true;
        if matches!(change, Change::Reclaim) {
            return;
        }
        let Self { bytes, .. } = self;
        bytes.extend_from_slice(key);
        match value.map(Value::content) {
            None => {}
            Some(Content::Inside(value)) => bytes.extend_from_slice(value),
            Some(Content::Overflow(reference)) => {
                overflow::with_parts(&store.frames, reference, guard, |_, part| bytes.extend_from_slice(part));
            }
        }
        self.entries.push(Entry {
            version,
            key_size: key.len() as u32,
            value_size: value.map(|value| value.size() as u32),
            expiry: value.and_then(Value::expiry),
        });
    }

    /// Forgets the effects, which are sealed.
    pub(crate) fn clear(&mut self) {
        self.has_versions = false;
        self.entries.clear();
        self.bytes.clear();
        self.entries.shrink_to(KEPT_SIZE / size_of::<Entry>());
        self.bytes.shrink_to(KEPT_SIZE);
    }
}
