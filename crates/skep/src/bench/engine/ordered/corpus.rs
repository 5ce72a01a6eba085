//! The pairs of the ordered store: numbered, of one size, with random keys, so that they are loaded in random order.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply, Request};
use skep_store::ordered::{End, Range, Session, Start, Trace};
use skep_store::processor::Replies;

use super::case::Operation;
use crate::bench::mix::modify;

/// Sizes of the pairs and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    pub(super) pair_count: u64,
}

/// Pairs of the least size: keys of eight random bytes are different from each other.
pub(super) const KV_SIZE_MIN: usize = 16;
/// Bytes that a batch of updates may answer: more than any does.
const REPLY_BUDGET: usize = 1 << 30;
/// Pairs of a step of the load.
const LOAD_STEP: u64 = 256;

impl Shape {
    /// Pairs of `kv_size` bytes, half of them the key, that are this share of a memory.
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
}

/// A session on a store with the pairs in it.
pub(super) struct Corpus<'s, T: Trace> {
    pub(super) session: Session<'s, T>,
    pub(super) shape: Shape,
    value: Vec<u8>,
    keys: Vec<u8>,
    replies: Replies,
}

impl<'s, T: Trace> Corpus<'s, T> {
    /// Puts all pairs; `between` is called now and then.
    pub(super) fn new(session: Session<'s, T>, shape: Shape, mut between: impl FnMut()) -> Result<Self, String> {
        let value = vec![b'v'; shape.value_size];
        let replies = Replies::with_budget(REPLY_BUDGET);
        let mut corpus = Corpus { session, shape, value, keys: Vec::new(), replies };
        for first in (0..shape.pair_count).step_by(LOAD_STEP as usize) {
            let records = first..shape.pair_count.min(first + LOAD_STEP);
            let operations: Vec<_> = records.map(|record| (record, Operation::Put)).collect();
            corpus.execute(&operations, false).map_err(|reason| {
                format!("{reason} after {first} of {} pairs: choose a smaller --utilization", shape.pair_count)
            })?;
            between();
        }
        corpus.session.collect();
        Ok(corpus)
    }

    /// Carries operations out, either one after the other, or all gets together, then the scans, the puts and the deletes;
    /// updates come last, as one batch of requests. The time that it took, without the drawing of keys. Fails if one of them is
    /// not answered as it should be.
    pub(super) fn execute(&mut self, operations: &[(u64, Operation)], is_batched: bool) -> Result<Duration, String> {
        self.keys.clear();
        operations.iter().for_each(|(record, _)| self.shape.append_key(*record, &mut self.keys));
        let key_of = |place: usize| &self.keys[place * self.shape.key_size..][..self.shape.key_size];
        let of_kind = |kind| (0..operations.len()).filter(move |place| operations[*place].1 == kind).map(key_of);
        let gets: Vec<&[u8]> = of_kind(Operation::Get).collect();
        let modify = modify(self.shape.value_size);
        let modifies: Vec<Request<'_>> =
            of_kind(Operation::Modify).map(|key| Request { key, operation: modify }).collect();
        let others = operations.iter().enumerate().filter(|(_, (_, operation))| *operation != Operation::Modify);
        let others: Vec<(&[u8], Operation)> = others.map(|(place, (_, op))| (key_of(place), *op)).collect();
        let scan = |(key, operation): &(_, Operation)| match operation {
            Operation::Scan(pair_count) => Some((*key, *pair_count)),
            _ => None,
        };
        let scans: Vec<(&[u8], usize)> = others.iter().filter_map(scan).collect();
        let puts: Vec<(&[u8], &[u8])> = of_kind(Operation::Put).map(|key| (key, self.value.as_slice())).collect();
        let delete = skep_core::operation::Operation::Delete;
        let deletes: Vec<Request<'_>> =
            of_kind(Operation::Delete).map(|key| Request { key, operation: delete }).collect();
        let mut tally = Tally { found: 0, done: 0, witness: 0, value: Vec::with_capacity(self.shape.value_size) };
        let (session, value, replies) = (&mut self.session, &self.value, &mut self.replies);
        let begun = Instant::now();
        if is_batched {
            session.get_batch(&gets, |value| tally.see(value));
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
        std::hint::black_box(tally.witness);
        let reads = gets.len() + scans.len();
        let writes = modifies.len() + others.iter().filter(|(_, operation)| operation.is_write()).count();
        if (tally.found, tally.done) != (reads, writes) {
            return Err(format!(
                "{} of {reads} reads found something, {} of {writes} writes done",
                tally.found, tally.done
            ));
        }
        Ok(spent)
    }
}

/// So many pairs from a key on.
fn range(key: &[u8], pair_count: usize) -> Range<'_> {
    Range::new(Start::AtOrAbove(key), End::Last).limit(pair_count)
}

/// What operations have answered.
struct Tally {
    found: usize,
    done: usize,
    /// Of the bytes that were read.
    witness: u64,
    value: Vec<u8>,
}

impl Tally {
    fn see(&mut self, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.found += 1;
            self.witness += u64::from(value[0]);
        }
    }

    fn get<T: Trace>(&mut self, session: &mut Session<'_, T>, key: &[u8], operation: Operation) {
        if operation == Operation::Get {
            self.value.clear();
            if session.get(key, &mut self.value) {
                self.found += 1;
                self.witness += u64::from(self.value[0]);
            }
        }
    }

    fn scan<T: Trace>(&mut self, session: &mut Session<'_, T>, key: &[u8], operation: Operation) {
        let Operation::Scan(pair_count) = operation else { return };
        let mut count = 0;
        session.scan(range(key, pair_count), |key, value| {
            self.witness += u64::from(key[0]) + u64::from(value[0]);
            count += 1;
            true
        });
        self.found += usize::from(count > 0);
    }

    fn scan_batch<T: Trace>(&mut self, session: &mut Session<'_, T>, scans: &[(&[u8], usize)]) {
        let ranges: Vec<Range<'_>> = scans.iter().map(|(key, pair_count)| range(key, *pair_count)).collect();
        let mut counts = vec![0; scans.len()];
        session.scan_batch(&ranges, |number, key, value| {
            self.witness += u64::from(key[0]) + u64::from(value[0]);
            counts[number] += 1;
            true
        });
        self.found += counts.iter().filter(|count| **count > 0).count();
    }

    fn write<T: Trace>(&mut self, session: &mut Session<'_, T>, key: &[u8], value: &[u8], operation: Operation) {
        let reply = match operation {
            Operation::Put => session.put(key, value, PutCondition::Always),
            Operation::Delete => session.delete(key),
            Operation::Get | Operation::Scan(_) | Operation::Modify => return,
        };
        self.done += usize::from(reply == Reply::Done);
    }

    fn requests<T: Trace>(
        &mut self,
        session: &mut Session<'_, T>,
        requests: &[Request<'_>],
        replies: &mut Replies,
        now: Instant,
    ) {
        session.execute(requests, replies, now);
        for index in 0..requests.len() {
            match replies.get(index) {
                Reply::Value(old) => {
                    self.done += 1;
                    self.witness += u64::from(old[0]);
                }
                reply => self.done += usize::from(reply == Reply::Done),
            }
        }
    }
}
