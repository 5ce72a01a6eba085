//! Divides the region: frames in use and free allocation units, LIDs, and the reserve for writes that must not fail.
//!
//! ```text
//! region   │ unused │ chunk of 9s: ███░█ │ chunk of 3s: █░░░█ │ free chunk │ chunks never touched ... │
//! owners   a word for each unit: free │ LID of the frame that begins here │ rest │ unowned │ moved
//! ```
//!
//! **Allocation.** A chunk has 512 units.
//!
//! 1. While there is room, a frame is put into a chunk of frames of its size, or into a free chunk, which then has that
//!    size.
//! 2. When free blocks are scarce, it is put into the shortest free run that fits, in any chunk; into a free chunk only
//!    if there is no such run.
//! 3. A frame that is freed joins the free units around it, so memory of one size serves every other. A chunk whose
//!    last frame is freed is free at once.
//!
//! Chunks are in lists by their size and by their free runs, so each of these takes a fixed number of steps. While there is
//! room, the garbage of writes becomes cached frames, which need none of them, see `cache`.
//!
//! **Reserve.** A block is 16 aligned free units: the largest frame fits. A frame takes at most one, see `unit_map`. A
//! frame that fits a shorter run is always granted, except to growth. One that takes a block leaves as many as its
//! [`Claim`] says:
//!
//! | reserve | for |
//! |---|---|
//! | [`BLOCKS_FOR_NODES`] | deletes, overwrites: the nodes that their merges build before the old nodes are free |
//! | as many as the largest value has frames | the new copy of a value that is overwritten by one of its size |
//! | [`BLOCKS_FOR_MOVES`], and one for each chunk | frames that are moved out of sparse chunks |
//!
//! The largest delete builds at most three leaves and two interior nodes for each level above, so 16 blocks are enough
//! for a tree of seven levels. It returns frames as large as those it took, but at their old offsets, not as blocks.
//! For each size this may turn one block into shorter runs, which serve that size from then on. There are 16 sizes, so
//! another 16 blocks. An operation allocates all its frames at once or none, so operations that find the reserve in use
//! wait for others to return theirs.
//!
//! A chunk may have up to [`WASTE_MIN`] free units outside blocks that fit no frame of the present sizes. So growth
//! also leaves a block for each chunk. Otherwise overwrites of several sizes would turn all blocks into such runs.
//!
//! **Moving.** When blocks are scarce, [`Space::next_movable`] walks the chunk that has most free units outside blocks,
//! relative to its units in use, and returns the frames to move. It costs a word for each unit, 0.8 % of the touched
//! memory, to know the owner of a frame.

use std::ops::Range;

mod cache;
mod check;
mod lists;
mod unit_map;

use cache::FrameCache;
use lists::{LISTS, Lists};
use unit_map::{BLOCK_UNITS, CHUNK_BLOCKS, UnitMap};

use super::memory::frame_state::FreeFrame;
use super::memory::number::{CHUNK_UNITS, FRAME_UNITS_MAX, FrameNumber, Lid, UNIT_512_SIZE, UNITS_UNUSED};
use crate::memory::RegionError;

/// Blocks that the largest delete takes: three leaves, and two interior nodes for each of six levels.
const BLOCKS_FOR_DELETE: u32 = 16;
/// Blocks for writes that must not fail: deletes, and overwrites of the same size. One for each size of frame may turn
/// into shorter free runs.
const BLOCKS_FOR_NODES: u32 = BLOCKS_FOR_DELETE + FRAME_UNITS_MAX as u32;
/// Further blocks that only moves take.
const BLOCKS_FOR_MOVES: u32 = 8;
/// Chunks of the smallest region: the reserve, and as much again.
const CHUNK_COUNT_MIN: u32 = 3;
/// Units of the largest region: a word of `owners` contains a LID and its kind.
const UNIT_COUNT_MAX: u32 = (u32::MAX - Owner::FIRST) / 2;
/// Blocks are scarce if fewer than this part of all, and fewer than this number, are free beyond the reserve.
const SCARCE_PART: u32 = 32;
const SCARCE_BLOCKS_MIN: u32 = 32;
/// Free units outside blocks from which moving the frames of a chunk is worth it.
const WASTE_MIN: u32 = 32;
/// Most moved units that may wait for an epoch before more are moved.
const MOVED_UNITS_MAX: u32 = 1024;
/// Lists of chunks by gain: this many for each unit gained by each unit moved.
const GAIN_UNIT: u32 = 4;
const GAIN_MAX: u32 = 15;

/// The purpose of a frame, which decides how much of the reserve it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A write that may fail: leaves all of the reserve.
    Growth,
    /// The copy of a value that is overwritten by one of its size: leaves the blocks for nodes.
    Overwrite,
    /// A node of a write that must not fail.
    Upkeep,
    /// A frame that is moved: leaves the blocks for writes.
    Move,
}

/// The owner of a frame, whose reference changes when the frame is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The latest frame of a node, or one that is being built for it.
    Node(Lid),
    /// A complete part of an overflow value.
    Value(Lid),
}

impl Owner {
    /// The word of a free unit.
    const FREE: u32 = 0;
    /// The word of a unit that is not the first of its frame.
    const REST: u32 = 1;
    /// The word of a frame that cannot be moved: it is being written, or was retired.
    const UNOWNED: u32 = 2;
    /// The word of a frame whose content was moved.
    const MOVED: u32 = 3;
    /// The word of a frame in the cache.
    const CACHED: u32 = 4;
    /// The first word that contains an owner.
    const FIRST: u32 = 5;

    fn to_word(self) -> u32 {
        let (lid, kind) = match self {
            Owner::Node(lid) => (lid, 0),
            Owner::Value(lid) => (lid, 1),
        };
        Owner::FIRST + 2 * lid.number() + kind
    }

    fn from_word(word: u32) -> Option<Self> {
        let number = word.checked_sub(Owner::FIRST)?;
        let lid = Lid::new(number / 2);
        Some(if number.is_multiple_of(2) { Owner::Node(lid) } else { Owner::Value(lid) })
    }
}

/// A frame whose content can be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Movable {
    pub(crate) owner: Owner,
    pub(crate) number: FrameNumber,
    pub(crate) units: usize,
}

/// A chunk that was touched.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    units: UnitMap,
    /// Units in use.
    used: u16,
    /// Units from its start that were allocated at some time.
    touched: u16,
    /// Units of each frame that it is for.
    frame_units: u8,
    free_blocks: u8,
}

impl Chunk {
    /// Returns its list within its group, if it is in use and has a free unit. Lists below [`FRAME_UNITS_MAX`] are
    /// ordered by the longest free run. The lists from there on are for chunks that fit the largest frame. They are
    /// ordered by the longest run outside free blocks, at most [`FRAME_UNITS_MAX`] - 1.
    fn list(&self) -> Option<usize> {
        let beside_blocks = self.units.without_free_blocks().longest_run();
        let has_largest = self.free_blocks > 0 || beside_blocks == FRAME_UNITS_MAX;
        let list = if has_largest { FRAME_UNITS_MAX + beside_blocks.min(FRAME_UNITS_MAX - 1) } else { beside_blocks };
        (self.used > 0 && list > 0).then_some(list)
    }
}

/// Free units and LIDs.
#[derive(Debug)]
pub(crate) struct Space {
    /// The owner of each unit, see [`Owner`].
    owners: Vec<u32>,
    /// The chunks that were touched.
    chunks: Vec<Chunk>,
    chunk_count: u32,
    /// Chunks in use: groups by the size of their frames, lists by their free runs, see [`Chunk::list`].
    by_run: Lists,
    /// Chunks in use, by the gain of moving their frames.
    by_gain: Lists,
    /// Chunks that were touched and are free.
    chunks_free: Vec<u32>,
    /// Frames that were freed last. For their chunks they are in use.
    cache: FrameCache,
    /// Free blocks of all chunks, untouched chunks included.
    free_blocks: u32,
    block_count: u32,
    /// Blocks that the largest value needed, since there was last no value.
    value_blocks_max: u32,
    /// The chunk whose frames are being moved, and the unit to continue with.
    source: Option<(u32, u32)>,
    moved_units: u32, // Their content was moved, and they wait for an epoch.
    lids_free: Vec<u32>,
    lid_next: u32,
    /// LIDs of parts of overflow values.
    value_lids: u64,
    used_units: u64,
    touched_units: u64,
    /// Chunks and lists that were examined to find room.
    #[cfg(test)]
    steps: std::cell::Cell<u64>,
}

/// Statistics of the space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStatistics {
    /// Bytes of frames in use, with those that wait for an epoch to pass.
    pub used_bytes: u64,
    /// Bytes of the region that were allocated at some time: the memory that the store really uses.
    pub touched_bytes: u64,
    /// LIDs that were allocated at some time: each has a word in the page table.
    pub lids: u64,
    /// LIDs of nodes in use, without those of parts of values.
    pub lids_used: u64,
}

impl Space {
    /// Returns the units of the whole chunks that fit a region of `size` bytes.
    pub(crate) fn unit_count(size: u64) -> Result<u32, RegionError> {
        let chunk_size = u64::from(CHUNK_UNITS) * UNIT_512_SIZE as u64;
        let size_min = u64::from(CHUNK_COUNT_MIN) * chunk_size;
        if size < size_min {
            return Err(RegionError::TooSmall { size, size_min });
        }
        let units = u32::try_from(size / chunk_size * u64::from(CHUNK_UNITS)).ok();
        units.filter(|units| *units <= UNIT_COUNT_MAX).ok_or(RegionError::TooLarge { size })
    }

    /// Returns true if this number of frames can be allocated for growth, one of them for a value of `value_blocks` parts,
    /// and blocks are never scarce meanwhile, even if no frame is freed: each frame takes at most one block.
    pub(crate) fn has_room_for(&self, frames: u64, value_blocks: u32) -> bool {
        let kept = self.reserve_for(Claim::Growth) + value_blocks + self.scarce_blocks();
        u64::from(self.free_blocks) >= u64::from(kept) + frames
    }

    /// Creates a space in which all units are free. Their number is a multiple of a chunk's.
    pub(crate) fn new(unit_count: u32) -> Self {
        let chunk_count = unit_count / CHUNK_UNITS;
        assert!(unit_count.is_multiple_of(CHUNK_UNITS) && chunk_count >= CHUNK_COUNT_MIN);
        let block_count = chunk_count * CHUNK_BLOCKS - UNITS_UNUSED.div_ceil(BLOCK_UNITS);
        Space {
            owners: vec![Owner::FREE; unit_count as usize],
            chunks: Vec::with_capacity(chunk_count as usize),
            chunk_count,
            by_run: Lists::new(FRAME_UNITS_MAX + 1, chunk_count as usize),
            by_gain: Lists::new(1, chunk_count as usize),
            chunks_free: Vec::new(),
            cache: FrameCache::default(),
            free_blocks: block_count,
            block_count,
            value_blocks_max: 0,
            source: None,
            moved_units: 0,
            lids_free: Vec::new(),
            lid_next: Lid::ROOT.number() + 1,
            value_lids: 0,
            used_units: 0,
            touched_units: 0,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    /// Allocates a frame, which is unowned until [`Space::give`].
    pub(crate) fn allocate(&mut self, units: usize, claim: Claim) -> Option<FreeFrame> {
        match self.allocate_cached(units) {
            None => self.allocate_avoiding(units, claim, None),
            frame => frame,
        }
    }

    /// Allocates a frame from the cache, unless blocks are scarce: only then may an allocation be refused.
    fn allocate_cached(&mut self, units: usize) -> Option<FreeFrame> {
        if self.is_scarce() {
            return None;
        }
        let number = self.cache.pop(units)?;
        self.owners[number as usize] = Owner::UNOWNED;
        self.used_units += units as u64;
        Some(FreeFrame::carved(number, units))
    }

    /// Allocates the frames of a value and a LID for each, or none. They leave room for another value of this size.
    pub(crate) fn allocate_value(&mut self, units: &[usize], claim: Claim) -> Option<Vec<(Lid, FreeFrame)>> {
        let blocks_max_before = self.value_blocks_max;
        self.value_blocks_max = blocks_max_before.max(units.len() as u32);
        let mut parts = Vec::with_capacity(units.len());
        for size in units {
            let frame = self.allocate(*size, claim);
            let lid = if frame.is_some() { self.allocate_lid() } else { None };
            self.value_lids += u64::from(lid.is_some());
            match (lid, frame) {
                (Some(lid), Some(frame)) => parts.push((lid, frame)),
                (_, frame) => {
                    frame.into_iter().for_each(|frame| self.free(frame));
                    for (lid, frame) in parts {
                        self.free(frame);
                        self.free_value_lid(lid);
                    }
                    self.value_blocks_max = blocks_max_before;
                    return None;
                }
            }
        }
        Some(parts)
    }

    /// Sets the owner of a frame. It can be moved from now on, once the page table leads to it.
    pub(crate) fn give(&mut self, frame: FrameNumber, owner: Owner) {
        self.owners[frame.bits() as usize] = owner.to_word();
    }

    /// Makes a frame unowned, before it is tagged as garbage. It is not moved from now on.
    pub(crate) fn retire(&mut self, frame: FrameNumber) {
        self.owners[frame.bits() as usize] = Owner::UNOWNED;
    }

    /// Notes that the content of a frame was moved.
    pub(crate) fn retire_moved(&mut self, frame: &Movable) {
        self.owners[frame.number.bits() as usize] = Owner::MOVED;
        self.moved_units += frame.units as u32;
    }

    /// Frees a frame.
    #[expect(clippy::needless_pass_by_value, reason = "the frame is in the space's hand from here on")]
    pub(crate) fn free(&mut self, frame: FreeFrame) {
        let (number, units) = (frame.number().bits(), frame.units());
        let words = &mut self.owners[number as usize..][..units];
        assert!(words[0] != Owner::FREE && words[1..].iter().all(|word| *word == Owner::REST), "it is one frame");
        if words[0] == Owner::MOVED {
            self.moved_units -= units as u32;
        }
        words.fill(Owner::FREE);
        let chunk_index = number / CHUNK_UNITS;
        let chunk = &mut self.chunks[chunk_index as usize];
        chunk.units.flip(number % CHUNK_UNITS, units as u32);
        chunk.used -= units as u16;
        self.used_units -= units as u64;
        if chunk.used == 0 {
            self.chunks_free.push(chunk_index);
        }
        self.update(chunk_index);
    }

    /// Frees a frame for the next allocation of its size, if blocks are not scarce and the cache has room.
    pub(crate) fn recycle(&mut self, frame: FreeFrame) {
        let (number, units) = (frame.number().bits(), frame.units());
        let is_retired = self.owners[number as usize] == Owner::UNOWNED;
        if !is_retired || self.is_scarce() || !self.cache.push(number, units) {
            return self.free(frame);
        }
        self.owners[number as usize] = Owner::CACHED;
        self.used_units -= units as u64;
    }

    /// Frees all frames of the cache.
    fn empty_cache(&mut self) {
        while let Some((number, units)) = self.cache.pop_any() {
            self.used_units += units as u64;
            self.free(FreeFrame::carved(number, units));
        }
    }

    /// Allocates a LID.
    pub(crate) fn allocate_lid(&mut self) -> Option<Lid> {
        if let Some(lid) = self.lids_free.pop() {
            return Some(Lid::new(lid));
        }
        let lid = self.lid_next;
        ((lid as usize) < self.owners.len()).then(|| {
            self.lid_next += 1;
            Lid::new(lid)
        })
    }

    /// Frees a LID.
    pub(crate) fn free_lid(&mut self, lid: Lid) {
        self.lids_free.push(lid.number());
    }

    /// Frees the LID of a part of a value that was never published.
    pub(crate) fn free_value_lid(&mut self, lid: Lid) {
        self.forget_value_lid();
        self.free_lid(lid);
    }

    /// Notes that a LID, which will be freed, is no longer a part's.
    pub(crate) fn forget_value_lid(&mut self) {
        self.value_lids -= 1;
        if self.value_lids == 0 {
            self.value_blocks_max = 0;
        }
    }

    /// Returns the number of parts that all overflow values have.
    pub(crate) fn value_part_count(&self) -> usize {
        self.value_lids as usize
    }

    /// Returns true if so few blocks are free that frames have to be moved.
    pub(crate) fn is_scarce(&self) -> bool {
        self.free_blocks < self.reserve_for(Claim::Growth) + self.scarce_blocks()
    }

    /// Returns the number of blocks beyond the reserve of which fewer are scarce.
    fn scarce_blocks(&self) -> u32 {
        (self.block_count / SCARCE_PART).max(SCARCE_BLOCKS_MIN)
    }

    /// Returns the next frame to move, if moving gains anything. Examines at most `left` units, which it counts down.
    pub(crate) fn next_movable(&mut self, left: &mut u32) -> Option<Movable> {
        while *left > 0 {
            if self.source.is_none() {
                self.source = Some((self.gainful_chunk()?, 0));
            }
            let (chunk, next) = self.source?;
            if next == CHUNK_UNITS {
                // Not again before the chunk changes.
                self.by_gain.put(chunk, None, true);
                self.source = None;
                continue;
            }
            let number = chunk * CHUNK_UNITS + next;
            let units = self.units_of_frame_at(number);
            self.source = Some((chunk, next + units.max(1)));
            *left = left.saturating_sub(units.max(1));
            if let Some(owner) = Owner::from_word(self.owners[number as usize]) {
                let number = FrameNumber::from_bits(number.try_into().expect("the first units are not used"));
                return Some(Movable { owner, number, units: units as usize });
            }
        }
        None
    }

    /// Allocates a frame in another chunk for the content of a frame. If there is none, the other frames of its chunk
    /// stay too.
    pub(crate) fn allocate_for(&mut self, from: &Movable) -> Option<FreeFrame> {
        let source = from.number.bits() / CHUNK_UNITS;
        let frame = self.allocate_avoiding(from.units, Claim::Move, Some(source));
        if frame.is_none() && self.source.is_some_and(|(chunk, _)| chunk == source) {
            self.source = Some((source, CHUNK_UNITS));
        }
        frame
    }

    pub(crate) fn statistics(&self) -> SpaceStatistics {
        let bytes = |units: u64| units * UNIT_512_SIZE as u64;
        SpaceStatistics {
            used_bytes: bytes(self.used_units),
            touched_bytes: bytes(self.touched_units),
            lids: u64::from(self.lid_next),
            lids_used: u64::from(self.lid_next) - self.lids_free.len() as u64 - self.value_lids,
        }
    }

    /// Returns the blocks that a claim has to leave.
    fn reserve_for(&self, claim: Claim) -> u32 {
        match claim {
            Claim::Growth => self.reserve_for(Claim::Move) + BLOCKS_FOR_MOVES + self.chunk_count,
            Claim::Move => BLOCKS_FOR_NODES + self.value_blocks_max,
            Claim::Overwrite => BLOCKS_FOR_DELETE,
            Claim::Upkeep => 0,
        }
    }

    fn allocate_avoiding(&mut self, units: usize, claim: Claim, avoided: Option<u32>) -> Option<FreeFrame> {
        if claim == Claim::Move || self.is_scarce() {
            self.empty_cache();
        }
        let is_close = claim == Claim::Move || self.is_scarce();
        let own = (!is_close).then(|| self.by_run.lowest(units, units)).flatten();
        let own = own.and_then(|run| self.by_run.first(units, run));
        let found = own.or_else(|| {
            let (free, other) = (|| self.free_chunk(), || self.chunk_with_run(units, avoided));
            if is_close { other().or_else(free) } else { free().or_else(other) }
        })?;
        #[cfg(test)]
        self.steps.update(|steps| steps + 1);
        if found as usize == self.chunks.len() {
            self.add_chunk();
        }
        let chunk = &mut self.chunks[found as usize];
        let beside_blocks = is_close.then(|| chunk.units.without_free_blocks().first_run(units)).flatten();
        let first = beside_blocks.or_else(|| chunk.units.first_run(units)).expect("the list tells the longest run");
        let mut with_frame = chunk.units;
        with_frame.flip(first, units as u32);
        let taken = u32::from(chunk.free_blocks) - with_frame.free_blocks();
        if (taken > 0 || claim == Claim::Growth) && self.free_blocks - taken < self.reserve_for(claim) {
            return None;
        }
        let chunk = &mut self.chunks[found as usize];
        if chunk.used == 0 {
            chunk.frame_units = units as u8;
            let free = self.chunks_free.pop();
            assert_eq!(free, Some(found), "a chunk that is not in use is the last of the free");
        }
        let end = first + units as u32;
        self.touched_units += u64::from(end.saturating_sub(u32::from(chunk.touched)));
        chunk.touched = chunk.touched.max(end as u16);
        chunk.units = with_frame;
        chunk.used += units as u16;
        self.used_units += units as u64;
        self.update(found);
        let number = found * CHUNK_UNITS + first;
        self.owners[number as usize..][..units].fill(Owner::REST);
        self.owners[number as usize] = Owner::UNOWNED;
        Some(FreeFrame::carved(number, units))
    }

    /// Returns the free chunk that is used next. It may have to be added.
    fn free_chunk(&self) -> Option<u32> {
        let next = self.chunks.len() as u32;
        self.chunks_free.last().copied().or((next < self.chunk_count).then_some(next))
    }

    /// Returns a chunk in use with the shortest free run that fits. It is within a free block only if there is no
    /// other.
    fn chunk_with_run(&self, units: usize, avoided: Option<u32>) -> Option<u32> {
        // Chunks without free blocks; chunks with such a run besides free blocks; the others, which fit the largest
        // frame.
        let lists = [units..FRAME_UNITS_MAX, FRAME_UNITS_MAX + units..LISTS, FRAME_UNITS_MAX..LISTS];
        lists.into_iter().find_map(|lists| {
            let found = (1..=FRAME_UNITS_MAX)
                .filter_map(|frame_units| self.chunk_in_lists(frame_units, lists.clone(), avoided));
            Some(found.min_by_key(|(list, _)| *list)?.1)
        })
    }

    /// Returns the first chunk that is not avoided in the lowest of these lists that has one, and the list.
    fn chunk_in_lists(
        &self,
        frame_units: usize,
        mut lists: Range<usize>,
        avoided: Option<u32>,
    ) -> Option<(usize, u32)> {
        loop {
            #[cfg(test)]
            self.steps.update(|steps| steps + 1);
            let list = self.by_run.lowest(frame_units, lists.start).filter(|list| lists.contains(list))?;
            let first = self.by_run.first(frame_units, list)?;
            match if Some(first) == avoided { self.by_run.after(first) } else { Some(first) } {
                Some(chunk) => return Some((list, chunk)),
                None => lists.start = list + 1,
            }
        }
    }

    /// Adds the next chunk that was never touched to the free ones.
    fn add_chunk(&mut self) {
        let chunk_index = self.chunks.len() as u32;
        let mut units = UnitMap::FREE;
        if chunk_index == 0 {
            units.flip(0, UNITS_UNUSED);
        }
        let free_blocks = units.free_blocks() as u8;
        self.chunks.push(Chunk { units, used: 0, touched: 0, frame_units: 0, free_blocks });
        self.by_run.add();
        self.by_gain.add();
        self.chunks_free.push(chunk_index);
    }

    /// Moves a chunk that has changed to its lists.
    fn update(&mut self, chunk_index: u32) {
        let is_scarce = self.is_scarce();
        let chunk = &mut self.chunks[chunk_index as usize];
        let free_blocks = chunk.units.free_blocks();
        self.free_blocks = self.free_blocks + free_blocks - u32::from(chunk.free_blocks);
        chunk.free_blocks = free_blocks as u8;
        let (frame_units, used, list) = (usize::from(chunk.frame_units), u32::from(chunk.used), chunk.list());
        let waste = CHUNK_UNITS - chunk.units.used() - free_blocks * BLOCK_UNITS;
        let gain = 1 + GAIN_UNIT * waste / used.max(1);
        // Touched memory is used before untouched memory. While frames are moved away from a chunk, it is used last, so
        // that it can become empty.
        let is_last = u32::from(chunk.touched) < CHUNK_UNITS - FRAME_UNITS_MAX as u32 || is_scarce;
        self.by_run.put(chunk_index, list.map(|list| (frame_units, list)), is_last);
        self.by_gain.put(
            chunk_index,
            (used > 0 && waste >= WASTE_MIN).then_some((0, gain.min(GAIN_MAX) as usize)),
            true,
        );
    }

    /// Returns the chunk where moving gains most, unless too many moved units still wait.
    fn gainful_chunk(&self) -> Option<u32> {
        if self.moved_units >= MOVED_UNITS_MAX {
            return None;
        }
        self.by_gain.first(0, self.by_gain.highest(0)?)
    }

    /// Returns the units of the frame that begins here, or zero.
    fn units_of_frame_at(&self, number: u32) -> u32 {
        if matches!(self.owners[number as usize], Owner::FREE | Owner::REST) {
            return 0;
        }
        let rest = self.owners[number as usize + 1..].iter().take_while(|word| **word == Owner::REST);
        1 + rest.take(FRAME_UNITS_MAX - 1).count() as u32
    }
}

#[cfg(test)]
mod tests;
