//! A hash store on counted memory, filled with numbered pairs. Figures 6, 9, 10 and 11 count its accesses.
//!
//! The store is the product's, with the settings of the figure. Keys have 8 bytes, and the value is the rest of the
//! pair. The value of every GET is checked, so a store that loses pairs cannot seem fast.

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::memory::{CountingMemory, LocalMemory};
use skep_store::processor::{Processor, Replies, Statistics};

use super::Curve;

const KEY_SIZE: usize = 8;
/// Requests executed at once while filling.
const BATCH: u64 = 256;

/// A histogram: the number of operations for each number of accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Accesses {
    operations_by_count: Vec<u64>,
}

/// A store of numbered pairs.
pub(super) struct Corpus {
    processor: Processor<CountingMemory<LocalMemory>>,
    replies: Replies,
    pair_size: fn(u64) -> usize,
    pair_count: u64,
}

impl Accesses {
    /// No operation.
    pub(super) const NONE: Accesses = Accesses { operations_by_count: Vec::new() };

    /// Counts an operation.
    pub(super) fn count(&mut self, accesses: u64) {
        let accesses = accesses as usize;
        if self.operations_by_count.len() <= accesses {
            self.operations_by_count.resize(accesses + 1, 0);
        }
        self.operations_by_count[accesses] += 1;
    }

    /// Returns the mean accesses of an operation.
    pub(super) fn mean(&self) -> f64 {
        let accesses: u64 =
            self.operations_by_count.iter().zip(0..).map(|(operations, count)| operations * count).sum();
        accesses as f64 / self.operations() as f64
    }

    /// Returns the number of accesses that this share of the operations does not exceed.
    pub(super) fn percentile(&self, share: f64) -> u64 {
        let mut operations = 0;
        for (with_count, count) in self.operations_by_count.iter().zip(0..) {
            operations += with_count;
            if operations as f64 >= share * self.operations() as f64 {
                return count;
            }
        }
        0
    }

    fn operations(&self) -> u64 {
        self.operations_by_count.iter().sum()
    }
}

impl Corpus {
    /// Returns an empty store. Pair `n` will have `pair_size(n)` bytes, key and value.
    pub(super) fn new(settings: &Settings, pair_size: fn(u64) -> usize) -> Self {
        let memory = CountingMemory::new(LocalMemory::new(settings.memory).expect("the items' memories are small"));
        let processor = Processor::with_memory(memory, settings).expect("the items' settings are valid");
        Corpus { processor, replies: Replies::with_budget(usize::MAX), pair_size, pair_count: 0 }
    }

    /// Puts pairs until the store has `pair_count` of them. Returns false if the store is full before.
    pub(super) fn fill(&mut self, pair_count: u64) -> bool {
        while self.pair_count < pair_count {
            let pairs: Vec<_> =
                (self.pair_count..pair_count.min(self.pair_count + BATCH)).map(|number| self.pair(number)).collect();
            let requests: Vec<_> = pairs.iter().map(|pair| put(pair)).collect();
            self.processor.execute(&requests, &mut self.replies);
            assert_eq!(self.replies.deferred_count(), 0, "nothing was deleted, so there is little to merge");
            let done = self.replies.iter().take_while(|reply| stored(reply)).count();
            self.pair_count += done as u64;
            if done < requests.len() {
                return false;
            }
        }
        true
    }

    /// Puts pairs one by one until the store has `pair_count` of them. Returns the accesses of each put.
    pub(super) fn count_puts(&mut self, pair_count: u64) -> Accesses {
        let mut accesses = Accesses::default();
        while self.pair_count < pair_count {
            let pair = self.pair(self.pair_count);
            accesses.count(self.execute(&put(&pair)));
            assert!(stored(&self.replies.get(0)), "the store is full at pair {}", self.pair_count);
            self.pair_count += 1;
        }
        accesses
    }

    /// Gets every `step`-th pair. Returns the accesses of each get.
    pub(super) fn count_gets(&mut self, step: usize) -> Accesses {
        let mut accesses = Accesses::default();
        for number in (0..self.pair_count).step_by(step) {
            let pair = self.pair(number);
            let (key, value) = pair.split_at(KEY_SIZE);
            accesses.count(self.execute(&Request { key, operation: Operation::Get }));
            assert_eq!(self.replies.get(0), Reply::Value(value), "pair {number}");
        }
        accesses
    }

    /// Returns the bytes of all pairs over those of the memory.
    pub(super) fn utilization(&self) -> f64 {
        let statistics = self.statistics();
        statistics.pair_bytes as f64 / statistics.memory_bytes as f64
    }

    /// Returns the statistics of the store.
    pub(super) fn statistics(&self) -> Statistics {
        self.processor.statistics()
    }

    fn execute(&mut self, request: &Request<'_>) -> u64 {
        let before = self.processor.memory().counts();
        self.processor.execute(std::slice::from_ref(request), &mut self.replies);
        (self.processor.memory().counts() - before).accesses()
    }

    fn pair(&self, number: u64) -> Vec<u8> {
        let mut pair = number.to_le_bytes().to_vec();
        pair.resize((self.pair_size)(number), number as u8);
        pair
    }
}

/// Adds a point to the curve with this name beside a series.
pub(super) fn add(curves: &mut Vec<Curve>, series: &str, what: &str, x: f64, y: f64) {
    let name = format!("{series}, {what}");
    match curves.iter_mut().find(|curve| curve.name == name) {
        Some(curve) => curve.points.push((x, y)),
        None => curves.push(Curve::beside(series, what, vec![(x, y)])),
    }
}

fn put(pair: &[u8]) -> Request<'_> {
    let (key, value) = pair.split_at(KEY_SIZE);
    Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
}

fn stored(reply: &Reply<'_>) -> bool {
    match reply {
        Reply::Done => true,
        Reply::Failed(error) if error.is_out_of_memory() => false,
        other => panic!("the reply to a PUT is {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_counts_that_occurred() {
        let mut accesses = Accesses::default();
        for count in [1, 1, 1, 1, 1, 1, 1, 1, 2, 5] {
            accesses.count(count);
        }
        assert_eq!(accesses.mean(), 1.5);
        assert_eq!([0.05, 0.8, 0.85, 0.95].map(|share| accesses.percentile(share)), [1, 1, 2, 5]);
    }

    #[test]
    fn a_corpus_fills_its_memory_and_reports_that_it_is_full() {
        let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.4, inline_threshold: 10, grows: false, seed: 1 };
        let mut corpus = Corpus::new(&settings, |_| 10);
        assert!(corpus.fill(40_000));
        assert!((corpus.utilization() - 400_000.0 / f64::from(1 << 20)).abs() < 1e-9);
        assert!(corpus.count_puts(40_100).mean() >= 2.0);
        assert!(corpus.count_gets(7).mean() >= 1.0);
        assert!(!corpus.fill(100_000));
    }
}
