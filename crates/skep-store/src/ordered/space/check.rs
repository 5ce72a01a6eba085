//! Checks the invariants of the space, unit by unit.

use std::collections::HashMap;

use super::super::memory::number::{CHUNK_UNITS, UNITS_UNUSED};
use super::{BLOCK_UNITS, Owner, Space, UnitMap};

impl Space {
    /// Checks that each unit is free, or part of one frame, or waits to be free. Checks that these frames, by their
    /// first units, are all that can be moved. Checks that chunks are counted and in the right lists.
    pub(crate) fn check(&self, frames: &HashMap<u32, (usize, Owner)>) {
        let (mut owned, mut used, mut moved, mut cached, mut touched, mut free_blocks) = (0, 0, 0, 0, 0, 0);
        for (chunk_index, chunk) in (0_u32..).zip(&self.chunks) {
            let start = chunk_index * CHUNK_UNITS;
            let unused = if chunk_index == 0 { UNITS_UNUSED } else { 0 };
            let mut units = UnitMap::FREE;
            units.flip(0, unused);
            let mut next = start + unused;
            while next < start + CHUNK_UNITS {
                let count = self.units_of_frame_at(next);
                if count == 0 {
                    assert_eq!(self.owners[next as usize], Owner::FREE, "unit {next} is not free, but in no frame");
                    next += 1;
                    continue;
                }
                if let Some(owner) = Owner::from_word(self.owners[next as usize]) {
                    assert_eq!(frames.get(&next), Some(&(count as usize, owner)), "frame {next} is in the tree");
                    owned += 1;
                } else if self.owners[next as usize] == Owner::MOVED {
                    moved += count;
                }
                units.flip(next - start, count);
                if self.owners[next as usize] == Owner::CACHED {
                    cached += count;
                } else {
                    used += u64::from(count);
                }
                next += count;
            }
            assert_eq!(next, start + CHUNK_UNITS, "frames are within their chunk");
            assert_eq!(units, chunk.units, "chunk {chunk_index} knows its units");
            assert_eq!(u32::from(chunk.used), units.used() - unused);
            assert!(chunk.touched >= chunk.used);
            assert_eq!(u32::from(chunk.free_blocks), units.free_blocks());
            let list = chunk.list().map(|list| (usize::from(chunk.frame_units), list));
            assert_eq!(self.by_run.list_of(chunk_index), list, "chunk {chunk_index} is in the list of its runs");
            assert_eq!(
                self.chunks_free.contains(&chunk_index),
                chunk.used == 0,
                "chunk {chunk_index} is free if it has no frame"
            );
            touched += u64::from(chunk.touched);
            free_blocks += units.free_blocks();
        }
        assert_eq!(owned, frames.len(), "every frame of the tree has its owner");
        let untouched = (self.chunk_count - self.chunks.len() as u32) * CHUNK_UNITS;
        let unused = if self.chunks.is_empty() { UNITS_UNUSED } else { 0 };
        assert_eq!(self.free_blocks, free_blocks + (untouched - unused) / BLOCK_UNITS, "free blocks are counted");
        let counted = (self.used_units, self.moved_units, self.cache.units());
        assert_eq!(counted, (used, moved, cached), "units are counted");
        // `touched` counts from the start of the chunk, with the units that are never used.
        assert!(self.touched_units <= touched);
    }
}
