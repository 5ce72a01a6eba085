//! The pairs of the ordered store. They are numbered and have one size. Their keys are random, so they are loaded in
//! random order.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply, Request};
use skep_store::ordered::{End, Range, Start};
use skep_store::processor::Replies;

use super::access::Access;
use super::case::Operation;
use crate::bench::modify::modify;
use skep_measure::mix::inside;

/// Sizes and number of the pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    pub(super) pair_count: u64,
}

/// The smallest pairs: random keys of eight bytes differ from each other.
pub(super) const KV_SIZE_MIN: usize = 16;
/// Reply bytes of a batch of updates: more than any batch needs.
const REPLY_BUDGET: usize = 1 << 30;
/// Pairs in one step of the load.
const LOAD_STEP: u64 = 256;

impl Shape {
    /// Returns the shape of pairs of `kv_size` bytes that fill this share of a memory. Half of a pair is the key.
    pub(super) fn new(kv_size: usize, memory_size: u64, utilization: f64) -> Self {
        let pair_count = (memory_size as f64 * utilization / kv_size as f64) as u64;
        Shape { key_size: kv_size / 2, value_size: kv_size.div_ceil(2), pair_count: pair_count.max(100) }
    }

    /// Appends the key of a pair.
    fn append_key(&self, number: u64, keys: &mut Vec<u8>) {
        let start = keys.len();
        keys.resize(start + self.key_size, 0);
        Xoshiro256PlusPlus::seed_from_u64(number).fill_bytes(&mut keys[start..]);
    }

    /// Appends the key of an operation on a pair.
    fn append_key_of(&self, number: u64, operation: Operation, keys: &mut Vec<u8>) {
        let start = keys.len();
        self.append_key(number, keys);
        if matches!(operation, Operation::ScanFromFloor(_)) {
            inside(&mut keys[start..]);
        }
    }
}

/// A session on a store that holds the pairs.
pub(super) struct Corpus<S> {
    pub(super) session: S,
    pub(super) shape: Shape,
    value: Vec<u8>,
    keys: Vec<u8>,
    replies: Replies,
}

impl<S: Access> Corpus<S> {
    /// Puts all pairs. Calls `loaded` after each step with the share that is put.
    pub(super) fn new(session: S, shape: Shape, mut loaded: impl FnMut(f64)) -> Result<Self, String> {
        let value = vec![b'v'; shape.value_size];
        let replies = Replies::with_budget(REPLY_BUDGET);
        let mut corpus = Corpus { session, shape, value, keys: Vec::new(), replies };
        for first in (0..shape.pair_count).step_by(LOAD_STEP as usize) {
            let records = first..shape.pair_count.min(first + LOAD_STEP);
            let operations: Vec<_> = records.map(|record| (record, Operation::Put)).collect();
            corpus.execute(&operations, false).map_err(|reason| {
                format!("{reason} after {first} of {} pairs: choose a smaller --utilization", shape.pair_count)
            })?;
            loaded((first + LOAD_STEP) as f64 / shape.pair_count as f64);
        }
        corpus.session.collect();
        Ok(corpus)
    }

    /// Executes operations, either one after the other, or in batches: first all gets, then the scans, the puts and the
    /// deletes. Atomic updates are always last, in one batch of requests. Returns the time that it took, without
    /// building the keys. Fails if a reply is not the expected one.
    pub(super) fn execute(&mut self, operations: &[(u64, Operation)], is_batched: bool) -> Result<Duration, String> {
        self.keys.clear();
        let append = |(record, operation): &_| self.shape.append_key_of(*record, *operation, &mut self.keys);
        operations.iter().for_each(append);
        let key_of = |index: usize| &self.keys[index * self.shape.key_size..][..self.shape.key_size];
        let of_kind = |kind| (0..operations.len()).filter(move |index| operations[*index].1 == kind).map(key_of);
        let gets: Vec<&[u8]> = of_kind(Operation::Get).collect();
        let modify = modify(self.shape.value_size);
        let modifies: Vec<Request<'_>> =
            of_kind(Operation::Modify).map(|key| Request { key, operation: modify }).collect();
        let others = operations.iter().enumerate().filter(|(_, (_, operation))| *operation != Operation::Modify);
        let others: Vec<(&[u8], Operation)> = others.map(|(index, (_, op))| (key_of(index), *op)).collect();
        let scans: Vec<Range<'_>> = others.iter().filter_map(|(key, operation)| range(key, *operation)).collect();
        let puts: Vec<(&[u8], &[u8])> = of_kind(Operation::Put).map(|key| (key, self.value.as_slice())).collect();
        let delete = skep_core::operation::Operation::Delete;
        let deletes: Vec<Request<'_>> =
            of_kind(Operation::Delete).map(|key| Request { key, operation: delete }).collect();
        let mut tally = Tally { found: 0, done: 0, checksum: 0, value: Vec::with_capacity(self.shape.value_size) };
        let (session, value, replies) = (&mut self.session, &self.value, &mut self.replies);
        let begun = Instant::now();
        if is_batched {
            session.get_batch(&gets, |value| tally.add(value));
            tally.scan_batch(session, &scans);
            session.put_batch(&puts, PutCondition::Always, |reply| tally.done += usize::from(reply == Reply::Done));
            tally.requests(session, &deletes, replies, begun);
        } else {
            for (key, operation) in &others {
                tally.get(session, key, *operation);
                tally.scan(session, key, *operation);
                tally.write(session, key, value, *operation);
            }
        }
        tally.requests(session, &modifies, replies, begun);
        let spent = begun.elapsed();
        std::hint::black_box(tally.checksum);
        let reads = gets.len() + scans.len();
        let writes = modifies.len() + others.iter().filter(|(_, operation)| operation.is_write()).count();
        if (tally.found, tally.done) != (reads, writes) {
            return Err(format!(
                "{} of {reads} reads found a pair, {} of {writes} writes took effect",
                tally.found, tally.done
            ));
        }
        Ok(spent)
    }
}

/// Returns the range of a scan from a key.
fn range(key: &[u8], operation: Operation) -> Option<Range<'_>> {
    let (start, pair_count) = match operation {
        Operation::Scan(pair_count) => (Start::AtOrAbove(key), pair_count),
        Operation::ScanFromFloor(pair_count) => (Start::Floor(key), pair_count),
        _ => return None,
    };
    Some(Range::new(start, End::Last).limit(pair_count))
}

/// Statistics of the replies to a batch.
struct Tally {
    found: usize,
    done: usize,
    /// Sum of bytes that were read.
    checksum: u64,
    value: Vec<u8>,
}

impl Tally {
    fn add(&mut self, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.found += 1;
            self.checksum += u64::from(value[0]);
        }
    }

    fn get(&mut self, session: &mut impl Access, key: &[u8], operation: Operation) {
        if operation == Operation::Get {
            self.value.clear();
            if session.get(key, &mut self.value) {
                self.found += 1;
                self.checksum += u64::from(self.value[0]);
            }
        }
    }

    fn scan(&mut self, session: &mut impl Access, key: &[u8], operation: Operation) {
        let Some(range) = range(key, operation) else { return };
        let mut count = 0;
        session.scan(range, |key, value| {
            self.checksum += u64::from(key[0]) + u64::from(value[0]);
            count += 1;
            true
        });
        self.found += usize::from(count > 0);
    }

    fn scan_batch(&mut self, session: &mut impl Access, ranges: &[Range<'_>]) {
        let mut counts = vec![0; ranges.len()];
        session.scan_batch(ranges, |index, key, value| {
            self.checksum += u64::from(key[0]) + u64::from(value[0]);
            counts[index] += 1;
            true
        });
        self.found += counts.iter().filter(|count| **count > 0).count();
    }

    fn write(&mut self, session: &mut impl Access, key: &[u8], value: &[u8], operation: Operation) {
        let reply = match operation {
            Operation::Put => session.put(key, value, PutCondition::Always),
            Operation::Delete => session.delete(key),
            Operation::Get | Operation::Scan(_) | Operation::ScanFromFloor(_) | Operation::Modify => return,
        };
        self.done += usize::from(reply == Reply::Done);
    }

    fn requests(&mut self, session: &mut impl Access, requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
        session.execute(requests, replies, now);
        for index in 0..requests.len() {
            match replies.get(index) {
                Reply::Value(old) => {
                    self.done += 1;
                    self.checksum += u64::from(old[0]);
                }
                reply => self.done += usize::from(reply == Reply::Done),
            }
        }
    }
}
