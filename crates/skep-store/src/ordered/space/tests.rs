//! Tests of the space alone: frames of all sizes come, go and are moved.

use std::collections::HashMap;

use super::super::memory::frame_state::FreeFrame;
use super::super::memory::number::{CHUNK_GRANULES, GRANULE_MAX, Lid};
use super::{BLOCK_GRANULES, BLOCKS_FOR_DELETE, BLOCKS_FOR_NODES, Claim, Owner, Space};
use crate::naive::{SplitMix64, test_seeds};

/// Frames of a space, as they would be a tree's: each has a LID of its own.
struct Frames {
    space: Space,
    frames: Vec<FreeFrame>,
    random: SplitMix64,
}

impl Frames {
    fn new(chunk_count: u32, seed: u64) -> Self {
        let space = Space::new(chunk_count * CHUNK_GRANULES);
        Frames { space, frames: Vec::new(), random: SplitMix64::new(seed) }
    }

    fn take(&mut self, granules: usize, claim: Claim) -> bool {
        let Some(frame) = self.space.allocate(granules, claim) else { return false };
        self.space.give(frame.number(), Owner::Node(Lid::new(frame.number().bits())));
        self.frames.push(frame);
        true
    }

    fn give_back_one(&mut self) -> usize {
        let place = self.random.below(self.frames.len() as u64) as usize;
        let frame = self.frames.swap_remove(place);
        let granules = frame.granules();
        self.space.free(frame);
        granules
    }

    /// Moves what the space names, as long as there is anything; no frame waits for an epoch.
    fn move_all(&mut self) {
        while let Some(from) = self.space.next_movable(&mut CHUNK_GRANULES.clone()) {
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
        let frames = self.frames.iter().map(|frame| (frame.number().bits(), (frame.granules(), owner(frame))));
        self.space.check(&frames.collect::<HashMap<_, _>>());
    }
}

#[test]
fn granules_are_one_frames_or_free() {
    for seed in test_seeds() {
        let mut frames = Frames::new(20, seed);
        for round in 0..20_000 {
            let granules = frames.random.within(1..=GRANULE_MAX);
            // Filling, then emptying, by turns.
            let is_taken = frames.random.chance(if round / 2000 % 2 == 0 { 9 } else { 2 }, 10);
            if frames.frames.is_empty() || is_taken {
                frames.take(granules, Claim::Growth);
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
            let granule_count = u64::from(chunk_count * CHUNK_GRANULES);
            while frames.space.used_granules * 100 < granule_count * full {
                let granules = frames.random.within(1..=GRANULE_MAX);
                // What is kept back too, and what is left of chunks by single granules.
                if !frames.take(granules, Claim::Upkeep) && !frames.take(1, Claim::Upkeep) {
                    break;
                }
            }
            const ALLOCATIONS: u64 = 1000;
            let steps = frames.space.steps.get();
            for _ in 0..ALLOCATIONS.min(frames.frames.len() as u64) {
                let granules = frames.give_back_one();
                assert!(frames.take(granules, Claim::Upkeep), "what was freed serves its size");
            }
            let steps = frames.space.steps.get() - steps;
            // Three lists of each size that chunks are for, and the chunk.
            let steps_max = ALLOCATIONS * (3 * GRANULE_MAX as u64 + 1);
            assert!(steps <= steps_max, "{chunk_count} chunks, {full} % full: {steps} steps");
        }
    }
}

/// Frames are replaced by others that are no larger, of all sizes, one at a time: as deletes do when memory is full.
#[test]
fn what_is_kept_back_for_deletes_lasts() {
    for seed in test_seeds() {
        let mut frames = Frames::new(16, seed);
        loop {
            let granules = frames.random.within(1..=GRANULE_MAX);
            if !frames.take(granules, Claim::Growth) {
                break;
            }
        }
        assert!(frames.space.free_blocks >= BLOCKS_FOR_NODES);
        for round in 0..20_000 {
            let place = frames.random.below(frames.frames.len() as u64) as usize;
            let old = frames.frames.swap_remove(place);
            let granules = frames.random.within(1..=old.granules());
            // The new frame is there before the old is free.
            assert!(frames.take(granules, Claim::Upkeep), "seed {seed} round {round}");
            frames.space.free(old);
            assert!(frames.space.free_blocks >= BLOCKS_FOR_DELETE, "seed {seed} round {round}");
            if round % 7 == 0 {
                let granules = frames.random.within(1..=GRANULE_MAX);
                frames.take(granules, Claim::Growth);
            }
        }
        frames.check();
    }
}

/// Only what is kept back is left: a frame that may not take a block goes to any chunk where it takes none.
#[test]
fn what_may_take_no_block_gets_every_run_outside_of_blocks() {
    for seed in test_seeds() {
        let mut frames = Frames::new(16, seed);
        while frames.take(GRANULE_MAX, Claim::Upkeep) {}
        let (mut granted, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let kept_back = frames.space.kept_back(Claim::Move);
            let granules = frames.random.within(1..=GRANULE_MAX - 1);
            if frames.space.free_blocks < kept_back - 1 || frames.random.chance(1, 3) {
                frames.give_back_one();
            } else if frames.space.free_blocks > kept_back {
                frames.take(granules, Claim::Upkeep);
            } else if frames.take(granules, Claim::Move) {
                granted += 1;
            } else {
                refused += 1;
                let fits = |chunk: &super::Chunk| {
                    let outside = chunk.granules.outside_of_blocks();
                    chunk.used > 0 && outside.first_run(granules).is_some()
                };
                assert!(!frames.space.chunks.iter().any(fits), "seed {seed}: {granules} granules are free in a run");
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
            for (place, frame) in all.into_iter().enumerate() {
                if place % keep == 0 { frames.frames.push(frame) } else { frames.space.free(frame) }
            }
            frames.move_all();
            frames.check();
            let free = frames.space.block_count * BLOCK_GRANULES - frames.space.used_granules as u32;
            let share = f64::from(frames.space.free_blocks * BLOCK_GRANULES) / f64::from(free);
            assert!(share > 0.93, "seed {seed}: one of {keep} of size {size} stays: {share} of what is free is blocks");
        }
    }
}

#[test]
fn a_value_leaves_room_for_another_of_its_size() {
    let mut space = Space::new(8 * CHUNK_GRANULES);
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
