//! The ordered store and the maps that it is compared with.

use std::collections::BTreeMap;

use crossbeam_skiplist::SkipMap;
use masstree::{MassTree15, RangeBound};
use parking_lot::RwLock;
use scc::{Guard, TreeIndex};
use skep_store::operation::{PutCondition, Reply};
use skep_store::ordered::{End, OrderedSettings, OrderedStore, Session, Start};

use super::{Contender, PART_SIZE, Part, weight};

/// What the store's region may take for a byte of keys and values.
const MEMORY_PER_RAW_BYTE_MAX: u64 = 4;

/// The ordered store, with one session.
pub(super) struct Skep {
    store: &'static OrderedStore,
    session: Session<'static>,
}

impl Skep {
    pub(super) fn new(pairs: usize) -> Result<Self, String> {
        let memory = (2 * PART_SIZE * pairs) as u64 * MEMORY_PER_RAW_BYTE_MAX + (64 << 20);
        let store = OrderedStore::new(&OrderedSettings::new(memory)).map_err(|error| error.to_string())?;
        // It lives as long as the measurement, which is as long as the process.
        let store: &'static OrderedStore = Box::leak(Box::new(store));
        let session = store.session().ok_or("no session is left")?;
        Ok(Skep { store, session })
    }
}

impl Contender for Skep {
    fn put(&mut self, pairs: &[(Part, Part)]) {
        for (key, value) in pairs {
            let reply = self.session.put(key, value, PutCondition::Always);
            assert_eq!(reply, Reply::Done, "the region has room");
        }
    }

    fn get(&mut self, keys: &[Part], batch: usize) -> u64 {
        let mut sum = 0_u64;
        if batch == 1 {
            let mut value = Vec::with_capacity(PART_SIZE);
            for key in keys {
                value.clear();
                if self.session.get(key, &mut value) {
                    sum = sum.wrapping_add(weight(&value));
                }
            }
            return sum;
        }
        let mut slices: Vec<&[u8]> = Vec::with_capacity(batch);
        for keys in keys.chunks(batch) {
            slices.clear();
            slices.extend(keys.iter().map(Part::as_slice));
            self.session.get_batch(&slices, |value| sum = sum.wrapping_add(value.map_or(0, weight)));
        }
        sum
    }

    fn scan(&mut self, keys: &[Part], pair_count: usize, batch: usize) -> u64 {
        let mut sum = 0_u64;
        if batch > 1 {
            let mut ranges = Vec::with_capacity(batch);
            let mut counts = Vec::with_capacity(batch);
            for keys in keys.chunks(batch) {
                ranges.clear();
                ranges.extend(keys.iter().map(|key| (Start::AtOrAbove(key.as_slice()), End::Last)));
                counts.clear();
                counts.resize(keys.len(), 0);
                self.session.scan_batch(&ranges, |number, key, value| {
                    sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
                    counts[number] += 1;
                    counts[number] < pair_count
                });
            }
            return sum;
        }
        for key in keys {
            let mut count = 0;
            self.session.scan(Start::AtOrAbove(key), End::Last, |key, value| {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
                count += 1;
                count < pair_count
            });
        }
        sum
    }

    fn memory(&self) -> Option<u64> {
        let space = self.store.figures().space;
        Some(space.touched_bytes + space.lids * size_of::<u32>() as u64)
    }
}

/// The standard library's tree behind a lock.
#[derive(Default)]
pub(super) struct Locked(RwLock<BTreeMap<Part, Part>>);

impl Contender for Locked {
    fn put(&mut self, pairs: &[(Part, Part)]) {
        for (key, value) in pairs {
            self.0.write().insert(*key, *value);
        }
    }

    fn get(&mut self, keys: &[Part], _batch: usize) -> u64 {
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.read().get(key).map_or(0, |value| weight(value))))
    }

    fn scan(&mut self, keys: &[Part], pair_count: usize, _batch: usize) -> u64 {
        let mut sum = 0_u64;
        for key in keys {
            for (key, value) in self.0.read().range(*key..).take(pair_count) {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
            }
        }
        sum
    }
}

/// Masstree in Rust. Values of 16 bytes lie outside its leaves.
#[derive(Default)]
pub(super) struct Masstree(MassTree15<Part>);

impl Contender for Masstree {
    fn put(&mut self, pairs: &[(Part, Part)]) {
        let guard = self.0.guard();
        for (key, value) in pairs {
            self.0.insert_with_guard(key, *value, &guard);
        }
    }

    fn get(&mut self, keys: &[Part], _batch: usize) -> u64 {
        let guard = self.0.guard();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.get_ref(key, &guard).map_or(0, |value| weight(&*value))))
    }

    fn scan(&mut self, keys: &[Part], pair_count: usize, _batch: usize) -> u64 {
        let guard = self.0.guard();
        let mut sum = 0_u64;
        for key in keys {
            let mut count = 0;
            let visit = |key: &[u8], value: masstree::ValuePtr<Part>| {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(&*value));
                count += 1;
                count < pair_count
            };
            self.0.scan(RangeBound::Included(key), RangeBound::Unbounded, visit, &guard);
        }
        sum
    }
}

/// The B+ tree of `scc`.
#[derive(Default)]
pub(super) struct Scc(TreeIndex<Part, Part>);

impl Contender for Scc {
    fn put(&mut self, pairs: &[(Part, Part)]) {
        for (key, value) in pairs {
            if self.0.insert_sync(*key, *value).is_err() {
                // It has no way to replace.
                self.0.remove_sync(key);
                assert!(self.0.insert_sync(*key, *value).is_ok());
            }
        }
    }

    fn get(&mut self, keys: &[Part], _batch: usize) -> u64 {
        let guard = Guard::new();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.peek(key, &guard).map_or(0, |value| weight(value))))
    }

    fn scan(&mut self, keys: &[Part], pair_count: usize, _batch: usize) -> u64 {
        let guard = Guard::new();
        let mut sum = 0_u64;
        for key in keys {
            for (key, value) in self.0.range(*key.., &guard).take(pair_count) {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
            }
        }
        sum
    }
}

/// The skip list of `crossbeam`.
#[derive(Default)]
pub(super) struct Skiplist(SkipMap<Part, Part>);

impl Contender for Skiplist {
    fn put(&mut self, pairs: &[(Part, Part)]) {
        for (key, value) in pairs {
            self.0.insert(*key, *value);
        }
    }

    fn get(&mut self, keys: &[Part], _batch: usize) -> u64 {
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.get(key).map_or(0, |entry| weight(entry.value()))))
    }

    fn scan(&mut self, keys: &[Part], pair_count: usize, _batch: usize) -> u64 {
        let mut sum = 0_u64;
        for key in keys {
            for entry in self.0.range(*key..).take(pair_count) {
                sum = sum.wrapping_add(weight(entry.key())).wrapping_add(weight(entry.value()));
            }
        }
        sum
    }
}
