//! Bounds of the lengths of values, for the forecast of a transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use skep_core::operation::VALUE_SIZE_MAX;

use crate::limits::FORECAST_KEY_MEMORY;
use crate::vocabulary::Space;

/// Bounds of the lengths of values, while commands change them. Keys are told apart by their secret hashes.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// `None`: every value may be the longest, or missing.
    known: Option<HashMap<u64, Length>>,
    /// The number of flushes, after which every value is missing.
    flushes: u32,
    hasher: RandomState,
}

/// Bytes of memory for each key of [`Lengths`]: a table has a byte beside each entry, and at least seven of sixteen entries
/// are in use.
const LENGTH_MEMORY: usize = (size_of::<(u64, Length)>() + 1) * 16 / 7;
const _: () = assert!(LENGTH_MEMORY <= FORECAST_KEY_MEMORY);

/// The bounds of the length of a value.
#[derive(Clone, Copy, Debug, Default)]
struct Length {
    most: u32,
    /// The length to which commands have let the value grow in place, unless there was a flush since.
    least: u32,
    flushes: u32,
}

impl Lengths {
    /// Begins to know lengths, of at most as many keys. They have their memory from the beginning, so that nothing is moved
    /// in the middle of a turn.
    pub(crate) fn learn(&mut self, count: usize) {
        self.known = Some(HashMap::with_capacity(count));
    }

    /// Returns the hash of a key, if lengths are known.
    fn hash(&self, space: Space, key: &[u8]) -> Option<u64> {
        self.known.as_ref().map(|_| self.hasher.hash_one((space as u8, key)))
    }

    fn known_mut(&mut self, space: Space, key: &[u8]) -> Option<&mut Length> {
        let hash = self.hash(space, key)?;
        self.known.as_mut()?.get_mut(&hash)
    }

    /// Notes a key whose length is about to be known. Returns false if it was noted before.
    pub(crate) fn note(&mut self, space: Space, key: &[u8]) -> bool {
        let Some(hash) = self.hash(space, key) else { return false };
        let longest = Length { most: VALUE_SIZE_MAX as u32, ..Length::default() };
        let Some(Entry::Vacant(entry)) = self.known.as_mut().map(|known| known.entry(hash)) else { return false };
        entry.insert(longest);
        true
    }

    /// Sets the length of a value.
    pub(crate) fn set(&mut self, space: Space, key: &[u8], length: usize) {
        let Some(hash) = self.hash(space, key) else { return };
        if let Some(known) = &mut self.known {
            known.entry(hash).or_default().most = length as u32;
        }
    }

    /// Notes that a command may have replaced or removed a value.
    pub(super) fn replace(&mut self, space: Space, key: &[u8]) {
        if let Some(length) = self.known_mut(space, key) {
            length.least = 0;
        }
    }

    /// Notes that all values may be gone.
    pub(super) fn flush(&mut self) {
        self.flushes += 1;
    }

    /// Lets a value grow in place to a length. Returns the bytes by which it may grow.
    pub(super) fn grow(&mut self, space: Space, key: &[u8], length: usize) -> usize {
        let (flushes, length) = (self.flushes, length.min(VALUE_SIZE_MAX));
        let Some(known) = self.known_mut(space, key) else { return length };
        let least = if known.flushes == flushes { known.least as usize } else { 0 };
        (known.least, known.flushes) = (least.max(length) as u32, flushes);
        length.saturating_sub(least)
    }

    /// Raises the bound of a value. Returns it.
    pub(super) fn raise(&mut self, space: Space, key: &[u8], length: usize) -> usize {
        let length = self.get(space, key).max(length.min(VALUE_SIZE_MAX));
        self.set(space, key, length);
        length
    }

    pub(super) fn get(&self, space: Space, key: &[u8]) -> usize {
        let known = self.known.as_ref().zip(self.hash(space, key)).and_then(|(known, hash)| known.get(&hash));
        known.map_or(VALUE_SIZE_MAX, |length| length.most as usize)
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.capacity() * LENGTH_MEMORY)
    }
}
