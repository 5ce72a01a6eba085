//! Tests of the space alone: frames of all sizes are allocated, freed and moved.

use std::collections::HashMap;

use super::super::memory::frame_state::FreeFrame;
use super::super::memory::number::{CHUNK_UNITS, FRAME_UNITS_MAX, Lid};
use super::{BLOCK_UNITS, BLOCKS_FOR_DELETE, BLOCKS_FOR_NODES, Claim, Owner, Space};
use crate::naive::{SplitMix64, test_seeds};

/// The frames of a space. Each has a LID of its own, as those of a tree have.
struct Frames {
    space: Space,
    frames: Vec<FreeFrame>,
    random: SplitMix64,
}

impl Frames {
    fn new(chunk_count: u32, seed: u64) -> Self {
        let space = Space::new(chunk_count * CHUNK_UNITS);
        Frames { space, frames: Vec::new(), random: SplitMix64::new(seed) }
    }

    fn take(&mut self, units: usize, claim: Claim) -> bool {
        let Some(frame) = self.space.allocate(units, claim) else { return false };
        self.space.give(frame.number(), Owner::Node(Lid::new(frame.number().bits())));
        self.frames.push(frame);
        true
    }

    fn give_back_one(&mut self) -> usize {
        let index = self.random.below(self.frames.len() as u64) as usize;
        let frame = self.frames.swap_remove(index);
        let units = frame.units();
        self.space.free(frame);
        units
    }

    fn recycle_one(&mut self) -> usize {
        let index = self.random.below(self.frames.len() as u64) as usize;
        let frame = self.frames.swap_remove(index);
        let units = frame.units();
        self.space.retire(frame.number());
        self.space.recycle(frame);
        units
    }

    /// Moves all frames that the space returns; no frame waits for an epoch.
    fn move_all(&mut self) {
        while let Some(from) = self.space.next_movable(&mut CHUNK_UNITS.clone()) {
            let Some(to) = self.space.allocate_for(&from) else { continue };
            self.space.give(to.number(), Owner::Node(Lid::new(to.number().bits())));
            self.space.retire_moved(&from);
            let frame = self.frames.iter_mut().find(|frame| frame.number() == from.number).expect("it is ours");
            let old = std::mem::replace(frame, to);
            self.space.free(old);
        }
    }

    fn check(&self) {
        let owner = |frame: &FreeFrame| Owner::Node(Lid::new(frame.number().bits()));
        let frames = self.frames.iter().map(|frame| (frame.number().bits(), (frame.units(), owner(frame))));
        self.space.check(&frames.collect::<HashMap<_, _>>());
    }
}

#[test]
fn units_are_one_frames_or_free() {
    for seed in test_seeds() {
        let mut frames = Frames::new(20, seed);
        for round in 0..20_000 {
            let units = frames.random.within(1..=FRAME_UNITS_MAX);
            // Filling and emptying in turn.
            let is_taken = frames.random.chance(if round / 2000 % 2 == 0 { 9 } else { 2 }, 10);
            if frames.frames.is_empty() || is_taken {
                frames.take(units, Claim::Growth);
            } else {
                frames.give_back_one();
            }
            if round % 1000 == 0 {
                frames.move_all();
                frames.check();
            }
        }
        while !frames.frames.is_empty() {
            frames.give_back_one();
        }
        frames.check();
        assert_eq!(frames.space.free_blocks, frames.space.block_count, "seed {seed}: all is free again");
    }
}

#[test]
fn an_allocation_takes_a_fixed_number_of_steps_in_a_region_of_any_size_however_full() {
    for chunk_count in [8, 64, 512] {
        let mut frames = Frames::new(chunk_count, 1);
        for full in [0, 50, 95, 98, 99, 100] {
            let unit_count = u64::from(chunk_count * CHUNK_UNITS);
            while frames.space.used_units * 100 < unit_count * full {
                let units = frames.random.within(1..=FRAME_UNITS_MAX);
                // Also the reserve, and the single units that are left in chunks.
                if !frames.take(units, Claim::Upkeep) && !frames.take(1, Claim::Upkeep) {
                    break;
                }
            }
            const ALLOCATIONS: u64 = 1000;
            let steps = frames.space.steps.get();
            for _ in 0..ALLOCATIONS.min(frames.frames.len() as u64) {
                let units = frames.give_back_one();
                assert!(frames.take(units, Claim::Upkeep), "what was freed serves its size");
            }
            let steps = frames.space.steps.get() - steps;
            // Three lists of each size of chunk, and the chunk.
            let steps_max = ALLOCATIONS * (3 * FRAME_UNITS_MAX as u64 + 1);
            assert!(steps <= steps_max, "{chunk_count} chunks, {full} % full: {steps} steps");
        }
    }
}

/// Frames are replaced by others that are no larger, of all sizes, one at a time, as by deletes when memory is full.
#[test]
fn the_reserve_for_deletes_lasts() {
    for seed in test_seeds() {
        let mut frames = Frames::new(16, seed);
        loop {
            let units = frames.random.within(1..=FRAME_UNITS_MAX);
            if !frames.take(units, Claim::Growth) {
                break;
            }
        }
        assert!(frames.space.free_blocks >= BLOCKS_FOR_NODES);
        for round in 0..20_000 {
            let index = frames.random.below(frames.frames.len() as u64) as usize;
            let old = frames.frames.swap_remove(index);
            let units = frames.random.within(1..=old.units());
            // The new frame is allocated before the old one is freed.
            assert!(frames.take(units, Claim::Upkeep), "seed {seed} round {round}");
            frames.space.free(old);
            assert!(frames.space.free_blocks >= BLOCKS_FOR_DELETE, "seed {seed} round {round}");
            if round % 7 == 0 {
                let units = frames.random.within(1..=FRAME_UNITS_MAX);
                frames.take(units, Claim::Growth);
            }
        }
        frames.check();
    }
}

/// Only the reserve is left: a frame that may not take a block is put into any chunk where it takes none.
#[test]
fn what_may_take_no_block_gets_every_run_outside_of_blocks() {
    for seed in test_seeds() {
        let mut frames = Frames::new(16, seed);
        while frames.take(FRAME_UNITS_MAX, Claim::Upkeep) {}
        let (mut granted, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let kept_back = frames.space.reserve_for(Claim::Move);
            let units = frames.random.within(1..=FRAME_UNITS_MAX - 1);
            if frames.space.free_blocks < kept_back - 1 || frames.random.chance(1, 3) {
                frames.give_back_one();
            } else if frames.space.free_blocks > kept_back {
                frames.take(units, Claim::Upkeep);
            } else if frames.take(units, Claim::Move) {
                granted += 1;
            } else {
                refused += 1;
                let fits = |chunk: &super::Chunk| {
                    let beside_blocks = chunk.units.without_free_blocks();
                    chunk.used > 0 && beside_blocks.first_run(units).is_some()
                };
                assert!(!frames.space.chunks.iter().any(fits), "seed {seed}: {units} units are free in a run");
            }
        }
        assert!(granted > 1000 && refused > 100, "seed {seed}: {granted} granted, {refused} refused");
        frames.check();
    }
}

#[test]
fn moving_makes_blocks_of_what_lies_scattered() {
    for seed in test_seeds() {
        for (size, keep) in [(1, 2), (1, 64), (3, 8), (9, 4), (16, 3)] {
            let mut frames = Frames::new(32, seed);
            while frames.take(size, Claim::Growth) {}
            let all = std::mem::take(&mut frames.frames);
            for (index, frame) in all.into_iter().enumerate() {
                if index % keep == 0 { frames.frames.push(frame) } else { frames.space.free(frame) }
            }
            frames.move_all();
            frames.check();
            let free = frames.space.block_count * BLOCK_UNITS - frames.space.used_units as u32;
            let share = f64::from(frames.space.free_blocks * BLOCK_UNITS) / f64::from(free);
            assert!(share > 0.93, "seed {seed}: one of {keep} of size {size} stays: {share} of what is free is blocks");
        }
    }
}

#[test]
fn a_value_leaves_room_for_another_of_its_size() {
    let mut space = Space::new(8 * CHUNK_UNITS);
    let mut values = Vec::new();
    while let Some(parts) = space.allocate_value(&[16; 20], Claim::Growth) {
        values.push(parts);
    }
    assert!(values.len() > 5 && space.free_blocks >= BLOCKS_FOR_NODES + 20);
    let copy = space.allocate_value(&[16; 20], Claim::Overwrite).expect("a value is overwritten");
    for (lid, frame) in values.into_iter().flatten().chain(copy) {
        space.free(frame);
        space.free_value_lid(lid);
    }
    assert_eq!((space.free_blocks, space.value_blocks_max), (space.block_count, 0));
    space.check(&HashMap::new());
}

/// A frame of a size is freed before another is allocated, as by writes that replace leaves.
#[test]
fn a_frame_of_a_size_that_was_freed_needs_no_search_while_there_is_room() {
    let mut frames = Frames::new(64, 1);
    (0..500).for_each(|number| assert!(frames.take(9 + number % 4, Claim::Growth)));
    let (steps, used) = (frames.space.steps.get(), frames.space.used_units);
    for _ in 0..1000 {
        let units = frames.recycle_one();
        assert_eq!(frames.space.used_units, used - units as u64);
        assert!(frames.take(units, Claim::Growth));
    }
    assert_eq!((frames.space.steps.get(), frames.space.used_units), (steps, used), "no chunk was examined");
    frames.check();
}

#[test]
fn the_cache_is_empty_when_blocks_are_scarce() {
    for seed in test_seeds() {
        let mut frames = Frames::new(16, seed);
        for round in 0..20_000 {
            let units = frames.random.within(1..=FRAME_UNITS_MAX);
            // Filling and emptying in turn.
            let is_taken = frames.random.chance(if round / 2000 % 2 == 0 { 9 } else { 2 }, 10);
            if frames.frames.is_empty() || is_taken {
                let was_scarce = frames.space.is_scarce();
                frames.take(units, Claim::Growth);
                assert!(!was_scarce || frames.space.cache.units() == 0, "seed {seed} round {round}");
            } else {
                frames.recycle_one();
            }
            if round % 1000 == 0 {
                frames.check();
            }
        }
        assert!(frames.space.cache.units() > 0, "seed {seed}: the last rounds have emptied it");
        frames.space.empty_cache();
        while !frames.frames.is_empty() {
            frames.give_back_one();
        }
        assert_eq!(frames.space.free_blocks, frames.space.block_count, "seed {seed}: all is free again");
        frames.check();
    }
}
