//! The ordered store and the maps that it is compared with.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_skiplist::SkipMap;
use masstree::{MassTree15, RangeBound};
use parking_lot::RwLock;
use scc::{Guard, TreeIndex};
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};
use skep_store::ordered::{End, OrderedSettings, OrderedStore, Range, Session, Start};
use skep_store::processor::Replies;

use super::{Contender, Pair, Scan, weight};

/// The most bytes of the store's region for each byte of keys and values.
const MEMORY_PER_RAW_BYTE_MAX: u64 = 4;
/// Reply bytes of a batch of updates: more than any batch needs.
const REPLY_BUDGET: usize = 1 << 30;
/// Pairs that the store gets in one call.
const PUT_BATCH: usize = 32;

/// The ordered store, with one session.
pub struct Skep {
    store: &'static OrderedStore,
    session: Session<'static>,
    replies: Replies,
}

impl Skep {
    /// Opens an empty store for `pairs` pairs of N + N bytes.
    pub fn new<const N: usize>(pairs: usize) -> Result<Self, String> {
        Self::with::<N>(pairs, |settings| settings)
    }

    /// Opens an empty store with changed settings.
    pub fn with<const N: usize>(
        pairs: usize,
        change: impl FnOnce(OrderedSettings) -> OrderedSettings,
    ) -> Result<Self, String> {
        let memory = (2 * N * pairs) as u64 * MEMORY_PER_RAW_BYTE_MAX + (64 << 20);
        let store = OrderedStore::new(&change(OrderedSettings::new(memory))).map_err(|error| error.to_string())?;
        // The store is leaked: it is needed until the process ends.
        Self::on(Box::leak(Box::new(store)))
    }

    fn on(store: &'static OrderedStore) -> Result<Self, String> {
        let session = store.session().ok_or("no session is left")?;
        Ok(Skep { store, session, replies: Replies::with_budget(REPLY_BUDGET) })
    }
}

impl<const N: usize> Contender<N> for Skep {
    fn remove(&mut self, keys: &[[u8; N]]) {
        for key in keys {
            assert_eq!(self.session.delete(key), Reply::Done, "the key was inserted");
        }
        self.session.collect();
    }

    fn put(&mut self, pairs: &[Pair<N>]) {
        let mut slices: Vec<(&[u8], &[u8])> = Vec::with_capacity(PUT_BATCH);
        for pairs in pairs.chunks(PUT_BATCH) {
            slices.clear();
            slices.extend(pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice())));
            self.session.put_batch(&slices, PutCondition::Always, |reply| {
                assert_eq!(reply, Reply::Done, "the region has room");
            });
        }
    }

    fn get(&mut self, keys: &[[u8; N]], is_batched: bool) -> u64 {
        let mut sum = 0_u64;
        if !is_batched {
            let mut value = Vec::with_capacity(N);
            for key in keys {
                value.clear();
                if self.session.get(key, &mut value) {
                    sum = sum.wrapping_add(weight(&value));
                }
            }
            return sum;
        }
        let slices: Vec<&[u8]> = keys.iter().map(<[u8; N]>::as_slice).collect();
        self.session.get_batch(&slices, |value| sum = sum.wrapping_add(value.map_or(0, weight)));
        sum
    }

    fn scan(&mut self, scans: &[Scan<N>], is_batched: bool) -> u64 {
        let mut sum = 0_u64;
        if is_batched {
            let ranges: Vec<Range<'_>> = scans.iter().map(range).collect();
            self.session.scan_batch(&ranges, |_, key, value| {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
                true
            });
            return sum;
        }
        for scan in scans {
            self.session.scan(range(scan), |key, value| {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
                true
            });
        }
        sum
    }

    fn modify(&mut self, pairs: &[Pair<N>]) -> u64 {
        let requests: Vec<Request<'_>> = pairs.iter().map(|(key, value)| swap(key, value)).collect();
        self.session.execute(&requests, &mut self.replies, Instant::now());
        (0..pairs.len()).fold(0, |sum, index| match self.replies.get(index) {
            Reply::Value(old) => sum.wrapping_add(weight(old)),
            other => panic!("{other:?} of a key that exists"),
        })
    }

    fn handle(&self) -> Result<Box<dyn Contender<N>>, String> {
        Ok(Box::new(Skep::on(self.store)?))
    }

    fn memory(&self) -> Option<u64> {
        let space = self.store.statistics().space;
        Some(space.touched_bytes + space.lids * size_of::<u32>() as u64)
    }
}

/// Returns the range of a scan.
fn range<const N: usize>(scan: &Scan<N>) -> Range<'_> {
    let start = if scan.is_from_floor { Start::Floor(&scan.key) } else { Start::AtOrAbove(&scan.key) };
    Range::new(start, End::Last).limit(scan.pair_count)
}

/// Returns the atomic update that stores this value and returns the old one.
fn swap<'a, const N: usize>(key: &'a [u8; N], value: &'a [u8; N]) -> Request<'a> {
    let update = Update {
        function: UpdateFunction::Swap,
        element: if N.is_multiple_of(8) { Element::U64 } else { Element::U8 },
        shape: Shape::VectorToVector,
        operand: value,
        initial: None,
        return_old: true,
    };
    Request { key, operation: Operation::Update(update) }
}

/// The standard library's tree with a lock around it.
#[derive(Default)]
pub(super) struct Locked<const N: usize>(Arc<RwLock<BTreeMap<[u8; N], [u8; N]>>>);

impl<const N: usize> Contender<N> for Locked<N> {
    fn remove(&mut self, keys: &[[u8; N]]) {
        for key in keys {
            self.0.write().remove(key);
        }
    }

    fn handle(&self) -> Result<Box<dyn Contender<N>>, String> {
        Ok(Box::new(Locked(Arc::clone(&self.0))))
    }

    fn put(&mut self, pairs: &[Pair<N>]) {
        for (key, value) in pairs {
            self.0.write().insert(*key, *value);
        }
    }

    fn get(&mut self, keys: &[[u8; N]], _is_batched: bool) -> u64 {
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.read().get(key).map_or(0, |value| weight(value))))
    }

    fn scan(&mut self, scans: &[Scan<N>], _is_batched: bool) -> u64 {
        let mut sum = 0_u64;
        for Scan { key, is_from_floor, pair_count } in scans {
            let map = self.0.read();
            let floor = if *is_from_floor { map.range(..=*key).next_back() } else { None };
            let start = floor.map_or(*key, |(floor, _)| *floor);
            for (key, value) in map.range(start..).take(*pair_count) {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
            }
        }
        sum
    }
}

/// Masstree in Rust. It stores values of 16 bytes outside its leaves.
#[derive(Default)]
pub struct Masstree<const N: usize>(Arc<MassTree15<[u8; N]>>);

impl<const N: usize> Contender<N> for Masstree<N> {
    fn remove(&mut self, keys: &[[u8; N]]) {
        let guard = self.0.guard();
        for key in keys {
            self.0.remove_with_guard(key, &guard).expect("one thread removes at a time");
        }
    }

    fn handle(&self) -> Result<Box<dyn Contender<N>>, String> {
        Ok(Box::new(Masstree(Arc::clone(&self.0))))
    }

    fn put(&mut self, pairs: &[Pair<N>]) {
        let guard = self.0.guard();
        for (key, value) in pairs {
            self.0.insert_with_guard(key, *value, &guard);
        }
    }

    fn get(&mut self, keys: &[[u8; N]], _is_batched: bool) -> u64 {
        let guard = self.0.guard();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.get_ref(key, &guard).map_or(0, |value| weight(&*value))))
    }

    fn scan(&mut self, scans: &[Scan<N>], _is_batched: bool) -> u64 {
        let guard = self.0.guard();
        let mut sum = 0_u64;
        for Scan { key, is_from_floor, pair_count } in scans {
            let mut start = *key;
            if *is_from_floor {
                let set_start = |floor: &[u8], _| {
                    start.copy_from_slice(floor);
                    false
                };
                self.0.scan_rev_batch(RangeBound::Unbounded, RangeBound::Included(key), set_start, &guard);
            }
            let mut count = 0;
            let add = |key: &[u8], value: masstree::ValuePtr<[u8; N]>| {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(&*value));
                count += 1;
                count < *pair_count
            };
            self.0.scan(RangeBound::Included(&start), RangeBound::Unbounded, add, &guard);
        }
        sum
    }
}

/// The B+ tree of `scc`.
#[derive(Default)]
pub(super) struct Scc<const N: usize>(Arc<TreeIndex<[u8; N], [u8; N]>>);

impl<const N: usize> Contender<N> for Scc<N> {
    fn remove(&mut self, keys: &[[u8; N]]) {
        for key in keys {
            self.0.remove_sync(key);
        }
    }

    fn handle(&self) -> Result<Box<dyn Contender<N>>, String> {
        Ok(Box::new(Scc(Arc::clone(&self.0))))
    }

    fn put(&mut self, pairs: &[Pair<N>]) {
        for (key, value) in pairs {
            // It has no operation that replaces a value, and another thread may insert the key in between.
            while self.0.insert_sync(*key, *value).is_err() {
                self.0.remove_sync(key);
            }
        }
    }

    fn get(&mut self, keys: &[[u8; N]], _is_batched: bool) -> u64 {
        let guard = Guard::new();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.peek(key, &guard).map_or(0, |value| weight(value))))
    }

    fn scan(&mut self, scans: &[Scan<N>], _is_batched: bool) -> u64 {
        let guard = Guard::new();
        let mut sum = 0_u64;
        for Scan { key, is_from_floor, pair_count } in scans {
            let floor = if *is_from_floor { self.0.range(..=*key, &guard).next_back() } else { None };
            let start = floor.map_or(*key, |(floor, _)| *floor);
            for (key, value) in self.0.range(start.., &guard).take(*pair_count) {
                sum = sum.wrapping_add(weight(key)).wrapping_add(weight(value));
            }
        }
        sum
    }
}

/// The skip list of `crossbeam`.
#[derive(Default)]
pub(super) struct Skiplist<const N: usize>(Arc<SkipMap<[u8; N], [u8; N]>>);

impl<const N: usize> Contender<N> for Skiplist<N> {
    fn remove(&mut self, keys: &[[u8; N]]) {
        for key in keys {
            self.0.remove(key);
        }
    }

    fn handle(&self) -> Result<Box<dyn Contender<N>>, String> {
        Ok(Box::new(Skiplist(Arc::clone(&self.0))))
    }

    fn put(&mut self, pairs: &[Pair<N>]) {
        for (key, value) in pairs {
            self.0.insert(*key, *value);
        }
    }

    fn get(&mut self, keys: &[[u8; N]], _is_batched: bool) -> u64 {
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.get(key).map_or(0, |entry| weight(entry.value()))))
    }

    fn scan(&mut self, scans: &[Scan<N>], _is_batched: bool) -> u64 {
        let mut sum = 0_u64;
        for Scan { key, is_from_floor, pair_count } in scans {
            let mut left = *pair_count;
            let mut next = if *is_from_floor { self.0.upper_bound(Bound::Included(key)) } else { None };
            let has_floor = next.is_some();
            while let Some(entry) = next.filter(|_| left > 0) {
                sum = sum.wrapping_add(weight(entry.key())).wrapping_add(weight(entry.value()));
                left -= 1;
                next = entry.next();
            }
            if !has_floor {
                for entry in self.0.range(*key..).take(left) {
                    sum = sum.wrapping_add(weight(entry.key())).wrapping_add(weight(entry.value()));
                }
            }
        }
        sum
    }
}
