//! The allocation units of a chunk: one bit for each, set while a frame uses it.
//!
//! ```text
//! units    ███░░░█████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░█░░░
//! blocks   │    16     │   16, free    │   16, free   │   16
//! ```
//!
//! A **block** is 16 units from a multiple of 16 on, as many as the largest frame has. A frame at the first free run of
//! its size takes units of at most one free block: either the run begins with a block, or the unit before it is in use,
//! and then the block in which it begins is not free.

use super::super::memory::number::{CHUNK_UNITS, FRAME_UNITS_MAX};

/// Units of a block.
pub(super) const BLOCK_UNITS: u32 = FRAME_UNITS_MAX as u32;
/// Blocks of a chunk.
pub(super) const CHUNK_BLOCKS: u32 = CHUNK_UNITS / BLOCK_UNITS;

const WORD_BITS: usize = u64::BITS as usize;
const WORD_COUNT: usize = CHUNK_UNITS as usize / WORD_BITS;
const _: () = assert!(FRAME_UNITS_MAX == 16 && WORD_BITS.is_multiple_of(FRAME_UNITS_MAX));

/// The units of a chunk that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitMap([u64; WORD_COUNT]);

impl UnitMap {
    /// All units are free.
    pub(super) const FREE: UnitMap = UnitMap([0; WORD_COUNT]);

    /// Inverts units: all of them are free, or all are in use.
    pub(super) fn flip(&mut self, first: u32, count: u32) {
        let (word, offset) = (first as usize / WORD_BITS, first as usize % WORD_BITS);
        let bits = ((1_u128 << count) - 1) << offset;
        self.0[word] ^= bits as u64;
        if let Some(next) = self.0.get_mut(word + 1) {
            *next ^= (bits >> WORD_BITS) as u64;
        }
    }

    /// Returns the number of units in use.
    pub(super) fn used(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the start of the first run of `size` free units. The unit before it is in use or in another chunk.
    pub(super) fn first_run(&self, size: usize) -> Option<u32> {
        let (mut runs, mut length) = (self.free(), 1);
        while length < size {
            let more = length.min(size - length);
            runs = runs.and(runs.after(more));
            length += more;
        }
        let word = runs.0.iter().position(|word| *word != 0)?;
        Some((word * WORD_BITS) as u32 + runs.0[word].trailing_zeros())
    }

    /// Returns the length of the longest free run, at most that of the largest frame.
    pub(super) fn longest_run(&self) -> usize {
        let one = self.free();
        if one == UnitMap::FREE {
            return 0;
        }
        // Runs of 1, 2, 4, 8, 16; then the lengths in between, from their remainders.
        let mut of_length = [one; 5];
        for step in 1..of_length.len() {
            of_length[step] = of_length[step - 1].and(of_length[step - 1].after(1 << (step - 1)));
        }
        let highest = of_length.iter().rposition(|runs| *runs != UnitMap::FREE).expect("there is a free unit");
        let (mut runs, mut length) = (of_length[highest], 1 << highest);
        for step in (0..highest).rev().filter(|_| highest < of_length.len() - 1) {
            let longer = runs.and(of_length[step].after(length));
            if longer != UnitMap::FREE {
                (runs, length) = (longer, length + (1 << step));
            }
        }
        length
    }

    /// Returns the number of blocks of which every unit is free.
    pub(super) fn free_blocks(&self) -> u32 {
        self.0.iter().map(|word| lowest_of_free_blocks(*word).count_ones()).sum()
    }

    /// Returns the same map with all free blocks in use: the free units left are outside blocks.
    pub(super) fn without_free_blocks(&self) -> UnitMap {
        UnitMap(self.0.map(|word| word | (lowest_of_free_blocks(word) * u64::from(u16::MAX))))
    }

    /// Returns the bits of free units.
    fn free(&self) -> UnitMap {
        UnitMap(self.0.map(|word| !word))
    }

    fn and(&self, other: UnitMap) -> UnitMap {
        UnitMap(std::array::from_fn(|index| self.0[index] & other.0[index]))
    }

    /// Returns the bits that are `count` (below 64) positions further on, zeros beyond the end.
    fn after(&self, count: usize) -> UnitMap {
        let next = |index: usize| self.0.get(index + 1).map_or(0, |word| word << (WORD_BITS - count));
        UnitMap(std::array::from_fn(|index| self.0[index] >> count | next(index)))
    }
}

/// Returns the lowest bit of each 16 that are all clear.
fn lowest_of_free_blocks(word: u64) -> u64 {
    const LOW: u64 = 0x7fff_7fff_7fff_7fff;
    // The highest bit of each 16 is set if any of them is.
    let used = ((word & LOW) + LOW) | word;
    (!used & !LOW) >> (BLOCK_UNITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{SplitMix64, test_seeds};

    fn is_free(units: &UnitMap, unit: u32) -> bool {
        units.0[unit as usize / WORD_BITS] >> (unit as usize % WORD_BITS) & 1 == 0
    }

    #[test]
    fn runs_and_blocks_are_those_that_a_walk_finds() {
        for seed in test_seeds() {
            let mut random = SplitMix64::new(seed);
            for density in 0..64 {
                let mut units = UnitMap::FREE;
                for unit in 0..CHUNK_UNITS {
                    if random.chance(density * density, 4096) {
                        units.flip(unit, 1);
                    }
                }
                let run_at = |first: u32| (first..CHUNK_UNITS).take_while(|at| is_free(&units, *at)).count();
                let longest = (0..CHUNK_UNITS).map(run_at).max().unwrap();
                assert_eq!(units.longest_run(), longest.min(FRAME_UNITS_MAX), "seed {seed} density {density}");
                for size in 1..=FRAME_UNITS_MAX {
                    let first = (0..CHUNK_UNITS).find(|first| run_at(*first) >= size);
                    assert_eq!(units.first_run(size), first, "seed {seed} density {density} size {size}");
                }
                let starts = (0..CHUNK_UNITS).step_by(BLOCK_UNITS as usize);
                let blocks = starts.filter(|first| run_at(*first) >= BLOCK_UNITS as usize).count();
                assert_eq!(units.free_blocks(), blocks as u32, "seed {seed} density {density}");
                let in_free_block = |unit: u32| run_at(unit / BLOCK_UNITS * BLOCK_UNITS) >= FRAME_UNITS_MAX;
                let is_beside_blocks = |unit: u32| is_free(&units, unit) && !in_free_block(unit);
                let beside_blocks = units.without_free_blocks();
                assert!((0..CHUNK_UNITS).all(|unit| is_free(&beside_blocks, unit) == is_beside_blocks(unit)));
                let used = (0..CHUNK_UNITS).filter(|unit| !is_free(&units, *unit)).count();
                assert_eq!(units.used(), used as u32);
            }
        }
    }

    #[test]
    fn a_frame_takes_one_free_block_at_most() {
        for seed in test_seeds() {
            let mut random = SplitMix64::new(seed);
            let mut units = UnitMap::FREE;
            let mut frames: Vec<(u32, u32)> = Vec::new();
            for _ in 0..10_000 {
                let size = random.within(1..=FRAME_UNITS_MAX);
                let blocks = units.free_blocks();
                match units.first_run(size) {
                    Some(first) if random.chance(2, 3) => {
                        units.flip(first, size as u32);
                        frames.push((first, size as u32));
                        assert!(units.free_blocks() + 1 >= blocks, "seed {seed}");
                    }
                    _ if frames.is_empty() => {}
                    _ => {
                        let (first, count) = frames.swap_remove(random.below(frames.len() as u64) as usize);
                        units.flip(first, count);
                    }
                }
            }
        }
    }
}
