//! The cache of contexts of queue pairs on an RDMA NIC (HERD, section 3.3).
//!
//! A context that is loaded into a full cache replaces a random one. The replaced context is dropped: writing it back
//! to the host takes no time here.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The contexts that are on the NIC.
#[derive(Debug)]
pub struct ContextCache {
    /// Queue pairs by their slot.
    slots: Vec<u32>,
    /// True for the queue pairs whose contexts are in a slot.
    is_cached: Vec<bool>,
    random: Xoshiro256PlusPlus,
    hits: u64,
    misses: u64,
}

impl ContextCache {
    /// Returns a cache of `capacity` contexts. It holds those of the first queue pairs.
    pub fn new(capacity: u32, queue_pairs: u32, seed: u64) -> Self {
        let cached = capacity.min(queue_pairs);
        ContextCache {
            slots: (0..cached).collect(),
            is_cached: (0..queue_pairs).map(|queue_pair| queue_pair < cached).collect(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            hits: 0,
            misses: 0,
        }
    }

    /// Returns true if the context of the queue pair is on the NIC. Counts hits and misses.
    pub fn look_up(&mut self, queue_pair: u32) -> bool {
        let is_hit = self.is_cached[queue_pair as usize];
        *(if is_hit { &mut self.hits } else { &mut self.misses }) += 1;
        is_hit
    }

    /// Loads the context of a queue pair, unless another verb has loaded it in the meantime.
    pub fn load(&mut self, queue_pair: u32) {
        if std::mem::replace(&mut self.is_cached[queue_pair as usize], true) {
            return;
        }
        let slot = self.random.random_range(0..self.slots.len());
        let replaced = std::mem::replace(&mut self.slots[slot], queue_pair);
        self.is_cached[replaced as usize] = false;
    }

    /// Returns the share of the lookups that missed, or 0 if there were none.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / (self.hits + self.misses).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses queue pairs at random, and returns the share of misses.
    fn miss_ratio(capacity: u32, queue_pairs: u32) -> f64 {
        let mut cache = ContextCache::new(capacity, queue_pairs, 1);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        for _ in 0..40_000 {
            let queue_pair = random.random_range(0..queue_pairs);
            if !cache.look_up(queue_pair) {
                cache.load(queue_pair);
            }
            assert!(cache.is_cached[queue_pair as usize]);
        }
        assert_eq!(cache.is_cached.iter().filter(|cached| **cached).count(), capacity.min(queue_pairs) as usize);
        cache.miss_ratio()
    }

    /// Random accesses hit in proportion to the cached part, by any rule of replacement.
    #[test]
    fn random_accesses_miss_in_proportion_to_the_contexts_that_are_not_cached() {
        for (capacity, queue_pairs) in [(1, 2), (16, 64), (64, 256), (100, 128), (200, 256)] {
            let expected = 1.0 - f64::from(capacity) / f64::from(queue_pairs);
            let ratio = miss_ratio(capacity, queue_pairs);
            assert!((ratio - expected).abs() < 0.01, "{capacity} of {queue_pairs}: {ratio}, not {expected}");
        }
    }

    #[test]
    fn a_cache_with_room_for_all_contexts_never_misses() {
        for (capacity, queue_pairs) in [(256, 256), (256, 16), (1, 1)] {
            assert_eq!(miss_ratio(capacity, queue_pairs), 0.0);
        }
    }

    #[test]
    fn a_context_that_was_loaded_twice_is_in_one_slot() {
        let mut cache = ContextCache::new(2, 4, 1);
        assert!(!cache.look_up(3));
        cache.load(3);
        cache.load(3);
        assert_eq!(cache.slots.iter().filter(|queue_pair| **queue_pair == 3).count(), 1);
    }
}
