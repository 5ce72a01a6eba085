//! The keys that the most operations are on, counted while they are watched.
//!
//! ```text
//! batch of a shard ─▶ no reader: one load, and nothing else
//!                  └▶ each n-th operation ─▶ entries of this second ─▶ those of the last second ─▶ reader
//! ```
//!
//! 1. A reader says that it looks, for the next [`WATCH_TIME`]. From then on each shard samples the operations of its batches.
//!    The distance between two samples is random, so that a pattern in the operations does not hide a key. It doubles when a
//!    second has many samples: so a shard takes at most some ten thousand in a second.
//! 2. A sample counts for all operations since the one before it. The counts are those of Space-Saving (Metwally, Agrawal, El
//!    Abbadi, 2005): a key without an entry takes that with the smallest count, and adds to it. What it has taken over is its
//!    possible error.
//! 3. The reader gets the keys of the last second whose count without the error is at least [`SHARE_MIN`] of all operations.
//!
//! The reservation station joins requests on one bucket, but executes short ones before they enter it. So its queues would miss
//! the keys that matter most, and the counts are taken from the batch. Operations of transactions are not counted.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{HOT_KEY_ENTRIES, HOT_KEY_SIZE_SHOWN, HOT_KEYS_SHOWN};
use crate::vocabulary::Space;

/// The time for which keys are counted after a reader has looked.
const WATCH_TIME: Duration = Duration::from_secs(5);
/// The time of the counts that a reader gets.
const PERIOD: Duration = Duration::from_secs(1);
/// The part of all operations that the operations on a hot key are at least.
const SHARE_MIN: f64 = 0.01;
/// Samples of a second after which the distance between two doubles, and the greatest distance, as powers of two.
const SAMPLES_DOUBLE: u64 = 1024;
const DISTANCE_BITS_MAX: u32 = 10;

/// A key, and how often operations are on it.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The name of its space.
    pub space: &'static str,
    /// The key, or its first bytes.
    pub key: Vec<u8>,
    /// Operations on it in a second, about.
    pub rate: f64,
    /// Their part of all operations.
    pub share: f64,
}

/// The hot keys of all shards.
#[derive(Debug)]
pub(crate) struct HotKeys {
    is_watched: AtomicBool,
    start: Instant,
    /// When a reader came last, in microseconds since the start.
    watched_at: AtomicU64,
    shards: Vec<Mutex<Counts>>,
    hash: RandomState,
}

/// The counts of a shard.
#[derive(Debug, Default)]
struct Counts {
    now: Window,
    /// Those of the last whole second.
    last: Window,
    /// Operations until the next sample.
    skip: usize,
    /// The state of the random distances.
    random: u64,
}

/// The counts of a time.
#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    operations: u64,
    samples: u64,
    entries: Vec<Entry>,
}

/// A key with its count.
#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    space: Space,
    key: Vec<u8>,
    count: u64,
    error: u64,
}

impl HotKeys {
    pub(crate) fn new(shard_count: usize) -> HotKeys {
        let hash = RandomState::new();
        let counts = |shard| Mutex::new(Counts { random: hash.hash_one(shard) | 1, ..Counts::default() });
        let shards = (0..shard_count).map(counts).collect();
        let watched_at = AtomicU64::new(0);
        HotKeys { is_watched: AtomicBool::new(false), start: Instant::now(), watched_at, shards, hash }
    }

    fn microseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_micros() as u64
    }

    /// Returns true if keys are to be counted.
    #[inline]
    pub(crate) fn are_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Counts the operations of a batch on a space: their number, and the key of each.
    #[cold]
    pub(crate) fn count<'k>(
        &self,
        shard: u16,
        space: Space,
        operations: usize,
        key: impl Fn(usize) -> &'k [u8],
        now: Instant,
    ) {
        if operations == 0 {
            return;
        }
        let mut counts = lock(&self.shards[usize::from(shard)]);
        counts.turn_over(now);
        let unwatched = self.microseconds(now).saturating_sub(self.watched_at.load(Ordering::Relaxed));
        if unwatched > WATCH_TIME.as_micros() as u64 {
            self.is_watched.store(false, Ordering::Relaxed);
            *counts = Counts { random: counts.random, ..Counts::default() };
            return;
        }
        let counts = &mut *counts;
        let mut index = counts.skip;
        while index < operations {
            let distance = counts.now.distance();
            let key = key(index);
            counts.now.add(self.hash.hash_one(key), space, key, distance as u64);
            index += 1 + counts.below(2 * distance - 1);
        }
        counts.skip = index - operations;
        counts.now.operations += operations as u64;
    }

    /// Returns the hottest keys of the last second, and lets them be counted for the next few seconds.
    pub(crate) fn look(&self, now: Instant) -> Vec<HotKey> {
        self.watched_at.store(self.microseconds(now), Ordering::Relaxed);
        self.is_watched.store(true, Ordering::Relaxed);
        let (mut entries, mut operations) = (Vec::<Entry>::new(), 0);
        for counts in &self.shards {
            // The shard does not wait while the entries are joined.
            let (of_shard, own) = {
                let mut counts = lock(counts);
                counts.turn_over(now);
                (counts.last.operations, counts.last.entries.clone())
            };
            operations += of_shard;
            for entry in own {
                // Each shard may have executed operations on one key of the ordered space.
                let same = entries.iter_mut().find(|other| other.is(entry.hash, entry.space, &entry.key));
                match same {
                    Some(other) => {
                        other.count += entry.count;
                        other.error += entry.error;
                    }
                    None => entries.push(entry),
                }
            }
        }
        let all = operations.max(1) as f64;
        entries.retain(|entry| (entry.count - entry.error) as f64 / all >= SHARE_MIN);
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.count));
        let hot = |mut entry: Entry| {
            entry.key.truncate(HOT_KEY_SIZE_SHOWN);
            // The counts are samples, so they may be more than all.
            let share = (entry.count as f64 / all).min(1.0);
            HotKey { space: entry.space.name(), key: entry.key, rate: share * all / PERIOD.as_secs_f64(), share }
        };
        entries.into_iter().take(HOT_KEYS_SHOWN).map(hot).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    /// Begins a new second if the last one is over. A second without operations leaves no counts.
    fn turn_over(&mut self, now: Instant) {
        let begun = *self.now.begun.get_or_insert(now);
        let elapsed = now.saturating_duration_since(begun);
        if elapsed >= PERIOD {
            let last = std::mem::replace(&mut self.now, Window { begun: Some(now), ..Window::default() });
            self.last = if elapsed < 2 * PERIOD { last } else { Window::default() };
        }
    }

    /// Returns a random number below a bound (xorshift).
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }
}

impl Window {
    /// Returns the mean distance between two samples.
    fn distance(&self) -> usize {
        1 << (self.samples / SAMPLES_DOUBLE).min(u64::from(DISTANCE_BITS_MAX))
    }

    /// Adds a sample, which counts for a number of operations.
    fn add(&mut self, hash: u64, space: Space, key: &[u8], weight: u64) {
        self.samples += 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.is(hash, space, key)) {
            entry.count += weight;
            return;
        }
        let entry = |count, error| Entry { hash, space, key: key.to_vec(), count, error };
        if self.entries.len() < HOT_KEY_ENTRIES {
            self.entries.push(entry(weight, 0));
        } else if let Some(least) = self.entries.iter_mut().min_by_key(|entry| entry.count) {
            *least = entry(least.count + weight, least.count);
        }
    }
}

impl Entry {
    fn is(&self, hash: u64, space: Space, key: &[u8]) -> bool {
        self.hash == hash && self.space == space && self.key == key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets two shards execute batches for a second: `hot` of each hundred operations are on one key, the others on many.
    fn look_after(hot: u64, batch: usize, batches: u64) -> Vec<HotKey> {
        let keys = HotKeys::new(2);
        let begun = Instant::now();
        assert!(!keys.are_watched() && keys.look(begun).is_empty() && keys.are_watched());
        let cold: Vec<[u8; 8]> = (0..100_000_u64).map(u64::to_be_bytes).collect();
        let mut number = 0_u64;
        for turn in 0..batches {
            let now = begun + PERIOD.mul_f64(turn as f64 / batches as f64);
            let names: Vec<&[u8]> = (0..batch)
                .map(|_| {
                    number += 1;
                    let is_hot = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & 0xff < hot * 256 / 100;
                    if is_hot { &b"hot"[..] } else { &cold[(number * 7919 % 100_000) as usize] }
                })
                .collect();
            keys.count((turn % 2) as u16, Space::Hash, batch, |index| names[index], now);
        }
        let found = keys.look(begun + PERIOD);
        // The counts of a second are those of the next one too; then they are old.
        assert_eq!(keys.look(begun + PERIOD.mul_f64(1.5)), found);
        assert!(keys.look(begun + PERIOD * 4).is_empty());
        // No reader has come for a while: the next batch ends the counts.
        keys.count(0, Space::Hash, 1, |_| b"x", begun + PERIOD * 4 + WATCH_TIME * 2);
        assert!(!keys.are_watched());
        found
    }

    #[test]
    fn a_hot_key_has_its_share_at_each_rate() {
        for (batch, batches) in [(1, 500), (1, 100_000), (16, 20_000), (256, 8_000)] {
            let found = look_after(20, batch, batches);
            let operations = (batch as u64 * batches) as f64;
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].space, &found[0].key[..]), ("hash", &b"hot"[..]));
            assert!((0.14..0.27).contains(&found[0].share), "{batch} {batches}: {found:?}");
            assert!((found[0].rate / operations - found[0].share).abs() < 0.01, "{found:?}");
        }
    }

    #[test]
    fn no_key_is_hot_without_one() {
        assert_eq!(look_after(0, 256, 2_000), []);
    }
}
