//! What always holds of the space: checked granule by granule.

use std::collections::HashMap;

use super::super::memory::number::{CHUNK_GRANULES, GRANULES_UNUSED};
use super::{BLOCK_GRANULES, Granules, Owner, Space};

impl Space {
    /// Checks that each granule is free, or one frame's, or waits to be free; that these frames, by their first granules, are
    /// all that can be moved; and that chunks are counted and in the lists where they belong.
    pub(crate) fn check(&self, frames: &HashMap<u32, (usize, Owner)>) {
        let (mut owned, mut used, mut moved, mut touched, mut free_blocks) = (0, 0, 0, 0, 0);
        for (place, chunk) in (0_u32..).zip(&self.chunks) {
            let start = place * CHUNK_GRANULES;
            let unused = if place == 0 { GRANULES_UNUSED } else { 0 };
            let mut granules = Granules::FREE;
            granules.flip(0, unused);
            let mut next = start + unused;
            while next < start + CHUNK_GRANULES {
                let count = self.frame_granules(next);
                if count == 0 {
                    assert_eq!(self.owners[next as usize], Owner::FREE, "granule {next} goes on without a frame");
                    next += 1;
                    continue;
                }
                if let Some(owner) = Owner::from_word(self.owners[next as usize]) {
                    assert_eq!(frames.get(&next), Some(&(count as usize, owner)), "frame {next} is in the tree");
                    owned += 1;
                } else if self.owners[next as usize] == Owner::MOVED {
                    moved += count;
                }
                granules.flip(next - start, count);
                used += u64::from(count);
                next += count;
            }
            assert_eq!(next, start + CHUNK_GRANULES, "frames lie within their chunk");
            assert_eq!(granules, chunk.granules, "chunk {place} knows its granules");
            assert_eq!(u32::from(chunk.used), granules.used() - unused);
            assert!(chunk.touched >= chunk.used);
            assert_eq!(u32::from(chunk.free_blocks), granules.free_blocks());
            let list = chunk.list().map(|list| (usize::from(chunk.home), list));
            assert_eq!(self.by_run.list_of(place), list, "chunk {place} is in the list of its runs");
            assert_eq!(self.chunks_free.contains(&place), chunk.used == 0, "chunk {place} is free if nothing is in it");
            touched += u64::from(chunk.touched);
            free_blocks += granules.free_blocks();
        }
        assert_eq!(owned, frames.len(), "every frame of the tree has its owner");
        let untouched = (self.chunk_count - self.chunks.len() as u32) * CHUNK_GRANULES;
        let unused = if self.chunks.is_empty() { GRANULES_UNUSED } else { 0 };
        assert_eq!(self.free_blocks, free_blocks + (untouched - unused) / BLOCK_GRANULES, "free blocks are counted");
        assert_eq!((self.used_granules, self.moved_granules), (used, moved), "granules are counted");
        // `touched` counts from the start of the chunk, the granules that are never used included.
        assert!(self.touched_granules <= touched);
    }
}
