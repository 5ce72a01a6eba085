//! The granules of a chunk, one bit for each: set while a frame has it.
//!
//! ```text
//! granules   ███░░░█████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░█░░░
//! blocks     │    16     │   16, free    │   16, free   │   16
//! ```
//!
//! A **block** is 16 granules from a multiple of 16 on, as many as the largest frame has. A frame that is put where the
//! first free run of its size begins takes granules of one free block at most: either the run begins with a block, or the
//! granule before it is in use, and then the block that it begins in is not free.

use super::super::memory::number::{CHUNK_GRANULES, GRANULE_MAX};

/// Granules of a block.
pub(super) const BLOCK_GRANULES: u32 = GRANULE_MAX as u32;
/// Blocks of a chunk.
pub(super) const CHUNK_BLOCKS: u32 = CHUNK_GRANULES / BLOCK_GRANULES;

const WORD_BITS: usize = u64::BITS as usize;
const WORD_COUNT: usize = CHUNK_GRANULES as usize / WORD_BITS;
const _: () = assert!(GRANULE_MAX == 16 && WORD_BITS.is_multiple_of(GRANULE_MAX));

/// Which granules of a chunk are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granules([u64; WORD_COUNT]);

impl Granules {
    /// All are free.
    pub(super) const FREE: Granules = Granules([0; WORD_COUNT]);

    /// Sets granules that are free to in use, or the other way round.
    pub(super) fn flip(&mut self, first: u32, count: u32) {
        for granule in first..first + count {
            self.0[granule as usize / WORD_BITS] ^= 1 << (granule as usize % WORD_BITS);
        }
    }

    /// The number in use.
    pub(super) fn used(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Where the first run of `size` free granules begins. It begins where the granule before is in use, or with the chunk.
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

    /// Length of the longest free run, at most that of the largest frame.
    pub(super) fn longest_run(&self) -> usize {
        let one = self.free();
        if one == Granules::FREE {
            return 0;
        }
        // Runs of 1, 2, 4, 8, 16; then the lengths between by what is left of them.
        let mut of_length = [one; 5];
        for step in 1..of_length.len() {
            of_length[step] = of_length[step - 1].and(of_length[step - 1].after(1 << (step - 1)));
        }
        let highest = of_length.iter().rposition(|runs| *runs != Granules::FREE).expect("there is a free granule");
        let (mut runs, mut length) = (of_length[highest], 1 << highest);
        for step in (0..highest).rev().filter(|_| highest < of_length.len() - 1) {
            let longer = runs.and(of_length[step].after(length));
            if longer != Granules::FREE {
                (runs, length) = (longer, length + (1 << step));
            }
        }
        length
    }

    /// Blocks of which every granule is free.
    pub(super) fn free_blocks(&self) -> u32 {
        self.0.iter().map(|word| lowest_of_free_blocks(*word).count_ones()).sum()
    }

    /// The same with all free blocks in use: what is left free are runs outside of them.
    pub(super) fn outside_of_blocks(&self) -> Granules {
        Granules(self.0.map(|word| word | (lowest_of_free_blocks(word) * u64::from(u16::MAX))))
    }

    /// The bits of free granules.
    fn free(&self) -> Granules {
        Granules(self.0.map(|word| !word))
    }

    fn and(&self, other: Granules) -> Granules {
        Granules(std::array::from_fn(|place| self.0[place] & other.0[place]))
    }

    /// The bits that are `count` (below 64) places further on, none beyond the end.
    fn after(&self, count: usize) -> Granules {
        let next = |place: usize| self.0.get(place + 1).map_or(0, |word| word << (WORD_BITS - count));
        Granules(std::array::from_fn(|place| self.0[place] >> count | next(place)))
    }
}

/// The lowest bit of each 16 that are all clear.
fn lowest_of_free_blocks(word: u64) -> u64 {
    const LOW: u64 = 0x7fff_7fff_7fff_7fff;
    // The highest bit of each 16 is set if any of them is.
    let used = ((word & LOW) + LOW) | word;
    (!used & !LOW) >> (BLOCK_GRANULES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{SplitMix64, test_seeds};

    fn is_free(granules: &Granules, granule: u32) -> bool {
        granules.0[granule as usize / WORD_BITS] >> (granule as usize % WORD_BITS) & 1 == 0
    }

    #[test]
    fn runs_and_blocks_are_those_that_a_walk_finds() {
        for seed in test_seeds() {
            let mut random = SplitMix64::new(seed);
            for density in 0..64 {
                let mut granules = Granules::FREE;
                for granule in 0..CHUNK_GRANULES {
                    if random.chance(density * density, 4096) {
                        granules.flip(granule, 1);
                    }
                }
                let run_at = |first: u32| (first..CHUNK_GRANULES).take_while(|at| is_free(&granules, *at)).count();
                let longest = (0..CHUNK_GRANULES).map(run_at).max().unwrap();
                assert_eq!(granules.longest_run(), longest.min(GRANULE_MAX), "seed {seed} density {density}");
                for size in 1..=GRANULE_MAX {
                    let first = (0..CHUNK_GRANULES).find(|first| run_at(*first) >= size);
                    assert_eq!(granules.first_run(size), first, "seed {seed} density {density} size {size}");
                }
                let starts = (0..CHUNK_GRANULES).step_by(BLOCK_GRANULES as usize);
                let blocks = starts.filter(|first| run_at(*first) >= BLOCK_GRANULES as usize).count();
                assert_eq!(granules.free_blocks(), blocks as u32, "seed {seed} density {density}");
                let in_free_block = |granule: u32| run_at(granule / BLOCK_GRANULES * BLOCK_GRANULES) >= GRANULE_MAX;
                let is_outside = |granule: u32| is_free(&granules, granule) && !in_free_block(granule);
                let outside = granules.outside_of_blocks();
                assert!((0..CHUNK_GRANULES).all(|granule| is_free(&outside, granule) == is_outside(granule)));
                let used = (0..CHUNK_GRANULES).filter(|granule| !is_free(&granules, *granule)).count();
                assert_eq!(granules.used(), used as u32);
            }
        }
    }

    #[test]
    fn a_frame_takes_one_free_block_at_most() {
        for seed in test_seeds() {
            let mut random = SplitMix64::new(seed);
            let mut granules = Granules::FREE;
            let mut frames: Vec<(u32, u32)> = Vec::new();
            for _ in 0..10_000 {
                let size = random.within(1..=GRANULE_MAX);
                let blocks = granules.free_blocks();
                match granules.first_run(size) {
                    Some(first) if random.chance(2, 3) => {
                        granules.flip(first, size as u32);
                        frames.push((first, size as u32));
                        assert!(granules.free_blocks() + 1 >= blocks, "seed {seed}");
                    }
                    _ if frames.is_empty() => {}
                    _ => {
                        let (first, count) = frames.swap_remove(random.below(frames.len() as u64) as usize);
                        granules.flip(first, count);
                    }
                }
            }
        }
    }
}
