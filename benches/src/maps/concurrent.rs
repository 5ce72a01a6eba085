//! Two maps for many threads, used here by one thread.
//!
//! papaya's values cannot be changed in place: an update makes a new one. Its guard is taken once for each batch.

use dashmap::DashMap;
use papaya::HashMap;
use rapidhash::fast::RandomState;

use super::{Contender, add, number, replace, weigh};

/// dashmap: shards with a lock each.
pub(super) struct Dash(DashMap<Box<[u8]>, Box<[u8]>, RandomState>);

impl Dash {
    /// Returns an empty map with capacity for `pairs` pairs.
    pub(super) fn new(pairs: usize) -> Self {
        Dash(DashMap::with_capacity_and_hasher(pairs, RandomState::new()))
    }
}

impl Contender for Dash {
    fn get(&mut self, keys: &[&[u8]], _batch: usize) -> u64 {
        keys.iter().filter_map(|key| self.0.get(*key)).map(|value| weigh(&value)).sum()
    }

    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], _batch: usize) {
        for (key, value) in keys.iter().zip(values) {
            match self.0.get_mut(*key) {
                Some(mut old) => replace(&mut old, value),
                None => _ = self.0.insert(Box::from(*key), Box::from(*value)),
            }
        }
    }

    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, _batch: usize) -> u64 {
        keys.iter().map(|key| self.0.get_mut(*key).map_or(0, |mut value| add(&mut value, delta))).sum()
    }
}

/// papaya: no locks; memory is freed when no guard can see it.
pub(super) struct Papaya(HashMap<Box<[u8]>, Box<[u8]>, RandomState>);

impl Papaya {
    /// Returns an empty map with capacity for `pairs` pairs.
    pub(super) fn new(pairs: usize) -> Self {
        Papaya(HashMap::with_capacity_and_hasher(pairs, RandomState::new()))
    }
}

impl Contender for Papaya {
    fn get(&mut self, keys: &[&[u8]], batch: usize) -> u64 {
        let mut sum = 0;
        for keys in keys.chunks(batch) {
            let map = self.0.pin();
            sum += keys.iter().filter_map(|key| map.get(*key)).map(|value| weigh(value)).sum::<u64>();
        }
        sum
    }

    fn put(&mut self, keys: &[&[u8]], values: &[&[u8]], batch: usize) {
        for (keys, values) in keys.chunks(batch).zip(values.chunks(batch)) {
            let map = self.0.pin();
            for (key, value) in keys.iter().zip(values) {
                map.insert(Box::from(*key), Box::from(*value));
            }
        }
    }

    fn fetch_add(&mut self, keys: &[&[u8]], delta: u16, batch: usize) -> u64 {
        let mut sum = 0;
        for keys in keys.chunks(batch) {
            let map = self.0.pin();
            for key in keys {
                let updated = map.update(Box::from(*key), |value| {
                    let mut value = value.clone();
                    add(&mut value, delta);
                    value
                });
                sum += updated.map_or(0, |value| value.len() as u64 + u64::from(number(value).wrapping_sub(delta)));
            }
        }
        sum
    }
}
