//! The log: a queue from which the oldest items are evicted first, and which refuses no item.

use std::collections::{HashSet, VecDeque};

use super::super::{ItemCommand, ItemPut, ItemPutMode, ItemRequest};
use super::{MEMORY_SIZE, Tested};
use crate::memory::UNIT_SIZE;
use crate::naive::{SplitMix64, test_seeds};
use skep_core::operation::{Expiry, ExpiryChange, KEY_SIZE_MAX, Operation, Reply, VALUE_SIZE_MAX};

/// Ranks of a Zipf distribution with exponent 0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: u32) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u32| f64::from(rank).powf(-0.99);
        let mut sums = Vec::new();
        for rank in 1..=count {
            sum += weight(rank);
            sums.push(sum);
        }
        Zipf(sums)
    }

    fn draw(&self, random: &mut SplitMix64) -> u64 {
        let at = random.next() as f64 / 2f64.powi(64) * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < at) as u64
    }
}

/// A queue of keys that holds this many.
struct Fifo {
    count_max: usize,
    queue: VecDeque<u64>,
    keys: HashSet<u64>,
}

impl Fifo {
    /// Inserts a key unless it is there. Returns true if it is there.
    fn read(&mut self, key: u64) -> bool {
        let is_new = self.keys.insert(key);
        if is_new {
            self.queue.push_back(key);
            if self.queue.len() > self.count_max {
                self.queue.pop_front().inspect(|oldest| assert!(self.keys.remove(oldest)));
            }
        }
        !is_new
    }
}

/// Keys are read by a Zipf distribution, and put after a miss. The log of the queue is as large as that of the cache.
#[test]
fn the_hit_ratio_is_that_of_an_exact_queue() {
    const READS: u32 = 400_000;
    let zipf = Zipf::new(300_000);
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        let mut tested = Tested::new(16, seed);
        let count_max = tested.cache.statistics().log_bytes as usize / UNIT_SIZE;
        let mut fifo = Fifo { count_max, queue: VecDeque::new(), keys: HashSet::new() };
        let (mut hits, mut expected) = (0, 0);
        for _ in 0..READS {
            let key = zipf.draw(&mut random);
            expected += u32::from(fifo.read(key));
            match tested.run(&key.to_le_bytes(), Operation::Get) {
                Reply::Value(value) => {
                    assert_eq!(value, key.to_be_bytes(), "SKEP_SEED={seed}");
                    hits += 1;
                }
                _ => tested.put(&key.to_le_bytes(), &key.to_be_bytes()),
            }
        }
        let statistics = tested.cache.statistics();
        assert!(statistics.log_evictions > u64::from(READS) / 20, "SKEP_SEED={seed}: {statistics:?}");
        let (ratio, expected) = (f64::from(hits) / f64::from(READS), f64::from(expected) / f64::from(READS));
        println!("hit ratio {ratio:.4}, of the queue {expected:.4}; {statistics:?}");
        assert!((ratio - expected).abs() < 0.02 * expected, "SKEP_SEED={seed}: {ratio} and {expected}");
    }
}

/// Without collisions of tags, the keys in the cache are the last ones that were put.
#[test]
fn the_log_holds_the_last_items() {
    let mut tested = Tested::new(16, 3);
    let count_max = tested.cache.statistics().log_bytes / UNIT_SIZE as u64;
    let count = 3 * count_max + 77;
    for number in 0..count {
        tested.put(&number.to_le_bytes(), b"12345678");
    }
    let before = tested.cache.statistics();
    let mut there = 0;
    for number in 0..count {
        let is_there = tested.run(&number.to_le_bytes(), Operation::Contains) == Reply::Done;
        assert!(!is_there || number >= count - count_max, "pair {number} of {count} was overwritten");
        there += u64::from(is_there);
    }
    let statistics = tested.cache.statistics();
    assert_eq!(statistics.items, there, "{statistics:?}");
    assert_eq!(statistics.log_evictions + statistics.index_evictions, count - there, "{statistics:?}");
    // A bucket is full for some keys: see the header of `settings.rs`.
    assert!(there > count_max * 95 / 100, "{there} of {count_max}");
    // The sweep has found the others, except those of the last wrap.
    assert!(before.items - there < count_max, "{before:?}");
    assert_eq!((statistics.log_used_bytes, statistics.memory_bytes), (statistics.log_bytes, MEMORY_SIZE));
}

/// Pairs of all sizes, with all fields, in a log that is full.
#[test]
fn a_full_log_refuses_no_pair() {
    for seed in test_seeds() {
        let mut random = SplitMix64::new(seed);
        let mut tested = Tested::new(16, seed);
        let bytes: Vec<u8> = (0..VALUE_SIZE_MAX).map(|_| random.next() as u8).collect();
        for number in 0..500_u64 {
            let value_size_max = random.choose(&[0, 100, 10_000, VALUE_SIZE_MAX]);
            let value = &bytes[..if random.chance(1, 5) { VALUE_SIZE_MAX } else { random.within(0..=value_size_max) }];
            let mut key = vec![b'k'; random.within(8..=KEY_SIZE_MAX)];
            key[..8].copy_from_slice(&number.to_le_bytes());
            let put = ItemPut {
                value,
                mode: ItemPutMode::Always,
                flags: u32::MAX,
                expiry: ExpiryChange::set(Expiry::MAX),
                size_max: VALUE_SIZE_MAX,
                may_be_stale: false,
                returns_fields: false,
                has_base64_key: false,
            };
            let request = ItemRequest { key: &key, cas: None, command: ItemCommand::Put(put) };
            tested.cache.execute_items(&[request], &mut tested.replies);
            assert_eq!(tested.replies.get(0), Reply::Done, "SKEP_SEED={seed}: {} bytes", value.len());
            assert_eq!(tested.run(&key, Operation::Get), Reply::Value(value), "SKEP_SEED={seed}");
        }
        let (statistics, log) = (tested.cache.statistics(), &tested.cache.log);
        assert_eq!(statistics.log_used_bytes, statistics.log_bytes);
        assert!(log.appended_units() / u64::from(log.unit_count()) > 50, "SKEP_SEED={seed}: {statistics:?}");
    }
}
