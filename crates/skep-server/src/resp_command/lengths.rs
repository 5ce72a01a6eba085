//! Bounds of the lengths of values, for the forecast of a transaction.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use skep_core::operation::VALUE_SIZE_MAX;

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

/// The bounds of the length of a value.
#[derive(Clone, Copy, Debug, Default)]
struct Length {
    most: u32,
    /// The length to which commands have let the value grow in place, unless there was a flush since.
    least: u32,
    flushes: u32,
}

impl Lengths {
    /// Begins to know lengths.
    pub(crate) fn learn(&mut self) {
        self.known = Some(HashMap::new());
    }

    fn hash(&self, space: Space, key: &[u8]) -> u64 {
        self.hasher.hash_one((space as u8, key))
    }

    /// Notes a key whose length is about to be known. Returns false if it was noted before.
    pub(crate) fn note(&mut self, space: Space, key: &[u8]) -> bool {
        let hash = self.hash(space, key);
        let longest = Length { most: VALUE_SIZE_MAX as u32, ..Length::default() };
        self.known.as_mut().is_some_and(|known| known.insert(hash, longest).is_none())
    }

    /// Sets the length of a value.
    pub(crate) fn set(&mut self, space: Space, key: &[u8], length: usize) {
        let hash = self.hash(space, key);
        if let Some(known) = &mut self.known {
            known.entry(hash).or_default().most = length as u32;
        }
    }

    /// Notes that a command may have replaced or removed a value.
    pub(super) fn replace(&mut self, space: Space, key: &[u8]) {
        let hash = self.hash(space, key);
        if let Some(length) = self.known.as_mut().and_then(|known| known.get_mut(&hash)) {
            length.least = 0;
        }
    }

    /// Notes that all values may be gone.
    pub(super) fn flush(&mut self) {
        self.flushes += 1;
    }

    /// Lets a value grow in place to a length. Returns the bytes by which it may grow.
    pub(super) fn grow(&mut self, space: Space, key: &[u8], length: usize) -> usize {
        let (hash, flushes, length) = (self.hash(space, key), self.flushes, length.min(VALUE_SIZE_MAX));
        let Some(known) = self.known.as_mut().and_then(|known| known.get_mut(&hash)) else { return length };
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
        let length = |known: &HashMap<u64, Length>| known.get(&self.hash(space, key)).copied();
        self.known.as_ref().and_then(length).map_or(VALUE_SIZE_MAX, |length| length.most as usize)
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.capacity() * size_of::<(u64, Length)>())
    }
}
