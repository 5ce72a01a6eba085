//! hashbrown's table, which is the standard library's, in three shapes.
//!
//! ```text
//! Boxes       control byte │ key: pointer, length │ value: pointer, length      two allocations a pair
//! PairBoxes   control byte │ pointer, length ─▶ key size, key, value            one allocation a pair
//! Arrays      control byte │ 8 B key │ 2 B value                                none, and no other lengths
//! ```
//!
//! Most programs would use the first. The second is the compact form that still takes any pair, with keys of at most
//! 255 bytes. The third shows how much fixed lengths save; it cannot do the work of the others.

use std::hash::BuildHasher;

use hashbrown::{HashMap, HashTable};
use rapidhash::fast::RandomState;

use super::{Contender, add, replace, weigh};

/// A map of boxes to boxes.
pub(super) struct Boxes(HashMap<Box<[u8]>, Box<[u8]>, RandomState>);

impl Boxes {
    /// Returns an empty map with capacity for `pairs` pairs.
    pub(super) fn new(pairs: usize) -> Self {
        Boxes(HashMap::with_capacity_and_hasher(pairs, RandomState::new()))
    }
}

impl Contender for Boxes {
    fn get(&mut self, keys: &[&[u8]], _batch: usize) -> u64 {
        keys.iter().filter_map(|key| self.0.get(*key)).map(|value| weigh(value)).sum()
    }

    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], _batch: usize) {
        for (key, value) in keys.iter().zip(values) {
            match self.0.get_mut(*key) {
                Some(old) => replace(old, value),
                None => _ = self.0.insert(Box::from(*key), Box::from(*value)),
            }
        }
    }

    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, _batch: usize) -> u64 {
        keys.iter().map(|key| self.0.get_mut(*key).map_or(0, |value| add(value, delta))).sum()
    }
}

/// A table of boxes with one pair each.
pub(super) struct PairBoxes {
    table: HashTable<Box<[u8]>>,
    state: RandomState,
}

impl PairBoxes {
    /// Returns an empty table with capacity for `pairs` pairs.
    pub(super) fn new(pairs: usize) -> Self {
        PairBoxes { table: HashTable::with_capacity(pairs), state: RandomState::new() }
    }

    /// Returns the value of a key for writing.
    #[inline]
    fn value_mut(&mut self, key: &[u8]) -> Option<&mut [u8]> {
        let pair = self.table.find_mut(self.state.hash_one(key), |pair| key_of(pair) == key)?;
        Some(&mut pair[1 + key.len()..])
    }
}

/// Returns the key in a box with a pair.
#[inline]
fn key_of(pair: &[u8]) -> &[u8] {
    &pair[1..1 + usize::from(pair[0])]
}

impl Contender for PairBoxes {
    fn get(&mut self, keys: &[&[u8]], _batch: usize) -> u64 {
        let value = |key: &&[u8]| self.table.find(self.state.hash_one(*key), |pair| key_of(pair) == *key);
        keys.iter().filter_map(|key| value(key).map(|pair| weigh(&pair[1 + key.len()..]))).sum()
    }

    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], _batch: usize) {
        for (key, value) in keys.iter().zip(values) {
            match self.value_mut(key) {
                Some(old) if old.len() == value.len() => old.copy_from_slice(value),
                found => {
                    let exists = found.is_some();
                    let key_size = u8::try_from(key.len()).expect("a key of at most 255 bytes");
                    let pair: Box<[u8]> = [&[key_size], *key, value].concat().into();
                    let hash = self.state.hash_one(*key);
                    if exists {
                        let old = self.table.find_mut(hash, |pair| key_of(pair) == *key);
                        *old.expect("it was found before") = pair;
                    } else {
                        self.table.insert_unique(hash, pair, |pair| self.state.hash_one(key_of(pair)));
                    }
                }
            }
        }
    }

    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, _batch: usize) -> u64 {
        keys.iter().map(|key| self.value_mut(key).map_or(0, |value| add(value, delta))).sum()
    }
}

/// A map of pairs of one size.
pub(super) struct Arrays(HashMap<[u8; 8], [u8; 2], RandomState>);

impl Arrays {
    /// Returns an empty map with capacity for `pairs` pairs.
    pub(super) fn new(pairs: usize) -> Self {
        Arrays(HashMap::with_capacity_and_hasher(pairs, RandomState::new()))
    }
}

/// Copies a slice into an array of its length.
#[inline]
fn array<const SIZE: usize>(bytes: &[u8]) -> [u8; SIZE] {
    *bytes.first_chunk().expect("all pairs have one size")
}

impl Contender for Arrays {
    fn get(&mut self, keys: &[&[u8]], _batch: usize) -> u64 {
        keys.iter().filter_map(|key| self.0.get(&array(key))).map(|value| weigh(value)).sum()
    }

    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], _batch: usize) {
        for (key, value) in keys.iter().zip(values) {
            self.0.insert(array(key), array(value));
        }
    }

    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, _batch: usize) -> u64 {
        keys.iter().map(|key| self.0.get_mut(&array(key)).map_or(0, |value| add(value, delta))).sum()
    }
}
