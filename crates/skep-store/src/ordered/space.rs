//! Who has which part of the region: free frames by size, free LIDs.
//!
//! ```text
//! region   │ unused │ chunk: frames of 9 granules │ chunk: 3 granules │ chunks never carved ... │
//! ```
//!
//! A chunk of 256 KiB is carved into frames of one size. It is given to another size when all of its frames are free and
//! somebody asks in vain; if there is none, a larger frame serves. Writers come here when they build nodes, so a lock is
//! enough; readers never do.

use super::frame::{FreeFrame, GRANULE_MAX, GRANULES_UNUSED};
use super::header::Lid;

/// Granules of a chunk.
const CHUNK_GRANULES: u32 = 512;

/// Free frames and LIDs.
#[derive(Debug)]
pub(super) struct Space {
    /// Free frames that were in use before, by granules.
    free: [Vec<u32>; GRANULE_MAX + 1],
    /// The part of a chunk that was never handed out, by granules: next frame and end.
    fresh: [(u32, u32); GRANULE_MAX + 1],
    /// Chunks, from the region's start: granules of their frames, or 0.
    chunk_granules: Vec<u8>,
    /// Frames of a chunk in use.
    chunk_used: Vec<u16>,
    /// Chunks that were given back.
    chunks_free: Vec<u32>,
    /// The first chunk never carved.
    chunk_next: u32,
    granule_count: u32,
    lids_free: Vec<u32>,
    lid_next: u32,
    used_granules: u64,
}

/// What the space holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Bytes of frames in use, those waiting for an epoch to pass included.
    pub used_bytes: u64,
    /// Bytes of the region that were handed out at some time: the memory that the store really takes.
    pub touched_bytes: u64,
    /// LIDs that were handed out at some time: each has a word in the page table.
    pub lids: u64,
    /// LIDs in use.
    pub lids_used: u64,
}

impl Space {
    /// All of a region of so many granules is free.
    pub(super) fn new(granule_count: u32) -> Self {
        let chunk_count = granule_count.div_ceil(CHUNK_GRANULES) as usize;
        Space {
            free: std::array::from_fn(|_| Vec::new()),
            fresh: [(0, 0); GRANULE_MAX + 1],
            chunk_granules: vec![0; chunk_count],
            chunk_used: vec![0; chunk_count],
            chunks_free: Vec::new(),
            chunk_next: 0,
            granule_count,
            lids_free: Vec::new(),
            lid_next: Lid::ROOT.number() + 1,
            used_granules: 0,
        }
    }

    /// A frame of this size, or larger if there is no other.
    pub(super) fn allocate(&mut self, granules: usize) -> Option<FreeFrame> {
        let size = (granules..=GRANULE_MAX).find(|size| self.has_frame(*size, granules))?;
        let number = match self.free[size].pop() {
            Some(number) => number,
            None => {
                let (next, _) = &mut self.fresh[size];
                *next += size as u32;
                *next - size as u32
            }
        };
        self.chunk_used[(number / CHUNK_GRANULES) as usize] += 1;
        self.used_granules += size as u64;
        Some(FreeFrame::carved(number, size))
    }

    /// Takes a frame back. Its size is that of its chunk, also if less was asked for.
    #[expect(clippy::needless_pass_by_value, reason = "the frame is in the space's hand from here on")]
    pub(super) fn free(&mut self, frame: FreeFrame) {
        let number = frame.number().bits();
        let chunk = (number / CHUNK_GRANULES) as usize;
        let granules = self.chunk_granules[chunk];
        self.chunk_used[chunk] -= 1;
        self.used_granules -= u64::from(granules);
        self.free[usize::from(granules)].push(number);
    }

    /// A LID that nobody knows.
    pub(super) fn allocate_lid(&mut self) -> Option<Lid> {
        if let Some(lid) = self.lids_free.pop() {
            return Some(Lid::new(lid));
        }
        let lid = self.lid_next;
        (lid < self.granule_count).then(|| {
            self.lid_next += 1;
            Lid::new(lid)
        })
    }

    /// Takes a LID back.
    pub(super) fn free_lid(&mut self, lid: Lid) {
        self.lids_free.push(lid.number());
    }

    pub(super) fn figures(&self) -> SpaceFigures {
        let bytes = |granules: u64| granules * super::frame::GRANULE_SIZE as u64;
        let fresh: u64 = self.fresh.iter().map(|(next, end)| u64::from(end - next)).sum();
        let carved = u64::from(self.chunk_next) * u64::from(CHUNK_GRANULES);
        SpaceFigures {
            used_bytes: bytes(self.used_granules),
            touched_bytes: bytes(carved.min(u64::from(self.granule_count)) - fresh.min(carved)),
            lids: u64::from(self.lid_next),
            lids_used: u64::from(self.lid_next) - self.lids_free.len() as u64,
        }
    }

    /// Whether a frame of this size can be had. New chunks are carved for the size that was asked for only.
    fn has_frame(&mut self, size: usize, asked: usize) -> bool {
        let (next, end) = self.fresh[size];
        !self.free[size].is_empty() || next + size as u32 <= end || (size == asked && self.carve(size))
    }

    /// Gives a chunk to a size.
    fn carve(&mut self, size: usize) -> bool {
        let Some(chunk) = self.free_chunk() else { return false };
        let start = (chunk * CHUNK_GRANULES).max(GRANULES_UNUSED);
        let end = ((chunk + 1) * CHUNK_GRANULES).min(self.granule_count);
        if start + size as u32 > end {
            // The last chunk may be short; smaller frames fit it.
            self.chunks_free.insert(0, chunk);
            return false;
        }
        self.chunk_granules[chunk as usize] = size as u8;
        self.fresh[size] = (start, end);
        true
    }

    fn free_chunk(&mut self) -> Option<u32> {
        if self.chunks_free.is_empty() && (self.chunk_next as usize) < self.chunk_granules.len() {
            self.chunk_next += 1;
            return Some(self.chunk_next - 1);
        }
        if self.chunks_free.is_empty() {
            self.collect_chunks();
        }
        self.chunks_free.pop()
    }

    /// Takes all chunks from their sizes of which no frame is in use.
    fn collect_chunks(&mut self) {
        let chunk_of = |number: u32| (number / CHUNK_GRANULES) as usize;
        for size in 1..=GRANULE_MAX {
            let (next, end) = self.fresh[size];
            let (used, granules) = (&self.chunk_used, &mut self.chunk_granules);
            if next < end && used[chunk_of(end - 1)] == 0 {
                self.fresh[size] = (0, 0);
            }
            self.free[size].retain(|number| used[chunk_of(*number)] > 0);
            for chunk in 0..self.chunk_next {
                if granules[chunk as usize] == size as u8 && used[chunk as usize] == 0 {
                    granules[chunk as usize] = 0;
                    self.chunks_free.push(chunk);
                }
            }
        }
    }
}
