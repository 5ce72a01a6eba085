//! A set of zones that finds its highest in three steps, however many zones there are.
//!
//! ```text
//! level 2   one word      bit w: word w of level 1 is not 0
//! level 1   ≤ 64 words    bit w: word w of level 0 is not 0
//! level 0   ≤ 4096 words  bit z: zone z is in the set
//! ```

const LEVELS: usize = 3;
const BITS: usize = u64::BITS as usize;
/// Most zones of a set.
pub(super) const ZONE_COUNT_MAX: usize = BITS.pow(LEVELS as u32);

/// Numbers of zones.
#[derive(Debug)]
pub(super) struct ZoneSet {
    levels: [Vec<u64>; LEVELS],
}

impl ZoneSet {
    /// Creates an empty set for zones below `zone_count`.
    pub(super) fn new(zone_count: usize) -> Self {
        debug_assert!(zone_count <= ZONE_COUNT_MAX);
        ZoneSet { levels: std::array::from_fn(|level| vec![0; zone_count.div_ceil(BITS.pow(level as u32 + 1))]) }
    }

    /// Adds a zone.
    pub(super) fn insert(&mut self, zone: usize) {
        let mut number = zone;
        for level in &mut self.levels {
            level[number / BITS] |= 1 << (number % BITS);
            number /= BITS;
        }
    }

    /// Removes a zone.
    pub(super) fn remove(&mut self, zone: usize) {
        let mut number = zone;
        for level in &mut self.levels {
            let word = &mut level[number / BITS];
            *word &= !(1 << (number % BITS));
            if *word != 0 {
                return;
            }
            number /= BITS;
        }
    }

    /// Returns the highest zone.
    pub(super) fn last(&self) -> Option<usize> {
        let is_empty = self.levels[LEVELS - 1][0] == 0;
        let last_below = |number: usize, level: &Vec<u64>| number * BITS + level[number].ilog2() as usize;
        (!is_empty).then(|| self.levels.iter().rev().fold(0, last_below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use std::collections::BTreeSet;

    #[test]
    fn the_highest_zone_is_found_in_sets_of_all_sizes() {
        for zone_count in [1, 63, 64, 65, 4096, 4097, 65_536, ZONE_COUNT_MAX] {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(zone_count as u64);
            let (mut set, mut expected) = (ZoneSet::new(zone_count), BTreeSet::new());
            for step in 0..2000 {
                let zone = random.random_range(0..zone_count);
                if step % 400 < 200 {
                    set.insert(zone);
                    expected.insert(zone);
                } else {
                    let zone = if step % 2 == 0 { zone } else { expected.last().copied().unwrap_or(zone) };
                    set.remove(zone);
                    expected.remove(&zone);
                }
                assert_eq!(set.last(), expected.last().copied(), "{zone_count} zones, step {step}");
            }
        }
    }
}
